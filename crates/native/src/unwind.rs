//! Unwind tables for programs in the traced processes: memory that the tracer writes and the processes read (`find_rule` of
//! `stacks.c`).
//!
//! ```text
//! 0          u64 sequence, whose lowest bit is the number of the list in use; u32 number of processes in each of the two lists
//! PROCESSES  two lists of { u32 tgid, u32 number of areas, u64 offset of the areas }, sorted by tgid
//! TABLES     { u64 offset of the rows, u64 number of rows }, by number; 0 does not exist
//! DATA       areas { u64 start, u64 end, u64 bias, u32 table, u32 0 }, sorted by start; rows (`wire::unwind`), sorted by address
//! ```
//!
//! The tracer writes to the list and to areas that are not in use, and switches by the next sequence. What a program has read is right if the
//! sequence is still the same then: the tracer may be preempted at any time.

/// Size of the memory in bytes. Pages that nobody writes to take no memory.
pub const SIZE: u64 = 512 << 20;
/// Offset of the numbers of processes, one word.
pub const PROCESS_COUNTS: u64 = 8;
/// Start of the lists of processes.
pub const PROCESSES: u64 = 64;
/// Size of a list in bytes.
pub const PROCESS_LIST: u64 = ENTRY * MAX_PROCESSES;
/// Largest number of processes.
pub const MAX_PROCESSES: u64 = 4096;
/// Size of a process and of a table's description in bytes.
pub const ENTRY: u64 = 16;
/// Start of the tables.
pub const TABLES: u64 = PROCESSES + 2 * PROCESS_LIST;
/// Start of areas and rows.
pub const DATA: u64 = TABLES + ENTRY * wire::unwind::MAX_TABLES as u64;
/// Size of an area in bytes.
pub const AREA: u64 = 32;
