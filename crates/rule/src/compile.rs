//! Compiles a rule's file into an object, which is cached by the text that the compiler sees.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use roost_policy::headers;

use crate::RuleError;

/// How rules are compiled: if possible like the kernel (wrapping integers, no strict aliasing), hardened, and with
/// likely mistakes as errors.
const FLAGS: [&str; 19] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fvisibility=default",
    "-fstack-protector-strong",
    "-fcf-protection=full",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
    "-Wall",
    "-Wno-unused",
    "-Werror=implicit-function-declaration",
    "-Werror=return-type",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=uninitialized",
    "-Werror=div-by-zero",
    "-Werror=overflow",
];

/// Excludes floats, which neither the kernel nor BPF has.
const NO_FLOATS: &str = "-mgeneral-regs-only";

/// A compiled rule.
pub struct Object {
    /// Path of the object.
    pub path: PathBuf,
    /// SHA-256 of the compiled text, in hexadecimal.
    pub sha256: String,
}

/// The object of the rule in `path`, which the user called `file` and which replaces these functions.
pub fn object(file: &str, path: &Path, replaces: &[String]) -> Result<Object, RuleError> {
    let names: Vec<&str> = replaces.iter().map(String::as_str).collect();
    let cache = |why: String| RuleError::Cache { file: file.to_owned(), why };
    let folder = folder().map_err(cache)?;
    let failed = |error: std::io::Error| cache(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    // Everything is written elsewhere and then renamed, because another roost may compile the same rule at this time.
    let aside = tempfile::tempdir_in(&folder).map_err(failed)?;
    sources(aside.path(), &names, path).map_err(failed)?;
    let seen = run(file, compiler(aside.path()).arg("-E").arg("-P"))?;
    let sha256 = hash(file, &seen.stdout)?;
    let object = folder.join(format!("{sha256}.so"));
    if !object.is_file() {
        let new = aside.path().join("rule.so");
        run(file, compiler(aside.path()).arg("-o").arg(&new))?;
        std::fs::rename(&new, &object).map_err(failed)?;
    }
    Ok(Object { path: object, sha256 })
}

/// The user's folder of compiled rules.
fn folder() -> Result<PathBuf, String> {
    roost_kept::folder_of_user()
        .map(|folder| folder.join("rules"))
        .ok_or_else(|| "there is none".to_owned())
}

/// Writes the sources: headers that only declare `names`, and the bindings.
fn sources(folder: &Path, names: &[&str], rule: &Path) -> std::io::Result<()> {
    std::fs::create_dir(folder.join("roost"))?;
    for (name, text) in headers::with_replaced(names, &rule.display().to_string()) {
        std::fs::write(folder.join("roost").join(name), text)?;
    }
    std::fs::write(folder.join("bindings.c"), headers::BINDINGS)?;
    std::fs::write(folder.join("own_rule.c"), headers::OWN_RULE)
}

fn compiler(folder: &Path) -> Command {
    let mut command = Command::new("cc");
    command.args(FLAGS).arg("-I").arg(folder);
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        command.arg(NO_FLOATS);
    }
    if !cfg!(target_arch = "x86_64") {
        // This is the only flag that compilers for other processors refuse.
        command.arg("-fcf-protection=none");
    }
    command.arg(folder.join("own_rule.c")).env("LC_ALL", "C");
    command
}

/// Runs the compiler. Its complaint about the file becomes the error.
fn run(file: &str, command: &mut Command) -> Result<Output, RuleError> {
    let output = command.output().map_err(|why| match why.kind() {
        ErrorKind::NotFound => RuleError::NoCompiler { file: file.to_owned(), why },
        _ => RuleError::Compiler(format!("{file}: cc cannot be run: {why}")),
    })?;
    match output.status.success() {
        true => Ok(output),
        false => Err(RuleError::Compiler(told(file, &String::from_utf8_lossy(&output.stderr)))),
    }
}

/// The first error of the compiler in one line, and the number of further errors.
fn told(file: &str, text: &str) -> String {
    let is_error = |line: &&str| line.contains("error: ");
    let mut errors = text.lines().filter(is_error);
    let Some(first) = errors.next() else {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        return format!("{file}: cc failed: {last}");
    };
    let more = match errors.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    // The user knows the file by the name that was given, not by its full path.
    let (place, error) = first.split_once(" error: ").unwrap_or(("", first));
    let place = place.trim_end_matches(" fatal");
    let base = Path::new(file).file_name().map(|name| name.to_string_lossy().into_owned());
    let at = base.and_then(|base| place.split_once(&base).map(|(_, rest)| rest.to_owned()));
    match at {
        Some(at) => format!("{file}{at} {error}{more}"),
        None => format!("{file}: {} {error}{more}", place.trim()),
    }
}

/// SHA-256 of the text that the compiler sees, of the flags, and of the compiler's version.
fn hash(file: &str, seen: &[u8]) -> Result<String, RuleError> {
    let version = run(file, Command::new("cc").arg("--version"))?;
    Ok(roost_kept::sha256(&[seen, FLAGS.join(" ").as_bytes(), &version.stdout].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_told_with_the_name_that_was_given() {
        let text = "In file included from /x/roost/own_rule.h:9,\n/home/u/rules/my.h:7:12: error: 'x' undeclared\n\
                    /home/u/rules/my.h:9:1: error: expected ';'\n";
        assert_eq!(told("rules/my.h", text), "rules/my.h:7:12: 'x' undeclared (and 1 more)");
        assert_eq!(told("my.h", "\ncc1: out of memory\n"), "my.h: cc failed: cc1: out of memory");
        let other = told("my.h", "/x/other.h:3:1: error: no such type\n");
        assert_eq!(other, "my.h: /x/other.h:3:1: no such type");
    }
}
