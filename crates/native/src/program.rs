//! The context of a program: the registers of the traced function as `struct pt_regs`, and behind them what helpers of the kernel find
//! elsewhere.

/// Size of `struct pt_regs` in bytes.
pub const REGISTERS: i32 = 168;
/// u64: attach cookie.
pub const COOKIE: i32 = REGISTERS;
/// u32: 1 on the return side of a session, 0 at its entry.
pub const IS_RETURN: i32 = REGISTERS + 8;
/// Address of the 8 bytes that a session keeps from entry to return.
pub const SESSION: i32 = REGISTERS + 16;
/// Size of the context in bytes.
pub const SIZE: i32 = REGISTERS + 24;
