//! What the documentation refers to exists. Commits that it names as the program of a measurement are in the history,
//! links lead somewhere, every page is in the book, commands run, and quoted figures match the results.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use roost_simulate::{Control, Simulation};

use documented::{documents, pages, root};

mod commands;
mod documented;
mod figures;

fn git(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("git").arg("-C").arg(root()).args(arguments).output()
}

/// Why the history cannot be checked: the sources are an archive, git is missing, or the clone is shallow.
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

/// The targets of a page's links within the repository: `[text](target)`, and `[name]: target` on a line.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let named = text.lines().filter(|line| line.starts_with('['));
    let named = named.filter_map(|line| Some(line.split_once("]: ")?.1.trim()));
    inline.chain(named).filter(|target| !target.contains("://"))
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let mut broken = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            let is_there = match std::fs::read_to_string(&target) {
                Ok(page) => anchor.is_empty() || anchors(&page).iter().any(|known| known == anchor),
                Err(_) => target.is_dir(),
            };
            if !is_there {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Tables, command lines and generated pages may be wider. Tables of the README may not.
#[test]
fn lines_of_pages_have_120_columns() {
    let mut wide = Vec::new();
    for page in documents().iter().filter(|page| commands::is_written_by_hand(page)) {
        let tables = page.ends_with("README.md") && page.parent() == Some(&root());
        let may_be_wide = |line: &str| line.starts_with("    ") || line.starts_with('|') && !tables;
        let text = std::fs::read_to_string(page).unwrap();
        for (at, line) in text.lines().enumerate() {
            if line.chars().count() > 120 && !may_be_wide(line) {
                wide.push(format!("{}:{}", page.display(), at + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

/// Data, and text that a program wrote, may be wider.
#[test]
fn lines_of_code_have_120_columns() {
    if let Some(reason) = no_history() {
        println!("skipped: {reason}");
        return;
    }
    let files =
        git(&["ls-files", "--", "*.rs", "*.[ch]", "*.js", "*.css", "*.py", "*.sh", "Makefile"])
            .unwrap();
    let mut wide = Vec::new();
    for file in String::from_utf8(files.stdout).unwrap().lines() {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let next = |at: usize, c: char| if c == '\t' { at / 8 * 8 + 8 } else { at + 1 };
        let columns = |line: &str| line.chars().fold(0, next);
        let lines = text.lines().enumerate().filter(|(_, line)| columns(line) > 120);
        wide.extend(lines.map(|(at, _)| format!("{file}:{}", at + 1)));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).map(|link| docs.join(link)).collect();
    let pages = pages(&docs).into_iter().filter(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(listed, pages.collect());
}

/// The commits of this repository that `text` names. They have 7 digits, or 12 after "roost" and perhaps its version;
/// other commits with 12 digits are of Linux. Seven decimal digits are a number, unless "program" or "commit" precedes
/// them.
fn commits(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    let is_named = |at: usize| {
        let word = words[at];
        let before = |back: usize| at.checked_sub(back).map_or("", |at| words[at]);
        let is_told = || ["program", "Program", "commit"].contains(&before(1));
        let has_version = || before(4) == "roost" && [1, 2, 3].map(before).into_iter().all(number);
        let is_roost = || before(1) == "roost" || has_version();
        let hexadecimal = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        hexadecimal
            && (word.len() == 7 && (!number(word) || is_told()) || word.len() == 12 && is_roost())
    };
    (0..words.len()).filter(|at| is_named(*at)).map(|at| words[at]).collect()
}

#[test]
fn commits_are_told_from_numbers_and_from_linux_commits() {
    let text =
        "Program 0914351, (455a50c, 11fa2df); 1103140 switches, commit e496132ebedd; 0x3a5b500";
    assert_eq!(commits(text), ["0914351", "455a50c", "11fa2df"]);
    let text = "roost 0.2.0 (0eae6a5557d6), by roost 4ecac9746267; Linux 5.18.0 (e496132ebedd)";
    assert_eq!(commits(text), ["0eae6a5557d6", "4ecac9746267"]);
}

#[test]
fn commits_that_the_documentation_names_are_in_the_history() {
    if let Some(reason) = no_history() {
        println!("skipped: {reason}");
        return;
    }
    let files = documents();
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

/// These names once stood for several things each. Each is the name of at most one type now.
#[test]
fn names_stand_for_one_thing() {
    let kinds = ["struct", "enum", "trait", "type", "union"];
    let mut found = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let types = words.windows(2).filter(|pair| kinds.contains(&pair[0])).map(|pair| pair[1]);
        found.extend(types.map(|name| (name.to_owned(), file.clone())));
    }
    for name in ["World", "Pass", "Rules", "Place", "Node", "Move"] {
        let of_name = found.iter().filter(|(known, _)| known == name).collect::<Vec<_>>();
        assert!(of_name.len() <= 1, "{of_name:#?}");
    }
    assert!(found.iter().any(|(name, _)| name == "World"), "sources are read");
}

/// The sources of all crates, without tests beside `src`.
fn sources() -> Vec<PathBuf> {
    let mut folders = vec![root().join("policy/src")];
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    folders.extend(crates.map(|entry| entry.unwrap().path().join("src")));
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// The programs that made docs/results.json are clean builds of commits in the history.
#[test]
fn programs_of_the_results_are_in_the_history() {
    if let Some(reason) = no_history() {
        println!("skipped: {reason}");
        return;
    }
    let text = std::fs::read_to_string(root().join("docs/results.json")).unwrap();
    let results = roost_reproduce::Results::parse(&text).unwrap();
    for (study, result) in results.studies {
        let Some(program) = result.program else { continue };
        let commit = program.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let commit = commit.unwrap_or_else(|| panic!("{study}: {program}"));
        let output = git(&["merge-base", "--is-ancestor", commit, "HEAD"]).unwrap();
        assert!(output.status.success(), "{study}: {program}");
    }
}

/// The reference page equals what the program writes.
#[test]
fn the_reference_is_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let man = Command::new(env!("CARGO_BIN_EXE_roost")).arg("man").arg(folder.path()).status();
    assert!(man.unwrap().success());
    let [ours, written] = [folder.path().join("reference.md"), root().join("docs/reference.md")]
        .map(|path| std::fs::read_to_string(path).unwrap());
    let differing = ours.lines().zip(written.lines()).find(|(ours, written)| ours != written);
    assert!(ours == written, "`make reference` writes it anew: {differing:?}");
}

/// Every counter of a run has an entry in the reference, and every entry belongs to a counter.
#[test]
fn the_reference_has_the_counters_that_runs_have() {
    let mut met = BTreeSet::new();
    let small = root().join("crates/scx/tests/data/small.bpf.o");
    let mechanisms = roost_fair::mechanisms().iter().map(|mechanism| mechanism.name);
    let all = mechanisms.fold("fair@7.2".to_owned(), |name, mechanism| name + "+" + mechanism);
    for scheduler in [all, format!("scx:{}", small.display()), "roost".to_owned()] {
        let simulation =
            Simulation::named("2n2l4c", "settle", Some(50_000_000), &scheduler).unwrap();
        for (name, _) in simulation.run(Control::new(1)).unwrap().counters {
            let Some(counter) = roost_report::meaning(&name) else {
                panic!("{name} has no meaning")
            };
            met.insert(counter.name);
        }
    }
    let told = roost_report::known_counters().into_iter().flat_map(|(_, counters)| counters);
    let unmet: Vec<&str> =
        told.map(|counter| counter.name).filter(|name| !met.contains(name)).collect();
    assert_eq!(unmet, [] as [&str; 0]);
}

/// Two programs that differ in their commit, and whose result differs for one benchmark.
#[test]
fn results_of_two_builds_are_compared_by_bytes() {
    let script = root().join("tools/same-bytes");
    let text = std::fs::read_to_string(&script).unwrap();
    let listed = |line: &str| line.split([' ', ':']).nth(1).unwrap_or_default().to_owned();
    let listed: BTreeSet<String> = text.lines().map(listed).collect();
    for benchmark in roost_workload::benchmarks() {
        assert!(listed.contains(benchmark.name), "{}", benchmark.name);
    }
    let folder = tempfile::tempdir().unwrap();
    let program = |commit: u8, of_stream: u8| {
        let file = folder.path().join(format!("program{commit}"));
        let build = format!("  \"roost\": {{\n    \"commit\": \"{commit}\"\n  }},\n");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *stream*) score={of_stream} ;; *) score=7 ;; esac\n\
             cat <<END\n{{\n{build}  \"score\": $score\n}}\nEND\n"
        );
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        file
    };
    let compare = |of_stream| {
        let programs = [program(1, 5), program(2, of_stream)];
        let output = Command::new(&script).args(programs).output().unwrap();
        let differing = |line: &&str| line.starts_with("DIFFERS");
        let told = String::from_utf8(output.stdout).unwrap();
        let differing: Vec<String> = told.lines().filter(differing).map(str::to_owned).collect();
        (output.status.code(), differing)
    };
    assert_eq!(compare(5), (Some(0), vec![]));
    let (status, differing) = compare(6);
    assert_eq!(status, Some(1));
    assert!(differing.len() == 1 && differing[0].contains(" stream:"), "{differing:?}");
}
