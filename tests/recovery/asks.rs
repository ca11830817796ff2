//! Questions to people that outlive the process that asked them, and calls that take too long.

use crate::kills::client::Client;
use crate::kills::rap_server::RapServer;
use crate::kills::server_process::{Server, Settings};
use crate::kills::{records, within};
use serde_json::json;
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::id::ThreadId;

/// The model calls the tool of the message's first word, and then says what it was told.
const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "deploy" }
call = [{ tool = "deploy", arguments = { about = "{message}" } }]

[[rule]]
when = { message_contains = "ask" }
call = [{ tool = "ask", arguments = { about = "{message}" } }]

[[rule]]
when = { message_contains = "doze" }
call = [{ tool = "doze", arguments = { about = "{message}" } }]

[[rule]]
when = { message_contains = "look" }
call = [{ tool = "look", arguments = { about = "{message}" } }]

[[rule]]
say = "Good day."
"#;

fn id(name: &str) -> ThreadId {
    slackwater::gateway::name::address(name).unwrap().thread
}

async fn ready(settings: &Settings) -> Server {
    let mut server = Server::start(settings);
    server.ready().await;
    server
}

/// Asked in one life, killed, approved in the next, killed before the tool has answered: it is done once, with its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_given_in_another_process_is_done_once() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), 211, SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));

    let server = ready(&settings).await;
    client.post("ops", "1", "deploy 1.2").await;
    let question = client.question("ops", "approval").await;
    within("it rests while nobody answers", async || (client.awake().await == Some(0)).then_some(())).await;
    server.kill();

    let server = ready(&settings).await;
    assert_eq!(client.question("ops", "approval").await, question, "it is the same question");
    assert!(tools.work().is_empty(), "nothing is done before somebody has agreed");
    let (status, said) = client.answer("ops", &json!({"question": question, "approve": true, "id": "yes"})).await;
    assert_eq!(status, 201, "{said}");
    tools.asked(1, 1).await;
    client.waits_on("ops", |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    server.kill();

    let server = ready(&settings).await;
    let (status, again) = client.answer("ops", &json!({"question": question, "approve": true, "id": "yes"})).await;
    assert_eq!((status, &again["number"], &again["duplicate"]), (200, &said["number"], &json!(true)));
    let (status, other) = client.answer("ops", &json!({"question": question, "approve": false})).await;
    assert_eq!((status, &other["field"]), (409, &json!("question")), "{other}");
    let work = tools.work();
    let (call, work) = work.iter().next().unwrap();
    assert_eq!((work.asked, &work.arguments), (1, &json!({"about": "deploy 1.2"})));
    assert_eq!(tools.answer(call).await, 200);
    client.idle("ops").await;
    let (status, _) = server.terminate();
    assert!(status.success());
    assert_eq!(tools.work().len(), 1);
    let folded = records::read(&settings.directory).await;
    let answers = folded[&id("ops")].answers();
    assert_eq!(answers.values().flatten().collect::<Vec<_>>(), [&AnsweredBy::Tool], "one answer, and the tool's");
}

/// A tool that has a person choose is told in another life than the one in which it asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_made_in_another_process_reaches_the_tool() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), 212, SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));

    let server = ready(&settings).await;
    client.post("ops", "1", "ask which").await;
    let question = client.question("ops", "choice").await;
    server.kill();

    let server = ready(&settings).await;
    let (status, said) = client.answer("ops", &json!({"question": question, "choice": "none"})).await;
    assert_eq!((status, &said["field"]), (400, &json!("choice")), "{said}");
    assert!(said["detail"].as_str().unwrap().contains("0 (\"this\"), 1 (\"that\")"), "{said}");
    let (status, said) = client.answer("ops", &json!({"question": question, "choice": "that"})).await;
    assert_eq!(status, 201, "{said}");
    client.idle("ops").await;
    server.terminate();
    let work = tools.work();
    let work = work.values().next().unwrap();
    assert!(!work.chosen.is_empty() && work.chosen.iter().all(|chosen| *chosen == 1), "{work:?}");
    assert_eq!(work.asked, 1);
    let folded = records::read(&settings.directory).await;
    let said = format!("{:?}", folded[&id("ops")].thread.history());
    assert!(said.contains("seen: ask which, chosen: 1"), "{said}");
}

/// A call that takes too long ends although its process died meanwhile; what the tool says at last is an event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_times_out_through_a_kill_and_its_late_result_is_an_event() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), 213, SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));

    let server = ready(&settings).await;
    client.post("ops", "1", "doze").await;
    client.waits_on("ops", |wait| wait["on"] == "call" && wait["due_ms"].is_u64()).await;
    server.kill();

    let server = ready(&settings).await;
    client.idle("ops").await;
    let call = tools.work().keys().next().unwrap().clone();
    assert_eq!(tools.answer(&call).await, 200, "a result that comes too late is taken all the same");
    client.idle("ops").await;
    server.terminate();
    let folded = records::read(&settings.directory).await;
    let thread = &folded[&id("ops")];
    assert_eq!(thread.answers().values().flatten().collect::<Vec<_>>(), [&AnsweredBy::TimedOut]);
    let events = thread.thread.history().newest_first().filter(|item| matches!(&***item, Item::Event(_))).count();
    assert_eq!(events, 1);
}

/// A tool that has lost a call over a restart of both ends it with an explicit failure; one that knows it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_its_tool_has_forgotten_ends_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), 214, SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let accepted = |wait: &serde_json::Value| wait["on"] == "call" && wait["accepted"] == true;

    let server = ready(&settings).await;
    client.post("ops", "1", "look").await;
    client.waits_on("ops", accepted).await;
    within("it rests", async || (client.awake().await == Some(0)).then_some(())).await;
    server.kill();

    // The tool knows it.
    let server = ready(&settings).await;
    within("it rests again", async || (client.awake().await == Some(0)).then_some(())).await;
    client.waits_on("ops", accepted).await;
    server.kill();

    tools.forget();
    let server = ready(&settings).await;
    client.idle("ops").await;
    server.terminate();
    let folded = records::read(&settings.directory).await;
    let answers = folded[&id("ops")].answers();
    assert_eq!(answers.values().flatten().collect::<Vec<_>>(), [&AnsweredBy::Lost]);
    assert_eq!(tools.work().values().map(|work| work.asked).sum::<usize>(), 1, "it is not done again by itself");
}
