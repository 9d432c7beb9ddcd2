//! The kernel's fair scheduling class, version by version, as a scheduler of the engine.
//!
//! | module | kernel counterpart |
//! |---|---|
//! | [`features`], `eras`, `switches`, `tunables` | differences between versions, sched features, debugfs and sysctl |
//! | `domain`, [`describe`] | `topology.c`: scheduling domains and groups; the same as text |
//! | `weight`, `pelt` | weights of nice values; `pelt.c`: load, runnable and utilisation averages |
//! | `queue` | virtual time: CFS and EEVDF |
//! | `class` | the hooks: enqueue, dequeue, pick, tick |
//! | `hrtick` | the timer that ends requests |
//! | `wakeup`, `idle_search` | `select_task_rq_fair`, fast path: `select_idle_sibling` |
//! | `fork` | the slow path: idlest group, idlest CPU |
//! | `cgroup` | weights of task groups |
//! | `balance` | periodic, newly-idle and nohz balancing |
//! | `older` | balancing and placement of 5.2 and 3.9, which decide by load |
//! | `cache` | cache-aware scheduling: which LLC a process prefers |
//! | `numa` | automatic NUMA balancing |
//! | `mechanisms` | the five mechanisms, a file each, and the hooks that call them |
//! | `audit` | checks of counters and averages against each other while tests run |
//! | `start` | the state at the start: just booted, or up for a while |
//! | `stats` | counters of schedstat and of the idle search |
//! | `state` | the state that all modules share: `struct rq`, `struct task_struct` |

mod audit;
mod balance;
mod cache;
mod cgroup;
mod class;
mod clock;
pub mod describe;
mod domain;
mod eras;
pub mod features;
mod fork;
mod hrtick;
mod idle_search;
#[cfg(test)]
mod kit;
mod mechanisms;
mod numa;
mod older;
mod pelt;
mod queue;
mod start;
mod state;
mod stats;
mod switches;
mod tunables;
mod wakeup;
mod weight;

pub use describe::{DomainRow, describe_domains, domain_rows};
pub use features::{Difference, FeatureError, Features, version_texts, versions};
pub use mechanisms::{Mechanism, mechanisms};
pub use start::Start;
pub use state::Fair;
pub use switches::{KernelFile, Number, cannot_act, numbers, switches};
pub use weight::weight_of;
