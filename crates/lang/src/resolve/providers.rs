//! The table of providers, which are the kinds of attach points, and providers of other tracers.

use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::{TestKind, Trigger};
use crate::resolve::counters::{self, HARDWARE, SOFTWARE};
use crate::resolve::cuda_libraries::cuda_library;
use crate::resolve::finder::Finder;
pub use crate::resolve::provider::{Completion, Provider, ProviderProperties, Runs};
use crate::resolve::spot::{Miss, Spots, wrong};
use crate::resolve::{
    driver_events, functions, gpu_probes, ioctl_probes, iterators, kernel_functions, operation_probes,
    requests, timers, tracepoint, usdt, watchpoints,
};
use crate::syntax::ast::{ProbeSpec, text};
use cuda::gpu;
use cuda::operations::APIS;

/// All providers, for resolving, help and completion.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        names: &["BEGIN"],
        form: "BEGIN",
        doc: "once, before anything else",
        properties: ProviderProperties::PLAIN,
        runs: Runs::All,
        resolve: |finder, spec, row| requests::bare(finder, spec, row, Trigger::Begin),
    },
    Provider {
        names: &["END"],
        form: "END",
        doc: "once, after the last event",
        properties: ProviderProperties::PLAIN,
        runs: Runs::All,
        resolve: |finder, spec, row| requests::bare(finder, spec, row, Trigger::End),
    },
    Provider {
        names: &["uprobe", "u"],
        form: "uprobe:TARGET:FUNCTION",
        doc: "when a function is called",
        properties: functions::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.call(spec, row, false),
    },
    Provider {
        names: &["uretprobe", "ur"],
        form: "uretprobe:TARGET:FUNCTION",
        doc: "when a function returns",
        properties: ProviderProperties { spans: true, ..functions::PROPERTIES },
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.call(spec, row, true),
    },
    Provider {
        names: &["usdt", "U"],
        form: "usdt:TARGET:PROVIDER:NAME",
        doc: "when a program reaches a marker in its code; `arg0`, `arg1` ... are the arguments of the marker",
        properties: usdt::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.markers(spec, row),
    },
    Provider {
        names: &["cuda"],
        form: "cuda:OPERATION",
        doc: "after an operation of the driver, by any of its functions; `cuda:OPERATION:start` when it begins",
        properties: operation_probes::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.operation(spec, row),
    },
    Provider {
        names: &["cudart"],
        form: "cudart:OPERATION",
        doc: "the same for the runtime API; `cudart:OPERATION:start`",
        properties: operation_probes::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.operation(spec, row),
    },
    Provider {
        names: &["gpu"],
        form: "gpu:KIND",
        doc: "after a GPU has done something: `kernel`, `memcpy`, `graph`, `idle` ...; loads a library into the traced process",
        properties: gpu_probes::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.gpu(spec, row),
    },
    Provider {
        names: &["kprobe", "k"],
        form: "kprobe:FUNCTION",
        doc: "when a function of the Linux kernel is called; `kprobe:MODULE:FUNCTION`, `kprobe:FUNCTION+OFFSET`",
        properties: kernel_functions::KPROBES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.kprobe(spec, row, false),
    },
    Provider {
        names: &["kretprobe", "kr"],
        form: "kretprobe:FUNCTION",
        doc: "when a function of the Linux kernel returns",
        properties: ProviderProperties { spans: true, ..kernel_functions::KPROBES },
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.kprobe(spec, row, true),
    },
    Provider {
        names: &["fentry", "f", "kfunc"],
        form: "fentry:FUNCTION",
        doc: "the same as `kprobe` at a lower price, for functions that the kernel's BTF describes; `fentry:MODULE:FUNCTION`",
        properties: kernel_functions::TRAMPOLINES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.trampoline(spec, row, false),
    },
    Provider {
        names: &["fexit", "fr", "kretfunc"],
        form: "fexit:FUNCTION",
        doc: "the same as `kretprobe` at a lower price; `args` has the arguments",
        properties: ProviderProperties { spans: true, ..kernel_functions::TRAMPOLINES },
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.trampoline(spec, row, true),
    },
    Provider {
        names: &["driver"],
        form: "driver:EVENT",
        doc: "after NVIDIA's kernel driver has done something: `open`, `mmap`, `interrupt`, `cpu_fault` ...; `driver:EVENT:start` when \
              it begins",
        properties: driver_events::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.driver(spec, row),
    },
    Provider {
        names: &["ioctl"],
        form: "ioctl:DEVICE:NAME",
        doc: "after an ioctl of NVIDIA's driver, on the devices `nvidia` or `nvidia-uvm`; `ioctl:DEVICE:NAME:start` when it begins",
        properties: ioctl_probes::PROPERTIES,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.ioctl(spec, row, spots),
    },
    Provider {
        names: &["interval", "i"],
        form: "interval:s:1",
        doc: "at regular intervals, on one CPU (units s, ms, us, ns, hz)",
        properties: timers::PROPERTIES,
        runs: Runs::Traces,
        resolve: timers::interval,
    },
    Provider {
        names: &["profile", "p"],
        form: "profile:hz:99",
        doc: "at regular intervals, on each CPU (units s, ms, us, ns, hz)",
        properties: timers::PROPERTIES,
        runs: Runs::Traces,
        resolve: timers::profile,
    },
    Provider {
        names: &["software", "s"],
        form: "software:EVENT:COUNT",
        doc: "after COUNT events of a counter of the kernel, on each CPU: page-faults, context-switches, cpu-clock ...",
        properties: counters::SOFTWARE_EVENTS,
        runs: Runs::Traces,
        resolve: |finder, spec, row| counters::counter(finder, spec, row, SOFTWARE),
    },
    Provider {
        names: &["hardware", "h"],
        form: "hardware:EVENT:COUNT",
        doc: "the same for counters of the processor, if the machine has them: cycles, cache-misses ...",
        properties: counters::HARDWARE_EVENTS,
        runs: Runs::Traces,
        resolve: |finder, spec, row| counters::counter(finder, spec, row, HARDWARE),
    },
    Provider {
        names: &["watchpoint", "w"],
        form: "watchpoint:ADDRESS:BYTES:ACCESSES",
        doc: "when 1, 2, 4 or 8 bytes of memory are written (`w`), read or written (`rw`) or executed (`x`)",
        properties: ProviderProperties::PLAIN,
        runs: Runs::Traces,
        resolve: watchpoints::watchpoint,
    },
    Provider {
        names: &["tracepoint", "t"],
        form: "tracepoint:CATEGORY:EVENT",
        doc: "when the kernel reaches a tracepoint; `args` has its fields",
        properties: tracepoint::RECORDS,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.tracepoints(spec, row),
    },
    Provider {
        names: &["rawtracepoint", "rt"],
        form: "rawtracepoint:EVENT",
        doc: "the same without a record: `args` has the arguments of the tracepoint",
        properties: tracepoint::RAW,
        runs: Runs::Traces,
        resolve: |finder, spec, row| finder.raw_tracepoints(spec, row),
    },
    Provider {
        names: &["iter", "it"],
        form: "iter:ITEMS",
        doc: "once for each item that the kernel has: `task`, `task_file`, `task_vma` ...; `args` has its fields",
        properties: iterators::PROPERTIES,
        runs: Runs::Traces,
        resolve: iterators::items,
    },
    Provider {
        names: &["self"],
        form: "self:signal:SIGUSR1",
        doc: "when cudatrace itself receives the signal: SIGUSR1 or SIGUSR2",
        properties: requests::SIGNAL_PROBES,
        runs: Runs::Traces,
        resolve: requests::signal,
    },
    Provider {
        names: &["test"],
        form: "test:NAME",
        doc: "once, with `--test`: it fails if it returns a number other than 0",
        properties: ProviderProperties::PLAIN,
        runs: Runs::Tests(TestKind::Test),
        resolve: |finder, spec, row| requests::test(finder, spec, row, TestKind::Test),
    },
    Provider {
        names: &["bench"],
        form: "bench:NAME",
        doc: "repeatedly, with `--bench`, which prints how long it takes",
        properties: ProviderProperties::PLAIN,
        runs: Runs::Tests(TestKind::Bench),
        resolve: |finder, spec, row| requests::test(finder, spec, row, TestKind::Bench),
    },
];

