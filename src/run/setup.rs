//! The command line to the parts of a run: processes, command, kernel, sink.

use crate::Failure;
use crate::bundled;
use crate::cli::{Cli, Format};
use crate::console::Messages;
use crate::export::file::cannot_write;
use anyhow::{anyhow, bail};
use linux::proc;
use report::Sink;
use report::sink::{JsonSink, TextSink};
use runtime::{FeatureError, Kernel};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use wire::Features;

/// The sink of format `-f` to the file of `-o`, otherwise to `out`; messages about the run go to `notices`.
/// `quiet` omits the number of attached probes.
pub fn sink(
    cli: &Cli,
    out: Box<dyn Write>,
    notices: Box<dyn Write>,
    quiet: bool,
) -> anyhow::Result<Box<dyn Sink>> {
    let writer: Box<dyn Write> = match &cli.output {
        Some(path) => Box::new(File::create(path).map_err(|error| cannot_write(path, &error))?),
        None => out,
    };
    Ok(format(cli, BufWriter::with_capacity(64 * 1024, writer), notices, quiet))
}

/// The sink of format `-f`.
pub fn format(cli: &Cli, out: impl Write + 'static, notices: Box<dyn Write>, quiet: bool) -> Box<dyn Sink> {
    match cli.format {
        Format::Text => {
            let bundled = bundled::SCRIPTS.iter().map(|script| format!("{}.ct", script.name)).collect();
            let sink = TextSink::new(out, notices, quiet).hide_warnings(cli.no_warnings);
            Box::new(sink.omit_places_in(bundled))
        }
        Format::Json => Box::new(JsonSink::new(out, quiet).hide_warnings(cli.no_warnings)),
    }
}

/// The command of `-c` or `--`.
pub fn command(cli: &Cli) -> anyhow::Result<Option<Vec<OsString>>> {
    let argv = match &cli.command {
        Some(text) => {
            let words =
                shell_words::split(text).map_err(|_| anyhow!("-c `{text}`: a quote is not closed"))?;
            words.into_iter().map(OsString::from).collect()
        }
        None => cli.argv.clone(),
    };
    match (&cli.command, argv.is_empty()) {
        (Some(_), true) => Err(anyhow!("-c has no command")),
        (None, true) => Ok(None),
        _ => Ok(Some(argv)),
    }
}

/// The processes of `-p` and, unless disabled, all their children.
pub fn pids(cli: &Cli) -> anyhow::Result<Vec<u32>> {
    cli.pids.iter().try_for_each(|&pid| check_process(pid))?;
    Ok(family(cli, &cli.pids))
}

/// Checks that a number is that of a process that can be traced.
pub fn check_process(pid: u32) -> anyhow::Result<()> {
    if proc::has_ended(pid) {
        return Err(anyhow!(
            "no process {pid}\n  = help: `pgrep -f NAME` lists the processes whose command contains NAME; ids within a container differ from those \
             outside"
        ));
    }
    if let Some(whole) = proc::tgid(pid).filter(|&whole| whole != pid) {
        return Err(anyhow!(
            "{pid} is a thread of process {whole}, which is traced as a whole: `-p {whole}`"
        ));
    }
    match proc::is_of_kernel(pid) {
        true => Err(anyhow!("process {pid} is a thread of the kernel and calls no libraries")),
        false => Ok(()),
    }
}

/// A pidfd, which is readable after the end of the process.
pub fn end_of(pid: u32) -> anyhow::Result<OwnedFd> {
    linux::pidfd::open(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => anyhow!("process {pid} has ended before it could be traced"),
        _ => anyhow!(error).context(format!("process {pid}")),
    })
}

/// These processes and, unless disabled, all their children.
pub fn family(cli: &Cli, pids: &[u32]) -> Vec<u32> {
    if cli.no_children { pids.to_vec() } else { proc::with_descendants(pids) }
}

/// Whether the filter of a link selects a process, not only a thread: that of perf events always does.
pub fn link_filters(kernel: &Kernel) -> bool {
    kernel.uprobe_multi_pid || !kernel.features.uprobe_multi
}

/// Refuses `--in-process` without a process.
pub fn check_in_process(cli: &Cli) -> anyhow::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(anyhow!("--in-process works on x86-64 only"));
    }
    if cli.pids.is_empty() && command(cli)?.is_none() {
        return Err(anyhow!(
            "--in-process needs a command after `--`, or `-p PID`: other processes are not touched"
        ));
    }
    match cli.no_children {
        true => Err(anyhow!("--in-process traces children too: leave out --no-children")),
        false => Ok(()),
    }
}

/// Makes a run with a target one in the traced processes, where the kernel loads no programs of this user.
pub fn choose_engine(cli: &mut Cli) {
    let is_chosen = cli.in_process || cli.in_kernel || cli.no_children || cli.check || cli.emit.is_some();
    if !cli.has_target() || is_chosen || !cfg!(target_arch = "x86_64") {
        return;
    }
    if let Err(error) = runtime::kernel::features::check_minimum() {
        cli.why_in_process = Some(error.in_short());
        cli.in_process = true;
    }
}

/// Refuses `--in-process` at the prompt of a user without rights; others get the prompt in the kernel.
pub fn check_prompt_in_process(messages: &Messages) -> Result<(), Failure> {
    match Kernel::probe() {
        Err(FeatureError::NotPermitted) => Err(Failure::wrong(anyhow!(
            "the prompt needs root, or CAP_BPF and CAP_PERFMON: its clauses are attached by the kernel, also with --in-process; \
             `cudatrace --in-process -e 'CLAUSES' -- COMMAND` needs no rights"
        ))),
        _ => {
            messages.note("the prompt attaches clauses by the kernel, also with --in-process");
            Ok(())
        }
    }
}

/// An error of the kernel, with the way that needs no rights.
fn without_rights(cli: &Cli, error: FeatureError) -> anyhow::Error {
    match error {
        FeatureError::NotPermitted if !cli.in_process => {
            anyhow!(
                "{error}\n  = help: `--in-process` needs no rights: it traces a command, or your own processes by -p"
            )
        }
        error => error.into(),
    }
}

/// Features of the kernel. Writing an object needs no rights: it is then compiled for a current kernel.
pub fn kernel(cli: &Cli) -> Result<Kernel, Failure> {
    let mut kernel = match Kernel::probe() {
        Ok(kernel) => kernel,
        Err(_) if cli.emit.is_some() => Kernel { features: Features::ALL, uprobe_multi_pid: true },
        Err(error) => return Err(Failure::loading(without_rights(cli, error))),
    };
    for name in &cli.no_feature {
        without(&mut kernel.features, name).map_err(Failure::wrong)?;
    }
    Ok(kernel)
}

/// Refuses features of `--no-feature` that do not exist.
pub fn check_features(cli: &Cli) -> anyhow::Result<()> {
    cli.no_feature.iter().try_for_each(|name| without(&mut { Features::ALL }, name))
}

/// Disables a feature, so that its fallback can be tested on a kernel that supports it.
fn without(features: &mut Features, name: &str) -> anyhow::Result<()> {
    match name {
        "uprobe_multi" => (features.uprobe_multi, features.uprobe_session) = (false, false),
        "uprobe_session" => features.uprobe_session = false,
        "bpf_loop" => features.bpf_loop = false,
        "percpu_lookup" => features.percpu_lookup = false,
        "private_stack" => features.private_stack = false,
        _ => bail!(
            "--no-feature: `{name}` is not a feature: expected uprobe_multi, uprobe_session, bpf_loop, percpu_lookup or private_stack"
        ),
    }
    Ok(())
}
