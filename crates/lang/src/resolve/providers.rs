//! Providers: one table of the kinds of attach points, with the kinds of bpftrace that are not supported.

use crate::hir::{PerfCounter, Trial};

/// A kind that works.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// `BEGIN`
    Begin,
    /// `END`
    End,
    /// `interval:s:1`
    Interval,
    /// `profile:hz:99`
    Profile,
    /// `software:page-faults:100`
    Software,
    /// `hardware:cache-misses:1000000`
    Hardware,
    /// `tracepoint:sched:sched_switch`
    Tracepoint,
    /// `rawtracepoint:sched_switch`
    RawTracepoint,
    /// `self:signal:SIGUSR1`
    Signal,
    /// `test:NAME`
    Test,
    /// `bench:NAME`
    Bench,
    /// `uprobe:libcuda:cuInit`
    Uprobe,
    /// `uretprobe:libcuda:cuInit`
    Uretprobe,
    /// `usdt:libnccl:nccl:all_reduce`
    Usdt,
    /// `cuda:alloc`, `cudart:alloc`
    Cuda,
}

impl ProviderKind {
    /// Whether it is a test or a bench.
    pub fn trial(self) -> Option<Trial> {
        match self {
            ProviderKind::Test => Some(Trial::Test),
            ProviderKind::Bench => Some(Trial::Bench),
            _ => None,
        }
    }
}

/// A row of the table of providers.
#[derive(Debug)]
pub struct Provider {
    /// Names as scripts write them, the long one first; case does not matter.
    pub names: &'static [&'static str],
    /// What it is.
    pub kind: ProviderKind,
    /// How it is written.
    pub form: &'static str,
    /// For help.
    pub doc: &'static str,
}

/// All that work, for resolving, help and completion.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        names: &["BEGIN"],
        kind: ProviderKind::Begin,
        form: "BEGIN",
        doc: "once, before anything else",
    },
    Provider { names: &["END"], kind: ProviderKind::End, form: "END", doc: "once, after the last event" },
    Provider {
        names: &["uprobe", "u"],
        kind: ProviderKind::Uprobe,
        form: "uprobe:TARGET:FUNCTION",
        doc: "when a function is called",
    },
    Provider {
        names: &["uretprobe", "ur"],
        kind: ProviderKind::Uretprobe,
        form: "uretprobe:TARGET:FUNCTION",
        doc: "when a function returns",
    },
    Provider {
        names: &["usdt", "U"],
        kind: ProviderKind::Usdt,
        form: "usdt:TARGET:PROVIDER:NAME",
        doc: "when a program passes a marker that its author put there; `arg0`, `arg1` ... are what it passes on",
    },
    Provider {
        names: &["cuda"],
        kind: ProviderKind::Cuda,
        form: "cuda:OPERATION",
        doc: "when the driver has done an operation, by whichever function; `cuda:OPERATION:start` when it begins",
    },
    Provider {
        names: &["cudart"],
        kind: ProviderKind::Cuda,
        form: "cudart:OPERATION",
        doc: "the same of the runtime, as programs call it; `cudart:OPERATION:start`",
    },
    Provider {
        names: &["interval", "i"],
        kind: ProviderKind::Interval,
        form: "interval:s:1",
        doc: "every so often, on one CPU (units s, ms, us, ns, hz)",
    },
    Provider {
        names: &["profile", "p"],
        kind: ProviderKind::Profile,
        form: "profile:hz:99",
        doc: "every so often, on each CPU (units s, ms, us, ns, hz)",
    },
    Provider {
        names: &["software", "s"],
        kind: ProviderKind::Software,
        form: "software:EVENT:COUNT",
        doc: "at every so many events of the kernel's own counters, on each CPU: page-faults, context-switches, cpu-clock ...",
    },
    Provider {
        names: &["hardware", "h"],
        kind: ProviderKind::Hardware,
        form: "hardware:EVENT:COUNT",
        doc: "the same of the processor's counters, where the machine has them: cycles, cache-misses ...",
    },
    Provider {
        names: &["tracepoint", "t"],
        kind: ProviderKind::Tracepoint,
        form: "tracepoint:CATEGORY:EVENT",
        doc: "when the kernel passes a tracepoint; `args` has its fields",
    },
    Provider {
        names: &["rawtracepoint", "rt"],
        kind: ProviderKind::RawTracepoint,
        form: "rawtracepoint:EVENT",
        doc: "the same without a record: `args` has what the kernel passes to the tracepoint",
    },
    Provider {
        names: &["self"],
        kind: ProviderKind::Signal,
        form: "self:signal:SIGUSR1",
        doc: "when cudatrace itself gets the signal: SIGUSR1 or SIGUSR2",
    },
    Provider {
        names: &["test"],
        kind: ProviderKind::Test,
        form: "test:NAME",
        doc: "once, with `--test`: it fails if it returns another number than 0",
    },
    Provider {
        names: &["bench"],
        kind: ProviderKind::Bench,
        form: "bench:NAME",
        doc: "again and again, with `--bench`, which says how long it takes",
    },
];

