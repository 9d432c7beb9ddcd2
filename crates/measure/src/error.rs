//! Errors in the files of a measurement.

/// Why a measurement could not be read: one line that names the place and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MeasureError {
    /// A file could not be read.
    #[error("{file}: cannot be read: {reason}; measure again")]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        reason: String,
    },
    /// A text file has invalid contents.
    #[error("{file}:{line}: {problem}; {remedy}")]
    Text {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A ring buffer has invalid contents.
    #[error("{file}: byte {offset}: {problem}; {remedy}")]
    Buffer {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: usize,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Two files do not belong together.
    #[error("{file}: {problem}; {remedy}")]
    Mismatch {
        /// The file.
        file: String,
        /// The difference.
        problem: String,
        /// The remedy.
        remedy: &'static str,
    },
}

/// The remedy for a file that is cut off or damaged.
pub(crate) const MEASURE_AGAIN: &str = "measure again";

/// The remedy for a format that is not known from any kernel.
pub(crate) const UNKNOWN_KERNEL: &str =
    "use a kernel whose format is known, or add support for this one";

/// Text from outside, shortened and on one line, for use in a message.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut line: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push_str("...");
    }
    line
}

/// The lines of a text file with their numbers, and errors about them.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub file: &'a str,
    pub number: usize,
    pub text: &'a str,
}

impl<'a> Line<'a> {
    pub fn all(file: &'a str, text: &'a str) -> impl Iterator<Item = Self> {
        text.lines().zip(1..).map(move |(text, number)| Line { file, number, text })
    }

    pub fn error(&self, problem: String, remedy: &'static str) -> MeasureError {
        MeasureError::Text { file: self.file.to_owned(), line: self.number, problem, remedy }
    }

    /// Parses a number in this line.
    pub fn number<T: std::str::FromStr>(&self, word: &str) -> Result<T, MeasureError> {
        let wrong =
            || self.error(format!("\"{}\" is not a number here", shown(word)), MEASURE_AGAIN);
        word.parse().map_err(|_| wrong())
    }
}
