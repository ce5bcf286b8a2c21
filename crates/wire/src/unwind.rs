//! Unwind tables as the stack walker reads them: for each address of a file, the rule that finds its caller's frame.
//!
//! A table is an array map of chunks. Chunk 0 is the directory: one row per further chunk, with the chunk's first address.
//! Rows are sorted by address; a chunk is padded with rows whose addresses are after every address of the file.
//!
//! ```text
//! row:  u32 rule, u32 address in the file
//! rule: kind 4 bits, where rbp was saved 8 bits, signed offset 20 bits
//! ```
//!
//! `ct_mappings` maps an address of a process to a table. It is a trie with the key
//! `u32 prefix length, u32 tgid, u64 address (big endian)` and the value `u32 table, u32 0, u64 bias`. The address in the file
//! is the address in memory minus the bias. Table 0 does not exist: it means code without a table.
//!
//! A program that runs in the traced process asks [`FIND_RULE`] instead, which reads tables in shared memory.
//!
//! A saved stack is `u64 hash, u64 addresses[limit], u64 frames[limit]`, without gaps, padded with zeros at the end. A last address from
//! [`STOPPED`] on is the reason why the walk ended early. The frames are those of [Python](crate::python).

/// Name of the array of the tables; the runtime creates it, since it contains maps.
pub const TABLES_MAP: &str = "ct_tables";
/// Name of the map from addresses to their tables.
pub const MAPPINGS_MAP: &str = "ct_mappings";
/// Name of the map `u32 tgid -> u32`: processes with an unknown mapping.
pub const UNKNOWN_MAP: &str = "ct_unknown";

/// Kernel function of programs in the traced process: `(u64 *ip, back, tgid)`; returns the rule, or [`UNMAPPED`]. Replaces an address that
/// cudatrace has put on the stack by that of the program.
pub const FIND_RULE: &str = "ct_find_rule";
/// Kernel function of programs in the traced process: `(tgid)`; tells the tracer that nothing is known of the process.
pub const TELL_UNKNOWN: &str = "ct_tell_unknown";
/// Bit of an answer: the mappings of the process are not known.
pub const UNMAPPED: u64 = 1 << 33;
/// Kernel function of programs in the traced process: `(buffer of READ_BUFFER bytes, address, u64 *result, memory of WALK_MEMORY bytes)`;
/// returns 0 or an error. Reads a word of the stack, or of the interpreter.
pub const READ_WORD: &str = "ct_read_word";
/// Size of the buffer in bytes: the addresses that it holds, first and behind the last, and a page.
pub const READ_BUFFER: u32 = READ_BUFFER_HEAD + 4096;
/// Size of its head in bytes, which is zero at the start.
pub const READ_BUFFER_HEAD: u32 = 16;
/// Size in bytes of what a walk knows of the memory that it reads, on the stack of the program: whether it may vanish, and eight pages that are
/// there. All zero at the start.
pub const WALK_MEMORY: u32 = 72;
/// Offset of the word that is not 0 if what is read next may vanish at any time: it is another thread's, or a guess led there.
pub const MAY_VANISH: u32 = 0;

/// Largest number of tables, including the table that never exists.
pub const MAX_TABLES: u32 = 1 << 13;
/// Number of rows of a chunk; a power of two.
pub const CHUNK_ROWS: usize = 1 << 11;
/// Size of a row in bytes.
pub const ROW_BYTES: u32 = 8;
/// Size of a chunk in bytes.
pub const CHUNK_BYTES: u32 = CHUNK_ROWS as u32 * ROW_BYTES;
/// Number of bits in a mapping's key before the address.
pub const KEY_HEAD_BITS: u32 = 32;
/// Size of a mapping's key in bytes, including the prefix length.
pub const MAPPING_KEY: u32 = 16;
/// Size of a mapping's value in bytes.
pub const MAPPING_VALUE: u32 = 16;
/// Offset of the addresses in a stored stack.
pub const ADDRESSES_AT: u32 = 8;

/// Most words of a stored stack behind its hash.
pub fn stack_words(limit: u32) -> u32 {
    2 * limit
}

/// Size of a stored stack in bytes.
pub fn stack_bytes(limit: u32) -> u32 {
    ADDRESSES_AT + 8 * stack_words(limit)
}

/// Base of the caller's stack pointer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer plus the offset.
    Sp,
    /// The frame pointer plus the offset.
    Bp,
    /// The word at the frame pointer plus the offset: functions that align their stack.
    AtBp,
    /// A PLT entry, which pushes a word at byte `offset` of its 16 bytes.
    Plt,
    /// The kernel's signal frame.
    Signal,
}

/// Location of the caller's frame pointer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SavedBp {
    /// In its register.
    Kept,
    /// This number of words (1 to 254) below the caller's stack pointer.
    Below(u8),
    /// At the address in the frame pointer.
    AtBp,
}

/// Unwind rule of an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The address is not covered.
    Unknown,
    /// The outermost frame of a thread.
    Outermost,
    /// A rule that rows cannot represent.
    Unsupported,
    /// The caller's frame.
    Frame {
        /// Base.
        base: Base,
        /// Offset in bytes.
        offset: i32,
        /// Location of the frame pointer.
        bp: SavedBp,
    },
}

/// Kinds of rules, in the low bits.
pub mod kind {
    #![allow(missing_docs)]
    pub const UNKNOWN: u32 = 0;
    pub const OUTERMOST: u32 = 1;
    pub const UNSUPPORTED: u32 = 2;
    pub const SP: u32 = 3;
    pub const BP: u32 = 4;
    pub const AT_BP: u32 = 5;
    pub const PLT: u32 = 6;
    pub const SIGNAL: u32 = 7;
}