/// Providers that only other tracers have: names, and what to use instead.
pub static ABSENT: &[(&[&str], &str)] = &[
    (&["asyncwatchpoint", "aw"], "use `watchpoint:ADDRESS:BYTES:ACCESSES`"),
    (&["syscall"], "use `tracepoint:syscalls:sys_enter_read`, or `sys_exit_read` when it returns"),
];

/// The meaning of a provider's name.
#[derive(Debug)]
pub enum ProviderMatch {
    /// A provider.
    Known(&'static Provider),
    /// A provider of other tracers: what to use instead.
    Absent(&'static str),
    /// No provider.
    Unknown,
}

/// The provider with this name, in any case.
pub fn find(name: &str) -> ProviderMatch {
    // `U` is not `u`.
    if let Some(provider) = PROVIDERS.iter().find(|p| p.names.contains(&name)) {
        return ProviderMatch::Known(provider);
    }
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if let Some(provider) = PROVIDERS.iter().find(|p| p.names.iter().any(is)) {
        return ProviderMatch::Known(provider);
    }
    match ABSENT.iter().find(|(names, _)| names.iter().any(is)) {
        Some((_, instead)) => ProviderMatch::Absent(instead),
        None => ProviderMatch::Unknown,
    }
}

/// The provider of an attach point.
pub(super) fn of(spec: &ProbeSpec) -> Result<&'static Provider, Miss> {
    let name = &spec.provider.node;
    match find(name) {
        ProviderMatch::Known(provider) => Ok(provider),
        ProviderMatch::Absent(instead) => {
            let message = format!("`{name}` probes are not supported");
            wrong("E0102", spec.provider.span, message, "not supported", vec![instead.into()])
        }
        ProviderMatch::Unknown => unknown(spec),
    }
}

/// The spots of an attach point.
fn spots(finder: &mut Finder, spec: &ProbeSpec) -> Spots {
    let row = of(spec)?;
    (row.resolve)(finder, spec, row)
}

fn unknown<T>(spec: &ProbeSpec) -> Result<T, Miss> {
    let (name, span) = (&spec.provider.node, spec.provider.span);
    let known = PROVIDERS.iter().flat_map(|p| p.names.iter().copied()).filter(|name| name.len() > 2);
    let lower = name.to_lowercase();
    let mut help = did_you_mean(&similar(&lower, known));
    if help.is_empty() && spec.parts.is_empty() {
        help.extend(cuda_library(name).map(|library| {
            format!("a function is probed by `uprobe:{library}:{name}` or `uretprobe:{library}:{name}`")
        }));
    }
    if let [part] = &spec.parts[..]
        && help.is_empty()
    {
        help.extend(probe_of_part(name, text(&part.node)));
    }
    if help.is_empty() {
        let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.names[0]).collect();
        help.push(format!("probes are {}: `cudatrace help probes` explains them", names.join(", ")));
    }
    wrong("E0101", span, format!("unknown kind of probe `{name}`"), "", help)
}

