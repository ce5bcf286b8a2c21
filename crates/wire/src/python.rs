//! Frames of Python as programs walk them: what the tracer tells of a process, and what a program stores.
//!
//! A program looks up its process in `ct_pythons`, finds the state of its thread by a word of the thread's own memory, and follows the
//! frames from there. Each is a word behind the addresses of a stored stack, the innermost one first:
//!
//! ```text
//! bit 63: a frame of Python   bit 62: innermost of a call of the interpreter   bit 61: with a line
//! 17 bits: instruction, or line   44 bits: code object
//! ```
//!
//! Keys of lines have the line in place of the instruction: all calls of a line have one key. A program finds it by the table of lines of the
//! code object, and keeps it in `ct_lines`.
//!
//! What a code object says, its name, its file and its table of lines, is copied into `ct_codes` when a program first meets it: the process
//! may have ended when it is printed.

/// Name of the map `u32 tgid -> [u64; Member::COUNT]`: the processes with an interpreter whose frames can be read.
pub const PYTHONS_MAP: &str = "ct_pythons";
/// Name of the map `{u32 tgid, u32 0, u64 code object} -> [u8; COPY_BYTES]`.
pub const CODES_MAP: &str = "ct_codes";
/// Name of the map `{u32 tgid, u32 0, u64 word of a frame} -> u64 word with its line`.
pub const LINES_MAP: &str = "ct_lines";
/// Size of the keys of both in bytes.
pub const CODE_KEY: u32 = 16;

/// Kernel function of programs in the traced process: the address of the thread's control block, or 0.
pub const THREAD_POINTER: &str = "ct_thread_pointer";

/// A member of what a program knows of the interpreter of a process. Offsets are in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Member {
    /// From the thread's control block to a word with the address of the thread's state.
    Slot,
    /// The same, where the first one has none; 0: there is no other.
    OtherSlot,
    /// In the state: the address of the control block.
    Pthread,
    /// In the state: the innermost frame.
    Innermost,
    /// In what [`Member::Innermost`] leads to: the innermost frame; [`NONE`]: it is the frame.
    Behind,
    /// In a frame: the one around it.
    Previous,
    /// In a frame: the code object.
    Code,
    /// In a frame: the instruction.
    Instruction,
    /// In a code object: its first instruction; [`NONE`]: the instruction is a number of 4 bytes.
    First,
    /// Size in bytes of what this number counts.
    Unit,
    /// In a frame: the word of 8 bytes with the byte that tells where a call of the interpreter ends.
    Boundary,
    /// Number of bits below the byte.
    BoundaryShift,
    /// How the byte tells it: a [`Bounds`].
    Bounds,
    /// In a code object: its name.
    Name,
    /// In a code object: the path of its file.
    File,
    /// In a code object: its table of lines.
    Lines,
    /// In a code object: the line of its `def`.
    FirstLine,
    /// 1: the table of lines has the format of Python 3.11 and later, which programs read, and names are qualified.
    HasLocations,
    /// Address of the state of the main thread, or 0.
    MainThread,
}

impl Member {
    /// Number of members.
    pub const COUNT: usize = Member::MainThread as usize + 1;
}

/// The members, each at its number.
pub type Layout = [u64; Member::COUNT];

/// No offset.
pub const NONE: u64 = u64::MAX;

/// Where the frames of one call of the interpreter end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bounds {
    /// Each frame has a call of its own.
    Each,
    /// The outermost frame of a call has a byte that is 1.
    Flag,
    /// Around the frames of a call there is one of the interpreter's own, whose byte is at least [`OF_INTERPRETER`].
    Own,
}

/// The owner of a frame that the interpreter makes for itself: `FRAME_OWNED_BY_CSTACK`, from 3.14 on `FRAME_OWNED_BY_INTERPRETER`.
pub const OF_INTERPRETER: u8 = 3;

/// Bits of the address of a code object, without the lowest three.
pub const CODE_BITS: u32 = 44;
/// Bits of a pointer to an object that are marks, or 0.
pub const MARK_BITS: u32 = 3;
/// Bits of the number of an instruction, in units of 2 bytes, or of a line.
pub const INSTRUCTION_BITS: u32 = 17;
/// The number of an instruction that is not known, or before the first one.
pub const NO_INSTRUCTION: u64 = (1 << INSTRUCTION_BITS) - 1;
/// Size in bytes of a unit of the numbers of instructions in words.
pub const UNIT: u32 = 2;
/// The bit of a frame of Python.
pub const TAG: u64 = 1 << 63;
/// The bit of the innermost frame of a call.
pub const INNERMOST: u64 = 1 << 62;
/// The bit of a word with a line; line 0 stands for the whole function.
pub const LINE: u64 = 1 << 61;

