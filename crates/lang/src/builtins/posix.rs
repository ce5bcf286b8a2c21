//! Names of errors and signals, whose numbers are the same on x86-64 and aarch64.
//!
//! ```text
//! args.ret == -ENOENT          strerror(n) == "No such file or directory"
//! args.sig == SIGKILL          signal_name(n) == "Killed"
//! ```

/// Names of errors and the C library's texts, by number. Unused numbers have empty strings.
static ERRORS: &[(&str, &str)] = &[
    ("", "Success"),
    ("EPERM", "Operation not permitted"),
    ("ENOENT", "No such file or directory"),
    ("ESRCH", "No such process"),
    ("EINTR", "Interrupted system call"),
    ("EIO", "Input/output error"),
    ("ENXIO", "No such device or address"),
    ("E2BIG", "Argument list too long"),
    ("ENOEXEC", "Exec format error"),
    ("EBADF", "Bad file descriptor"),
    ("ECHILD", "No child processes"),
    ("EAGAIN", "Resource temporarily unavailable"),
    ("ENOMEM", "Cannot allocate memory"),
    ("EACCES", "Permission denied"),
    ("EFAULT", "Bad address"),
    ("ENOTBLK", "Block device required"),
    ("EBUSY", "Device or resource busy"),
    ("EEXIST", "File exists"),
    ("EXDEV", "Invalid cross-device link"),
    ("ENODEV", "No such device"),
    ("ENOTDIR", "Not a directory"),
    ("EISDIR", "Is a directory"),
    ("EINVAL", "Invalid argument"),
    ("ENFILE", "Too many open files in system"),
    ("EMFILE", "Too many open files"),
    ("ENOTTY", "Inappropriate ioctl for device"),
    ("ETXTBSY", "Text file busy"),
    ("EFBIG", "File too large"),
    ("ENOSPC", "No space left on device"),
    ("ESPIPE", "Illegal seek"),
    ("EROFS", "Read-only file system"),
    ("EMLINK", "Too many links"),
    ("EPIPE", "Broken pipe"),
    ("EDOM", "Numerical argument out of domain"),
    ("ERANGE", "Numerical result out of range"),
    ("EDEADLK", "Resource deadlock avoided"),
    ("ENAMETOOLONG", "File name too long"),
    ("ENOLCK", "No locks available"),
    ("ENOSYS", "Function not implemented"),
    ("ENOTEMPTY", "Directory not empty"),
    ("ELOOP", "Too many levels of symbolic links"),
    ("", ""),
    ("ENOMSG", "No message of desired type"),
    ("EIDRM", "Identifier removed"),
    ("ECHRNG", "Channel number out of range"),
    ("EL2NSYNC", "Level 2 not synchronized"),
    ("EL3HLT", "Level 3 halted"),
    ("EL3RST", "Level 3 reset"),
    ("ELNRNG", "Link number out of range"),
    ("EUNATCH", "Protocol driver not attached"),
    ("ENOCSI", "No CSI structure available"),
    ("EL2HLT", "Level 2 halted"),
    ("EBADE", "Invalid exchange"),
    ("EBADR", "Invalid request descriptor"),
    ("EXFULL", "Exchange full"),
    ("ENOANO", "No anode"),
    ("EBADRQC", "Invalid request code"),
    ("EBADSLT", "Invalid slot"),
    ("", ""),
    ("EBFONT", "Bad font file format"),
    ("ENOSTR", "Device not a stream"),
    ("ENODATA", "No data available"),
    ("ETIME", "Timer expired"),
    ("ENOSR", "Out of streams resources"),
    ("ENONET", "Machine is not on the network"),
    ("ENOPKG", "Package not installed"),
    ("EREMOTE", "Object is remote"),
    ("ENOLINK", "Link has been severed"),
    ("EADV", "Advertise error"),
    ("ESRMNT", "Srmount error"),
    ("ECOMM", "Communication error on send"),
    ("EPROTO", "Protocol error"),
    ("EMULTIHOP", "Multihop attempted"),
    ("EDOTDOT", "RFS specific error"),
    ("EBADMSG", "Bad message"),
    ("EOVERFLOW", "Value too large for defined data type"),
    ("ENOTUNIQ", "Name not unique on network"),
    ("EBADFD", "File descriptor in bad state"),
    ("EREMCHG", "Remote address changed"),
    ("ELIBACC", "Can not access a needed shared library"),
    ("ELIBBAD", "Accessing a corrupted shared library"),
    ("ELIBSCN", ".lib section in a.out corrupted"),
    ("ELIBMAX", "Attempting to link in too many shared libraries"),
    ("ELIBEXEC", "Cannot exec a shared library directly"),
    ("EILSEQ", "Invalid or incomplete multibyte or wide character"),
    ("ERESTART", "Interrupted system call should be restarted"),
    ("ESTRPIPE", "Streams pipe error"),
    ("EUSERS", "Too many users"),
    ("ENOTSOCK", "Socket operation on non-socket"),
    ("EDESTADDRREQ", "Destination address required"),
    ("EMSGSIZE", "Message too long"),
    ("EPROTOTYPE", "Protocol wrong type for socket"),
    ("ENOPROTOOPT", "Protocol not available"),
    ("EPROTONOSUPPORT", "Protocol not supported"),
    ("ESOCKTNOSUPPORT", "Socket type not supported"),
    ("EOPNOTSUPP", "Operation not supported"),
    ("EPFNOSUPPORT", "Protocol family not supported"),
    ("EAFNOSUPPORT", "Address family not supported by protocol"),
    ("EADDRINUSE", "Address already in use"),
    ("EADDRNOTAVAIL", "Cannot assign requested address"),
    ("ENETDOWN", "Network is down"),
    ("ENETUNREACH", "Network is unreachable"),
    ("ENETRESET", "Network dropped connection on reset"),
    ("ECONNABORTED", "Software caused connection abort"),
    ("ECONNRESET", "Connection reset by peer"),
    ("ENOBUFS", "No buffer space available"),
    ("EISCONN", "Transport endpoint is already connected"),
    ("ENOTCONN", "Transport endpoint is not connected"),
    ("ESHUTDOWN", "Cannot send after transport endpoint shutdown"),
    ("ETOOMANYREFS", "Too many references: cannot splice"),
    ("ETIMEDOUT", "Connection timed out"),
    ("ECONNREFUSED", "Connection refused"),
    ("EHOSTDOWN", "Host is down"),
    ("EHOSTUNREACH", "No route to host"),
    ("EALREADY", "Operation already in progress"),
    ("EINPROGRESS", "Operation now in progress"),
    ("ESTALE", "Stale file handle"),
    ("EUCLEAN", "Structure needs cleaning"),
    ("ENOTNAM", "Not a XENIX named type file"),
    ("ENAVAIL", "No XENIX semaphores available"),
    ("EISNAM", "Is a named type file"),
    ("EREMOTEIO", "Remote I/O error"),
    ("EDQUOT", "Disk quota exceeded"),
    ("ENOMEDIUM", "No medium found"),
    ("EMEDIUMTYPE", "Wrong medium type"),
    ("ECANCELED", "Operation canceled"),
    ("ENOKEY", "Required key not available"),
    ("EKEYEXPIRED", "Key has expired"),
    ("EKEYREVOKED", "Key has been revoked"),
    ("EKEYREJECTED", "Key was rejected by service"),
    ("EOWNERDEAD", "Owner died"),
    ("ENOTRECOVERABLE", "State not recoverable"),
    ("ERFKILL", "Operation not possible due to RF-kill"),
    ("EHWPOISON", "Memory page has hardware error"),
];

