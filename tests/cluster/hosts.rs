//! Machines that are reached by SSH: network namespaces with an SSH server each stand in for them.
//!
//! In: two namespaces on a bridge. Out: a cell on each; one of them is cut off for some seconds and comes back; then threads are moved
//! between the machines, and what moves them is killed. Always: what was acknowledged is there once; who is at the other machine
//! notices nothing of a cut. Needs root, `ip` and `sshd`, and says so when it has not.

use super::kills::client::Client;
use super::kills::records;
use super::{begin, cluster, within};
use crate::kills::server_process::{Server, Settings};
use slackwater::host::directory::{Manifest, shard_directory};
use slackwater::host::layout::machine_of;
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use slackwater_core::history::Item;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) const KEY: &str = "0123456789abcdef0123";

/// How long a machine is cut off: longer than it takes to notice.
const CUT: Duration = Duration::from_secs(9);

/// The stand-in machines. They are gone when this is dropped.
pub(crate) struct Machines {
    id: u32,
    servers: Vec<Child>,
}

/// Whether the system, a container perhaps, lets this process make what the stand-ins need.
fn may_make_networks() -> bool {
    let name = format!("swtry{}", std::process::id() % 10_000);
    let ip = |words: &str| Command::new("ip").args(words.split(' ')).output().is_ok_and(|done| done.status.success());
    let bridge = ip(&format!("link add {name} type bridge"));
    let space = ip(&format!("netns add {name}"));
    let pair = ip(&format!("link add {name}a type veth peer name {name}b"));
    if bridge {
        ip(&format!("link del {name}"));
    }
    if space {
        ip(&format!("netns del {name}"));
    }
    if pair {
        ip(&format!("link del {name}a"));
    }
    bridge && space && pair
}

/// Whether machines can be stood in for here; says why not.
pub(crate) fn can_stand_in() -> bool {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has("ip") || !has("/usr/sbin/sshd") {
        eprintln!("not tried: this needs root, iproute2 and openssh-server");
        return false;
    }
    // Tried once: two tests at a time would be in each other's way.
    static MAY: OnceLock<bool> = OnceLock::new();
    if !MAY.get_or_init(may_make_networks) {
        eprintln!("not tried: this system does not let root make bridges and network namespaces");
        return false;
    }
    true
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Machines {
    /// Two of them on a bridge; `which` tells those of one test from another's.
    pub(crate) fn start(place: &Path, which: u32) -> Self {
        let id = (std::process::id() * 2 + which) % 200;
        let mut machines = Self { id, servers: Vec::new() };
        run(&format!("ip link add sw{id} type bridge"));
        run(&format!("ip addr add 10.213.{id}.1/24 dev sw{id}"));
        run(&format!("ip link set sw{id} up"));
        for name in ["host", "user"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.join(name)).status();
            assert!(made.unwrap().success());
        }
        machines.servers = (2..4).map(|number| machines.machine(place, number)).collect();
        machines
    }

    fn machine(&self, place: &Path, number: u32) -> Child {
        let (id, name) = (self.id, format!("sw{}-{number}", self.id));
        run(&format!("ip netns add {name}"));
        run(&format!("ip link add {name} type veth peer name eth0 netns {name}"));
        run(&format!("ip link set {name} master sw{id} up"));
        run(&format!("ip -n {name} addr add 10.213.{id}.{number}/24 dev eth0"));
        run(&format!("ip -n {name} link set eth0 up"));
        run(&format!("ip -n {name} link set lo up"));
        std::fs::create_dir_all("/run/sshd").unwrap();
        let config = place.join(format!("sshd-{number}"));
        let text = format!(
            "HostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\nStrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin prohibit-password\n",
            place.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut known = std::fs::read_to_string(place.join("known_hosts")).unwrap_or_default();
        let key = std::fs::read_to_string(place.join("host.pub")).unwrap();
        known.push_str(&format!("{} {key}", self.address(number)));
        std::fs::write(place.join("known_hosts"), known).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "/usr/sbin/sshd", "-D", "-e", "-f"]).arg(config);
        let server = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::fs::write(place.join(format!("sshd-{number}.pid")), server.id().to_string()).unwrap();
        server
    }

    pub(crate) fn address(&self, number: u32) -> String {
        format!("10.213.{}.{number}", self.id)
    }

    fn set(&self, number: u32, state: &str) {
        run(&format!("ip link set sw{}-{number} {state}", self.id));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let id = self.id;
        for command in [format!("netns del sw{id}-2"), format!("netns del sw{id}-3"), format!("link del sw{id}")] {
            let _ = Command::new("ip").args(command.split_whitespace()).output();
        }
    }
}

