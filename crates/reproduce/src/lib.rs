//! Published figures beside simulated ones.
//!
//! 1. `published/` holds tables as they were printed (`published`), `published/recipes/` says with which
//!    runs each of their rows is repeated (`recipe`): a file a study.
//! 2. [`Plan`] is the runs that chosen studies need, each once, however many rows look at it.
//! 3. `carry_out` makes those that the [`Cache`] does not have, in parallel.
//! 4. `results` sets each row beside its runs and gives it a [`Verdict`]; [`Score`] counts verdicts.
//! 5. `page` is what people read, [`Results`] as JSON what programs do. Both are a function of the runs:
//!    no clock is in them.

mod cache;
mod error;
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
pub use crate::page::page;
pub use crate::plan::{Plan, QUICK_SEED};
pub use crate::recipe::{Study, chosen, read_studies};
pub use crate::results::{Results, results};
pub use crate::run::{Measured, Watch, carry_out};
pub use crate::score::Score;
pub use crate::verdict::Verdict;
