//! Reasons for a trap: errors that the kernel's verifier would refuse, and bugs that it would accept.

/// A forbidden action of a program; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// `r0 = r3` if r3 was not written, or was overwritten by a call.
    #[error("r{0} is read before it is written")]
    Register(u8),
    /// A byte of the stack, of a ring buffer record or of scratch memory that was not written.
    #[error("byte {offset} of {region} is read before it is written")]
    Unwritten {
        /// Name of the region.
        region: String,
        /// Offset in bytes.
        offset: i64,
    },
    /// An address outside of all regions.
    #[error("no memory at {0:#x}")]
    Wild(u64),
    /// An address beyond the end of a region.
    #[error("{size} bytes at {offset} are outside of {region} ({len} bytes)")]
    Outside {
        /// Name of the region.
        region: String,
        /// Offset in bytes.
        offset: i64,
        /// Size of the access in bytes.
        size: u64,
        /// Size of the region in bytes.
        len: usize,
    },
    /// Access to memory after the end of its lifetime.
    #[error("{0} is used after its end")]
    Dead(String),
    /// A store to constants or to the context.
    #[error("{0} is read-only")]
    ReadOnly(String),
    /// A misaligned access; the stack, the context and atomics require natural alignment.
    #[error("{size} bytes at {offset} of {region} are not aligned")]
    Misaligned {
        /// Name of the region.
        region: String,
        /// Offset in bytes.
        offset: i64,
        /// Size of the access in bytes.
        size: u64,
    },
    /// An encoding that no supported kernel (5.15 or later) accepts.
    #[error("no instruction {0:02x?}")]
    Instruction([u8; 8]),
    /// A jump or fall-through out of the code.
    #[error("instruction {0} is outside of the program")]
    Jump(i64),
    /// `call 999`
    #[error("no helper {0}")]
    Helper(u32),
    /// An unknown kernel function.
    #[error("no kfunc `{0}`")]
    Kfunc(String),
    /// An invalid argument of a helper.
    #[error("{helper} was given {what}")]
    Argument {
        /// Name of the helper.
        helper: &'static str,
        /// Description of the argument.
        what: String,
    },
    /// Too many instructions in one run.
    #[error("more than {0} instructions")]
    Endless(u64),
    /// A ring buffer record was neither submitted nor discarded.
    #[error("a ring buffer record is neither submitted nor discarded")]
    Leaked,
    /// Preemption was disabled twice, enabled twice, or not enabled at the end.
    #[error("preemption is forbidden and allowed by turns, and allowed at the end")]
    Preemption,
    /// The stacks of nested functions exceed the limit together.
    #[error("{0} bytes of stack, 512 is the limit")]
    Stack(u64),
    /// Calls are nested too deeply.
    #[error("more than 8 nested functions")]
    Depth,
    /// A callback returned something other than 0 or 1.
    #[error("a callback returned {0}, expected 0 or 1")]
    Callback(u64),
}

/// A trap and its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}, instruction {at}: {trap}")]
pub struct Fault {
    /// Symbol of the program or callback.
    pub function: String,
    /// Index of the instruction.
    pub at: usize,
    /// Trap.
    pub trap: Trap,
}
