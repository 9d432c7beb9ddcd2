//! What a loader tells the BPF scheduler of `bpf/`, by the names that it has there.
//!
//! 1. [`Layout::of`] lays a machine out as `bpf/state.h` describes it.
//! 2. [`Setup::of`] says which sizes its maps get, what its variables are, and what is in its maps before it runs.
//!
//! The live scheduler's loader does that to a kernel, the simulation to the same object.

mod layout;
mod setup;

pub use layout::{CpuPlace, Layout, LlcPlace, NUMA_RULE, NodePlace, Word};
pub use setup::{Entry, NONE, Setup};
