//! Modules: programs that are loaded and attached together. The first module of a session is the script. Each extension, such as
//! the probes of a library that is mapped later, is another module.

use crate::in_process::PatchSiteFinders;
use crate::kernel::signals::StopSignals;
use std::path::PathBuf;

/// Returns the path of a file, given by its id in the manifest. This process can open the path: `/proc/self/fd/7`.
pub type Files<'a> = dyn Fn(u32) -> PathBuf + 'a;

/// How to attach.
pub struct AttachOptions<'a> {
    /// Paths of the manifest's files.
    pub files: &'a Files<'a>,
    /// The only process in which the kernel runs the programs. Requires that no other process is traced, that children are not
    /// followed, and [`crate::Kernel::uprobe_multi_pid`] or a kernel without multi-uprobes.
    pub link_pid: Option<u32>,
    /// Signals that interrupt attaching.
    pub stop: Option<&'a StopSignals>,
    /// How functions give way to jumps, for a session whose programs run in the traced processes.
    pub patch: Option<PatchSiteFinders<'a>>,
}

/// Number of a module: 0 is the script of [`crate::LoadedScript::attach`], the others are from [`crate::Session::extend`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleId(pub(crate) u32);

/// A module, or one clause of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ModulePart {
    /// The module.
    pub module: ModuleId,
    /// `None`: all its clauses.
    pub clause: Option<u32>,
}

impl ModulePart {
    pub(crate) fn contains(&self, module: ModuleId, clause: u32) -> bool {
        self.module == module && self.clause.is_none_or(|wanted| wanted == clause)
    }
}

/// A module that [`crate::Session::extend`] has added.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its number, for [`crate::Session::detach_part`].
    pub id: ModuleId,
    /// Number of attach points that are attached.
    pub attached: usize,
}

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes of the ring buffer, rounded up to a power of two; 0: the size that the script sets, else
    /// [`DEFAULT_BYTES`](crate::read::ring::DEFAULT_BYTES). The size is halved while the kernel has no memory for it.
    pub ring_bytes: u32,
    /// Processes to trace, for a script that was compiled with the pid filter.
    pub pids: Vec<u32>,
    /// Number of counters reserved for modules that extend the session; 0: enough for libraries that are mapped later.
    pub spare_counters: u32,
    /// The process that the tracer started, for `cpid`.
    pub child: Option<u32>,
}
