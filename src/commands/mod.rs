//! Subcommands, one file each.

pub mod completion;
pub mod doctor;
pub mod explain;
pub mod fmt;
pub mod help;
pub mod list;
pub mod man;
pub mod record;
pub mod report;
pub mod script_help;
pub mod scripts;
pub mod trace;
