//! The output formats of a run, one file each.

pub mod json;
pub mod text;

pub use json::JsonSink;
pub use text::TextSink;
