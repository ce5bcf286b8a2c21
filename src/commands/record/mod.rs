//! `cudatrace record`: records every CUDA call of a program to a file, with a live line and a summary at the end.
//!
//! Runs a built-in script: `span()` for all calls, with more attributes for some. `--kernel` adds the ioctls of NVIDIA's driver,
//! `--gpu` the work of the GPU.
//! With `--export`, the recording is written there, and not to the default file.

mod environment;
mod samples;

use crate::Failure;
use crate::bundled;
use crate::cli::Cli;
use crate::export::ExportSummary;
use crate::export::kinds::{ExportRequest, KINDS};
use crate::run::outputs::RecordingOutputs;
use crate::script::{self, Script};
use crate::subcommand::{Invocation, Subcommand};
use anyhow::{Context, Result, bail};
use clap::Args;
use lang::Source;
use linux::timer::Timer;
use report::recording::summary;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("record.ct");
const PROCESS_END: &str = include_str!("process_end.ct");
const KERNEL: &str = include_str!("kernel.ct");
/// A call has the span of the first clause, so that this is for all that the others leave out.
const ALL: &str = "uretprobe:libcuda:cu*, uretprobe:libcudart:cuda* { span(); }\n";
const GPU: &str = include_str!("gpu.ct");
/// Where a span of [`SCRIPT`] tells the correlation id of its launch.
const CORR: &str = " /*corr*/";
/// Kinds of calls whose spans may have a stack, at `/*stack:KIND*/` in [`SCRIPT`].
const STACKS: [&str; 4] = ["launch", "alloc", "copy", "sync"];
/// Frames of a stack.
const FRAMES: u32 = 64;
/// Default folder of recordings.
pub const FOLDER: &str = "traces";
/// Period of the live line.
const TICK: Duration = Duration::from_millis(500);

/// `cudatrace record`
pub const SUBCOMMAND: Subcommand = Subcommand {
    summary: Some(("record [-p PID | -- COMMAND]", "record every CUDA call")),
    examples: "Examples:\n  cudatrace record -- python3 train.py\n  cudatrace record --kernel -p 4242\n  \
               cudatrace record --export perfetto=trace.pftrace -- python3 train.py\n\
               Then: cudatrace report --html trace.html",
    most_words: usize::MAX,
    options: &[
        "pids",
        "in_process",
        "in_kernel",
        "no_children",
        "command",
        "wait",
        "export",
        "rotate",
        "trace_per",
        "fail_on_loss",
        "quiet",
        "verbose",
        "user",
        "libs",
        "debuginfo",
        "argv",
    ],
    // Options of tracing for tests.
    hidden_options: &["check", "dry_run", "debug", "emit", "no_feature", "output"],
    own_options: RecordOptions::augment_args,
    ..Subcommand::new(
        "record",
        "Records every driver and runtime call, and prints a summary",
        "cudatrace record [OPTIONS] [-p PID | -- COMMAND...]",
        run,
    )
};

/// Options that only `record` has: elsewhere their names are free for scripts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of record")]
struct RecordOptions {
    /// Also record what libraries ask all the time about their own state, such as cudaGetDevice: three of four calls of PyTorch
    #[arg(long)]
    all: bool,

    /// Also record the ioctls of NVIDIA's driver, by name
    #[arg(long)]
    kernel: bool,

    /// Also record the work of the GPU: kernels, copies and fills; loads a library into the program
    #[arg(long)]
    gpu: bool,

    /// Also record the stacks of calls: launch, alloc, copy, sync (default: launch,alloc,sync)
    #[arg(
        long,
        value_name = "KINDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "launch,alloc,sync",
        value_delimiter = ',',
        value_parser = STACKS
    )]
    stacks: Vec<String>,

    /// The directory of the recording (default: traces)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Records as the command line specifies; returns the exit status.
