//! What OpenTelemetry calls a host, a container and a process, of this machine.

use report::export::Data;
use report::otlp::Attributes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Arguments of a command that are kept, and bytes of each.
const ARGUMENTS: usize = 64;
const BYTES: usize = 1024;
/// Hexadecimal digits of a container's id.
const CONTAINER_ID: usize = 64;

/// The machine: `host.id`.
pub fn host() -> Attributes {
    let read = |path: &str| std::fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty());
    let id = read("/etc/machine-id").or_else(|| read("/var/lib/dbus/machine-id"));
    id.map(|id| ("host.id".to_owned(), text(id.trim()))).into_iter().collect()
}

/// A process that runs; what cannot be read is left out.
pub fn describe(pid: u32) -> Attributes {
    let mut known = Attributes::new();
    if let Some(path) = target::process::executable(pid) {
        known.push(("process.executable.path".into(), text(&path.to_string_lossy())));
    }
    let proc = Path::new("/proc").join(pid.to_string());
    let words = std::fs::read(proc.join("cmdline")).unwrap_or_default();
    let words: Vec<Data> = words
        .strip_suffix(&[0])
        .unwrap_or(&words)
        .split(|byte| *byte == 0)
        .take(ARGUMENTS)
        .map(|word| text(&String::from_utf8_lossy(&word[..word.len().min(BYTES)])))
        .collect();
    if words.first().is_some_and(|first| *first != text("")) {
        known.push(("process.command_args".into(), Data::List(words)));
    }
    let groups = std::fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
    known.extend(container(&groups).map(|id| ("container.id".into(), text(id))));
    known
}

/// The id of the container in a process's control groups: as Docker, containerd, CRI-O and Podman name theirs.
fn container(groups: &str) -> Option<&str> {
    let is_id = |part: &&str| part.len() == CONTAINER_ID && part.as_bytes().iter().all(u8::is_ascii_hexdigit);
    groups.lines().flat_map(|line| line.split(['/', '-', '.', ':'])).filter(is_id).next_back()
}

fn text(text: &str) -> Data {
    Data::Text(text.into())
}

/// The rank of a process in a distributed job, by the variables that launchers set.
pub fn rank(pid: Option<u32>) -> Option<u32> {
    const VARIABLES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
    let of_process = pid.map(|pid| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default());
    let value = |name: &str| match &of_process {
        None => std::env::var(name).ok(),
        Some(environment) => environment
            .split(|byte| *byte == 0)
            .find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .map(|value| std::ffi::OsStr::from_bytes(value).to_string_lossy().into_owned()),
    };
    VARIABLES.iter().find_map(|name| value(name)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_by_its_control_group() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for line in [
            format!("0::/docker/{id}"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("12:devices:/kubepods/besteffort/pod1/{id}\n0::/"),
            format!("0::/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(container(&line), Some(id), "{line}");
        }
        assert_eq!(container("0::/user.slice/user-0.slice/session-1.scope"), None);
    }

    #[test]
    fn this_process_is_described() {
        let known = describe(std::process::id());
        let has = |name: &str| known.iter().any(|(key, _)| key == name);
        assert!(has("process.executable.path") && has("process.command_args"), "{known:?}");
        assert!(describe(u32::MAX).is_empty());
    }
}
