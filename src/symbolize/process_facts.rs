//! Attributes of a process from `/proc`: for labels of metrics, resources of OpenTelemetry, and names of programs.
//!
//! Exporters query from threads of their own, and the process may have ended before its record is exported. The attributes are
//! therefore read once and cached; those of a command that we start are taken from its command line.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use host::container;
use linux::proc;

/// Largest number of arguments that are kept of a process, and largest size of each in bytes.
const ARGUMENTS: usize = 64;
const BYTES: usize = 1024;
/// Largest number of processes that are kept.
const PROCESSES: usize = 4096;

/// Facts about a process, as far as they could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Start time in ticks since boot; `None` if the process was never read while it ran.
    pub started: Option<u64>,
    /// Program file.
    pub executable: Option<PathBuf>,
    /// Its command line.
    pub arguments: Vec<String>,
    /// Container and pod, with OpenTelemetry's names.
    pub place: Vec<(&'static str, String)>,
}

static SEEN: Mutex<Option<HashMap<u32, Arc<Facts>>>> = Mutex::new(None);

fn with_seen<T>(use_it: impl FnOnce(&mut HashMap<u32, Arc<Facts>>) -> T) -> T {
    use_it(SEEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Facts about a process; for an ended process those that were read before.
pub fn of(pid: u32) -> Arc<Facts> {
    let now = Facts::read(pid);
    with_seen(|seen| match seen.get(&pid) {
        Some(before) if now.executable.is_none() && now.may_be(before) => before.clone(),
        _ if now.executable.is_none() => Arc::new(now),
        _ => {
            let now = Arc::new(now);
            keep(seen, pid, now.clone());
            now
        }
    })
}

/// Records a command that a process is about to run, since it may end before it is read.
pub fn expect(pid: u32, command: &[OsString]) {
    let executable = command.first().and_then(|name| program_file(name));
    let arguments = command.iter().map(|word| cut(word.as_encoded_bytes())).take(ARGUMENTS).collect();
    let facts = Facts { executable, arguments, ..Facts::read(pid) };
    with_seen(|seen| keep(seen, pid, Arc::new(facts)));
}

/// The file of a command's first word: a path, or a name on PATH.
fn program_file(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return std::fs::canonicalize(name).ok();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    files.find(|file| file.is_file()).and_then(|file| file.canonicalize().ok())
}

fn keep(seen: &mut HashMap<u32, Arc<Facts>>, pid: u32, facts: Arc<Facts>) {
    if seen.len() >= PROCESSES {
        seen.clear();
    }
    seen.insert(pid, facts);
}

fn cut(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(BYTES)]).into_owned()
}

impl Facts {
    fn read(pid: u32) -> Facts {
        let started = proc::started(pid);
        if started.is_none() {
            return Facts::default();
        }
        let container::Place { container, pod, pod_name, namespace } = container::of(pid);
        let place = [
            ("k8s.namespace.name", namespace),
            ("k8s.pod.name", pod_name),
            ("k8s.pod.uid", pod),
            ("container.id", container),
        ];
        let place = place.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Facts { started, executable: proc::executable(pid), arguments: arguments(pid), place }
    }

    /// Whether it may be the process of `before`, and not a later one with the same id.
    fn may_be(&self, before: &Facts) -> bool {
        self.started.is_none() || self.started == before.started
    }

    /// File name of the program.
    pub fn program(&self) -> Option<Arc<str>> {
        let name = self.executable.as_ref()?.file_name()?.to_string_lossy();
        Some(name.strip_suffix(" (deleted)").unwrap_or(&name).into())
    }
}

fn arguments(pid: u32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.strip_suffix(&[0]).unwrap_or(&words);
    let all = words.split(|byte| *byte == 0).take(ARGUMENTS).map(cut);
    all.collect::<Vec<_>>().into_iter().skip_while(|_| words.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_after_it_has_ended() {
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        // The process responds, so its command line is visible. `/proc` shows the new program a little earlier.
        child.stdin.as_mut().expect("its input").write_all(b"x").expect("written");
        child.stdout.as_mut().expect("its output").read_exact(&mut [0]).expect("read");
        let pid = child.id();
        let alive = of(pid);
        assert_eq!(alive.arguments, ["cat"]);
        assert!(alive.started.is_some() && alive.executable.is_some());
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert_eq!(of(pid), alive);
    }

    #[test]
    fn a_command_is_known_although_it_was_not_read() {
        let mut child = Command::new("true").spawn().expect("a child");
        expect(child.id(), &["true", "-x"].map(OsString::from));
        child.wait().expect("ended");
        let facts = of(child.id());
        assert!(facts.executable.as_ref().is_some_and(|file| file.is_absolute()), "{facts:?}");
        assert_eq!(facts.arguments, ["true", "-x"]);
    }

    #[test]
    fn nothing_is_known_of_what_never_was() {
        assert_eq!(*of(u32::MAX), Facts::default());
    }
}
