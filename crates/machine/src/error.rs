//! The errors in a machine's description.

/// Why a machine is not available: one line that names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file or directory could not be read.
    #[error("{path}: cannot be read: {reason}; check that it exists and may be read")]
    Read {
        /// The file or directory.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// An archive is damaged, or is none of `/sys`.
    #[error(
        "{path}: no complete archive of /sys: {reason}; `roost machine --help` says how to make one on a server"
    )]
    Archive {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder could not be created.
    #[error(
        "{path}: cannot be made: {reason}; name a folder that is not there yet, where you may write"
    )]
    Write {
        /// The folder.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// The file is not hwloc XML, or describes an impossible machine.
    #[error("{file}:{line}:{column}: {problem}; {remedy}")]
    Xml {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u32,
        /// Column in characters, from 1.
        column: u32,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The text is not a synthetic string, or describes an impossible machine.
    #[error("synthetic machine \"{text}\": column {column}: {problem}; {remedy}")]
    Synthetic {
        /// The string.
        text: String,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A file of a `/sys` tree has impossible contents.
    #[error("{path}: {problem}; {remedy}")]
    Sysfs {
        /// The file or directory.
        path: String,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The text of a program's output cannot be understood, or describes an impossible machine.
    #[error("{file}:{line}: {problem}; {remedy}")]
    Text {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A machine built inside the program is inconsistent.
    #[error("machine {name}: {problem}; {remedy}")]
    Invalid {
        /// The machine.
        name: String,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An argument names no machine.
    #[error("{argument}: no such machine; {remedy}")]
    Unknown {
        /// The argument.
        argument: String,
        /// What would have been understood.
        remedy: String,
    },
}

/// An inconsistency in a machine, before its source adds the place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The part of the description that is wrong.
    pub part: Part,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// A part of a machine's description that has its own place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// CPUs, caches, nodes.
    Hierarchy,
    /// The table of distances between nodes.
    Distances,
}

impl Problem {
    pub(crate) fn hierarchy(what: String, remedy: &'static str) -> Self {
        Self { part: Part::Hierarchy, what, remedy }
    }

    pub(crate) fn distances(what: String) -> Self {
        let remedy = "a node's distance to itself is the smallest of its row, all are 1 to 255";
        Self { part: Part::Distances, what, remedy }
    }
}

/// Text from outside for a one-line message: without control characters, and no longer than a line.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            line.push_str("...");
            break;
        }
        match c.is_control() || c == '\u{2028}' || c == '\u{2029}' {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_stays_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(500)).len(), 123);
    }
}
