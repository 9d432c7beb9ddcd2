//! Tells the program its commit, and whether its sources differ from that commit. Without git, or outside a clone of
//! the repository, the program knows only its version.
//!
//! Cargo runs this again when HEAD has moved or a source has changed. The program is built anew then anyway.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Tells the program its commit; the Python package's build does the same.
pub fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let built = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    println!("cargo::rustc-env=ROOST_BUILT={}", built.as_nanos());
    // This fails if the surrounding repository is not roost's own, for example that of a package.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--verify", "HEAD"]) else { return };
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            watch(Path::new(&path));
        }
    }
    let sources = sources();
    sources.iter().for_each(|source| watch(Path::new(source)));
    println!("cargo::rustc-env=ROOST_COMMIT={commit}");
    let status = ["status", "--porcelain", "--"].into_iter();
    let status: Vec<&str> = status.chain(sources.iter().map(String::as_str)).collect();
    if git(&status).is_none_or(|changes| !changes.is_empty()) {
        println!("cargo::rustc-env=ROOST_MODIFIED=1");
    }
}

/// The files that programs of the repository are built from.
fn sources() -> Vec<String> {
    let Some(root) = git(&["rev-parse", "--show-toplevel"]) else { return Vec::new() };
    let crates = std::fs::read_dir(format!("{root}/crates")).into_iter().flatten().flatten();
    let folder = |entry: std::fs::DirEntry| entry.path().join("src").display().to_string();
    let mut sources: Vec<String> = crates.map(folder).collect();
    sources.retain(|folder| Path::new(folder).is_dir() && !folder.ends_with("crates/live/src"));
    sources.sort();
    let others = ["policy", "python", "Cargo.lock"].map(|name| format!("{root}/{name}"));
    sources.extend(others);
    sources
}

/// Runs this script again when `path` changes. If `path` did not exist, Cargo would run the script at every build.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The output of a git command, if git exists and the command succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
