//! `cudatrace doctor`: what this machine can do, and what it lacks.

use anyhow::Result;
use lang::Catalog;
use std::io::Write;
use target::{Machine, Scope};

/// Tries everything that tracing needs and prints a line for each. Fails when tracing is impossible.
pub fn run() -> Result<u8> {
    let mut out = std::io::stdout().lock();
    let kernel = match runtime::Kernel::probe() {
        Ok(kernel) => kernel,
        Err(error) => {
            writeln!(out, "tracing            no: {error}")?;
            return Ok(1);
        }
    };
    let features = kernel.features;
    let lines = [
        (
            "multi-uprobes",
            features.uprobe_multi,
            "6.6",
            "one perf event for each function: slower to attach and detach",
        ),
        ("sessions", features.uprobe_session, "6.13", "entry and return are paired through a hash"),
        ("loops", features.bpf_loop, "5.17", "short loops only, and stacks by frame pointers alone"),
        ("per-CPU lookup", features.percpu_lookup, "5.19", "aggregations cannot be read inside a script"),
        (
            "kernel BTF",
            features.btf,
            "5.4, CONFIG_DEBUG_INFO_BTF",
            "no session probes, and stacks by frame pointers alone",
        ),
    ];
    writeln!(out, "tracing            yes")?;
    for (what, there, since, otherwise) in lines {
        let answer = if there { "yes".into() } else { format!("no (Linux {since}): {otherwise}") };
        writeln!(out, "{what:<18} {answer}")?;
    }
    let answer = if features.private_stack { "yes: what needs one is not preempted" } else { "no" };
    writeln!(out, "{:<18} {answer}", "private stacks")?;
    let machine = Machine::new(Scope::default());
    for library in ["libcuda", "libcudart"] {
        match machine.files(library) {
            Ok(files) => {
                for file in files {
                    writeln!(out, "{library:<18} {} ({})", file.path, machine.why(file.id))?;
                }
            }
            Err(_) => {
                writeln!(out, "{library:<18} not found; it is looked for again when a process maps it")?
            }
        }
    }
    Ok(0)
}
