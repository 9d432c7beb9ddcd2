//! Every command that the documentation shows is run here, or is marked as not run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use crate::documented::{Documented, commands, documents, root};

/// False for pages that the program writes, and for dated notes.
pub fn is_written_by_hand(page: &Path) -> bool {
    !["docs/results.md", "docs/reference.md", "docs/notes"]
        .iter()
        .any(|path| page.starts_with(root().join(path)))
}

/// A plan whose runs take almost no time.
const PLAN: &str = "machines = '2n2l4c'\nworkloads = 'hackbench:groups=1,loops=1'\n\
                    schedulers = ['fair@7.2', 'fair@5.19']\nseeds = 2\n";

/// Creates a file that the page takes to be the reader's own.
fn provide(folder: &Path, word: &str) {
    let sample = match word.rsplit_once('.') {
        Some((_, "xml")) => "crates/machine/tests/data/AMD-19h-Zen3-2xEpyc-7763.xml",
        Some((_, "json")) => "crates/workload/tests/data/rtapp/spreading-tasks.json",
        Some((_, "o")) => "crates/scx/tests/data/small.bpf.o",
        _ => "",
    };
    let file = folder.join(word);
    if !sample.is_empty() && !file.exists() {
        std::fs::copy(root().join(sample), &file).expect("a copy of a sample");
    }
    if word == "roost.toml" {
        std::fs::write(&file, "sis-util = false\n").expect("settings");
    } else if word == "plan.toml" {
        std::fs::write(&file, PLAN).expect("a plan");
    } else if word == "my_rule.h" && !file.exists() {
        run(folder, &["policy".into(), "new".into(), "sis-util".into(), word.into()]);
    }
}

fn run(folder: &Path, arguments: &[String]) -> Output {
    let mut roost = Command::new(env!("CARGO_BIN_EXE_roost"));
    roost
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder)
        .env_remove("ROOST_CACHE");
    roost.output().expect("roost starts")
}

/// Shortens a command to one repeat of a few milliseconds. What it measures is not checked here.
fn shortened(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter().skip(1).cloned();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--duration" | "--repeat" => drop(words.next()),
            "--trace-window" => kept.extend([word, "1ms..5ms".to_owned()]),
            _ => kept.push(word),
        }
    }
    let lists = kept.iter().any(|word| word.starts_with("--list"));
    if kept[0] == "compare" && !lists {
        kept.extend(["--duration", "20ms", "--repeat", "1", "--quiet"].map(str::to_owned));
    }
    kept
}

/// Runs a command in a folder with the files that it names. An error that the run was too short is not the page's
/// fault.
fn fault(command: &Documented, folder: &Path) -> Option<String> {
    if command.not_run.is_some() {
        return None;
    }
    let makes_rule = command.words.iter().any(|word| word == "new");
    let given = command.words.iter().flat_map(|word| word.split(['=', ':', '+']));
    for word in given.filter(|word| !makes_rule || *word != "my_rule.h") {
        provide(folder, word);
    }
    let output = run(folder, &shortened(&command.words));
    let told = String::from_utf8_lossy(&output.stderr);
    let works = output.status.success() || told.contains("--duration");
    (!works).then(|| format!("{}: {}: {told}", command.place, command.words.join(" ")))
}

#[test]
fn commands_of_the_documentation_run_or_say_why_not() {
    let (mut faults, mut ran) = (Vec::new(), 0);
    for page in documents().iter().filter(|page| is_written_by_hand(page)) {
        let folder = tempfile::tempdir().expect("a folder");
        for command in commands(page).iter().filter(|command| command.whole) {
            faults.extend(fault(command, folder.path()));
            ran += usize::from(command.not_run.is_none());
        }
    }
    assert!(
        faults.is_empty(),
        "mark a block with <!-- not run: REASON -->, or mend it: {faults:#?}"
    );
    assert!(ran >= 15, "{ran} commands were found");
}

/// Targets of make that pages name.
#[test]
fn targets_of_make_are_in_the_makefile() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let there: BTreeSet<&str> =
        makefile.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let mut missing = Vec::new();
    for page in documents().iter().filter(|page| is_written_by_hand(page)) {
        let text = std::fs::read_to_string(page).expect("a page");
        let in_blocks = text.lines().filter_map(|line| line.strip_prefix("    "));
        let code = text.split('`').skip(1).step_by(2).chain(in_blocks);
        let named = code.filter_map(|code| code.trim().strip_prefix("make "));
        for target in named.filter_map(|rest| rest.split([' ', ',']).next()) {
            if target.starts_with(|c: char| c.is_lowercase()) && !there.contains(target) {
                missing.push(format!("{}: make {target}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
