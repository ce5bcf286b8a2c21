//! The formats. One file each; each understands all that a run says as far as its format can.

pub mod json;
mod span_text;
pub mod text;

pub use json::JsonSink;
pub use text::TextSink;
