//! Random scripts for a real process: two runs of it print the same.
//!
//! The process is `tests/programs/slots.c`. Each clause has functions of its own there, so that the clauses of several seeds can
//! be one script: `slot_3_a`, `slot_3_b` and `slot_3_c` for the clause with number 3.
//!
//! Phrases are left out if they depend on the run, or if the two engines may differ in them.

use super::Maker;
use super::declarations::{DECLARATIONS, FIRST, Probe, Side, entry, having, probe};

/// A script, and the number of clauses with functions of their own.
#[derive(Debug)]
pub struct LiveScript {
    /// Text, with `TARGET` in place of the program's path.
    pub text: String,
    /// Number of clauses.
    pub clauses: usize,
}

/// The clauses of several seeds as one script.
pub fn live_script(seeds: &[u64]) -> LiveScript {
    let mut text = format!("{DECLARATIONS}BEGIN {{ {FIRST} }}\n");
    let mut clauses = 0;
    for &seed in seeds {
        let mut maker = Maker::new(seed, None);
        for _ in 0..1 + maker.rng.below(3) {
            maker.slot = Some(clauses);
            maker.clause();
            clauses += 1;
        }
        text.push_str(&maker.text);
    }
    LiveScript { text, clauses }
}

const ARGS: &[&str] = &["args.number", "args.small", "args.place->x", "args.place->tag", "args.ninth"];

/// Attach points; `SLOT` is replaced by the number of the clause.
pub(super) static PROBES: &[Probe] = &[
    entry("uprobe:TARGET:slot_SLOT_a", ARGS),
    entry("uprobe:TARGET:slot_SLOT_*", ARGS),
    entry("uprobe:TARGET:slot_SLOT_a, uprobe:TARGET:slot_SLOT_c", ARGS),
    having(&["func", "retval"], probe(Side::Return, "uretprobe:TARGET:slot_SLOT_b", ARGS)),
    having(&["func", "retval"], probe(Side::Return, "uretprobe:TARGET:slot_SLOT_*", ARGS)),
];

/// The attach point of a clause.
pub(super) fn attach_point(name: &str, slot: usize) -> String {
    name.replace("SLOT", &slot.to_string())
}

/// Names whose value or effect differs between two runs, or between the kernel and the process.
const NAMES: &[&str] = &[
    // Ids and times.
    "pid",
    "tid",
    "cpid",
    "leader_tid",
    "cpu",
    "numaid",
    "rand",
    "jiffies",
    "elapsed",
    "nsecs",
    "duration",
    "started",
    "strftime",
    "time",
    "tseries",
    "last",
    "total",
    // Maps that replace keys when they are nearly full.
    "l",
    "pc",
    // Values of CUDA.
    "device",
    "chosen_device",
    "context",
    "device_name",
    "device_uuid",
    "device_pci",
    // Text with the process's number.
    "span",
    "event",
    "counter",
    // Only the kernel has these.
    "kstack",
    "cgroup",
    "cgroup_path",
    "signal",
    // Effects on the program, the output or the run that take a moment.
    "signal_thread",
    "system",
    "exit",
    "assert",
    "clear",
    "zero",
];

/// Beginnings of phrases that print a map a moment later or the name of any process, or need cgroups.
const TEXTS: &[&str] = &[
    "cgroupid(",
    "print(@`i r h",
    "print(`u3`)",
    "print(@`c i m",
    "print(@a,",
    "print(@c[",
    "print(@`a hk",
    "print(@odd",
    "comm((uint32)",
];

/// Whether a phrase may print something else in another run, whatever replaces its placeholders.
pub(super) fn varies(phrase: &str) -> bool {
    let has_word = |choice: &str| choice.split_whitespace().any(|word| !word_varies(word));
    let mut parts = phrase.split('`').enumerate();
    TEXTS.iter().any(|text| phrase.contains(text))
        || parts.any(|(at, part)| if at % 2 == 1 { !has_word(part) } else { word_varies(part) })
}

/// Whether text without placeholders has such a name.
pub(super) fn word_varies(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|name| NAMES.contains(&name))
}