/// The probe that `kernel:launch`, `nvtx:range`, `nccl:ncclAllReduce` or `libcuda:cuInit` may mean.
fn probe_of_part(name: &str, part: &str) -> Option<String> {
    let operation = APIS.iter().find(|api| api.operation(part).is_some()).map(|api| api.provider);
    let of_gpu = || gpu::KINDS.iter().any(|kind| kind.name == part).then_some("gpu");
    if let Some(provider) = operation.or_else(of_gpu) {
        return Some(format!("did you mean `{provider}:{part}`?"));
    }
    let library = if name.starts_with("lib") { name.to_owned() } else { format!("lib{name}") };
    let is_library = name.starts_with("lib") || cuda::Library::from_alias(&library).is_some();
    is_library.then(|| format!("calls of a function: write `uprobe:{library}:{part}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case() {
        let is = |name: &str, long: &str| matches!(find(name), ProviderMatch::Known(p) if p.names[0] == long);
        assert!(is("begin", "BEGIN") && is("UR", "uretprobe") && is("u", "uprobe") && is("U", "usdt"));
        assert!(matches!(find("asyncwatchpoint"), ProviderMatch::Absent(_)) && is("kfunc", "fentry"));
        assert!(matches!(find("uprob"), ProviderMatch::Unknown));
    }

    #[test]
    fn the_parser_recovers_at_each_provider() {
        let known = crate::syntax::parse::tokens::PROVIDERS;
        for name in PROVIDERS.iter().flat_map(|provider| provider.names) {
            assert!(known.iter().any(|word| word.eq_ignore_ascii_case(name)), "`{name}`");
        }
    }
}
