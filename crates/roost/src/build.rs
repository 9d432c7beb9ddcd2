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
