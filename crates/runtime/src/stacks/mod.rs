//! Maps of stacks: the addresses that programs store, and their unwind tables.

pub mod store;
pub(crate) mod unwind_maps;
