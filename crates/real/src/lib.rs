//! Comparisons on a real kernel: in a guest ([`guest`]) or on this machine ([`host`]).
//!
//! A measurement is a workload under a scheduler. `measure.sh` makes it, in both places. It sets the features in the
//! scheduler's name, starts the sched_ext scheduler if there is one, runs the workload, and stores the kernel's counts
//! for this time. Counting is cheap and its memory does not grow: it reads `/proc/schedstat`, and histograms that the
//! kernel keeps for two tracepoints. Every switch and wakeup is recorded only if a trace was asked for.

mod error;
pub mod guest;
pub mod host;
mod knobs;
pub mod live;
mod measurement;
mod program;
mod result;
mod scheduler;
mod tally;

pub use error::RealError;
pub use knobs::{Knobs, Setting};
pub use measurement::Measurement;
pub use program::Workload;
pub use result::Measured;
pub use scheduler::{Program, RealScheduler};
pub use tally::Tally;
