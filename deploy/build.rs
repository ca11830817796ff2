//! Generates the staged form of the crate; from the flow of the core, the embedded form (one function that runs a shard
//! inside an ordinary process); and the flow's picture.

use hydro_lang::prelude::*;
use hydro_lang::viz::config::GraphType;
use slackwater_core::build;

fn main() {
    stageleft_tool::gen_final!();
    build::embedded();

    let mut flow = FlowBuilder::new();
    build::shard(&mut flow);
    let built = flow.finalize();
    build::write("graph.mmd", &built.render_graph(GraphType::Mermaid, true, false));
    build::write("graph.dot", &built.render_graph(GraphType::Dot, true, false));
}
