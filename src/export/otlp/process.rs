//! OpenTelemetry's resource attributes of a host, a container and a process.

use crate::symbolize::process_facts;
use report::export::Data;
use report::export::otlp::Attributes;
use std::os::unix::ffi::OsStrExt;

/// Attributes of the machine: `host.id`.
pub fn host() -> Attributes {
    let read = |path: &str| std::fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty());
    let id = read("/etc/machine-id").or_else(|| read("/var/lib/dbus/machine-id"));
    id.map(|id| ("host.id".to_owned(), text(id.trim()))).into_iter().collect()
}

/// Attributes of a process, as far as they can be read.
pub fn describe(pid: u32) -> Attributes {
    let facts = process_facts::of(pid);
    let mut known = Attributes::new();
    if let Some(path) = &facts.executable {
        known.push(("process.executable.path".into(), text(&path.to_string_lossy())));
    }
    if facts.arguments.first().is_some_and(|first| !first.is_empty()) {
        let words = facts.arguments.iter().map(|word| text(word)).collect();
        known.push(("process.command_args".into(), Data::List(words)));
    }
    known.extend(facts.place.iter().map(|(key, value)| ((*key).to_owned(), text(value))));
    known
}

fn text(text: &str) -> Data {
    Data::Text(text.into())
}

/// The rank of a process in a distributed job, from the variables that launchers set.
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
