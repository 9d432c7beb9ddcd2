//! Programs on the host: finds them, runs them, and interprets their failures.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::VmError;

/// Folders outside of `$PATH` in which Debian keeps programs that ordinary users may run.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The program `name`, if the host has it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The program `tool`, or an error that names the package.
pub(crate) fn need(tool: &'static str, package: &'static str) -> Result<Command, VmError> {
    let program = find(tool).ok_or(VmError::Tool { tool, package })?;
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    Ok(command)
}

/// Runs `command` and returns its output. For errors, `purpose` says what it was run for.
pub(crate) fn output(command: &mut Command, purpose: &str) -> Result<String, VmError> {
    let failed = |reason: String| VmError::Failed { tool: purpose.to_owned(), reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(first_error(&String::from_utf8_lossy(&output.stderr), &output.status.to_string())))
}

/// The most useful line of `text`: the first error, else the last line, else `otherwise`.
fn first_error(text: &str, otherwise: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("E: "));
    error.or_else(|| lines().next_back()).unwrap_or(otherwise).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = need("no-such-program", "its-package").unwrap_err().to_string();
        assert!(error.contains("the package its-package"), "{error}");
    }

    #[test]
    fn a_failure_is_told_by_its_first_error() {
        assert_eq!(first_error("W: old\nE: no such host\nE: other\n", "exit 100"), "no such host");
        assert_eq!(first_error("", "exit 100"), "exit 100");
        let error = output(&mut Command::new("false"), "making nothing").unwrap_err().to_string();
        assert!(error.starts_with("making nothing failed: "), "{error}");
    }
}
