//! What a person types in a conversation: something to say, or an order to the chat itself.
//!
//! In: a line, and the questions that are open. Out: what it asks for. Always: only the orders named here are orders; any
//! other line is said, also one that begins with a slash.

use crate::command::Failure;
use serde_json::Value;
use slackwater_core::record::Decision;

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Say it.
    Say(String),
    /// Stop, perhaps with all threads below.
    Stop {
        /// Whether they are meant, too.
        subtree: bool,
    },
    /// Have the history summarized.
    Compact,
    /// Answer this question.
    Answer(u64, Decision),
}

/// Reads a line. `open` are the questions that wait for an answer, as the gateway shows them, the oldest first.
pub(super) fn read(line: &str, open: &[Value]) -> Result<Order, Failure> {
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = rest.trim();
    match word {
        "/stop" if rest.is_empty() => Ok(Order::Stop { subtree: false }),
        "/stop" if rest == "all" => Ok(Order::Stop { subtree: true }),
        "/compact" if rest.is_empty() => Ok(Order::Compact),
        "/approve" => {
            let number =
                (!rest.is_empty()).then(|| rest.parse().map_err(|_| usage("/approve takes the number of a question")));
            Ok(Order::Answer(question(open, "approval", number.transpose()?)?, Decision::Approve))
        }
        "/deny" => {
            let (first, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let (number, reason) = first.parse().map_or((None, rest), |number| (Some(number), reason.trim()));
            let reason = (!reason.is_empty()).then(|| reason.to_owned());
            Ok(Order::Answer(question(open, "approval", number)?, Decision::Deny { reason }))
        }
        "/choose" => {
            let number = question(open, "choice", None)?;
            let choices = open.iter().find(|asked| asked["question"] == number).map(|asked| &asked["choices"]);
            let choices = choices.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let by_words = choices.iter().position(|choice| choice == rest);
            let place = by_words.or_else(|| rest.parse().ok().filter(|place| *place < choices.len()));
            match place.and_then(|place| u32::try_from(place).ok()) {
                Some(index) => Ok(Order::Answer(number, Decision::Choose { index })),
                None => Err(usage(&format!("{rest:?} is none of the choices: {}", shown(choices)))),
            }
        }
        _ => Ok(Order::Say(line.to_owned())),
    }
}

/// Choices as people see them.
pub(super) fn shown(choices: &[Value]) -> String {
    let choices =
        choices.iter().enumerate().map(|(at, choice)| format!("{at}: {}", choice.as_str().unwrap_or_default()));
    choices.collect::<Vec<_>>().join("  ")
}

/// The question of this number, or else the oldest of this kind.
fn question(open: &[Value], kind: &str, number: Option<u64>) -> Result<u64, Failure> {
    let found = number.or_else(|| open.iter().find(|asked| asked["kind"] == kind)?["question"].as_u64());
    found.ok_or_else(|| usage(&format!("no {kind} waits for an answer")))
}

fn usage(words: &str) -> Failure {
    Failure::Usage(words.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use serde_json::json;

    #[test]
    fn orders_are_told_from_what_is_said() {
        let open = [
            json!({"question": 5, "kind": "choice", "choices": ["yes", "no", "7"]}),
            json!({"question": 7, "kind": "approval"}),
            json!({"question": 9, "kind": "approval"}),
        ];
        let deny =
            |number, reason: Option<&str>| Order::Answer(number, Decision::Deny { reason: reason.map(str::to_owned) });
        let choose = |index| Order::Answer(5, Decision::Choose { index });
        for (line, order) in [
            ("/approve", Order::Answer(7, Decision::Approve)),
            (" /approve  9 ", Order::Answer(9, Decision::Approve)),
            ("/deny", deny(7, None)),
            ("/deny 9", deny(9, None)),
            ("/deny 9 not now", deny(9, Some("not now"))),
            ("/deny not now", deny(7, Some("not now"))),
            ("/choose no", choose(1)),
            ("/choose 0", choose(0)),
            ("/choose 7", choose(2)),
            ("/stop", Order::Stop { subtree: false }),
            ("/stop all", Order::Stop { subtree: true }),
            ("/stop it", Order::Say("/stop it".into())),
            ("/etc/hosts is wrong", Order::Say("/etc/hosts is wrong".into())),
            ("yes", Order::Say("yes".into())),
        ] {
            assert_eq!(read(line, &open).unwrap(), order, "{line}");
        }
        for (line, said) in [
            ("/approve it", "takes the number"),
            ("/choose maybe", "none of the choices: 0: yes  1: no  2: 7"),
            ("/choose", "none of the choices"),
        ] {
            assert!(read(line, &open).unwrap_err().words().unwrap().contains(said), "{line}");
        }
        for line in ["/approve", "/deny", "/choose 1"] {
            assert!(read(line, &[]).unwrap_err().words().unwrap().contains("waits for an answer"), "{line}");
        }
    }
}
