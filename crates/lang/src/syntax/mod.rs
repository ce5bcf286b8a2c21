//! Script text to syntax tree, and back to text.

pub mod ast;
pub mod format;
pub mod glob;
pub mod operators;
pub mod parse;
pub mod print;
pub mod visit;

use std::ops::RangeInclusive;

/// Finds a built-in by its name, and returns the fewest and most arguments. The table of built-ins belongs to a later
/// stage: the driver passes this function.
pub type FindBuiltin = fn(&str) -> Option<RangeInclusive<usize>>;
