//! A cluster on machines of a cloud, for which network namespaces with SSH servers stand in.
//!
//! In: a cluster file that asks for two machines of AWS, and in Terraform's place a program that reads what it is to make and
//! gives the namespaces the keys. Out: a cluster on them. Always: a second start finds the machines and their state again;
//! they are destroyed only when that is said.

use super::hosts::{KEY, Machines, can_stand_in};
use super::kills::client::Client;
use super::{Server, Settings, behaviour};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// What stands in for Terraform: as a cloud does, it hands each machine its keys, and says where it is.
const STAND_IN: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys, time
here = os.environ["STAND_IN"]
with open(f"{here}/calls", "a") as calls:
    calls.write(sys.argv[1] + "\n")
made = "terraform.tfstate"
if sys.argv[1] == "apply":
    wanted = json.load(open("main.tf.json"))
    resources = wanted["resource"]
    machines = resources["aws_instance"]
    assert set(machines) == {"m-0", "m-1"}, machines.keys()
    if not os.path.exists(made):
        script = machines["m-0"]["user_data"]
        private = script.split("<<'END'\n")[1].split("END\n")[0]
        with open(f"{here}/host", "w") as host:
            host.write(private)
        with open(f"{here}/user.pub", "w") as user:
            user.write(resources["aws_key_pair"]["cluster"]["public_key"] + "\n")
        for number in (2, 3):
            os.kill(int(open(f"{here}/sshd-{number}.pid").read()), signal.SIGHUP)
        for name in machines:
            print(f"aws_instance.{name}: Creating...", flush=True)
        json.dump(sorted(machines), open(made, "w"))
    print("Apply complete! Resources: 2 added, 0 changed, 0 destroyed.")
elif sys.argv[1] == "show":
    print(json.dumps({"resource_changes": []}))
elif sys.argv[1] == "output":
    addresses = os.environ["STAND_IN_ADDRESSES"].split()
    named = {f"m-{n}_{what}": {"value": address} for n, address in enumerate(addresses) for what in ("public", "private")}
    print(json.dumps(named))
elif sys.argv[1] == "destroy":
    os.remove(made)
    print("Destroy complete! Resources: 2 destroyed.")
"#;

/// What stands in for a Terraform that takes its time: it makes each machine when there is a file `go`, or it is asked
/// to end, says so and writes it down.
const SLOW: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys, time
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(True))
made = "terraform.tfstate"
if sys.argv[1] == "apply":
    machines = json.load(open("main.tf.json"))["resource"]["aws_instance"]
    there = json.load(open(made)) if os.path.exists(made) else []
    for name in sorted(machines):
        if name in there:
            continue
        print(f"aws_instance.{name}: Creating...", flush=True)
        while not asked and not os.path.exists("go"):
            time.sleep(0.02)
        there.append(name)
        json.dump(there, open(made, "w"))
        if asked:
            print("Interrupt received.", file=sys.stderr, flush=True)
            sys.exit(1)
    print("Apply complete! Resources: 2 added, 0 changed, 0 destroyed.", flush=True)
elif sys.argv[1] == "show":
    print(json.dumps({"resource_changes": []}))
elif sys.argv[1] == "output":
    print(json.dumps({f"m-{n}_{what}": {"value": "192.0.2.1"} for n in range(2) for what in ("public", "private")}))
"#;

