//! Tells the program which sources its machine code and its captures are made by. Anything made by other sources is not
//! used. In a package of the crate alone these are not known, so nothing is kept.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates whose sources decide what is made.
const MAKERS: [&str; 3] = ["capture", "machine", "scx"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ROOST_MAKERS={}", makers().unwrap_or_default());
}

/// A hash of the sources, of the versions of libraries, and of the compiler.
fn makers() -> Option<String> {
    let mut hasher = DefaultHasher::new();
    for maker in MAKERS {
        let folder = Path::new("..").join(maker);
        if !folder.is_dir() {
            return None;
        }
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        list(&folder, &mut files);
        files.sort();
        for file in files {
            std::fs::read(&file).ok()?.hash(&mut hasher);
            file.hash(&mut hasher);
        }
    }
    let lock = Path::new("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    std::fs::read(lock).ok()?.hash(&mut hasher);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Command::new(rustc).arg("-V").output().ok()?.stdout.hash(&mut hasher);
    Some(format!("{:016x}", hasher.finish()))
}

/// All files in a folder and below it, except those of tests.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true if entry.file_name() == "tests" => {}
            true => list(&path, files),
            false => files.push(path),
        }
    }
}
