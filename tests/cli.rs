//! The program as its user meets it: real processes of the real binary.
//!
//! In: arguments, environment, files, signals. Out: what it prints, its exit status, what it leaves behind. Always: a bad
//! input is answered with its place and what to do, and status 2 or 1; standard output has only what was asked for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "cli/asks.rs"]
mod asks;
#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/look.rs"]
mod look;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/readme.rs"]
mod readme;
#[path = "cli/serve.rs"]
mod serve;

use program::{Place, Said};

#[test]
fn help_teaches() {
    let place = Place::new();
    for (command, says) in [
        (vec![], ["Examples:", "SLACKWATER_<SECTION>_<FIELD>", "Exit status"]),
        (vec!["serve"], ["Examples:", "[default: 127.0.0.1:7070]", "SIGTERM"]),
        (vec!["chat"], ["Examples:", "[default: chat]", "Ctrl-C"]),
        (vec!["approve"], ["Examples:", "<QUESTION>", "[default: the one that runs on the data directory]"]),
        (vec!["deny"], ["Examples:", "--reason", "the model reads it"]),
        (vec!["choose"], ["Examples:", "<CHOICE>", "its place from 0"]),
        (vec!["demo"], ["--keep", "no key and no network", "Exit status"]),
        (vec!["graph"], ["Examples:", "[default: mermaid]", "[default: standard output]"]),
        (vec!["threads"], ["Examples:", "changes nothing", "[default: slackwater-data]"]),
        (vec!["why"], ["Examples:", "changes nothing", "SLACKWATER_URL"]),
        (vec!["show"], ["Examples:", "changes nothing", "--records"]),
        (vec!["doctor"], ["Examples:", "changes nothing", "--repair"]),
        (vec!["backup"], ["Examples:", "may be running", "--to"]),
        (vec!["export"], ["Examples:", "may be running", "--with-ancestors"]),
        (vec!["import"], ["Examples:", "is refused", "--directory"]),
    ] {
        let said = place.run(&[&command[..], &["--help"]].concat());
        assert_eq!(said.status, 0, "{command:?}");
        says.iter()
            .for_each(|says| assert!(said.out.contains(says), "{command:?} does not say {says:?}:\n{}", said.out));
    }
    assert!(place.run(&["--version"]).out.starts_with("slackwater "));
}