fn run(invocation: &Invocation) -> Result<u8, Failure> {
    let Invocation { cli, messages, .. } = *invocation;
    let options: RecordOptions = invocation.own_options()?;
    if let Some(word) = cli.words.get(1) {
        let is_stack = !options.stacks.is_empty() && word.split(',').all(|word| STACKS.contains(&word));
        let way_out = match bundled::find(word) {
            _ if is_stack => format!("write `--stacks={word}`"),
            Some(_) => format!(
                "it records all calls; `cudatrace {word} --export jsonl=FILE` exports the spans and maps of the script"
            ),
            None => format!("write `cudatrace record -- {word} ...` to run a program, or `-p PID`"),
        };
        return Err(Failure::wrong(anyhow::anyhow!("record takes no `{word}`: {way_out}")));
    }
    if let Some(path) = &cli.output {
        return Err(Failure::wrong(anyhow::anyhow!(
            "-o is for what a script prints, and record prints nothing: write `--export arrow={0}`, or `--export jsonl={0}` for JSON lines, or `--out DIR`",
            path.display()
        )));
    }
    let exports = exports(cli, &options).map_err(Failure::wrong)?;
    let files = exports.clone();
    let tally: Rc<RefCell<summary::Summary>> = Rc::default();
    let (seen, shown) = (tally.clone(), tally.clone());
    let samples = samples::start().context("cannot make a thread").map_err(Failure::loading)?;
    let (mut processes, samples) = samples;
    let show = std::io::stderr().is_terminal() && !cli.quiet;
    let recording = RecordingOutputs {
        exports,
        observer: Box::new(move |record| {
            seen.borrow_mut().add(record);
            processes.see(record);
        }),
        environment: environment::of_machine(cli.pids.first().copied()),
        samples,
        live: Box::new(move |summaries| {
            Ok(Box::new(LiveLine::new(shown, summaries, show)?) as Box<dyn Watch>)
        }),
    };
    let mut text = SCRIPT.replace(CORR, if options.gpu { ", corr = corr" } else { "" });
    for kind in STACKS {
        let stack = match options.stacks.iter().any(|wanted| wanted == kind) {
            true => format!("stack = ustack({FRAMES})"),
            false => String::new(),
        };
        let after_others = if stack.is_empty() { String::new() } else { format!(", {stack}") };
        text = text
            .replace(&format!("/*stack:{kind} alone*/"), &stack)
            .replace(&format!("/*stack:{kind}*/"), &after_others);
    }
    // Tracepoints require read access to tracefs; without them, calls are still recorded.
    let has_tracepoint =
        || runtime::kernel::tracefs::tracepoint_format("sched", "sched_process_exit").is_ok();
    if cli.in_process || has_tracepoint() {
        text += PROCESS_END;
    }
    if options.all {
        text += ALL;
    }
    if options.kernel {
        text += KERNEL;
    }
    if options.gpu {
        text += GPU;
    }
    let script = Script::alone(Source::new("record", text), &[]);
    let script = script::import(script, messages).map_err(Failure::wrong)?;
    let status = crate::run::run_scripts(vec![script], cli, messages, Some(recording))?;
    if !cli.dry_run && !cli.check {
        finish(&tally.borrow(), &files, cli.quiet);
    }
    Ok(status)
}

/// The requested exports, or a file named after the time.
fn exports(cli: &Cli, options: &RecordOptions) -> Result<Vec<ExportRequest>> {
    if !cli.export.is_empty() {
        if options.out.is_some() {
            bail!("--out is the folder of the default recording; with --export name the file there");
        }
        return Ok(cli.export.clone());
    }
    let folder = options.out.as_deref().unwrap_or(Path::new(FOLDER));
    if options.out.is_none() && !cli.dry_run && !cli.check {
        check_folder(folder)?;
    }
    let now = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string();
    let pid = cli.pids.first().copied();
    let rank = crate::export::otlp::process::rank(pid).map_or(String::new(), |rank| format!("_rank{rank}"));
    let path = (0..).map(|number| match number {
        0 => folder.join(format!("trace_{now}{rank}.arrows")),
        number => folder.join(format!("trace_{now}{rank}_{number}.arrows")),
    });
    let path = path.into_iter().find(|path| path.symlink_metadata().is_err()).context("no name is left")?;
    let kind = KINDS.iter().find(|kind| kind.name == "arrow").context("arrow is a kind of export")?;
    Ok(vec![ExportRequest { kind, dest: path.to_string_lossy().into_owned(), only_new: true }])
}

