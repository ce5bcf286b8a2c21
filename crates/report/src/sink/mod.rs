//! The formats. One file each; each understands all that a run says as far as its format can.

mod exported;
pub mod json;
pub mod openmetrics;
pub mod text;

pub use json::JsonSink;
pub use text::TextSink;
