//! The line of an instruction of Python, by the table of lines of its code object: one byte of the table per iteration of `bpf_loop`.
//!
//! Entries of the table are several bytes, of which only the first has its upper bit set. It says how many instructions the entry is for, and
//! how the step of the line follows: not at all, within it, or as a number in the next bytes, of which six bits in each, the lowest ones first,
//! with the sign in the lowest bit (InternalDocs/code_objects.md of CPython).
//!
//! A line is looked for once. Before Python 3.11, and where a table is too long for a copy, the instruction stands for its line.

use super::body::Body;
use super::operations::Operations;
use super::stack_walk::{Walk, Word};
use crate::ir::{Bin, BlockId, Cmp, VReg, Width};
use wire::python::{self, Member};

/// Bytes of a table that are copied.
const TABLE_BYTES: u32 = python::COPIED_PARTS[2].1;
/// Where the copy of the table begins: its head, then its bytes.
const TABLE: u32 = python::COPY_BYTES - TABLE_BYTES;

/// Kinds of entries: a step of any size, with columns and without; steps of 0 to 2.
const LONG: i64 = 14;
const NO_COLUMNS: i64 = 13;
const STEP_OF_TWO: i64 = 12;
const NO_STEP: i64 = 10;

/// In [`Word::NumberBits`]: no number is being read.
const NO_NUMBER: i64 = 64;

impl Body<'_, '_> {
    /// The word of a frame with its line in place of the instruction. `code`: the bits of its code object.
    pub(super) fn with_line(&mut self, walk: Walk, word: VReg, code: VReg) -> VReg {
        let (new, unreadable) = (self.b().cold_block(), self.b().cold_block());
        let [found, done] = std::array::from_fn(|_| self.b().block());
        let word = self.b().bin(Bin::And, word, !(python::INNERMOST as i64));
        let result = self.b().copy(word);
        self.put(walk, Word::Code, word);
        let lines = self.cx.lines_map();
        let known = self.lookup_raw(lines, walk.word(Word::CodeProcess));
        self.b().branch(Cmp::Eq, known, 0, new, found);
        self.b().switch_to(new);
        let has_locations = self.member(walk, Member::HasLocations);
        self.go_on_unless(Cmp::Eq, has_locations, 0, done);
        self.find_line(walk, word, code, unreadable);
        let line = self.get(walk, Word::Line);
        let high = self.b().bin(Bin::Shl, line, i64::from(python::CODE_BITS));
        let both = self.b().bin(Bin::Or, high, code);
        let tagged = self.b().bin(Bin::Or, both, (python::TAG | python::LINE) as i64);
        self.put(walk, Word::WithLine, tagged);
        self.b().fall_into(unreadable);
        self.enter(lines, walk.word(Word::CodeProcess), walk.word(Word::WithLine));
        let told = self.get(walk, Word::WithLine);
        self.b().set(result, told);
        self.b().jump(done);
        self.b().switch_to(found);
        let told = self.b().load(known, 0, Width::B64, false);
        self.b().set(result, told);
        self.b().fall_into(done);
        result
    }

    /// Sets [`Word::Line`]; jumps to `unreadable` if the table does not tell it. Until then the word stands for its line.
    fn find_line(&mut self, walk: Walk, word: VReg, code: VReg, unreadable: BlockId) {
        self.put(walk, Word::WithLine, word);
        let address = self.b().bin(Bin::Shl, code, i64::from(python::MARK_BITS));
        self.copy_code(walk, address);
        let number = self.b().bin(Bin::Shr, word, i64::from(python::CODE_BITS));
        let number = self.b().bin(Bin::And, number, python::NO_INSTRUCTION as i64);
        self.go_on_unless(Cmp::Eq, number, python::NO_INSTRUCTION as i64, unreadable);
        self.put(walk, Word::Left, number);
        let first = self.first_line(walk);
        self.put(walk, Word::Line, first);
        for word in [Word::TableAt, Word::EntryUnits] {
            self.put(walk, word, 0);
        }
        self.put(walk, Word::NumberBits, NO_NUMBER);
        self.loop_over(walk, TABLE_BYTES, "python_line", Self::table_byte);
        let [left, units, line] = [Word::Left, Word::EntryUnits, Word::Line].map(|word| self.get(walk, word));
        self.go_on_unless(Cmp::Uge, left, units, unreadable);
        let bits = self.get(walk, Word::NumberBits);
        self.go_on_unless(Cmp::Ne, bits, NO_NUMBER, unreadable);
        self.go_on_unless(Cmp::Eq, line, 0, unreadable);
        self.go_on_unless(Cmp::Ugt, line, python::NO_INSTRUCTION as i64, unreadable);
    }

