//! Modules: programs that are loaded and attached together, the script first, then each extension of its session.

use crate::kernel::signals::StopSignals;
use std::path::PathBuf;

/// Where a file lies that the manifest knows by its id: a path that this process can open, such as
/// `/proc/self/fd/7`.
pub type Files<'a> = dyn Fn(u32) -> PathBuf + 'a;

/// How to attach.
pub struct AttachOptions<'a> {
    /// Where the manifest's files lie.
    pub files: &'a Files<'a>,
    /// Let the kernel call the programs in this process only. Right if it is the only one traced, its children are not
    /// followed, and [`crate::Kernel::uprobe_multi_pid`] (or no multi-uprobes).
    pub link_pid: Option<u32>,
    /// A signal of these leaves off attaching.
    pub stop: Option<&'a StopSignals>,
}

/// What was loaded and attached together: the script of [`Loaded::attach`], then each [`Session::extend`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleId(pub(crate) u32);

/// A module, or one clause of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which module.
    pub module: ModuleId,
    /// `None`: all its clauses.
    pub clause: Option<u32>,
}

impl Part {
    pub(crate) fn has(&self, module: ModuleId, clause: u32) -> bool {
        self.module == module && self.clause.is_none_or(|wanted| wanted == clause)
    }
}

/// What [`Session::extend`] added.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, for taking it away again.
    pub id: ModuleId,
    /// Attach points that took.
    pub attached: usize,
}
