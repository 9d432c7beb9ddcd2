//! `roost man`: manual pages and shell completions, a settings file with every setting, and the reference page of the
//! documentation. All are generated from the program's own tables.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::error::Error;
use crate::reference;

/// Writes `roost.1`, a page for each command, `scx_roost.8`, completions for bash, zsh and fish, `roost.toml` and
/// `reference.md` to `folder`.
pub fn write(folder: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::Usage(format!("{}: {error}; give a folder that can be written", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    write_pages(&cli, "1", folder).map_err(failed)?;
    write_pages(&roost_settings::command(), "8", folder).map_err(failed)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "roost", folder).map_err(failed)?;
    }
    std::fs::write(folder.join("roost.toml"), roost_settings::example()).map_err(failed)?;
    std::fs::write(folder.join("reference.md"), reference::page(Cli::command())).map_err(failed)
}

/// Writes the page of a command, and the pages of its subcommands.
fn write_pages(command: &clap::Command, section: &str, folder: &Path) -> std::io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, section, folder)?;
    }
    let version = concat!("roost ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).section(section).source(version);
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(folder.join(man.get_filename()), laid_out(&String::from_utf8_lossy(&page)))
}

/// Keeps the line breaks of examples and lists, which `man` would otherwise fill like a paragraph.
fn laid_out(page: &str) -> String {
    // If the date is missing, `man` shows the version in its place.
    let page = page.replacen("  \"roost ", " \"\" \"roost ", 1).replace(".br\n\n.br\n", ".sp\n");
    let Some((before, rest)) = page.split_once(".SH EXTRA\n") else { return page };
    let (lines, behind) = rest.split_at(rest.find("\n.SH ").map_or(rest.len(), |at| at + 1));
    let (heading, lines) = match lines.strip_prefix("Examples:\n") {
        Some(examples) => ("EXAMPLES", examples),
        None => ("NOTES", lines),
    };
    format!("{before}.SH {heading}\n.nf\n{}\n.fi\n{behind}", lines.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let page =
            ".SH OPTIONS\nall\n.SH EXTRA\nExamples:\n  a  first\n  b  next\n.SH VERSION\nv1\n";
        let wanted =
            ".SH OPTIONS\nall\n.SH EXAMPLES\n.nf\n  a  first\n  b  next\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(laid_out(page), wanted);
        assert_eq!(laid_out("a\n.br\n\n.br\nb\n"), "a\n.sp\nb\n");
        let title = ".TH roost-top 1  \"roost 0.2.0\" \n";
        assert_eq!(laid_out(title), ".TH roost-top 1 \"\" \"roost 0.2.0\" \n");
    }
}
