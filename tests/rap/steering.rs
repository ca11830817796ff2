//! The steering server: an agent lists what steers it, and loads it.

use crate::agent::{Agent, As, Plan, answers};
use serde_json::json;

async fn steering(reached: As) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("project");
    std::fs::create_dir_all(root.join(".kiro/steering")).unwrap();
    std::fs::write(root.join("AGENTS.md"), "Be brief.\n").unwrap();
    std::fs::write(root.join(".kiro/steering/style.md"), "No tabs.\n").unwrap();
    let plans: Vec<Plan> = vec![(
        "What steers you?",
        vec![
            ("list_steering", json!({"root": root})),
            ("load_steering", json!({"root": root, "path": "../x"})),
            ("load_steering", json!({"root": root, "path": "AGENTS.md"})),
        ],
    )];
    let mut agent = Agent::start(place, "rap-steering-server", reached, plans.clone()).await;
    assert_eq!(agent.ask("What steers you?").await, "Be brief.\n");
    let (folded, _place) = agent.end().await;
    assert_eq!(
        answers(&folded, &plans),
        [".kiro/steering/style.md\nAGENTS.md", "Error: not a steering file location", "Be brief.\n"]
    );
    assert_eq!(
        folded.turns(),
        ["I call list_steering.", "I call load_steering.", "I call load_steering.", "Be brief.\n"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_server_as_a_url() {
    steering(As::Url).await;
}

#[tokio::test]
async fn steering_server_as_a_command() {
    steering(As::Command).await;
}
