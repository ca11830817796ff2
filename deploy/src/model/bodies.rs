//! The requests of both providers: what stands in them, and that they are valid whatever the history.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::conformance;
use super::tests::{prompt, text, user};
use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use slackwater_core::history::{Answered, AnsweredBy, Event, History, Item, Summary};
use slackwater_core::id::CallId;
use slackwater_core::record::{Content, Sealed};
use slackwater_core::thread::invariant::check_view;
use std::sync::LazyLock;

fn request(history: Vec<Item>) -> Request {
    let tool = ToolSpec {
        name: "look".into(),
        description: "Looks.".into(),
        schema: json!({"type": "object", "properties": {"at": {"type": "string"}}}),
        annotations: None,
    };
    Request { system: "Be brief.".into(), tools: vec![tool].into(), prompt: prompt(history), attempt: 1 }
}

fn openai(request: &Request) -> Value {
    static MODEL: LazyLock<OpenAi> =
        LazyLock::new(|| OpenAi::new("http://x/v1/", None, "gpt-x".into(), Map::new(), Limits::default()).unwrap());
    serde_json::from_slice(&MODEL.body(request)).unwrap()
}

fn anthropic_text(request: &Request) -> String {
    static MODEL: LazyLock<Anthropic> = LazyLock::new(|| {
        let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}).as_object().unwrap().clone();
        Anthropic::new("http://x", None, "claude-x".into(), 100, extra, Limits::default()).unwrap()
    });
    String::from_utf8(MODEL.body(request)).unwrap()
}

fn anthropic(request: &Request) -> Value {
    serde_json::from_str(&anthropic_text(request)).unwrap()
}

fn call(provider_id: &str, name: &str, arguments: &str) -> Block {
    Block::Call { provider_id: provider_id.into(), name: name.into(), arguments: arguments.into() }
}

fn result(number: u64, index: u16, content: Vec<Content>, by: AnsweredBy) -> Item {
    let call = CallId { number, index };
    Item::Result(Answered { call, provider_id: "x".into(), name: "look".into(), content, by, display: None })
}

fn summary(text: &str, notes: Vec<(String, String)>) -> Summary {
    Summary { number: 9, covers: 7, text: text.into(), place: None, notes, subscriptions: vec![], children: 0 }
}

fn picture() -> Content {
    Content::Image { media_type: "image/png".into(), data: "aGk=".into() }
}

const SEALED: &str = r#"{"type":"thinking", "signature":"c2ln","thinking":"Hm.",  "x":1.50}"#;

/// A conversation with all kinds of items.
fn conversation() -> Vec<Item> {
    let sealed = |provider: &str| Some(Sealed { provider: provider.into(), json: SEALED.into() });
    vec![
        Item::User { number: 1, content: [text("What is here?"), vec![picture()]].concat() },
        Item::Assistant {
            number: 2,
            blocks: vec![
                Block::Reasoning { text: "Hm.".into(), sealed: sealed("anthropic") },
                Block::Reasoning { text: "Not shown.".into(), sealed: sealed("other") },
                Block::Text("I look.".into()),
                call("id_a", "look", r#"{"at": "a",  "n": 1.0}"#),
                call("", "look", ""),
                call("id_a", "lo ok", "not json"),
            ],
            cut: false,
        },
        result(2, 1, text("nothing"), AnsweredBy::Refusal),
        result(2, 0, [text("a picture"), vec![picture()]].concat(), AnsweredBy::Tool),
        result(2, 2, vec![], AnsweredBy::Interrupted),
        user(6, "And then?"),
        user(7, "Well?"),
        Item::Assistant { number: 8, blocks: vec![Block::Text("Then we wai".into())], cut: true },
        Item::Event(Event {
            id: CallId { number: 12, index: 0 },
            original_tool_name: "look".into(),
            original_tool_call_id: "id_a".into(),
            original_args: r#"{"at":"a"}"#.into(),
            content: text("It moved."),
        }),
    ]
}

#[test]
fn a_chat_completions_request_says_all_of_a_conversation() {
    let body = openai(&request(conversation()));
    conformance::openai(&body).unwrap();
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}});
    let event = r#"{"original_args":{"at":"a"},"original_tool_call_id":"id_a","original_tool_name":"look"}"#;
    assert_eq!(
        body,
        json!({
            "model": "gpt-x",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {
                "name": "look", "description": "Looks.",
                "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
            }}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "What is here?"}, image]},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    call("id_a", "look", r#"{"at": "a",  "n": 1.0}"#),
                    call("call_2_1", "look", "{}"),
                    call("call_2_2", "lo_ok", "not json"),
                ]},
                {"role": "tool", "tool_call_id": "call_2_1", "content": "nothing"},
                {"role": "tool", "tool_call_id": "id_a", "content": "a picture"},
                {"role": "tool", "tool_call_id": "call_2_2", "content": "(no output)"},
                {"role": "user", "content": [{"type": "text", "text": "(Of the result of id_a:)"}, image]},
                {"role": "user", "content": "And then?\n\nWell?"},
                {"role": "assistant", "content": "Then we wai [interrupted]", "tool_calls": [
                    call("evt_12_0", "receive_event__injected", event),
                ]},
                {"role": "tool", "tool_call_id": "evt_12_0", "content": "It moved."},
            ],
        })
    );
}

