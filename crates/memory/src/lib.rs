//! Finds out where memory is, and moves it to the nodes where its users settled.
//!
//! Automatic NUMA balancing does not see tasks of a sched_ext scheduler. [`Daemon`] replaces it: it
//! samples where pages are and reports that to the scheduler. When the scheduler has settled a
//! group or process on a node, the daemon moves its pages there.
//!
//! ```text
//!   /proc/PID/statm ──► large processes ──► sampled addresses ──► move_pages(2), nowhere to ─► nodes
//!   memory.numa_stat of a cgroup ─────────────────────────────────────────────────────────► nodes
//!                                                   │
//!          scheduler: set_memory() ◄────────────────┘        scheduler: preferred node
//!                                                                  │
//!   bpf/mappings, /proc/PID/maps ──► ranges without a policy ──► present pages ──► move_pages(2)
//! ```
//!
//! Its cost is bounded. It scans for processes every [`SCAN`]. Per interval it queries some hundred
//! pages of a process, and at most [`SAMPLED_AT_ONCE`] processes and groups. Moving pages takes a
//! share of time at most.
//!
//! It never does any of these:
//!
//! - touch memory with its own policy, or memory shared with other processes;
//! - move pages of a process whose cpuset or affinity excludes the node;
//! - fill a node to the point where the kernel would reclaim;
//! - continue a move that its set no longer asks for.
//!
//! It does not know that threads of one process settled on different nodes (their pages stay), and
//! it does not know policies that a thread has set for itself, not for the process.
//!
//! | module | what it does |
//! |---|---|
//! | [`parse`] | reads the text of the kernel's files |
//! | `sample` | which addresses of a process are sampled, and what follows from them |
//! | `budget` | how many pages may be moved at a moment |
//! | `daemon` | which processes are sampled and when, what is moved, and when it is left alone |
//! | [`host`] | what the daemon sees and does on a host |
//! | `linux` | a host with a real kernel |

mod budget;
mod daemon;
pub mod host;
#[cfg(target_os = "linux")]
mod linux;
pub mod parse;
mod sample;

pub use budget::Budget;
pub use daemon::{Config, Counters, Daemon, SAMPLED_AT_ONCE, SCAN, Scheduler, Set};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
