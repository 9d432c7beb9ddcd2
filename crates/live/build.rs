//! Compiles `bpf/` with clang, generates its bindings, and generates Rust from its tables of tunables and counters.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest clang that the BPF program can be built with (`-mcpu=v4`).
const LEAST_CLANG: u32 = 18;

/// The newest clang that is looked for by a versioned name.
const NEWEST_CLANG: u32 = 24;

fn main() {
    if let Err(reason) = build() {
        // Cargo shows the standard error of a build script only if the script fails.
        eprintln!("roost-live: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    // The current path of the crate. A target directory can be older than the checkout's current path.
    let here = std::env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    println!("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
    let root = Path::new(&here).join("../..");
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let include = include(&root.join("policy/include"))?.display().to_string();
    println!("cargo:rerun-if-changed={include}");
    println!("cargo:rerun-if-changed={}", root.join("bpf").display());
    println!("cargo:rerun-if-env-changed=PATH");
    write_tables(&root.join("bpf"))?;

    // SAFETY: nothing else runs in this process yet.
    unsafe { std::env::set_var("BPF_CLANG", clang()?) };
    for (source, name) in [
        ("bpf/roost.bpf.c", "roost"),
        ("bpf/observe/observe.bpf.c", "observe"),
        ("bpf/mappings/mappings.bpf.c", "mappings"),
    ] {
        let source = root.join(source).display().to_string();
        let mut builder = scx_cargo::BpfBuilder::new().map_err(|error| format!("{error:#}"))?;
        // Messages name source files by their path in the repository, wherever the program was built.
        let prefix = format!("-ffile-prefix-map={}/=", root.display());
        builder.add_cflag("-fdebug-compilation-dir=.").add_cflag(&prefix);
        builder.add_include_path(&include).enable_skel(&source, name);
        builder.build().map_err(|error| format!("compiling {source}: {error:#}"))?;
    }
    Ok(())
}

/// The folder with the policy's headers: the repository's own, or a copy in which the rule of $ROOST_POLICY replaces
/// functions.
fn include(headers: &Path) -> Result<PathBuf, String> {
    println!("cargo:rerun-if-env-changed=ROOST_POLICY");
    let Some(rule) = std::env::var_os("ROOST_POLICY").filter(|rule| !rule.is_empty()) else {
        return Ok(headers.to_owned());
    };
    let rule = PathBuf::from(rule);
    let shown = rule.display().to_string();
    println!("cargo:rerun-if-changed={shown}");
    let failed = |error: std::io::Error| format!("POLICY={shown}: {error}");
    let text = std::fs::read_to_string(&rule).map_err(failed)?;
    let defined = roost_policy::headers::functions(&text);
    let known = roost_policy::headers::all();
    let is_known = |name: &str| known.iter().any(|(_, function)| function.name == name);
    let names: Vec<&str> = defined
        .iter()
        .map(|function| function.name.as_str())
        .filter(|name| is_known(name))
        .collect();
    if names.is_empty() {
        return Err(format!(
            "POLICY={shown}: it defines no function of the policy; `roost policy list` names them"
        ));
    }
    let copy = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("policy");
    std::fs::create_dir_all(copy.join("roost")).map_err(failed)?;
    for (name, text) in roost_policy::headers::with_replaced(&names, &shown) {
        std::fs::write(copy.join("roost").join(name), text).map_err(failed)?;
    }
    Ok(copy)
}

/// The clang to use: the one that BPF_CLANG names, or the first one found that is new enough.
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

/// The major version of `name`, if `name` is a clang.
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

/// The arguments in all lines of a table that begin with `macro_name`.
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
    writeln!(out, "/// Sets a number of the BPF program.")?;
    writeln!(
        out,
        "pub fn set_tunable(rodata: &mut crate::skeleton::types::rodata, name: &str, value: u64) {{\n    match name {{"
    )?;
    for row in rows {
        let field = &row[0];
        writeln!(out, "        {field:?} => rodata.{field} = value,")?;
    }
    writeln!(
        out,
        "        unknown => debug_assert!(false, \"no number {{unknown}}\"),\n    }}\n}}\n"
    )
}

/// The daemon's counters, which the BPF program does not have.
const DAEMON: [(&str, &str); 7] = [
    ("memory_processes", "memory: large processes whose pages are sampled at present"),
    ("memory_sampled", "memory: addresses that the daemon asked the kernel about"),
    (
        "memory_moved",
        "memory: pages that the daemon moved to the node on which their users settled",
    ),
    ("memory_stuck", "memory: pages that the kernel did not move: shared, pinned or gone"),
    ("memory_no_room", "memory: times that pages were not moved because the node was full"),
    (
        "memory_bound",
        "memory: times that pages were not moved because a cpuset or affinity excludes the node",
    ),
    ("daemon_us", "microseconds of CPU time that the daemon used"),
];

/// Writes the BPF program's counters, and a report that contains all counters.
fn write_counters(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    let mut all = rows.to_vec();
    all.extend(DAEMON.map(|(name, meaning)| vec![name.to_owned(), format!("{meaning:?}")]));
    write_struct(out, "Counters", "What the BPF program counted, from `bpf/counters.h`.", rows)?;
    write_struct(out, "Report", "What the scheduler and its daemon counted.", &all)?;
    write_names(out, "Report", &all)?;
    writeln!(out, "impl From<&Counters> for Report {{")?;
    writeln!(out, "    fn from(counters: &Counters) -> Self {{\n        Self {{")?;
    for row in rows {
        writeln!(out, "            {}: counters.{},", row[0], row[0])?;
    }
    writeln!(out, "            ..Self::default()\n        }}\n    }}\n}}\n")
}

fn write_struct(
    out: &mut String,
    name: &str,
    about: &str,
    rows: &[Vec<String>],
) -> std::fmt::Result {
    writeln!(out, "/// {about}")?;
    writeln!(out, "#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]")?;
    writeln!(out, "#[stat(top, desc = \"what the scheduler counted since the last time\")]")?;
    writeln!(out, "#[repr(C)]\npub struct {name} {{")?;
    for row in rows {
        let [name, meaning] = &row[..] else { continue };
        writeln!(
            out,
            "    #[doc = {meaning}]\n    #[stat(desc = {meaning})]\n    pub {name}: u64,"
        )?;
    }
    writeln!(out, "}}\n\nimpl {name} {{")?;
    writeln!(out, "    /// The same counters with each pair of values combined.")?;
    writeln!(
        out,
        "    pub fn combine(&self, other: &Self, f: impl Fn(&str, u64, u64) -> u64) -> Self {{\n        Self {{"
    )?;
    for row in rows {
        let name = &row[0];
        writeln!(out, "            {name}: f({name:?}, self.{name}, other.{name}),")?;
    }
    writeln!(out, "        }}\n    }}\n}}\n")
}

fn write_names(out: &mut String, name: &str, rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(out, "impl {name} {{")?;
    writeln!(out, "    /// Names and values, in the order of the table.")?;
    writeln!(out, "    pub fn rows(&self) -> [(&'static str, u64); {}] {{\n        [", rows.len())?;
    for row in rows {
        writeln!(out, "            ({:?}, self.{}),", row[0], row[0])?;
    }
    writeln!(out, "        ]\n    }}\n")?;
    writeln!(out, "    /// What a counter means.")?;
    writeln!(out, "    pub fn meaning(name: &str) -> &'static str {{\n        match name {{")?;
    for row in rows {
        writeln!(out, "            {:?} => {},", row[0], row[1])?;
    }
    writeln!(out, "            _ => \"\",\n        }}\n    }}\n")?;
    writeln!(out, "}}\n")
}
