//! Where agents live: the journal, the adapters to the world, and the hosts that run the flow of `slackwater-core`.
//!
//! An agent with one model and one tool, durable in a directory (here the model is a script; [`model::Config`] names a real one):
//!
//! ```
//! # use slackwater::{LocalTool, Slackwater, model::Scripted};
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add { a: i64, b: i64 }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let script = r#"
//! # [[rule]]
//! # when = { message_contains = "" }
//! # call = [{ tool = "add", arguments = { a = 2, b = 3 } }]
//! # [[rule]]
//! # when = { result_of = "add" }
//! # say = "That makes {result}."
//! # "#;
//! let add = LocalTool::new("add", "Adds two numbers.", |add: Add, _| async move { Ok::<_, String>((add.a + add.b).to_string()) });
//! let model = Scripted::from_toml(script)?;
//! let runtime = Slackwater::builder().directory(directory.path()).model(model).tool(add).start().await?;
//! let mut thread = runtime.conversation("sums")?;
//! thread.send("What is two and three?").await?;
//! assert_eq!(thread.receive().await?, "That makes 5.");
//! runtime.stop().await?;
//! # Ok(()) }
//! ```

#[cfg(stageleft_runtime)]
hydro_lang::setup!();

// Everything but the topology stands under `stageleft_runtime`: it is called by what Hydro generates and is no part of it, so
// the staged copy of this crate leaves it out.
#[cfg(stageleft_runtime)]
mod allocator;
#[cfg(stageleft_runtime)]
pub mod capability;
#[cfg(stageleft_runtime)]
pub mod catalog;
#[cfg(stageleft_runtime)]
pub mod clock;
#[cfg(stageleft_runtime)]
pub mod conversation;
#[cfg(stageleft_runtime)]
pub mod gateway;
pub mod host;
#[cfg(stageleft_runtime)]
pub mod journal;
#[cfg(stageleft_runtime)]
pub mod model;
#[cfg(stageleft_runtime)]
pub mod placement;
#[cfg(stageleft_runtime)]
pub mod port;
#[cfg(stageleft_runtime)]
pub mod settings;
#[cfg(stageleft_runtime)]
pub mod sim;
#[cfg(stageleft_runtime)]
pub mod timer;
#[cfg(stageleft_runtime)]
pub mod tool;

pub use slackwater_core;

#[cfg(stageleft_runtime)]
pub use host::runtime::{Builder, Runtime, RuntimeError};
#[cfg(stageleft_runtime)]
pub use host::sidecar;
#[cfg(stageleft_runtime)]
pub use tool::LocalTool;

/// Where a program begins: [`Slackwater::builder`].
#[cfg(stageleft_runtime)]
#[derive(Debug)]
pub struct Slackwater;

#[cfg(stageleft_runtime)]
impl Slackwater {
    /// A runtime to be made: in memory and with a scripted stand-in for a model, until told otherwise.
    pub fn builder() -> Builder {
        Builder::default()
    }
}
