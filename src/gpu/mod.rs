//! Times of the GPU: the agents in the traced processes, how they get there, what they say, and where they find CUPTI.

mod agents;
mod candidates;
mod cupti;
mod loading;
mod new_drivers;
mod newcomers;
mod nvml;
mod reports;

use std::path::Path;

use anyhow::anyhow;
use host::Machine;
use lang::Catalog;
use runtime::gpu::AgentFile;
use runtime::started::user_id;

use crate::console::Messages;

pub use agents::{AgentOptions, Agents};
pub use new_drivers::NewDrivers;
pub use nvml::{DeviceUse, Samples, Utilization};
pub use reports::Reports;

/// Whether `gpu:` probes work here, for `doctor`.
pub fn state(machine: &Machine) -> String {
    if !cfg!(target_arch = "x86_64") {
        return "no: on x86-64 only".into();
    }
    match machine.files("libcupti").ok().and_then(|files| files.into_iter().next_back()) {
        Some(file) => {
            let version = cupti::installed_version(Path::new(&file.path));
            let fault = version.as_deref().and_then(|version| cupti::fault(cupti::api_version(version)));
            let version = version.map(|version| format!(" ({version})")).unwrap_or_default();
            let fault = fault.map(|fault| format!(", which {fault}")).unwrap_or_default();
            format!("yes, by the CUPTI that a program has loaded, else by {}{version}{fault}", file.path)
        }
        None => "in programs that have loaded CUPTI, as PyTorch does; for others put its folder into LD_LIBRARY_PATH".into(),
    }
}

/// Whether a file is CUDA's driver, by its name.
pub fn is_driver(path: &Path) -> bool {
    cupti::is_named(path, cupti::DRIVER)
}

/// Creates the agent's file, which the functions of `gpu:` probes are in. `user`: the user as whom the command runs.
pub fn offer_agent(machine: &Machine, user: Option<&str>, messages: &Messages) -> Option<AgentFile> {
    let own = rustix::process::geteuid().as_raw();
    // A user that does not exist is an error of the command.
    let user = user.and_then(|name| user_id(name).ok()).filter(|user| ![0, own].contains(user));
    let offer = || -> anyhow::Result<AgentFile> {
        let file = AgentFile::create(user)?;
        machine.set_agent(&file.path(), Path::new("cudatrace-gpu"))?;
        Ok(file)
    };
    offer().inspect_err(|error| messages.detail(|| format!("no probes of GPUs: {error:#}"))).ok()
}

/// The error of a script for all processes.
pub fn no_process() -> anyhow::Error {
    anyhow!(
        "`gpu:` probes load a library into the traced process, so they need one: `-p PID`, or a command after `--`"
    )
}