/// Checks that the default folder is not a link of another user, who could redirect the recording.
fn check_folder(folder: &Path) -> Result<()> {
    let Ok(found) = folder.symlink_metadata() else { return Ok(()) };
    let own = rustix::process::geteuid().as_raw();
    if found.is_symlink() && ![0, own].contains(&found.uid()) {
        let folder = folder.display();
        bail!("`{folder}` is a link that belongs to user {}: name a folder with --out DIR", found.uid());
    }
    Ok(())
}

/// Prints a summary of the recording, and how to use it.
fn finish(tally: &summary::Summary, exports: &[ExportRequest], quiet: bool) {
    if quiet {
        return;
    }
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "\n{}", tally.short().trim_end());
    let ticks = linux::proc::Usage::own().map_or(0, |usage| usage.cpu_ticks);
    let ms = ticks * 1000 / rustix::param::clock_ticks_per_second();
    let _ = writeln!(out, "cudatrace     used {}.{:02} s of processor time", ms / 1000, ms % 1000 / 10);
    for ExportRequest { kind, dest, .. } in exports.iter().filter(|request| request.dest != "-") {
        if let Some(look) = kind.look {
            let _ = writeln!(out, "recording     {dest}");
            let _ = writeln!(out, "look at it:   {}", look.replace("FILE", dest));
        }
    }
}

/// The line that shows progress.
struct LiveLine {
    timer: Timer,
    tally: Rc<RefCell<summary::Summary>>,
    summaries: Vec<Arc<ExportSummary>>,
    show: bool,
    start: Instant,
    last: (Instant, u64),
}

impl LiveLine {
    fn new(
        tally: Rc<RefCell<summary::Summary>>,
        summaries: Vec<Arc<ExportSummary>>,
        show: bool,
    ) -> Result<LiveLine> {
        let timer = Timer::new(TICK, TICK).context("cannot make a timer")?;
        Ok(LiveLine { timer, tally, summaries, show, start: Instant::now(), last: (Instant::now(), 0) })
    }

    fn line(&mut self, session: &Session) -> String {
        let records = self.tally.borrow().records;
        let (then, before) = std::mem::replace(&mut self.last, (Instant::now(), records));
        let rate = (records - before) as f64 / then.elapsed().as_secs_f64().max(1e-3);
        let bytes: u64 = self.summaries.iter().map(|summary| summary.bytes()).sum();
        let dropped: u64 = self.summaries.iter().map(|summary| summary.dropped()).sum();
        let lost = dropped + session.lost_events();
        let seconds = self.start.elapsed().as_secs();
        format!(
            "{:>3}:{:02}  {records} events  {rate:.0}/s  {lost} lost  {}",
            seconds / 60,
            seconds % 60,
            summary::size(bytes)
        )
    }
}

impl Watch for LiveLine {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.timer.take();
        if self.show {
            let line = self.line(session);
            // A terminal that cannot be written is not a reason to stop.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
        Next::Continue
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        if self.show {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_a_link_of_another_user_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join(FOLDER);
        assert!(check_folder(&link).is_ok(), "it is not there yet");
        std::os::unix::fs::symlink(dir.path(), &link).expect("linked");
        assert!(check_folder(&link).is_ok(), "our own link");
        if !runtime::kernel::features::is_root() {
            return eprintln!("skipped: needs root");
        }
        std::os::unix::fs::lchown(&link, Some(65534), None).expect("root may");
        assert!(check_folder(&link).expect_err("of nobody").to_string().contains("user 65534"));
    }
}