/// Alternative names.
static ERROR_ALIASES: &[(&str, &str)] =
    &[("EWOULDBLOCK", "EAGAIN"), ("EDEADLOCK", "EDEADLK"), ("ENOTSUP", "EOPNOTSUPP")];

/// Names of signals by number from 1. Higher numbers are real-time signals, which have only texts.
pub static SIGNALS: &[&str] = &[
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The C library's texts of signals, by number from 0.
static SIGNAL_TEXTS: &[&str] = &[
    "Unknown signal 0",
    "Hangup",
    "Interrupt",
    "Quit",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Killed",
    "User defined signal 1",
    "Segmentation fault",
    "User defined signal 2",
    "Broken pipe",
    "Alarm clock",
    "Terminated",
    "Stack fault",
    "Child exited",
    "Continued",
    "Stopped (signal)",
    "Stopped",
    "Stopped (tty input)",
    "Stopped (tty output)",
    "Urgent I/O condition",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "Virtual timer expired",
    "Profiling timer expired",
    "Window changed",
    "I/O possible",
    "Power failure",
    "Bad system call",
    "Unknown signal 32",
    "Unknown signal 33",
    "Real-time signal 0",
    "Real-time signal 1",
    "Real-time signal 2",
    "Real-time signal 3",
    "Real-time signal 4",
    "Real-time signal 5",
    "Real-time signal 6",
    "Real-time signal 7",
    "Real-time signal 8",
    "Real-time signal 9",
    "Real-time signal 10",
    "Real-time signal 11",
    "Real-time signal 12",
    "Real-time signal 13",
    "Real-time signal 14",
    "Real-time signal 15",
    "Real-time signal 16",
    "Real-time signal 17",
    "Real-time signal 18",
    "Real-time signal 19",
    "Real-time signal 20",
    "Real-time signal 21",
    "Real-time signal 22",
    "Real-time signal 23",
    "Real-time signal 24",
    "Real-time signal 25",
    "Real-time signal 26",
    "Real-time signal 27",
    "Real-time signal 28",
    "Real-time signal 29",
    "Real-time signal 30",
];

/// Numbers and texts of all errors.
pub fn error_texts() -> impl Iterator<Item = (i64, &'static str)> {
    numbered(0, ERRORS.iter().map(|(_, text)| *text))
}

/// Numbers and names of all signals with a name.
fn signals() -> impl Iterator<Item = (i64, &'static str)> {
    numbered(1, SIGNALS.iter().copied())
}

/// Numbers and texts of all signals: `Killed`.
pub fn signal_texts() -> impl Iterator<Item = (i64, &'static str)> {
    numbered(0, SIGNAL_TEXTS.iter().copied())
}

/// The text that `signal_name` prints: `Killed`, or `N/A` for an invalid number, as in bpftrace.
pub fn signal_text(number: i64) -> &'static str {
    usize::try_from(number).ok().and_then(|number| SIGNAL_TEXTS.get(number)).unwrap_or(&"N/A")
}

