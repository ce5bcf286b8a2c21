//! What is wrong with a script: data here, words in one place, drawing in `render`.

use crate::span::Span;

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

/// Findings of a run of the compiler, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// All of them.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds an error.
    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, span, message.into())
    }

    /// Adds a warning.
    pub fn warning(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, code, span, message.into())
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
        self.list.push(Diagnostic { severity, code, message, span, label, notes, help });
        self.list.last_mut().expect("just pushed")
    }
}
