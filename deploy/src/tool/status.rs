//! Status: whether a server still knows the calls that it had taken over before a start of ours.
//!
//! In: calls that are waited for. Out: `Record::Lost` for one of which the server says that it knows nothing. Always: only so
//! many questions at a time; a server that cannot be reached is asked again until it answers; one that does not know the
//! question says nothing of the call.
//!
//! (The protocol lets a runtime take "unknown path" for "unknown call". Here a call may be answered days and restarts later, also
//! by a server that keeps its calls and has never heard of this question; so such a call goes on waiting, as long as its
//! deadline lets it.)

use super::discovery::read_at_most;
use super::pause;
use super::rap::Caller;
use super::wire::{CancelToolCall, ToolCallStatus};
use futures::StreamExt as _;
use slackwater_core::effect::Dispatch;
use slackwater_core::record::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// How many questions to one server are under way at a time.
const CHECKS_MAX: usize = 16;
/// The longest answer that is read, in bytes.
const ANSWER_LENGTH_MAX: usize = 64 << 10;

/// Asks a server about calls for as long as it is polled.
pub(super) async fn check(calls: mpsc::UnboundedReceiver<Dispatch>, caller: Arc<Caller>) {
    let one = |dispatch: Dispatch| {
        let caller = caller.clone();
        async move {
            if !caller.knows(&dispatch).await {
                tracing::info!(server = caller.label, call = %dispatch.call, "a tool server has lost a call");
                caller.shared.outbox.put(dispatch.thread, Record::Lost(dispatch.call));
            }
        }
    };
    UnboundedReceiverStream::new(calls).for_each_concurrent(CHECKS_MAX, one).await;
}

impl Caller {
    /// Whether the server still knows a call, as far as it says.
    async fn knows(&self, dispatch: &Dispatch) -> bool {
        let config = &self.shared.config;
        let body = CancelToolCall {
            thread_id: dispatch.thread.to_string(),
            tool_call_id: dispatch.call.effect_id(dispatch.thread),
        };
        let mut failures = 0;
        loop {
            let toolset = self.state.borrow().endpoint();
            if let Ok(toolset) = toolset {
                let url = format!("{}/tool_call_status", toolset.base);
                let timeout = Duration::from_millis(config.invocation_timeout_ms);
                let asked = self.shared.client.post(&url).timeout(timeout).json(&body).send().await;
                if let Ok(response) = asked
                    && !response.status().is_server_error()
                {
                    let is_answer = response.status().is_success();
                    let said = read_at_most(response, ANSWER_LENGTH_MAX).await.unwrap_or_default();
                    let said = serde_json::from_slice(&said).ok().filter(|_| is_answer);
                    return said.is_none_or(|status: ToolCallStatus| status.alive);
                }
            }
            failures += 1;
            tokio::time::sleep(pause::after(failures, config.retry_first_ms, config.retry_max_ms)).await;
        }
    }
}
