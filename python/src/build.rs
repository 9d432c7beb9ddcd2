//! Which roost this is.

use roost_report::Build;

/// This package, as `build.rs` found it.
pub fn this() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("ROOST_COMMIT").map(str::to_owned),
        modified: option_env!("ROOST_MODIFIED").is_some(),
    }
}

/// Whose runs stand for each other: as the program says of itself where its sources are those of a commit.
pub fn identity() -> String {
    let build = this();
    match build.commit.is_some() && !build.modified {
        true => build.shown(),
        false => format!("{} {}", build.shown(), env!("ROOST_BUILT")),
    }
}
