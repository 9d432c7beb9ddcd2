//! What a loader passes to the BPF scheduler in `bpf/`: sizes, variables and map entries, with the names that they have
//! there.
//!
//! 1. [`Layout::of`] describes a machine as `bpf/state.h` needs it.
//! 2. [`Setup::of`] gives the sizes of maps, the values of variables, and the entries of maps before the program runs.
//! 3. [`daemon()`] configures the daemon that follows memory. [`Sets`] is the scheduler as the daemon sees it.
//!
//! The live scheduler's loader applies this to a kernel. The simulation applies it to the same BPF object.

mod daemon;
mod layout;
mod sets;
mod setup;

pub use daemon::{STEP, daemon};

pub use layout::{CpuPlace, Layout, LlcPlace, NUMA_RULE, NodePlace, Word};
pub use sets::{SetEntry, Sets, TICK, Tables};
pub use setup::{Entry, NONE, Setup};