#[test]
fn a_messages_request_says_all_of_a_conversation() {
    let request = request(conversation());
    assert!(anthropic_text(&request).contains(SEALED), "signed thinking goes back byte for byte");
    let body = anthropic(&request);
    conformance::anthropic(&body).unwrap();
    let said = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let cached = json!({"type": "ephemeral"});
    assert_eq!(
        body,
        json!({
            "model": "claude-x",
            "max_tokens": 100,
            "stream": true,
            // No `thinking`: the last turn is an event's and has none.
            "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
            "tools": [{
                "name": "look", "description": "Looks.",
                "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
            }],
            "messages": [
                {"role": "user", "content": [said("What is here?"), image]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln", "x": 1.5},
                    said("I look."),
                    call("id_a", "look", json!({"at": "a", "n": 1.0})),
                    call("call_2_1", "look", json!({})),
                    call("call_2_2", "lo_ok", json!({"arguments": "not json"})),
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_2_1", "content": [said("nothing")], "is_error": true},
                    {"type": "tool_result", "tool_use_id": "id_a", "content": [said("a picture"), image]},
                    {"type": "tool_result", "tool_use_id": "call_2_2", "content": [said("(no output)")]},
                    said("And then?"),
                    said("Well?"),
                ]},
                {"role": "assistant", "content": [
                    said("Then we wai [interrupted]"),
                    call("evt_12_0", "receive_event__injected", json!({
                        "original_tool_name": "look",
                        "original_tool_call_id": "id_a",
                        "original_args": {"at": "a"},
                    })),
                ]},
                {"role": "user", "content": [{
                    "type": "tool_result", "tool_use_id": "evt_12_0", "content": [said("It moved.")],
                    "cache_control": cached,
                }]},
            ],
        })
    );
}

#[test]
fn thinking_is_asked_for_where_it_may_be() {
    let mut items = conversation();
    items.truncate(5);
    assert_eq!(
        anthropic(&request(items.clone()))["thinking"]["budget_tokens"],
        1024,
        "its own thinking begins the turn"
    );
    items.push(user(6, "And then?"));
    assert_eq!(anthropic(&request(items))["thinking"]["budget_tokens"], 1024, "a new turn begins");
}