/// Providers that other tracers have and this one has not: names, and what to use.
pub static ABSENT: &[(&[&str], &str)] = &[
    (
        &["kprobe", "k", "kretprobe", "kr"],
        "functions of the kernel cannot be probed; use `tracepoint:CATEGORY:EVENT` for what the kernel does, \
         `uprobe:libc:FUNCTION` for what programs ask of it",
    ),
    (
        &["fentry", "f", "fexit", "fr", "kfunc", "kretfunc"],
        "functions of the kernel cannot be probed; use `tracepoint:CATEGORY:EVENT` for what the kernel does, \
         `uprobe:libc:FUNCTION` for what programs ask of it",
    ),
    (
        &["watchpoint", "w", "asyncwatchpoint", "aw"],
        "use `uprobe:LIBRARY:FUNCTION` on the function that writes there",
    ),
    (&["iter", "it"], "use `interval:s:1` and maps"),
    (&["syscall"], "use `tracepoint:syscalls:sys_enter_read`, or `sys_exit_read` when it returns"),
];

/// An event of `software` or `hardware`.
#[derive(Debug)]
pub struct CountedEvent {
    /// Its names, the usual one first.
    pub names: &'static [&'static str],
    /// As the kernel numbers it.
    pub counter: PerfCounter,
    /// How many lie between two samples unless the script says so.
    pub period: u64,
}

const fn software(number: u64, names: &'static [&'static str], period: u64) -> CountedEvent {
    CountedEvent { names, counter: PerfCounter { kind: 1, number }, period }
}

const fn hardware(number: u64, names: &'static [&'static str], period: u64) -> CountedEvent {
    CountedEvent { names, counter: PerfCounter { kind: 0, number }, period }
}

/// Numbers of linux/perf_event.h; periods of bpftrace.
static EVENTS: &[CountedEvent] = &[
    software(7, &["alignment-faults"], 1),
    software(10, &["bpf-output"], 1),
    software(3, &["context-switches", "cs"], 1_000),
    software(0, &["cpu-clock", "cpu"], 1_000_000),
    software(4, &["cpu-migrations"], 1),
    software(9, &["dummy"], 1),
    software(8, &["emulation-faults"], 1),
    software(6, &["major-faults"], 1),
    software(5, &["minor-faults"], 100),
    software(2, &["page-faults", "faults"], 100),
    software(1, &["task-clock"], 1_000_000),
    hardware(8, &["backend-stalls"], 1_000_000),
    hardware(4, &["branch-instructions", "branches"], 100_000),
    hardware(5, &["branch-misses"], 100_000),
    hardware(6, &["bus-cycles"], 100_000),
    hardware(3, &["cache-misses"], 1_000_000),
    hardware(2, &["cache-references"], 1_000_000),
    hardware(0, &["cpu-cycles", "cycles"], 1_000_000),
    hardware(7, &["frontend-stalls"], 1_000_000),
    hardware(1, &["instructions"], 1_000_000),
    hardware(9, &["ref-cycles"], 1_000_000),
];

/// The events of `software` or `hardware`.
pub fn events(kind: ProviderKind) -> impl Iterator<Item = &'static CountedEvent> {
    let of = u32::from(kind == ProviderKind::Software);
    EVENTS.iter().filter(move |event| event.counter.kind == of)
}

/// The event that a name stands for.
pub fn event(kind: ProviderKind, name: &str) -> Option<&'static CountedEvent> {
    events(kind).find(|event| event.names.contains(&name))
}

