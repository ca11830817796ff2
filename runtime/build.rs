//! Generates the staged form of the crate, from which Hydro compiles its flows.

fn main() {
    stageleft_tool::gen_final!();
}
