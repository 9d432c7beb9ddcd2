//! Where memory is, and moving it to where its users settled.
//!
//! Automatic NUMA balancing does not see tasks of a sched_ext scheduler. [`Daemon`] takes its place: it
//! samples where pages are, tells the scheduler, and once the scheduler has settled a group or process
//! on a node moves its pages there.
//!
//! ```text
//!   /proc/PID/statm ──► large processes ──► sampled addresses ──► move_pages(2), nowhere to ─► nodes
//!   memory.numa_stat of a cgroup ─────────────────────────────────────────────────────────► nodes
//!                                                   │
//!          scheduler: set_memory() ◄────────────────┘        scheduler: preferred node
//!                                                                  │
//!   /proc/PID/numa_maps, maps ──► ranges without a policy ──► present pages ──► move_pages(2)
//! ```
//!
//! Its cost is bounded. It looks for processes every [`SCAN`]. It asks a process for some hundred pages an interval, and
//! at most [`SAMPLED_AT_ONCE`] processes and groups at once. It moves pages at a rate.
//!
//! It never does this:
//!
//! - touch memory with a policy of its own, or memory that is shared with other processes;
//! - move pages of a process whose cpuset or affinity keeps it from the node;
//! - fill a node up to where the kernel would reclaim;
//! - go on with a move that its set no longer asks for.
//!
//! It does not know of threads of one process that settled on different nodes (their pages stay), nor of policies that
//! a thread, not the process, has set for itself.
//!
//! | module | what it does |
//! |---|---|
//! | [`parse`] | text of the kernel's files |
//! | `sample` | which addresses of a process are looked at, and what they tell |
//! | `budget` | how much may be moved by now |
//! | `daemon` | who is looked at when, what is moved, when it is left alone |
//! | [`host`] | what the daemon sees and does, and a real kernel as such a host |

mod budget;
mod daemon;
pub mod host;
pub mod parse;
mod sample;

pub use budget::Budget;
pub use daemon::{Config, Counters, Daemon, SAMPLED_AT_ONCE, SCAN, Scheduler, Set};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
