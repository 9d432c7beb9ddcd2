//! Rules of one's own: a C file with functions of the policy's headers, which replaces those.
//!
//! ```text
//! my_rule.h ─► which functions? ─► headers that declare them ─► cc ─► object, kept by content ─► Rules
//! ```
//!
//! The file is read as text to know what it replaces; all else is the compiler's to say. A replaced function is only
//! declared in the headers, so a definition that does not fit is an error of the compiler, with file and line. The
//! object has all functions of the policy. It is loaded once and never unloaded.
//!
//! A rule is a formula: what it keeps between calls would make runs depend on each other, so that is refused, as are
//! floats. One that does not return within [`LIMIT`], or that faults, ends the process with its name.

mod compile;
mod watch;

use std::path::Path;

use roost_names::did_you_mean;
use roost_policy::headers::{self, Forbidden};
pub use roost_policy::{InForce, Rules};
pub use watch::LIMIT;

/// A rule of one's own, ready to be put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRule {
    /// All functions, the replaced ones among them.
    pub rules: Rules,
    /// The file as given.
    pub file: String,
    /// SHA-256 of what was compiled, in hexadecimal.
    pub sha256: String,
    /// The functions that it replaces, in the file's order.
    pub replaces: Vec<String>,
}

/// A function that a rule can replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The mechanism of its header, as switches name it: `sis-util`.
    pub mechanism: String,
    /// What it is, in a sentence; may be empty.
    pub about: String,
    /// Whether only the live scheduler calls it.
    pub only_live: bool,
}

/// All functions of the policy, in the order of the headers.
pub fn functions() -> Vec<Function> {
    let function = |(header, function): (&str, headers::Function)| {
        let comment = plain(&function.comment);
        let (about, live) = match comment.strip_prefix("Live: ") {
            Some(rest) => (rest, true),
            None => (comment.as_str(), false),
        };
        let sentence = about.split(". ").next().unwrap_or_default();
        Function {
            name: function.name,
            mechanism: header.trim_end_matches(".h").replace('_', "-"),
            about: sentence.trim_end_matches('.').to_owned(),
            only_live: live,
        }
    };
    headers::all().into_iter().map(function).collect()
}

