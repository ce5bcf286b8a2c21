//! Frames of Python in `ustack`: the program follows them itself, from the state of its thread, one frame per iteration of `bpf_loop`.
//!
//! ```text
//! process -> layout of its interpreter -> word of this thread's memory -> state of the thread -> innermost frame -> frame around it -> ...
//! ```
//!
//! The words of the frames follow the addresses of the walk. A code object that is new is copied, as much of it as names need.
//!
//! Threads of PyTorch's backward pass run no Python. Their frames are those of the main thread, if that waits for the backward pass: it does not
//! run meanwhile.
//!
//! Not here: who knows the layout (`host::python`), what a word means (`wire::python`), and where the frames stand among the native ones
//! (`src/symbolize`).

use super::body::Body;
use super::builtin::Builtins;
use super::module::{BPF_MAP_TYPE_HASH, Cx};
use super::operations::Operations;
use super::place::Place;
use super::stack_walk::{Walk, Word};
use crate::bpf::helper::Helper;
use crate::ir::{Bin, BlockId, Cmp, MapDef, MapRef, VReg, Width};
use wire::python::{self, Bounds, Member};
use wire::types::StackMode;
use wire::unwind;

/// Capacity for processes with an interpreter.
const PYTHONS: u32 = 1 << 12;
/// Capacity for code objects.
const CODES: u32 = 1 << 13;
/// Capacity for instructions whose lines are known.
const LINES: u32 = 1 << 14;
/// Bytes of a name that are copied.
const NAME_BYTES: u32 = python::COPIED_PARTS[0].1;
/// Bytes of a path that are copied.
const PATH_BYTES: u32 = python::COPIED_PARTS[1].1;
/// Frames among which one with a trait is looked for.
const LOOKED_AT: u32 = 100;

impl Cx<'_> {
    /// Declares the maps for frames of Python, also for a module without stack walks.
    pub(super) fn python_maps(&mut self) {
        if self.walks_python() {
            self.pythons_map();
            self.codes_map();
            self.lines_map();
        }
    }

    /// Whether programs can find the state of their thread.
    fn walks_python(&self) -> bool {
        self.options.unwind.is_some() && (self.runs_in_process() || self.options.thread_base.is_some())
    }

    fn pythons_map(&mut self) -> MapRef {
        self.python_map(python::PYTHONS_MAP, 4, 8 * Member::COUNT as u32, PYTHONS)
    }

    fn codes_map(&mut self) -> MapRef {
        self.python_map(python::CODES_MAP, python::CODE_KEY, python::COPY_BYTES, CODES)
    }

    pub(super) fn lines_map(&mut self) -> MapRef {
        self.python_map(python::LINES_MAP, python::CODE_KEY, 8, LINES)
    }

    fn python_map(&mut self, name: &str, key_size: u32, value_size: u32, max_entries: u32) -> MapRef {
        let flags = self.allocating();
        self.internal_map(MapDef {
            name: name.into(),
            kind: BPF_MAP_TYPE_HASH,
            key_size,
            value_size,
            max_entries,
            flags,
            direct: false,
        })
    }
}

impl Body<'_, '_> {
    /// Appends the frames of Python of this thread, `limit` at most.
    pub(super) fn python_frames(&mut self, walk: Walk, limit: u32, mode: StackMode) {
        if !self.cx.walks_python() {
            return;
        }
        let none = self.b().block();
        let layout = self.layout_of_process(walk, none);
        let [other_thread, own, follow] = std::array::from_fn(|_| self.b().block());
        let frame = self.b().copy(0);
        self.set_may_vanish(walk, false);
        let state = self.thread_state(walk, layout, other_thread);
        let innermost = self.innermost_frame(walk, layout, state, other_thread);
        self.b().set(frame, innermost);
        self.b().branch(Cmp::Ne, frame, 0, own, other_thread);
        self.b().switch_to(other_thread);
        self.set_may_vanish(walk, true);
        let waiting = self.frame_that_waits(walk, layout, none);
        self.b().set(frame, waiting);
        self.b().jump(follow);
        self.b().switch_to(own);
        self.set_members(walk, layout);
        self.b().fall_into(follow);
        self.put(walk, Word::Python, frame);
        self.put(walk, Word::Innermost, python::INNERMOST as i64);
        let [count, cut] = [Word::Count, Word::Cut].map(|word| self.get(walk, word));
        let begin = self.b().bin(Bin::Add, count, cut);
        self.put(walk, Word::Count, begin);
        let end = self.b().bin(Bin::Add, begin, i64::from(limit));
        self.put(walk, Word::PythonEnd, end);
        match mode.is_one_frame() {
            true => self.one_python(walk, mode),
            false => self.all_python(walk, limit),
        }
        self.b().fall_into(none);
    }

