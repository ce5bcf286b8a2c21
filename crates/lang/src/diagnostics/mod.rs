//! Diagnostics of a script: data. `render` prints them, `codes` explains them.

pub mod codes;
pub mod render;
pub mod suggest;
pub mod wording;

use rustc_hash::FxHashSet;

use crate::diagnostics::suggest::similar;
use crate::source::span::Span;

/// Largest number of diagnostics that are rendered; each may show a line as long as the script.
pub const DRAWN: usize = 100;

/// Severity of a diagnostic.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The script is refused.
    Error,
    /// The script runs, but may not do what was intended.
    Warning,
}

/// A diagnostic.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// Code such as `E0102`; stable, explained by `--explain`.
    pub code: &'static str,
    /// Message in one line: lower case, names in backticks.
    pub message: String,
    /// Position.
    pub span: Span,
    /// Other positions with the same cause.
    pub also: Vec<Span>,
    /// Calls of the macros whose expansion has the position, the innermost first.
    pub calls: Vec<Span>,
    /// Label under the carets; may be empty.
    pub label: String,
    /// Further facts.
    pub notes: Vec<String>,
    /// Remedies.
    pub help: Vec<String>,
}

impl Diagnostic {
    fn has_text_of(&self, other: &Diagnostic) -> bool {
        self.severity == other.severity
            && self.code == other.code
            && self.message == other.message
            && self.label == other.label
            && self.notes == other.notes
            && self.help == other.help
    }

    /// Sets the label under the carets.
    pub fn label(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.label = text.into();
        self
    }

    /// Adds a fact.
    pub fn note(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Adds a remedy.
    pub fn help(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.help.push(text.into());
        self
    }
}

/// Diagnostics of a compilation, in order. A body is checked for each layout, in several rounds; duplicates are
/// dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// All diagnostics.
    pub list: Vec<Diagnostic>,
    reported: FxHashSet<DiagnosticKey>,
    withdrawn: FxHashSet<DiagnosticKey>,
    /// The last duplicate: additions to it are ignored.
    repeated: Option<Box<Diagnostic>>,
    /// Number of diagnostics in other lists that precede this one.
    before: usize,
    /// Calls of the macros whose expansion is being checked, the innermost last.
    pub(crate) calls: Vec<Span>,
}

/// Diagnostics with equal keys are duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DiagnosticKey {
    code: &'static str,
    span: Span,
    /// Text of a warning. The variants of an operation differ in types, and so in the text for one error.
    words: String,
}

impl DiagnosticKey {
    fn of(finding: &Diagnostic) -> DiagnosticKey {
        let words = if finding.severity == Severity::Error { String::new() } else { finding.message.clone() };
        DiagnosticKey { code: finding.code, span: finding.span, words }
    }
}

impl Diagnostics {
    /// An empty list that is preceded by this number of diagnostics.
    pub(crate) fn preceded_by(before: usize) -> Diagnostics {
        Diagnostics { before, ..Diagnostics::default() }
    }

    /// Adds an error.
    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, span, message.into())
    }

    /// Adds a warning.
    pub fn warning(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, code, span, message.into())
    }

    /// Adds a diagnostic.
    pub fn push(&mut self, finding: Diagnostic) -> &mut Diagnostic {
        if !self.reported.insert(DiagnosticKey::of(&finding)) {
            return self.repeated.insert(Box::new(finding));
        }
        self.list.push(finding);
        self.list.last_mut().expect("just pushed")
    }

    /// Takes a warning back that another part of the clause gives: a clause of operations is checked in parts.
    pub(crate) fn withdraw_warning(&mut self, code: &'static str, span: Span, message: String) {
        self.withdrawn.insert(DiagnosticKey { code, span, words: message });
    }

    /// Adds the diagnostics of parts, without those that one of them has taken back.
    pub(crate) fn merge(&mut self, parts: Vec<Diagnostics>) {
        let withdrawn: FxHashSet<DiagnosticKey> =
            parts.iter().flat_map(|part| part.withdrawn.iter().cloned()).collect();
        let all = parts.into_iter().flat_map(|part| part.list);
        all.filter(|finding| !withdrawn.contains(&DiagnosticKey::of(finding))).for_each(|finding| {
            self.push(finding);
        });
    }

    /// Adds a diagnostic whose cause may be independent of its position: if one has the same text, it gets the position.
    pub fn push_once(&mut self, finding: Diagnostic) {
        match self.list.iter_mut().find(|known| known.has_text_of(&finding)) {
            Some(known) if known.span == finding.span || known.also.contains(&finding.span) => {}
            Some(known) => known.also.push(finding.span),
            None => drop(self.push(finding)),
        }
    }

    /// Similar names for suggestions, unless there are already too many diagnostics to render.
    pub fn similar<'n>(&self, name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        match self.are_many() {
            true => Vec::new(),
            false => similar(name, candidates).into_iter().map(String::from).collect(),
        }
    }

    /// Whether the limit of rendered diagnostics is reached.
    pub fn are_many(&self) -> bool {
        self.before + self.list.len() >= DRAWN
    }

    /// Calls of the macros whose expansion has a position, the innermost first. Arguments are written within the call: they
    /// are not parts of the macro.
    pub(crate) fn calls_around(&self, span: Span) -> Vec<Span> {
        self.calls.iter().rev().take_while(|call| !call.contains(span)).copied().collect()
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        span: Span,
        message: String,
    ) -> &mut Diagnostic {
        let (label, notes, help) = (String::new(), Vec::new(), Vec::new());
        let (also, calls) = (Vec::new(), self.calls_around(span));
        self.push(Diagnostic { severity, code, message, span, also, calls, label, notes, help })
    }
}

/// An error code with its explanation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `E0001`
    pub code: &'static str,
    /// One line, lower case.
    pub title: &'static str,
    /// Explanation: the rule and the remedy.
    pub explanation: &'static str,
    /// A script with this diagnostic and no other.
    pub example: &'static str,
    /// The corrected script, without diagnostics.
    pub repaired: &'static str,
}
