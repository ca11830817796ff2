//! `slackwater cluster export --ecs`: what it writes, and what it refuses before it begins.
//!
//! In: command lines. Out: files, or words. Always: the whole export compiles Hydro's code for AWS, which takes minutes, so it is
//! run only when it is asked for: `cargo test -p slackwater --test export -- --ignored`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "export/images.rs"]
mod images;

use images::Buildah;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn export(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    command.args(["cluster", "export"]).args(arguments).arg("--output").arg(directory);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_cannot_be_exported_is_refused_with_the_mend() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("manifest.json"), "{}").unwrap();
    for (arguments, status, said) in [
        (vec!["--ecs"], 1, "is not empty; give another directory with --output"),
        (vec![], 2, "--ecs"),
        (vec!["--ecs", "--shards", "9"], 2, "1..=8"),
        (vec!["--ecs", "--shards", "0"], 2, "1..=8"),
    ] {
        let output = export(&arguments, place.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {words}");
        assert!(words.contains(said), "{arguments:?}: {words}");
    }
}

#[test]
#[ignore = "compiles Hydro's code for AWS, which takes minutes"]
fn an_export_has_a_program_and_an_image_for_each_location() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("ecs");
    let output = export(&["--ecs", "--shards", "2"], &directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let manifest: Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let processes = manifest["processes"].as_object().unwrap();
    assert_eq!((processes.len(), manifest["clusters"].as_object().unwrap().len()), (3, 0));
    let families: BTreeSet<&str> = processes.values().map(|one| one["task_family"].as_str().unwrap()).collect();
    assert_eq!(families.len(), 3, "{families:?}");
    for (name, process) in processes {
        let image = read(&format!("{}.Dockerfile", name.rsplit("::").next().unwrap().to_lowercase()));
        let program = process["build"]["bin_name"].as_str().unwrap();
        assert!(image.contains(&format!("COPY bin/{program} ")), "{name}: {image}");
        assert!(read("build.sh").contains(program));
        let source = Path::new(process["build"]["project_dir"].as_str().unwrap()).join("examples");
        assert!(source.join(format!("{program}.rs")).is_file(), "{name}: its program is not generated");
    }
    assert_eq!(manifest["processes"]["slackwater::host::cluster::Gateway"]["ports"]["exposed-7070"]["port"], 7070);
}

#[test]
#[ignore = "compiles the programs of a gateway and a shard with AWS's client for speed, which takes a quarter of an hour"]
fn the_images_build_and_their_programs_start() {
    let place = tempfile::tempdir().unwrap();
    let Some(buildah) = Buildah::found(place.path()) else { return };
    let directory = place.path().join("ecs");
    let output = export(&["--ecs", "--shards", "1"], &directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Command::new("sh").arg(directory.join("build.sh")).status().unwrap().success());
    let from = std::fs::read_to_string(directory.join("gateway.Dockerfile")).unwrap();
    let base = from.lines().find_map(|line| line.strip_prefix("FROM ")).unwrap();
    let suite = base.strip_prefix("debian:").and_then(|base| base.strip_suffix("-slim")).unwrap();
    buildah.make_base(base, suite);
    for name in ["gateway", "shard0"] {
        let container = buildah.build(&directory, &format!("{name}.Dockerfile"), &format!("slackwater-{name}"));
        let libraries = buildah.run(&["run", &container, "--", "ldd", "/usr/local/bin/location"]);
        assert!(libraries.contains("libc.so.6") && !libraries.contains("not found"), "{libraries}");
        let state = [
            "run",
            &container,
            "--",
            "sh",
            "-c",
            "id -u && stat -c %U /var/lib/slackwater && cat /etc/slackwater/cluster.toml",
        ];
        assert!(buildah.run(&state).starts_with("10001\nslackwater\n# The settings"));
    }
    // As it is exported it lets nobody in, and says so; with a key it listens.
    let gateway = "slackwater-gateway-working-container";
    let refused = buildah.try_run(&["run", gateway, "--", "/usr/local/bin/location"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("without keys"), "{words}");
    let asks = "exec 3<>/dev/tcp/127.0.0.1/17997; printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let with_key = format!(
        "sed 's/^keys.*/keys = [\"me:a-secret-that-nobody-knows\"]/; s/0.0.0.0:7070/127.0.0.1:17997/' $SLACKWATER_CLUSTER_SETTINGS > /tmp/told.toml
         SLACKWATER_CLUSTER_SETTINGS=/tmp/told.toml timeout 5 location & sleep 3; {asks}; wait"
    );
    let said = buildah.try_run(&["run", gateway, "--", "bash", "-c", &with_key]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("{\"live\":true}"), "{said:?}");
    // A shard whose state is there waits for its gateway, which it would find by ECS.
    let waits = "mkdir /var/lib/slackwater/shard-0 && timeout 5 location; test $? = 124";
    buildah.run(&["run", "slackwater-shard0-working-container", "--", "bash", "-c", waits]);
}
