//! Random machines, workloads and schedulers, and what has to hold in every run of them.
//!
//! A [`Case`] follows from a seed alone. [`check`] runs it twice under an observer ([`watch`]) that sees
//! only what a trace shows. [`smallest`] removes parts of a case for as long as it fails.

mod case;
mod check;
mod random;
mod shrink;
pub mod watch;

pub use case::Case;
pub use check::{Patience, check, observe};
pub use shrink::smallest;
