//! Turns the table of the BPF program's numbers (`bpf/tunables.h`) into Rust.

use std::fmt::Write;
use std::path::{Path, PathBuf};

const MACRO: &str = "ROOST_TUNABLE(";

fn main() {
    if let Err(reason) = build() {
        // Cargo shows the standard error of a build script only if the script fails.
        eprintln!("roost-settings: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    // env!() would give the path at which the script was compiled.
    let crate_dir = std::env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let table = Path::new(&crate_dir).join("tunables.h");
    println!("cargo:rerun-if-changed={}", table.display());
    let text = std::fs::read_to_string(&table).map_err(|e| format!("{}: {e}", table.display()))?;
    let mut out = String::from("/// The numbers of the BPF program, from `bpf/tunables.h`.\n");
    out += "const NUMBERS: &[Setting] = &[\n";
    for (number, line) in text.lines().enumerate() {
        let Some(rest) = line.strip_prefix(MACRO) else { continue };
        let row = row(rest).ok_or_else(|| {
            format!(
                "{}:{}: a row is NAME, DEFAULT, LEAST, MOST, \"MEANING\")",
                table.display(),
                number + 1
            )
        })?;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "    {row}");
    }
    out += "];\n";
    let place = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("numbers.rs");
    std::fs::write(&place, out).map_err(|error| format!("{}: {error}", place.display()))
}

/// One row as a Rust expression.
fn row(rest: &str) -> Option<String> {
    let parts: Vec<&str> =
        rest.trim_end().strip_suffix(')')?.splitn(5, ',').map(str::trim).collect();
    let [name, default, least, most, meaning] = parts[..] else { return None };
    let numbers = [default, least, most].map(|text| text.parse::<u64>().ok());
    let [Some(default), Some(least), Some(most)] = numbers else { return None };
    let quoted = meaning.len() > 1 && meaning.starts_with('"') && meaning.ends_with('"');
    quoted.then(|| {
        format!(
            "Setting {{ name: {:?}, kind: Kind::Number {{ default: {default}, least: {least}, \
             most: {most} }}, meaning: {meaning}, without: \"\", acted: &[] }},",
            name.replace('_', "-")
        )
    })
}
