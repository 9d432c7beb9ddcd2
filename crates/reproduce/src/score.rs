//! Counts how many rows were reproduced.

use serde::Serialize;

use crate::recipe::Status;
use crate::results::{Results, RowResult, StudyResult};
use crate::verdict::{LEVEL_FACTOR, Verdict};

/// How many of a number of rows are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Rows that are right.
    pub right: usize,
    /// All rows that count.
    pub of: usize,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.right += usize::from(right);
        self.of += 1;
    }

    /// The percentage of right rows, rounded down.
    pub fn percent(self) -> Option<usize> {
        (100 * self.right).checked_div(self.of)
    }
}

/// The counts for a set of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Material rows with the published sign.
    pub sign: Count,
    /// Material rows with the published sign, and a size within a factor of 2.
    pub size: Count,
    /// Rows whose published change is not material, and whose simulated change is below 3%.
    pub quiet: Count,
    /// Those of them that are right because the mechanism never acted.
    pub unmoved: usize,
    /// Baselines within a factor of 1.5, in studies without calibration.
    pub level: Count,
    /// Columns of search statistics whose ranks correlate.
    pub search: Count,
}

/// The score over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Rows that can be run.
    pub rows: usize,
    /// Rows that were run.
    pub run: usize,
    /// Rows that no run can show because something is not modelled. They are in none of the counts.
    pub not_modelled: usize,
    /// Other rows that no run repeats: pictures, formulas, other programs.
    pub left_out: usize,
    /// Counts of all rows that were run.
    pub all: Counts,
    /// Counts of the rows that were neither calibrated nor chosen after they had been seen.
    pub predicted: Counts,
}

impl Score {
    /// The score of `results`.
    pub fn of(results: &Results) -> Self {
        let mut score = Self::default();
        for study in results.studies.values() {
            score.rows += study.rows.len();
            score.run += study.run();
            for left in &study.left_out {
                match left.not_modelled {
                    true => score.not_modelled += left.count,
                    false => score.left_out += left.count,
                }
            }
            score.all.add_study(study, |_| true);
            score.predicted.add_study(study, |status| status == Status::Predicted);
        }
        score
    }
}

impl Counts {
    /// The counts of one study.
    pub(crate) fn of(study: &StudyResult) -> Self {
        let mut counts = Self::default();
        counts.add_study(study, |_| true);
        counts
    }

    fn add_study(&mut self, study: &StudyResult, counts: impl Fn(Status) -> bool) {
        study.rows.iter().filter(|row| counts(row.status)).for_each(|row| self.add(row));
        let columns = study.columns().into_iter().filter(|column| counts(column.status));
        columns.for_each(|column| self.search.add(column.holds()));
    }

    fn add(&mut self, row: &RowResult) {
        use Verdict as V;
        match row.verdict {
            V::Right => self.material(true, true),
            V::RightButSmall | V::RightButLarge => self.material(true, false),
            V::WrongSign | V::NoChange => self.material(false, false),
            V::NoChangeAsPublished => {
                self.quiet.add(true);
                self.unmoved += usize::from(row.is_unmoved());
            }
            V::ChangeWhereNone => self.quiet.add(false),
            V::Undefined if row.material == Some(true) => self.material(false, false),
            V::Undefined if row.material == Some(false) => self.quiet.add(false),
            V::LevelRight | V::LevelWrong | V::ByRank | V::Undefined => {}
            V::NotRun => return,
        }
        if row.level {
            self.level.add(row.level_factor().is_some_and(|factor| factor <= LEVEL_FACTOR));
        }
    }

    fn material(&mut self, sign: bool, size: bool) {
        self.sign.add(sign);
        self.size.add(size);
    }
}
