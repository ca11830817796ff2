//! `slackwater serve`: configuration by precedence, what it says of itself, and its end.

use crate::program::Place;
use std::io::BufRead as _;
use std::time::{Duration, Instant};

/// Words that take a minute, so that something is under way when it is stopped.
const SLOW: &str = "[[rule]]\nsay = 'one two three'\nword_delay_ms = 20000\n";

#[test]
fn flags_go_over_variables_and_variables_over_the_file() {
    let place = Place::new();
    place.write("slackwater.toml", "directory = 'by-default'\n");
    place.write("named.toml", "directory = 'by-file'\n");
    let variable = [("SLACKWATER_DIRECTORY", "by-variable")];
    for (arguments, variables, made) in [
        (&["--config", "named.toml"][..], &[][..], "by-file"),
        (&["--config", "named.toml"], &variable, "by-variable"),
        (&["--config", "named.toml", "--directory", "by-flag"], &variable, "by-flag"),
    ] {
        let server = place.serve_with(arguments, variables);
        assert_eq!(server.ready["directory"], place.path(made).to_str().unwrap(), "{}", server.ready);
        assert_eq!(server.ready["config"], "named.toml");
        assert!(place.path(made).join("capability.key").exists());
    }
    // The file that is there is read without being named.
    let said = place.run(&["doctor", "by-default"]);
    assert_eq!(said.status, 1, "nothing was kept there yet");
    let said = place.run(&["chat", "hello"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(place.run(&["doctor", "by-default"]).status, 0);
}

#[test]
fn it_says_where_it_listens_and_that_no_model_is_configured() {
    let place = Place::new();
    let server = place.serve(&[]);
    assert_eq!(server.ready["model"], "scripted");
    assert_eq!(server.curl(&["URL/health"]), r#"{"live":true}"#);
    let said = server.end("TERM");
    assert_eq!(said.status, 0);
    assert!(said.err.contains("no model is configured") && said.err.contains("ANTHROPIC_API_KEY"), "{}", said.err);

    place.write("mine.toml", "[[rule]]\nsay = 'x'\n");
    let said = place.serve(&["--script", "mine.toml"]).end("TERM");
    assert!(!said.err.contains("no model is configured"), "{}", said.err);
}

#[test]
fn a_signal_stops_it_cleanly_also_in_the_middle_of_something() {
    let place = Place::new();
    place.write("slow.toml", SLOW);
    for name in ["TERM", "INT", "HUP"] {
        let server = place.serve(&["--script", "slow.toml"]);
        let taken = server.curl(&["URL/v1/threads/t/messages", "--json", r#"{"text": "hello"}"#]);
        assert!(taken.contains("\"number\""), "{taken}");
        // Somebody listens while it stops.
        let url = format!("{}/v1/threads/t/events", server.url());
        let mut listener = std::process::Command::new("curl")
            .args(["-sN", "--noproxy", "*", &url])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let said = server.end(name);
        // A second is promised; another one is this machine's.
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(said.status, 0, "{}", said.err);
        assert!(!place.path("data/server.url").exists());
        listener.wait().unwrap();
    }
    // What was acknowledged is still there.
    let server = place.serve(&["--script", "slow.toml"]);
    assert!(server.curl(&["URL/v1/threads/t"]).contains("\"state\":\"thinking\""));
}

#[test]
fn it_outlives_its_terminal_when_it_was_started_with_nohup() {
    let place = Place::new();
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_slackwater")).args([
        "serve",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--directory",
        "data",
    ]);
    command.current_dir(place.path("")).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    crate::program::signal(child.id(), "HUP");
    // One that hears it ends within this time, as the test above shows.
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    crate::program::signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn two_cannot_run_on_one_directory_or_one_address() {
    let place = Place::new();
    let server = place.serve(&[]);
    let said = place.run(&["serve", "--directory", "data", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains(&format!("process {}", server.id())), "{}", said.err);
    let address = server.ready["address"].as_str().unwrap();
    let said = place.run(&["serve", "--directory", "other", "--listen", address]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains(address) && said.err.contains("--listen"), "{}", said.err);
    let said = place.run(&["serve", "--directory", "other", "--listen", "0.0.0.0:0"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("without keys"), "{}", said.err);
}

#[test]
fn tools_that_cannot_be_used_are_told() {
    let place = Place::new();
    let server = place.serve(&["--tool", "http://127.0.0.1:1"]);
    let troubles = &server.ready["troubles"];
    assert_eq!(troubles[0]["server"], "http://127.0.0.1:1", "{troubles}");
    assert!(troubles[0]["why"].as_str().unwrap().contains("127.0.0.1:1"), "{troubles}");
    let said = place.run(&["serve", "--directory", "other", "--tool", "ftp://h"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("not an http or https URL"), "{}", said.err);
}

#[test]
fn a_history_is_summarized_at_the_share_of_the_window_and_by_hand() {
    let place = Place::new();
    let script = "
[[rule]]
when = { message_like = 'Your history is about to get too long*' }
say = 'They talked.'
[[rule]]
say = 'turn {turn}'
usage = { input_tokens = 80, cached_tokens = 76 }
";
    place.write("script.toml", script);
    let text = "so to say ".repeat(30);
    // The window is crossed by the first turn, or nobody knows the window.
    for (window, by_hand) in [("context_window_tokens = 100", false), ("", true)] {
        let name = format!("by-hand-{by_hand}");
        place.write("named.toml", &format!("directory = '{name}'\n[model]\nscript = 'script.toml'\n{window}\n"));
        let server = place.serve(&["--config", "named.toml"]);
        let heard = |kind: &str| {
            (0..50).any(|_| {
                let heard = server.curl(&["-N", "-m", "1", "URL/v1/threads/t/events"]);
                heard.contains(&format!("event: {kind}\n"))
            })
        };
        let message = format!(r#"{{"text": "{text}"}}"#);
        assert!(server.curl(&["URL/v1/threads/t/messages", "--json", &message]).contains("\"number\""));
        assert!(heard("turn"));
        if by_hand {
            let taken = server.curl(&["URL/v1/threads/t/compact", "-X", "POST", "-w", "%{http_code}"]);
            assert!(taken.ends_with("201"), "{taken}");
        }
        assert!(heard("compacted"), "{name}");
        let standing = server.curl(&["URL/v1/threads/t"]);
        assert!(standing.contains("\"items\":2") && standing.contains("\"children\":0"), "{standing}");
        let unknown = server.curl(&["URL/v1/threads/nobody/compact", "-X", "POST", "-w", "%{http_code}"]);
        assert!(unknown.ends_with("404"), "{unknown}");
        assert_eq!(server.end("TERM").status, 0);
        assert_eq!(place.run(&["doctor", &name]).status, 0);
    }
}

#[test]
fn secrets_are_in_no_log() {
    let place = Place::new();
    let variables = [
        ("SLACKWATER_GATEWAY_KEYS", "ann:a-secret-of-the-gateway"),
        ("SLACKWATER_MODEL_API_KEY", "a-secret-of-the-model"),
    ];
    let arguments = ["--provider", "openai", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--log", "trace"];
    let server = place.serve_with(&arguments, &variables);
    let message = ["URL/v1/threads/t/messages", "--json", r#"{"text": "hello"}"#];
    assert!(server.curl(&message).contains("\"status\":401"));
    let key = "Authorization: Bearer a-secret-of-the-gateway";
    assert!(server.curl(&[&message[..], &["-H", key]].concat()).contains("\"number\""));
    let ready = server.ready.to_string();
    let said = server.end("TERM");
    for text in [ready, said.out, said.err] {
        assert!(!text.contains("a-secret"), "{text}");
    }
}

#[test]
fn the_log_can_be_json() {
    let place = Place::new();
    let said = place.serve(&["--log", "info", "--log-format", "json"]).end("TERM");
    let logged: Vec<&str> = said.err.lines().filter(|line| !line.starts_with("note: ")).collect();
    assert!(!logged.is_empty());
    for line in logged {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO", "{line}");
    }
}
