//! Random machines, workloads and schedulers, and claims that must hold in every run of them.
//!
//! A [`Case`] depends only on a seed. [`check`] runs it twice under an observer ([`watch`]) that sees only what a trace
//! shows. [`smallest`] removes parts of a failing case for as long as it still fails.

mod beside;
mod case;
mod check;
mod disturber;
mod generate;
mod patience;
mod promises;
mod queues;
mod random;
mod shape;
mod shrink;
mod spread;
pub mod watch;

pub use beside::Beside;
pub use case::{Case, Phase, Task};
pub use check::{accounts, check, observe};
pub use disturber::{Disturber, unsteady};
pub use patience::Patience;
pub use promises::Promises;
pub use shape::Shape;
pub use shrink::smallest;
