//! Generates the staged form of the crate.

fn main() {
    stageleft_tool::gen_final!();
}
