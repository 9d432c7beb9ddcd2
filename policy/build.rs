//! Compiles the policy headers, through their bindings, for user space, and keeps them as text.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=src/bindings.c");
    println!("cargo:rerun-if-changed=src/own_rule.c");
    cc::Build::new()
        .file("src/bindings.c")
        .include("include")
        .warnings(true)
        .extra_warnings(true)
        .opt_level(2)
        .compile("roost_policy");
    if let Err(error) = keep_texts() {
        // Cargo shows the standard error of a build script that fails.
        eprintln!("roost-policy: headers: {error}");
        std::process::exit(1);
    }
}

/// Writes `headers.rs`: the headers and what makes an object of them, as text.
fn keep_texts() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let mut headers: Vec<PathBuf> = std::fs::read_dir(here.join("include/roost"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    headers.sort();
    let text = |path: &Path| format!("include_str!({path:?})");
    let mut out = String::from(
        "/// Names and texts of the headers.\npub const HEADERS: &[(&str, &str)] = &[\n",
    );
    for header in &headers {
        let name = header.file_name().unwrap_or_default();
        writeln!(out, "    ({name:?}, {}),", text(header))?;
    }
    out += "];\n";
    let sources = [
        ("BINDINGS", "src/bindings.c", "The functions of the headers as symbols."),
        ("OWN_RULE", "src/own_rule.c", "The same for a rule of one's own, which is watched."),
    ];
    for (name, path, about) in sources {
        writeln!(out, "/// {about}\npub const {name}: &str = {};", text(&here.join(path)))?;
    }
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("headers.rs"), out)?;
    Ok(())
}