/// Signals that probes may wait for: those without another meaning, numbered as on x86 and Arm.
pub static SIGNALS: &[(&str, i32)] = &[("SIGUSR1", 10), ("SIGUSR2", 12)];

/// What a provider name stands for.
#[derive(Debug)]
pub enum ProviderMatch {
    /// It works.
    Known(&'static Provider),
    /// Others have it: what to use.
    Absent(&'static str),
    /// Nobody has it.
    Unknown,
}

/// Looks a name up, in any case.
pub fn find(name: &str) -> ProviderMatch {
    // `U` is another than `u`.
    if let Some(provider) = PROVIDERS.iter().find(|p| p.names.contains(&name)) {
        return ProviderMatch::Known(provider);
    }
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if let Some(provider) = PROVIDERS.iter().find(|p| p.names.iter().any(is)) {
        return ProviderMatch::Known(provider);
    }
    match ABSENT.iter().find(|(names, _)| names.iter().any(is)) {
        Some((_, way_out)) => ProviderMatch::Absent(way_out),
        None => ProviderMatch::Unknown,
    }
}

/// Nanoseconds in a unit of time.
static UNITS: &[(&str, u64)] =
    &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("m", 60_000_000_000)];

/// The shortest period that timers keep up with, ns.
pub const SHORTEST_PERIOD: u64 = 1_000;

/// The period of `s:1`, `hz:99`, `1s`, `500000` (ns), in ns.
pub fn period(parts: &[&str]) -> Result<u64, String> {
    let (unit, count) = match *parts {
        [unit, count] => (unit, count),
        [joined] => {
            let digits = joined.find(|c: char| !c.is_ascii_digit()).unwrap_or(joined.len());
            (&joined[digits..], &joined[..digits])
        }
        _ => return Err("expected a unit and a number".into()),
    };
    if count.is_empty() {
        return Err("the number is missing".into());
    }
    let number: u64 = count.parse().map_err(|_| format!("`{count}` is no whole number"))?;
    let period =
        in_unit(unit, number).ok_or_else(|| format!("`{unit}` is no unit: use s, ms, us, ns or hz"))?;
    if period < SHORTEST_PERIOD && unit.is_empty() {
        return Err(format!("`{count}` without a unit is {period} ns, and the shortest period is 1 us"));
    }
    if period < SHORTEST_PERIOD {
        return Err(format!("a period of {period} ns is too short; the shortest is 1 us"));
    }
    Ok(period)
}

/// How a wrong period of a timer is written: with the number that stood there alone, as most who leave out the unit mean it.
pub fn way_out(provider: &Provider, parts: &[&str]) -> String {
    let name = provider.names[0];
    match (parts, provider.kind) {
        ([count], ProviderKind::Interval) if count.parse::<u64>().is_ok() => {
            format!("write `{name}:s:{count}` for seconds, `{name}:ms:{count}` for milliseconds")
        }
        ([count], _) if count.parse::<u64>().is_ok() => {
            format!("write `{name}:hz:{count}` for so many times a second")
        }
        _ => format!("write `{}`", provider.form),
    }
}

/// `None` for an unknown unit.
fn in_unit(unit: &str, number: u64) -> Option<u64> {
    match unit {
        "" => Some(number),
        "hz" => Some(1_000_000_000u64.checked_div(number).unwrap_or(0)),
        _ => UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, ns)| ns.saturating_mul(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        assert_eq!(period(&["s", "1"]), Ok(1_000_000_000));
        assert_eq!(period(&["1s"]), Ok(1_000_000_000));
        assert_eq!(period(&["hz", "99"]), Ok(10_101_010));
        assert_eq!(period(&["5000"]), Ok(5000));
        for wrong in [&["s", "0"][..], &["hz", "0"], &["x", "1"], &["s", "q"], &["s"], &[], &["ns", "1"]] {
            assert!(period(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_in_any_case() {
        assert!(matches!(find("begin"), ProviderMatch::Known(p) if p.kind == ProviderKind::Begin));
        assert!(matches!(find("UR"), ProviderMatch::Known(p) if p.kind == ProviderKind::Uretprobe));
        assert!(matches!(find("kprobe"), ProviderMatch::Absent(_)));
        assert!(matches!(find("uprob"), ProviderMatch::Unknown));
    }
}
