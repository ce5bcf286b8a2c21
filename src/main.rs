//! `cudatrace`: a scriptable tracer for CUDA. The only place that depends on every crate.
// Nothing of a program can be reached from elsewhere: `pub` means "beyond this file" here.
#![allow(unreachable_pub)]

mod arguments;
mod bundled;
mod cli;
mod commands;
mod console;
mod export;
mod gpu;
mod imports;
mod kernel_catalog;
mod metrics;
mod pacing;
mod patch_sites;
mod process_tree;
mod python;
mod repl;
mod run;
mod script;
mod subcommand;
mod sudoer;
mod symbolize;
mod terminal;

use arguments::CommandLine;
use clap::error::ErrorKind;
use commands::{LISTINGS, SUBCOMMANDS};
use std::process::ExitCode;
use subcommand::Invocation;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status for an error on the command line or in the script.
pub const WRONG: u8 = 1;
/// Exit status of a trace that has lost records, with `--fail-on-loss`, or whose results may be wrong.
const LOST: u8 = 3;

fn main() -> ExitCode {
    runtime::started::serve_if_seccomp_server();
    // A file size limit then causes a write error, like a full disk.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    runtime::raise_file_limit();
    let mut line = match arguments::parse(std::env::args_os(), SUBCOMMANDS, LISTINGS) {
        Ok(line) => line,
        Err(error) => return usage(&error),
    };
    script::attach_values(&mut line.cli);
    script::take_help(&mut line.cli);
    if line.subcommand.is_none() && !LISTINGS.iter().any(|listing| (listing.is_requested)(&line.cli)) {
        script::choose_summary(&mut line.cli);
    }
    sudoer::choose_user(&mut line.cli);
    run::setup::choose_engine(&mut line.cli);
    let messages = line.cli.messages();
    let CommandLine { cli, matches, subcommand } = &line;
    let invocation =
        Invocation { cli, matches, subcommand: *subcommand, subcommands: SUBCOMMANDS, messages: &messages };
    match dispatch(&invocation) {
        Ok(status) => ExitCode::from(status),
        // The reader of the output has closed the pipe.
        Err(failure) if is_broken_pipe(&failure.error) => ExitCode::SUCCESS,
        Err(failure) => {
            messages.error(&failure.error);
            ExitCode::from(failure.status)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// Prints help, version or a usage error. A closed pipe is not an error.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    ExitCode::from(if asked_for { 0 } else { WRONG })
}

/// The version, for a release build with its commit.
fn version() -> String {
    match option_env!("CUDATRACE_COMMIT") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn dispatch(invocation: &Invocation) -> Result<u8, Failure> {
    let Invocation { cli, messages, .. } = *invocation;
    cli.without_effect.iter().for_each(|note| messages.note(note));
    cli.missing_files.iter().for_each(|file| messages.warning(file));
    console::unknown_color().iter().for_each(|variable| messages.warning(variable));
    if cli.version {
        println!("cudatrace {}", version());
        return Ok(0);
    }
    if let Some(listing) = LISTINGS.iter().find(|listing| (listing.is_requested)(cli)) {
        return (listing.run)(invocation);
    }
    if cli.script_help {
        return commands::script_help::run(invocation);
    }
    match invocation.subcommand {
        Some(subcommand) => (subcommand.run)(invocation),
        None if cli.interactive || !cli.has_script() => repl::run(cli, messages),
        None => commands::trace::run(cli, messages),
    }
}

/// The reason why nothing can be traced, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// Reason.
    pub error: anyhow::Error,
    /// 1 for errors of the user, 255 if the kernel refuses something.
    pub status: u8,
}

impl Failure {
    /// An error in the script or on the command line.
    pub fn wrong(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), status: WRONG }
    }

    /// The kernel has refused something.
    pub fn loading(error: impl Into<anyhow::Error>) -> Failure {
        Failure { error: error.into(), status: 255 }
    }
}
