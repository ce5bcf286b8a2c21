//! `cudatrace help NAME`: the same as at the prompt.

use crate::arguments::definition;
use crate::commands::completion;
use crate::subcommand::{Invocation, Subcommand};
use crate::{Failure, repl};
use anyhow::Result;
use std::io::Write;

/// `cudatrace help`
pub const SUBCOMMAND: Subcommand = Subcommand {
    summary: Some(("help WORD", "help on a function, script, constant, message code ...")),
    examples: "Examples:\n  cudatrace help cuLaunchKernel\n  cudatrace help cuda:alloc hist CUDA_ERROR_NOT_READY\n  cudatrace help functions probes",
    most_words: usize::MAX,
    complete: |word| completion::after_prompt(word, ":help "),
    ..Subcommand::new(
        "help",
        "Shows help on a function, built-in, probe, constant, script, subcommand or message code",
        "cudatrace help WORD...",
        |invocation| run(invocation).map_err(Failure::wrong),
    )
};

/// Prints documentation of names; without names, the options of the command line.
fn run(invocation: &Invocation) -> Result<u8> {
    if invocation.words().is_empty() {
        let command = definition::command(None);
        definition::with_subcommands(command, invocation.subcommands).print_long_help()?;
    }
    for name in invocation.words() {
        let text = match invocation.subcommands.find(name) {
            Some(subcommand) => definition::help(subcommand).render_help().to_string(),
            None => repl::commands::help_text(name, invocation.cli, invocation.messages)?,
        };
        // A closed pipe is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    Ok(0)
}
