//! `cudatrace man`: the manual page, from the definitions of the command line.

use crate::arguments;
use crate::commands::script_help;
use anyhow::Result;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// Prints the page as roff: `cudatrace man | man -l -`.
pub fn run() -> Result<u8> {
    std::io::stdout().write_all(page()?.as_bytes())?;
    Ok(0)
}

fn page() -> Result<String> {
    let mut out = Vec::new();
    let command = arguments::command(None).version(env!("CARGO_PKG_VERSION"));
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    Man::new(command).section("1").render(&mut out)?;
    let mut subcommands = Roff::new();
    subcommands.control("SH", ["SUBCOMMANDS"]);
    for (name, about) in script_help::all() {
        subcommands.control("TP", []);
        subcommands.text([bold(name)]);
        subcommands.text([roman(about)]);
    }
    subcommands.to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_name_and_version() {
        let page = page().expect("a page");
        let title = format!(".TH cudatrace 1  \"cudatrace {}\" ", env!("CARGO_PKG_VERSION"));
        assert!(page.lines().any(|line| line == title), "{}", page.lines().take(5).collect::<String>());
        assert!(page.contains("SUBCOMMANDS"));
    }
}
