//! gen
#[cfg(stageleft_runtime)]
#[allow(warnings)]
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}
