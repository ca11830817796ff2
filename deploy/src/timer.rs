//! Durable timers: when a thread that sleeps is woken.
//!
//! In: moments, or times on somebody's wall. Out: `Record::Fired` when one has come; for a time on a wall first the moment that
//! it is (`Record::Armed`), or an error result that says why it is none. Always: in the order in which they are due; the wall
//! clock decides, and a jump of it is seen within a minute.
//!
//! That they are durable is the journal's doing: a thread's timers are armed again when it comes back. Here a timer is an
//! entry of a table (28 bytes, at most 32 with the slack), and all of them share one task. Only those that are due soon are
//! kept in order.

mod table;

use crate::clock::{Clock, Watch};
use crate::port::{self, FromAdapter, Inside, ToAdapter};
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use slackwater_core::effect::Due;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::ToTimer;
use slackwater_core::record::{Arrival, Content, Origin, Proof, Record, ToolResult};
use std::collections::BTreeSet;
use table::Table;

/// The clock may jump (a suspended machine, a corrected time): it is read at least this often while a timer runs.
const LOOK_AGAIN_MS: u64 = 60_000;

/// Starts the timers, which go by this clock. Must be called inside a tokio runtime.
pub fn start(clock: &Clock) -> (FromAdapter<Arrival>, ToAdapter<ToTimer>) {
    start_with(clock.watch())
}

fn start_with(clock: impl Ticking) -> (FromAdapter<Arrival>, ToAdapter<ToTimer>) {
    let (from, to, inside) = port::ends();
    tokio::spawn(run(inside, clock));
    (from, to)
}

/// What the timers need of a clock.
trait Ticking: Send + 'static {
    /// The time, in milliseconds since the Unix epoch.
    fn now_ms(&mut self) -> u64;
    /// Waits until so much time may have passed.
    fn pause(&mut self, pause_ms: u64) -> impl Future<Output = ()> + Send;
}

impl Ticking for Watch {
    fn now_ms(&mut self) -> u64 {
        Watch::now_ms(self)
    }

    fn pause(&mut self, pause_ms: u64) -> impl Future<Output = ()> + Send {
        Watch::pause(self, pause_ms.min(LOOK_AGAIN_MS))
    }
}

async fn run(mut inside: Inside<Arrival, ToTimer>, mut clock: impl Ticking) {
    let mut timers = Timers::default();
    loop {
        let now_ms = clock.now_ms();
        for (thread, call) in timers.take_due(now_ms) {
            put(&inside, now_ms, thread, Record::Fired(call));
        }
        let pause_ms = timers.next_ms().map(|due_ms| due_ms.saturating_sub(now_ms).max(1));
        let asked = tokio::select! {
            asked = inside.receive.recv() => asked,
            () = clock.pause(pause_ms.unwrap_or(0)), if pause_ms.is_some() => continue,
        };
        match asked {
            None => return,
            Some(ToTimer::Disarm { thread, call }) => timers.remove(thread, call),
            Some(ToTimer::Arm { thread, call, due: Due::At(due_ms) }) => timers.insert(thread, call, due_ms),
            Some(ToTimer::Arm { thread, call, due: Due::Wall { date, time, timezone } }) => {
                match moment(&date, &time, &timezone) {
                    Ok(due_ms) => {
                        timers.insert(thread, call, due_ms);
                        put(&inside, now_ms, thread, Record::Armed { call, due_ms });
                    }
                    Err(why) => {
                        // One armed before under this name is not wanted any more.
                        timers.remove(thread, call);
                        put(&inside, now_ms, thread, refused(call, &why));
                    }
                }
            }
        }
    }
}

fn put(inside: &Inside<Arrival, ToTimer>, at_ms: u64, thread: ThreadId, record: Record) {
    // A closed end is a flow that has stopped; at its next start it arms again.
    let _ = inside.send.send(Arrival { ticket: None, thread, at_ms, record });
}

/// How far ahead timers are put in order. The table is walked so often, in milliseconds a million.
const SOON_MS: u64 = 120_000;

/// The timers that run.
#[derive(Default)]
struct Timers {
    all: Table,
    /// Those that are due before `soon_ms`, in the order in which they are due.
    soon: BTreeSet<(u64, ThreadId, CallId)>,
    soon_ms: u64,
}

impl Timers {
    fn insert(&mut self, thread: ThreadId, call: CallId, due_ms: u64) {
        if let Some(before_ms) = self.all.insert(thread, call, due_ms) {
            self.soon.remove(&(before_ms, thread, call));
        }
        if due_ms < self.soon_ms {
            self.soon.insert((due_ms, thread, call));
        }
    }

