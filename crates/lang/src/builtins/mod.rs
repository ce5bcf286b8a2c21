//! The built-in functions and variables: the table, and one file per family.

pub(crate) mod address;
pub(crate) mod assert;
pub mod constants;
pub mod format_string;
pub(crate) mod join;
pub(crate) mod lookup_compare;
pub(crate) mod name_tests;
pub(crate) mod network;
pub(crate) mod output;
pub mod posix;
pub(crate) mod signal;
pub(crate) mod spans;
pub mod table;
pub(crate) mod usdt_args;
pub(crate) mod values;
