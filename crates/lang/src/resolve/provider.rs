//! A kind of attach point.

use crate::hir::TestKind;
use crate::resolve::finder::Finder;
use crate::resolve::setting::Run;
use crate::resolve::spot::{Miss, Spots, wrong};
use crate::source::span::Span;
use crate::syntax::ast::ProbeSpec;
use crate::syntax::glob::glob;

/// A row of the table of providers.
#[derive(Debug)]
pub struct Provider {
    /// Names in scripts, the long one first; case does not matter.
    pub names: &'static [&'static str],
    /// The form in scripts.
    pub form: &'static str,
    /// For help.
    pub doc: &'static str,
    /// The parts after the name.
    pub parts: Parts,
    /// The runs in which bodies run.
    pub runs: Runs,
    /// Resolves an attach point of this kind.
    pub(super) resolve: fn(&mut Finder, &ProbeSpec, &Provider) -> Spots,
}

/// The parts of an attach point after the name of its provider.
#[derive(Copy, Clone, Debug)]
pub enum Parts {
    /// None, or words of the script's author: `BEGIN`, `test:NAME`.
    Free,
    /// One of these words, and a number: `interval:s:1`.
    Counted(fn() -> Vec<&'static str>),
    /// `signal`, and one of these names.
    Signals(&'static [(&'static str, i32)]),
    /// A category and an event, which may be patterns.
    Tracepoint,
    /// An event, which may be a pattern.
    RawTracepoint,
    /// A target and a function, which may be a pattern.
    Function {
        /// At the function's return.
        returns: bool,
    },
    /// A function of the kernel, which may be a pattern, after the name of its module or not.
    KernelFunction {
        /// At the function's return.
        returns: bool,
        /// By a trampoline, which needs BTF.
        trampoline: bool,
    },
    /// An event of NVIDIA's kernel driver, which may be a pattern.
    DriverEvent,
    /// An operation of CUDA.
    Operation,
    /// A target, a provider and a marker, which may be patterns.
    Marker,
    /// A device and the name of an ioctl, which may be a pattern.
    Ioctl,
    /// A kind of records of a GPU, which may be a pattern.
    Gpu,
}

/// The runs in which bodies run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Runs that trace.
    Traces,
    /// Runs of tests or benches.
    Tests(TestKind),
    /// All.
    All,
}

impl Provider {
    /// Whether the attach points are in files, so that a file that is mapped later may have more of them.
    pub fn is_in_files(&self) -> bool {
        match self.parts {
            Parts::Function { .. } | Parts::Operation | Parts::Marker => true,
            Parts::Free
            | Parts::Counted(_)
            | Parts::Signals(_)
            | Parts::Tracepoint
            | Parts::RawTracepoint
            | Parts::KernelFunction { .. }
            | Parts::DriverEvent
            | Parts::Ioctl
            | Parts::Gpu => false,
        }
    }

    /// Whether an attach point may be a pattern.
    pub fn takes_patterns(&self) -> bool {
        match self.parts {
            Parts::Free | Parts::Counted(_) | Parts::Signals(_) => false,
            Parts::Tracepoint
            | Parts::RawTracepoint
            | Parts::Function { .. }
            | Parts::KernelFunction { .. }
            | Parts::DriverEvent
            | Parts::Operation
            | Parts::Marker
            | Parts::Ioctl
            | Parts::Gpu => true,
        }
    }

    /// Whether bodies may run at the return of a call.
    pub(super) fn is_at_return(&self) -> bool {
        matches!(
            self.parts,
            Parts::Function { returns: true }
                | Parts::KernelFunction { returns: true, .. }
                | Parts::DriverEvent
                | Parts::Operation
        )
    }

    /// Whether `span()` is the span of a call or of an ioctl.
    pub(super) fn has_spans(&self) -> bool {
        self.is_at_return() || matches!(self.parts, Parts::Ioctl)
    }

    /// Whether the body of an attach point takes part in a run; `name` is the part after the provider.
    pub(super) fn is_in_run(&self, run: &Run, name: &str) -> bool {
        match (run, self.runs) {
            (Run::Everything, _) | (_, Runs::All) => true,
            (Run::Traces, of) => of == Runs::Traces,
            (Run::Tests { kind, names }, of) => of == Runs::Tests(*kind) && glob(names, name),
        }
    }

    pub(super) fn malformed<T>(&self, span: Span, message: &str) -> Result<T, Miss> {
        wrong("E0103", span, message.into(), "", vec![format!("write `{}`", self.form)])
    }
}
