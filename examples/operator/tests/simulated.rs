//! The house's operators in Hydro's simulator: what is true however the arrivals are batched.
//!
//! In: arrivals. Out: verdicts. Always: every schedule that the simulator finds judges the same; their number is asserted, so
//! that a situation in which nothing is left to choose does not pass for one.

use hydro_lang::live_collections::stream::{ExactlyOnce, TotalOrder};
use hydro_lang::prelude::*;
use operator::operators::{WINDOW_MS, rate_limit};
use slackwater_core::flow::operator::Verdict;
use slackwater_core::id::{InputId, ThreadId, Ticket};
use slackwater_core::record::{Arrival, Message, Origin, Proof, Record};

// A test outside the library has to say that it is one, before Hydro compiles a flow.
hydro_lang::macro_support::ctor::declarative::ctor!(
    #[ctor(unsafe)]
    fn init() {
        hydro_lang::compile::init_test();
    }
);

fn message(thread: &str, number: u64, at_ms: u64) -> Arrival {
    let message = Message {
        id: InputId(number.to_string()),
        origin: Origin { who: "test".to_owned(), proof: Proof::Process },
        content: Vec::new(),
        thread_name: Some(thread.to_owned()),
        metadata: None,
    };
    let ticket = Some(Ticket { gateway: 0, request: number });
    Arrival { ticket, thread: ThreadId::from_bytes([1; 16]), at_ms, record: Record::Message(message) }
}

/// Who passes, by number, and who is refused, with how long they are to wait.
fn judged(verdicts: Vec<Verdict>) -> (Vec<u64>, Vec<(u64, Option<u64>)>) {
    let number = |arrival: &Arrival| arrival.ticket.map_or(0, |ticket| ticket.request);
    let (mut passed, mut refused) = (Vec::new(), Vec::new());
    for verdict in verdicts {
        match verdict {
            Verdict::Take(arrival) => passed.push(number(&arrival)),
            Verdict::Refuse(arrival, why) => refused.push((number(&arrival), why.retry_after_ms)),
        }
    }
    (passed, refused)
}

#[test]
fn a_tenant_sends_so_many_messages_in_a_window_and_no_more_in_every_schedule() {
    let mut flow = FlowBuilder::new();
    let process = flow.process::<()>();
    let (arrivals, stream) = process.sim_input::<Arrival, TotalOrder, ExactlyOnce>();
    let verdicts = rate_limit(stream, 2).sim_output();

    let explored = flow.sim().exhaustive(async || {
        arrivals.send_many([
            message("acme.orders", 1, 0),
            message("acme.orders", 2, 10),
            message("globex.orders", 3, 20),
            message("acme.bills", 4, 30),
            message("acme.orders", 5, WINDOW_MS),
        ]);
        let (passed, refused) = judged(verdicts.collect().await);
        assert_eq!(passed, [1, 2, 3, 5]);
        assert_eq!(refused, [(4, Some(WINDOW_MS - 30))]);
    });
    // Five arrivals in order can be cut into ticks in 2^4 ways.
    assert_eq!(explored, 16);
}
