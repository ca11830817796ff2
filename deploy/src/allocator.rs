//! The allocator of programs that Hydro generates around this library.
//!
//! In: the feature `jemalloc`. Out: with it, jemalloc for whatever links this library, as in the binary: texts are made on one
//! thread and freed on another, and memory has to come back when threads leave it. Always: without it, whoever links this
//! library chooses.

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