/// Number of bits of the kind.
pub const KIND_BITS: u32 = 4;
/// Number of bits below the offset.
pub const OFFSET_AT: u32 = 12;
/// Value for a frame pointer that is saved at the address in the frame pointer.
pub const BP_AT_BP: u32 = 255;

impl Rule {
    /// Encodes a rule. A rule that does not fit is encoded as unsupported.
    pub const fn encode(self) -> u32 {
        let (base, offset, bp) = match self {
            Rule::Unknown => return kind::UNKNOWN,
            Rule::Outermost => return kind::OUTERMOST,
            Rule::Unsupported => return kind::UNSUPPORTED,
            Rule::Frame { base, offset, bp } => (base, offset, bp),
        };
        if offset < -(1 << 19) || offset >= 1 << 19 {
            return kind::UNSUPPORTED;
        }
        let kind = match base {
            Base::Sp => kind::SP,
            Base::Bp => kind::BP,
            Base::AtBp => kind::AT_BP,
            Base::Plt => kind::PLT,
            Base::Signal => kind::SIGNAL,
        };
        let bp = match bp {
            SavedBp::Kept => 0,
            SavedBp::Below(words) => words as u32,
            SavedBp::AtBp => BP_AT_BP,
        };
        kind | bp << KIND_BITS | (offset as u32) << OFFSET_AT
    }
}

/// A row: `address << 32 | rule`.
pub fn row(address: u32, rule: Rule) -> u64 {
    u64::from(address) << 32 | u64::from(rule.encode())
}

/// The address of a row.
pub fn row_address(row: u64) -> u32 {
    (row >> 32) as u32
}

/// Divides sorted rows into chunks, directory first; `None` if the directory cannot hold them all. Addresses
/// before the first row are unknown.
pub fn chunks(rows: &[u64]) -> Option<Vec<Vec<u64>>> {
    let behind = u64::from(u32::MAX) << 32;
    let all: Vec<u64> = std::iter::once(row(0, Rule::Unknown)).chain(rows.iter().copied()).collect();
    let pad = |rows: &[u64]| {
        let mut chunk = rows.to_vec();
        chunk.resize(CHUNK_ROWS, behind);
        chunk
    };
    let further: Vec<Vec<u64>> = all.chunks(CHUNK_ROWS).map(pad).collect();
    let directory: Vec<u64> = further.iter().map(|chunk| chunk[0]).collect();
    (directory.len() <= CHUNK_ROWS).then(|| std::iter::once(pad(&directory)).chain(further).collect())
}

/// Base of the marker, plus a [`Stop`], that follows the last frame if a walk ends early.
pub const STOPPED: u64 = u64::MAX - 0xff;

/// The reason why a walk ended before the outermost frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No table covers the code, and there is no frame pointer.
    NoTable,
    /// The table's rule cannot be represented by rows.
    Unsupported,
    /// Stack memory could not be read.
    Unreadable,
    /// The caller's frame would be at a lower address.
    Backwards,
}

impl Stop {
    const ALL: [Stop; 4] = [Stop::NoTable, Stop::Unsupported, Stop::Unreadable, Stop::Backwards];

    /// The marker in a stack.
    pub fn mark(self) -> u64 {
        STOPPED + self as u64
    }

    /// The reason for a marker; `None` for an address.
    pub fn of(address: u64) -> Option<Stop> {
        Stop::ALL.get(usize::try_from(address.checked_sub(STOPPED)?).ok()?).copied()
    }

    /// Description.
    pub fn words(self) -> &'static str {
        match self {
            Stop::NoTable => "no unwind table or frame pointer there",
            Stop::Unsupported => "unwind rule not supported",
            Stop::Unreadable => "stack not readable",
            Stop::Backwards => "stack does not go on",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_their_bits() {
        let rule = Rule::Frame { base: Base::Sp, offset: 16, bp: SavedBp::Below(2) };
        assert_eq!(rule.encode(), 3 | 2 << 4 | 16 << 12);
        let below = Rule::Frame { base: Base::AtBp, offset: -8, bp: SavedBp::AtBp };
        assert_eq!((below.encode() as i32) >> OFFSET_AT, -8);
        let far = Rule::Frame { base: Base::Sp, offset: 1 << 19, bp: SavedBp::Kept };
        assert_eq!(far.encode(), kind::UNSUPPORTED);
    }

    #[test]
    fn chunks_are_sorted_full_and_named_by_the_directory() {
        let rows: Vec<u64> = (1..=3000).map(|at| row(at * 4, Rule::Outermost)).collect();
        let chunks = chunks(&rows).expect("fits");
        assert_eq!(chunks.len(), 3);
        assert!(chunks.iter().all(|chunk| chunk.len() == CHUNK_ROWS && chunk.is_sorted_by_key(|r| r >> 32)));
        assert_eq!(row_address(chunks[0][1]), row_address(chunks[2][0]));
        assert_eq!(row_address(chunks[0][2]), u32::MAX);
        assert_eq!(chunks[1][0], 0);
    }

    #[test]
    fn a_stop_is_no_address() {
        assert_eq!(Stop::of(Stop::Unreadable.mark()), Some(Stop::Unreadable));
        assert_eq!(Stop::of(0x7fff_ffff_f000), None);
        assert_eq!(Stop::of(u64::MAX), None);
    }
}
