//! One word for what became of a row.

use serde::{Deserialize, Serialize};

/// A published change is material from this on, percent, if it exceeds its deviation.
pub const MATERIAL_PCT: f64 = 3.0;

/// Two sizes of a change agree within this factor.
pub const SIZE_FACTOR: f64 = 2.0;

/// Two levels agree within this factor.
pub const LEVEL_FACTOR: f64 = 1.5;

/// Changes that print as 0.00% have no sign.
const NO_CHANGE_PCT: f64 = 0.005;

/// How a simulated row stands beside the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// A material change with the published sign, its size within a factor of 2.
    #[serde(rename = "right")]
    Right,
    /// The same sign, less than half the size.
    #[serde(rename = "right but small")]
    RightButSmall,
    /// The same sign, more than twice the size.
    #[serde(rename = "right but large")]
    RightButLarge,
    /// Nothing material, as published.
    #[serde(rename = "no change as published")]
    NoChangeAsPublished,
    /// The other sign.
    #[serde(rename = "wrong sign")]
    WrongSign,
    /// 0.00% where a material change was published.
    #[serde(rename = "no change where one was published")]
    NoChange,
    /// 3% and more where nothing material was published.
    #[serde(rename = "change where none was published")]
    ChangeWhereNone,
    /// Only a level was published; it is within a factor of 1.5.
    #[serde(rename = "level right")]
    LevelRight,
    /// Only a level was published; it is farther off.
    #[serde(rename = "level wrong")]
    LevelWrong,
    /// A value of a column that is judged as a whole, by its ranks.
    #[serde(rename = "by rank")]
    ByRank,
    /// Nothing was searched, so that the published share has no simulated one beside it.
    #[serde(rename = "undefined")]
    Undefined,
    /// No run can show it.
    #[serde(rename = "not modelled")]
    NotModelled,
    /// It is not among the rows that were run.
    #[serde(rename = "not run")]
    NotRun,
}

impl Verdict {
    /// Of a change: published, whether that is material, and simulated; percent.
    pub fn of_change(published_pct: f64, material: bool, simulated_pct: f64) -> Self {
        if !material {
            return match simulated_pct.abs() < MATERIAL_PCT {
                true => Self::NoChangeAsPublished,
                false => Self::ChangeWhereNone,
            };
        }
        if simulated_pct.abs() < NO_CHANGE_PCT {
            return Self::NoChange;
        }
        let ratio = simulated_pct / published_pct;
        match ratio {
            ratio if ratio < 0.0 => Self::WrongSign,
            ratio if ratio * SIZE_FACTOR < 1.0 => Self::RightButSmall,
            ratio if ratio > SIZE_FACTOR => Self::RightButLarge,
            _ => Self::Right,
        }
    }

    /// Of a level.
    pub fn of_level(published: f64, simulated: f64) -> Self {
        match factor(published, simulated) <= LEVEL_FACTOR {
            true => Self::LevelRight,
            false => Self::LevelWrong,
        }
    }

    /// As it is written.
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
            Self::NotModelled => "not modelled",
            Self::NotRun => "not run",
        }
    }
}

/// How many times the larger of two positive values is the smaller.
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
            (-10.0, Verdict::WrongSign),
            (0.001, Verdict::NoChange),
        ] {
            assert_eq!(Verdict::of_change(10.0, true, simulated), verdict, "{simulated}");
            assert_eq!(Verdict::of_change(-10.0, true, -simulated), verdict, "-{simulated}");
        }
    }

    #[test]
    fn where_nothing_material_was_published_only_the_size_counts() {
        assert_eq!(Verdict::of_change(-7.36, false, 2.9), Verdict::NoChangeAsPublished);
        assert_eq!(Verdict::of_change(0.1, false, -3.0), Verdict::ChangeWhereNone);
    }

    #[test]
    fn a_word_is_the_one_of_the_json() {
        for verdict in [Verdict::RightButSmall, Verdict::ChangeWhereNone, Verdict::ByRank] {
            let json = serde_json::to_string(&verdict).unwrap();
            assert_eq!(json, format!("\"{}\"", verdict.word()));
        }
    }
}
