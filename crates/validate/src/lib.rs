//! The simulation beside the real kernel, counter by counter.
//!
//! ```text
//! validation/*.json ── Scenario ─┬─ simulate() ────────► [Observation] ─┐
//!                                └─ rt-app in a guest ─► [Observation] ─┴─ compare() ─► Agreement
//!                                                    all scenarios and shapes: Verdict, tables
//! ```
//!
//! A [`Scenario`] is an rt-app file that runs unchanged on both sides. An [`Observation`] is what
//! one run left behind, as named quantities. [`compare`] sets the means of two sides against each
//! other; tolerances are in [`tolerance`], with reasons in `docs/validation.md`.

mod agreement;
mod background;
mod error;
mod observation;
mod render;
mod scenario;
mod simulate;
pub mod tolerance;
mod verdict;

pub use agreement::{Agreement, Opinion, Row, compare};
pub use error::ValidateError;
pub use observation::{Kind, Observation, Quantity};
pub use render::{csv, json, markdown, table, verdict_text};
pub use scenario::{Scenario, scenario, scenarios};
pub use simulate::{simulate, window_ns};
pub use verdict::{Failure, Verdict};
