//! Tells the program which sources its machine code and its captures are made by. Anything made by other sources is not
//! used.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates whose sources decide what is made.
const MAKERS: [&str; 3] = ["capture", "machine", "scx"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut hasher = DefaultHasher::new();
    for maker in MAKERS {
        let folder = Path::new("..").join(maker);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        list(&folder, &mut files);
        files.sort();
        for file in files {
            std::fs::read(&file).unwrap_or_default().hash(&mut hasher);
            file.hash(&mut hasher);
        }
    }
    // The versions of libraries.
    let lock = Path::new("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    std::fs::read(lock).unwrap_or_default().hash(&mut hasher);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-V").output().map(|output| output.stdout);
    version.unwrap_or_default().hash(&mut hasher);
    std::env::var("PROFILE").unwrap_or_default().hash(&mut hasher);
    println!("cargo::rustc-env=ROOST_MAKERS={:016x}", hasher.finish());
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