    fn remove(&mut self, thread: ThreadId, call: CallId) {
        if let Some(due_ms) = self.all.remove(thread, call) {
            self.soon.remove(&(due_ms, thread, call));
        }
    }

    /// When there is something to do next: a timer is due, or others are to be put in order.
    fn next_ms(&self) -> Option<u64> {
        let first_ms = self.soon.first().map(|(due_ms, _, _)| *due_ms);
        first_ms.or_else(|| (!self.all.is_empty()).then_some(self.soon_ms))
    }

    /// Takes out those that are due, in order.
    fn take_due(&mut self, now_ms: u64) -> Vec<(ThreadId, CallId)> {
        if now_ms >= self.soon_ms {
            self.soon_ms = now_ms + SOON_MS;
            self.soon = self.all.due_before(self.soon_ms).collect();
        }
        let mut due = Vec::new();
        while self.soon.first().is_some_and(|(due_ms, _, _)| *due_ms <= now_ms)
            && let Some((_, thread, call)) = self.soon.pop_first()
        {
            self.all.remove(thread, call);
            due.push((thread, call));
        }
        due
    }
}

/// The moment that a time on a wall is, in milliseconds since the Unix epoch; or, for the model, why there is none.
pub(crate) fn moment(date: &str, time: &str, timezone: &str) -> Result<u64, String> {
    let day =
        read_date(date).ok_or_else(|| format!("The date {date:?} is none. Give one that exists as YYYY-MM-DD."))?;
    let hour = read_time(time)
        .ok_or_else(|| format!("The time {time:?} is none. Give HH:MM or HH:MM:SS, from 00:00 to 23:59:59."))?;
    let zone = TimeZone::get(timezone).ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| {
        format!(
            "The time zone {timezone:?} is not known. Give an IANA name such as Europe/Berlin, America/New_York or UTC."
        )
    })?;
    let found = zone.to_ambiguous_timestamp(day.to_datetime(hour));
    match found.offset() {
        AmbiguousOffset::Unambiguous { .. } => {}
        AmbiguousOffset::Gap { .. } => {
            return Err(format!(
                "{date} {time} does not exist in {timezone}: the clocks are set forward over it. Give an earlier or a later time, or the time in UTC."
            ));
        }
        AmbiguousOffset::Fold { before, after } => {
            return Err(format!(
                "{date} {time} exists twice in {timezone}, as UTC{before} and then as UTC{after}: the clocks are set back over it. Give an earlier or a later time, or the one that is meant in UTC."
            ));
        }
    }
    let moment =
        found.unambiguous().map_err(|error| format!("{date} {time} in {timezone} is out of range: {error}."))?;
    // What was before 1970 is over as much as 1970 is.
    Ok(u64::try_from(moment.as_millisecond()).unwrap_or(0))
}

/// Reads `YYYY-MM-DD` and nothing else.
fn read_date(text: &str) -> Option<Date> {
    let [year, month, day] = digits(text, '-')?;
    let shape = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    if shape { Date::new(year as i16, month as i8, day as i8).ok() } else { None }
}

/// Reads `HH:MM` or `HH:MM:SS` and nothing else.
fn read_time(text: &str) -> Option<Time> {
    let [hour, minute, second] = match text.len() {
        5 => digits(&format!("{text}:00"), ':')?,
        8 => digits(text, ':')?,
        _ => return None,
    };
    let shape = text.as_bytes().iter().enumerate().all(|(at, byte)| (*byte == b':') == (at % 3 == 2));
    if shape { Time::new(hour as i8, minute as i8, second as i8, 0).ok() } else { None }
}

