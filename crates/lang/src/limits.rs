//! Limits on sizes, in terms of the script.

/// A map's key, bytes: keys are put together in scratch memory and copied at each use.
pub const KEY_BYTES: u32 = 65536;
/// A map's value, bytes.
pub const VALUE_BYTES: u32 = 65536;
/// Values in a tuple or record, those of tuples in it included.
pub const TUPLE_VALUES: usize = 1000;
/// Copies of an unrolled body.
pub const UNROLL: i64 = 100;
/// Statements that they have together.
pub const UNROLLED: u64 = 20_000;
/// Frames of a stack; the kernel keeps no more.
pub const FRAMES: i64 = 127;
/// Elements of an array that is passed by value and is to be a value, at most.
pub const PASSED_ELEMENTS: u32 = 64;
/// Parts of a power of two in `hist` are 2^bits.
pub const HIST_BITS: i64 = 5;
/// Buckets of `lhist`.
pub const LHIST_BUCKETS: i64 = 1000;
/// Bytes of a string, the NUL included.
pub const STRING_BYTES: i64 = 32768;
/// Keys of a map.
pub const MAP_ENTRIES: i64 = 1 << 26;
/// Bytes of a struct that a script declares.
pub const STRUCT_BYTES: u32 = 1 << 20;
/// Bytes that `memcmp` compares.
pub const MEMCMP_BYTES: i64 = 128;
/// Intervals of `tseries`.
pub const SERIES_INTERVALS: i64 = 500;
/// Levels of brackets, operators, branches and blocks together. The stages are recursive and rely on it.
pub const MAX_DEPTH: usize = 250;
