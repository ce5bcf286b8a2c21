//! Where the members of Python's structures are, by version: offsets in bytes, on x86-64.
//!
//! Source: the headers of CPython 3.9.18, 3.10.13, 3.11.7, 3.12.1, by a C program with `offsetof`; from 3.13 on `_Py_DebugOffsets`
//! (Include/internal/pycore_debug_offsets.h), whose own members are at different places in 3.13.0, 3.14.10 and 3.15.2.

use super::lines::LineFormat;
use super::version::Version;
use wire::python::{self, Bounds, Member, NONE};

/// Offsets of what a walk reads.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// In `_PyRuntime`: the first interpreter.
    pub interpreters: u64,
    /// In an interpreter: the next one.
    pub next_interpreter: u64,
    /// In an interpreter: the state of its first thread.
    pub threads: u64,
    /// In the state of a thread: that of the next one.
    pub next_thread: u64,
    /// In the state of a thread: `pthread_self()`.
    pub pthread: u64,
    /// In the state of a thread: its id.
    pub tid: Option<u64>,
    pub innermost: Innermost,
    /// In a frame: the one around it.
    pub previous: u64,
    /// In a frame: the code object.
    pub code: u64,
    pub instruction: Instruction,
    /// In a frame: who owns it, in versions with frames that are not complete yet.
    pub owner: Option<u64>,
    pub boundary: Boundary,
    pub code_object: CodeLayout,
}

/// Where the state of a thread has its innermost frame.
#[derive(Copy, Clone, Debug)]
pub(super) enum Innermost {
    At(u64),
    /// In a structure that the state leads to.
    Behind(u64, u64),
}

/// Where a frame tells its instruction.
#[derive(Copy, Clone, Debug)]
pub(super) enum Instruction {
    /// A number of units of so many bytes.
    Index { at: u64, bytes: u32 },
    /// An address; the first instruction is at an offset in the code object.
    Address { at: u64, first: u64 },
}

/// Where the frames of one call of the interpreter end and those of the next begin.
#[derive(Copy, Clone, Debug)]
pub(super) enum Boundary {
    /// Each frame has a call of its own.
    Each,
    /// The outermost frame of a call has a byte that is 1.
    Flag(u64),
    /// The interpreter puts a frame of its own around those of a call: the byte is that of its owner, at least [`OF_INTERPRETER`].
    Owner(u64),
}

/// Offsets in a code object, and in texts.
#[derive(Copy, Clone, Debug)]
pub(super) struct CodeLayout {
    /// The qualified name, in versions that have it.
    pub name: u64,
    pub file: u64,
    pub first_line: u64,
    /// The number of the first instruction of the source, in versions that have others before it.
    pub first_traceable: Option<u64>,
    pub lines: u64,
    pub line_format: LineFormat,
    /// Sizes of the heads of texts: of ASCII, and of others.
    pub text_heads: [u64; 2],
}

/// `_Py_DebugOffsets`: the layout as the interpreter itself has it.
pub(super) struct DebugOffsets {
    pub version: Version,
    pub is_free_threaded: bool,
    words: [u64; WORDS],
}

/// Words of the longest `_Py_DebugOffsets` that are used.
pub(super) const WORDS: usize = 64;
/// Its begin.
const COOKIE: &[u8; 8] = b"xdebugpy";

impl DebugOffsets {
    /// The begin of `_PyRuntime`; `None` before Python 3.13, which has none.
    pub(super) fn of(words: &[u64; WORDS]) -> Option<DebugOffsets> {
        let is_there = words[0] == u64::from_le_bytes(*COOKIE);
        is_there.then(|| DebugOffsets {
            version: Version::of_hex(words[1]),
            is_free_threaded: words[2] != 0,
            words: *words,
        })
    }
}

/// Whether a version has `_Py_DebugOffsets`.
pub(super) fn tells_offsets(version: Version) -> bool {
    version >= Version { major: 3, minor: 13 }
}

/// First words of the groups of `_Py_DebugOffsets`.
struct Groups {
    thread: usize,
    /// In the thread's group: those of `thread_id`, after which `native_thread_id` comes.
    pthread: usize,
    frame: usize,
    code: usize,
}

/// How far before the first instruction of a code object the number of the first one of the source is.
const TRACEABLE: u64 = 16;
/// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`, before 3.12 and since.
const OLD_TEXT_HEADS: [u64; 2] = [48, 72];
const TEXT_HEADS: [u64; 2] = [40, 56];

impl Layout {
    /// The layout of a version; `None` for those that are not known.
    pub(super) fn of(version: Version, offsets: Option<&DebugOffsets>) -> Option<Layout> {
        match (version.major, version.minor, offsets) {
            (3, 9, None) => Some(before_3_11(104, 1, LineFormat::Lnotab)),
            (3, 10, None) => Some(before_3_11(96, 2, LineFormat::Ranges)),
            (3, 11, None) => Some(of_3_11()),
            (3, 12, None) => Some(of_3_12()),
            (3, 13, Some(offsets)) => {
                Some(of_offsets(offsets, &Groups { thread: 19, pthread: 24, frame: 28, code: 34 }))
            }
            (3, 14, Some(offsets)) => {
                Some(of_offsets(offsets, &Groups { thread: 22, pthread: 27, frame: 31, code: 39 }))
            }
            (3, 15, Some(offsets)) => {
                Some(of_offsets(offsets, &Groups { thread: 22, pthread: 30, frame: 39, code: 47 }))
            }
            _ => None,
        }
    }
}

