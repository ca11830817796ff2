//! `slackwater threads`, `why` and `show`: of a server that runs, and of its directory when it has stopped.

use crate::program::{Place, Said, Server};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One sleeps, one has children, one is asked for ever.
const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "sleep" }
say = "Good night."
call = [{ tool = "sleep", arguments = { seconds = 7200 } }]

[[rule]]
when = { message_contains = "spawn" }
call = [
    { tool = "spawn_thread", arguments = { instructions = "look at the log\nand tell", child_of = [] } },
    { tool = "spawn_thread", arguments = { instructions = "nap", child_of = [], fresh_context = true } },
]

[[rule]]
when = { message_contains = "slowly" }
say = "one two"
word_delay_ms = 600000

[[rule]]
say = "You said: {message}"
"#;

/// A server with three threads that have come to rest, and one that never does.
fn server(place: &Place) -> Server {
    place.write("script.toml", SCRIPT);
    let server = place.serve(&["--script", "script.toml"]);
    for (thread, text) in [("night", "sleep"), ("tree", "spawn"), ("slow", "slowly"), ("echo", "hello\nthere")] {
        let taken =
            server.curl(&[&format!("URL/v1/threads/{thread}/messages"), "--json", &json!({"text": text}).to_string()]);
        assert!(taken.contains("\"number\":1"), "{taken}");
    }
    let begun = Instant::now();
    loop {
        let listed: Value = serde_json::from_str(&server.curl(&["URL/v1/threads"])).unwrap();
        let threads = listed["threads"].as_array().unwrap();
        let busy = threads.iter().filter(|thread| thread["state"] == "thinking").count();
        let told = threads.iter().find(|thread| thread["name"] == "tree").unwrap();
        // The receipts of the two births come after the turn.
        if threads.len() == 6 && busy == 1 && told["last"] == 5 {
            return server;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{listed:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn good(said: Said) -> String {
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(!said.out.contains('\x1b'), "colours, and nobody sees them: {:?}", said.out);
    said.out
}

fn json_of(place: &Place, arguments: &[&str]) -> Value {
    serde_json::from_str(&good(place.run(&[arguments, &["--json", "--directory", "data"]].concat()))).unwrap()
}

/// The lines of a text with every run of spaces as one, and without what changes with the time.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn threads_are_shown_as_trees() {
    let place = Place::new();
    let server = server(&place);
    let listed = good(place.run(&["threads", "--url", server.url()]));
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 7, "{listed}");
    let place_of =
        |text: &str| rows.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("{text}: {listed}"));
    let tree = place_of("tree");
    assert!(rows[tree + 1].starts_with("\u{2514} ") && rows[tree + 2].starts_with("\u{2514} "), "{listed}");
    for (name, says) in [("night", "its timer, in "), ("slow", "the model"), ("echo", "any input")] {
        assert!(rows[place_of(name)].contains(says), "{name}: {listed}");
    }
    // The columns stand under their heads.
    let state = rows[0].chars().collect::<String>().find("STATE").unwrap();
    for (name, word) in [("night", "sleeping"), ("slow", "thinking"), ("echo", "idle")] {
        let row: String = rows[place_of(name)].chars().skip(state).collect();
        assert!(row.starts_with(word), "{listed}");
    }
    let only = good(place.run(&["threads", "tree", "--directory", "data"]));
    assert_eq!(only.lines().count(), 4, "a tree alone: {only}");
    let asleep = json_of(&place, &["threads", "--state", "sleeping"]);
    assert_eq!((asleep["threads"].as_array().unwrap().len(), &asleep["threads"][0]["name"]), (1, &json!("night")));
    // One more is said to be there, and a child does not come without its parent.
    let one = place.run(&["threads", "--limit", "1", "--directory", "data"]);
    assert!(one.err.contains("there are more"), "{}", one.err);
    let one = good(one);
    assert!(!one.lines().nth(1).unwrap().starts_with('\u{2514}'), "a child as a root: {one}");
}

#[test]
fn a_stopped_servers_directory_says_the_same_as_the_server_did() {
    let place = Place::new();
    let server = server(&place);
    let asked = [
        &["threads"][..],
        &["threads", "tree"],
        &["why", "night"],
        &["why", "tree"],
        &["why", "slow"],
        &["show", "tree"],
        &["show", "tree", "--records"],
        &["show", "night", "--last", "1"],
    ];
    let before: Vec<Value> = asked.iter().map(|arguments| json_of(&place, arguments)).collect();
    let status: Value = serde_json::from_str(&server.curl(&["URL/v1/status"])).unwrap();
    assert_eq!(status["awake"], 1, "asking wakes nobody; only the slow one is in memory");
    let unreachable = place.run(&["why", "night", "--url", "http://127.0.0.1:1"]);
    assert!(
        unreachable.status == 1 && unreachable.err.contains("is `slackwater serve` running there?"),
        "{}",
        unreachable.err
    );
    server.end("TERM");
    for (arguments, before) in asked.iter().zip(&before) {
        assert_eq!(&json_of(&place, arguments), before, "{arguments:?}");
    }
    // The directory of a cluster has one journal a shard.
    let shard = slackwater::host::directory::shard_directory(&place.path("cluster"), 0);
    std::fs::create_dir_all(shard.parent().unwrap()).unwrap();
    std::fs::rename(place.path("data"), &shard).unwrap();
    let of_cluster: Value =
        serde_json::from_str(&good(place.run(&["threads", "--json", "--directory", "cluster"]))).unwrap();
    assert_eq!(of_cluster, before[0]);
    std::fs::rename(&shard, place.path("data")).unwrap();
    for (arguments, says) in [
        (&["why", "nobody"][..], "there is no thread nobody in data"),
        (&["threads", "--directory", "nowhere"], "cannot read nowhere"),
        (&["show", "tree", "--directory", "."], "no journal in ."),
    ] {
        let directory: &[&str] = if arguments.contains(&"--directory") { &[] } else { &["--directory", "data"] };
        let said = place.run(&[arguments, directory].concat());
        assert_eq!((said.status, said.out.as_str()), (1, ""), "{arguments:?}");
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn why_is_told_in_a_persons_words() {
    let place = Place::new();
    let server = server(&place);
    let why = |thread: &str| good(place.run(&["why", thread, "--url", server.url()]));
    let night = lines(&why("night"));
    assert_eq!(night[0], "night it sleeps");
    for says in
        ["waits for its timer (call 2.0)", "released by the timer: its time comes", "released by a person: a message"]
    {
        assert!(night.iter().any(|line| line == says), "{says}: {night:#?}");
    }
    let until = night.iter().find(|line| line.starts_with("until in 1")).unwrap_or_else(|| panic!("{night:#?}"));
    assert!(until.ends_with(") at the latest"), "relative and absolute: {until}");
    let slow = lines(&why("slow"));
    assert!(
        slow.contains(&"released by the model's provider: its answer, or its failure after all retries".to_owned()),
        "{slow:#?}"
    );
    let tree = lines(&why("tree"));
    let children: Vec<_> = tree.iter().filter(|line| line.starts_with("child ")).collect();
    assert!(
        children.len() == 2 && children.iter().any(|line| line.contains("look at the log and tell, made ")),
        "{tree:#?}"
    );
    assert_eq!(tree.iter().filter(|line| line.starts_with("released by the child")).count(), 2, "{tree:#?}");
}

#[test]
fn show_is_what_the_model_sees_and_the_records_beneath() {
    let place = Place::new();
    let server = server(&place);
    let shown = good(place.run(&["show", "echo", "--url", server.url()]));
    assert_eq!(shown, "   1 user\n     hello\n     there\n   2 assistant\n     You said: hello\n     there\n");
    let tree = lines(&good(place.run(&["show", "tree", "--url", server.url()])));
    assert!(
        tree.contains(
            &"\u{2192} spawn_thread({\"child_of\":[],\"fresh_context\":true,\"instructions\":\"nap\"}) 2.1".to_owned()
        ),
        "{tree:#?}"
    );
    assert!(tree.iter().any(|line| line.starts_with("\u{2190} spawn_thread 2.0")), "{tree:#?}");
    let records = json_of(&place, &["show", "echo", "--records"]);
    let records = records["records"].as_array().unwrap();
    let kinds: Vec<_> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "completion"]);
    assert_eq!(records[0]["origin"]["proof"], "loopback", "{records:#?}");
    assert!(records.iter().all(|record| record["bytes"].as_u64().unwrap() > 48), "{records:#?}");
    let table = lines(&good(place.run(&["show", "echo", "--records", "--last", "1", "--url", server.url()])));
    assert_eq!((table.len(), table[0].as_str()), (2, "NUMBER TIME KIND SIZE ORIGIN SAYS"));
    assert!(table[1].ends_with("scripted (process) You said: hello there"), "{table:#?}");
    let standing: Value = serde_json::from_str(&server.curl(&["URL/v1/threads/echo"])).unwrap();
    let sum: u64 = records.iter().map(|record| record["bytes"].as_u64().unwrap()).sum();
    assert_eq!(standing["bytes"], sum, "what the list says is what its records take");
}

#[test]
fn a_child_shows_what_it_inherits() {
    let place = Place::new();
    let _server = server(&place);
    let tree = json_of(&place, &["threads", "tree"]);
    let threads = tree["threads"].as_array().unwrap();
    assert_eq!(
        (threads.len(), &threads[1]["parent"], &threads[2]["parent"]),
        (3, &threads[0]["thread"], &threads[0]["thread"])
    );
    let shown = |thread: &Value| {
        let items = json_of(&place, &["show", thread["thread"].as_str().unwrap()])["items"].clone();
        let inherited = |item: &&Value| item["inherited"] == true;
        (items.as_array().unwrap().iter().filter(inherited).count(), items[0]["text"].as_str().unwrap().to_owned())
    };
    let mut both = [shown(&threads[1]), shown(&threads[2])];
    both.sort();
    // The fresh one begins with its instructions, the other one with its parent's message.
    assert_eq!((both[0].0, both[0].1.starts_with("nap")), (0, true), "{both:?}");
    assert_eq!((both[1].0, both[1].1.as_str()), (1, "spawn"), "{both:?}");
}

#[test]
fn a_terminal_has_colours_unless_somebody_does_not_want_them() {
    let place = Place::new();
    let server = server(&place);
    let on_a_terminal = |no_color: &str| {
        // `script` (of every Debian) gives the command a terminal.
        let command = format!("{} threads --url {}", env!("CARGO_BIN_EXE_slackwater"), server.url());
        let script = std::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("NO_COLOR", no_color)
            .output();
        String::from_utf8(script.unwrap().stdout).unwrap()
    };
    assert!(on_a_terminal("").starts_with("\x1b[2mTHREAD"), "{:?}", on_a_terminal(""));
    let plain = on_a_terminal("1");
    assert!(plain.starts_with("THREAD") && !plain.contains('\x1b'), "{plain:?}");
}
