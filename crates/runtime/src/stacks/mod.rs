//! Maps of stacks: the addresses that programs stored, and the tables by which they unwind.

pub mod store;
pub(crate) mod unwind_maps;
