//! Thousands of comparisons: a plan, its runs, and one table with all of them.
//!
//! A [`Plan`] names machines, workloads, schedulers, numbers and seeds. [`carry_out`] makes its runs in parallel and
//! stores each in a [`Journal`], so that nothing is lost or repeated, however the process ends. [`finish`] turns a
//! journal into a Parquet file, in the order of the plan. The same plan always gives the same bytes, however often it
//! was interrupted and wherever its runs were made. [`Changes`] summarises what schedulers change, and [`page`] shows
//! that.

mod changes;
mod error;
mod file;
mod journal;
mod order;
mod page;
mod plan;
mod run;
mod table;
mod text;

pub use crate::changes::{Change, Changes, Failed};
pub use crate::error::SweepError;
pub use crate::file::{Read, begin, failed, finish, read};
pub use crate::journal::{Ended, Journal, Program, RunResult};
pub use crate::page::page;
pub use crate::plan::{Cell, Plan, Run};
pub use crate::run::{Complete, Progress, Spent, Watch, carry_out, line, missing, progress};
pub use crate::table::Columns;