    /// Stores the words of frames, `most` at most. Calls of the interpreter may have a frame each that is not shown.
    fn all_python(&mut self, walk: Walk, most: u32) {
        self.loop_over(walk, 2 * most, "python_frame", Self::python_frame);
    }

    /// Stores the word of one frame alone, with its line, or as a function.
    fn one_python(&mut self, walk: Walk, mode: StackMode) {
        let wanted = match mode {
            StackMode::Module => python::OF_MODULE,
            _ if mode.is_own() => python::OWN,
            _ => 0,
        };
        if wanted != 0 {
            self.put(walk, Word::Wanted, wanted as i64);
            self.put(walk, Word::PythonEnd, i64::from(LOOKED_AT));
        }
        self.all_python(walk, if wanted != 0 { LOOKED_AT } else { 1 });
        let [none, known] = std::array::from_fn(|_| self.b().block());
        // All frames may be of libraries; without a module there is none.
        let innermost = match mode {
            StackMode::Module => self.b().copy(0),
            _ => self.load(walk.word(Word::Addresses), Width::B64, false),
        };
        let word = self.b().copy(innermost);
        let found = self.get(walk, Word::Found);
        self.go_on_unless(Cmp::Eq, found, 0, known);
        self.b().set(word, found);
        self.b().fall_into(known);
        for of_all_frames in [Word::Hash, Word::Count, Word::Addresses] {
            self.put(walk, of_all_frames, 0);
        }
        self.store(walk.word(Word::Addresses).plus(8), Width::B64, 0);
        self.go_on_unless(Cmp::Eq, word, 0, none);
        let code = self.b().bin(Bin::And, word, (1 << python::CODE_BITS) - 1);
        let word = match mode.is_function() {
            true => self.b().bin(Bin::Or, code, (python::TAG | python::LINE) as i64),
            false => self.with_line(walk, word, code),
        };
        let first = self.b().copy(0);
        self.append(walk, first, word);
        self.put(walk, Word::Count, 1);
        self.b().fall_into(none);
    }

    fn layout_of_process(&mut self, walk: Walk, none: BlockId) -> VReg {
        let process = self.get(walk, Word::Process);
        self.store(walk.word(Word::Key), Width::B32, process);
        let pythons = self.cx.pythons_map();
        let layout = self.lookup_raw(pythons, walk.word(Word::Key));
        let (missing, found) = (self.b().cold_block(), self.b().block());
        self.b().branch(Cmp::Eq, layout, 0, missing, found);
        self.b().switch_to(missing);
        match self.cx.runs_in_process() {
            true => _ = self.b().kfunc(unwind::TELL_UNKNOWN, &[process.into()]),
            false => self.tell_unknown(walk, walk.word(Word::Key)),
        }
        self.b().jump(none);
        self.b().switch_to(found);
        layout
    }

