//! Extends the scripts of a running session to files that are mapped later, and records which files were mapped.

use super::script_set::Scripts;
use super::unwinder::Unwinder;
use crate::console::Messages;
use crate::gpu::NewDrivers;
use crate::symbolize::MachineNames;
use anyhow::anyhow;
use host::{Identity, Machine};
use runtime::remote::RemoteError;
use runtime::{Session, UnwindMaps};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

/// Extends a running session to files that are mapped later.
pub struct Extender<'a> {
    /// Scripts that may probe them.
    pub scripts: &'a Scripts<'a>,
    /// Source of files and processes.
    pub machine: &'a Machine,
    /// Source of symbols for stacks.
    pub names: &'a MachineNames,
    unwinder: OnceCell<Unwinder<'a>>,
    /// Printer of notes and warnings.
    pub messages: &'a Messages,
    /// Devices and inodes of files that were mapped during the run, as far as reported.
    mapped: RefCell<HashSet<(u64, u64)>>,
    /// Names of the libraries among them that were probed.
    probed_late: RefCell<HashSet<String>>,
    /// True if some mappings were missed, or may have been.
    may_miss_mappings: Cell<bool>,
    /// True if the loss of reports was printed.
    has_lost_reports: Cell<bool>,
    /// Number of overwritten files.
    pub overwritten: Cell<usize>,
    /// Processes that map CUDA's driver.
    pub new_drivers: NewDrivers,
    /// Errors of processes that are not traced, as far as reported.
    untraced: RefCell<HashSet<String>>,
}

impl<'a> Extender<'a> {
    /// Creates an extender of `scripts`.
    pub fn new(
        scripts: &'a Scripts<'a>,
        machine: &'a Machine,
        names: &'a MachineNames,
        unwinder: Option<Unwinder<'a>>,
        messages: &'a Messages,
    ) -> Extender<'a> {
        let unwinder = unwinder.map(OnceCell::from).unwrap_or_default();
        let (mapped, probed_late, may_miss_mappings, has_lost_reports, overwritten, untraced) =
            Default::default();
        Extender {
            scripts,
            machine,
            names,
            unwinder,
            messages,
            mapped,
            probed_late,
            may_miss_mappings,
            has_lost_reports,
            overwritten,
            new_drivers: NewDrivers::new(),
            untraced,
        }
    }

    /// Reports that a process is not traced. It is tried again when the process maps another file, and reported once. `what`: "is not
    /// traced".
    pub fn report_untraced(&self, pid: u32, what: &str, error: &RemoteError) {
        let error = untraced(pid, what, error);
        if self.untraced.borrow_mut().insert(error.to_string()) {
            self.messages.error(&error);
        }
    }

    /// Whether a process was not traced.
    pub fn has_untraced(&self) -> bool {
        !self.untraced.borrow().is_empty()
    }

    /// Reports that probes were attached to a file that was loaded during the run.
    pub fn note_attached(&self, more: usize, file: &Path, how: &str) {
        let (name, s) = (file.file_name().unwrap_or_default().display(), if more == 1 { "" } else { "s" });
        self.messages.note(&format!("Attached {more} more probe{s} to `{name}` ({how})"));
    }

    /// Whether a file that may be this one was mapped during the run.
    pub fn was_mapped(&self, file: &Identity) -> bool {
        self.mapped.borrow().iter().any(|&(device, inode)| file.may_be(device, inode))
    }

    /// Whether a library that was loaded during the run was probed as `target`: `libcuda`.
    pub fn has_probed_late(&self, target: &str) -> bool {
        let stem = format!("lib{}.so", target.trim_start_matches("lib"));
        self.probed_late.borrow().iter().any(|name| name.starts_with(&stem))
    }

    /// Records that a library that was loaded during the run was probed.
    pub fn add_probed(&self, library: &Path) {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.probed_late.borrow_mut().insert(name);
    }

    /// Whether mappings may have been missed.
    pub fn may_miss_mappings(&self) -> bool {
        self.may_miss_mappings.get()
    }

    /// Records that mappings may be missed from now on.
    pub fn miss_mappings(&self) {
        self.may_miss_mappings.set(true);
    }

    /// The kernel has dropped reports of mappings and forks; the first time this is told.
    pub fn lose_reports(&self) {
        self.miss_mappings();
        if !self.has_lost_reports.replace(true) {
            self.messages.lost(
                "too many programs and libraries were loaded at once: some may not be traced, and their ends not told; a new trace finds those \
                 that run by then",
            );
        }
    }

    /// See [`Scripts::detach_overwritten`].
    pub fn detach_overwritten(&self, session: &mut Session, open: &Path, shown: &Path) -> bool {
        let was_overwritten = self.scripts.detach_overwritten(session, open, shown);
        if was_overwritten {
            self.overwritten.update(|count| count + 1);
            self.unwinder().inspect(|unwinder| unwinder.detach_overwritten(open));
        }
        was_overwritten
    }

    /// Records that a file was mapped.
    pub fn record_mapping(&self, identity: (u64, u64)) {
        self.mapped.borrow_mut().insert(identity);
    }

    /// Returns the owner of the unwind tables, if stacks are walked.
    pub fn unwinder(&self) -> Option<&Unwinder<'a>> {
        self.unwinder.get()
    }

    /// Starts unwind tables, when the first script that walks stacks has joined.
    pub fn walk_stacks(&self, maps: UnwindMaps, reads_tables: bool) -> &Unwinder<'a> {
        self.unwinder
            .get_or_init(|| Unwinder::new(maps, reads_tables, Rc::clone(&self.names.pythons), self.messages))
    }
}

/// The error of a process that is not traced. `what`: "is not traced".
fn untraced(pid: u32, what: &str, error: &RemoteError) -> anyhow::Error {
    let way_out = error.way_out().map_or_else(String::new, |way_out| format!("; {way_out}"));
    anyhow!("process {pid} {what}: {error}{way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_traced_has_a_way_out() {
        let text = |error| untraced(7, "is not traced", &error).to_string();
        assert_eq!(
            text(RemoteError::NoRoom),
            "process 7 is not traced: the process has no free memory within 2 GiB of its code; without `--in-process` the kernel traces it"
        );
        assert!(text(RemoteError::OtherNamespace).ends_with("trace it from there, or by the kernel"));
    }
}