impl Layout {
    /// The layout for programs that walk themselves. The state of a thread is at one of two places from its control block on.
    pub(super) fn for_programs(&self, [slot, other]: [u64; 2], main_thread: u64) -> python::Layout {
        let (innermost, behind) = match self.innermost {
            Innermost::At(at) => (at, NONE),
            Innermost::Behind(at, behind) => (at, behind),
        };
        let (instruction, first, unit) = match self.instruction {
            Instruction::Index { at, bytes } => (at, NONE, u64::from(bytes)),
            Instruction::Address { at, first } => (at, first, 1),
        };
        let (boundary, bounds) = match self.boundary {
            // Any word of the frame.
            Boundary::Each => (self.code, Bounds::Each),
            Boundary::Flag(at) => (at, Bounds::Flag),
            Boundary::Owner(at) => (at, Bounds::Own),
        };
        let mut words = [0; Member::COUNT];
        let mut set = |member: Member, value: u64| words[member as usize] = value;
        set(Member::Slot, slot);
        set(Member::OtherSlot, other);
        set(Member::Pthread, self.pthread);
        set(Member::Innermost, innermost);
        set(Member::Behind, behind);
        set(Member::Previous, self.previous);
        set(Member::Code, self.code);
        set(Member::Instruction, instruction);
        set(Member::First, first);
        set(Member::Unit, unit);
        set(Member::Boundary, boundary & !7);
        set(Member::BoundaryShift, 8 * (boundary & 7));
        set(Member::Bounds, bounds as u64);
        set(Member::Name, self.code_object.name);
        set(Member::File, self.code_object.file);
        set(Member::Lines, self.code_object.lines);
        set(Member::FirstLine, self.code_object.first_line);
        set(Member::HasLocations, u64::from(self.code_object.line_format == LineFormat::Locations));
        set(Member::MainThread, main_thread);
        words
    }
}

impl CodeLayout {
    /// Offset of a part of a code object that is copied.
    pub(super) fn part(&self, member: Member) -> Option<u64> {
        match member {
            Member::Name => Some(self.name),
            Member::File => Some(self.file),
            Member::Lines => Some(self.lines),
            _ => None,
        }
    }
}

/// 3.9 and 3.10: `f_lasti` is at `index`, in units of `bytes`.
fn before_3_11(index: u64, bytes: u32, line_format: LineFormat) -> Layout {
    Layout {
        interpreters: 32,
        next_interpreter: 0,
        threads: 8,
        next_thread: 8,
        pthread: 176,
        tid: None,
        innermost: Innermost::At(24),
        previous: 24,
        code: 32,
        instruction: Instruction::Index { at: index, bytes },
        owner: None,
        boundary: Boundary::Each,
        code_object: CodeLayout {
            name: 112,
            file: 104,
            first_line: 40,
            first_traceable: None,
            lines: 120,
            line_format,
            text_heads: OLD_TEXT_HEADS,
        },
    }
}

fn of_3_11() -> Layout {
    Layout {
        interpreters: 40,
        next_interpreter: 0,
        threads: 16,
        next_thread: 8,
        pthread: 152,
        tid: Some(160),
        innermost: Innermost::Behind(56, 8),
        previous: 48,
        code: 32,
        instruction: Instruction::Address { at: 56, first: 184 },
        owner: Some(69),
        boundary: Boundary::Flag(68),
        code_object: CodeLayout {
            name: 128,
            file: 112,
            first_line: 72,
            first_traceable: Some(184 - TRACEABLE),
            lines: 136,
            line_format: LineFormat::Locations,
            text_heads: OLD_TEXT_HEADS,
        },
    }
}

fn of_3_12() -> Layout {
    Layout {
        interpreters: 40,
        next_interpreter: 0,
        threads: 72,
        next_thread: 8,
        pthread: 136,
        tid: Some(144),
        innermost: Innermost::Behind(56, 0),
        previous: 8,
        code: 0,
        instruction: Instruction::Address { at: 56, first: 192 },
        owner: Some(70),
        boundary: Boundary::Owner(70),
        code_object: CodeLayout {
            name: 128,
            file: 112,
            first_line: 68,
            first_traceable: Some(192 - TRACEABLE),
            lines: 136,
            line_format: LineFormat::Locations,
            text_heads: TEXT_HEADS,
        },
    }
}

/// 3.13 and later. The first member of each group is the size of the structure.
fn of_offsets(offsets: &DebugOffsets, groups: &Groups) -> Layout {
    let word = |at: usize| offsets.words[at];
    let (thread, frame, code) = (groups.thread, groups.frame, groups.code);
    Layout {
        interpreters: word(5),
        next_interpreter: word(8),
        threads: word(9),
        next_thread: word(thread + 2),
        pthread: word(groups.pthread),
        tid: Some(word(groups.pthread + 1)),
        innermost: Innermost::At(word(thread + 4)),
        previous: word(frame + 1),
        code: word(frame + 2),
        instruction: Instruction::Address { at: word(frame + 3), first: word(code + 9) },
        owner: Some(word(frame + 5)),
        boundary: Boundary::Owner(word(frame + 5)),
        code_object: CodeLayout {
            name: word(code + 3),
            file: word(code + 1),
            first_line: word(code + 5),
            first_traceable: Some(word(code + 9).wrapping_sub(TRACEABLE)),
            lines: word(code + 4),
            line_format: LineFormat::Locations,
            text_heads: TEXT_HEADS,
        },
    }
}