#[test]
fn a_usage_that_makes_no_sense_is_status_2() {
    let place = Place::new();
    place.write("bad.toml", "[gateway]\nlisten = 'here'\n");
    place.write("unknown.toml", "directory = 'd'\n\n[modle]\n");
    for (arguments, variables, says) in [
        (&["frobnicate"][..], &[][..], "unrecognized subcommand 'frobnicate'"),
        (&["serve", "--lisen", "x"], &[], "unexpected argument '--lisen'"),
        (&["serve", "--listen", "x"], &[], "flag --listen: invalid socket address"),
        (&["serve", "--provider", "gpt"], &[], "flag --provider: unknown variant `gpt`"),
        (&["serve", "--config", "bad.toml"], &[], "bad.toml, line 2: invalid socket address"),
        (&["serve", "--config", "unknown.toml"], &[], "unknown.toml, line 3: unknown field `modle`"),
        (&["serve"], &[("SLACKWATER_CONFIG", "bad.toml")], "bad.toml, line 2"),
        (
            &["serve"],
            &[("SLACKWATER_GATEWAY_LISTN", "x")],
            "SLACKWATER_GATEWAY_LISTN: there is no `listn` in [gateway]",
        ),
        (&["serve"], &[("SLACKWATER_JOURNAL_GROUP_MAX_BYTES", "lots")], "SLACKWATER_JOURNAL_GROUP_MAX_BYTES: "),
        (&["serve", "--provider", "openai"], &[], "set `model`"),
        (&["serve", "--script", "absent.toml"], &[], "absent.toml"),
        (&["serve", "--log", "a=b=c"], &[], "--log"),
        (&["chat", "--thread", "a b", "hello"], &[], "--thread"),
        (&["chat", "--url", "nowhere", "hello"], &[], "--url"),
        (&["chat", ""], &[], "the message is empty"),
        (&["graph", "--format", "png"], &[], "[possible values: mermaid, dot]"),
        (&["doctor"], &[], "<DIR>"),
        (&["why"], &[], "<THREAD>"),
        (&["show", "a b", "--url", "http://127.0.0.1:1"], &[], "THREAD: \"a b\" addresses no thread"),
        (&["threads", "--url", "nowhere"], &[], "--url"),
        (&["threads", "--state", "asleep"], &[], "[possible values: thinking, working, sleeping, idle, closed]"),
        (&["threads", "--limit", "0"], &[], "--limit"),
    ] {
        let said = place.run_with(arguments, variables, "");
        assert_eq!(said.status, 2, "{arguments:?} {variables:?}: {}", said.err);
        assert!(said.err.contains(says), "{arguments:?} {variables:?} does not say {says:?}: {}", said.err);
        assert_eq!(said.out, "", "{arguments:?}");
    }
    assert_eq!(place.names(), ["bad.toml", "unknown.toml"], "nothing is made before it is known what is wanted");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let place = Place::new();
    place.write("file", "");
    let mut cases = vec![("file", "file"), ("/proc/nothing", "/proc/nothing"), ("file/below", "file/below")];
    // Who is root may write everywhere.
    place.write("sealed/x", "");
    program::seal(&place.path("sealed"));
    if std::fs::write(place.path("sealed/y"), "").is_err() {
        cases.push(("sealed/data", "sealed/data"));
    }
    for (directory, named) in cases {
        for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["chat", "hello"]] {
            let said = place.run(&[command, &["--directory", directory]].concat());
            assert_eq!(said.status, 1, "{directory}: {}", said.err);
            assert!(said.err.contains(named) && said.err.contains("--directory"), "{directory}: {}", said.err);
            assert_eq!(said.out, "");
        }
    }
    let said = place.run(&["serve", "--config", "absent.toml"]);
    assert_eq!((said.status, said.err.contains("absent.toml")), (1, true), "{}", said.err);
}