/// A frame of Python in a stack.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Address of the code object.
    pub code: u64,
    /// Where it is.
    pub at: At,
    /// Whether it is the innermost frame of a call of the interpreter.
    pub is_innermost: bool,
}

/// Where a frame of Python is in its function.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Before its first instruction, or at one whose number is too large.
    Unknown,
    /// At the instruction at this offset in bytes.
    Offset(u32),
    /// In this line.
    Line(u32),
    /// Anywhere.
    Function,
}

impl Frame {
    /// The frame of a word; `None` if the word is an address, also of the kernel, or says why a stack ends: these have both of the next bits,
    /// which no frame has.
    pub fn of(word: u64) -> Option<Frame> {
        if word & TAG == 0 || word & (INNERMOST | LINE) == INNERMOST | LINE {
            return None;
        }
        let number = word >> CODE_BITS & NO_INSTRUCTION;
        Some(Frame {
            code: (word & ((1 << CODE_BITS) - 1)) << MARK_BITS,
            at: match (word & LINE != 0, number) {
                (true, 0) => At::Function,
                (true, line) => At::Line(line as u32),
                (false, NO_INSTRUCTION) => At::Unknown,
                (false, number) => At::Offset(number as u32 * UNIT),
            },
            is_innermost: word & INNERMOST != 0,
        })
    }
}

/// Bytes that are copied of a code object itself.
pub const COPIED_CODE: u32 = 208;
/// Most bytes that are copied of its name, of its path, and of its table of lines: powers of two.
pub const COPIED_PARTS: [(Member, u32); 3] =
    [(Member::Name, 256), (Member::File, 512), (Member::Lines, 2048)];
/// Bytes of the copies of a code object.
pub const COPY_BYTES: u32 = COPIED_CODE + COPIED_PARTS[0].1 + COPIED_PARTS[1].1 + COPIED_PARTS[2].1;
/// Offset in a copy of a word with [`OWN`], [`WAITS_FOR_BACKWARD`] and [`OF_MODULE`]: there the object itself has the number of its references.
pub const TRAITS: u32 = 0;
/// The file is of no library.
pub const OWN: u64 = 1;
/// The function of PyTorch that waits until the threads of the backward pass, which run no Python, have done their work.
pub const WAITS_FOR_BACKWARD: u64 = 2;
/// The begin of its name.
pub const BACKWARD: [&[u8; 8]; 2] = [b"_engine_", b"run_back"];
/// The method of a module of PyTorch that does its work.
pub const OF_MODULE: u64 = 4;
/// The byte before the end of the name of a function within another one, `f.<locals>.forward`, which is no method.
pub const WITHIN_FUNCTION: u8 = b'>';
/// The end of its name, and the name before Python 3.11, whose names are not qualified, with the zero byte that ends it.
pub const FORWARD: [&[u8; 8]; 2] = [b".forward", b"forward\0"];
/// Where the characters of texts of one byte each may begin: of Python 3.12 and later, and before.
pub const ASCII_HEADS: [u32; 2] = [40, 48];
/// Parts of the paths of libraries: of `site-packages`, `dist-packages`, and Python's own, in its folder and in the interpreter; of code that
/// `torch.compile` makes, in files and in memory.
pub const OF_LIBRARIES: [&[u8; 8]; 6] =
    [b"ite-pack", b"ist-pack", b"python3.", b"<frozen ", b"rchinduc", b"<eval_wi"];

/// Offset of the length in texts and tables.
pub const LENGTH: u32 = 16;
/// Offset of the bytes in tables.
pub const TABLE: u32 = 32;
/// Bytes that texts and tables have at most beside their characters of one byte.
pub const HEAD: u32 = 72;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Stop;

    #[test]
    fn a_word_is_a_frame_an_address_or_an_end() {
        let word = TAG | INNERMOST | 21 << CODE_BITS | 0x7f12_3456_7898 >> MARK_BITS;
        let frame = Frame { code: 0x7f12_3456_7898, at: At::Offset(42), is_innermost: true };
        assert_eq!(Frame::of(word), Some(frame));
        let early = TAG | NO_INSTRUCTION << CODE_BITS | 0x5555 << 10;
        assert_eq!(Frame::of(early).map(|frame| (frame.at, frame.is_innermost)), Some((At::Unknown, false)));
        let line = TAG | LINE | 7 << CODE_BITS | 0x5555 << 10;
        assert_eq!(Frame::of(line).map(|frame| frame.at), Some(At::Line(7)));
        assert_eq!(Frame::of(0x7fff_ffff_f000), None);
        assert_eq!(Frame::of(0xffff_ffff_8100_0000), None);
        assert_eq!(Frame::of(Stop::Unreadable.mark()), None);
    }
}