    /// The state of this thread, which says itself that it is; jumps to `none` if the thread has none.
    fn thread_state(&mut self, walk: Walk, layout: VReg, none: BlockId) -> VReg {
        let base = self.thread_pointer();
        self.go_on_unless(Cmp::Eq, base, 0, none);
        let found = self.b().block();
        let state = self.b().copy(0);
        for slot in [Member::Slot, Member::OtherSlot] {
            let other = self.b().block();
            let offset = self.member_of(layout, slot);
            self.go_on_unless(Cmp::Eq, offset, 0, other);
            let at = self.b().bin(Bin::Add, base, offset);
            let given = self.peek(walk, at, other);
            self.go_on_unless(Cmp::Eq, given, 0, other);
            let at = self.member_at(layout, Member::Pthread, given);
            let pthread = self.peek(walk, at, other);
            self.go_on_unless(Cmp::Ne, pthread, base, other);
            self.b().set(state, given);
            self.b().jump(found);
            self.b().switch_to(other);
        }
        self.b().jump(none);
        self.b().switch_to(found);
        state
    }

    fn member_of(&mut self, layout: VReg, member: Member) -> VReg {
        self.b().load(layout, 8 * member as i16, Width::B64, false)
    }

    fn member_at(&mut self, layout: VReg, member: Member, base: VReg) -> VReg {
        let offset = self.member_of(layout, member);
        self.b().bin(Bin::Add, base, offset)
    }

    /// The innermost frame of a thread; 0 if it runs no Python.
    fn innermost_frame(&mut self, walk: Walk, layout: VReg, state: VReg, none: BlockId) -> VReg {
        let direct = self.b().block();
        let at = self.member_at(layout, Member::Innermost, state);
        let inner = self.peek(walk, at, none);
        let frame = self.b().copy(inner);
        let behind = self.member_of(layout, Member::Behind);
        self.go_on_unless(Cmp::Eq, behind, python::NONE as i64, direct);
        let at = self.b().bin(Bin::Add, inner, behind);
        let inner = self.peek(walk, at, none);
        self.b().set(frame, inner);
        self.b().fall_into(direct);
        frame
    }

    /// The innermost frame of the main thread, if it waits for the backward pass; otherwise jumps to `none`.
    fn frame_that_waits(&mut self, walk: Walk, layout: VReg, none: BlockId) -> VReg {
        let state = self.member_of(layout, Member::MainThread);
        self.go_on_unless(Cmp::Eq, state, 0, none);
        let frame = self.innermost_frame(walk, layout, state, none);
        self.go_on_unless(Cmp::Eq, frame, 0, none);
        self.set_members(walk, layout);
        let code = self.code_of(walk, frame, none);
        let traits = self.note_code(walk, code);
        let waits = self.b().bin(Bin::And, traits, python::WAITS_FOR_BACKWARD as i64);
        self.go_on_unless(Cmp::Eq, waits, 0, none);
        frame
    }

    fn set_members(&mut self, walk: Walk, layout: VReg) {
        for number in 0..Member::COUNT as u32 {
            let value = self.b().load(layout, 8 * number as i16, Width::B64, false);
            self.store(walk.members().plus(8 * number), Width::B64, value);
        }
    }

    pub(super) fn member(&mut self, walk: Walk, member: Member) -> VReg {
        self.load(walk.members().plus(8 * member as u32), Width::B64, false)
    }

    /// A word of a structure, by the member that has its offset.
    fn python_word(&mut self, walk: Walk, base: VReg, member: Member, failed: BlockId) -> VReg {
        let offset = self.member(walk, member);
        let at = self.b().bin(Bin::Add, base, offset);
        self.peek(walk, at, failed)
    }

    /// One iteration: stores the frame, and goes to the one around it.
    fn python_frame(&mut self, walk: Walk, stop: BlockId, next: BlockId) {
        let frame = self.get(walk, Word::Python);
        self.go_on_unless(Cmp::Eq, frame, 0, stop);
        let [shown, own, outwards] = std::array::from_fn(|_| self.b().block());
        let bounds = self.member(walk, Member::Bounds);
        let tells = self.bounding_byte(walk, frame, stop);
        self.go_on_unless(Cmp::Ne, bounds, Bounds::Own as i64, shown);
        self.b().branch(Cmp::Uge, tells, i64::from(python::OF_INTERPRETER), own, shown);
        self.b().switch_to(own);
        self.put(walk, Word::Innermost, python::INNERMOST as i64);
        self.b().jump(outwards);
        self.b().switch_to(shown);
        self.note_python(walk, frame, stop);
        self.begin_next_call(walk, bounds, tells);
        self.b().fall_into(outwards);
        let previous = self.python_word(walk, frame, Member::Previous, stop);
        self.put(walk, Word::Python, previous);
        self.b().jump(next);
    }

