//! A shard that dies at every commit: its threads in memory are gone, and the journal and what follows from it remain.
//!
//! In: a story of a parent and its children, told by a model that answers by what it sees. Out: the same story. Always: the
//! journal, the model and the posts keep their contracts; what was under way when the shard died is lost.

use crate::story::{call, completion, lines, message, say};
use crate::tree::{ROOT, report, spawn};
use slackwater_core::flow::awake::{Awake, Moment, ToWorld};
use slackwater_core::history::History;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::{FromJournal, ToJournal, ToModel, ToTool};
use slackwater_core::record::{Arrival, Block, Committed, End};
use slackwater_core::thread::{State, Thread, invariant};
use std::collections::{BTreeMap, VecDeque};

/// A shard with all around it.
#[derive(Default)]
struct Shard {
    awake: Awake,
    journal: BTreeMap<ThreadId, Vec<Committed>>,
    rests: BTreeMap<ThreadId, Number>,
    /// What is on its way into the journal.
    arriving: VecDeque<Arrival>,
    commits: usize,
    prompts: usize,
    recalls: usize,
}

impl Shard {
    fn tick(&mut self, batch: Vec<FromJournal>) {
        let mut answers = Vec::new();
        let moments = batch.into_iter().map(Moment::Item).chain([Moment::TickEnd]);
        for asked in moments.flat_map(|moment| self.awake.step(moment)).collect::<Vec<_>>() {
            match asked {
                ToWorld::Journal(ToJournal::Recall { thread, before }) => {
                    self.recalls += 1;
                    let records =
                        self.journal[&thread].iter().filter(|record| record.number < before).cloned().collect();
                    let ancestry = self.ancestry(thread);
                    answers.push(FromJournal::Recalled { thread, records: Ok(records), ancestry });
                }
                ToWorld::Journal(ToJournal::Rest(rest)) => {
                    self.rests.insert(rest.thread, rest.through);
                }
                ToWorld::Model(ToModel::Prompt(prompt)) => {
                    assert!(invariant::check_view(&prompt.history).unwrap().is_empty(), "every_call_has_one_result");
                    self.prompts += 1;
                    let record = completion(prompt.seen, answer(prompt.thread, &prompt.history), End::Finished);
                    self.arriving.push_back(Arrival { ticket: None, thread: prompt.thread, at_ms: 1, record });
                }
                ToWorld::Post(arrival) => self.arriving.push_back(arrival),
                ToWorld::Gateway(_) | ToWorld::Tool(ToTool::Close(_)) => {}
                other => panic!("nobody asked for {other:?}"),
            }
        }
        if !answers.is_empty() {
            self.tick(answers);
        }
    }

    /// Commits the first so many of what arrives, as one batch.
    fn commit(&mut self, at_most: usize) -> Vec<Committed> {
        let batch: Vec<Arrival> = self.arriving.drain(..self.arriving.len().min(at_most)).collect();
        self.commits += 1;
        let mut committed = Vec::new();
        for arrival in batch {
            let records = self.journal.entry(arrival.thread).or_default();
            assert!(!records.is_empty() || arrival.record.creates_thread());
            records.push(Committed { number: records.len() as Number + 1, arrival });
            committed.extend(records.last().cloned());
        }
        committed
    }

    /// The process dies and starts again: who was not at rest is awakened.
    fn restart(&mut self) {
        self.awake = Awake::default();
        self.arriving.clear();
        let unsettled = self.journal.iter().map(|(&thread, records)| (thread, records.len() as Number));
        let wakes = unsettled
            .filter(|(thread, last)| self.rests.get(thread) != Some(last))
            .map(|(thread, last)| FromJournal::Wake { thread, last })
            .collect();
        self.tick(wakes);
    }

    fn ancestry(&self, id: ThreadId) -> Vec<(ThreadId, Vec<Committed>)> {
        let mut ancestry = Vec::new();
        let mut next = self.journal[&id][0].arrival.record.base();
        while let Some((id, through)) = next {
            ancestry.push((id, self.journal[&id][..through as usize].to_vec()));
            next = self.journal[&id][0].arrival.record.base();
        }
        ancestry.reverse();
        ancestry
    }

