//! Compiles `bpf/` with clang, generates its bindings, and turns its tables of tunables and counters
//! into Rust.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest clang that the BPF program can be built with (`-mcpu=v4`).
const LEAST_CLANG: u32 = 18;

/// The newest one whose versioned name is looked for.
const NEWEST_CLANG: u32 = 24;

fn main() {
    if let Err(reason) = build() {
        // Cargo shows the standard error of a build script that fails.
        eprintln!("roost-live: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let text = |path: &str| path.to_owned();
    let include = root.join("policy/include").display().to_string();
    let source = root.join("bpf/roost.bpf.c").display().to_string();
    println!("cargo:rerun-if-changed={include}");
    println!("cargo:rerun-if-env-changed=PATH");
    write_tables(&root.join("bpf"))?;

    // SAFETY: nothing else runs in this process yet.
    unsafe { std::env::set_var("BPF_CLANG", clang()?) };
    let mut builder = scx_cargo::BpfBuilder::new().map_err(|error| format!("{error:#}"))?;
    builder.add_include_path(&include).enable_skel(&source, &text("roost"));
    builder.build().map_err(|error| format!("compiling {source}: {error:#}"))
}

/// The clang to use: the one that is named, or the first new enough one that is found.
fn clang() -> Result<String, String> {
    let named = std::env::var("BPF_CLANG").ok();
    let versioned = (LEAST_CLANG..=NEWEST_CLANG).rev().map(|version| format!("clang-{version}"));
    let candidates: Vec<String> = match &named {
        Some(name) => vec![name.clone()],
        None => std::iter::once("clang".to_owned()).chain(versioned).collect(),
    };
    let is_new = |name: &&String| clang_version(name).is_some_and(|found| found >= LEAST_CLANG);
    candidates.iter().find(is_new).cloned().ok_or_else(|| {
        let what = named.map_or("no clang".to_owned(), |name| format!("BPF_CLANG={name} is no clang"));
        format!(
            "{what} {LEAST_CLANG} or newer: install one (Debian: clang-19) or name it with BPF_CLANG"
        )
    })
}

/// The major version of a clang, if that is what `name` is.
fn clang_version(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("clang version ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Writes `tables.rs` from `tunables.h` and `counters.h`.
fn write_tables(bpf: &Path) -> Result<(), String> {
    let tunables = rows(&bpf.join("tunables.h"), "ROOST_TUNABLE(", 5)?;
    let counters = rows(&bpf.join("counters.h"), "ROOST_COUNTER(", 2)?;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_tunables(&mut out, &tunables).and_then(|()| write_counters(&mut out, &counters));
    let place = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("tables.rs");
    std::fs::write(&place, out).map_err(|error| format!("{}: {error}", place.display()))
}

/// The arguments of all lines of a table that begin with `macro_name`.
fn rows(path: &Path, macro_name: &str, columns: usize) -> Result<Vec<Vec<String>>, String> {
    let place = |line: usize| format!("{}:{}", path.display(), line + 1);
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(arguments) = line.strip_prefix(macro_name) else { continue };
        let arguments = arguments.trim_end().strip_suffix(')').ok_or_else(|| {
            format!("{}: a row of the table has to be one line, ending with )", place(number))
        })?;
        let row: Vec<String> =
            arguments.splitn(columns, ',').map(|part| part.trim().to_owned()).collect();
        if row.len() != columns {
            return Err(format!("{}: a row has {columns} columns", place(number)));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn write_tunables(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(out, "/// Every tunable, from `bpf/tunables.h`.")?;
    writeln!(out, "pub const TUNABLES: &[Tunable] = &[")?;
    for row in rows {
        let [name, default, least, most, meaning] = &row[..] else { continue };
        writeln!(
            out,
            "    Tunable {{ name: {name:?}, option: {:?}, default: {default}, least: {least}, \
             most: {most}, meaning: {meaning} }},",
            name.replace('_', "-")
        )?;
    }
    writeln!(out, "];\n")?;
    writeln!(out, "/// Sets a tunable of the BPF program; false if it has none of that name.")?;
    writeln!(
        out,
        "pub fn set(rodata: &mut crate::skeleton::types::rodata, name: &str, value: u64) -> bool {{"
    )?;
    writeln!(out, "    match name {{")?;
    for row in rows {
        writeln!(out, "        {:?} => rodata.{} = value,", row[0], row[0])?;
    }
    writeln!(out, "        _ => return false,\n    }}\n    true\n}}\n")
}

fn write_counters(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(out, "/// What the scheduler counted, from `bpf/counters.h`.")?;
    writeln!(out, "#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]")?;
    writeln!(out, "#[stat(top, desc = \"what the scheduler counted since the last time\")]")?;
    writeln!(out, "#[repr(C)]\npub struct Counters {{")?;
    for row in rows {
        let [name, meaning] = &row[..] else { continue };
        writeln!(
            out,
            "    #[doc = {meaning}]\n    #[stat(desc = {meaning})]\n    pub {name}: u64,"
        )?;
    }
    writeln!(out, "}}\n\nimpl Counters {{")?;
    writeln!(out, "    /// Names and values, in the order of the table.")?;
    writeln!(out, "    pub fn rows(&self) -> [(&'static str, u64); {}] {{\n        [", rows.len())?;
    for row in rows {
        writeln!(out, "            ({:?}, self.{}),", row[0], row[0])?;
    }
    writeln!(out, "        ]\n    }}\n")?;
    writeln!(out, "    /// The same counters with each pair of values combined.")?;
    writeln!(
        out,
        "    pub fn combine(&self, other: &Self, f: impl Fn(&str, u64, u64) -> u64) -> Self {{\n        Self {{"
    )?;
    for row in rows {
        let name = &row[0];
        writeln!(out, "            {name}: f({name:?}, self.{name}, other.{name}),")?;
    }
    writeln!(out, "        }}\n    }}\n}}")
}
