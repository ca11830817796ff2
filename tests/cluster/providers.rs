//! What clusters ask of a cloud, compared with what the clouds' providers know.
//!
//! In: the texts that `deploy/src/command/cluster/cloud` makes (its own tests keep them equal to these files); the bindings that are
//! generated from the schemas of Google's and Azure's providers, in the versions asked for (`tests/peers/terraform.sh`); Terraform
//! itself with AWS's provider, where a machine has them. Out: nothing that a provider would refuse. Always: what is wrong is
//! shown to be seen.

use super::peers::peer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where AWS's provider is looked for: a mirror as `terraform providers mirror` makes it.
const MIRROR: &str = "/opt/tf-plugins";

fn text_of(cloud: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(top.join(format!("src/command/cluster/cloud/golden/{cloud}.tf.json"))).unwrap()
}

#[test]
fn the_providers_of_google_and_azure_know_what_they_are_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let compare = |provider: &str, text: &str| {
        let file = place.path().join("main.tf.json");
        std::fs::write(&file, text).unwrap();
        let bindings = peer(&format!("terraform/{provider}/package"), "terraform.sh");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/terraform_schema.py");
        let told = Command::new("python3").arg(script).arg(file).arg(bindings).arg(provider).output().unwrap();
        (told.status.code(), String::from_utf8(told.stdout).unwrap() + &String::from_utf8_lossy(&told.stderr))
    };
    for (provider, cloud) in [("google", "gcp"), ("azurerm", "azure")] {
        let (status, said) = compare(provider, &text_of(cloud));
        assert_eq!(status, Some(0), "{cloud}: {said}");
        assert!(said.contains("arguments and references are as the provider has them"), "{said}");
    }
    let good = text_of("gcp");
    let bad = [
        ("\"machine_type\"", "\"machine_kind\"", "the provider knows no machine_kind"),
        ("\"machine_type\"", "\"machine_kind\"", "machineType is missing"),
        ("\"size\": 20", "\"size\": true", "True is no number"),
        (
            "network_ip}",
            "network_ip}${google_compute_disk.one.id}",
            "google_compute_disk.one.id: there is no such thing",
        ),
        ("google_compute_address.one.address", "google_compute_address.one.where", "one.where: there is no such thing"),
    ];
    for (from, to, says) in bad {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from} is in the text");
        let (status, said) = compare("google", &text);
        assert!(status == Some(1) && said.contains(says), "{to}: {said}");
    }
}

#[test]
fn terraform_finds_what_aws_is_asked_for_valid() {
    let mirror = std::env::var_os("SLACKWATER_TERRAFORM_PLUGINS").map_or_else(|| MIRROR.into(), PathBuf::from);
    let versions = mirror.join("registry.terraform.io/hashicorp/aws");
    let versions = std::fs::read_dir(&versions).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let version = versions.filter_map(|name| name.into_string().ok()).find(|name| name.starts_with("5."));
    let there = Command::new("terraform").arg("version").output().is_ok();
    let Some(version) = version.filter(|_| there) else {
        eprintln!(
            "not tried: needs terraform in PATH, and hashicorp/aws 5 in {} (`terraform providers mirror`)",
            mirror.display()
        );
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let mut configuration: Value = serde_json::from_str(&text_of("aws")).unwrap();
    configuration["terraform"]["required_providers"]["aws"]["version"] = version.into();
    let terraform = |arguments: &[&str]| {
        let told = Command::new("terraform").args(arguments).current_dir(place.path()).output().unwrap();
        (
            told.status.success(),
            format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr)),
        )
    };
    let write = |configuration: &Value| std::fs::write(place.path().join("main.tf.json"), configuration.to_string());
    write(&configuration).unwrap();
    let (is_ready, said) = terraform(&["init", "-no-color", &format!("-plugin-dir={}", mirror.display())]);
    assert!(is_ready, "{said}");
    let (is_valid, said) = terraform(&["validate", "-no-color"]);
    assert!(is_valid, "{said}");
    configuration["resource"]["aws_instance"]["m-0"]["instance_kind"] = "m7a.large".into();
    write(&configuration).unwrap();
    let (is_valid, said) = terraform(&["validate", "-no-color"]);
    assert!(!is_valid && said.contains("instance_kind"), "{said}");
}
