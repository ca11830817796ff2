//! The demo's tool server, as the story sees it.
//!
//! In: what the server says on its standard output. Out: the same on the timeline, and to whoever waits for it. Always: every
//! line is kept, so that at the end it can be told how often the build was started and answered.

use super::look::{check, text, within};
use super::process::Process;
use super::timeline::Timeline;
use crate::command::Failure;
use serde_json::Value;
use std::path::Path;
use tokio::sync::{mpsc, oneshot};

/// The tool server, what it says, and what was seen of it.
pub(super) struct Tools {
    pub(super) process: Process,
    pub(super) url: String,
    said: mpsc::UnboundedReceiver<Value>,
    seen: Vec<Value>,
    /// Lets what it says be shown.
    show: Option<oneshot::Sender<()>>,
}

impl Tools {
    /// Starts it; what it says is shown from [`Tools::show`] on.
    pub(super) async fn start(time: Timeline, directory: &Path) -> Result<Self, Failure> {
        let (mut process, first) = Process::start("tools", &["demo-tools", "--end-with-parent"], directory).await?;
        let url = format!("http://127.0.0.1:{}", first["port"]);
        let (say, said) = mpsc::unbounded_channel();
        let (show_now, may_show) = oneshot::channel();
        let mut lines = process.take_lines();
        tokio::spawn(async move {
            // The tool may be faster than the stream that tells of its call.
            let _ = may_show.await;
            while let Some(line) = lines.next().await {
                show(time, &line);
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, url, said, seen: Vec::new(), show: Some(show_now) })
    }

    /// From now on, shows what it says.
    pub(super) fn show(&mut self) {
        // One that has ended has nothing more to say.
        let _ = self.show.take().map(|show| show.send(()));
    }

    /// Waits until it says that this has happened.
    pub(super) async fn next(&mut self, event: &str) -> Result<Value, Failure> {
        self.until(event, |line| line["event"] == event).await
    }

    /// Waits until the build has come to this step.
    pub(super) async fn until_step(&mut self, step: u64) -> Result<Value, Failure> {
        self.until("step", |line| line["step"] == step).await
    }

    async fn until(&mut self, event: &str, fits: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        loop {
            let line = within(&format!("the tool server says {event:?}"), self.said.recv()).await?;
            let line = line.ok_or_else(|| Failure::Failed("the tool server has ended".to_owned()))?;
            self.seen.push(line.clone());
            if fits(&line) {
                return Ok(line);
            }
        }
    }

    /// Whether there was one call and one answer.
    pub(super) fn check_one_build(&self) -> Result<(), Failure> {
        let of = |event: &str| self.seen.iter().filter(|line| line["event"] == event).count();
        let once = (of("accepted"), of("repeated"), of("delivered")) == (1, 0, 1);
        check(once, "the build was not started and answered exactly once", &Value::from(self.seen.clone()))
    }
}

/// What the tool server says, for people.
fn show(time: Timeline, line: &Value) {
    match line["event"].as_str() {
        Some("step") => {
            time.aside("  build", format_args!("{} of {}: {}", line["step"], line["of"], text(line, "name")));
        }
        Some("built") => time.aside("  build", text(line, "text")),
        Some("undelivered") => {
            let (why, again_ms) = (text(line, "why"), &line["again_in_ms"]);
            time.aside("  build", format_args!("calls back: {why}; again in {again_ms} ms"));
        }
        Some("delivered") => time.aside("  build", "calls back by the same URL: taken"),
        Some("gave up" | "repeated") => time.blow("  build", line),
        _ => {}
    }
}
