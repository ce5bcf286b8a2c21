//! `cudatrace help NAME`: the same as at the prompt.

use crate::{arguments, repl};
use anyhow::Result;
use std::io::Write;

/// Says what the names are; without one, what the command line takes.
///
/// # Errors
/// Nobody knows a name.
pub fn run(names: &[String]) -> Result<u8> {
    if names.is_empty() {
        arguments::command(None).print_long_help()?;
    }
    for name in names {
        // A reader that went away is no mistake.
        let _ = std::io::stdout().write_all(repl::help::on(name)?.as_bytes());
    }
    Ok(0)
}
