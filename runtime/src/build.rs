//! The build helper: a shard's flow as the source of a function that runs it inside an ordinary process.
//!
//! In: operators, or none. Out: `embedded.rs` in cargo's `OUT_DIR`, for the module that runs it. Always: the generated
//! function has the ports of the loop under the same names, whoever generates it; it runs at build time only.
//!
//! A crate with operators of its own has this `build.rs`; the module must use nothing of the crate around it:
//!
//! ```ignore
//! #[path = "src/operators.rs"]
//! mod operators;
//!
//! fn main() {
//!     stageleft_tool::gen_final!();
//!     slackwater_core::build::embedded_with(&operators::House);
//! }
//! ```

use crate::flow::operator::{Operated, Operators};
use crate::flow::{Inputs, Outputs, agent_loop, agent_loop_with};
use hydro_lang::location::Location;
use hydro_lang::prelude::*;
use std::path::Path;

/// A shard, as pictures of the flow call it.
pub struct Shard;

/// The name of a build script's crate: operators that it holds as a module are, in what is generated, the crate's own.
const BUILD_SCRIPT: &str = "build_script_build";

/// A shard whose adapters are the inputs and outputs of the generated function.
pub fn shard<'a>(flow: &mut FlowBuilder<'a>) -> Process<'a, Shard> {
    let shard = flow.process::<Shard>();
    name_outputs(agent_loop(inputs(&shard)));
    shard
}

/// The same with operators: three kinds of outputs more.
pub fn shard_with<'a>(flow: &mut FlowBuilder<'a>, operators: &impl Operators) -> Process<'a, Shard> {
    let shard = flow.process::<Shard>();
    let Operated { outputs, answers, notes } = agent_loop_with(inputs(&shard), operators);
    name_outputs(outputs);
    answers.embedded_output("answers");
    let names = ["arrival_notes", "prompt_notes", "call_notes", "output_notes"];
    notes.into_iter().zip(names).for_each(|(notes, name)| notes.embedded_output(name));
    shard
}

/// Generates the shard without operators.
///
/// # Panics
/// Outside a build script, or when its directory cannot be written.
pub fn embedded() {
    let mut flow = FlowBuilder::new();
    let process = shard(&mut flow);
    write("embedded.rs", &source(flow, &process, env!("CARGO_CRATE_NAME")));
}

/// Generates a shard with operators that are a module of the build script and of the crate under the same name.
///
/// # Panics
/// Outside a build script, or when its directory cannot be written.
pub fn embedded_with(operators: &impl Operators) {
    stageleft::add_private_reexport(vec![BUILD_SCRIPT], vec!["crate", "__staged"]);
    let mut flow = FlowBuilder::new();
    let process = shard_with(&mut flow, operators);
    write("embedded.rs", &source(flow, &process, "crate"));
}

/// Writes a file that the crate includes.
///
/// # Panics
/// Outside a build script, or when its directory cannot be written.
pub fn write(name: &str, text: &str) {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR for a build script; call this from one");
    std::fs::write(Path::new(&out).join(name), text).expect("the build directory can be written");
}

fn inputs<'a>(shard: &Process<'a, Shard>) -> Inputs<Process<'a, Shard>> {
    Inputs {
        gateway: shard.embedded_input("from_gateway"),
        journal: shard.embedded_input("from_journal"),
        model: shard.embedded_input("from_model"),
        tool: shard.embedded_input("from_tool"),
        timer: shard.embedded_input("from_timer"),
        posts: shard.embedded_input("from_posts"),
    }
}

fn name_outputs<'a>(outputs: Outputs<Process<'a, Shard>>) {
    let Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts } = outputs;
    gateway.embedded_output("to_gateway");
    chunks.embedded_output("chunks");
    appends.embedded_output("appends");
    queries.embedded_output("queries");
    journal.embedded_output("to_journal");
    model.embedded_output("to_model");
    tool.embedded_output("to_tool");
    timer.embedded_output("to_timer");
    posts.embedded_output("to_posts");
}

fn source<'a>(flow: FlowBuilder<'a>, process: &Process<'a, Shard>, staged_crate: &str) -> String {
    prettyplease::unparse(&flow.with_process(process, "shard").generate_embedded(staged_crate))
}