#[test]
fn terraform_writes_down_what_it_made_whatever_happens_to_the_program_that_started_it() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("tofu"), SLOW).unwrap();
    std::fs::set_permissions(place.path().join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = place.path().join("cluster.toml");
    let ask = |region: &str| {
        let text = format!(
            "[cluster]\ndirectory = \"state\"\n[[host]]\nname = \"m\"\nkind = \"aws\"\ncount = 2\nregion = {region:?}\nopen_to = [\"192.0.2.0/24\"]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    ask("eu-central-1");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    let command = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command
            .args(words)
            .arg(&file)
            .current_dir(place.path())
            .env("PATH", &path)
            .env("AWS_ACCESS_KEY_ID", "stand-in");
        command.env("SLACKWATER_GATEWAY_KEYS", format!("test:{KEY}")).stdin(Stdio::null());
        command
    };
    let workplace = place.path().join("state/terraform");
    let made = || {
        let text = std::fs::read_to_string(workplace.join("terraform.tfstate")).unwrap_or_default();
        text.matches("m-").count()
    };
    // A plan fixes no numbers and no place: nothing is there yet.
    for (region, more) in [("us-east-1", "cells = 3"), ("eu-central-1", "")] {
        ask(region);
        std::fs::write(
            &file,
            std::fs::read_to_string(&file).unwrap().replace("[cluster]", &format!("[cluster]\n{more}")),
        )
        .unwrap();
        let told = command(&["cluster", "plan"]).output().unwrap();
        assert!(told.status.success(), "{told:?}");
    }
    assert!(!place.path().join("state/cluster.json").exists());
    let name = std::fs::read_to_string(workplace.join("name")).unwrap();
    let mut penniless = command(&["cluster", "up"]);
    let told = penniless.env_remove("AWS_ACCESS_KEY_ID").env("HOME", place.path()).output().unwrap();
    let words = String::from_utf8_lossy(&told.stderr);
    assert!(!told.status.success() && words.contains("there are no credentials for"), "{words}");
    assert!(!place.path().join("state/cluster.json").exists(), "its numbers are still free");

    // Killed in the middle of the first machine.
    let mut killed = command(&["cluster", "up"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !std::fs::read_to_string(workplace.join("terraform.log")).is_ok_and(|log| log.contains("m-0: Creating")) {
        assert!(begun.elapsed() < PATIENCE, "nothing is made");
        std::thread::sleep(LOOK);
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(made(), 0);

    // The next one waits for it, and finds all that it made. Then it waits for the machines, until it is told to stop.
    let log = place.path().join("log");
    let out = File::create(&log).unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    let mut second = command(&["cluster", "up"]).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
    let until = |what: &str, child: &mut Child| {
        let begun = Instant::now();
        while !said().contains(what) {
            assert!(begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{what}: {}", said());
            std::thread::sleep(LOOK);
        }
    };
    until("of an earlier start is still at work, and is waited for", &mut second);
    std::fs::write(workplace.join("go"), "").unwrap();
    until("Apply complete", &mut second);
    assert_eq!(made(), 2);
    assert!(!said().contains("Creating"), "the first one made all: {}", said());
    signal(&second, Signal::HUP);
    assert_eq!(second.wait().unwrap().code(), Some(1));
    assert!(said().contains("the machines are kept, and `slackwater cluster up` goes on with them"), "{}", said());

    // Another place would orphan them.
    ask("us-east-1");
    for what in ["up", "plan"] {
        let told = command(&["cluster", what]).output().unwrap();
        let words = String::from_utf8_lossy(&told.stderr);
        assert!(
            words.contains("has machines of aws in eu-central-1, and the file asks for some of aws in us-east-1"),
            "{words}"
        );
    }
    ask("eu-central-1");
    let mut without = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    let told = without.args(["cluster", "up", "--directory", "state"]).current_dir(place.path()).output().unwrap();
    let words = String::from_utf8_lossy(&told.stderr);
    assert!(words.contains("has machines of aws in eu-central-1, and is to be started without them"), "{words}");

    // Ctrl-C in the middle: the machine under way is made and written down, the next is not begun.
    std::fs::write(workplace.join("terraform.tfstate"), "[]").unwrap();
    std::fs::remove_file(workplace.join("go")).unwrap();
    let out = File::create(&log).unwrap();
    let mut third = command(&["cluster", "up"]).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
    until("m-0: Creating", &mut third);
    signal(&third, Signal::INT);
    assert_eq!(third.wait().unwrap().code(), Some(1));
    assert!(said().contains("stopping tofu, so that it writes down what it has made"), "{}", said());
    assert!(said().contains("`slackwater cluster up` goes on with it"), "{}", said());
    assert_eq!(made(), 1);
    let again = std::fs::read_to_string(workplace.join("name")).unwrap();
    assert_eq!(again, name, "what is made keeps its name");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_on_machines_that_are_made_for_it() {
    if !can_stand_in() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let machines = Machines::start(place.path(), 1);
    let programs = place.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::fs::write(programs.join("tofu"), STAND_IN).unwrap();
    std::fs::set_permissions(programs.join("tofu"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = Settings::new(place.path(), u64::from(std::process::id()) + 7_000, behaviour::SCRIPT, None);
    let file = place.path().join("cluster.toml");
    let text = format!(
        "[cluster]\ncells = 2\nshards = 1\n[[host]]\nname = \"m\"\nkind = \"aws\"\ncount = 2\nregion = \"eu-central-1\"\nopen_to = [\"10.213.0.0/16\"]\nuser = \"root\"\ndirectory = \"{}/state\"\n",
        place.path().display()
    );
    std::fs::write(&file, text).unwrap();
    let addresses = [machines.address(2), machines.address(3)];
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let as_on_cloud = |command: &mut Command| {
        command.env("PATH", &path).env("STAND_IN", place.path()).env("STAND_IN_ADDRESSES", addresses.join(" "));
        command.env("AWS_ACCESS_KEY_ID", "stand-in").env("SLACKWATER_GATEWAY_KEYS", format!("test:{KEY}"));
    };
    let say = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        as_on_cloud(command.args(words).current_dir(place.path()));
        let told = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
        (told.status.code().unwrap(), format!("{out}{err}"))
    };
    let (of, directory) = (file.to_str().unwrap(), settings.directory.to_str().unwrap());

    let (status, words) = say(&["cluster", "plan", of, "--directory", directory]);
    assert!(status == 0 && words.contains("m-1: m7a.large in eu-central-1"), "{words}");
    assert!(words.contains("nothing was made") && !place.path().join("calls").exists(), "{words}");

    let up = || {
        let mut command = settings.cells_command(2, 1);
        as_on_cloud(command.arg(&file));
        command
    };
    let gateways: Vec<Client> = addresses
        .iter()
        .zip(0..)
        .map(|(address, cell)| Client::with_key(format!("http://{address}:{}", settings.port + cell), KEY))
        .collect();
    let names: Vec<String> = (0..6).map(|n| format!("thread-{n}")).collect();
    for (id, number) in [("first", 1), ("second", 3)] {
        let server = Server::launch(&settings, &mut up(), &gateways).await;
        for name in &names {
            assert_eq!(gateways[1].post(name, id, "hello").await, number, "the machines have their state");
            gateways[0].idle(name).await;
        }
        let (status, words) = say(&["cluster", "status", "--directory", directory]);
        let m1 = format!("m-1 is {}, and to its neighbours ", addresses[1]);
        assert!(status == 0 && words.contains(&m1), "{words}");
        let (status, words) = say(&["cluster", "destroy", "--directory", directory, "--yes"]);
        assert!(status == 1 && words.contains("the cluster runs"), "{words}");
        assert!(server.terminate().0.success(), "{}", settings.log());
        let cost = format!(
            "its 2 machines of a cloud go on, and cost; `slackwater cluster destroy --directory {directory}` ends"
        );
        assert!(settings.log().contains(&cost), "{}", settings.log());
    }
    assert!(settings.log().contains("m-0 is up at"), "{}", settings.log());

    let (status, words) = say(&["cluster", "destroy", "--directory", directory]);
    assert!(status == 2 && words.contains("say --yes"), "{words}");
    let (status, words) = say(&["cluster", "destroy", "--directory", directory, "--yes"]);
    assert!(status == 0 && words.contains("are destroyed"), "{words}");
    let calls = std::fs::read_to_string(place.path().join("calls")).unwrap();
    let of_a_start = ["init", "plan", "show", "apply", "output"];
    let expected: Vec<&str> = of_a_start.into_iter().chain(of_a_start).chain(["init", "destroy"]).collect();
    assert_eq!(calls.lines().collect::<Vec<_>>(), expected);
    let (status, words) = say(&["cluster", "destroy", "--directory", directory, "--yes"]);
    assert!(status == 1 && words.contains("has no machines of a cloud"), "{words}");
    assert!(!Path::new(directory).join("cluster.json").exists());
}
