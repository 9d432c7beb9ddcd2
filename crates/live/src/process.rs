//! Makes sure that only one loader runs, and handles signals.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::LiveError;

/// The loader locks this file and writes its process number into it.
pub const LOCK: &str = "/run/scx_roost.lock";

/// Locks a file until the result is dropped. This keeps out a second loader even before the first one's scheduler is
/// loaded, or while it is loaded again: both would use the same socket for statistics.
pub fn lock(path: &Path) -> Result<File, LiveError> {
    let place = path.display().to_string();
    let failed =
        |error: std::io::Error| LiveError::File { path: place.clone(), reason: error.to_string() };
    let mut options = File::options();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            file.read_to_string(&mut process).map_err(failed)?;
            return Err(LiveError::Running { process: process.trim().to_owned(), path: place });
        }
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(file)
}

/// Returns a flag that becomes true on Ctrl-C, SIGTERM, or when the terminal is closed.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, LiveError> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let set = || ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed));
    as_nohup_has_it(set).map_err(|error| LiveError::Signals(error.to_string()))?;
    Ok(stop)
}

/// Sets signal handlers, but keeps SIGHUP ignored if it was ignored before (as under nohup).
fn as_nohup_has_it<T>(set: impl FnOnce() -> T) -> T {
    // SAFETY: SIG_IGN runs no code, and the second call restores the previous handler.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGHUP, before) };
    let done = set();
    if before == libc::SIG_IGN {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    done
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    #[test]
    fn a_second_loader_names_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        std::fs::write(&path, "of a process with a long number, 4194304\n").unwrap();
        let first = lock(&path).unwrap();
        let error = lock(&path).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::from(3));
        let text = error.to_string();
        let named = format!("(process {}; it holds {})", std::process::id(), path.display());
        assert!(text.contains(&named) && text.lines().count() == 1, "{text}");
        drop(first);
        lock(&path).unwrap();
        assert!(matches!(lock(&folder.path().join("no/lock")), Err(LiveError::File { .. })));
    }

    #[test]
    fn hangups_stay_ignored_under_nohup() {
        extern "C" fn handler(_: libc::c_int) {}
        let handler = handler as *const () as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        let set = |to| unsafe { libc::signal(libc::SIGHUP, to) };
        set(libc::SIG_IGN);
        as_nohup_has_it(|| set(handler));
        assert_eq!(set(libc::SIG_DFL), libc::SIG_IGN);
        as_nohup_has_it(|| set(handler));
        assert_eq!(set(libc::SIG_DFL), handler);
    }
}
