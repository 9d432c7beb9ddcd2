//! Compares published figures with simulated ones.
//!
//! 1. `published/` contains the tables as they were printed (`published`). `published/recipes/` says by which runs each
//!    row is repeated (`recipe`), with one file per study.
//! 2. [`Plan`] lists the runs that the chosen studies need. A run that several rows use is listed once.
//! 3. `carry_out` makes the runs that are not in the [`Cache`], in parallel.
//! 4. `results` compares each row with its runs and gives it a [`Verdict`]. [`Score`] counts verdicts.
//! 5. `page` is for people, [`Results`] as JSON is for programs. Both depend only on the runs, not on the time of day.

mod cache;
mod error;
mod html;
mod page;
mod plan;
mod published;
mod rank;
mod recipe;
mod results;
mod run;
mod score;
mod verdict;

pub use crate::cache::{Cache, can_write, write_file};
pub use crate::error::ReproduceError;
pub use crate::html::html;
pub use crate::page::page;
pub use crate::plan::{Plan, QUICK_SEED};
pub use crate::recipe::{Study, chosen, read_studies};
pub use crate::results::{Results, results};
pub use crate::run::{Measured, Watch, carry_out};
pub use crate::score::Score;
pub use crate::verdict::Verdict;
