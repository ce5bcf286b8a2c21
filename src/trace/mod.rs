//! Parts of a run: the compiler with this machine's catalog, libraries that are mapped later, and unwind tables.

pub mod compiled;
pub mod compiler;
pub mod descendants;
pub mod ended_processes;
pub mod exit_status;
pub mod extender;
pub mod late_files;
pub mod mapping_scans;
pub mod overwritten_files;
pub mod patch_sites;
pub mod places;
pub mod script_set;
pub mod setup;
pub mod traced_processes;
pub mod unmapped_files;
pub mod unwind_updater;
pub mod unwinder;
pub mod watched_files;

pub use ended_processes::EndedProcesses;

use anyhow::{Result, bail};
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use wire::{Features, Manifest};

/// Ends a run immediately, if BEGIN has done everything.
pub struct Done(OwnedFd);

impl Done {
    pub fn new() -> std::io::Result<Done> {
        // A non-zero eventfd is readable.
        Ok(Done(eventfd(1, EventfdFlags::CLOEXEC)?))
    }
}

impl Watch for Done {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        Next::Stop
    }
}

/// Disables a feature, so that its fallback can be tested on a kernel that supports it.
pub fn without(features: &mut Features, name: &str) -> Result<()> {
    match name {
        "uprobe_multi" => (features.uprobe_multi, features.uprobe_session) = (false, false),
        "uprobe_session" => features.uprobe_session = false,
        "bpf_loop" => features.bpf_loop = false,
        "percpu_lookup" => features.percpu_lookup = false,
        "private_stack" => features.private_stack = false,
        _ => bail!(
            "no feature `{name}`: expected uprobe_multi, uprobe_session, bpf_loop, percpu_lookup or private_stack"
        ),
    }
    Ok(())
}

/// Whether programs walk stacks with unwind tables.
pub fn walks_stacks(manifest: &Manifest) -> bool {
    manifest.internal_maps.iter().any(|map| map == wire::unwind::TABLES_MAP)
}
