//! The README says what is so: its example is the crate's doc test, its commands work, its configuration is one.

use crate::program::Place;
use std::path::Path;
use std::process::Command;

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)).unwrap()
}

/// The blocks of code in this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("\n```{language}\n");
    text.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_example_is_the_doc_test() {
    let documentation: Vec<String> = source("deploy/src/lib.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
        .collect();
    let tested = blocks(&documentation.join("\n"), "").remove(0);
    let shown: Vec<&str> = tested.lines().filter(|line| *line != "#" && !line.starts_with("# ")).collect();
    assert_eq!(blocks(&source("README.md"), "rust"), [shown.join("\n")]);
    assert!(shown.len() <= 12, "about ten lines");
}

#[test]
fn the_curl_lines_work() {
    let place = Place::new();
    let server = place.serve(&[]);
    let readme = source("README.md");
    let lines: Vec<&str> = readme.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        // A stream does not end; it is read for a moment.
        let is_stream = line.contains("/events");
        let command = line.replace("http://127.0.0.1:7070", server.url());
        let command = format!("{command} -m {} -w '%{{http_code}}' --noproxy '*'", if is_stream { 2 } else { 10 });
        let output = Command::new("bash").args(["-c", &command]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.ends_with("200") || said.ends_with("201"), "{line}: {said}");
        if is_stream {
            assert!(said.contains("event: turn"), "{line}: {said}");
            assert_eq!(said.contains("id: 1.0"), !line.contains("Last-Event-ID"), "{line}: {said}");
        }
    }
}

#[test]
fn the_configuration_is_one() {
    let place = Place::new();
    place.write("slackwater.toml", &blocks(&source("README.md"), "toml")[0]);
    // The file is read before the flags: what is complained of is only the flag.
    let said = place.run(&["serve", "--provider", "nonsense"]);
    assert!(said.err.starts_with("slackwater: flag --provider: unknown variant"), "{}", said.err);
}

#[test]
fn the_places_are_there() {
    for line in source("README.md").lines().filter(|line| line.starts_with("| `") && line.contains('/')) {
        let place = line.split('`').nth(1).unwrap();
        let place = place.split('{').next().unwrap();
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(top.join(place).exists(), "{place}");
    }
}
