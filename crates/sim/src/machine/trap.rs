//! Reasons for a trap: errors that the kernel's verifier would refuse, and bugs that it would accept.

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trap {
    /// `r0 = r3` where nothing wrote r3, or a call did away with it.
    #[error("r{0} is read before it is written")]
    Register(u8),
    /// A byte of the stack, of a ring buffer record or of scratch space that nothing wrote.
    #[error("byte {offset} of {region} is read before it is written")]
    Unwritten {
        /// Which memory.
        region: String,
        /// Bytes from its start.
        offset: i64,
    },
    /// An address outside of everything.
    #[error("no memory at {0:#x}")]
    Wild(u64),
    /// An address beyond the end of something.
    #[error("{size} bytes at {offset} are outside of {region} ({len} bytes)")]
    Outside {
        /// Which memory.
        region: String,
        /// Bytes from its start.
        offset: i64,
        /// Bytes accessed.
        size: u64,
        /// Bytes that it has.
        len: usize,
    },
    /// Memory whose owner gave it back.
    #[error("{0} is used after its end")]
    Dead(String),
    /// A store to constants or to the context.
    #[error("{0} is read-only")]
    ReadOnly(String),
    /// The stack, the context and atomics want natural alignment.
    #[error("{size} bytes at {offset} of {region} are not aligned")]
    Misaligned {
        /// Which memory.
        region: String,
        /// Bytes from its start.
        offset: i64,
        /// Bytes accessed.
        size: u64,
    },
    /// An encoding that no kernel from 5.15 on knows.
    #[error("no instruction {0:02x?}")]
    Instruction([u8; 8]),
    /// A jump or a fall out of the code.
    #[error("instruction {0} is outside of the program")]
    Jump(i64),
    /// `call 999`
    #[error("no helper {0}")]
    Helper(u32),
    /// A kfunc that is not there.
    #[error("no kfunc `{0}`")]
    Kfunc(String),
    /// A helper was given what it does not take.
    #[error("{helper} was given {what}")]
    Argument {
        /// Its name.
        helper: &'static str,
        /// Why not.
        what: String,
    },
    /// More instructions in one run than a program should ever need.
    #[error("more than {0} instructions")]
    Endless(u64),
    /// A ring buffer record neither submitted nor discarded.
    #[error("a ring buffer record is neither submitted nor discarded")]
    Leaked,
    /// Preemption forbidden twice, allowed without that, or left forbidden.
    #[error("preemption is forbidden and allowed by turns, and allowed at the end")]
    Preemption,
    /// The stacks of nested functions are too large together.
    #[error("{0} bytes of stack, 512 is the limit")]
    Stack(u64),
    /// Functions call each other too deeply.
    #[error("more than 8 nested functions")]
    Depth,
    /// A callback returned something other than 0 or 1.
    #[error("a callback returned {0}, expected 0 or 1")]
    Callback(u64),
}

/// A trap and where it happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}, instruction {at}: {trap}")]
pub struct Fault {
    /// Symbol of the program or callback.
    pub function: String,
    /// Index of the instruction in it.
    pub at: usize,
    /// What.
    pub trap: Trap,
}
