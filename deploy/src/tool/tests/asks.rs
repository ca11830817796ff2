//! Calls that a person has to approve, choices, calls that may take so long, and threads that have closed.

use super::*;
use crate::tool::{Approvals, CallContext};
use slackwater_core::effect::Respond;
use slackwater_core::record::{Asks, Question};

/// A server with a tool of these annotations.
async fn annotated(annotations: Value, reactions: &[Reaction]) -> TestServer {
    let tools = |base: &str| {
        let schema = json!({"type": "object", "properties": {"n": {"type": "number"}}, "additionalProperties": false});
        let tool = json!({"name": "work", "description": "d", "inputSchema": schema, "annotations": annotations});
        json!({"name": "test-tools", "endpoint": format!("{base}/invoke"), "tools": [tool]})
    };
    TestServer::with_manifest(tools, reactions).await
}

fn approved(number: u64, name: &str, arguments: &str) -> ToTool {
    ToTool::Dispatch(Dispatch { approved: true, ..dispatch(number, name, arguments) })
}

fn is_approval(record: &Record, number: u64) -> bool {
    matches!(record, Record::Asked(Question { call, asks: Asks::Approval { .. }, .. }) if *call == id(number))
}

#[tokio::test]
async fn a_destructive_call_is_done_only_when_it_is_approved() {
    let server = annotated(json!({"destructive": true}), &[]).await;
    let mut running = ready(&[&server]).await;
    running.call(1, "work", r#"{"n": "x"}"#);
    assert!(running.error(1).await.contains("at /n"), "nobody is asked about a call that does not fit");
    for _ in 0..2 {
        // It is asked again after a crash.
        running.call(2, "work", r#"{"n": 1}"#);
        let asked = running.next().await;
        assert!(is_approval(&asked, 2), "{asked:?}");
    }
    assert_eq!(server.seen("invoke").len(), 0);
    running.to.put(approved(2, "work", r#"{"n": 1}"#));
    assert_eq!(running.next().await, Record::Accepted(id(2)));
    assert_eq!(server.seen("invoke").len(), 1);
}

#[tokio::test]
async fn who_is_asked_is_configured() {
    let server = annotated(json!({"destructive": true}), &[]).await;
    let approvals = Approvals { never: vec!["work".to_owned()], ..Approvals::default() };
    let mut running = run(Config { approvals, ..config(&[server.config()]) }, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running.call(1, "work", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn a_local_tool_waits_for_its_approval_and_has_its_time() {
    let slow = LocalTool::new("slow", "", |_: Nothing, context: CallContext| async move {
        if context.call.number == 1 { Ok("done") } else { Err("it was not approved") }
    });
    let slow = slow.destructive().timeout(Duration::from_secs(2));
    let mut running = run(config(&[]), vec![slow]);
    let offered = running.catalog.tools()[0].clone();
    assert_eq!(offered.annotations, Some(json!({"destructive": true, "timeoutMs": 2000})));
    assert!(offered.schema["properties"]["call_timeout_seconds"].is_object(), "{}", offered.schema);
    running.call(1, "slow", "");
    let asked = running.next().await;
    assert!(is_approval(&asked, 1), "{asked:?}");
    running.to.put(approved(1, "slow", r#"{"call_timeout_seconds": 60}"#));
    let Record::Deadline { call, due_ms } = running.next().await else { panic!("no deadline") };
    let left_ms = due_ms - crate::tool::outbox::now_ms();
    assert!(call == id(1) && (50_000..=60_000).contains(&left_ms), "{call} {left_ms}");
    assert_eq!(text(&running.result().await), "done");
}

#[tokio::test]
async fn a_call_has_the_time_that_is_said_by_whoever_knows_best() {
    let silent = annotated(json!({}), &[]).await;
    let spoken = annotated(json!({"timeoutMs": 7_000_000}), &[]).await;
    for (server, of_server, of_all, arguments, expected_s) in [
        (&silent, None, None, "{}", None),
        (&silent, None, Some(1_000_000), "{}", Some(1_000)),
        (&silent, Some(2_000_000), Some(1_000_000), "{}", Some(2_000)),
        (&spoken, Some(2_000_000), Some(1_000_000), "{}", Some(7_000)),
        (&spoken, None, None, r#"{"n": 1, "call_timeout_seconds": 9000}"#, Some(9_000)),
    ] {
        let server_config = ServerConfig { timeout_ms: of_server, ..server.config() };
        let mut running = run(Config { timeout_ms: of_all, ..config(&[server_config]) }, Vec::new());
        assert_eq!(running.tools.ready(PATIENCE).await, []);
        running.call(1, "work", arguments);
        if let Some(expected_s) = expected_s {
            let Record::Deadline { due_ms, .. } = running.next().await else { panic!("no deadline") };
            let left_s = (due_ms - crate::tool::outbox::now_ms()).div_ceil(1_000);
            assert!(left_s <= expected_s && left_s + 60 > expected_s, "{left_s} {expected_s}");
        }
        assert_eq!(running.next().await, Record::Accepted(id(1)));
    }
    let last = spoken.seen("invoke").pop().unwrap();
    assert_eq!(last["arguments"], json!({"n": 1}), "the tool does not see it");
}

fn respond(server: &TestServer, number: u64) -> ToTool {
    let (thread, call, url) = (thread(), id(number), format!("{}/answer", server.base));
    ToTool::Respond(Respond { thread, call, name: "work".to_owned(), question: 9, url, selected: 1 })
}

#[tokio::test]
async fn a_choice_is_told_until_the_tool_knows() {
    let server = annotated(json!({}), &[Reaction::Status(503, ""), Reaction::Status(200, "")]).await;
    let mut running = ready(&[&server]).await;
    running.to.put(respond(&server, 4));
    assert_eq!(running.next().await, Record::Responded(9));
    let expected = json!({"id": id(4).effect_id(thread()), "selected": 1});
    assert_eq!(server.seen("answer"), [expected.clone(), expected]);
}

#[tokio::test]
async fn a_choice_that_cannot_be_told_ends_the_call() {
    let server = annotated(json!({}), &[Reaction::Status(400, "no such call")]).await;
    let mut running = ready(&[&server]).await;
    running.to.put(respond(&server, 4));
    let error = running.error(4).await;
    assert!(error.contains("refused what the user chose") && error.contains("no such call"), "{error}");
    assert_eq!(server.seen("answer").len(), 1);
}

/// The server has not acknowledged the invocation when it is told of the choice.
#[tokio::test]
async fn a_choice_does_not_wait_for_its_call() {
    let server = annotated(json!({}), &[Reaction::Gate, Reaction::Status(200, "")]).await;
    let mut running = ready(&[&server]).await;
    running.call(4, "work", "{}");
    server.has_seen("invoke", 1).await;
    running.to.put(respond(&server, 4));
    assert_eq!(running.next().await, Record::Responded(9));
    server.gate.notify_one();
    assert_eq!(running.next().await, Record::Accepted(id(4)));
}

#[tokio::test]
async fn every_server_is_told_once_that_a_thread_has_closed_and_none_is_waited_for() {
    let one = TestServer::with_tools(&["one"], &[]).await;
    let two = TestServer::with_tools(&["two"], &[]).await;
    let mut running = ready(&[&one, &two]).await;
    running.to.put(ToTool::Close(thread()));
    for server in [&one, &two] {
        server.has_seen("close", 1).await;
        assert_eq!(server.seen("close"), [json!({"thread_id": thread().to_string()})]);
    }
    // Neither has answered yet.
    running.to.put(ToTool::Dispatch(Dispatch { ancestors: vec![thread()], ..dispatch(1, "one", "{}") }));
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    assert_eq!(one.seen("invoke")[0]["thread_ancestors"], json!([thread().to_string()]));
}

#[tokio::test]
async fn a_call_is_lost_only_when_its_server_says_so() {
    let gone = Reaction::Status(200, r#"{"alive": false}"#);
    for (reactions, lost) in [
        (vec![gone.clone()], true),
        (vec![Reaction::Status(503, ""), Reaction::Status(500, ""), gone], true),
        (vec![Reaction::Status(200, r#"{"alive": true}"#)], false),
        (vec![Reaction::Status(200, r#"{"alive": "no"}"#)], false),
        (vec![Reaction::Status(404, r#"{"alive": false}"#)], false),
    ] {
        let server = annotated(json!({}), &reactions).await;
        let mut running = ready(&[&server]).await;
        running.to.put(ToTool::Check(dispatch(4, "work", "{}")));
        server.has_seen("status", reactions.len()).await;
        let asked = json!({"thread_id": thread().to_string(), "tool_call_id": id(4).effect_id(thread())});
        assert!(server.seen("status").iter().all(|body| *body == asked));
        if lost {
            assert_eq!(running.next().await, Record::Lost(id(4)));
        }
        // Nothing more is said of it.
        running.call(5, "work", "{}");
        assert_eq!(running.next().await, Record::Accepted(id(5)));
    }
}

/// The server comes up again after us.
#[tokio::test]
async fn a_server_that_is_not_there_yet_is_asked_when_it_is() {
    let (socket, address) = reserve("127.0.0.1:0");
    let base = format!("http://{address}");
    let mut running = run(config(&[ServerConfig { url: Some(base), ..ServerConfig::default() }]), Vec::new());
    running.to.put(ToTool::Check(dispatch(4, "work", "{}")));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let gone = Reaction::Status(200, r#"{"alive": false}"#);
    let _server = TestServer::on(socket.listen(16).unwrap(), |base| manifest(base, &["work"]), &[gone]);
    assert_eq!(running.next().await, Record::Lost(id(4)));
}