fn kill(mut mover: Child) {
    mover.kill().unwrap();
    mover.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_on_two_machines_and_one_is_cut_off() {
    if !can_stand_in() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let machines = Machines::start(place.path(), 0);
    let settings = Settings::new(place.path(), u64::from(std::process::id()) + 5_000, super::behaviour::SCRIPT, None);
    let host = |name: &str, number: u32| {
        let (address, place) = (machines.address(number), place.path().display());
        format!(
            "[[host]]\nname = {name:?}\naddress = {address:?}\nuser = \"root\"\nkey = \"{place}/user\"\nknown_hosts = \"{place}/known_hosts\"\ndirectory = \"{place}/{name}\"\n"
        )
    };
    let file = place.path().join("cluster.toml");
    std::fs::write(&file, format!("[cluster]\ncells = 2\nshards = 1\n{}{}", host("one", 2), host("two", 3))).unwrap();
    let mut command = settings.cells_command(2, 1);
    command.arg(&file).env("SLACKWATER_GATEWAY_KEYS", format!("test:{KEY}"));
    let gateway = |number: u32, cell: u16| format!("http://{}:{}", machines.address(number), settings.port + cell);
    let gateways = [Client::with_key(gateway(2, 0), KEY), Client::with_key(gateway(3, 1), KEY)];

    // A key that the machine does not know is told by the machine's name.
    let strange = place.path().join("strange.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("/user\"\nknown", "/host\"\nknown");
    std::fs::write(&strange, text).unwrap();
    let mut refused = settings.cells_command(2, 1);
    let refused = refused.arg(&strange).env("SLACKWATER_GATEWAY_KEYS", format!("test:{KEY}")).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("host one: ") && words.contains("give its key"), "{words}");

    let server = Server::launch(&settings, &mut command, &gateways).await;
    let placement = Placement::even(2, 1, VIRTUAL_SHARDS);
    let cell_of = |name: &str| placement.cell_of(slackwater::gateway::name::address(name).unwrap().thread);
    let names: Vec<String> = (0..12).map(|n| format!("thread-{n}")).collect();
    for name in &names {
        gateways[1].post(name, "before", "hello").await;
    }
    machines.set(3, "down");
    let cut = Instant::now();
    let (mut asked, mut refused) = (0, 0);
    while cut.elapsed() < CUT {
        for name in &names {
            let answer = gateways[0].try_post(name, &format!("during-{asked}"), "hello").await.unwrap();
            match cell_of(name) {
                0 => assert_eq!(answer.status(), 201, "nothing of the other machine is needed"),
                _ => {
                    assert_eq!(answer.status(), 503, "who is cut off is told to come back");
                    assert!(answer.headers().contains_key("retry-after"));
                    refused += 1;
                }
            }
        }
        asked += 1;
    }
    assert!(refused > 0);
    machines.set(3, "up");
    let healed = Instant::now();
    for name in &names {
        gateways[1].post(name, "after", "hello").await;
        gateways[0].idle(name).await;
    }
    eprintln!("cut off for {} s; all again {} ms after it was healed", CUT.as_secs(), healed.elapsed().as_millis());
    // Twice as many shards of the cluster that runs: one of them goes to the other machine, and all are divided.
    let directory = settings.directory.clone();
    let (code, words) = tokio::task::block_in_place(|| {
        cluster(&directory, &["rebalance", "--directory", ".", "--cells", "2", "--shards", "2"])
    });
    assert!(code == 0 && words.contains("The cluster has 2 cells of 2 shards now"), "{words}\n{}", settings.log());
    let log = std::fs::read_to_string(directory.join("cluster.log")).unwrap();
    log.lines().filter(|line| line.starts_with("slackwater: ")).for_each(|line| eprintln!("{line}"));
    eprintln!("{}", words.lines().last().unwrap());
    for name in &names {
        gateways[1].post(name, "moved", "hello").await;
        gateways[0].idle(name).await;
    }
    assert!(server.terminate().0.success(), "{}", settings.log());
    within("the locations have ended", async || {
        let left = Command::new("ip").args(["netns", "pids", &format!("sw{}-3", machines.id)]).output().unwrap();
        // The SSH server itself is left.
        (String::from_utf8_lossy(&left.stdout).lines().count() <= 1).then_some(())
    })
    .await;

    // And one cell on both machines, of the cluster that does not run. The command is killed while it copies, before it puts the first
    // new journal in its place, and between two of them; at last a machine is cut off meanwhile.
    let shrink = ["rebalance", "--directory", ".", "--cells", "1", "--shards", "2"];
    let manifest = || Manifest::load(&directory).unwrap().unwrap();
    let stands_aside = |what: &str| {
        let hosts = ["one", "two"].map(|host| std::fs::read_dir(place.path().join(host)).unwrap());
        hosts.into_iter().flatten().any(|entry| entry.unwrap().path().extension().is_some_and(|is| is == what))
    };
    let mover = begin(&directory, &shrink, || stands_aside("next")).await;
    kill(mover);
    let mover = begin(&directory, &shrink, || manifest().copied).await;
    kill(mover);
    let mover = begin(&directory, &shrink, || stands_aside("old")).await;
    kill(mover);
    assert!(manifest().copied && manifest().moving_to.is_some(), "it is on its way");
    machines.set(3, "down");
    let (code, words) = cluster(&directory, &shrink);
    assert!(code == 1 && words.contains("host two: ") && words.contains("nothing is lost"), "{words}");
    machines.set(3, "up");
    let (code, words) = cluster(&directory, &shrink);
    assert!(code == 0 && words.contains("The cluster has 1 cell of 2 shards now"), "{words}");
    let manifest = manifest();
    let mut found = std::collections::BTreeMap::new();
    for shard in 0..2 {
        let host = place.path().join(["one", "two"][machine_of(&manifest.placement, shard, 2)]);
        let threads = records::read(&shard_directory(&host, shard)).await;
        assert!(
            threads.keys().all(|thread| manifest.placement.shard_of(*thread) == shard),
            "all are where they belong"
        );
        found.extend(threads);
    }
    assert_eq!(found.len(), names.len());
    for name in &names {
        let folded = &found[&slackwater::gateway::name::address(name).unwrap().thread];
        let asked = if cell_of(name) == 0 { asked + 3 } else { 3 };
        let is_user = |item: &&std::sync::Arc<Item>| matches!(***item, Item::User { .. });
        assert_eq!(folded.items().iter().filter(is_user).count(), asked, "{name}: all that was acknowledged, once");
    }
    for (at, shards) in [("one", 1), ("two", 1), ("data", 0)] {
        let names = std::fs::read_dir(place.path().join(at)).unwrap().map(|entry| entry.unwrap().file_name());
        let left = names.filter(|name| name.to_string_lossy().starts_with("shard-")).collect::<Vec<_>>();
        assert_eq!(left.len(), shards, "{at}: nothing is left over: {left:?}");
    }
}
