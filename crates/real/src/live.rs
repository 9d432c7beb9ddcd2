//! Where the live scheduler's program is.

use std::path::PathBuf;

use crate::error::RealError;

/// The program that loads the live scheduler.
pub const PROGRAM: &str = "scx_roost";

/// Where `make live` puts it, below the repository and beside the folder of this program's profile.
const BUILT: [&str; 2] = ["target/live/release", "../live/release"];

/// Finds it: beside this program, in `$PATH`, or where `make live` puts it.
pub fn find() -> Result<PathBuf, RealError> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(PathBuf::from));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.iter().cloned().chain(std::env::split_paths(&path));
    let built = std::iter::once(PathBuf::from(BUILT[0]))
        .chain(beside.iter().map(|folder| folder.join(BUILT[1])));
    let mut files = folders.chain(built).map(|folder| folder.join(PROGRAM));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let beside = beside.map_or_else(String::new, |folder| format!("{}, ", folder.display()));
        RealError::Usage(format!(
            "the live scheduler {PROGRAM} is not in {beside}$PATH or {}: build it with `make live` \
             (clang 18 or newer, libelf, zlib; docs/live.md)",
            BUILT[0]
        ))
    })
}
