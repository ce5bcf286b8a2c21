//! `cudatrace help NAME`: the same as at the prompt.

use crate::commands::script_help;
use crate::console::Messages;
use crate::{arguments, cli, repl};
use anyhow::Result;
use std::io::Write;

/// Prints documentation of names; without names, the options of the command line.
pub fn run(names: &[String], messages: &Messages) -> Result<u8> {
    if names.is_empty() {
        arguments::command(None).print_long_help()?;
    }
    for name in names {
        let text = match cli::subcommand(name) {
            Some(subcommand) => script_help::of_subcommand(subcommand).render_help().to_string(),
            None => repl::commands::help_text(name, messages)?,
        };
        // A closed pipe is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    Ok(0)
}
