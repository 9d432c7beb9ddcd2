//! `roost man`: manual pages and shell completions from the command lines, a settings file with every setting, and the
//! reference of the documentation.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::error::Error;
use crate::reference;

/// Writes `roost.1`, a page for each of its commands, `scx_roost.8`, completions for bash, zsh and fish,
/// `roost.toml` and `reference.md` to `folder`.
pub fn write(folder: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::Usage(format!("{}: {error}; give a folder that can be written", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "roost", folder).map_err(failed)?;
    }
    let mut page = Vec::new();
    Man::new(roost_settings::command()).section("8").render(&mut page).map_err(failed)?;
    std::fs::write(folder.join("scx_roost.8"), page).map_err(failed)?;
    std::fs::write(folder.join("roost.toml"), roost_settings::example()).map_err(failed)?;
    std::fs::write(folder.join("reference.md"), reference::page(Cli::command())).map_err(failed)
}
