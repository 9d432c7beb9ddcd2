//! The verdict on a row, in one word.

use serde::{Deserialize, Serialize};

/// A published change is material from this percentage on, if it is larger than its deviation.
pub const MATERIAL_PCT: f64 = 3.0;

/// Two sizes of a change agree within this factor.
pub const SIZE_FACTOR: f64 = 2.0;

/// Two levels agree within this factor.
pub const LEVEL_FACTOR: f64 = 1.5;

/// Two standard deviations are alike within this factor. That of three runs is uncertain by a factor of 3 itself: with
/// 95% probability it is 0.16 to 1.92 times the true one (chi-squared, 2 degrees of freedom).
pub const DEVIATION_FACTOR: f64 = 3.0;

/// Changes below this percentage print as 0.00% and have no sign.
const NO_CHANGE_PCT: f64 = 0.005;

/// How a simulated row compares with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// A material change. The sign is right, and the size is within a factor of 2.
    #[serde(rename = "right")]
    Right,
    /// The sign is right, but the size is less than half.
    #[serde(rename = "right but small")]
    RightButSmall,
    /// The sign is right, but the size is more than twice.
    #[serde(rename = "right but large")]
    RightButLarge,
    /// No material change, as published.
    #[serde(rename = "no change as published")]
    NoChangeAsPublished,
    /// The opposite sign, 3% or more.
    #[serde(rename = "wrong sign")]
    WrongSign,
    /// A material change was published. Ours may be chance, because its 95% interval holds 0, or it is 0.00%, or less
    /// than 3% in the other direction.
    #[serde(rename = "no change where one was published")]
    NoChange,
    /// 3% or more, but no material change was published.
    #[serde(rename = "change where none was published")]
    ChangeWhereNone,
    /// Only a level was published. The simulated level is within a factor of 1.5.
    #[serde(rename = "level right")]
    LevelRight,
    /// Only a level was published. The simulated level is not within a factor of 1.5.
    #[serde(rename = "level wrong")]
    LevelWrong,
    /// A value of a column that is judged as a whole, by its ranks.
    #[serde(rename = "by rank")]
    ByRank,
    /// Nothing was searched, so there is no simulated share to compare.
    #[serde(rename = "undefined")]
    Undefined,
    /// The row is not one of those that were run.
    #[serde(rename = "not run")]
    NotRun,
}

impl Verdict {
    /// The verdict on a change. The changes are in percent; `material` says whether the published one is material.
    /// `interval` holds the mean change with 95% confidence; `None`: one run, or a value that is not a mean.
    pub fn of_change(
        published_pct: f64,
        material: bool,
        simulated_pct: f64,
        interval: Option<[f64; 2]>,
    ) -> Self {
        if !material {
            return match simulated_pct.abs() < MATERIAL_PCT {
                true => Self::NoChangeAsPublished,
                false => Self::ChangeWhereNone,
            };
        }
        let may_be_chance = interval.is_some_and(|[low, high]| low < 0.0 && high > 0.0);
        if may_be_chance || simulated_pct.abs() < NO_CHANGE_PCT {
            return Self::NoChange;
        }
        let ratio = simulated_pct / published_pct;
        match ratio {
            ratio if ratio < 0.0 && simulated_pct.abs() < MATERIAL_PCT => Self::NoChange,
            ratio if ratio < 0.0 => Self::WrongSign,
            ratio if ratio * SIZE_FACTOR < 1.0 => Self::RightButSmall,
            ratio if ratio > SIZE_FACTOR => Self::RightButLarge,
            _ => Self::Right,
        }
    }

    /// The verdict on a level.
    pub fn of_level(published: f64, simulated: f64) -> Self {
        match factor(published, simulated) <= LEVEL_FACTOR {
            true => Self::LevelRight,
            false => Self::LevelWrong,
        }
    }

    /// The word for the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::RightButSmall => "right but small",
            Self::RightButLarge => "right but large",
            Self::NoChangeAsPublished => "no change as published",
            Self::WrongSign => "wrong sign",
            Self::NoChange => "no change where one was published",
            Self::ChangeWhereNone => "change where none was published",
            Self::LevelRight => "level right",
            Self::LevelWrong => "level wrong",
            Self::ByRank => "by rank",
            Self::Undefined => "undefined",
            Self::NotRun => "not run",
        }
    }
}

/// The larger of two positive values divided by the smaller.
pub fn factor(a: f64, b: f64) -> f64 {
    (a / b).max(b / a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_material_change_is_judged_by_sign_and_size() {
        for (simulated, verdict) in [
            (10.0, Verdict::Right),
            (5.0, Verdict::Right),
            (20.0, Verdict::Right),
            (4.9, Verdict::RightButSmall),
            (20.1, Verdict::RightButLarge),
            (-3.0, Verdict::WrongSign),
            (-2.9, Verdict::NoChange),
            (0.001, Verdict::NoChange),
        ] {
            assert_eq!(Verdict::of_change(10.0, true, simulated, None), verdict, "{simulated}");
            assert_eq!(Verdict::of_change(-10.0, true, -simulated, None), verdict, "-{simulated}");
        }
    }

    #[test]
    fn a_change_whose_interval_holds_0_has_no_sign() {
        let of = |low, high| Verdict::of_change(10.0, true, 8.0, Some([low, high]));
        assert_eq!(of(-0.1, 16.1), Verdict::NoChange);
        assert_eq!(of(0.1, 15.9), Verdict::Right);
    }

    #[test]
    fn where_nothing_material_was_published_only_the_size_counts() {
        assert_eq!(Verdict::of_change(-7.36, false, 2.9, None), Verdict::NoChangeAsPublished);
        assert_eq!(Verdict::of_change(0.1, false, -3.0, None), Verdict::ChangeWhereNone);
    }

    #[test]
    fn a_word_is_the_one_of_the_json() {
        for verdict in [Verdict::RightButSmall, Verdict::ChangeWhereNone, Verdict::ByRank] {
            let json = serde_json::to_string(&verdict).unwrap();
            assert_eq!(json, format!("\"{}\"", verdict.word()));
        }
    }
}