    /// The line of the `def`, of the copy of the code object.
    pub(super) fn first_line(&mut self, walk: Walk) -> VReg {
        let at = self.member(walk, Member::FirstLine);
        // An offset that the verifier knows to be within the copy.
        let at = self.b().bin(Bin::And, at, 124);
        let copy = self.pointer(walk.copy());
        let place = self.b().bin(Bin::Add, copy, at);
        self.b().load(place, 0, Width::B32, false)
    }

    /// One iteration.
    fn table_byte(&mut self, walk: Walk, stop: BlockId, next: BlockId) {
        let [head, inside] = std::array::from_fn(|_| self.b().block());
        let at = self.get(walk, Word::TableAt);
        let length = self.load(walk.copy().plus(TABLE + python::LENGTH), Width::B64, false);
        self.go_on_unless(Cmp::Uge, at, length, stop);
        // The end of the table was not copied.
        self.go_on_unless(Cmp::Uge, at, i64::from(TABLE_BYTES - python::HEAD), stop);
        let within = self.b().bin(Bin::And, at, i64::from(TABLE_BYTES - 1));
        let table = self.pointer(walk.copy().plus(TABLE + python::TABLE));
        let place = self.b().bin(Bin::Add, table, within);
        let byte = self.b().load(place, 0, Width::B8, false);
        let further = self.b().bin(Bin::Add, at, 1);
        self.put(walk, Word::TableAt, further);
        self.b().branch(Cmp::Test, byte, 0x80, head, inside);
        self.b().switch_to(head);
        self.begin_entry(walk, byte, stop);
        self.b().jump(next);
        self.b().switch_to(inside);
        self.read_number(walk, byte, next);
        self.b().jump(next);
    }

    /// The first byte of an entry; jumps to `stop` if the one before it has the instruction.
    fn begin_entry(&mut self, walk: Walk, byte: VReg, stop: BlockId) {
        let [numbered, done] = std::array::from_fn(|_| self.b().block());
        let [left, units] = [Word::Left, Word::EntryUnits].map(|word| self.get(walk, word));
        self.go_on_unless(Cmp::Ult, left, units, stop);
        let less = self.b().bin(Bin::Sub, left, units);
        self.put(walk, Word::Left, less);
        let units = self.b().bin(Bin::And, byte, 7);
        let units = self.b().bin(Bin::Add, units, 1);
        self.put(walk, Word::EntryUnits, units);
        self.put(walk, Word::NumberBits, NO_NUMBER);
        let kind = self.b().bin(Bin::Shr, byte, 3);
        let kind = self.b().bin(Bin::And, kind, 15);
        self.go_on_unless(Cmp::Eq, kind, LONG, numbered);
        self.go_on_unless(Cmp::Eq, kind, NO_COLUMNS, numbered);
        self.go_on_unless(Cmp::Ult, kind, NO_STEP, done);
        self.go_on_unless(Cmp::Ugt, kind, STEP_OF_TWO, done);
        let step = self.b().bin(Bin::Sub, kind, NO_STEP);
        self.step_line(walk, step);
        self.b().jump(done);
        self.b().switch_to(numbered);
        self.put(walk, Word::Number, 0);
        self.put(walk, Word::NumberBits, 0);
        self.b().fall_into(done);
    }

    fn step_line(&mut self, walk: Walk, step: VReg) {
        let line = self.get(walk, Word::Line);
        let line = self.b().bin(Bin::Add, line, step);
        self.put(walk, Word::Line, line);
    }

    /// A byte within an entry: the next six bits of the step, or of something else.
    fn read_number(&mut self, walk: Walk, byte: VReg, next: BlockId) {
        const BITS: i64 = 6;
        const MORE: i64 = 0x40;
        let [last, negative, done] = std::array::from_fn(|_| self.b().block());
        let bits = self.get(walk, Word::NumberBits);
        self.go_on_unless(Cmp::Uge, bits, NO_NUMBER, next);
        let part = self.b().bin(Bin::And, byte, MORE - 1);
        let shift = self.b().bin(Bin::And, bits, 63);
        let part = self.b().bin(Bin::Shl, part, shift);
        let number = self.get(walk, Word::Number);
        let number = self.b().bin(Bin::Or, number, part);
        self.put(walk, Word::Number, number);
        let bits = self.b().bin(Bin::Add, bits, BITS);
        self.put(walk, Word::NumberBits, bits);
        let more = self.b().block();
        self.b().branch(Cmp::Test, byte, MORE, more, last);
        self.b().switch_to(more);
        self.b().jump(next);
        self.b().switch_to(last);
        self.put(walk, Word::NumberBits, NO_NUMBER);
        let size = self.b().bin(Bin::Shr, number, 1);
        let step = self.b().copy(size);
        self.b().branch(Cmp::Test, number, 1, negative, done);
        self.b().switch_to(negative);
        let below = self.b().neg(size);
        self.b().set(step, below);
        self.b().fall_into(done);
        self.step_line(walk, step);
    }
}
