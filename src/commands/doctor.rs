//! `cudatrace doctor`: the features of this machine, and what is missing.

use crate::Failure;
use crate::cli::Format;
use crate::kernel_catalog::RunningKernel;
use crate::python;
use crate::subcommand::{Listing, Subcommand};
use anyhow::Result;
use host::{Kernel, Machine, Scope};
use lang::Catalog;
use lang::hir::Hook;
use linux::proc::Status;
use runtime::FeatureError;
use runtime::remote::{StoppedProcess, Tracer};
use runtime::started::{Child, Command};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use wire::Features;

/// `cudatrace doctor`
pub const SUBCOMMAND: Subcommand = Subcommand {
    options: &["format"],
    ..Subcommand::new(
        "doctor",
        "Shows features and limitations of this machine: kernel, rights, driver, libraries, Python",
        "cudatrace doctor [-f json]",
        |invocation| run(invocation.cli.format).map_err(Failure::wrong),
    )
};

/// `--info`, as bpftrace's
pub const LISTING: Listing = Listing {
    option: "info",
    most_words: 0,
    options: &["format"],
    is_requested: |cli| cli.info,
    run: SUBCOMMAND.run,
};

/// A property of the machine, and its state.
type Row = (&'static str, String);

/// Checks all requirements of tracing and prints a line for each. Fails if tracing is impossible, in the process and in the kernel.
fn run(format: Format) -> Result<u8> {
    let mut rows = vec![
        ("cudatrace", crate::version()),
        ("kernel", kernel()),
        ("rights", rights()),
        ("driver", driver()),
    ];
    rows.extend(gpus());
    let in_process = in_process();
    let probed = runtime::Kernel::probe();
    let is_possible = in_process.is_ok() || probed.is_ok();
    rows.push(("in the process", in_process.unwrap_or_else(|why| format!("no: {why}"))));
    match probed {
        Ok(kernel) => {
            rows.push(("in the kernel", "yes".into()));
            rows.extend(features(&kernel.features));
            rows.push(("started programs", started_programs()));
        }
        Err(error) => rows.push(("in the kernel", format!("no: {}", reason(&error)))),
    }
    let machine = Machine::new(Scope::default());
    rows.push(("gpu: probes", crate::gpu::state(&machine)));
    rows.extend(libraries(&machine));
    rows.push(("python", python()));
    let mut out = std::io::stdout().lock();
    match format {
        Format::Text => rows.iter().try_for_each(|(what, answer)| writeln!(out, "{what:<18} {answer}"))?,
        Format::Json => {
            let checks =
                rows.iter().map(|(what, answer)| serde_json::json!({"what": what, "answer": answer}));
            let checks: Vec<serde_json::Value> = checks.collect();
            writeln!(out, "{}", serde_json::json!({"tracing": is_possible, "checks": checks}))?;
        }
    }
    Ok(u8::from(!is_possible))
}

/// The reason of an error, without the advice to run `doctor`.
fn reason(error: &FeatureError) -> String {
    match error {
        FeatureError::NotPermitted => "loading BPF programs is not permitted, see `rights`".into(),
        other => other.to_string(),
    }
}

fn kernel() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("Linux {} {}", read("osrelease").trim(), std::env::consts::ARCH)
}

/// The capabilities that tracing requires, with their bits.
const CAPABILITIES: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19)];

