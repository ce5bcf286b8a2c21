//! A kind of attach point.

use crate::catalog::Catalog;
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
    /// Properties of its attach points.
    pub properties: ProviderProperties,
    /// The runs in which bodies run.
    pub runs: Runs,
    /// Resolves an attach point of this kind.
    pub(super) resolve: fn(&mut Finder, &ProbeSpec, &Provider) -> Spots,
}

/// Properties of the attach points of a provider. Providers of one family share them: `uprobe` and `uretprobe`.
#[derive(Copy, Clone, Debug)]
pub struct ProviderProperties {
    /// Whether they are in files, so that a file that is mapped later may have more of them.
    pub in_files: bool,
    /// Whether one may be a pattern.
    pub patterns: bool,
    /// Whether `span()` is the span of a call or of an ioctl.
    pub spans: bool,
    /// Words that may end an unfinished attach point, whose last part is at the cursor.
    pub words: Completion,
    /// Names of the members of `args`.
    pub args: Completion,
}

/// Words of completion at an attach point, with its parts after the provider: at most two, the second one with all that follows.
pub type Completion = fn(&dyn Catalog, &Provider, parts: &[&str]) -> Vec<String>;

impl ProviderProperties {
    /// Attach points without files, patterns, spans, words and arguments.
    pub(super) const PLAIN: ProviderProperties = ProviderProperties {
        in_files: false,
        patterns: false,
        spans: false,
        words: |_, _, _| Vec::new(),
        args: |_, _, _| Vec::new(),
    };
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
