//! The same comparisons on a real kernel: in a guest ([`guest`]) or on this machine ([`host`]).
//!
//! A measurement is a workload under a scheduler. `measure.sh` makes it, in either place: it sets the features that the
//! scheduler's name asks for, starts the sched_ext scheduler if it is one, runs the workload, and leaves what the kernel
//! counted meanwhile. Counting costs little, and no memory that grows: it reads `/proc/schedstat` and histograms that
//! the kernel keeps of two tracepoints. Every switch and wakeup is recorded only where somebody asks for a trace.

mod error;
pub mod guest;
pub mod host;
mod knobs;
pub mod live;
mod measurement;
mod program;
mod result;
mod scheduler;

pub use error::RealError;
pub use knobs::{Knobs, Setting};
pub use measurement::Measurement;
pub use program::Workload;
pub use result::Measured;
pub use scheduler::{Program, RealScheduler};
