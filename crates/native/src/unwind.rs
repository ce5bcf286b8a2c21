//! Unwind tables for programs in the traced processes: memory that the tracer writes and the processes read (`find_rule` of
//! `stacks.c`).
//!
//! ```text
//! 0          u64 sequence, odd while the tracer writes; u32 number of processes
//! PROCESSES  { u32 tgid, u32 number of areas, u64 offset of the areas }, sorted by tgid
//! TABLES     { u64 offset of the rows, u64 number of rows }, by number; 0 does not exist
//! DATA       areas { u64 start, u64 end, u64 bias, u32 table, u32 0 }, sorted by start; rows (`wire::unwind`), sorted by address
//! ```

/// Size of the memory in bytes. Pages that nobody writes to take no memory.
pub const SIZE: u64 = 512 << 20;
/// Offset of the number of processes.
pub const PROCESS_COUNT: u64 = 8;
/// Start of the processes.
pub const PROCESSES: u64 = 64;
/// Largest number of processes.
pub const MAX_PROCESSES: u64 = 4096;
/// Size of a process and of a table's description in bytes.
pub const ENTRY: u64 = 16;
/// Start of the tables.
pub const TABLES: u64 = PROCESSES + ENTRY * MAX_PROCESSES;
/// Start of areas and rows.
pub const DATA: u64 = TABLES + ENTRY * wire::unwind::MAX_TABLES as u64;
/// Size of an area in bytes.
pub const AREA: u64 = 32;