#[test]
fn the_graph_is_the_flow_that_runs() {
    let place = Place::new();
    let mermaid = place.run(&["graph"]);
    assert_eq!((mermaid.status, mermaid.err.as_str()), (0, ""));
    for operator in
        ["graph TD", "embedded_input", "batch", "chain", "flatmap", "partition", "defertick", "embedded_output"]
    {
        assert!(mermaid.out.contains(operator), "{operator}");
    }
    let dot = place.run(&["graph", "--format", "dot", "--output", "flow.dot"]);
    assert_eq!((dot.status, dot.out.as_str()), (0, ""));
    assert!(place.read("flow.dot").starts_with("digraph"));
    let said = place.run(&["graph", "--output", "absent/flow"]);
    assert_eq!((said.status, said.err.contains("cannot write absent/flow")), (1, true), "{}", said.err);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let place = Place::new();
    let mut child = place.command(&["graph"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn doctor_names_what_is_damaged() {
    let place = Place::new();
    for text in ["one", "two"] {
        assert_eq!(place.run(&["chat", "--directory", "data", text]).status, 0);
    }
    let sound = place.run(&["doctor", "data"]);
    assert_eq!(sound.status, 0, "{}", sound.err);
    assert!(sound.out.contains("threads   1") && sound.out.ends_with("sound\n"), "{}", sound.out);
    let report: serde_json::Value = serde_json::from_str(&place.run(&["doctor", "data", "--json"]).out).unwrap();
    assert_eq!((&report["sound"], &report["records_by_kind"]["message"]), (&true.into(), &2.into()), "{report}");

    let segment = place.path("data/0000000001.segment");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&segment, bytes).unwrap();
    let damaged = place.run(&["doctor", "data"]);
    assert_eq!(damaged.status, 1);
    assert!(damaged.out.contains("DAMAGE") && damaged.out.contains("0000000001.segment"), "{}", damaged.out);
    let said = place.run(&["doctor", "data", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.status, &report["sound"]), (1, &false.into()), "{report}");
}

#[test]
fn doctor_says_when_there_is_nothing_to_look_at() {
    let place = Place::new();
    place.write("empty/note", "");
    place.write("file", "");
    for (directory, says) in
        [("absent", "cannot read absent"), ("file", "cannot read file"), ("empty", "no journal in empty")]
    {
        let Said { status, out, err } = place.run(&["doctor", directory]);
        assert_eq!((status, out.as_str(), err.contains(says)), (1, "", true), "{err}");
    }
    let server = place.serve(&[]);
    let said = place.run(&["doctor", "data"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains(&format!("in use by process {}", server.id())), "{}", said.err);
}

#[test]
fn doctor_repairs_what_it_can() {
    let place = Place::new();
    for (thread, text) in [("a", "one"), ("b", "two"), ("a", "three")] {
        assert_eq!(place.run(&["chat", "--directory", "data", "--thread", thread, text]).status, 0);
    }
    assert!(place.run(&["doctor", "data", "--repair"]).out.contains("nothing had to be done"));
    let segment = place.path("data/0000000001.segment");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[32 + 32 + 48 + 10] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    assert_eq!(place.run(&["doctor", "data"]).status, 1);
    let said = place.run(&["doctor", "data", "--repair"]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("data/quarantine-1") && said.out.contains("is only there"), "{}", said.out);
    assert_eq!(std::fs::read(place.path("data/quarantine-1/0000000001.segment")).unwrap(), bytes);
    assert_eq!(place.run(&["chat", "--directory", "data", "--thread", "b", "four"]).status, 0);
}

#[test]
fn threads_are_exported_imported_and_backed_up() {
    let place = Place::new();
    let server = place.serve(&[]);
    let body = r#"{"text": "Hello", "id": "first"}"#;
    server.curl(&["-X", "POST", &format!("{}/v1/threads/notes/messages", server.url()), "--json", body]);
    // While the server runs.
    let exported = place.run(&["export", "notes", "--directory", "data"]);
    assert_eq!(exported.status, 0, "{}", exported.err);
    assert!(exported.out.contains(r#""number":1"#) && exported.out.contains("Hello"), "{}", exported.out);
    let made = place.run(&["backup", "data", "--to", "copy", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(made["threads"], 1, "{made}");
    let words = place.run(&["import", "-", "--directory", "data"]).err;
    assert!(words.contains("there is no record"), "{words}");
    server.end("TERM");
    let all = place.run(&["export", "notes", "--directory", "data"]).out;
    place.write("notes.jsonl", &all);
    let said = place.run(&["import", "notes.jsonl", "--directory", "other"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(place.run(&["export", "notes", "--directory", "other"]).out, all);
    for (arguments, says) in [
        (&["import", "notes.jsonl", "--directory", "other"][..], "is there already"),
        (&["import", "absent.jsonl", "--directory", "other"], "cannot read absent.jsonl"),
        (&["export", "else", "--directory", "data"], "there is no thread"),
        (&["export", "notes", "--directory", "absent"], "cannot read absent"),
        (&["backup", "data", "--to", "copy"], "copy is not empty"),
        (&["backup", "absent", "--to", "new"], "cannot read absent"),
    ] {
        let said = place.run(arguments);
        assert!(said.status == 1 && said.err.contains(says), "{arguments:?}: {}", said.err);
    }
    assert_eq!(place.run(&["export", "a b"]).status, 2);
    assert_eq!(place.run(&["doctor", "copy"]).status, 0);
}