    fn fold(&self, id: ThreadId) -> Thread {
        let mut thread = Thread::inheriting(id, self.ancestry(id));
        for record in &self.journal[&id] {
            thread.apply(record.clone());
            invariant::check(&thread).unwrap();
        }
        thread
    }
}

/// What the model says, by what it sees: the root has two children look and waits for both; each has a child of its own
/// look closer, passes on what that finds, and closes.
fn answer(thread: ThreadId, history: &History) -> Vec<Block> {
    let view = lines(history);
    let own = view.iter().rposition(|line| line.contains(&format!("You are the child thread {thread}")));
    let reports = view[own.unwrap_or(0)..].iter().filter(|line| line.contains("Report of")).count();
    let wait = call("sleep_until_event_or_input", "{}");
    let last = |text: &str| call("close_thread", &format!(r#"{{"thread_id":"{thread}","report_to_parent":"{text}"}}"#));
    match own {
        None if view.len() == 1 => vec![spawn("one", &[], false), spawn("two", &[], false)],
        None if reports < 2 => vec![wait],
        None => vec![say("All is looked at.")],
        Some(own) if view[own].ends_with("closer") => vec![report("close up"), last("that is all")],
        Some(own) if own + 1 == view.len() => vec![spawn("closer", &[thread], false)],
        Some(_) if reports < 2 => vec![wait],
        Some(_) => vec![last("looked at")],
    }
}

/// Lives the story, with batches of so many records, and dies after these commits: before the flow has heard of them, or
/// after it has acted.
fn live(batch: usize, deaths: &[(usize, bool)]) -> Shard {
    let mut shard = Shard::default();
    let first = Arrival { ticket: None, thread: ROOT, at_ms: 1, record: message("a", "have it looked at") };
    shard.arriving.push_back(first);
    while !shard.arriving.is_empty() {
        assert!(shard.commits < 500, "the story does not end");
        let committed = shard.commit(batch);
        let dies = deaths.iter().find(|(commit, _)| *commit == shard.commits);
        if dies.is_none_or(|(_, acts)| *acts) {
            shard.tick(vec![FromJournal::Committed(committed)]);
        }
        if dies.is_some() {
            shard.restart();
        }
    }
    shard
}

/// The end of the story, whatever happened on the way.
fn check(shard: &Shard, how: &str) {
    assert_eq!(shard.journal.len(), 5, "{how}: no child is made twice or not at all");
    let view = lines(&shard.fold(ROOT).view());
    assert_eq!(
        view.iter().filter(|line| line.contains("looked at") && line.contains("Report of")).count(),
        2,
        "{how}: {view:?}"
    );
    assert_eq!(view.last().unwrap(), "turn: All is looked at.", "{how}");
    for &id in shard.journal.keys() {
        let thread = shard.fold(id);
        let standing = thread.standing();
        assert_eq!(standing.state, if id == ROOT { State::Idle } else { State::Closed }, "{how}");
        assert_eq!((standing.children, thread.owed()), (0, vec![]), "{how}");
        assert_eq!(shard.rests.get(&id), Some(&thread.last()), "{how}: an_idle_thread_is_data");
    }
}

#[test]
fn a_tree_survives_a_crash_at_every_commit() {
    let mut lives = 0;
    for batch in [1, 2, 100] {
        let whole = live(batch, &[]);
        check(&whole, "no crash");
        assert!(whole.recalls >= 4, "a child is nothing without what it inherits");
        for first in 1..=whole.commits {
            for acts in [false, true] {
                check(&live(batch, &[(first, acts)]), &format!("batch {batch}, crash at {first}, {acts}"));
                lives += 1;
                for later in 1..=4 {
                    let deaths = [(first, acts), (first + later, !acts)];
                    check(&live(batch, &deaths), &format!("batch {batch}, crashes at {deaths:?}"));
                    lives += 1;
                }
            }
        }
    }
    eprintln!("two children with a child each: {lives} lives with one or two crashes");
    assert!(lives > 500, "{lives}");
}
