//! The text of a script and positions in it.

pub mod span;
