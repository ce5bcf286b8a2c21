//! Events other than calls of functions at which programs run.
//!
//! A kind of event has one variant of [`Trigger`] and one line in [`Trigger::properties`]; what differs between programs of
//! several kinds depends on their [`Environment`].

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The event that runs a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// `BEGIN`: the start, before everything.
    Begin,
    /// `END`: the end, after everything is detached.
    End,
    /// `self:signal:SIGUSR1`: a signal to the tracer.
    Signal {
        /// Signal number of Linux.
        number: i32,
    },
    /// `test:NAME`, `bench:NAME`: a request of the user.
    Test {
        /// Test or bench.
        kind: TestKind,
        /// `NAME`
        name: String,
    },
    /// `interval:s:1`: a timer of one CPU.
    Interval {
        /// Period in nanoseconds.
        period_ns: u64,
    },
    /// `profile:hz:99`, `software:page-faults:100`: a counter of each CPU.
    Profile {
        /// The counter.
        counter: PerfCounter,
        /// Count between two samples; nanoseconds for clocks.
        period: u64,
    },
    /// `watchpoint:0x10000000:8:w`: a breakpoint of the processor.
    Watchpoint {
        /// Virtual address of the first byte.
        address: u64,
        /// Number of bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// The accesses that stop it.
        accesses: Accesses,
    },
    /// `tracepoint:sched:sched_switch`
    Tracepoint {
        /// `sched`
        category: String,
        /// `sched_switch`
        event: String,
    },
    /// `iter:task`: an item of an iterator of the kernel, which the tracer reads once.
    Iterator {
        /// `task`
        items: String,
    },
    /// `rawtracepoint:sched_switch`
    RawTracepoint {
        /// `sched_switch`
        event: String,
    },
}

/// The environment of a program: who runs it, and what its context is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Environment {
    /// The tracer runs it by BPF_PROG_TEST_RUN, without context.
    Tracer,
    /// A timer, which interrupts any process. The context has the registers.
    Timer,
    /// A counter or a breakpoint, which interrupts the process that raised it. The context has the registers.
    Sample,
    /// A tracepoint. The context is the record.
    Record,
    /// An iterator, which the tracer reads. The context has the fields of an item; all are zero after the last.
    Item,
    /// A raw tracepoint. The context is the arguments of the tracepoint.
    Arguments,
}

/// Properties of a kind of event.
struct TriggerProperties {
    /// The value of `probetype`.
    probe_type: &'static str,
    /// The word with which symbols of programs begin.
    word: &'static str,
    environment: Environment,
}

impl Trigger {
    fn properties(&self) -> TriggerProperties {
        let of = |probe_type, word, environment| TriggerProperties { probe_type, word, environment };
        match self {
            Trigger::Begin => of("special", "begin", Environment::Tracer),
            Trigger::End => of("special", "end", Environment::Tracer),
            Trigger::Signal { .. } => of("self", "signal", Environment::Tracer),
            Trigger::Test { kind, .. } => of(kind.word(), kind.word(), Environment::Tracer),
            Trigger::Interval { .. } => of("interval", "interval", Environment::Timer),
            Trigger::Profile { counter, .. } => of(counter.provider(), "profile", Environment::Sample),
            Trigger::Watchpoint { .. } => of("watchpoint", "watchpoint", Environment::Sample),
            Trigger::Tracepoint { .. } => of("tracepoint", "tracepoint", Environment::Record),
            Trigger::Iterator { .. } => of("iter", "iter", Environment::Item),
            Trigger::RawTracepoint { .. } => of("rawtracepoint", "rawtracepoint", Environment::Arguments),
        }
    }

    /// The value of `probetype`.
    pub fn probe_type(&self) -> &'static str {
        self.properties().probe_type
    }

    /// The word with which symbols of programs begin.
    pub fn word(&self) -> &'static str {
        self.properties().word
    }

    /// ELF section of its programs, which determines their type.
    pub fn section(&self) -> Cow<'static, str> {
        match self {
            Trigger::Iterator { items } => format!("iter/{items}").into(),
            _ => self.environment().section().into(),
        }
    }

    /// The environment of its programs.
    pub fn environment(&self) -> Environment {
        self.properties().environment
    }
}

