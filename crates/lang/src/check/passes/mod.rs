//! Passes over the checked program.

pub(crate) mod dead_clauses;
pub(crate) mod unique_spans;
