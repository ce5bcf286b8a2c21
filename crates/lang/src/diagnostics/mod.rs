//! Diagnostics of a script: data. `render` prints them, `codes` explains them.

pub mod codes;
pub mod render;
pub mod suggest;
pub mod wording;

use rustc_hash::FxHashSet;

use crate::diagnostics::suggest::similar;
use crate::source::span::Span;

/// Findings that are drawn; nobody reads more, and each may show a line as long as the script.
pub const DRAWN: usize = 100;

/// How bad it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The script is refused.
    Error,
    /// It runs, perhaps not as meant.
    Warning,
}

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// `E0102`; stable, explained by `--explain`.
    pub code: &'static str,
    /// What is wrong, in one line: lower case, names in backticks.
    pub message: String,
    /// Where.
    pub span: Span,
    /// Words under the carets; may be empty.
    pub label: String,
    /// Facts that help to understand.
    pub notes: Vec<String>,
    /// Ways out.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// Words under the carets.
    pub fn label(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.label = text.into();
        self
    }

    /// Adds a fact.
    pub fn note(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Adds a way out.
    pub fn help(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.help.push(text.into());
        self
    }
}

/// Findings of a run of the compiler, in order. A body is checked for each layout, in several rounds: what is said again is
/// said once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// All of them.
    pub list: Vec<Diagnostic>,
    said: FxHashSet<(&'static str, Span, String)>,
    /// The last finding that was said before: what is added to it goes nowhere.
    repeated: Option<Box<Diagnostic>>,
    /// Findings in other lists that come before these.
    before: usize,
}

impl Diagnostics {
    /// None yet, where so many come before them.
    pub(crate) fn behind(before: usize) -> Diagnostics {
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

    /// Adds a finding.
    pub fn push(&mut self, finding: Diagnostic) -> &mut Diagnostic {
        // Ways of an operation differ in types, and so in the words for one mistake.
        let words = if finding.severity == Severity::Error { String::new() } else { finding.message.clone() };
        if !self.said.insert((finding.code, finding.span, words)) {
            return self.repeated.insert(Box::new(finding));
        }
        self.list.push(finding);
        self.list.last_mut().expect("just pushed")
    }

    /// Names that may be meant by a wrong one, as long as there are few enough findings for somebody to read it.
    pub fn similar<'n>(&self, name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        match self.are_many() {
            true => Vec::new(),
            false => similar(name, candidates).into_iter().map(String::from).collect(),
        }
    }

    /// There are more findings already than anybody reads.
    pub fn are_many(&self) -> bool {
        self.before + self.list.len() >= DRAWN
    }

    /// Some finding refuses the script.
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
        self.push(Diagnostic { severity, code, message, span, label, notes, help })
    }
}

/// An error code with its explanation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `E0001`
    pub code: &'static str,
    /// One line, lower case.
    pub title: &'static str,
    /// Some sentences: the rule and the way out.
    pub explanation: &'static str,
    /// A script that triggers it, and nothing else.
    pub example: &'static str,
    /// The same script put right: nothing is found in it.
    pub repaired: &'static str,
}
