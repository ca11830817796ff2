//! What is made on a cloud.
//!
//! In: cluster files. Out: what Terraform is told. Always: nothing is asked of a cloud; the real program runs with its own provider.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
use super::*;
use hydro_deploy::aws::AwsNetwork;
use hydro_deploy::gcp::GcpNetwork;
use hydro_deploy::terraform::TerraformBatch;
use hydro_deploy::{AwsEc2Host, AzureHost, GcpComputeEngineHost, HostTargetType, ResourceBatch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn keys() -> Keys {
    Keys {
        own: "key".into(),
        own_public: "ssh-ed25519 OWN slackwater".to_owned(),
        host_private: "-----BEGIN OPENSSH PRIVATE KEY-----\nHOST\n-----END OPENSSH PRIVATE KEY-----\n".to_owned(),
        host_public: "ssh-ed25519 HOST slackwater-host".to_owned(),
        known_hosts: "known_hosts".into(),
    }
}

fn read(text: &str) -> Result<ClusterFile, Failure> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cluster.toml");
    std::fs::write(&path, text).unwrap();
    super::super::file::read(&path)
}

const AWS: &str =
    "[[host]]\nname = 'm'\nkind = 'aws'\ncount = 2\nregion = 'eu-central-1'\nopen_to = ['203.0.113.7/32']\n";
const GCP: &str = "[[host]]\nname = 'one'\nkind = 'gcp'\nzone = 'europe-west1-b'\nproject = 'p'\nopen_to = ['203.0.113.7/32']\nimage = 'i'\n[[host]]\nname = 'two'\nkind = 'gcp'\nzone = 'europe-west1-b'\nproject = 'p'\nopen_to = ['198.51.100.0/24', '203.0.113.7/32']\ndisk_gb = 100\nuser = 'me'\n";
const AZURE: &str = "[[host]]\nname = 'one'\nkind = 'azure'\nregion = 'westeurope'\nopen_to = ['203.0.113.7/32']\nmachine = 'Standard_D4as_v5'\n";

fn configuration(text: &str) -> Value {
    let cloud = Cloud::of(&read(text).unwrap(), (7070, 2)).unwrap();
    serde_json::from_str(&cloud.configuration("0a1b2c3d-0000-4000-8000-000000000000", &keys()).to_json()).unwrap()
}

#[test]
fn what_terraform_is_told_is_as_it_was_read_by_people() {
    for (name, text) in [("aws", AWS), ("gcp", GCP), ("azure", AZURE)] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/command/cluster/cloud/golden/{name}.tf.json"));
        let told = format!("{:#}\n", configuration(text));
        if std::env::var_os("SLACKWATER_GOLDEN").is_some() {
            std::fs::write(&path, &told).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(told, golden, "{}: SLACKWATER_GOLDEN=1 writes it anew, to be read", path.display());
    }
}

/// The attributes of each kind of resource.
fn attributes(resources: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let of = |named: &Value| {
        named.as_object().unwrap().values().flat_map(|one| one.as_object().unwrap().keys().cloned()).collect()
    };
    resources.as_object().unwrap().iter().map(|(kind, named)| (kind.clone(), of(named))).collect()
}

