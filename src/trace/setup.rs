//! The command line to the parts of a run: processes, command, kernel, sink.

use crate::Failure;
use crate::cli::{Cli, Format};
use anyhow::{Context, anyhow};
use host::process;
use report::Sink;
use report::sink::{JsonSink, TextSink};
use runtime::Kernel;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use wire::Features;

/// The format of `-f`, to the file of `-o` or else to `out`; what is said about the run goes to `notices`.
/// `quiet` leaves out how many probes were attached.
pub fn sink(
    cli: &Cli,
    out: Box<dyn Write>,
    notices: Box<dyn Write>,
    quiet: bool,
) -> anyhow::Result<Box<dyn Sink>> {
    let writer: Box<dyn Write> = match &cli.output {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?)
        }
        None => out,
    };
    Ok(format(cli, BufWriter::with_capacity(64 * 1024, writer), notices, quiet))
}

/// The format of `-f`.
pub fn format(cli: &Cli, out: impl Write + 'static, notices: Box<dyn Write>, quiet: bool) -> Box<dyn Sink> {
    match cli.format {
        Format::Text => Box::new(TextSink::new(out, notices, quiet).hide_warnings(cli.no_warnings)),
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

/// The processes of `-p` and all their children, if those are wanted.
pub fn pids(cli: &Cli) -> anyhow::Result<Vec<u32>> {
    cli.pids.iter().try_for_each(|&pid| check_process(pid))?;
    Ok(family(cli, &cli.pids))
}

/// Whether a number that was given is that of a process that can be traced.
///
/// # Errors
/// It is not, and what it is instead.
pub fn check_process(pid: u32) -> anyhow::Result<()> {
    if !process::is_alive(pid) {
        return Err(anyhow!("no process {pid}"));
    }
    if let Some(whole) = process::tgid(pid).filter(|&whole| whole != pid) {
        return Err(anyhow!(
            "{pid} is a thread of process {whole}, which is traced as a whole: `-p {whole}`"
        ));
    }
    match process::is_of_kernel(pid) {
        true => Err(anyhow!("process {pid} is a thread of the kernel and calls no library")),
        false => Ok(()),
    }
}

/// A descriptor that tells the end of a process.
pub fn end_of(pid: u32) -> anyhow::Result<OwnedFd> {
    runtime::pidfd_open(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => anyhow!("process {pid} has ended meanwhile"),
        _ => anyhow!(error).context(format!("process {pid}")),
    })
}

/// These processes and all their children, if those are wanted.
pub fn family(cli: &Cli, pids: &[u32]) -> Vec<u32> {
    if cli.no_children { pids.to_vec() } else { process::with_descendants(pids) }
}

/// A link's own filter goes by process: that of a perf event does on every kernel.
pub fn link_filters(kernel: &Kernel) -> bool {
    kernel.uprobe_multi_pid || !kernel.features.uprobe_multi
}

/// What the kernel can do. An object to be written needs no rights: it is made for a current kernel then.
pub fn kernel(cli: &Cli) -> Result<Kernel, Failure> {
    let mut kernel = match Kernel::probe() {
        Ok(kernel) => kernel,
        Err(_) if cli.emit.is_some() => Kernel { features: Features::ALL, uprobe_multi_pid: true },
        Err(error) => return Err(Failure::loading(error)),
    };
    for name in &cli.no_feature {
        super::without(&mut kernel.features, name).map_err(Failure::wrong)?;
    }
    Ok(kernel)
}
