//! The library that is loaded into a traced process for the times of its GPU, and the layout of its records.

pub mod record;
