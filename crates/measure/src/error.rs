//! What can be wrong with the files of a measurement.

/// Why a measurement could not be understood: one line that names the place and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MeasureError {
    /// A file could not be read.
    #[error("{file}: cannot be read: {reason}; measure again")]
    Read {
        /// The file.
        file: String,
        /// What the operating system says.
        reason: String,
    },
    /// A text file holds what it cannot hold.
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
    /// A ring buffer holds what it cannot hold.
    #[error("{file}: byte {offset}: {problem}; {remedy}")]
    Buffer {
        /// The file.
        file: String,
        /// Offset in the file.
        offset: usize,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Two files do not belong together.
    #[error("{file}: {problem}; {remedy}")]
    Mismatch {
        /// The file.
        file: String,
        /// How they differ.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
}

/// What to do about a file that is cut short or mixed up.
pub(crate) const MEASURE_AGAIN: &str = "measure again";

/// What to do about a format that no known kernel has.
pub(crate) const UNKNOWN_KERNEL: &str =
    "use a kernel whose format is known, or teach roost this one";

/// Text from outside as it may stand in a message: on one line, and not too long.
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

    /// A number of this line.
    pub fn number<T: std::str::FromStr>(&self, word: &str) -> Result<T, MeasureError> {
        let wrong =
            || self.error(format!("\"{}\" is not a number here", shown(word)), MEASURE_AGAIN);
        word.parse().map_err(|_| wrong())
    }
}