#[test]
fn files_are_shown_as_what_they_are() {
    let file = |name: &str, media_type: &str, data: &str| Content::File {
        name: name.into(),
        media_type: media_type.into(),
        data: data.into(),
    };
    let content = vec![
        file("a.txt", "text/plain", "aGVsbG8="),
        file("b.pdf", "application/pdf", "aGVsbG8="),
        file("c.bin", "application/octet-stream", "/////w=="),
        Content::Image { media_type: "image/tiff".into(), data: "aGk=".into() },
    ];
    let request = request(vec![Item::User { number: 1, content }]);
    let (openai, anthropic) = (openai(&request), anthropic(&request));
    conformance::openai(&openai).unwrap();
    conformance::anthropic(&anthropic).unwrap();
    for content in [&openai["messages"][1]["content"], &anthropic["messages"][0]["content"]] {
        assert_eq!(content[0]["text"], "File a.txt (text/plain):\nhello");
        assert_eq!(content[2]["text"], "[The file c.bin (application/octet-stream) is no text and cannot be shown.]");
    }
    assert_eq!(openai["messages"][1]["content"][1]["file"]["filename"], "b.pdf");
    assert_eq!(anthropic["messages"][0]["content"][1]["type"], "document");
    assert_eq!(anthropic["messages"][0]["content"][3]["text"], "[A picture of type image/tiff cannot be shown.]");
}

#[test]
fn the_check_finds_what_providers_refuse() {
    let good = openai(&request(conversation()));
    let broken = |path: &str, value: Value| {
        let mut body = good.clone();
        *body.pointer_mut(path).unwrap() = value;
        conformance::openai(&body).unwrap_err()
    };
    assert!(broken("/messages/3/tool_call_id", json!("other")).contains("not open"));
    assert!(broken("/messages/2/tool_calls/1/id", json!("id_a")).contains("two calls"));
    assert!(broken("/messages/3", json!({"role": "user", "content": "x"})).contains("not answered directly"));
    assert!(broken("/messages/9", json!({"role": "user", "content": "x"})).contains("not answered directly"));
    assert!(broken("/messages/7/content", json!(" ")).contains("blank"));
    let good = anthropic(&request(conversation()));
    let broken = |path: &str, value: Value| {
        let mut body = good.clone();
        *body.pointer_mut(path).unwrap() = value;
        conformance::anthropic(&body).unwrap_err()
    };
    assert!(broken("/messages/2/content/1/tool_use_id", json!("call_2_1")).contains("not open"));
    assert!(broken("/messages/2/content/0", json!({"type": "text", "text": "x"})).contains("not answered first"));
    assert!(broken("/messages/1/role", json!("user")).contains("user after user"));
    assert!(broken("/messages/1/content/2/input", json!("x")).contains("no object"));
    assert!(broken("/messages/4/content", json!([{"type": "text", "text": "x"}])).contains("not answered first"));
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let piece = prop_oneof![
        4 => prop_oneof!["[a-z ]{0,8}", Just("\u{0}\"\\\n😀".to_owned())].prop_map(Content::Text),
        1 => prop_oneof![Just("image/png"), Just("image/svg+xml")]
            .prop_map(|kind| Content::Image { media_type: kind.into(), data: "aGk=".into() }),
        1 => prop_oneof![Just("application/pdf"), Just("text/csv"), Just("x/y")]
            .prop_map(|kind| Content::File { name: "f".into(), media_type: kind.into(), data: "/w==".into() }),
    ];
    prop::collection::vec(piece, 0..3)
}

