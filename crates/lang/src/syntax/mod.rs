//! Script text to syntax tree, and back to text.

pub mod ast;
pub mod format;
pub mod operators;
pub mod parse;
pub mod print;
pub mod visit;
