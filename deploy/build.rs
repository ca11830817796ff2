//! Generates the staged form of the crate; from the flow of the core, the embedded form (one function that runs a shard
//! inside an ordinary process); and the flow's picture.

use hydro_lang::location::Location;
use hydro_lang::prelude::*;
use hydro_lang::viz::config::GraphType;
use slackwater_core::flow::{Inputs, Outputs, agent_loop};
use std::path::Path;

/// A shard, as the picture calls it.
struct Shard;

/// The flow of one shard whose adapters are the inputs and outputs of the generated function.
fn shard<'a>(flow: &mut FlowBuilder<'a>) -> Process<'a, Shard> {
    let shard = flow.process::<Shard>();
    let Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts } = agent_loop(Inputs {
        gateway: shard.embedded_input("from_gateway"),
        journal: shard.embedded_input("from_journal"),
        model: shard.embedded_input("from_model"),
        tool: shard.embedded_input("from_tool"),
        timer: shard.embedded_input("from_timer"),
        posts: shard.embedded_input("from_posts"),
    });
    gateway.embedded_output("to_gateway");
    chunks.embedded_output("chunks");
    appends.embedded_output("appends");
    queries.embedded_output("queries");
    journal.embedded_output("to_journal");
    model.embedded_output("to_model");
    tool.embedded_output("to_tool");
    timer.embedded_output("to_timer");
    posts.embedded_output("to_posts");
    shard
}

fn main() {
    stageleft_tool::gen_final!();
    let out = std::env::var("OUT_DIR").expect("invariant: cargo sets OUT_DIR");
    let write = |name: &str, text: String| {
        std::fs::write(Path::new(&out).join(name), text).expect("the build directory can be written");
    };

    let mut flow = FlowBuilder::new();
    let process = shard(&mut flow);
    let code = flow.with_process(&process, "shard").generate_embedded("slackwater_core");
    write("embedded.rs", prettyplease::unparse(&code));

    let mut flow = FlowBuilder::new();
    shard(&mut flow);
    let built = flow.finalize();
    write("graph.mmd", built.render_graph(GraphType::Mermaid, true, false));
    write("graph.dot", built.render_graph(GraphType::Dot, true, false));
}