fn rights() -> String {
    let status = Status::own().unwrap_or_default();
    let effective = status.field("CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    // CAP_SYS_ADMIN includes the others.
    let has = |bit: u32| effective & (1 << bit) != 0;
    let missing: Vec<&str> =
        CAPABILITIES.iter().filter(|(_, bit)| !has(*bit) && !has(21)).map(|(name, _)| *name).collect();
    let user = if rustix::process::geteuid().is_root() { "root" } else { "not root" };
    if missing.is_empty() {
        return user.into();
    }
    format!(
        "{user}, without {}: programs of your own are traced in the process; for the kernel run it with sudo, or once `sudo setcap \
         cap_bpf,cap_perfmon,cap_sys_ptrace+ep $(command -v cudatrace)`",
        missing.join(", ")
    )
}

/// Whether a program after `--` can be held when it loads a library. Starts a program, which is never released.
fn started_programs() -> String {
    let command = Command { argv: vec!["true".into()], watch_mappings: true, ..Command::default() };
    match Child::spawn(&command) {
        Ok(child) => match &child.unwatched {
            None => "are held at libraries that they load until these are attached".into(),
            Some(error) => {
                format!("are not held at libraries that they load, whose first calls are missed: {error}")
            }
        },
        Err(error) => error.to_string(),
    }
}

/// Whether scripts can run in the traced processes; the error is why not. Stops a program, which is never released.
fn in_process() -> Result<String> {
    if !cfg!(target_arch = "x86_64") {
        anyhow::bail!("on x86-64 only");
    }
    let command = Command { argv: vec!["true".into()], watch_mappings: true, ..Command::default() };
    let child = Child::spawn(&command)?;
    let (pid, limit) = (child.pid(), Duration::from_secs(1));
    Tracer::run(|tracer| StoppedProcess::all(tracer, pid, limit).map(drop))?;
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    Ok(match (&child.unwatched, scope.trim()) {
        (Some(error), _) => format!("with -p only: started programs cannot be held: {error}"),
        (None, "" | "0") => "yes, for commands and -p; needs no rights".into(),
        (None, scope) => {
            format!("yes, for commands; -p needs CAP_SYS_PTRACE (kernel.yama.ptrace_scope is {scope})")
        }
    })
}

/// Driver version, as NVIDIA's kernel module reports it.
fn driver() -> String {
    let version = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let first =
        version.lines().next().and_then(|line| line.split_once("  ")).map(|(_, rest)| rest.trim().to_owned());
    first.unwrap_or_else(|| "no NVIDIA kernel module is loaded".into())
}

fn gpus() -> Vec<Row> {
    let folders = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    let model = |folder: fs::DirEntry| {
        let text = fs::read_to_string(folder.path().join("information")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Model:")).map(|model| model.trim().to_owned())
    };
    folders.filter_map(model).map(|model| ("GPU", model)).collect()
}

fn features(features: &Features) -> Vec<Row> {
    let lines = [
        (
            "multi-uprobes",
            features.uprobe_multi,
            "6.6",
            "one perf event for each function: slower to attach and detach",
        ),
        ("sessions", features.uprobe_session, "6.13", "entry and return are two programs"),
        ("loops", features.bpf_loop, "5.17", "only short loops, and stacks by frame pointers"),
        ("per-CPU lookup", features.percpu_lookup, "5.19", "aggregations cannot be read inside a script"),
        (
            "kernel BTF",
            features.btf,
            "5.4, CONFIG_DEBUG_INFO_BTF",
            "no session probes, and stacks by frame pointers",
        ),
    ];
    let row = |(what, there, since, otherwise): (&'static str, bool, &str, &str)| {
        (what, if there { "yes".into() } else { format!("no (Linux {since}): {otherwise}") })
    };
    let mut rows: Vec<Row> = lines.into_iter().map(row).collect();
    let hooks = [("kprobes", Hook::Kprobe), ("fentry", Hook::Trampoline)];
    rows.extend(hooks.map(|(what, hook)| {
        (what, RunningKernel.hook(hook).map_or_else(|why| format!("no: {why}"), |()| "yes".into()))
    }));
    let one_by_one = "no (Linux 5.18, CONFIG_FPROBE): one perf event for each function of the kernel";
    rows.push(("multi-kprobes", if features.kprobe_multi { "yes".into() } else { one_by_one.into() }));
    rows.push(("private stacks", if features.private_stack { "yes".into() } else { "no".into() }));
    rows
}

fn libraries(machine: &Machine) -> Vec<Row> {
    let found = |library: &'static str| match machine.files(library) {
        Ok(files) => files
            .into_iter()
            .map(|file| (library, format!("{} ({})", file.path, machine.why(file.id))))
            .collect(),
        Err(_) => {
            vec![(library, "not found; searched again when a process maps it".to_owned())]
        }
    };
    ["libcuda", "libcudart"].into_iter().flat_map(found).collect()
}

/// The Python on PATH.
fn python() -> String {
    let Some(file) = python::file(Path::new("python3")) else { return "none on PATH".into() };
    let frames = match python::version(&file).map(python::has_frames) {
        Some(false) => ": stacks have no frames of this Python (of 3.9 to 3.15 they have)",
        Some(true) => ": stacks have its functions and lines",
        None => "",
    };
    format!("{}{frames}", file.display())
}