fn block() -> impl Strategy<Value = Block> {
    let id = prop_oneof![
        Just(String::new()),
        Just("a".to_owned()),
        Just("call_2_0".to_owned()),
        Just("evt_3_0".to_owned()),
        ".{0,50}"
    ];
    let name = prop_oneof![Just("look".to_owned()), Just("fs.read".to_owned()), ".{0,80}"];
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"a":[1]}"#.to_owned()),
        Just("[1]".to_owned()),
        ".{0,9}",
        Just(r#"{"a":"#.to_owned())
    ];
    let sealed = prop_oneof![
        Just(None),
        Just(Some(Sealed { provider: "anthropic".into(), json: SEALED.into() })),
        Just(Some(Sealed { provider: "anthropic".into(), json: r#"{"type":"redacted_thinking","data":"x"}"#.into() })),
        Just(Some(Sealed { provider: "openai".into(), json: "{}".into() })),
    ];
    prop_oneof![
        2 => "[a-z ]{0,8}".prop_map(Block::Text),
        1 => ("[a-z]{0,4}", sealed).prop_map(|(text, sealed)| Block::Reasoning { text, sealed }),
        2 => (id, name, arguments)
            .prop_map(|(provider_id, name, arguments)| Block::Call { provider_id, name, arguments }),
    ]
}

type Step = (u8, Vec<Content>, Vec<Block>, Vec<Content>, bool);

/// A turn as the fold would keep it: with the results of all of its calls, in some order.
fn step() -> impl Strategy<Value = Step> {
    (0..6_u8, content(), prop::collection::vec(block(), 1..5), content(), any::<bool>())
}

/// The histories that these steps make.
fn history(steps: Vec<Step>) -> Vec<Item> {
    let mut items = Vec::new();
    // Some begin with what stands for all before.
    if let Some((5, _, _, _, flag)) = steps.first() {
        let notes = if *flag { vec![("note_1".to_owned(), "kept".to_owned())] } else { vec![] };
        items.push(Item::Summary(summary("", notes)));
    }
    for (number, (kind, content, blocks, answer, flag)) in (1..).zip(steps) {
        match kind {
            0 | 1 => items.push(Item::User { number, content }),
            2 => items.push(Item::Event(Event {
                id: CallId { number, index: 0 },
                original_tool_name: "look".into(),
                original_tool_call_id: "a".into(),
                original_args: if flag { "{\"a\":1}".into() } else { "broken".into() },
                content,
            })),
            _ => {
                let blocks: Vec<Block> = if kind == 3 && flag {
                    blocks.into_iter().filter(|b| matches!(b, Block::Text(_))).collect()
                } else {
                    blocks
                };
                if blocks.is_empty() {
                    continue;
                }
                let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count() as u16;
                items.push(Item::Assistant { number, blocks, cut: kind == 3 && flag });
                let mut order: Vec<u16> = (0..calls).collect();
                if flag {
                    order.reverse();
                }
                items.extend(order.into_iter().map(|index| result(number, index, answer.clone(), AnsweredBy::Tool)));
            }
        }
    }
    items
}

#[test]
fn a_summary_is_what_the_user_says_first() {
    let notes = vec![("note_1".to_owned(), "The port is 7070.".to_owned())];
    let turn = |text: &str| Item::Assistant { number: 8, blocks: vec![Block::Text(text.into())], cut: false };
    let items = vec![Item::Summary(summary("They looked.", notes)), turn("Well."), user(9, "And?")];
    let request = request(items);
    let said = "Summary of the conversation so far, which stands for all before it:\nThey looked.\n\n\
                Pinned notes (unpin_note takes their ids):\n- note_1: The port is 7070.";
    assert_eq!(openai(&request)["messages"][1], json!({"role": "user", "content": said}));
    let message = anthropic(&request)["messages"][0].clone();
    assert_eq!((&message["role"], &message["content"][0]["text"]), (&json!("user"), &json!(said)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_history_makes_valid_requests(steps in prop::collection::vec(step(), 1..12)) {
        let items = history(steps);
        prop_assume!(!items.is_empty());
        let shared: History = items.iter().cloned().map(Arc::new).collect();
        prop_assert_eq!(check_view(&shared), Ok(Default::default()));
        let request = request(items);
        let (openai, anthropic) = (openai(&request), anthropic(&request));
        prop_assert_eq!(conformance::openai(&openai), Ok(()), "{}", openai);
        prop_assert_eq!(conformance::anthropic(&anthropic), Ok(()), "{}", anthropic);
        // The same history makes the same request, or a provider's cache would be of no use.
        prop_assert_eq!(anthropic_text(&request), anthropic_text(&request));
    }
}
