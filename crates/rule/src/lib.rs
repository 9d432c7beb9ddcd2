//! Rules of users: a C file with functions that replace functions of the policy's headers.
//!
//! ```text
//! my_rule.h ─► which functions? ─► headers that declare them ─► cc ─► object, kept by content ─► Decisions
//! ```
//!
//! The file is read as text to find out which functions it replaces. Everything else is left to the compiler. The
//! headers only declare a replaced function, so a definition that does not fit gives a compiler error with file and
//! line. The object contains all functions of the policy. It is loaded once and never unloaded.
//!
//! A rule is a formula. State that it kept between calls would make runs depend on each other, so such state is
//! refused, and so are floats. If a function does not return within [`LIMIT`], or faults, the process ends and names
//! the function.

mod compile;
mod watch;

use std::path::Path;

use roost_names::did_you_mean;
use roost_policy::headers::{self, Forbidden};
pub use roost_policy::{Decisions, InForce};
pub use watch::LIMIT;

/// A user's rule, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRule {
    /// All functions of the policy, with the user's replacements.
    pub rules: Decisions,
    /// The file as the user named it.
    pub file: String,
    /// SHA-256 of the compiled text, in hexadecimal.
    pub sha256: String,
    /// The functions that it replaces, in the order of the file.
    pub replaces: Vec<String>,
}

/// A function that a rule can replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The mechanism of its header, as switches name it: `sis-util`.
    pub mechanism: String,
    /// A description in one sentence. May be empty.
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

/// The text of a comment's first paragraph.
fn plain(comment: &str) -> String {
    let text = comment.trim_start_matches("/*").trim_end_matches("*/");
    let lines = text.lines().map(|line| line.trim().trim_start_matches('*').trim());
    let paragraph = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

/// The text of a file to start from: the functions of a mechanism, or a single function, unchanged, and instructions.
///
/// # Errors
/// If there is no mechanism or function with this name. The error is a suggestion, as the end of a sentence.
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
        "/*\n * A rule of your own, from roost/{header}. Edit the functions, and remove those that you do not \
         change.\n *\n *     roost compare --workload hackbench fair@7.2 mine=fair@7.2+policy=FILE\n *\n"
    );
    out += " * You can use the types, constants and functions of all headers. A rule is a formula of its arguments:\n \
            * no static variables, no floats, and the same integer types as here. The header's comment:\n */\n\n";
    // The header's own comment is its second one.
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

/// Why a file cannot be used as a rule.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {why}; `roost policy new sis-util` writes one to start from")]
    Unreadable {
        /// The file as the user named it.
        file: String,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// The file replaces no function.
    #[error("{file}: it defines no function of the policy; `roost policy list` names them")]
    ReplacesNothing {
        /// The file as the user named it.
        file: String,
    },
    /// The file defines a function with a name like one of the policy's.
    #[error(
        "{file}:{line}: the policy has no {name}{meant}; `roost policy list` names its functions; names of your own \
         must not begin with roost_"
    )]
    Unknown {
        /// The file as the user named it.
        file: String,
        /// The line.
        line: usize,
        /// The function.
        name: String,
        /// A similar name, as the end of the sentence.
        meant: String,
    },
    /// The file defines a function twice.
    #[error("{file}:{line}: {name} is defined twice; leave one of them out")]
    Twice {
        /// The file as the user named it.
        file: String,
        /// The line of the second definition.
        line: usize,
        /// The function.
        name: String,
    },
    /// The file keeps state between calls.
    #[error(
        "{file}:{line}: this variable keeps its value between calls, and a rule is a formula of its arguments: make it \
         const, or a variable of the function"
    )]
    Stateful {
        /// The file as the user named it.
        file: String,
        /// The line.
        line: usize,
    },
    /// The file uses a float.
    #[error(
        "{file}:{line}: no floats: neither the kernel nor BPF has them; use integers, such as percent"
    )]
    Float {
        /// The file as the user named it.
        file: String,
        /// The line.
        line: usize,
    },
    /// The compiler refuses the file.
    #[error("{0}")]
    Compiler(String),
    /// There is no C compiler.
    #[error(
        "{file}: a rule needs a C compiler, and `cc` is not in $PATH ({why}); install gcc or clang"
    )]
    NoCompiler {
        /// The file as the user named it.
        file: String,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// The folder of compiled rules cannot be used.
    #[error(
        "{file}: the folder of compiled rules cannot be used: {why}; set ROOST_CACHE to another folder"
    )]
    Cache {
        /// The file as the user named it.
        file: String,
        /// The problem.
        why: String,
    },
    /// The compiled object cannot be loaded.
    #[error("{file}: the compiled rule cannot be loaded: {why}")]
    Object {
        /// The file as the user named it.
        file: String,
        /// The system's reason.
        why: String,
    },
}

/// Compiles and loads the rule in `file`. If the same text was compiled before, loads that object.
///
/// # Errors
/// If the file is not a rule, or cannot be compiled.
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

/// The functions that `text` replaces. `file` is named in errors.
///
/// # Errors
/// If there are none, or the file contains something that is not allowed in a rule.
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
