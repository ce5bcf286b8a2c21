//! `cudatrace man`: the manual page, from the definitions of the command line.

use crate::Failure;
use crate::arguments::definition;
use crate::subcommand::{Subcommand, Subcommands};
use anyhow::Result;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// `cudatrace man`
pub const SUBCOMMAND: Subcommand =
    Subcommand::new("man", "Prints the manual page", "cudatrace man | man -l -", |invocation| {
        run(invocation.subcommands).map_err(Failure::wrong)
    });

/// Prints the page as roff: `cudatrace man | man -l -`.
fn run(subcommands: Subcommands) -> Result<u8> {
    std::io::stdout().write_all(page(subcommands)?.as_bytes())?;
    Ok(0)
}

fn page(subcommands: Subcommands) -> Result<String> {
    let mut out = Vec::new();
    let command = definition::with_subcommands(definition::command(None), subcommands);
    let command = command.version(env!("CARGO_PKG_VERSION")).mut_args(|arg| arg.hide_short_help(false));
    Man::new(command).section("1").render(&mut out)?;
    let mut section = Roff::new();
    section.control("SH", ["SUBCOMMANDS"]);
    for subcommand in subcommands.sorted() {
        section.control("TP", []);
        section.text([bold(subcommand.name)]);
        section.text([roman(subcommand.about)]);
    }
    section.to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::SUBCOMMANDS;

    #[test]
    fn the_page_has_its_name_and_version() {
        let page = page(SUBCOMMANDS).expect("a page");
        let title = format!(".TH cudatrace 1  \"cudatrace {}\" ", env!("CARGO_PKG_VERSION"));
        assert!(page.lines().any(|line| line == title), "{}", page.lines().take(5).collect::<String>());
        assert!(page.contains("SUBCOMMANDS"));
    }

    /// A wheel that pip builds from the source distribution has the page, too.
    #[test]
    fn the_page_of_the_wheel_is_this_one() {
        let file = "packaging/cudatrace.data/data/share/man/man1/cudatrace.1";
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        golden_files::compare([(file, page(SUBCOMMANDS).expect("a page"))]);
    }
}
