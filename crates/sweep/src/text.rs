//! The text of a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use roost_simulate::Start;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use crate::error::SweepError;

/// A plan as text, before its names are looked up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    machines: Option<Names>,
    workloads: Option<Names>,
    schedulers: Option<Names>,
    numbers: Option<BTreeMap<String, Numbers>>,
    seeds: Option<Seeds>,
    duration: Option<Length>,
    #[serde(default)]
    pub start: StartWord,
    #[serde(default)]
    pub quiet: bool,
    #[serde(default)]
    pub listed: Vec<Product>,
}

/// A product of lists: each value is combined with all values of the other lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Product {
    pub machines: Option<Names>,
    pub workloads: Option<Names>,
    pub schedulers: Option<Names>,
    pub numbers: Option<BTreeMap<String, Numbers>>,
    pub seeds: Option<Seeds>,
    pub duration: Option<Length>,
}

/// The state of a machine before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StartWord {
    #[default]
    Running,
    Boot,
}

impl From<StartWord> for Start {
    fn from(word: StartWord) -> Self {
        match word {
            StartWord::Running => Self::Running,
            StartWord::Boot => Self::Boot,
        }
    }
}

/// One name or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub Vec<String>);

/// The seeds, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub Vec<u64>);

/// Values of a number. `None`: the scheduler's own value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers(pub Vec<Option<u32>>);

/// Longest duration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub Duration);

/// The longest run that is simulated, as in `roost compare`.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Largest number of seeds, the same as the largest number of repeats of other commands.
const MOST_SEEDS: u64 = 10_000;

impl Product {
    /// This product, with the fields that it lacks taken from `other`.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            machines: self.machines.clone().or_else(|| other.machines.clone()),
            workloads: self.workloads.clone().or_else(|| other.workloads.clone()),
            schedulers: self.schedulers.clone().or_else(|| other.schedulers.clone()),
            numbers: self.numbers.clone().or_else(|| other.numbers.clone()),
            seeds: self.seeds.clone().or_else(|| other.seeds.clone()),
            duration: self.duration.or(other.duration),
        }
    }
}

impl Text {
    /// The products to run: that of the plan itself, or those in `[[listed]]`. The latter take missing fields from the
    /// plan.
    pub fn products(&self) -> Vec<Product> {
        let whole = Product {
            machines: self.machines.clone(),
            workloads: self.workloads.clone(),
            schedulers: self.schedulers.clone(),
            numbers: self.numbers.clone(),
            seeds: self.seeds.clone(),
            duration: self.duration,
        };
        match self.listed.is_empty() {
            true => vec![whole],
            false => self.listed.iter().map(|listed| listed.or(&whole)).collect(),
        }
    }

    /// Reads a plan in TOML.
    pub fn toml(plan: &str, text: &str) -> Result<Self, SweepError> {
        toml::from_str(text).map_err(|error| SweepError::Plan {
            plan: plan.to_owned(),
            line: error.span().map(|span| 1 + text[..span.start].matches('\n').count()),
            problem: error.message().replace('\n', " "),
        })
    }

    /// Reads a plan in JSON, which other programs write.
    pub fn json(plan: &str, text: &str) -> Result<Self, SweepError> {
        serde_json::from_str(text).map_err(|error| {
            let shown = error.to_string();
            let problem = shown.split(" at line ").next().unwrap_or(&shown).to_owned();
            SweepError::Plan { plan: plan.to_owned(), line: None, problem }
        })
    }
}

/// A list, or a single item in its place.
struct List<T>(&'static str, fn(Item) -> Result<T, String>);

/// An item in a list of a plan.
enum Item {
    Text(String),
    Whole(i64),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl Visitor<'_> for One {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a whole number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Item, E> {
                Ok(Item::Whole(whole))
            }
            fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Item, E> {
                i64::try_from(whole).map(Item::Whole).map_err(|_| E::custom("too large a number"))
            }
        }
        deserializer.deserialize_any(One)
    }
}

impl<'de, T> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        Ok(vec![(self.1)(Item::Text(text.to_owned())).map_err(E::custom)?])
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Vec<T>, E> {
        Ok(vec![(self.1)(Item::Whole(whole)).map_err(E::custom)?])
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Vec<T>, E> {
        let whole = i64::try_from(whole).map_err(|_| E::custom("too large a number"))?;
        self.visit_i64(whole)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = seq.next_element::<Item>()? {
            all.push((self.1)(item).map_err(de::Error::custom)?);
        }
        match all.is_empty() {
            true => Err(de::Error::custom(format!("an empty list; give {}", self.0))),
            false => Ok(all),
        }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = |item| match item {
            Item::Text(text) => Ok(text),
            Item::Whole(whole) => Err(format!("{whole}: a number; write names in quotes")),
        };
        deserializer.deserialize_any(List("a name or a list of names", name)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = |item| match item {
            Item::Text(text) if text == "default" => Ok(None),
            Item::Text(text) => {
                Err(format!("'{text}': no whole number; write for example [\"default\", 50, 90]"))
            }
            Item::Whole(whole) => u32::try_from(whole)
                .map(Some)
                .map_err(|_| format!("{whole}: no number of a scheduler; give 0 or more")),
        };
        let expected = "whole numbers, or \"default\"";
        deserializer.deserialize_any(List(expected, value)).map(Self)
    }
}

/// Either a number, which stands for the seeds from 1 on, or a list of seeds.
impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Seeds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("how many seeds, or a list of seeds")
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Seeds, E> {
                match count {
                    0 => Err(E::custom("seeds: 0 of them make no run; give at least 1")),
                    many if many > MOST_SEEDS => {
                        Err(E::custom(format!("seeds: {many} of them; give at most {MOST_SEEDS}")))
                    }
                    count => Ok(Seeds((1..=count).collect())),
                }
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Seeds, E> {
                let count = u64::try_from(count);
                self.visit_u64(count.map_err(|_| E::custom("seeds: below 0; give at least 1"))?)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Seeds, A::Error> {
                let seed = |item| match item {
                    Item::Whole(seed) => {
                        u64::try_from(seed).map_err(|_| format!("seed {seed}: below 0"))
                    }
                    Item::Text(text) => Err(format!("seed '{text}': no whole number")),
                };
                let seeds = List("how many seeds, or a list of seeds", seed).visit_seq(seq)?;
                let twice = seeds.iter().enumerate().find(|(at, seed)| seeds[..*at].contains(seed));
                match twice {
                    Some((_, seed)) => {
                        Err(de::Error::custom(format!("seed {seed}: given twice; give it once")))
                    }
                    None => Ok(Seeds(seeds)),
                }
            }
        }
        deserializer.deserialize_any(Count)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |why: &str| {
            de::Error::custom(format!("duration: {why}; write for example \"500ms\" or \"20s\""))
        };
        match humantime::parse_duration(&text) {
            Err(error) => Err(wrong(&error.to_string())),
            Ok(length) if length.is_zero() => Err(wrong("a run of 0 s measures nothing")),
            Ok(length) if length > LONGEST => Err(wrong("at most one day is simulated")),
            Ok(length) => Ok(Self(length)),
        }
    }
}
