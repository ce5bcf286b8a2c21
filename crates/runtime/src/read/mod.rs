//! Reads a running session: the ring buffer, the maps and the counters of losses.

pub(crate) mod cat_system;
pub(crate) mod cleared_counts;
pub(crate) mod losses;
pub mod maps;
pub mod ring;
pub(crate) mod sorted_rows;
