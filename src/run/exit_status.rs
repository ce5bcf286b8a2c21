//! The exit status of a run.

use crate::Failure;
use crate::console::Messages;
use crate::run::extender::Extender;
use anyhow::anyhow;
use linux::proc;
use runtime::kernel::signals::StopSignals;
use runtime::started::Child;
use runtime::{AttachError, DamagedMemory, Ending, Reason, Session};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Removing up to this many perf events takes at most two seconds, and is not reported.
const FEW_EVENTS: usize = 16;

/// Reports failures at the end; returns the exit status. If neither the program, the script nor the user ended the
/// trace, the program first runs to its end, or until one of the signals.
pub fn status(
    ending: &Ending,
    program: Option<(Child, &StopSignals)>,
    messages: &Messages,
) -> Result<u8, Failure> {
    messages.detail(|| format!("detached in {:?}", ending.detached.after));
    if ending.detached.left_behind && ending.detached.events > FEW_EVENTS {
        messages.note("this kernel removes uprobes one at a time: process `ct-detach` continues with that");
    }
    if let Some(memory) = &ending.damage {
        messages.error(&damaged(memory));
    } else if ending.unknown > 0 {
        messages.lost(&format!("{} records could not be read; this is a bug in cudatrace", ending.unknown));
    }
    if ending.unprinted > 0 {
        messages.lost(&format!(
            "{} prints of maps were still queued at the end and were left out",
            ending.unprinted
        ));
    }
    if ending.after_exit > 0 {
        messages.lost(&format!("{} events came after exit() and were not printed", ending.after_exit));
    }
    if ending.commands_skipped > 0 {
        messages.lost(&format!(
            "{} commands of system() were still queued at the end and were not run",
            ending.commands_skipped
        ));
    }
    match &ending.reason {
        Reason::Exit(code) => Ok(*code as u8),
        Reason::Sink(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            program.map_or(Ok(0), |(child, signals)| outlive(child, signals))
        }
        Reason::Sink(error) => {
            let error = anyhow!("cannot write the output: {error}; the remaining output is lost");
            failed(Failure::wrong(error), program, messages)
        }
        Reason::Kernel(error) => {
            let error = anyhow!("the kernel failed during the run: {error}");
            failed(Failure::loading(error), program, messages)
        }
        Reason::Damaged => match program {
            Some((child, signals)) => {
                messages.note("the trace has ended; the program continues");
                outlive(child, signals)
            }
            None => Ok(0),
        },
        Reason::TargetsEnded => match program {
            Some((mut child, _)) => {
                let status = child.wait().map_err(Failure::loading)?;
                if let Some(signal) = status.signal() {
                    messages.note(&format!("the program was killed by {}", signal_name(signal)));
                }
                Ok(as_shell(status))
            }
            None => Ok(0),
        },
        Reason::TestsDone { failed } => Ok(u8::from(*failed > 0)),
        Reason::Signal(_) | Reason::Watch => Ok(0),
    }
}

/// The error of memory that a traced process has damaged.
fn damaged(memory: &DamagedMemory) -> anyhow::Error {
    let pids: Vec<String> = memory.pids.iter().map(u32::to_string).collect();
    let who = match &pids[..] {
        [] => "a traced process has damaged the memory that it shared with cudatrace".to_owned(),
        [pid] => format!("process {pid} has damaged the memory that it shares with cudatrace"),
        [..] => format!(
            "one of the processes {} has damaged the memory that they share with cudatrace",
            pids.join(", ")
        ),
    };
    anyhow!(
        "{who}: {}. It is traced no more, and results may be wrong; without `--in-process` no memory is shared",
        memory.damage
    )
}

/// The exit status of a run whose results may be wrong: that of the program, if it has failed.
pub fn of_results(status: u8, ending: &Ending, extender: &Extender) -> u8 {
    let is_wrong = ending.damage.is_some() || ending.ignored_returns > 0 || extender.has_untraced();
    if status == 0 && is_wrong { crate::LOST } else { status }
}

/// Reports processes whose tracing ended early since they have other rights than the others by now.
pub fn report_expelled(session: &Session, messages: &Messages) {
    for (pid, how) in session.expelled() {
        messages.lost(&format!("process {pid} was traced no more from some moment on: {how}"));
    }
}

/// Reports immediately why the trace has ended, and lets the program run to its end.
fn failed(
    failure: Failure,
    program: Option<(Child, &StopSignals)>,
    messages: &Messages,
) -> Result<u8, Failure> {
    let Some((child, signals)) = program else { return Err(failure) };
    messages.error(&failure.error);
    messages.note("the trace has ended; the program continues");
    outlive(child, signals)?;
    Ok(failure.status)
}

/// Waits for the end of the program, and returns its status; a signal that would have ended the trace ends both.
fn outlive(mut child: Child, signals: &StopSignals) -> Result<u8, Failure> {
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut waits = [child.pidfd().as_raw_fd(), signals.fd()].map(readable);
    // SAFETY: pointer and length of one array.
    while unsafe { libc::poll(waits.as_mut_ptr(), 2, -1) } < 0 {}
    match child.try_wait() {
        Some(status) => Ok(as_shell(status)),
        None => Ok(signals.take().map_or(0, |signal| 128 + signal as u8)),
    }
}

/// Reports that there is no output, because most likely no probe was hit.
pub fn report_no_output(ending: &Ending, probes: usize, messages: &Messages) {
    let is_complete = matches!(ending.reason, Reason::TargetsEnded | Reason::Signal(_));
    match probes {
        _ if !is_complete => {}
        0 => {}
        1 => messages.note("the probe printed and kept nothing: was it hit?"),
        many => messages.note(&format!("none of {many} probes printed or kept anything: were they hit?")),
    }
}

/// Largest number of remaining processes that are named in a message.
const NAMED: usize = 3;

/// Reports children of traced processes that still run, as of a command that moves to the background. Processes of
/// `-p` are excluded.
pub fn report_survivors(ending: &Ending, session: &Session, pids: &[u32], messages: &Messages) {
    if !matches!(ending.reason, Reason::TargetsEnded) || !proc::sees_all_pids() {
        return;
    }
    let alive: Vec<u32> =
        session.traced().into_iter().filter(|pid| !pids.contains(pid) && !proc::has_ended(*pid)).collect();
    let name = |&pid: &u32| Some(format!("{pid} ({})", proc::comm(pid)?.escape_debug()));
    let names: Vec<String> = alive.iter().filter_map(name).take(NAMED).collect();
    if let Some(first) = alive.first() {
        let more =
            if alive.len() > NAMED { format!(" and {} more", alive.len() - NAMED) } else { String::new() };
        let names = names.join(", ");
        messages.note(&format!(
            "its children continue and are no longer traced: {names}{more}; `-p {first}` traces one"
        ));
    }
}

/// The failure if nothing was attached: an interruption has the status of a shell, otherwise it is the kernel's
/// reason.
pub fn not_attached(error: AttachError, signals: &StopSignals) -> Failure {
    match signals.take() {
        Some(signal) if matches!(error, AttachError::Stopped { .. }) => {
            Failure { status: 128 + signal as u8, ..Failure::loading(error) }
        }
        _ => Failure::loading(error),
    }
}

/// `SIGSEGV`, or `signal 34` for one without a name.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// `, killed by SIGSEGV`, ` with status 0`: the end of a sentence.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (None, Some(signal)) => format!(", killed by {}", signal_name(signal)),
        (code, _) => format!(" with status {}", code.unwrap_or_default()),
    }
}

/// The exit status as in a shell: 128 plus the signal's number for a killed program.
fn as_shell(status: ExitStatus) -> u8 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
}
