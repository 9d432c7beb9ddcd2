//! Finds the pages of the documentation and the command lines of roost on them. Tests of the program use this file too.

use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages below a folder.
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of pages") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The pages below `docs`, and the pages elsewhere in the repository.
pub fn documents() -> Vec<PathBuf> {
    let elsewhere = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "published/README.md"];
    let elsewhere = elsewhere.map(|file| root().join(file));
    pages(&root().join("docs")).into_iter().chain(elsewhere).collect()
}

/// A command line on a page.
#[derive(Debug)]
pub struct Documented {
    /// The page, and the line on which the command begins.
    pub place: String,
    /// `roost` and its arguments, without a leading `sudo` and without redirections.
    pub words: Vec<String>,
    /// Whether it is a line of a code block. Otherwise it is part of a sentence, where arguments may be missing.
    pub whole: bool,
    /// Why no test runs it: the REASON in the comment `<!-- not run: REASON -->` before its block.
    pub not_run: Option<String>,
}

/// The command lines of roost on a page, in code blocks and in sentences.
pub fn commands(page: &Path) -> Vec<Documented> {
    let text = std::fs::read_to_string(page).expect("a page");
    let name = page.strip_prefix(root()).expect("a page of the repository").display().to_string();
    let mut reader = Reader { name, ..Reader::default() };
    for (at, line) in text.lines().enumerate() {
        reader.line(at + 1, line);
    }
    reader.sentence(&text);
    reader.found
}

/// The state while the lines of a page are read.
#[derive(Default)]
struct Reader {
    name: String,
    found: Vec<Documented>,
    fenced: bool,
    mark: Option<String>,
    in_block: bool,
    begun: Option<(usize, String)>,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) {
        if line.starts_with("```") {
            self.fenced = !self.fenced;
            self.in_block = true;
            return;
        }
        if self.fenced || line.starts_with("    ") {
            self.in_block = true;
            self.block_line(number, line);
        } else if let Some(reason) = line.strip_prefix("<!-- not run: ") {
            self.mark = Some(reason.trim_end_matches(" -->").to_owned());
            self.in_block = false;
        } else if self.in_block && !line.is_empty() {
            (self.mark, self.in_block) = (None, false);
        }
    }

    /// Reads a line of a code block. A line that ends with a backslash continues on the next line.
    fn block_line(&mut self, number: usize, line: &str) {
        let line = without_remark(line.trim());
        let (begun, so_far) = self.begun.take().unwrap_or((number, String::new()));
        let joined = format!("{so_far} {line}");
        match joined.strip_suffix('\\') {
            Some(unfinished) => self.begun = Some((begun, unfinished.trim().to_owned())),
            None => self.keep(begun, joined.trim().trim_start_matches("$ "), true),
        }
    }

    /// Finds commands between backticks outside of code blocks. A line break between backticks counts as a space.
    fn sentence(&mut self, text: &str) {
        let mut fenced = false;
        let is_prose = |line: &&str| {
            fenced ^= line.starts_with("```");
            !fenced && !line.starts_with("    ") && !line.starts_with("```")
        };
        let prose: Vec<&str> = text.lines().filter(is_prose).collect();
        for paragraph in prose.join("\n").split("\n\n") {
            for code in paragraph.split('`').skip(1).step_by(2) {
                self.keep(0, &code.replace('\n', " "), false);
            }
        }
    }

    fn keep(&mut self, number: usize, line: &str, whole: bool) {
        let line = line.trim_start_matches("sudo ");
        if !line.starts_with("roost ") || line.contains("...") || line.contains("COMMAND") {
            return;
        }
        let place = match number {
            0 => self.name.clone(),
            number => format!("{}:{number}", self.name),
        };
        let not_run = self.mark.clone().filter(|_| whole);
        self.found.push(Documented { place, words: words(line), whole, not_run });
    }
}

/// Removes the explanation from a line: what follows two spaces outside of quotes.
fn without_remark(line: &str) -> &str {
    let mut quoted = false;
    let bytes = line.as_bytes();
    for (at, pair) in bytes.windows(2).enumerate() {
        quoted ^= pair[0] == b'"';
        if !quoted && pair == b"  " {
            return &line[..at];
        }
    }
    line
}

/// Splits a command line into words as a shell does, up to a redirection.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (None, '>' | '|') => break,
            (_, c) => words.last_mut().expect("one at least").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn command_lines_are_divided_as_a_shell_does() {
    assert_eq!(without_remark("roost top   # what it does"), "roost top");
    let line = without_remark("roost machine \"node:2  l3:8\" --figures  its figures");
    assert_eq!(words(line), ["roost", "machine", "node:2  l3:8", "--figures"]);
    assert_eq!(words("roost vm run -- cat a >b"), ["roost", "vm", "run", "--", "cat", "a"]);
}
