//! `slackwater chat`: one turn, by argument and by pipe, resumed by name, here and with a running server.

use crate::program::Place;
use serde_json::Value;

const SCRIPT: &str = "
[[rule]]
when = { message_contains = 'break' }
fail = { class = 'fatal', message = 'the model is away' }
[[rule]]
when = { message_contains = 'nap' }
say = 'A short nap.'
call = [{ tool = 'sleep', arguments = { seconds = 0.1 } }]
[[rule]]
when = { result_of = 'sleep' }
say = 'Awake again.'
[[rule]]
when = { message_contains = 'delegate' }
call = [{ tool = 'spawn_thread', arguments = { instructions = 'look', child_of = [], fresh_context = true } }]
[[rule]]
say = 'turn {turn}: {message}'
";

fn place() -> Place {
    let place = Place::new();
    place.write("slackwater.toml", "directory = 'data'\n[model]\nscript = 'script.toml'\n");
    place.write("script.toml", SCRIPT);
    place
}

#[test]
fn a_thread_goes_on_by_its_name() {
    let place = place();
    let said = |arguments: &[&str], input: &str| {
        let said = place.run_with(&[&["chat"], arguments].concat(), &[], input);
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{arguments:?}");
        said.out
    };
    assert_eq!(said(&["one"], ""), "turn 1: one\n");
    assert_eq!(said(&["two"], ""), "turn 2: two\n");
    assert_eq!(said(&["--thread", "notes", "one"], ""), "turn 1: one\n");
    assert_eq!(said(&["--thread", "notes"], "from a pipe"), "turn 2: from a pipe\n");
}

#[test]
fn a_turn_lasts_until_the_agent_waits_for_its_user() {
    assert_eq!(place().run(&["chat", "take a nap"]).out, "A short nap.\nAwake again.\n");
}

#[test]
fn a_failure_of_the_model_is_said_and_is_status_1() {
    let place = place();
    let said = place.run(&["chat", "break"]);
    assert_eq!((said.status, said.out.as_str()), (1, ""));
    assert!(said.err.contains("the model is away"), "{}", said.err);
}

#[test]
fn json_is_one_event_a_line() {
    let said = place().run(&["chat", "--json", "take a nap"]);
    assert_eq!(said.status, 0, "{}", said.err);
    let events: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("taken", "waiting"));
    let numbered = ["message", "turn", "waiting", "result", "turn", "waiting"];
    let seen: Vec<&str> = kinds.iter().copied().filter(|kind| numbered.contains(kind)).collect();
    assert_eq!(seen, numbered);
    let turn = events.iter().find(|event| event["event"] == "turn").unwrap();
    assert_eq!((&turn["text"], &turn["calls"][0]["name"]), (&"A short nap.".into(), &"sleep".into()));
}

#[test]
fn with_a_server_on_the_directory_it_talks_to_that_one() {
    let place = place();
    assert_eq!(place.run(&["chat", "one"]).out, "turn 1: one\n");
    let server = place.serve(&[]);
    let said = place.run(&["chat", "two"]);
    assert_eq!((said.status, said.out.as_str()), (0, "turn 2: two\n"), "{}", said.err);
    assert!(said.err.contains(&format!("talking to it at {}", server.url())), "{}", said.err);
    let said = place.run(&["chat", "--url", server.url(), "--thread", "other", "take a nap"]);
    assert_eq!((said.status, said.out.as_str(), said.err.as_str()), (0, "A short nap.\nAwake again.\n", ""));
    server.end("TERM");
    let said = place.run(&["chat", "three"]);
    assert_eq!(said.out, "turn 3: three\n", "{}", said.err);
}

#[test]
fn a_server_that_is_not_there_or_wants_a_key_says_so() {
    let place = place();
    let said = place.run(&["chat", "--url", "http://127.0.0.1:1", "hello"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("no runtime answers at http://127.0.0.1:1"), "{}", said.err);
    let server = place.serve_with(&[], &[("SLACKWATER_GATEWAY_KEYS", "ann:0123456789abcdef")]);
    let said = place.run(&["chat", "--url", server.url(), "hello"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("Authorization"), "{}", said.err);
    let said = place.run(&["chat", "--url", server.url(), "--key", "0123456789abcdef", "hello"]);
    assert_eq!((said.status, said.out.as_str()), (0, "turn 1: hello\n"), "{}", said.err);
}

#[test]
fn a_terminal_is_told_of_children() {
    let place = place();
    let command = format!("{} chat delegate", env!("CARGO_BIN_EXE_slackwater"));
    // `script` (of every Debian) gives the command a terminal.
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).current_dir(place.path("")).env("NO_COLOR", "1");
    let said = String::from_utf8(terminal.output().unwrap().stdout).unwrap();
    assert!(said.contains("made the child ") && said.contains("turn 2: delegate"), "{said:?}");
}