/// hydro_deploy's hosts are used by others, and make the same: what they do not use has to be known here by name.
#[test]
fn resources_and_attributes_are_those_of_hydro_deploys_hosts() {
    let target = HostTargetType::Local;
    let hosts: [(&str, Box<dyn hydro_deploy::Host>); 3] = [
        (
            AWS,
            Box::new(AwsEc2Host::new(
                0,
                "r",
                "t",
                target,
                "a",
                AwsNetwork::new("r", None),
                None,
                None,
                None,
                None,
                None,
            )),
        ),
        (
            GCP,
            Box::new(GcpComputeEngineHost::new(0, "p", "t", "i", target, "z", GcpNetwork::new("p", None), None, None)),
        ),
        (AZURE, Box::new(AzureHost::new(0, "p".into(), "linux".into(), "s".into(), None, target, "r".into(), None))),
    ];
    let known_else: BTreeSet<&str> = [
        // An address that stays, and the newest image of Debian.
        "azurerm_public_ip.sku",
        "aws_eip",
        "google_compute_address",
        // A disk's length, the script of the first start, and that neither replaces a machine.
        "aws_instance.root_block_device",
        "aws_instance.user_data",
        "aws_instance.lifecycle",
        "google_compute_instance.metadata_startup_script",
        "google_compute_instance.lifecycle",
        "azurerm_linux_virtual_machine.custom_data",
        "azurerm_linux_virtual_machine.lifecycle",
        // Who may reach what.
        "google_compute_firewall.source_tags",
        "google_compute_firewall.target_tags",
        "azurerm_network_security_rule.destination_port_ranges",
        "azurerm_network_security_rule.source_address_prefixes",
    ]
    .into();
    for (text, host) in hosts {
        host.request_custom_binary();
        let mut batch = ResourceBatch { terraform: TerraformBatch::default() };
        host.collect_resources(&mut batch);
        let theirs = serde_json::to_value(&batch.terraform).unwrap();
        let ours = configuration(text);
        let (provider, told) = ours["terraform"]["required_providers"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(*told, theirs["terraform"]["required_providers"][provider], "{provider}");
        let (ours, theirs) = (attributes(&ours["resource"]), attributes(&theirs["resource"]));
        for (kind, attributes) in ours {
            if known_else.contains(kind.as_str()) {
                continue;
            }
            let there = theirs.get(&kind).unwrap_or_else(|| panic!("{kind} is no resource of hydro_deploy"));
            for attribute in attributes {
                let is_known = known_else.contains(format!("{kind}.{attribute}").as_str());
                assert!(is_known || there.contains(&attribute), "{kind} has no {attribute} in hydro_deploy");
            }
        }
    }
}

#[test]
fn what_is_open_is_open_to_those_whom_the_file_names() {
    for text in [AWS, GCP, AZURE] {
        let told = configuration(text).to_string();
        assert!(told.contains("203.0.113.7/32") && !told.contains("\"0.0.0.0/0\"]],"), "{told}");
    }
    let ingress = configuration(AWS)["resource"]["aws_security_group"]["cluster"]["ingress"].clone();
    let open: Vec<&Value> = ingress.as_array().unwrap().iter().filter(|rule| rule["self"] == false).collect();
    assert!(open.len() == 2 && open.iter().all(|rule| rule["cidr_blocks"] == serde_json::json!(["203.0.113.7/32"])));
    assert_eq!((&open[1]["from_port"], &open[1]["to_port"]), (&7070.into(), &7071.into()));
}

#[test]
fn bad_input_is_told_with_place_and_mend() {
    let aws = |more: &str| format!("{AWS}{more}");
    for (text, said) in [
        (aws("zone = 'z'"), "host m: zone is not for kind \"aws\", but for gcp"),
        (aws("address = '192.0.2.1'"), "host m: address is not for kind \"aws\", but for ssh"),
        (AWS.replace("region = 'eu-central-1'\n", ""), "host m: missing field `region`, which kind \"aws\" needs"),
        (AWS.replace("open_to = ['203.0.113.7/32']\n", ""), "kind \"aws\" needs open_to"),
        (AWS.replace("203.0.113.7/32", "203.0.113.7"), "\"203.0.113.7\" is no block of addresses"),
        (AWS.replace("'aws'", "'amazon'"), "unknown variant `amazon`"),
        (AWS.replace("count = 2", "count = 0"), "count has to be a number from 1 to 64"),
        (AWS.replace("'m'", "'Main Host'"), "has at most 24 lower-case letters"),
        (AWS.replace("eu-central-1", "eu central"), "\"eu central\" is no place of aws"),
        (aws("directory = 'state'"), "its directory state has to begin with /"),
        (aws("disk_gb = 1"), "disk_gb has to be a number from 10 to 16384"),
        (format!("{AZURE}image = 'debian'\n"), "publisher:offer:sku:version"),
        (format!("{AWS}{AZURE}"), "are of two kinds or places"),
        (
            format!("{AWS}{}", AWS.replace("'m'\n", "'m-0'\n").replace("count = 2\n", "")),
            "two machines would be called \"m-0\"",
        ),
        (format!("{AWS}[[host]]\nname = 'x'\naddress = 'y'\n"), "are of two kinds or places"),
        (
            "[[host]]\nname = 'x'\naddress = 'y'\nregion = 'z'\n".to_owned(),
            "region is not for kind \"ssh\", but for aws, azure",
        ),
    ] {
        let failure = read(&text).unwrap_err();
        let words = failure.words().unwrap();
        assert!(words.contains(said), "{said}: {words}");
    }
}

/// The real program, with the one provider that it has built in, so that nothing has to be fetched.
#[tokio::test]
async fn terraform_makes_keeps_and_destroys() {
    let place = tempfile::tempdir().unwrap();
    let Ok(terraform) = Terraform::find(place.path()) else {
        eprintln!("not tried: neither tofu nor terraform is here");
        return;
    };
    let mut signals = Signals::new().unwrap();
    let file = place.path().join("main.tf.json");
    let config = r#"{"resource":{"terraform_data":{"one":{"input":"192.0.2.1"}}},
        "output":{"one_public":{"value":"${terraform_data.one.output}"}}}"#;
    std::fs::write(&file, config).unwrap();
    terraform.run(&["init", "-input=false"], &mut signals).await.unwrap();
    terraform.run(&["apply", "-input=false", "-auto-approve"], &mut signals).await.unwrap();
    let state = || {
        serde_json::from_str::<Value>(&std::fs::read_to_string(place.path().join("terraform.tfstate")).unwrap())
            .unwrap()
    };
    let id = |state: &Value| state["resources"][0]["instances"][0]["attributes"]["id"].clone();
    let made = id(&state());
    terraform.run(&["apply", "-input=false", "-auto-approve"], &mut signals).await.unwrap();
    assert_eq!(id(&state()), made, "what is there is not made again");
    assert_eq!(terraform.outputs().await.unwrap(), BTreeMap::from([("one_public".to_owned(), "192.0.2.1".to_owned())]));
    terraform.check_keeps(&mut signals).await.unwrap();
    std::fs::write(&file, config.replace("\"one\"", "\"two\"").replace("data.one", "data.two")).unwrap();
    let failure = terraform.check_keeps(&mut signals).await.unwrap_err();
    assert!(failure.words().unwrap().contains("this would destroy one"), "{failure:?}");
    assert_eq!(id(&state()), made, "nothing was done");
    std::fs::write(&file, config).unwrap();
    terraform.run(&["destroy", "-input=false", "-auto-approve"], &mut signals).await.unwrap();
    assert_eq!(state()["resources"], Value::Array(Vec::new()));

    std::fs::write(&file, r#"{"resource":{"terraform_data":{"one":{"nonsense":1}}}}"#).unwrap();
    let failure = terraform.run(&["apply", "-input=false", "-auto-approve"], &mut signals).await.unwrap_err();
    let words = failure.words().unwrap();
    assert!(words.contains("apply has failed") && words.contains("nonsense"), "{words}");
}

#[test]
fn keys_are_made_once_and_are_nobody_elses() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (Keys::open(place.path(), Kind::Aws).unwrap(), Keys::open(place.path(), Kind::Aws).unwrap());
    assert_eq!((&first.own_public, &first.host_private), (&second.own_public, &second.host_private));
    assert_ne!(first.own_public, first.host_public);
    for name in ["key", "host_key"] {
        let mode = std::fs::metadata(place.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let azure = tempfile::tempdir().unwrap();
    assert!(Keys::open(azure.path(), Kind::Azure).unwrap().own_public.starts_with("ssh-rsa "));
    first.know(["192.0.2.1", "192.0.2.2"].into_iter()).unwrap();
    let known = std::fs::read_to_string(&first.known_hosts).unwrap();
    assert_eq!(known.lines().count(), 2);
    assert!(known.starts_with("192.0.2.1 ssh-ed25519 "), "{known}");
}
