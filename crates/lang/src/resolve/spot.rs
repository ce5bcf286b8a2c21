//! The locations of attach points, before they are grouped by the values that bodies use.

use crate::catalog::MarkerArg;
use crate::catalog::debug_info::Absent;
use crate::diagnostics::{Diagnostic, Severity};
use crate::hir::{Hook, NameId, Signature, Site, Trigger};
use crate::resolve::declaration::FunctionDeclaration;
use crate::source::span::Span;
use rustc_hash::FxHashSet;

/// One location of an attach point.
#[derive(Debug)]
pub enum Spot {
    /// An event other than a call.
    Event(EventSpot),
    /// A function or a marker.
    Call(Call),
}

/// An event at which a body runs.
#[derive(Debug)]
pub struct EventSpot {
    /// The event.
    pub trigger: Trigger,
    /// The value of `probe`.
    pub name: NameId,
    /// The record of a tracepoint.
    pub signature: Option<Signature>,
    /// For each field of the record, the kernel struct that it points to.
    pub pointees: Vec<Option<String>>,
}

/// A function to probe.
#[derive(Debug)]
pub struct Call {
    /// How it is probed.
    pub hook: Hook,
    /// At return.
    pub returns: bool,
    /// The attach site.
    pub site: Site,
    /// The symbol, for messages.
    pub symbol: String,
    /// The declaration, if it is known.
    pub signature: Option<FunctionDeclaration>,
    /// The file is missing, and may have debug information with the declaration.
    pub undeclared_yet: bool,
    /// The file whose debug information lacks the declaration, and the reason.
    pub absent: Option<(String, Absent)>,
    /// The script names the function; it was not found by a pattern.
    pub by_name: bool,
    /// Arguments of a USDT marker.
    pub passed: Option<Vec<MarkerArg>>,
}

/// The reason why an attach point has no locations.
pub(crate) enum Miss {
    /// The script is wrong on every machine.
    Wrong(Box<Diagnostic>),
    /// This machine has no such thing.
    Absent(Box<Diagnostic>),
    /// The running kernel has no such thing: for a script that is checked for another machine, a warning.
    AbsentInKernel(Box<Diagnostic>),
    /// The attach point takes no part in this run.
    Silent,
}

pub(crate) type Spots = Result<Vec<Spot>, Miss>;

pub(super) fn finding(
    code: &'static str,
    span: Span,
    message: String,
    label: &str,
    help: Vec<String>,
) -> Box<Diagnostic> {
    let (label, notes) = (label.to_string(), Vec::new());
    Box::new(Diagnostic {
        severity: Severity::Error,
        code,
        message,
        span,
        also: Vec::new(),
        calls: Vec::new(),
        label,
        notes,
        help,
    })
}

pub(super) fn wrong<T>(
    code: &'static str,
    span: Span,
    message: String,
    label: &str,
    help: Vec<String>,
) -> Result<T, Miss> {
    Err(Miss::Wrong(finding(code, span, message, label, help)))
}

/// Drops the second and later occurrences of a place.
pub(crate) fn once_each(spots: Vec<Spot>) -> Vec<Spot> {
    let mut seen = FxHashSet::default();
    let mut is_new = |spot: &Spot| match spot {
        Spot::Event(_) => true,
        // Assumed sites have no location yet and differ by name.
        Spot::Call(Call { hook, returns, site, passed, .. }) => {
            let name = site.file.is_none().then_some((site.probe, site.func));
            seen.insert((*hook, *returns, passed.is_some(), site.file, site.place.offset, name))
        }
    };
    spots.into_iter().filter(|spot| is_new(spot)).collect()
}
