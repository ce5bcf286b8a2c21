//! `cudatrace man`: the manual page, from the definitions of the command line.

use crate::arguments;
use crate::commands::script_help;
use anyhow::Result;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// Prints the page as roff: `cudatrace man | man -l -`.
///
/// # Errors
/// Standard output takes nothing.
pub fn run() -> Result<u8> {
    let mut out = Vec::new();
    let command = arguments::command(None).mut_args(|arg| arg.hide_short_help(false));
    Man::new(command).section("1").render(&mut out)?;
    let mut subcommands = Roff::new();
    subcommands.control("SH", ["SUBCOMMANDS"]);
    for (name, about) in script_help::all() {
        subcommands.control("TP", []);
        subcommands.text([bold(name)]);
        subcommands.text([roman(about)]);
    }
    subcommands.to_writer(&mut out)?;
    std::io::stdout().write_all(&out)?;
    Ok(0)
}
