//! What can go wrong between an object and a running session. Data in the variants, words in `Display`; the command
//! line adds context.

use std::path::PathBuf;
use std::{fmt, io};
use thiserror::Error;

/// Why the kernel's features could not be found out: without them nothing can be loaded.
#[derive(Debug, Error)]
pub enum FeatureError {
    /// Neither root nor the capabilities.
    #[error(
        "loading BPF programs is not permitted: needs root, or CAP_BPF and CAP_PERFMON (CAP_SYS_PTRACE for processes of others); \
         try `sudo`, or `cudatrace doctor` for details"
    )]
    NotPermitted,
    /// `lockdown=confidentiality`
    #[error(
        "the kernel is locked down (`confidentiality`) and refuses tracing even to root; boot with `lockdown=integrity` or \
         without it"
    )]
    LockedDown,
    /// Before Linux 5.15.
    #[error("kernel {release} is too old: cudatrace needs Linux 5.15 (attach cookies of uprobes)")]
    KernelTooOld {
        /// `uname -r`
        release: String,
    },
    /// Something else, such as a kernel without BPF.
    #[error("the kernel cannot load a BPF program: {0}")]
    Kernel(#[source] io::Error),
}

/// Why an object did not load.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Made by another version of cudatrace.
    #[error("the compiled script has format version {found}, expected {expected}; compile it again")]
    Version {
        /// In the manifest.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// Rights or kernel.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// libbpf cannot read it.
    #[error("the compiled object cannot be opened: {reason}; this is a bug in cudatrace, please report it")]
    Object {
        /// libbpf's words.
        reason: String,
    },
    /// The manifest names what the object lacks.
    #[error("the compiled object has no {what} `{symbol}`; this is a bug in cudatrace, please report it")]
    Missing {
        /// `map` or `program`.
        what: &'static str,
        /// Its name.
        symbol: String,
    },
    /// A module does not begin with what the session has.
    #[error(
        "the module does not extend the running session: its {what} are fewer; this is a bug in cudatrace"
    )]
    NotAnExtension {
        /// `maps`, `events` …
        what: &'static str,
    },
    /// The counters of the added clauses have no room.
    #[error("no room for the counters of further clauses ({room} are taken): begin a new session")]
    NoCounters {
        /// How many there can be.
        room: usize,
    },
    /// The kernel has no room for a map, or refuses it.
    #[error("map `{symbol}` could not be created: {errno}{}", map_hint(errno))]
    Map {
        /// Its name in the object.
        symbol: String,
        /// Why.
        errno: io::Error,
    },
    /// A clause that the verifier gives up on; see [`LIMITS`].
    #[error(
        "the kernel cannot check the clause of {place}, `{text}`: {limit}\n\
         take shorter strings (`str(p, 64)`, the setting `max_strlen`), fewer rounds, or several clauses"
    )]
    TooMuch {
        /// `line 3`
        place: String,
        /// The clause's probe list.
        text: String,
        /// What it exceeds.
        limit: &'static str,
    },
    /// The verifier's no.
    #[error(
        "the kernel refused the program of {place}, `{text}` ({symbol}): {errno}\n\
         this is a bug in cudatrace, please report it with the script and what the kernel said:\n{log}"
    )]
    Refused {
        /// Symbol in the object.
        symbol: String,
        /// `line 3`
        place: String,
        /// The clause's probe list.
        text: String,
        /// The kernel's errno.
        errno: io::Error,
        /// Tail of the verifier's log.
        log: String,
    },
    /// The ring buffer or a control map could not be set up.
    #[error("{what}: {errno}{}", hint(errno))]
    Setup {
        /// What was tried.
        what: &'static str,
        /// Why not.
        errno: io::Error,
    },
}

/// What the verifier says when a program is correct as far as it has come and it goes no further, and what that means for a
/// script.
pub(crate) static LIMITS: &[(&str, &str)] = &[
    (
        "BPF program is too large",
        "it follows a million steps, and each round of `unroll`, of a short range and of a search in a string has some",
    ),
    (
        "jumps is too complex",
        "it remembers 8192 branches, and each round of `unroll`, of a short range and of a search in a string has some",
    ),
    ("frames is too deep", "loops nest 7 deep at most"),
    ("combined stack size", "nested loops need more than 512 bytes of stack together"),
];

fn none_of(count: usize) -> String {
    if count == 1 { String::new() } else { format!("none of its {count} attach points took; the first: ") }
}

fn map_hint(errno: &io::Error) -> &'static str {
    match errno.raw_os_error() {
        Some(libc::ENOMEM) => "; lower `max_map_keys`",
        Some(libc::E2BIG) => "; its keys or values are too large",
        _ => hint(errno),
    }
}

fn hint(errno: &io::Error) -> &'static str {
    match errno.raw_os_error() {
        Some(libc::EMFILE) => "; raise the limit with `ulimit -n`",
        Some(libc::ENFILE) => "; raise the machine's limit with `sysctl fs.file-max`",
        _ => "",
    }
}

/// Why attaching failed altogether.
#[derive(Debug, Error)]
pub enum AttachError {
    /// None of a clause's attach points took.
    #[error("`{text}` ({place}) could not be attached: {}{first}", none_of(*count))]
    Nothing {
        /// The clause's probe list.
        text: String,
        /// `line 3`
        place: String,
        /// Attach points tried.
        count: usize,
        /// The first failure.
        first: SiteFailure,
    },
    /// A timer or a tracepoint.
    #[error("`{text}` ({place}) could not be attached: {what}: {errno}{}", hint(errno))]
    Probe {
        /// The clause's probe list.
        text: String,
        /// `line 3`
        place: String,
        /// The call.
        what: &'static str,
        /// Why.
        errno: io::Error,
    },
    /// A signal came; nothing stays attached.
    #[error("interrupted while attaching: {attached} probes were in place")]
    Stopped {
        /// Attach points that took until then.
        attached: usize,
    },
    /// A module that extends a session did not load.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// An attach point that the kernel refused.
#[derive(Debug)]
pub struct SiteFailure {
    /// Its probe, `uprobe:libcuda:cuInit`.
    pub probe: String,
    /// Its file, as shown.
    pub path: PathBuf,
    /// Its offset in the file.
    pub offset: u64,
    /// Why.
    pub errno: io::Error,
}

impl fmt::Display for SiteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SiteFailure { probe, path, offset, .. } = self;
        write!(f, "`{probe}` at {}+{offset:#x}: {}", path.display(), self.why())
    }
}

/// The kernel's own `ENOTSUPP`, which is no errno for programs: it cannot execute the instruction elsewhere.
const UNSUPPORTED: i32 = 524;

impl SiteFailure {
    /// In words.
    pub fn why(&self) -> String {
        match self.errno.raw_os_error() {
            Some(UNSUPPORTED) => {
                "the kernel cannot put a probe on the instruction there, such as one that begins with `lock`"
                    .into()
            }
            _ => self.errno.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_the_kernel_does_not_probe_is_said() {
        let errno = io::Error::from_raw_os_error(UNSUPPORTED);
        let probe = "uretprobe:libc:pthread_spin_lock".to_owned();
        let failure = SiteFailure { probe, path: "/lib/libc.so.6".into(), offset: 0x8ff70, errno };
        let said = failure.to_string();
        assert!(said.contains("the instruction there") && !said.contains("524"), "{said}");
    }
}
