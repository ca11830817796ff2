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

pub mod capability;
pub mod catalog;
pub mod conversation;
pub mod gateway;
pub mod host;
pub mod journal;
pub mod model;
pub mod port;
pub mod timer;
pub mod tool;

pub use slackwater_core as core;

#[cfg(stageleft_runtime)]
pub use host::runtime::{Builder, Runtime, RuntimeError};
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
