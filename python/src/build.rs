//! The version and commit of this package.

use roost_report::Build;

/// Version and commit of this package, as `build.rs` found them.
pub fn this() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("ROOST_COMMIT").map(str::to_owned),
        modified: option_env!("ROOST_MODIFIED").is_some(),
    }
}

/// Identifies this package. Runs of packages or programs with the same identity are interchangeable.
pub fn identity() -> String {
    let build = this();
    match build.commit.is_some() && !build.modified {
        true => build.shown(),
        false => format!("{} {}", build.shown(), env!("ROOST_BUILT")),
    }
}
