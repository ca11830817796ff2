//! Answers to questions: what good ones get, and what each bad one gets.

use super::World;
use serde_json::{Value, json};
use slackwater_core::id::{CallId, Number, ThreadId};
use slackwater_core::record::{Asks, Decision, Origin, Proof, Question, Record};

/// A thread with an open approval and an open choice, and their numbers.
async fn asking() -> (World, ThreadId, Number, Number) {
    let world = World::new();
    let thread = world.say("demo", "deploy it").await;
    let call = |name: &str| slackwater_core::record::Block::Call {
        provider_id: name.into(),
        name: name.into(),
        arguments: r#"{"version":"1.2"}"#.into(),
    };
    world.shard.turn(thread, vec![call("deploy"), call("ask")]);
    let turn = world.shard.last(thread);
    let asked = |index, asks| {
        let question = Question { call: CallId { number: turn, index }, origin: Origin::runtime(), asks };
        world.shard.happen(thread, Record::Asked(question));
        world.shard.last(thread)
    };
    let approval = asked(0, Asks::Approval { reason: "it is destructive".into() });
    let choices = vec!["Yes".into(), "No".into(), "7".into()];
    let respond_to = "http://127.0.0.1:9/".into();
    let choice = asked(1, Asks::Choice { prompt: "Where?".into(), choices, default: 1, respond_to });
    (world, thread, approval, choice)
}

const PATH: &str = "/v1/threads/demo/answers";

fn decisions(world: &World) -> Vec<Decision> {
    let records = world.shard.records().into_iter();
    let decision = |record| if let Record::Answered(verdict) = record { Some(verdict) } else { None };
    let verdicts = records.filter_map(|committed| decision(committed.arrival.record));
    verdicts
        .map(|verdict| {
            assert_eq!(verdict.origin.proof, Proof::Loopback, "origin_is_proven");
            verdict.answer
        })
        .collect()
}

#[tokio::test]
async fn a_thread_says_what_it_asks() {
    let (world, _, approval, choice) = asking().await;
    let standing = world.get("/v1/threads/demo").await.body;
    assert_eq!(standing["state"], "asking");
    let waits = &standing["waits"];
    assert_eq!((&waits[0]["on"], &waits[0]["question"]), (&json!("question"), &json!(approval)));
    assert_eq!((&waits[0]["name"], &waits[0]["arguments"]), (&json!("deploy"), &json!({"version": "1.2"})));
    assert_eq!((&waits[1]["question"], &waits[1]["choices"][1]), (&json!(choice), &json!("No")));
    assert!(waits[1].get("respond_to").is_none(), "where a tool listens is nobody's business");
}

#[tokio::test]
async fn an_answer_is_taken_once() {
    let (world, thread, approval, choice) = asking().await;
    let body = json!({"question": approval, "approve": true, "id": "yes"}).to_string();
    let taken = world.post(PATH, body.clone()).await;
    let number = world.shard.last(thread);
    let expected = json!({"thread": thread.to_string(), "number": number, "id": "yes", "duplicate": false});
    assert_eq!((taken.status, &taken.body), (201, &expected));
    let again = world.post(PATH, body).await;
    assert_eq!((again.status, &again.body["number"], &again.body["duplicate"]), (200, &json!(number), &json!(true)));
    let other = world.post(PATH, json!({"question": approval, "approve": false}).to_string()).await;
    other.is_problem(409, "question-answered", "already");
    assert_eq!(other.body["field"], "question");
    // A choice is made by its words or its place; words stand before a place.
    let chosen = world.post(PATH, json!({"question": choice, "choice": "7", "id": "c"}).to_string()).await;
    assert_eq!(chosen.status, 201, "{}", chosen.body);
    let again = world.post(PATH, json!({"question": choice, "choice": "7", "id": "c"}).to_string()).await;
    assert_eq!((again.status, &again.body["duplicate"]), (200, &json!(true)));
    assert_eq!(decisions(&world)[..1], [Decision::Approve]);
    assert!(decisions(&world).contains(&Decision::Choose { index: 2 }));
}

#[tokio::test]
async fn a_denial_may_have_a_reason() {
    let (world, _, approval, _) = asking().await;
    let body = json!({"question": approval, "approve": false, "reason": "not on a Friday"}).to_string();
    assert_eq!(world.post(PATH, body).await.status, 201);
    assert_eq!(decisions(&world), [Decision::Deny { reason: Some("not on a Friday".into()) }]);
}

