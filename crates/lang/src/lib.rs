//! Script text to checked program. No I/O: what is to be known of the machine is asked of a [`catalog::Catalog`].
//!
//! ```text
//! source -> parse -> ast::Script -> resolve -> check -> hir::Program
//! ```

pub mod ast;
pub mod catalog;
pub mod codes;
pub mod diagnostic;
pub mod hir;
pub mod span;

pub use catalog::Catalog;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use span::{Source, Span, Spanned};
