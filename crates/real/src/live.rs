//! Finds the live scheduler's program.

use std::path::PathBuf;

use crate::error::RealError;

/// The program that loads the live scheduler.
pub const PROGRAM: &str = "scx_roost";

/// Where `make live` puts the program, relative to the folder of this program's build profile. (The current folder is
/// not searched, because it may belong to anybody, and root runs the program.)
const BUILT: &str = "../live/release";

/// Finds the program: in the folder of this program, in `$PATH`, or where `make live` puts it.
pub fn find() -> Result<PathBuf, RealError> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(PathBuf::from));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.iter().cloned().chain(std::env::split_paths(&path));
    let built = beside.iter().map(|folder| folder.join(BUILT));
    let mut files = folders.chain(built).map(|folder| folder.join(PROGRAM));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let beside = beside
            .as_ref()
            .map_or_else(String::new, |folder| format!("{0}, {0}/{BUILT} or ", folder.display()));
        RealError::Usage(format!(
            "the live scheduler {PROGRAM} is not in {beside}$PATH: build it with `make live` \
             (clang 18 or newer, libelf, zlib; docs/live.md)"
        ))
    })
}
