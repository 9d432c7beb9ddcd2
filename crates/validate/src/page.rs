//! The page that shows a suite: simulated beside real.

use serde::Serialize;

use crate::render::{Document, document};
use crate::tolerance::{PLACEMENT_POINTS, RELATIVE, SHARE_POINTS};
use crate::verdict::Suite;

const SCRIPT: &str = include_str!("../html/validate.js");

/// The data that the script reads.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    command: &'a str,
    tolerances: Tolerances,
    suite: Document<'a>,
}

/// The tolerances within which two means are close.
#[derive(Serialize)]
struct Tolerances {
    /// Part of the real mean.
    relative: f64,
    /// Percentage points, for shares.
    share: f64,
    /// Percentage points, for placement.
    points: f64,
}

/// The page of a suite, as HTML: one file that any browser opens, offline. `title` says what was compared, and
/// `command` makes it again.
pub fn page(suite: &Suite, title: &str, command: &str) -> String {
    let tolerances =
        Tolerances { relative: RELATIVE, share: SHARE_POINTS, points: PLACEMENT_POINTS };
    let suite = document(suite);
    roost_report::page(SCRIPT, &Data { title, command, tolerances, suite })
}
