//! From how a run ended to the exit status.

use crate::Failure;
use crate::messages::Messages;
use anyhow::anyhow;
use runtime::process::Child;
use runtime::{Ending, Reason};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Says what went wrong at the end; gives the exit status.
pub fn status(ending: &Ending, child: Option<Child>, messages: &Messages) -> Result<u8, Failure> {
    messages.detail(|| {
        let rest =
            if ending.detached.left_behind { "; the kernel's grace period goes on behind us" } else { "" };
        format!("detached in {:?}{rest}", ending.detached.after)
    });
    if ending.unknown > 0 {
        messages.lost(&format!("{} records could not be read; this is a bug in cudatrace", ending.unknown));
    }
    if ending.after_exit > 0 {
        messages.lost(&format!("{} events came after exit() and were not printed", ending.after_exit));
    }
    match &ending.reason {
        Reason::Exit(code) => Ok(*code as u8),
        Reason::Sink(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Reason::Sink(error) => Err(Failure::wrong(anyhow!(
            "cannot write the output: {error}; what was still to be said is lost"
        ))),
        Reason::Kernel(error) => Err(Failure::loading(anyhow!("the kernel failed us in mid-run: {error}"))),
        Reason::TargetsEnded => match child {
            Some(mut child) => child.wait().map(as_shell).map_err(Failure::loading),
            None => Ok(0),
        },
        Reason::Signal(_) | Reason::Watch => Ok(0),
    }
}

/// The exit status as a shell gives it: 128 and the signal's number for a program that was killed.
fn as_shell(status: ExitStatus) -> u8 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
}
