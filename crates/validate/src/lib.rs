//! Compares the simulation with the real kernel, counter by counter.
//!
//! ```text
//! validation/*.json ── Scenario ─┬─ simulate() ────────► [Observation] ─┐
//!                                └─ rt-app in a guest ─► [Observation] ─┴─ compare() ─► Agreement
//!                                                    all scenarios and shapes: Verdict, tables
//! ```
//!
//! Both sides run the same scheduler: the fair class, or a sched_ext program with the counters that it keeps itself. A
//! [`Scenario`] is an rt-app file, which the simulation and a real kernel run without changes. An [`Observation`] is
//! the result of one run, as named quantities. [`compare`] compares the means of both sides. The tolerances are in
//! [`tolerance`], the reasons for them in `docs/validation.md`.

mod agreement;
mod background;
mod error;
mod observation;
mod page;
mod render;
mod scenario;
mod simulate;
pub mod tolerance;
mod verdict;
pub mod workloads;

pub use agreement::{Agreement, Opinion, Row, compare};
pub use error::ValidateError;
pub use observation::{Kind, Observation, Quantity};
pub use page::page;
pub use render::{csv, json, markdown, table, verdict_text};
pub use scenario::{Scenario, scenario, scenarios};
pub use simulate::{simulate, window_ns};
pub use verdict::{Failure, Suite, Verdict};
