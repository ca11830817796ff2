//! What bad input gets: an error that names the place and the mend, before anything starts.

use super::cluster;
use slackwater::host::directory::{self, Manifest};
use slackwater::placement::Placement;
use std::path::Path;

/// A cluster that has run and does not run, with one cell of two shards.
fn past(place: &Path) -> Manifest {
    let mut manifest = Manifest::new(Placement::even(1, 2, 16));
    for shard in 0..2 {
        directory::claim(&directory::shard_directory(place, shard), &manifest.cluster, shard, false).unwrap();
    }
    manifest.known = vec![0, 1];
    manifest.store(place).unwrap();
    manifest
}

#[test]
fn a_cluster_that_cannot_work_is_told_before_anything_starts() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    past(&data);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap().to_string();
    let up = |more: &[&str]| {
        let words = ["up", "--directory", "data"].iter().chain(more).copied().collect::<Vec<_>>();
        cluster(place.path(), &words)
    };
    for (arguments, status, said) in [
        (&["--shards", "3"][..], 1, "a cluster with --cells 1 --shards 2; start it with these, move its threads with"),
        (&["--listen", "127.0.0.1:0"], 2, "a cluster needs ports that stay the same"),
        (&["--listen", "192.0.2.1:7070"], 2, "without keys"),
        (&["--listen", &taken], 1, "is something there already?"),
        (&["none.toml"], 1, "cannot read the cluster file none.toml"),
    ] {
        let (code, words) = up(arguments);
        assert!(code == status && words.contains(said), "{arguments:?}: {code}: {words}");
    }
    std::fs::write(place.path().join("c.toml"), "[cluster]\nshrads = 2\n").unwrap();
    let (code, words) = up(&["c.toml"]);
    assert!(code == 2 && words.contains("c.toml, line 2: unknown field `shrads`"), "{words}");

    // An SSH host that is not there.
    let file = "[[host]]\nname = 'one'\naddress = '127.0.0.1'\nport = 9\n";
    std::fs::write(place.path().join("h.toml"), file).unwrap();
    let (code, words) = cluster(place.path(), &["up", "h.toml", "--directory", "other"]);
    assert!(code == 1 && words.contains("host one: ") && !place.path().join("other").exists(), "{words}");

    std::fs::rename(data.join("shard-1"), data.join("elsewhere")).unwrap();
    let (code, words) = up(&[]);
    assert!(code == 1 && words.contains("shard 1: its state is gone"), "{words}");
    assert!(!data.join("shard-1").exists(), "it was not started empty");
    std::fs::create_dir(data.join("shard-1")).unwrap();
    let owner = r#"{"format": 1, "cluster": "another", "shard": 1}"#;
    std::fs::write(data.join("shard-1/shard.json"), owner).unwrap();
    let (code, words) = up(&[]);
    assert!(code == 1 && words.contains("the state of shard 1 of the cluster another"), "{words}");
    std::fs::write(data.join("cluster.json"), r#"{"format": 9}"#).unwrap();
    for command in ["up", "status", "rebalance"] {
        let (code, words) = cluster(place.path(), &[command, "--directory", "data"]);
        assert!(code == 1 && words.contains("it has the format 9"), "{command}: {words}");
    }
}

#[test]
fn a_cluster_that_does_not_run_says_so() {
    let place = tempfile::tempdir().unwrap();
    for command in [&["status"][..], &["down"], &["restart", "0"], &["rebalance"]] {
        let (code, words) = cluster(place.path(), command);
        assert!(code == 1 && words.contains("there is no cluster in slackwater-data"), "{command:?}: {words}");
    }
    past(place.path());
    let here = ["--directory", "."];
    let (code, words) = cluster(place.path(), &[&["status"], &here[..]].concat());
    assert!(code == 0 && words.contains("does not run"), "{words}");
    for command in [&["down"][..], &["restart", "0"]] {
        let (code, words) = cluster(place.path(), &[command, &here[..]].concat());
        assert!(code == 1 && words.contains("does not run"), "{command:?}: {words}");
    }
    let (code, words) = cluster(place.path(), &["rebalance", "--directory", ".", "--shards", "17"]);
    assert!(code == 2 && words.contains("more than the 16 virtual shards"), "{words}");
    let (code, words) = cluster(place.path(), &["rebalance", "--directory", ".", "--cells", "2"]);
    assert!(code == 0 && words.contains("8 virtual shards have moved; 0 threads"), "{words}");
    let (code, words) = cluster(place.path(), &["rebalance", "--directory", "."]);
    assert!(code == 0 && words.contains("all is as it should be: 2 cells of 2 shards"), "{words}");
}
