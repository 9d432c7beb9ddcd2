//! Which roost this is.

use std::sync::LazyLock;

use roost_report::Build;

/// This program, as `build.rs` found it.
pub fn this() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("ROOST_COMMIT").map(str::to_owned),
        modified: option_env!("ROOST_MODIFIED").is_some(),
    }
}

/// The same for people.
pub fn shown() -> &'static str {
    static SHOWN: LazyLock<String> = LazyLock::new(|| this().shown());
    &SHOWN
}

/// Whose runs stand for each other: version and commit. If the sources differed from the commit, or it is not
/// known, also when the program was built, because many programs are called so.
pub fn identity() -> String {
    let shown = shown();
    if this().commit.is_some() && !this().modified {
        return shown.to_owned();
    }
    let built = std::env::current_exe().and_then(|program| program.metadata()?.modified());
    format!("{shown} {:?}", built.ok())
}