    fn bounding_byte(&mut self, walk: Walk, frame: VReg, stop: BlockId) -> VReg {
        let word = self.python_word(walk, frame, Member::Boundary, stop);
        let shift = self.member(walk, Member::BoundaryShift);
        let byte = self.b().bin(Bin::Shr, word, shift);
        self.b().bin(Bin::And, byte, 0xff)
    }

    /// Sets whether the frame around this one is the innermost of its call.
    fn begin_next_call(&mut self, walk: Walk, bounds: VReg, tells: VReg) {
        let [begins, flags, told] = std::array::from_fn(|_| self.b().block());
        self.put(walk, Word::Innermost, 0);
        self.go_on_unless(Cmp::Eq, bounds, Bounds::Each as i64, begins);
        self.b().branch(Cmp::Eq, bounds, Bounds::Flag as i64, flags, told);
        self.b().switch_to(flags);
        self.b().branch(Cmp::Eq, tells, 1, begins, told);
        self.b().switch_to(begins);
        self.put(walk, Word::Innermost, python::INNERMOST as i64);
        self.b().fall_into(told);
    }

    /// Stores the word of a frame, if there is room, and copies its code if that is new.
    fn note_python(&mut self, walk: Walk, frame: VReg, stop: BlockId) {
        let [count, end] = [Word::Count, Word::PythonEnd].map(|word| self.get(walk, word));
        self.go_on_unless(Cmp::Uge, count, end, stop);
        let code = self.code_of(walk, frame, stop);
        let number = self.instruction_number(walk, frame, code, stop);
        let innermost = self.get(walk, Word::Innermost);
        let b = self.b();
        let high = b.bin(Bin::Shl, number, i64::from(python::CODE_BITS));
        let low = b.bin(Bin::Shr, code, i64::from(python::MARK_BITS));
        let low = b.bin(Bin::And, low, (1 << python::CODE_BITS) - 1);
        let word = b.bin(Bin::Or, high, low);
        let word = b.bin(Bin::Or, word, innermost);
        let word = b.bin(Bin::Or, word, python::TAG as i64);
        self.append(walk, count, word);
        let more = self.b().bin(Bin::Add, count, 1);
        self.put(walk, Word::Count, more);
        let traits = self.note_code(walk, code);
        let wanted = self.get(walk, Word::Wanted);
        let has = self.b().bin(Bin::And, traits, wanted);
        let go_on = self.b().block();
        self.go_on_unless(Cmp::Eq, has, 0, go_on);
        self.put(walk, Word::Found, word);
        self.b().jump(stop);
        self.b().switch_to(go_on);
    }

    /// Address of the code object of a frame.
    fn code_of(&mut self, walk: Walk, frame: VReg, failed: BlockId) -> VReg {
        let code = self.python_word(walk, frame, Member::Code, failed);
        let code = self.b().bin(Bin::And, code, -(1 << python::MARK_BITS));
        self.go_on_unless(Cmp::Eq, code, 0, failed);
        code
    }

    /// The number of the instruction that a frame executes.
    fn instruction_number(&mut self, walk: Walk, frame: VReg, code: VReg, stop: BlockId) -> VReg {
        let [counted, pointed, known, none, done] = std::array::from_fn(|_| self.b().block());
        let told = self.python_word(walk, frame, Member::Instruction, stop);
        let first = self.member(walk, Member::First);
        let offset = self.b().copy(0);
        self.b().branch(Cmp::Eq, first, python::NONE as i64, counted, pointed);
        self.b().switch_to(counted);
        let low = self.b().bin(Bin::And, told, i64::from(u32::MAX));
        let unit = self.member(walk, Member::Unit);
        let bytes = self.b().bin(Bin::Mul, low, unit);
        self.b().set(offset, bytes);
        self.b().jump(known);
        self.b().switch_to(pointed);
        let within = self.b().bin(Bin::Sub, told, code);
        let bytes = self.b().bin(Bin::Sub, within, first);
        self.b().set(offset, bytes);
        self.b().fall_into(known);
        let number = self.b().bin(Bin::Shr, offset, i64::from(python::UNIT.trailing_zeros()));
        self.b().branch(Cmp::Ugt, number, python::NO_INSTRUCTION as i64, none, done);
        self.b().switch_to(none);
        self.b().set(number, python::NO_INSTRUCTION as i64);
        self.b().fall_into(done);
        number
    }

