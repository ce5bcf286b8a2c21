//! The container and the pod of a process, as far as this machine has the facts.
//!
//! The path of a cgroup contains the container's id and the pod's UID. The pod's namespace is in a file of its service account. Its
//! name is its host name, or in the environment if the pod's author put it there. The container's name, labels and owners are
//! known to the API server only, which is not queried.
//!
//! Files of the process are untrusted: the first bytes of a regular file inside its own root are read, and nothing else.

use crate::untrusted_file;
use linux::proc;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read;

/// Largest number of bytes that are read of a file.
const LIMIT: u64 = 64 << 10;
/// Number of hexadecimal digits of a container id.
const ID: usize = 64;
/// Number of digits of each part of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// Container and pod of a process, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Container id, 64 hexadecimal digits.
    pub container: Option<String>,
    /// UID of the pod.
    pub pod: Option<String>,
    /// Name of the pod.
    pub pod_name: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
}

/// The container and pod of a process.
pub fn of(pid: u32) -> Place {
    let cgroups = read(File::open(format!("/proc/{pid}/cgroup")).ok());
    let mut place = from_cgroups(&cgroups);
    if place.pod.is_some() {
        let environment = read(File::open(format!("/proc/{pid}/environ")).ok());
        let variable = |names: &[&str]| {
            let mut pairs = environment.split('\0').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| names.contains(name)).and_then(|(_, value)| word(value))
        };
        let of_account = || word(&inside(pid, c"/var/run/secrets/kubernetes.io/serviceaccount/namespace"));
        place.namespace = variable(&["POD_NAMESPACE", "K8S_NAMESPACE"]).or_else(of_account);
        // A pod in the host's network has the host name of the machine.
        let has_own_name = || proc::namespace(pid, "uts") != proc::namespace(1, "uts");
        let host_name = || word(&inside(pid, c"/etc/hostname")).filter(|_| has_own_name());
        place.pod_name = variable(&["POD_NAME", "K8S_POD_NAME"]).or_else(host_name);
    }
    place
}

/// The text of `/proc/PID/cgroup`: one line per hierarchy.
fn from_cgroups(text: &str) -> Place {
    let mut place = Place::default();
    for segment in text.split(['/', '\n']) {
        if let Some(pod) = pod(segment) {
            place.pod = Some(pod);
        }
        let mut words = segment.split(|c: char| !c.is_ascii_alphanumeric());
        if let Some(id) = words.find(|word| word.len() == ID && word.bytes().all(is_hex)) {
            place.container = Some(id.to_owned());
        }
    }
    place
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The pod's UID in a path segment: `pod0a1b2c3d-...` of the kubelet, or
/// `kubepods-burstable-pod0a1b2c3d_....slice` of its systemd driver. The UID of a static pod, which is configured
/// on the machine itself, has no dashes.
fn pod(segment: &str) -> Option<String> {
    let (_, behind) = segment.rsplit_once("pod")?;
    let uid = behind.split('.').next()?.replace('_', "-");
    let is_uuid = uid.split('-').map(str::len).eq(UUID);
    let is_plain = uid.len() == UUID.iter().sum();
    let is_uid = (is_uuid || is_plain) && uid.bytes().all(|byte| is_hex(byte) || byte == b'-');
    is_uid.then_some(uid)
}

/// The text, if it is a valid name in Kubernetes.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (!text.is_empty() && text.len() <= 253 && text.bytes().all(is_word)).then(|| text.to_owned())
}

/// The start of a regular file in the root directory of the process. Links cannot leave that root.
fn inside(pid: u32, path: &CStr) -> String {
    read(open_inside(pid, path))
}

fn open_inside(pid: u32, path: &CStr) -> Option<File> {
    let root = File::open(format!("/proc/{pid}/root")).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).ok()?;
    let found = File::from(found);
    found.metadata().ok().filter(fs::Metadata::is_file)?;
    File::open(untrusted_file::path_of(&found)).ok()
}

fn read(file: Option<File>) -> String {
    let mut bytes = Vec::new();
    if let Some(file) = file {
        // After an error, the bytes read before it are used.
        let _ = file.take(LIMIT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "7c1fd8f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d";
    const POD: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    #[test]
    fn cgroups_name_containers_and_pods() {
        let systemd = POD.replace('-', "_");
        for (text, pod) in [
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-{CONTAINER}.scope\n"
                ),
                Some(POD),
            ),
            (format!("0::/../../kubepods-pod{systemd}.slice/crio-{CONTAINER}.scope/container\n"), Some(POD)),
            (format!("11:memory:/kubepods/besteffort/pod{POD}/{CONTAINER}\n0::/\n"), Some(POD)),
            (format!("0::/system.slice/docker-{CONTAINER}.scope\n"), None),
            (format!("0::/machine.slice/libpod-{CONTAINER}.scope/container\n"), None),
        ] {
            let expected =
                Place { container: Some(CONTAINER.into()), pod: pod.map(str::to_owned), ..Place::default() };
            assert_eq!(from_cgroups(&text), expected, "{text}");
        }
        assert_eq!(from_cgroups("0::/user.slice/user-1000.slice/session-2.scope\n"), Place::default());
    }

    #[test]
    fn only_regular_files_of_the_process_are_read() {
        let own = std::process::id();
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("name"), "train\n").expect("written");
        let fifo = std::ffi::CString::new(path("fifo").to_str().expect("UTF-8")).expect("no zero");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from(0o600)).expect("a named pipe");
        let name = std::ffi::CString::new(path("name").to_str().expect("UTF-8")).expect("no zero");
        assert_eq!(inside(own, &name), "train\n");
        assert_eq!(inside(own, &fifo), "", "it would wait for a writer");
        assert_eq!(inside(own, c"/dev/zero"), "");
    }
}