#[tokio::test]
async fn each_bad_answer_is_told_what_is_wrong_with_it() {
    let (world, thread, approval, choice) = asking().await;
    let before = world.shard.last(thread);
    let long = "x".repeat(2_001);
    for (body, status, kind, field, said) in [
        (json!({}), 400, "bad-field", "question", "missing"),
        (json!({"question": "5", "approve": true}), 400, "bad-field", "question", "number of a question"),
        (json!({"question": -1, "approve": true}), 400, "bad-field", "question", "number of a question"),
        (json!({"question": approval}), 400, "bad-field", "approve", "approve (true or false) or choice"),
        (json!({"question": approval, "approve": "yes"}), 400, "bad-field", "approve", "true or false"),
        (json!({"question": approval, "approve": true, "choice": 0}), 400, "bad-field", "choice", "not both"),
        (json!({"question": approval, "approve": true, "reason": "x"}), 400, "bad-field", "reason", "for a denial"),
        (json!({"question": approval, "approve": false, "reason": " "}), 400, "bad-field", "reason", "1 to 2000"),
        (json!({"question": approval, "approve": false, "reason": long}), 400, "bad-field", "reason", "1 to 2000"),
        (json!({"question": choice, "choice": true}), 400, "bad-field", "choice", "place of a choice"),
        (json!({"question": choice, "choice": 3}), 400, "bad-field", "choice", "0 (\\\"Yes\\\"), 1 (\\\"No\\\")"),
        (json!({"question": choice, "choice": "Maybe"}), 400, "bad-field", "choice", "none of the choices"),
        (json!({"question": choice, "choice": 0.5}), 400, "bad-field", "choice", "none of the choices"),
        (json!({"question": approval, "approve": true, "why": 1}), 400, "bad-field", "why", "no field here"),
        (json!({"question": approval, "approve": true, "id": ""}), 400, "bad-field", "id", "1 to 128"),
        (json!({"question": approval, "choice": 0}), 409, "wrong-answer", "question", "answered with `approve`"),
        (json!({"question": choice, "approve": true}), 409, "wrong-answer", "question", "a choice with `choice`"),
        (json!({"question": 1, "approve": true}), 404, "no-such-question", "question", "no question of this number"),
        (json!({"question": 99, "choice": "Yes"}), 404, "no-such-question", "question", "no question of this number"),
    ] {
        let answer = world.post(PATH, body.to_string()).await;
        answer.is_problem(status, kind, said);
        assert_eq!(answer.body["field"], field, "{body}");
    }
    world.post(PATH, "yes").await.is_problem(400, "malformed-json", "not JSON");
    assert_eq!(decisions(&world).len(), world.shard.last(thread) as usize - before as usize, "only what fits is sent");
    assert_eq!(world.get("/v1/threads/demo").await.body["waits"].as_array().unwrap().len(), 2, "both are open still");
}

#[tokio::test]
async fn an_answer_for_which_nobody_waits_is_refused() {
    let (world, _, approval, choice) = asking().await;
    for (thread, question, answer) in [("nobody", approval, "approve"), ("nobody", choice, "choice")] {
        let mut body = json!({"question": question});
        body[answer] = if answer == "approve" { json!(true) } else { json!("Yes") };
        let answer = world.post(&format!("/v1/threads/{thread}/answers"), body.to_string()).await;
        answer.is_problem(404, "unknown-thread", "");
    }
    let stopped = world.post("/v1/threads/demo/stop", r#"{"subtree":true}"#).await;
    assert_eq!(stopped.status, 201, "{}", stopped.body);
    for body in [json!({"question": approval, "approve": true}), json!({"question": choice, "choice": 0})] {
        world.post(PATH, body.to_string()).await.is_problem(410, "question-withdrawn", "stopped");
    }
    world.post("/v1/threads/demo/stop", r#"{"subtree":"all"}"#).await.is_problem(400, "bad-field", "true or false");
    let records = world.shard.records();
    assert!(records.iter().any(|committed| matches!(committed.arrival.record, Record::StopAll(_))));
}

#[tokio::test]
async fn text_is_no_answer() {
    let (world, _, approval, _) = asking().await;
    world.say("demo", "yes").await;
    let waits = world.get("/v1/threads/demo").await.body["waits"].clone();
    let open: Vec<&Value> = waits.as_array().unwrap().iter().filter(|wait| wait["on"] == "question").collect();
    assert_eq!(open.len(), 1, "the tool's own question is withdrawn, and the approval is not given: {waits}");
    assert_eq!(open[0]["question"], approval);
}