    /// Copies a code object, unless this was done before. Returns its traits.
    fn note_code(&mut self, walk: Walk, code: VReg) -> VReg {
        let process = self.get(walk, Word::Process);
        self.put(walk, Word::CodeProcess, process);
        self.put(walk, Word::Code, code);
        let map = self.cx.codes_map();
        let known = self.lookup_raw(map, walk.word(Word::CodeProcess));
        let new = self.b().cold_block();
        let [found, done] = std::array::from_fn(|_| self.b().block());
        let traits = self.b().copy(0);
        self.b().branch(Cmp::Eq, known, 0, new, found);
        self.b().switch_to(new);
        self.copy_code(walk, code);
        self.note_traits(walk);
        self.enter(map, walk.word(Word::CodeProcess), walk.copy());
        let told = self.load(walk.copy().plus(python::TRAITS), Width::B64, false);
        self.b().set(traits, told);
        self.b().jump(done);
        self.b().switch_to(found);
        let told = self.b().load(known, python::TRAITS as i16, Width::B64, false);
        self.b().set(traits, told);
        self.b().fall_into(done);
        traits
    }

    /// Notes the traits of a code object in its copy.
    fn note_traits(&mut self, walk: Walk) {
        // Code of the interpreter, which calls `__init__` for a class, has no line.
        let line = self.first_line(walk);
        let has_line = self.b().compare(Cmp::Ne, line, 0);
        self.store(walk.copy().plus(python::TRAITS), Width::B64, has_line);
        for head in python::ASCII_HEADS {
            self.note_backward(walk, walk.copy().plus(python::COPIED_CODE + head));
            self.note_module(walk, head);
        }
        self.put(walk, Word::TableAt, 0);
        self.loop_over(walk, PATH_BYTES - 8, "python_path", Self::path_byte);
    }

    /// Notes that a function waits for the backward pass, if its name is at this place.
    fn note_backward(&mut self, walk: Walk, name: Place) {
        let other = self.b().block();
        for (part, offset) in python::BACKWARD.into_iter().zip([0, 8]) {
            let word = self.load(name.plus(offset), Width::B64, false);
            self.go_on_unless(Cmp::Ne, word, i64::from_le_bytes(*part), other);
        }
        self.change_traits(walk, Bin::Or, python::WAITS_FOR_BACKWARD);
        self.b().fall_into(other);
    }

    /// Notes that a function does the work of a module, if its characters begin here.
    fn note_module(&mut self, walk: Walk, head: u32) {
        let [found, unqualified, qualified, other] = std::array::from_fn(|_| self.b().block());
        let [end, alone] = python::FORWARD.map(|name| i64::from_le_bytes(*name));
        let name = walk.copy().plus(python::COPIED_CODE);
        let is_qualified = self.member(walk, Member::HasLocations);
        self.b().branch(Cmp::Ne, is_qualified, 0, qualified, unqualified);
        self.b().switch_to(unqualified);
        let first = self.load(name.plus(head), Width::B64, false);
        self.b().branch(Cmp::Eq, first, alone, found, other);
        self.b().switch_to(qualified);
        // Longer names are cut.
        let length = self.load(name.plus(python::LENGTH), Width::B64, false);
        self.go_on_unless(Cmp::Ugt, length, i64::from(NAME_BYTES - python::HEAD), other);
        let at = self.b().bin(Bin::Add, length, i64::from(head) - 8);
        let within = self.b().bin(Bin::And, at, i64::from(NAME_BYTES - 1));
        let name = self.pointer(name);
        let place = self.b().bin(Bin::Add, name, within);
        let last = self.b().load(place, 0, Width::B64, false);
        self.go_on_unless(Cmp::Ne, last, end, other);
        let before = self.b().load(place, -1, Width::B8, false);
        self.b().branch(Cmp::Ne, before, i64::from(python::WITHIN_FUNCTION), found, other);
        self.b().switch_to(found);
        self.change_traits(walk, Bin::Or, python::OF_MODULE);
        self.b().fall_into(other);
    }

