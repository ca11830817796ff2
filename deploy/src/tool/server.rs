//! A tool server, found or not, as the router sees it.
//!
//! In: calls of its tools. Out: what is known of it. Always: what protocol it speaks is its own business.

use super::keeper::State;
use slackwater_core::port::ToTool;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A server.
pub(super) struct Server {
    /// What it is called in logs.
    pub(super) label: String,
    /// What is known of it.
    pub(super) state: watch::Receiver<State>,
    /// Where its calls go.
    pub(super) asks: mpsc::UnboundedSender<ToTool>,
    /// Does its calls until nobody can ask any more.
    pub(super) lane: JoinHandle<()>,
    /// What goes on beside that, and is ended after it.
    pub(super) helpers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Whether it offers a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.state.borrow().toolset.as_ref().is_some_and(|set| set.tools.iter().any(|tool| tool.name == name))
    }

    /// Drops its calls and ends its command.
    pub(super) async fn stop(self) {
        drop(self.asks);
        self.helpers.iter().for_each(JoinHandle::abort);
        let _ = self.lane.await;
        for helper in self.helpers {
            let _ = helper.await;
        }
    }
}
