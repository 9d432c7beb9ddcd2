//! Schedulers with labels, as users name them.

use std::collections::BTreeSet;

/// A scheduler, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of its rows: the label before `=`, or the scheduler's own name.
    pub label: String,
    /// The scheduler.
    pub spec: String,
}

/// Why labels are wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// A label has no scheduler.
    #[error("{0}=: no scheduler; write for example {0}=fair@7.2")]
    Nothing(String),
    /// There is no name at all.
    #[error("an empty scheduler; write for example fair@7.2")]
    Empty,
    /// What stands before `=` and a scheduler is no label.
    #[error(
        "{0}: the label before = may have letters, digits, -, _ and . only; write for example {1}={2}"
    )]
    Characters(String, String, String),
    /// Two schedulers have the same label.
    #[error("{0}: labels two rows; give each its own label")]
    Twice(String),
}

impl Named {
    /// The schedulers that `texts` name. Each label must belong to one scheduler.
    ///
    /// # Errors
    /// If a label has no scheduler, or two.
    pub fn all(texts: &[String]) -> Result<Vec<Self>, LabelError> {
        let named: Vec<Self> = texts.iter().map(|text| Self::read(text)).collect();
        let mut taken = BTreeSet::new();
        for Self { label, spec } in &named {
            if label.is_empty() {
                return Err(LabelError::Empty);
            }
            if let Some((label, scheduler)) = mislabelled(spec) {
                return Err(LabelError::Characters(spec.clone(), label, scheduler));
            }
            if spec.is_empty() {
                return Err(LabelError::Nothing(label.clone()));
            }
            let is_free = taken.insert(label.as_str());
            let is_shared = |other: &Self| other.label == *label && other.spec != *label;
            if !is_free && named.iter().any(is_shared) {
                return Err(LabelError::Twice(label.clone()));
            }
        }
        Ok(named)
    }

    /// Splits the label off `text`, as in `label=fair@7.2+no-hrtick`. A `=` that belongs to the scheduler itself has an
    /// `@`, `+`, `:`, `/` or blank before it.
    fn read(text: &str) -> Self {
        let labelled = text
            .split_once('=')
            .filter(|(label, _)| !label.is_empty() && label.chars().all(is_of_label));
        let (label, spec) = labelled.unwrap_or((text, text));
        Self { label: label.to_owned(), spec: spec.to_owned() }
    }
}

fn is_of_label(c: char) -> bool {
    c.is_alphanumeric() || "-_.".contains(c)
}

/// If something before a scheduler is meant as a label but has other characters: a label that would do, and the
/// scheduler.
fn mislabelled(text: &str) -> Option<(String, String)> {
    let (before, scheduler) = text.split_once('=')?;
    let is_scheduler = |name: &str| {
        name.starts_with("fair@")
            || name.starts_with("scx:")
            || name.split('+').next() == Some("roost")
    };
    if is_scheduler(before) || !is_scheduler(scheduler) {
        return None;
    }
    let kept = |c: char| if is_of_label(c) { c } else { '-' };
    let label: String = before.trim().chars().map(kept).collect();
    let label = if label.is_empty() { "label".to_owned() } else { label };
    Some((label, scheduler.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stands_before_the_scheduler() {
        let read = |text| {
            let Named { label, spec } = Named::read(text);
            (label, spec)
        };
        let pair = |label: &str, spec: &str| (label.to_owned(), spec.to_owned());
        assert_eq!(read("base=fair@7.2"), pair("base", "fair@7.2"));
        assert_eq!(
            read("wide-2=fair@7.2+cling-degree=3"),
            pair("wide-2", "fair@7.2+cling-degree=3")
        );
        for spec in [
            "fair@7.2",
            "fair@7.2+cling-degree=3",
            "fair+base_slice_ns=1",
            "roost+slice-us=5000",
            "scx:a.bpf.o+x=1",
            "./scx_mine --slice=3",
            "scx_mine --slice=3",
            "=fair@7.2",
        ] {
            assert_eq!(read(spec), pair(spec, spec));
        }
        assert_eq!(read("x=./scx_mine --slice=3"), pair("x", "./scx_mine --slice=3"));
    }

    #[test]
    fn what_is_no_label_is_told_with_one_that_would_do() {
        let error = |text: &str| Named::all(&[text.to_owned()]).map_err(|error| error.to_string());
        for (text, label) in
            [("my label=fair@7.2", "my-label"), ("a/b=fair@7.2", "a-b"), ("=fair@7.2", "label")]
        {
            let told = error(text).unwrap_err();
            assert!(told.ends_with(&format!("write for example {label}=fair@7.2")), "{told}");
        }
        assert_eq!(error(""), Err("an empty scheduler; write for example fair@7.2".to_owned()));
        for right in
            ["./scx_mine --to=roost2", "fair@7.2+config=scx:x", "./a/b --slice=3", "x=roost"]
        {
            assert!(error(right).is_ok(), "{right}");
        }
    }
}
