//! Probed files that no traced process has mapped: a count of 0 in them does not mean that a function was not called.

use super::extender::Extender;
use crate::console::Messages;
use host::Machine;
use lang::catalog::FileId;
use lang::diagnostics::wording::listed;
use linux::proc;
use runtime::started::Child;
use runtime::{Ending, Reason};
use std::collections::BTreeSet;
use std::path::Path;
use wire::Hook;
use wire::manifest::{Attach, CompiledScript};

/// Largest number of targets that are named in a message.
const NAMED: usize = 3;

/// The targets at the start of a run that no process has mapped.
pub struct UnmappedTargets<'a> {
    machine: &'a Machine,
    /// Targets as written, with their files.
    targets: Vec<(String, Vec<FileId>)>,
    mapped: Vec<FileId>,
}

impl<'a> UnmappedTargets<'a> {
    /// Collects the targets of the first modules of a run; `pids` are processes that already run.
    pub fn new(machine: &'a Machine, modules: &[CompiledScript], pids: &[u32]) -> UnmappedTargets<'a> {
        let programs = modules.iter().flat_map(|module| &module.manifest.programs);
        let sites = programs.flat_map(|program| match &program.attach {
            Attach::Functions { hook: Hook::Uprobe, sites, .. } => &sites[..],
            _ => &[],
        });
        let probed: BTreeSet<FileId> = sites.map(|site| FileId(site.file)).collect();
        let mut targets = machine.targets_found();
        targets.iter_mut().for_each(|(_, files)| files.retain(|file| probed.contains(file)));
        targets.retain(|(_, files)| !files.is_empty());
        let mapped = machine.mapped_by(pids, probed.into_iter());
        UnmappedTargets { machine, targets, mapped }
    }

    /// Reports at the start that processes of -p have mapped none of the targets so far.
    pub fn note_at_start(&self, pids: &[u32], messages: &Messages) {
        let is_readable = pids.iter().all(|&pid| !proc::mappings(pid).is_empty());
        if pids.is_empty() || self.targets.is_empty() || !self.mapped.is_empty() || !is_readable {
            return;
        }
        let names = listed(self.targets.iter().map(|(name, _)| name.as_str()), NAMED);
        let whose = if pids.len() == 1 { "The process has" } else { "The processes have" };
        messages.note(&format!("{whose} not loaded {names} so far: calls are traced from then on"));
    }

    /// Reports at the end what was never mapped. A path in the script is always reported. Libraries that were
    /// searched by name are reported only if there is nothing else: a script with several targets does not expect
    /// all of them. Returns whether there was something to report.
    pub fn report(
        &self,
        ending: &Ending,
        child: Option<&Child>,
        extender: &Extender,
        messages: &Messages,
    ) -> bool {
        if !self.is_known(ending, child) || extender.may_miss_mappings() {
            return false;
        }
        let is_mapped = |&file: &FileId| {
            let identity = self.machine.identity(file);
            self.mapped.contains(&file)
                || extender.was_mapped(identity)
                || child.is_some_and(|child| child.has_mapped(&(identity.device, identity.inode)))
        };
        let (mapped, unmapped): (Vec<_>, Vec<_>) = self
            .targets
            .iter()
            .partition(|(name, files)| files.iter().any(is_mapped) || extender.has_probed_late(name));
        let is_reported = |name: &str| mapped.is_empty() || name.contains('/');
        let names: Vec<&str> =
            unmapped.iter().map(|(name, _)| name.as_str()).filter(|name| is_reported(name)).collect();
        let listed = listed(names.iter().copied(), NAMED);
        match names.len() {
            0 => {}
            1 => messages.note(&format!("{listed} was not traced: no traced process loaded it")),
            _ => messages.note(&format!("{listed} were not traced: no traced process loaded them")),
        }
        !names.is_empty()
    }

    /// Whether all traced processes were watched and had time to map files: a script may end a run before its
    /// command has begun.
    fn is_known(&self, ending: &Ending, child: Option<&Child>) -> bool {
        let began = match ending.reason {
            Reason::TargetsEnded | Reason::Signal(_) => true,
            Reason::Exit(_) => child.is_none(),
            _ => false,
        };
        // Without `/proc` this is unknown.
        let is_shown = Path::new("/proc/self/maps").exists();
        began && is_shown && child.is_none_or(Child::is_watched) && !self.machine.scope().is_system_wide()
    }
}
