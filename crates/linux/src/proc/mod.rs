//! Processes in `/proc`: mappings, parents, namespaces, environment.
//!
//! A process may end between any two reads; a value that cannot be read then is `None` or empty. Names of processes and paths may have
//! any bytes.
//!
//! - [`maps`]: its memory; [`stat`] and [`status`]: its state and rights; [`seccomp`]: its filters
//! - [`program`]: the program that it executes; [`family`]: its descendants
//! - [`ns`]: its namespaces; [`root`]: the files that it sees
//! - this file: what has a file of its own in `/proc`, and needs no parser

pub mod family;
pub mod maps;
pub mod ns;
pub mod program;
pub mod root;
pub mod seccomp;
pub mod stat;
pub mod status;

pub use family::{descends_from, with_ancestors, with_descendants};
pub use maps::{Mapping, MappingName, mappings};
pub use ns::{
    Namespace, namespace, namespace_name, own_pid_namespace, pid_namespace, sees_all_pids,
    shares_network_and_pids,
};
pub use program::{Program, share_memory};
pub use root::{open_path, root_prefix};
pub use stat::{Usage, has_ended, is_of_kernel, started};
pub use status::{Status, file_user, innermost_pid, may_inspect_this_one, tgid};

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// All processes that `/proc` shows, in ascending order.
pub fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Whether a process exists, though it may have ended: its parent has not waited for it yet.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The threads of a process.
///
/// # Errors
/// ENOENT: the process has ended.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The control groups of a process, one per line; empty if it has ended.
pub fn control_groups(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default()).into_owned()
}

/// Size of the memory that a process has mapped, in pages; it changes with each library that is loaded.
pub fn mapped_pages(pid: u32) -> Option<u64> {
    let sizes = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    sizes.split(' ').next()?.parse().ok()
}

/// The process name that the kernel stores: at most 15 bytes, which the process can change.
pub fn comm(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(&text)).into_owned())
}

/// Path of the running program in the process's root.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Path of the working directory in the process's root.
pub fn directory(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Environment of the process at its start.
pub fn environment(pid: u32) -> HashMap<OsString, OsString> {
    variables(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
}

/// The variables of a block of `NAME=VALUE`, each with a zero byte at its end.
fn variables(block: &[u8]) -> HashMap<OsString, OsString> {
    let pairs = block.split(|&byte| byte == 0).filter_map(|pair| split_at_byte(pair, b'='));
    let named = pairs.filter(|(name, _)| !name.is_empty());
    named.map(|(name, value)| (OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into())).collect()
}

/// Splits at the first separator byte.
fn split_at_byte(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(separator, text)?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name_and_any_value() {
        let found = variables(b"PATH=/venv/bin:/bin\0EMPTY=\0A=b=c\0=odd\0broken\0\0");
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let expected = [pair("PATH", "/venv/bin:/bin"), pair("EMPTY", ""), pair("A", "b=c")];
        assert_eq!(found, HashMap::from(expected));
    }

    #[test]
    fn a_forked_process_executes_the_program_of_its_parent_until_it_executes_another_one() {
        let script = "(while :; do read line; done) <&0 & sleep 60 & wait";
        let mut shell = std::process::Command::new("sh");
        let mut shell =
            shell.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().expect("a shell");
        let pid = shell.id();
        let find = || {
            let all = with_descendants(&[pid]).into_iter().filter(|child| *child != pid);
            let (forked, other): (Vec<u32>, _) =
                all.partition(|child| Program::of(*child).and_then(Program::forked_from) == Some(pid));
            (forked.len(), other.iter().filter(|child| comm(**child).as_deref() == Some("sleep")).count())
        };
        let found = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            find() == (1, 1)
        });
        let all = with_descendants(&[pid]);
        all.iter().for_each(|pid| drop(std::process::Command::new("kill").arg(pid.to_string()).status()));
        shell.wait().expect("it ends");
        assert!(found, "{:?}", find());
    }

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(with_descendants(&[own]).contains(&child.id()));
        assert!(!has_ended(child.id()) && !is_of_kernel(child.id()));
        assert!(Program::of(child.id()).is_some_and(|program| program.has_memory()));
        assert_eq!(root_prefix(child.id()), PathBuf::new());
        assert_eq!(pid_namespace(child.id()), own_pid_namespace());
        child.kill().expect("killed");
        child.wait().expect("waited");
        assert!(has_ended(child.id()));
        assert!(mappings(child.id()).is_empty());
    }
}
