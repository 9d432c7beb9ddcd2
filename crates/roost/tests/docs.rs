//! Commits that the documentation names as the program of a measurement are in the history.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn git(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("git").arg("-C").arg(root()).args(arguments).output()
}

/// Why history cannot be asked, if it cannot: an archive of the sources, no git, or a shallow clone.
fn no_history() -> Option<String> {
    if !root().join(".git").exists() {
        return Some("not a clone of the repository".to_owned());
    }
    match git(&["rev-parse", "--is-shallow-repository"]) {
        Err(error) => Some(format!("git cannot be run: {error}")),
        Ok(output) if !output.status.success() => {
            Some(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
        Ok(output) if output.stdout != b"false\n" => Some("a shallow clone".to_owned()),
        Ok(_) => None,
    }
}

/// Commits of this repository that `text` names. They are written with 7 digits, those of Linux with 12.
/// 7 decimal digits are a number, unless "program" or "commit" precedes them.
fn commits(text: &str) -> Vec<&str> {
    let words = || text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let before = std::iter::once("").chain(words());
    let named = before.zip(words()).filter(|(before, word)| {
        let hexadecimal = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        let number = word.chars().all(|c| c.is_ascii_digit());
        let is_told = ["program", "Program", "commit"].contains(before);
        word.len() == 7 && word.chars().all(hexadecimal) && (!number || is_told)
    });
    named.map(|(_, word)| word).collect()
}

#[test]
fn commits_are_told_from_numbers_and_from_linux_commits() {
    let text =
        "Program 0914351, (455a50c, 11fa2df); 1103140 switches, commit e496132ebedd; 0x3a5b500";
    assert_eq!(commits(text), ["0914351", "455a50c", "11fa2df"]);
}

#[test]
fn commits_that_the_documentation_names_are_in_the_history() {
    if let Some(reason) = no_history() {
        println!("skipped: {reason}");
        return;
    }
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    files.extend(["README.md", "ARCHITECTURE.md", "published/README.md"].map(|f| root().join(f)));
    files.sort();
    let mut missing = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for commit in BTreeSet::from_iter(commits(&text)) {
            let output = git(&["merge-base", "--is-ancestor", commit, "HEAD"]).unwrap();
            if !output.status.success() {
                missing.push(format!("{}: {commit}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "no ancestors of HEAD: {missing:#?}");
}