    fn change_traits(&mut self, walk: Walk, how: Bin, bits: u64) {
        let traits = self.load(walk.copy().plus(python::TRAITS), Width::B64, false);
        let traits = self.b().bin(how, traits, bits as i64);
        self.store(walk.copy().plus(python::TRAITS), Width::B64, traits);
    }

    /// One iteration: compares the 8 bytes from this one on.
    fn path_byte(&mut self, walk: Walk, stop: BlockId, next: BlockId) {
        let found = self.b().block();
        let path = walk.copy().plus(python::COPIED_CODE + python::COPIED_PARTS[0].1);
        let at = self.get(walk, Word::TableAt);
        // Bytes behind it are of another path.
        let length = self.load(path.plus(python::LENGTH), Width::B64, false);
        let end = self.b().bin(Bin::Add, length, i64::from(python::HEAD - 8));
        self.go_on_unless(Cmp::Ugt, at, end, stop);
        let within = self.b().bin(Bin::And, at, i64::from(PATH_BYTES - 1));
        let path = self.pointer(path);
        let place = self.b().bin(Bin::Add, path, within);
        let word = self.b().load(place, 0, Width::B64, false);
        for part in python::OF_LIBRARIES {
            self.go_on_unless(Cmp::Eq, word, i64::from_le_bytes(*part), found);
        }
        let further = self.b().bin(Bin::Add, at, 1);
        self.put(walk, Word::TableAt, further);
        self.b().jump(next);
        self.b().switch_to(found);
        self.change_traits(walk, Bin::And, !python::OWN);
        self.b().jump(stop);
    }

    /// Copies a code object into the state of the walk.
    pub(super) fn copy_code(&mut self, walk: Walk, code: VReg) {
        self.copy_from(walk.copy(), i64::from(python::COPIED_CODE), code);
        let mut to = walk.copy().plus(python::COPIED_CODE);
        for (member, most) in python::COPIED_PARTS {
            self.copy_part(walk, code, member, to, most);
            to = to.plus(most);
        }
    }

    /// Copies memory of the process; zeroes if it cannot be read.
    fn copy_from(&mut self, to: Place, size: impl Into<crate::ir::Operand>, from: VReg) {
        let to = self.pointer(to);
        self.b().call_void(Helper::ProbeReadUser, &[to.into(), size.into(), from.into()]);
    }

    /// Copies a text or table of a code object, less than `most` bytes of it; the head is zero if it cannot be read.
    fn copy_part(&mut self, walk: Walk, code: VReg, member: Member, to: Place, most: u32) {
        let [fits, copy, failed, done] = std::array::from_fn(|_| self.b().block());
        let part = self.python_word(walk, code, member, failed);
        let at = self.b().bin(Bin::Add, part, i64::from(python::LENGTH));
        let length = self.peek(walk, at, failed);
        let size = self.b().copy(i64::from(most - 1));
        self.b().branch(Cmp::Ult, length, i64::from(most - python::HEAD), fits, copy);
        self.b().switch_to(fits);
        let whole = self.b().bin(Bin::Add, length, i64::from(python::HEAD));
        self.b().set(size, whole);
        self.b().fall_into(copy);
        let size = self.b().bin(Bin::And, size, i64::from(most - 1));
        self.copy_from(to, size, part);
        self.b().jump(done);
        self.b().switch_to(failed);
        self.zero(to, python::HEAD);
        self.b().fall_into(done);
    }
}
