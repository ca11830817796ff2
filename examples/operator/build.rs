//! Generates the staged form of the crate, and the embedded form of Slackwater's loop with this crate's operators in it.

#[path = "src/operators.rs"]
mod operators;

fn main() {
    stageleft_tool::gen_final!();
    println!("cargo::rerun-if-changed=src");
    slackwater_core::build::embedded_with(&operators::House::default());
}
