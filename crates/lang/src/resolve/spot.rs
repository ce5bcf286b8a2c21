//! What a probe specification resolves to: attach points, before they are grouped by what bodies see of them.

use crate::catalog::MarkerArg;
use crate::catalog::debug_info::Absent;
use crate::diagnostics::{Diagnostic, Severity};
use crate::hir::{NameId, Signature, Site, Trigger};
use crate::resolve::providers::Provider;
use crate::resolve::signature::Declared;
use crate::source::span::Span;
use rustc_hash::FxHashSet;

/// What one attach point yields.
#[derive(Debug)]
pub enum Spot {
    /// A clock or an end of the run.
    Timed {
        /// Which.
        trigger: Trigger,
        /// What `probe` says there.
        name: NameId,
        /// The record of a tracepoint.
        signature: Option<Signature>,
        /// For each field of it, the kernel struct that it points to.
        pointees: Vec<Option<String>>,
    },
    /// A function.
    Call(Call),
}

/// A function to probe.
#[derive(Debug)]
pub struct Call {
    /// At return.
    pub returns: bool,
    /// Where.
    pub site: Site,
    /// The symbol, for messages.
    pub symbol: String,
    /// What is known of its arguments.
    pub signature: Option<Declared>,
    /// Its file is not there yet, and may have debug information that declares them.
    pub undeclared_yet: bool,
    /// Why debug information does not know them: the file, and the reason.
    pub absent: Option<(String, Absent)>,
    /// Asked for by name, not by a pattern.
    pub by_name: bool,
    /// Arguments of a USDT marker.
    pub passed: Option<Vec<MarkerArg>>,
}

/// Why an attach point yields nothing.
pub(crate) enum Miss {
    /// The script is wrong whatever this machine has.
    Wrong(Box<Diagnostic>),
    /// This machine has no such thing.
    Absent(Box<Diagnostic>),
    /// Not asked for in this run.
    Silent,
}

pub(super) type Spots = Result<Vec<Spot>, Miss>;

pub(super) fn finding(
    code: &'static str,
    span: Span,
    message: String,
    label: &str,
    help: Vec<String>,
) -> Box<Diagnostic> {
    let (label, notes) = (label.to_string(), Vec::new());
    Box::new(Diagnostic { severity: Severity::Error, code, message, span, label, notes, help })
}

pub(super) fn wrong(
    code: &'static str,
    span: Span,
    message: String,
    label: &str,
    help: Vec<String>,
) -> Spots {
    Err(Miss::Wrong(finding(code, span, message, label, help)))
}

pub(super) fn malformed(span: Span, message: String, provider: &'static Provider) -> Spots {
    wrong("E0103", span, message, "", vec![format!("write `{}`", provider.form)])
}

/// Drops the second and later meetings of one place.
pub(crate) fn once_each(spots: Vec<Spot>) -> Vec<Spot> {
    let mut seen = FxHashSet::default();
    let mut is_new = |spot: &Spot| match spot {
        Spot::Timed { .. } => true,
        // Assumed sites have no place yet: their name tells them apart.
        Spot::Call(Call { returns, site, passed, .. }) => {
            let name = site.file.is_none().then_some((site.probe, site.func));
            seen.insert((*returns, passed.is_some(), site.file, site.place.offset, name))
        }
    };
    spots.into_iter().filter(|spot| is_new(spot)).collect()
}
