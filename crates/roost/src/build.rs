//! The version and commit of this program.

use std::sync::LazyLock;

use roost_report::Build;

/// Version and commit of this program, as `build.rs` found them.
pub fn this() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("ROOST_COMMIT").map(str::to_owned),
        modified: option_env!("ROOST_MODIFIED").is_some(),
    }
}

/// The same as text for users.
pub fn shown() -> &'static str {
    static SHOWN: LazyLock<String> = LazyLock::new(|| this().shown());
    &SHOWN
}

/// Identifies the program: runs of programs with the same identity are interchangeable. It is version and commit. If
/// the sources differ from the commit, or the commit is not known, the build time is added.
pub fn identity() -> String {
    let shown = shown();
    if this().commit.is_some() && !this().modified {
        return shown.to_owned();
    }
    let built = std::env::current_exe().and_then(|program| program.metadata()?.modified());
    format!("{shown} {:?}", built.ok())
}
