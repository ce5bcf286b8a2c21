//! Errors of loading and attaching. Variants contain data, `Display` the text; the command line adds context.

use std::path::PathBuf;
use std::{fmt, io};
use thiserror::Error;

/// Error while probing the features of the kernel. Without them nothing can be loaded.
#[derive(Debug, Error)]
pub enum FeatureError {
    /// Missing capabilities.
    #[error(
        "loading BPF programs is not permitted: needs root, or CAP_BPF and CAP_PERFMON (CAP_SYS_PTRACE for processes of other users); \
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
    /// Another error, such as a kernel without BPF.
    #[error("the kernel cannot load a BPF program: {0}")]
    Kernel(#[source] io::Error),
}

impl FeatureError {
    /// The reason in a few words, the begin of a sentence.
    pub fn in_short(&self) -> String {
        match self {
            FeatureError::NotPermitted => "without root".into(),
            FeatureError::LockedDown => "the kernel is locked down".into(),
            FeatureError::KernelTooOld { release } => {
                format!("Linux {release} is too old for probes of the kernel")
            }
            FeatureError::Kernel(error) => format!("the kernel loads no BPF programs ({error})"),
        }
    }
}

/// Error of loading an object.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Compiled by another version of cudatrace.
    #[error("the compiled script has format version {found}, expected {expected}; compile it again")]
    Version {
        /// Version in the manifest.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// Missing permission or feature.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// libbpf cannot read the object.
    #[error("the compiled object cannot be opened: {reason}; this is a bug in cudatrace, please report it")]
    Object {
        /// Messages of libbpf.
        reason: String,
    },
    /// The manifest names a map or program that the object does not have.
    #[error("the compiled object has no {what} `{symbol}`; this is a bug in cudatrace, please report it")]
    Missing {
        /// `map` or `program`.
        what: &'static str,
        /// Name.
        symbol: String,
    },
    /// The manifest of a module does not begin with that of the session.
    #[error(
        "the module does not extend the running session: it has fewer {what}; this is a bug in cudatrace"
    )]
    NotAnExtension {
        /// `maps`, `events` …
        what: &'static str,
    },
    /// The counters of added clauses do not fit.
    #[error("no room for the counters of further clauses ({room} are in use): start a new session")]
    NoCounters {
        /// Largest number of counters.
        room: usize,
    },
    /// The kernel cannot create a map.
    #[error("map `{symbol}` could not be created: {errno}{}", map_hint(errno))]
    Map {
        /// Name in the object.
        symbol: String,
        /// Error of the kernel.
        errno: io::Error,
    },
    /// A clause that exceeds a limit of the verifier; see [`LIMITS`].
    #[error(
        "the kernel cannot verify the clause of {place}, `{text}`: {limit}\n\
         use shorter strings (`str(p, 64)`, the setting `max_strlen`), fewer iterations, or several clauses"
    )]
    TooMuch {
        /// `line 3`
        place: String,
        /// The clause's probe list.
        text: String,
        /// The exceeded limit.
        limit: &'static str,
    },
    /// The verifier refused a program.
    #[error(
        "the kernel refused the program of {place}, `{text}` ({symbol}): {errno}\n\
         this is a bug in cudatrace, please report it with the script and this log:\n{log}"
    )]
    Refused {
        /// Symbol in the object.
        symbol: String,
        /// `line 3`
        place: String,
        /// The clause's probe list.
        text: String,
        /// Error of the kernel.
        errno: io::Error,
        /// Tail of the verifier's log.
        log: String,
    },
    /// The script needs what only the kernel has, although it was to run in the traced processes.
    #[error("the script cannot run in the traced process: {reason}")]
    NotInProcess {
        /// The reason, as a sentence.
        reason: String,
    },
    /// The ring buffer or a control map could not be set up.
    #[error("{what}: {errno}{}", hint(errno))]
    Setup {
        /// Failure, as text.
        what: &'static str,
        /// Error of the kernel.
        errno: io::Error,
    },
}

/// Messages of the verifier when a program exceeds one of its limits, and their meanings for a script.
pub(crate) static LIMITS: &[(&str, &str)] = &[
    (
        "BPF program is too large",
        "the verifier follows at most a million instructions, and each iteration of `unroll`, of a short range and of a search in a string adds some",
    ),
    (
        "jumps is too complex",
        "the verifier stores at most 8192 branches, and each iteration of `unroll`, of a short range and of a search in a string adds some",
    ),
    ("frames is too deep", "loops can be nested at most 7 deep"),
    ("combined stack size", "nested loops need more than 512 bytes of stack in total"),
];