/// As dumps show it.
impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Trigger::Begin | Trigger::End => Ok(()),
            Trigger::Signal { number } => write!(f, " {number}"),
            Trigger::Test { name, .. } => write!(f, " {name}"),
            Trigger::Interval { period_ns: period }
            | Trigger::Profile { counter: PerfCounter::CPU_CLOCK, period } => write!(f, " {period} ns"),
            Trigger::Profile { counter, period } => {
                write!(f, " {} {} every {period}", counter.provider(), counter.number)
            }
            Trigger::Watchpoint { address, bytes, accesses } => {
                write!(f, " {address:#x} {bytes} {}", accesses.letters())
            }
            Trigger::Tracepoint { category, event } => write!(f, " {category}:{event}"),
            Trigger::Iterator { items } => write!(f, " {items}"),
            Trigger::RawTracepoint { event } => write!(f, " {event}"),
        }
    }
}

impl Environment {
    fn section(self) -> &'static str {
        match self {
            Environment::Tracer | Environment::Arguments => "raw_tp",
            Environment::Timer | Environment::Sample => "perf_event",
            Environment::Record => "tracepoint",
            Environment::Item => "iter",
        }
    }

    /// Whether the event is one of the current process, so that programs run only in traced processes.
    pub fn has_process(self) -> bool {
        match self {
            Environment::Tracer | Environment::Timer | Environment::Item => false,
            Environment::Sample | Environment::Record | Environment::Arguments => true,
        }
    }

    /// Whether the context has the registers of interrupted code.
    pub fn has_registers(self) -> bool {
        match self {
            Environment::Timer | Environment::Sample => true,
            Environment::Tracer | Environment::Record | Environment::Item | Environment::Arguments => false,
        }
    }
}

/// Kind of a body that runs on request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TestKind {
    /// `test:NAME`: checked for correctness; runs once.
    Test,
    /// `bench:NAME`: measured; runs often.
    Bench,
}

impl TestKind {
    /// The keyword in scripts and options.
    pub fn word(self) -> &'static str {
        match self {
            TestKind::Test => "test",
            TestKind::Bench => "bench",
        }
    }
}

/// Accesses to memory that a processor can watch. Those of x86 cannot watch reads alone.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accesses {
    /// `w`
    Write,
    /// `rw`
    ReadWrite,
    /// `x`: before the instruction at the address.
    Execute,
}

impl Accesses {
    /// The accesses with these letters, in any order.
    pub fn parse(letters: &str) -> Option<Accesses> {
        match letters {
            "w" => Some(Accesses::Write),
            "rw" | "wr" => Some(Accesses::ReadWrite),
            "x" => Some(Accesses::Execute),
            _ => None,
        }
    }

    /// The letters in scripts.
    pub fn letters(self) -> &'static str {
        match self {
            Accesses::Write => "w",
            Accesses::ReadWrite => "rw",
            Accesses::Execute => "x",
        }
    }
}

/// A counter of the kernel or of the processor, with the numbers of perf_event_open(2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfCounter {
    /// `PERF_TYPE_HARDWARE` or `PERF_TYPE_SOFTWARE`.
    pub kind: u32,
    /// Number of the event within its type.
    pub number: u64,
}

impl PerfCounter {
    /// The CPU clock, with which `profile` samples.
    pub const CPU_CLOCK: PerfCounter = PerfCounter { kind: 1, number: 0 };

    /// The kind of probe that samples by it.
    pub fn provider(self) -> &'static str {
        match self {
            PerfCounter::CPU_CLOCK => "profile",
            PerfCounter { kind: 0, .. } => "hardware",
            PerfCounter { .. } => "software",
        }
    }
}
