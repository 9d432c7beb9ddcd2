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
mod swarm;
pub mod watch;

pub use beside::Beside;
pub use case::{Case, Draw, Phase, Task};
pub use check::{Ran, accounts, check, observe, schedule_of};
pub use disturber::{Disturber, Tempo, unsteady};
pub use patience::Patience;
pub use promises::Promises;
pub use shape::Shape;
pub use shrink::smallest;
pub use swarm::{Request, Swarm};
