//! Script text to checked program. No I/O: what is to be known of the machine is asked of a [`catalog::Catalog`].
//!
//! ```text
//! source -> parse -> ast::Script -> forms -> resolve -> check -> hir::Program
//! ```

pub mod ast;
pub mod builtin;
pub mod catalog;
pub mod check;
pub mod codes;
pub mod compile;
pub mod constants;
pub mod debug;
pub mod diagnostic;
pub mod fmt;
pub mod format;
pub mod forms;
pub mod hir;
pub mod hir_print;
pub mod hir_visit;
pub mod operators;
pub mod parse;
pub mod passing;
pub mod posix;
pub mod printer;
pub mod render;
pub mod resolve;
pub mod similar;
pub mod span;

pub use catalog::Catalog;
pub use check::{Checked, Known, Options, check, registers};
pub use compile::compile_front;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use resolve::{Pending, Run};
pub use span::{Source, Span, Spanned};