fn none_of(count: usize) -> String {
    if count == 1 {
        String::new()
    } else {
        format!("none of its {count} attach points could be attached; the first error: ")
    }
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
        Some(libc::ENFILE) => "; raise the system-wide limit with `sysctl fs.file-max`",
        _ => "",
    }
}

/// Error of attaching a script.
#[derive(Debug, Error)]
pub enum AttachError {
    /// None of the attach points of a clause could be attached.
    #[error("`{text}` ({place}) could not be attached: {}{first}", none_of(*count))]
    Nothing {
        /// The clause's probe list.
        text: String,
        /// `line 3`
        place: String,
        /// Number of attach points.
        count: usize,
        /// The first failure.
        first: Box<SiteFailure>,
    },
    /// A timer or a tracepoint could not be attached.
    #[error("`{text}` ({place}) could not be attached: {what}: {errno}{}", hint(errno))]
    Probe {
        /// The clause's probe list.
        text: String,
        /// `line 3`
        place: String,
        /// Failure, as text.
        what: &'static str,
        /// Error of the kernel.
        errno: io::Error,
    },
    /// Interrupted by a signal; nothing stays attached.
    #[error("interrupted while attaching: nothing is traced; {attached} probe{} detached again", if *attached == 1 { " was" } else { "s were" })]
    Stopped {
        /// Number of attach points that were attached.
        attached: usize,
    },
    /// A module that extends a session did not load.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// An attach point that the kernel refused.
#[derive(Debug)]
pub struct SiteFailure {
    /// Probe: `uprobe:libcuda:cuInit`.
    pub probe: String,
    /// Displayed path of the file, and offset in it; `None` at a function of the kernel.
    pub position: Option<(PathBuf, u64)>,
    /// Error of the kernel.
    pub error: SiteError,
}

/// The kernel's reason for refusing an attach point.
#[derive(Debug)]
pub enum SiteError {
    /// A failed system call.
    Errno(io::Error),
    /// The verifier's message about a function at which no program can be loaded.
    Verifier(String),
}

impl SiteError {
    /// The number of the error, if it has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            SiteError::Errno(errno) => errno.raw_os_error(),
            SiteError::Verifier(_) => None,
        }
    }
}

impl fmt::Display for SiteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some((path, offset)) => {
                write!(f, "`{}` at {}+{offset:#x}: {}", self.probe, path.display(), self.why())
            }
            None => write!(f, "`{}`: {}", self.probe, self.why()),
        }
    }
}

/// `ENOTSUPP`, which libc does not define: the kernel cannot execute the instruction out of line.
const UNSUPPORTED: i32 = 524;

impl SiteFailure {
    /// The probe and its position, which both programs of a call have.
    pub(crate) fn key(&self) -> (String, u64) {
        (self.probe.clone(), self.position.as_ref().map_or(0, |(_, offset)| *offset))
    }

    /// The error as text.
    pub fn why(&self) -> String {
        let errno = match &self.error {
            SiteError::Errno(errno) => errno,
            SiteError::Verifier(message) => {
                return format!("the kernel refuses it: {message}");
            }
        };
        match errno.raw_os_error() {
            Some(UNSUPPORTED) if self.position.is_none() => {
                "the kernel cannot pass on its arguments, which are too many or structs: use a `kprobe`"
                    .into()
            }
            Some(UNSUPPORTED) => {
                "the kernel cannot place a probe on this instruction, such as one with the prefix `lock`"
                    .into()
            }
            Some(libc::EILSEQ) if self.position.is_none() => "no instruction begins at this offset".into(),
            Some(libc::EINVAL) if self.position.is_none() => {
                "the kernel forbids probes on this function (`notrace`, or on the blacklist of kprobes)"
                    .into()
            }
            _ => errno.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_cannot_be_probed_is_named() {
        let errno = io::Error::from_raw_os_error(UNSUPPORTED);
        let probe = "uretprobe:libc:pthread_spin_lock".to_owned();
        let position = Some(("/lib/libc.so.6".into(), 0x8ff70));
        let failure = SiteFailure { probe, position, error: SiteError::Errno(errno) };
        let text = failure.to_string();
        assert!(text.contains("on this instruction") && !text.contains("524"), "{text}");
    }
}
