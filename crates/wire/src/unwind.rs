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
//! A saved stack is `u64 hash, u64 addresses[limit]`, padded with zeros. A last address from [`STOPPED`] on is the reason why the
//! walk ended early.

/// Array of the tables; created by the runtime, since it holds maps.
pub const TABLES_MAP: &str = "ct_tables";
/// Which table an address belongs to.
pub const MAPPINGS_MAP: &str = "ct_mappings";
/// `u32 tgid -> u32`: processes of which some mapping was not known.
pub const UNKNOWN_MAP: &str = "ct_unknown";

/// Tables at most, the one that is never there included.
pub const MAX_TABLES: u32 = 1 << 13;
/// Rows of a chunk; a power of two.
pub const CHUNK_ROWS: usize = 1 << 11;
/// Bytes of a row.
pub const ROW_BYTES: u32 = 8;
/// Bytes of a chunk.
pub const CHUNK_BYTES: u32 = CHUNK_ROWS as u32 * ROW_BYTES;
/// Bits of a mapping's key that are not of the address.
pub const KEY_HEAD_BITS: u32 = 32;
/// Bytes of a mapping's key, the prefix length included.
pub const MAPPING_KEY: u32 = 16;
/// Bytes of a mapping's value.
pub const MAPPING_VALUE: u32 = 16;
/// Where the addresses begin in a kept stack.
pub const ADDRESSES_AT: u32 = 8;

/// Bytes of a kept stack.
pub fn stack_bytes(limit: u32) -> u32 {
    ADDRESSES_AT + 8 * limit
}

/// Where the caller's stack pointer comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer and the offset.
    Sp,
    /// The frame pointer and the offset.
    Bp,
    /// The word at the frame pointer and the offset: functions that align their stack.
    AtBp,
    /// A PLT entry, in which a word is pushed from byte `offset` of its 16 on.
    Plt,
    /// The kernel's frame of a signal.
    Signal,
}

/// Where the caller's frame pointer is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SavedBp {
    /// Still in its register.
    Kept,
    /// Words below the caller's stack pointer; 1 to 254.
    Below(u8),
    /// Where the frame pointer points to.
    AtBp,
}

/// What is known of an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing.
    Unknown,
    /// The outermost frame of a thread.
    Outermost,
    /// Something that rows cannot say.
    Unsupported,
    /// The caller's frame.
    Frame {
        /// Whence.
        base: Base,
        /// Bytes.
        offset: i32,
        /// And its frame pointer.
        bp: SavedBp,
    },
}

/// Kinds of rule, in the low bits.
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

/// Bits of the kind.
pub const KIND_BITS: u32 = 4;
/// Bits below the offset.
pub const OFFSET_AT: u32 = 12;
/// Frame pointer saved where it points to.
pub const BP_AT_BP: u32 = 255;

impl Rule {
    /// The bits of a row. What does not fit is unsupported.
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

/// The chunks of sorted rows, directory first; `None` if they are more than a directory can name. Addresses before the first row are unknown.
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

/// What a walk writes behind the last frame when it ends before the stack does, plus a [`Stop`].
pub const STOPPED: u64 = u64::MAX - 0xff;

/// Why a walk ended before the stack did.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No table covers the code, and there is no frame pointer.
    NoTable,
    /// The table's rule is one that rows cannot say.
    Unsupported,
    /// Stack memory could not be read.
    Unreadable,
    /// The caller's frame would lie below.
    Backwards,
}

impl Stop {
    const ALL: [Stop; 4] = [Stop::NoTable, Stop::Unsupported, Stop::Unreadable, Stop::Backwards];

    /// What stands in a stack.
    pub fn mark(self) -> u64 {
        STOPPED + self as u64
    }

    /// The reason that an address stands for.
    pub fn of(address: u64) -> Option<Stop> {
        Stop::ALL.get(usize::try_from(address.checked_sub(STOPPED)?).ok()?).copied()
    }

    /// In words.
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