/// `ENOENT`, `SIGKILL`, `__NR_openat`, `SYS_openat`
pub fn constant(name: &str) -> Option<i64> {
    if let Some(call) = name.strip_prefix("__NR_").or(name.strip_prefix("SYS_")) {
        return call.parse::<syscalls::Sysno>().ok().map(|call| i64::from(call.id()));
    }
    let name = ERROR_ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    numbered(0, errors()).chain(signals()).find(|(_, known)| *known == name).map(|(number, _)| number)
}

/// The names of [`constant`], without alternative ones.
pub fn constant_names() -> impl Iterator<Item = &'static str> {
    errors().chain(SIGNALS.iter().copied()).filter(|name| !name.is_empty())
}

fn errors() -> impl Iterator<Item = &'static str> {
    ERRORS.iter().map(|(name, _)| *name)
}

/// Non-empty names with their numbers.
fn numbered(
    first: i64,
    names: impl Iterator<Item = &'static str>,
) -> impl Iterator<Item = (i64, &'static str)> {
    (first..).zip(names).filter(|(_, name)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_linux() {
        let cases = [("EPERM", 1), ("EDEADLK", 35), ("EBFONT", 59), ("EHWPOISON", 133), ("EWOULDBLOCK", 11)];
        for (name, number) in cases.into_iter().chain([("SIGHUP", 1), ("SIGSTOP", 19), ("SIGSYS", 31)]) {
            assert_eq!(constant(name), Some(number), "{name}");
        }
        assert_eq!((constant(""), constant("ENOTHING")), (None, None));
    }

    #[test]
    fn texts_are_those_of_the_c_library() {
        for (number, text) in error_texts() {
            let message = std::io::Error::from_raw_os_error(number as i32).to_string();
            assert_eq!(message, format!("{text} (os error {number})"));
        }
        assert_eq!(error_texts().count(), 132);
    }

    #[test]
    fn every_signal_has_a_text() {
        for (number, text) in [
            (-1, "N/A"),
            (0, "Unknown signal 0"),
            (2, "Interrupt"),
            (9, "Killed"),
            (31, "Bad system call"),
            (34, "Real-time signal 0"),
            (64, "Real-time signal 30"),
            (65, "N/A"),
        ] {
            assert_eq!(signal_text(number), text, "{number}");
        }
    }
}
