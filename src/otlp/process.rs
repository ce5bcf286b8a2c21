//! What OpenTelemetry calls a host, a container and a process, of this machine.

use report::export::Data;
use report::otlp::Attributes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Arguments of a command that are kept, and bytes of each.
const ARGUMENTS: usize = 64;
const BYTES: usize = 1024;

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
    let target::place::Place { container, pod, pod_name, namespace } = target::place::of(pid);
    let place = [
        ("container.id", container),
        ("k8s.pod.uid", pod),
        ("k8s.pod.name", pod_name),
        ("k8s.namespace.name", namespace),
    ];
    known.extend(place.into_iter().filter_map(|(key, value)| Some((key.to_owned(), text(&value?)))));
    known
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
    fn this_process_is_described() {
        let known = describe(std::process::id());
        let has = |name: &str| known.iter().any(|(key, _)| key == name);
        assert!(has("process.executable.path") && has("process.command_args"), "{known:?}");
        assert!(describe(u32::MAX).is_empty());
    }
}
