//! Runs the scripts of the command line.

use crate::Failure;
use crate::cli::Cli;
use crate::console::Messages;
use crate::run::run_scripts;
use crate::script;

/// Traces as the command line specifies; returns the exit status.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    let scripts = script::load_all(cli, messages).map_err(Failure::wrong)?;
    script::check_given(&scripts, cli, messages).map_err(Failure::wrong)?;
    run_scripts(scripts, cli, messages, None)
}
