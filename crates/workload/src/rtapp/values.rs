//! Reads single values of an rt-app file, and checks their type and range. Error messages name the place.

use super::json::{Located, Member, Value};
use crate::WorkloadError;
use crate::program::Times;

/// rt-app keeps every number in a C `int`.
pub(super) const MAX_NUMBER: i64 = i32::MAX as i64;

const NS_PER_US: u64 = 1_000;

/// The result of reading a value.
pub(super) type Read<T> = Result<T, WorkloadError>;

/// The place of a key.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The file.
    pub(super) file: String,
    /// Line of the key.
    pub(super) line: usize,
    /// The keys from the top of the file, joined by dots.
    pub(super) path: String,
}

impl Origin {
    /// The place of a key below this one.
    pub(super) fn below(&self, member: &Member) -> Origin {
        let key = member.key.escape_debug();
        let path =
            if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) };
        Origin { file: self.file.clone(), line: member.line, path }
    }

    /// An error at this place.
    pub(super) fn error(
        &self,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> WorkloadError {
        WorkloadError::Key {
            file: self.file.clone(),
            line: self.line,
            path: if self.path.is_empty() { "top level".to_string() } else { self.path.clone() },
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

pub(super) fn wrong_type(place: &Origin, node: &Located, expected: &str) -> WorkloadError {
    place.error(format!("the value is {}", node.value.kind()), format!("give {expected}"))
}

pub(super) fn object<'a>(place: &Origin, node: &'a Located) -> Read<&'a [Member]> {
    match &node.value {
        Value::Object(members) => Ok(members),
        _ => Err(wrong_type(place, node, "an object { ... }")),
    }
}

pub(super) fn find<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.key == key)
}

/// Refuses equal keys, unless `repeatable` accepts them. rt-app would silently use one of them.
pub(super) fn only_once(
    place: &Origin,
    members: &[Member],
    repeatable: impl Fn(&str) -> bool,
) -> Read<()> {
    let mut seen = std::collections::BTreeMap::new();
    for member in members.iter().filter(|member| !repeatable(&member.key)) {
        if let Some(line) = seen.insert(member.key.as_str(), member.line) {
            let problem = format!("given twice, first in line {line}");
            return Err(place.below(member).error(problem, "keep one"));
        }
    }
    Ok(())
}

/// The fields of an object with these names, each `None` if it is missing. Other fields are an error.
pub(super) fn fields<'a>(
    top: &Origin,
    node: &'a Located,
    names: &[&str],
) -> Read<Vec<Option<(Origin, &'a Located)>>> {
    let members = object(top, node)?;
    only_once(top, members, |_| false)?;
    if let Some(other) = members.iter().find(|member| !names.contains(&member.key.as_str())) {
        let remedy = format!("the keys here are {}", names.join(", "));
        return Err(top.below(other).error("unknown key", remedy));
    }
    let field = |name: &&str| find(members, name).map(|found| (top.below(found), &found.node));
    Ok(names.iter().map(field).collect())
}

pub(super) fn text<'a>(place: &Origin, node: &'a Located) -> Read<&'a str> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => Err(wrong_type(place, node, "a string")),
    }
}

pub(super) fn not_empty(place: &Origin, name: &str) -> Read<String> {
    if name.is_empty() {
        return Err(place.error("the name is empty", "give a name"));
    }
    Ok(name.to_string())
}

pub(super) fn boolean(place: &Origin, node: &Located) -> Read<bool> {
    match node.value {
        Value::Bool(value) => Ok(value),
        _ => Err(wrong_type(place, node, "true or false")),
    }
}

pub(super) fn scalar(place: &Origin, node: &Located) -> Read<()> {
    match node.value {
        Value::Object(_) | Value::Array(_) => Err(wrong_type(place, node, "a plain value")),
        _ => Ok(()),
    }
}

pub(super) fn number(place: &Origin, node: &Located, min: i64, max: i64) -> Read<i64> {
    match node.value {
        Value::Integer(value) if (min..=max).contains(&value) => Ok(value),
        Value::Integer(value) => {
            Err(place.error(format!("{value} is out of range"), format!("give {min} to {max}")))
        }
        Value::OtherNumber(ref digits) => {
            let problem = format!("{digits} is no integer in range");
            Err(place.error(problem, format!("give an integer from {min} to {max}")))
        }
        _ => Err(wrong_type(place, node, "an integer")),
    }
}

/// A number of microseconds, converted to ns. Zero is allowed, because rt-app's templates contain events of length 0 to
/// be filled in.
pub(super) fn microseconds(place: &Origin, node: &Located) -> Read<u64> {
    Ok(number(place, node, 0, MAX_NUMBER)? as u64 * NS_PER_US)
}

pub(super) fn times(place: &Origin, node: &Located) -> Read<Times> {
    match number(place, node, -1, MAX_NUMBER)? {
        -1 => Ok(Times::Forever),
        0 => Err(place.error("0 never runs", "give a number from 1, or -1 for ever")),
        count => Ok(Times::Exactly(count as u64)),
    }
}

pub(super) fn numbers(place: &Origin, node: &Located, what: &str, max: i64) -> Read<Vec<u32>> {
    let Value::Array(items) = &node.value else {
        return Err(wrong_type(place, node, &format!("an array of {what} numbers")));
    };
    if items.is_empty() {
        return Err(place.error(format!("no {what}"), "name at least one, or remove the key"));
    }
    let mut list = Vec::new();
    for item in items {
        let place = Origin { line: item.line, ..place.clone() };
        list.push(number(&place, item, 0, max)? as u32);
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}