/// Three numbers of at most four digits.
fn digits(text: &str, between: char) -> Option<[u16; 3]> {
    let mut parts = text.split(between).map(|part| {
        let plain = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if plain { part.parse().ok() } else { None }
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// The answer to a call whose time there is none.
pub(crate) fn refused(call: CallId, why: &str) -> Record {
    Record::Result(ToolResult {
        call,
        origin: Origin { who: "slackwater".to_owned(), proof: Proof::Process },
        content: vec![Content::Text(why.to_owned())],
        is_error: true,
        subscription: false,
        display: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use futures::StreamExt as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const START_MS: u64 = 1_900_000_000_000;

    fn thread(byte: u8) -> ThreadId {
        ThreadId::from_bytes([byte; 16])
    }

    fn call(number: u64) -> CallId {
        CallId { number, index: 0 }
    }

    fn arm(number: u64, due: Due) -> ToTimer {
        ToTimer::Arm { thread: thread(1), call: call(number), due }
    }

    fn wall(date: &str, time: &str, timezone: &str) -> Due {
        Due::Wall { date: date.into(), time: time.into(), timezone: timezone.into() }
    }

    /// A clock like the system's: it says nothing when it jumps, and is looked at every 5 ms.
    struct Jumping(Arc<AtomicU64>);

    impl Ticking for Jumping {
        fn now_ms(&mut self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        async fn pause(&mut self, pause_ms: u64) {
            tokio::time::sleep(Duration::from_millis(pause_ms.min(5))).await;
        }
    }

    /// Timers whose clock stands still until the test moves it.
    fn timers() -> (FromAdapter<Arrival>, ToAdapter<ToTimer>, Arc<AtomicU64>) {
        let now_ms = Arc::new(AtomicU64::new(START_MS));
        let (from, to) = start_with(Jumping(now_ms.clone()));
        (from, to, now_ms)
    }

    async fn next(from: &mut FromAdapter<Arrival>) -> Record {
        tokio::time::timeout(Duration::from_secs(20), from.next()).await.unwrap().unwrap().record
    }

    /// Waits until everything that was asked before has been taken.
    async fn taken(from: &mut FromAdapter<Arrival>, to: &ToAdapter<ToTimer>) {
        to.put(arm(99, Due::At(0)));
        assert_eq!(next(from).await, Record::Fired(call(99)));
    }

    #[tokio::test]
    async fn timers_fire_in_due_order_and_what_is_past_at_once() {
        let (mut from, to, now_ms) = timers();
        to.put(arm(1, Due::At(START_MS + 3_000)));
        to.put(arm(2, Due::At(START_MS + 1_000)));
        to.put(arm(3, Due::At(START_MS + 2_000)));
        to.put(arm(4, Due::At(0)));
        assert_eq!(next(&mut from).await, Record::Fired(call(4)));
        now_ms.store(START_MS + 5_000, Ordering::SeqCst);
        for number in [2, 3, 1] {
            assert_eq!(next(&mut from).await, Record::Fired(call(number)));
        }
    }

    #[tokio::test]
    async fn a_timer_armed_again_is_replaced_and_one_disarmed_is_forgotten() {
        let (mut from, to, now_ms) = timers();
        to.put(arm(1, Due::At(START_MS + 1_000)));
        to.put(arm(1, Due::At(START_MS + 9_000)));
        to.put(arm(2, Due::At(START_MS + 1_000)));
        to.put(ToTimer::Disarm { thread: thread(1), call: call(2) });
        to.put(ToTimer::Disarm { thread: thread(2), call: call(2) });
        to.put(arm(3, Due::At(START_MS + 2_000)));
        taken(&mut from, &to).await;
        now_ms.store(START_MS + 5_000, Ordering::SeqCst);
        assert_eq!(next(&mut from).await, Record::Fired(call(3)));
        now_ms.store(START_MS + 9_000, Ordering::SeqCst);
        assert_eq!(next(&mut from).await, Record::Fired(call(1)));
    }

    #[tokio::test]
    async fn a_clock_that_jumps_is_noticed_in_both_directions() {
        let (mut from, to, now_ms) = timers();
        // Due in 40 ms by the clock, which is then set back: it must not fire by the time that has passed.
        to.put(arm(1, Due::At(START_MS + 40)));
        taken(&mut from, &to).await;
        now_ms.store(START_MS - 1_000_000, Ordering::SeqCst);
        assert!(tokio::time::timeout(Duration::from_millis(200), from.next()).await.is_err());
        // A day is slept through in one jump.
        to.put(arm(2, Due::At(START_MS + 86_400_000)));
        taken(&mut from, &to).await;
        now_ms.store(START_MS + 86_400_000, Ordering::SeqCst);
        assert_eq!(next(&mut from).await, Record::Fired(call(1)));
        assert_eq!(next(&mut from).await, Record::Fired(call(2)));
    }

    #[tokio::test]
    async fn a_clock_that_is_moved_by_hand_wakes_the_timers_and_nothing_else_does() {
        let clock = Clock::manual(START_MS);
        let (mut from, to) = start(&clock);
        to.put(arm(1, Due::At(START_MS + 10)));
        to.put(arm(2, Due::At(START_MS + 86_400_000)));
        taken(&mut from, &to).await;
        assert!(tokio::time::timeout(Duration::from_millis(100), from.next()).await.is_err(), "time stands still");
        clock.advance(10);
        assert_eq!(next(&mut from).await, Record::Fired(call(1)));
        clock.set(START_MS + 86_400_000);
        let fired = tokio::time::timeout(Duration::from_secs(20), from.next()).await.unwrap().unwrap();
        assert_eq!((fired.at_ms, fired.record), (START_MS + 86_400_000, Record::Fired(call(2))));
    }

    #[tokio::test]
    async fn a_wall_time_is_told_its_moment_and_fires() {
        let (mut from, to, now_ms) = timers();
        to.put(arm(1, wall("2031-01-15", "09:30", "Europe/Berlin")));
        let due_ms = "2031-01-15T08:30:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64;
        assert_eq!(next(&mut from).await, Record::Armed { call: call(1), due_ms });
        now_ms.store(due_ms, Ordering::SeqCst);
        assert_eq!(next(&mut from).await, Record::Fired(call(1)));
        // One in the past is armed with the moment that it was, and is over.
        to.put(arm(2, wall("2001-09-09", "01:46:40", "UTC")));
        assert_eq!(next(&mut from).await, Record::Armed { call: call(2), due_ms: 1_000_000_000_000 });
        assert_eq!(next(&mut from).await, Record::Fired(call(2)));
        to.put(arm(3, wall("1901-01-01", "00:00", "UTC")));
        assert_eq!(next(&mut from).await, Record::Armed { call: call(3), due_ms: 0 });
        assert_eq!(next(&mut from).await, Record::Fired(call(3)));
    }

    #[tokio::test]
    async fn a_wall_time_that_is_none_is_answered() {
        let (mut from, to, _) = timers();
        for (date, time, timezone, said) in [
            ("2031-02-29", "09:00", "UTC", "The date \"2031-02-29\" is none"),
            ("31-02-03", "09:00", "UTC", "YYYY-MM-DD"),
            ("2031-2-3", "09:00", "UTC", "YYYY-MM-DD"),
            ("2031-02-03T00", "09:00", "UTC", "YYYY-MM-DD"),
            ("+031-02-03", "09:00", "UTC", "YYYY-MM-DD"),
            ("20310-2-03", "09:00", "UTC", "YYYY-MM-DD"),
            ("", "09:00", "UTC", "YYYY-MM-DD"),
            ("2031-02-03", "24:00", "UTC", "The time \"24:00\" is none"),
            ("2031-02-03", "9:00", "UTC", "HH:MM"),
            ("2031-02-03", "09:00:60", "UTC", "HH:MM"),
            ("2031-02-03", "9:000", "UTC", "HH:MM"),
            ("2031-02-03", "09:00 PM", "UTC", "HH:MM"),
            ("2031-02-03", "09é0", "UTC", "HH:MM"),
            ("2031-02-03", "09:00", "Mars/Olympus", "time zone \"Mars/Olympus\" is not known"),
            ("2031-02-03", "09:00", "", "not known"),
            ("2031-02-03", "09:00", "Etc/Unknown", "not known"),
            ("2031-02-03", "09:00", "../UTC", "not known"),
            ("2031-03-30", "02:30", "Europe/Berlin", "does not exist in Europe/Berlin"),
            ("2031-10-26", "02:30", "Europe/Berlin", "exists twice in Europe/Berlin, as UTC+02 and then as UTC+01"),
        ] {
            to.put(arm(1, wall(date, time, timezone)));
            let Record::Result(result) = next(&mut from).await else { panic!("{date} {time} {timezone}") };
            assert!(result.is_error && result.call == call(1));
            let [Content::Text(text)] = &result.content[..] else { panic!("{result:?}") };
            assert!(text.contains(said), "{date} {time} {timezone}: {text}");
        }
    }

    #[test]
    fn many_timers_are_entries_of_a_table() {
        let mut timers = Timers::default();
        for number in 0..100_000 {
            timers.insert(thread((number % 7) as u8), call(number), number * 7_919 % 100_000);
        }
        let due = timers.take_due(49_999);
        assert_eq!(due.len(), 50_000);
        let moments: Vec<u64> = due.iter().map(|(_, call)| call.number * 7_919 % 100_000).collect();
        assert!(moments.is_sorted());
        assert_eq!((timers.soon.len(), timers.all.len()), (50_000, 50_000));
        // What is due later is only in the table, until its time comes near.
        timers.insert(thread(9), call(1), 10 * SOON_MS);
        assert_eq!((timers.soon.len(), timers.all.len()), (50_000, 50_001));
        assert_eq!(timers.take_due(9 * SOON_MS).len(), 50_000);
        assert_eq!((timers.soon.len(), timers.next_ms()), (0, Some(10 * SOON_MS)));
        assert_eq!(timers.take_due(10 * SOON_MS), [(thread(9), call(1))]);
        assert_eq!(timers.next_ms(), None);
    }
}
