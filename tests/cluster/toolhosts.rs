//! Toolhosts of a cell: tools run there, and one that is killed takes nothing with it.
//!
//! In: calls of threads of both shards. Out: one result each. Always: what a toolhost had in its hands is asked again under the
//! same name, and what it had handed over is not.

use super::Settings;
use super::client::Client;
use super::rap_server::RapServer;
use super::{Server, behaviour, records, within};
use rustix::process::{Pid, Signal, kill_process};

const THREADS: usize = 6;
const TOOLHOSTS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_toolhost_that_is_killed_loses_no_call_and_doubles_no_result() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let choice = u64::from(std::process::id()) + 5_000;
    let settings = Settings::new(place.path(), choice, behaviour::SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let mut command = settings.cells_command(1, 2);
    command.args(["--toolhosts", &TOOLHOSTS.to_string()]);
    let server = Server::launch(&settings, &mut command, std::slice::from_ref(&client)).await;
    let state = || slackwater::host::plan::running(&settings.directory).unwrap().unwrap();
    let toolhosts = || {
        let processes = state().cells[0].processes.clone();
        processes.into_iter().filter(|process| process.name.starts_with("toolhost ")).collect::<Vec<_>>()
    };
    // The gateway may take inputs a moment before the supervisor has said so.
    let first = within("the toolhosts run", async || Some(toolhosts()).filter(|found| !found.is_empty())).await;
    assert_eq!(first.iter().map(|process| process.name.as_str()).collect::<Vec<_>>(), ["toolhost 0.0", "toolhost 0.1"]);

    // Half of the calls are taken over, the other half are in the toolhosts' hands.
    let names: Vec<String> = (0..2 * THREADS).map(|n| format!("thread-{n}")).collect();
    for name in &names[..THREADS] {
        client.post(name, "one", &format!("look at {name}")).await;
        client.waits_on(name, |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    }
    tools.set_deaf(true);
    for name in &names[THREADS..] {
        client.post(name, "one", &format!("look at {name}")).await;
    }
    tools.asked(2 * THREADS, 1).await;
    let victim = &first[1];
    kill_process(Pid::from_raw(victim.process as i32).unwrap(), Signal::KILL).unwrap();
    within("the cell is started anew", async || {
        let cell = state().cells[0].clone();
        (cell.restarts == 1 && cell.phase == slackwater::host::plan::Phase::Ready).then_some(())
    })
    .await;
    assert!(toolhosts().iter().all(|process| first.iter().all(|old| old.process != process.process)));
    tools.set_deaf(false);
    for name in &names {
        client.waits_on(name, |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    }

    for (id, work) in tools.work() {
        let in_hands = names[THREADS..].iter().any(|name| work.arguments["about"] == format!("look at {name}"));
        assert!(if in_hands { work.asked > 1 } else { work.asked == 1 }, "effects_have_names: {work:?}");
        assert_eq!(tools.answer(&id).await, 200);
        assert_eq!(tools.answer(&id).await, 200, "a result that comes twice is taken once");
    }
    for name in &names {
        client.idle(name).await;
    }
    assert!(server.terminate().0.success(), "{}", settings.log());
    let mut told = 0;
    for shard in 0..2 {
        let directory = slackwater::host::directory::shard_directory(&settings.directory, shard);
        for folded in records::read(&directory).await.values() {
            let results = folded.turns().into_iter().filter(|said| said.starts_with("The result: seen: look at"));
            assert_eq!(results.count(), 1, "one result each");
            told += 1;
        }
    }
    assert_eq!(told, 2 * THREADS);
}