/// The words of a comment, its first paragraph.
fn plain(comment: &str) -> String {
    let text = comment.trim_start_matches("/*").trim_end_matches("*/");
    let lines = text.lines().map(|line| line.trim().trim_start_matches('*').trim());
    let paragraph = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

/// A file to start from: the functions of a mechanism, or one function, as they are, and how to go on.
///
/// # Errors
/// If there is no mechanism or function of this name: what was probably meant, as the end of a sentence.
pub fn template(name: &str) -> Result<String, String> {
    let all = functions();
    let is_wanted = |function: &&Function| function.mechanism == name || function.name == name;
    let wanted: Vec<&Function> = all.iter().filter(is_wanted).collect();
    let Some(first) = wanted.first() else {
        let known = all.iter().flat_map(|function| [&*function.mechanism, &*function.name]);
        return Err(
            did_you_mean(name, known).map_or_else(String::new, |meant| format!("; {meant}"))
        );
    };
    let header = format!("{}.h", first.mechanism.replace('-', "_"));
    let text = headers::HEADERS.iter().find(|(other, _)| *other == header);
    let text = text.map_or("", |(_, text)| *text);
    let mut out = String::from("/* SPDX-License-Identifier: GPL-2.0-only */\n");
    out += &format!(
        "/*\n * A rule of your own, from roost/{header}: change what is in a function, and leave out those \
                     that stay.\n *\n *     roost compare --workload hackbench fair@7.2 mine=fair@7.2+policy=FILE\n *\n"
    );
    out += " * Types, constants and other functions of all headers can be used. A rule is a formula of its arguments: no\n \
            * variables that outlive a call, no floats, integers as wide as here. What the header says:\n */\n\n";
    // The header's own comment is its second.
    let about = text.splitn(3, "/*").nth(2).and_then(|rest| rest.split_once("*/"));
    if let Some((about, _)) = about {
        out += &format!("/*{about}*/\n");
    }
    for function in headers::functions(text) {
        if wanted.iter().any(|wanted| wanted.name == function.name) {
            out += &format!("\n{}\n{}\n", function.comment, &text[function.span.clone()]);
        }
    }
    Ok(out)
}

/// Why a file is no rule.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// It cannot be read.
    #[error("{file}: cannot be read: {why}; `roost policy new sis-util` writes one to start from")]
    Unreadable {
        /// As given.
        file: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// It has nothing that could replace something.
    #[error("{file}: it defines no function of the policy; `roost policy list` has them")]
    ReplacesNothing {
        /// As given.
        file: String,
    },
    /// It defines a function that looks like one of the policy's.
    #[error(
        "{file}:{line}: the policy has no {name}{meant}; `roost policy list` has its functions, and names of your own \
         begin otherwise"
    )]
    Unknown {
        /// As given.
        file: String,
        /// Where.
        line: usize,
        /// The function.
        name: String,
        /// What was probably meant, as the end of a sentence.
        meant: String,
    },
    /// It defines a function twice.
    #[error("{file}:{line}: {name} is defined twice; leave one of them out")]
    Twice {
        /// As given.
        file: String,
        /// Where the second time.
        line: usize,
        /// The function.
        name: String,
    },
    /// It keeps something between calls.
    #[error(
        "{file}:{line}: this outlives a call, and a rule is a formula of its arguments: make it const or a variable of \
         the function"
    )]
    Stateful {
        /// As given.
        file: String,
        /// Where.
        line: usize,
    },
    /// It has a float.
    #[error(
        "{file}:{line}: no floats: neither the kernel nor BPF has them; use integers, such as percent"
    )]
    Float {
        /// As given.
        file: String,
        /// Where.
        line: usize,
    },
    /// The compiler does not take it.
    #[error("{0}")]
    Compiler(String),
    /// There is no compiler.
    #[error("{file}: it takes a C compiler: no `cc` is in $PATH ({why}); install gcc or clang")]
    NoCompiler {
        /// As given.
        file: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// The folder for what was compiled cannot be used.
    #[error(
        "{file}: the folder of compiled rules cannot be used: {why}; set ROOST_CACHE to another"
    )]
    Cache {
        /// As given.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// What was compiled cannot be loaded.
    #[error("{file}: what was compiled of it cannot be loaded: {why}")]
    Object {
        /// As given.
        file: String,
        /// What the system says.
        why: String,
    },
}

/// Compiles and loads the rule in `file`, or loads what was compiled of the same text before.
///
/// # Errors
/// If it is no rule, or cannot be compiled.
pub fn load(file: &str) -> Result<OwnRule, RuleError> {
    let text = std::fs::read_to_string(file)
        .map_err(|why| RuleError::Unreadable { file: file.to_owned(), why })?;
    let replaces = replaced(file, &text)?;
    let path = Path::new(file).canonicalize();
    let path = path.map_err(|why| RuleError::Unreadable { file: file.to_owned(), why })?;
    let object = compile::object(file, &path, &replaces)?;
    let rules = watch::load(file, &object.path)?;
    Ok(OwnRule { rules, file: file.to_owned(), sha256: object.sha256, replaces })
}

/// The functions that `text`, of `file`, replaces.
///
/// # Errors
/// If there are none, or it has something that a rule must not have.
fn replaced(file: &str, text: &str) -> Result<Vec<String>, RuleError> {
    let known: Vec<String> =
        headers::all().into_iter().map(|(_, function)| function.name).collect();
    let file = || file.to_owned();
    let mut replaces: Vec<String> = Vec::new();
    for headers::Function { name, line, .. } in headers::functions(text) {
        let is_known = known.contains(&name);
        if !is_known && name.starts_with("roost_") {
            let meant = did_you_mean(&name, known.iter().map(String::as_str));
            let meant = meant.map_or_else(String::new, |question| format!("; {question}"));
            return Err(RuleError::Unknown { file: file(), line, name, meant });
        }
        if replaces.contains(&name) {
            return Err(RuleError::Twice { file: file(), line, name });
        }
        if is_known {
            replaces.push(name);
        }
    }
    if replaces.is_empty() {
        return Err(RuleError::ReplacesNothing { file: file() });
    }
    match headers::forbidden(text).first() {
        Some(&Forbidden::State(line)) => Err(RuleError::Stateful { file: file(), line }),
        Some(&Forbidden::Float(line)) => Err(RuleError::Float { file: file(), line }),
        None => Ok(replaces),
    }
}

#[cfg(test)]
mod tests;
