//! `ustack` by unwind tables: the program walks the stack itself, one frame per iteration of `bpf_loop`.
//!
//! ```text
//! store the address -> find the table that covers it -> find its rule by two binary searches (directory, chunk)
//! -> the rule yields the caller's stack pointer -> load the return address and possibly the frame pointer below it
//! ```
//!
//! If no table covers the code, the next instructions may be the end of a function (trampolines of JIT runtimes); otherwise the
//! frame pointer is used. A return address that a return probe has replaced is read from the kernel's list. The addresses are
//! stored in a hash map under a hash of them, so that a stack takes 8 bytes in a key.
//!
//! The state is in scratch memory, whose values the verifier does not track, so that it verifies one iteration only. Parameters
//! of a walk are part of the state, so that all walks of a module share one callback.
//!
//! In the traced process a function of ours finds the rule, and another one reads words, since each read of memory that may not be there is a
//! system call. What it knows of the memory is on the program's stack. Return addresses that we have replaced are found on the way.
//!
//! Not here: the format of the tables (`wire::unwind`), and filling them.

use super::body::{Body, Fun};
use super::module::{
    BPF_F_NO_PREALLOC, BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE, Cx,
};
use super::operations::Operations;
use super::place::Place;
use super::prologue::Pro;
use crate::bpf::helper::Helper;
use crate::ir::build::Builder;
use crate::ir::{Bin, BlockId, Cmp, FuncKind, FuncRef, MapDef, MapRef, Operand, VReg, Width};
use crate::options::ReturnChain;
use lang::hir::{Attach, Hook};
use wire::CounterKind;
use wire::python;
use wire::types::StackMode;
use wire::unwind::{self, Base, Rule, SavedBp, Stop, kind};

/// Capacity in addresses and frames of Python, a power of two, so that indices can be masked.
const WORDS: u32 = 256;
/// Capacity in entries for the mappings of all processes; each mapping has a few entries.
const MAPPINGS: u32 = 1 << 18;
/// Capacity for processes with unknown mappings, which the runtime will read.
const UNKNOWN: u32 = 1 << 10;
/// Flag of bpf_map_update_elem: only if the key is new.
const BPF_NOEXIST: i64 = 1;
/// Number of keys that are tried for a stack.
const TRIES: u32 = 4;
/// Number of replaced return addresses that are examined per frame: tail calls replace one several times.
const REPLACED: u32 = 4;
/// Largest distance of a plausible frame pointer from the stack pointer, in bytes.
const LARGEST_FRAME: i64 = 1 << 24;
/// Odd multiplier of the hash of a stack (from the golden ratio).
const MIX: i64 = 0x9e37_79b9_7f4a_7c15_u64 as i64;
/// Bits of a saved code segment in user mode.
const USER_MODE: i64 = 3;

/// `pop %rbp; ret`
const POP_RET: i64 = 0xc35d;
/// `add $N, %rsp; ret`: `48 83 c4 N c3`.
const ADD_RET: i64 = 0xc3_00c4_8348;
const ADD_RET_MASK: i64 = 0xff_00ff_ffff;

/// Rules for code without a table.
const AT_ENTRY: Rule = Rule::Frame { base: Base::Sp, offset: 8, bp: SavedBp::Kept };
const AT_POP: Rule = Rule::Frame { base: Base::Sp, offset: 16, bp: SavedBp::Below(2) };
const BY_FRAME_POINTER: Rule = Rule::Frame { base: Base::Bp, offset: 16, bp: SavedBp::Below(2) };

/// Offsets in the kernel's signal frame, from the stack pointer at its return: `struct ucontext`.
const SIGNAL_BP: i64 = 120;
const SIGNAL_SP: i64 = 160;
const SIGNAL_IP: i64 = 168;

/// `struct pt_regs`
const REGS_BP: i16 = 32;
const REGS_IP: i16 = 128;
const REGS_CS: i16 = 136;
const REGS_SP: i16 = 152;

/// Words of the state.
#[derive(Copy, Clone)]
pub(super) enum Word {
    Ip,
    Sp,
    Bp,
    /// 1: `Ip` is a return address, so the call is before it. 0: `Ip` is the current instruction.
    Back,
    Count,
    /// Kernel address of the next replaced return address; 0: no more.
    Chain,
    ChainStack,
    ChainOriginal,
    /// The word that was read last.
    Read,
    /// 1: the mapping of this frame's code is unknown.
    Unknown,
    /// Zero, as a value that the verifier does not know.
    Zero,
    Key,
    /// Process and address: the key of a lookup in the mappings.
    Mapping,
    MappingAddress,
    Process,
    /// Largest number of frames.
    Limit,
    /// 1: the walk begins at the entry of a function.
    AtEntry,
    /// Address of the next frame of Python.
    Python,
    /// [`python::INNERMOST`], if the next frame of Python is the innermost of a call of the interpreter; otherwise 0.
    Innermost,
    /// Largest number of words after the frames of Python.
    PythonEnd,
    /// A trait; 0: none. The walk ends at the first frame of Python that has it, whose word is then in [`Word::Found`].
    Wanted,
    Found,
    /// 1: the last word of the native part says why the walk ended.
    Cut,
    /// Process and address: the key of a lookup in the code objects.
    CodeProcess,
    Code,
    /// While the line of an instruction is looked for: the place in the table, instructions that are left, those of the current entry, the line,
    /// and the number that is being read, with its bits so far.
    TableAt,
    Left,
    EntryUnits,
    Line,
    Number,
    NumberBits,
    /// The word of a frame with its line.
    WithLine,
    /// Start of the part that is kept as the stack.
    Hash,
    Addresses,
}

/// Location of the state of a walk.
#[derive(Copy, Clone)]
pub(super) struct Walk {
    pub(super) at: Place,
    /// Address of what is known of the memory that is read, in the traced process.
    memory: Option<VReg>,
}

impl Walk {
    const MEMBERS: u32 = 8 * (Word::Addresses as u32 + WORDS);
    const COPY: u32 = Walk::MEMBERS + 8 * python::Member::COUNT as u32;
    /// Memory behind it is read beyond the end of a table of lines that is damaged.
    const BYTES: u32 = Walk::COPY + python::COPY_BYTES + python::HEAD;

    pub(super) fn word(self, word: Word) -> Place {
        self.at.plus(8 * word as u32)
    }

    /// The members of the interpreter's layout.
    pub(super) fn members(self) -> Place {
        self.at.plus(Walk::MEMBERS)
    }

    /// Where a code object of Python is copied to.
    pub(super) fn copy(self) -> Place {
        self.at.plus(Walk::COPY)
    }

    /// Where parts of the stack are kept, in the traced process.
    fn buffer(self) -> Place {
        self.at.plus(Walk::BYTES)
    }
}

impl Cx<'_> {
    /// Declares the maps that the runtime fills, also for a module without stack walks.
    pub(super) fn unwind_maps(&mut self) {
        if self.runs_in_process() {
            // The tables are no map, but the runtime looks for the name.
            if !self.manifest.internal_maps.iter().any(|known| known == unwind::TABLES_MAP) {
                self.manifest.internal_maps.push(unwind::TABLES_MAP.into());
            }
            return;
        }
        self.tables_map();
        self.mappings_map();
        self.unknown_map();
    }

    fn tables_map(&mut self) -> MapRef {
        self.internal_map(MapDef {
            name: unwind::TABLES_MAP.into(),
            kind: BPF_MAP_TYPE_ARRAY_OF_MAPS,
            key_size: 4,
            value_size: 4,
            max_entries: unwind::MAX_TABLES,
            flags: 0,
            direct: false,
        })
    }

    fn mappings_map(&mut self) -> MapRef {
        self.internal_map(MapDef {
            name: unwind::MAPPINGS_MAP.into(),
            kind: BPF_MAP_TYPE_LPM_TRIE,
            key_size: unwind::MAPPING_KEY,
            value_size: unwind::MAPPING_VALUE,
            max_entries: MAPPINGS,
            flags: BPF_F_NO_PREALLOC,
            direct: false,
        })
    }

    fn unknown_map(&mut self) -> MapRef {
        self.internal_map(MapDef {
            name: unwind::UNKNOWN_MAP.into(),
            kind: BPF_MAP_TYPE_HASH,
            key_size: 4,
            value_size: 4,
            max_entries: UNKNOWN,
            flags: 0,
            direct: false,
        })
    }
}

impl Body<'_, '_> {
    /// The id of the user stack, or all ones.
    pub(super) fn walked_stack(&mut self, limit: u32, mode: StackMode) -> VReg {
        let mark = self.mark();
        let walk = self.begin_walk(limit);
        if !mode.is_python() {
            self.native_frames(walk, limit);
        }
        if mode.has_python() {
            self.python_frames(walk, limit, mode);
        }
        let id = self.keep_stack(walk, limit, mode);
        self.release(mark);
        id
    }

    /// Number of frames of the user stack: of Python alone, or of native code.
    pub(super) fn walked_length(&mut self, limit: u32, mode: StackMode) -> VReg {
        let mark = self.mark();
        let walk = self.begin_walk(limit);
        match mode.is_python() {
            true => self.python_frames(walk, limit, mode),
            false => self.native_frames(walk, limit),
        }
        let count = self.get(walk, Word::Count);
        self.release(mark);
        count
    }

    fn begin_walk(&mut self, limit: u32) -> Walk {
        let (buffer, head) = match self.cx.runs_in_process() {
            true => (unwind::READ_BUFFER, unwind::READ_BUFFER_HEAD),
            false => (0, 0),
        };
        let walk = Walk { at: self.scratch_temp(Walk::BYTES + buffer), memory: self.walk_memory() };
        self.zero(walk.at, 8 * (Word::Addresses as u32 + unwind::stack_words(limit)));
        self.zero(walk.buffer(), head);
        self.put(walk, Word::Limit, i64::from(limit));
        let thread = self.pro(Pro::Thread);
        let process = self.b().bin(Bin::Shr, thread, 32);
        self.put(walk, Word::Process, process);
        walk
    }

    /// Reserves what is known of the memory that a walk reads.
    fn walk_memory(&mut self) -> Option<VReg> {
        self.cx.runs_in_process().then(|| {
            let slot = self.walk_memory_slot(unwind::WALK_MEMORY);
            let memory = self.b().slot_addr(slot);
            self.zero(Place::behind(memory), unwind::WALK_MEMORY);
            memory
        })
    }

    /// Says whether the memory that is read next may vanish at any time.
    pub(super) fn set_may_vanish(&mut self, walk: Walk, may_vanish: bool) {
        if let Some(memory) = walk.memory {
            self.b().store(memory, unwind::MAY_VANISH as i16, Width::B64, i64::from(may_vanish));
        }
    }

    fn native_frames(&mut self, walk: Walk, limit: u32) {
        self.first_frame(walk);
        self.find_chain(walk);
        self.loop_over(walk, limit, "stack_frame", Self::frame_of);
    }

    /// Calls a function with the walk, `most` times at most. All bodies of a module share the function of this name, whose argument points to the
    /// address of the state.
    pub(super) fn loop_over(
        &mut self,
        walk: Walk,
        most: u32,
        name: &'static str,
        write: impl FnOnce(&mut Self, Walk, BlockId, BlockId),
    ) {
        let callback = match self.cx.walk_callbacks.get(name) {
            Some(written) => *written,
            None => self.walk_callback(name, write),
        };
        let (callback, state) = (self.b().func_addr(callback), self.pointer(walk.at));
        // The argument of a callback must be an address on the stack.
        let slot = self.walk_argument_slot(1 + u32::from(walk.memory.is_some()));
        let given = self.b().slot_addr(slot);
        self.b().store(given, 0, Width::B64, state);
        if let Some(memory) = walk.memory {
            self.b().store(given, 8, Width::B64, memory);
        }
        self.b().call_void(Helper::Loop, &[i64::from(most).into(), callback.into(), given.into(), 0.into()]);
    }

    fn walk_callback(
        &mut self,
        name: &'static str,
        write: impl FnOnce(&mut Self, Walk, BlockId, BlockId),
    ) -> FuncRef {
        let mut b = Builder::new(name.into(), FuncKind::Callback { args: 2 }, self.span);
        let given = b.param(1);
        let state = b.load(given, 0, Width::B64, false);
        let memory = self.cx.runs_in_process().then(|| b.load(given, 8, Width::B64, false));
        self.fns.push(Fun::new(b, self.cx.share.callback));
        let walk = Walk { at: Place::behind(state), memory };
        let func = self.finish_callback(|body, stop, next| write(body, walk, stop, next));
        self.cx.walk_callbacks.insert(name, func);
        func
    }

    pub(super) fn get(&mut self, walk: Walk, word: Word) -> VReg {
        self.load(walk.word(word), Width::B64, false)
    }

    pub(super) fn put(&mut self, walk: Walk, word: Word, value: impl Into<Operand>) {
        self.store(walk.word(word), Width::B64, value);
    }

    /// Loads a word of the stack or of the interpreter; jumps to `failed` if it cannot be read.
    pub(super) fn peek(&mut self, walk: Walk, address: impl Into<Operand>, failed: BlockId) -> VReg {
        let Some(memory) = walk.memory else {
            return self.peek_by(Helper::ProbeReadUser, walk, address, failed);
        };
        let (buffer, to) = (self.pointer(walk.buffer()), self.pointer(walk.word(Word::Read)));
        let error =
            self.b().kfunc(unwind::READ_WORD, &[buffer.into(), address.into(), to.into(), memory.into()]);
        self.go_on_unless(Cmp::Ne, error, 0, failed);
        self.get(walk, Word::Read)
    }

    fn peek_by(&mut self, read: Helper, walk: Walk, address: impl Into<Operand>, failed: BlockId) -> VReg {
        let to = self.pointer(walk.word(Word::Read));
        let error = self.b().call(read, &[to.into(), 8.into(), address.into()]);
        self.go_on_unless(Cmp::Ne, error, 0, failed);
        self.get(walk, Word::Read)
    }

    /// Sets the registers at the probe. In a return probe `Ip` is a return address.
    fn first_frame(&mut self, walk: Walk) {
        let ctx = self.pro(Pro::Ctx);
        match &self.probe.attach {
            Attach::Entry(Hook::Uprobe, _) => {
                self.take_registers(walk, ctx);
                self.put(walk, Word::AtEntry, 1);
            }
            Attach::Return(Hook::Uprobe, _) => {
                self.take_registers(walk, ctx);
                self.put(walk, Word::Back, 1);
            }
            Attach::Event(trigger) if trigger.environment().has_registers() => {
                self.interrupted_registers(walk, ctx)
            }
            Attach::Event(_) | Attach::Entry(..) | Attach::Return(..) => self.kernel_entry_registers(walk),
        }
    }

    fn take_registers(&mut self, walk: Walk, regs: VReg) {
        for (word, offset) in [(Word::Ip, REGS_IP), (Word::Sp, REGS_SP), (Word::Bp, REGS_BP)] {
            let value = self.b().load(regs, offset, Width::B64, false);
            self.put(walk, word, value);
        }
    }

    /// Sets the registers of the context, if the interrupt came from user mode; otherwise those at kernel entry.
    fn interrupted_registers(&mut self, walk: Walk, ctx: VReg) {
        let [user, kernel, after] = std::array::from_fn(|_| self.b().block());
        let segment = self.b().load(ctx, REGS_CS, Width::B64, false);
        self.b().branch(Cmp::Test, segment, USER_MODE, user, kernel);
        self.b().switch_to(user);
        self.take_registers(walk, ctx);
        self.b().jump(after);
        self.b().switch_to(kernel);
        self.kernel_entry_registers(walk);
        self.b().fall_into(after);
    }

    /// Sets the registers that the process had when it entered the kernel.
    fn kernel_entry_registers(&mut self, walk: Walk) {
        let regs = self.kernel_entry_regs();
        self.take_registers(walk, regs);
    }

    /// Address of the registers that the process had when it entered the kernel.
    pub(super) fn kernel_entry_regs(&mut self) -> VReg {
        let task = self.b().call(Helper::GetCurrentTaskBtf, &[]);
        self.b().call(Helper::TaskPtRegs, &[task.into()])
    }

    /// Starts the kernel's list of replaced return addresses, innermost first.
    fn find_chain(&mut self, walk: Walk) {
        let Some(chain) = self.returns() else { return };
        let none = self.b().block();
        let task = self.b().call(Helper::GetCurrentTask, &[]);
        let utask = self.kernel_word(walk, task, chain.utask, none);
        self.go_on_unless(Cmp::Eq, utask, 0, none);
        let first = self.kernel_word(walk, utask, chain.instances, none);
        self.follow_chain(walk, chain, first, none);
        self.b().fall_into(none);
    }

    fn returns(&self) -> Option<ReturnChain> {
        self.cx.options.unwind.and_then(|unwind| unwind.returns)
    }

    pub(super) fn kernel_word(&mut self, walk: Walk, base: VReg, offset: u32, failed: BlockId) -> VReg {
        let address = self.b().bin(Bin::Add, base, i64::from(offset));
        self.peek_by(Helper::ProbeReadKernel, walk, address, failed)
    }

    /// Makes `instance` the next replaced address; 0 ends the list.
    fn follow_chain(&mut self, walk: Walk, chain: ReturnChain, instance: VReg, failed: BlockId) {
        self.put(walk, Word::Chain, 0);
        self.go_on_unless(Cmp::Eq, instance, 0, failed);
        let stack = self.kernel_word(walk, instance, chain.stack, failed);
        self.put(walk, Word::ChainStack, stack);
        let original = self.kernel_word(walk, instance, chain.original, failed);
        self.put(walk, Word::ChainOriginal, original);
        self.put(walk, Word::Chain, instance);
    }

    /// One iteration: records the address, finds its rule, and steps to the caller.
    fn frame_of(&mut self, walk: Walk, stop: BlockId, next: BlockId) {
        let given = self.get(walk, Word::Ip);
        // An address with this bit would be a frame of Python. It is none of a program: the walk has read something else.
        self.go_on_unless(Cmp::Sle, given, 0, stop);
        let rule = self.b().copy(0);
        let [apply, unknown] = std::array::from_fn(|_| self.b().block());
        let ip = match self.cx.runs_in_process() {
            true => self.find_rule_in_process(walk, rule),
            false => given,
        };
        self.note_address(walk, ip);
        if !self.cx.runs_in_process() {
            let back = self.get(walk, Word::Back);
            let pc = self.b().bin(Bin::Sub, ip, back);
            self.find_rule(walk, pc, rule, unknown);
        }
        self.go_on_unless(Cmp::Ne, rule, i64::from(kind::UNKNOWN), apply);
        self.b().fall_into(unknown);
        self.guess_rule(walk, ip, rule, apply, stop);
        self.b().switch_to(apply);
        self.apply_rule(walk, rule, stop);
        self.restore_replaced(walk);
        self.b().jump(next);
    }

    /// Sets `rule`, and returns the address of the program: that on the stack may have been replaced.
    fn find_rule_in_process(&mut self, walk: Walk, rule: VReg) -> VReg {
        let [unmapped, known] = std::array::from_fn(|_| self.b().block());
        let at = self.pointer(walk.word(Word::Ip));
        let (back, process) = (self.get(walk, Word::Back), self.get(walk, Word::Process));
        let found = self.b().kfunc(unwind::FIND_RULE, &[at.into(), back.into(), process.into()]);
        self.b().branch(Cmp::Test, found, unwind::UNMAPPED as i64, unmapped, known);
        self.b().switch_to(unmapped);
        self.put(walk, Word::Unknown, 1);
        self.b().fall_into(known);
        let low = self.b().bin(Bin::And, found, i64::from(u32::MAX));
        self.b().set(rule, low);
        self.get(walk, Word::Ip)
    }

    fn note_address(&mut self, walk: Walk, ip: VReg) {
        let count = self.get(walk, Word::Count);
        self.append(walk, count, ip);
        let more = self.b().bin(Bin::Add, count, 1);
        self.put(walk, Word::Count, more);
    }

    /// Stores a word after the addresses, and mixes it into the hash.
    pub(super) fn append(&mut self, walk: Walk, count: VReg, value: VReg) {
        let start = self.pointer(walk.word(Word::Addresses));
        let index = self.b().bin(Bin::And, count, i64::from(WORDS - 1));
        let offset = self.b().bin(Bin::Shl, index, 3);
        let cell = self.b().bin(Bin::Add, start, offset);
        self.b().store(cell, 0, Width::B64, value);
        let hash = self.get(walk, Word::Hash);
        let b = self.b();
        let hash = b.bin(Bin::Xor, hash, value);
        let hash = b.bin(Bin::Mul, hash, MIX);
        let high = b.bin(Bin::Shr, hash, 29);
        let hash = b.bin(Bin::Xor, hash, high);
        self.put(walk, Word::Hash, hash);
    }

    /// Records in the stack the reason why it ends, if there is room.
    fn stop_with(&mut self, walk: Walk, why: Stop, stop: BlockId) {
        let count = self.get(walk, Word::Count);
        let limit = self.get(walk, Word::Limit);
        self.go_on_unless(Cmp::Uge, count, limit, stop);
        let mark = self.b().copy(why.mark() as i64);
        self.append(walk, count, mark);
        self.put(walk, Word::Cut, 1);
        self.b().jump(stop);
    }

    /// Sets `rule` to the table's rule for `pc`; jumps to `unknown` if no table covers it.
    fn find_rule(&mut self, walk: Walk, pc: VReg, rule: VReg, unknown: BlockId) {
        let (table, address) = self.find_table(walk, pc, unknown);
        self.go_on_unless(Cmp::Ugt, address, i64::from(u32::MAX - 1), unknown);
        self.store(walk.word(Word::Key), Width::B32, table);
        let tables = self.cx.tables_map();
        let table = self.lookup_raw(tables, walk.word(Word::Key));
        self.go_on_unless(Cmp::Eq, table, 0, unknown);
        let first = self.b().copy(0);
        let directory = self.chunk(walk, table, first, unknown);
        let at = self.search_chunk(walk, directory, address);
        let further = self.b().bin(Bin::Add, at, 1);
        let chunk = self.chunk(walk, table, further, unknown);
        let at = self.search_chunk(walk, chunk, address);
        let row = self.row(chunk, at);
        let found = self.b().load(row, 0, Width::B32, false);
        self.b().set(rule, found);
    }

    /// The table that covers an address, and the address in its file. A process without known mappings is reported
    /// to the runtime.
    fn find_table(&mut self, walk: Walk, pc: VReg, unknown: BlockId) -> (VReg, VReg) {
        let key = walk.word(Word::Mapping);
        let process = self.get(walk, Word::Process);
        self.store(key, Width::B32, i64::from(unwind::KEY_HEAD_BITS + 64));
        self.store(key.plus(4), Width::B32, process);
        for byte in 0..8 {
            let part = self.b().bin(Bin::Shr, pc, i64::from(56 - 8 * byte));
            self.store(walk.word(Word::MappingAddress).plus(byte), Width::B8, part);
        }
        let mappings = self.cx.mappings_map();
        let cell = self.lookup_raw(mappings, key);
        let (missing, found) = (self.b().cold_block(), self.b().block());
        self.b().branch(Cmp::Eq, cell, 0, missing, found);
        self.b().switch_to(missing);
        self.tell_unknown(walk, key.plus(4));
        self.b().jump(unknown);
        self.b().switch_to(found);
        let table = self.b().load(cell, 0, Width::B32, false);
        let bias = self.b().load(cell, 8, Width::B64, false);
        (table, self.b().bin(Bin::Sub, pc, bias))
    }

    pub(super) fn tell_unknown(&mut self, walk: Walk, tgid: Place) {
        self.put(walk, Word::Unknown, 1);
        let map = self.cx.unknown_map();
        let (key, value) = (self.pointer(tgid), self.pointer(walk.word(Word::Zero)));
        let map = self.b().map_addr(map);
        self.b().call_void(Helper::MapUpdateElem, &[map.into(), key.into(), value.into(), 0.into()]);
    }

    fn chunk(&mut self, walk: Walk, table: VReg, index: VReg, unknown: BlockId) -> VReg {
        self.store(walk.word(Word::Key), Width::B32, index);
        let key = self.pointer(walk.word(Word::Key));
        let chunk = self.b().call(Helper::MapLookupElem, &[table.into(), key.into()]);
        self.go_on_unless(Cmp::Eq, chunk, 0, unknown);
        chunk
    }

    /// Index of the last row of a chunk whose address is at most `address`.
    fn search_chunk(&mut self, walk: Walk, chunk: VReg, address: VReg) -> VReg {
        let last = unwind::CHUNK_ROWS as i64 - 1;
        // A start value that the verifier does not know: it would follow each path of the search separately.
        let start = self.get(walk, Word::Zero);
        let at = self.b().bin(Bin::And, start, last);
        let mut step = unwind::CHUNK_ROWS as i64 / 2;
        while step > 0 {
            let further = self.b().bin(Bin::Add, at, step);
            let further = self.b().bin(Bin::And, further, last);
            let row = self.row(chunk, further);
            let first = self.b().load(row, 4, Width::B32, false);
            let [take, leave] = std::array::from_fn(|_| self.b().block());
            self.b().branch(Cmp::Ule, first, address, take, leave);
            self.b().switch_to(take);
            self.b().set(at, further);
            self.b().fall_into(leave);
            step /= 2;
        }
        at
    }

    fn row(&mut self, chunk: VReg, index: VReg) -> VReg {
        let offset = self.b().bin(Bin::Shl, index, i64::from(unwind::ROW_BYTES.trailing_zeros()));
        self.b().bin(Bin::Add, chunk, offset)
    }

    /// Guesses the rule of code without a table: at the entry of a function, from the next instructions, or from
    /// the frame pointer.
    fn guess_rule(&mut self, walk: Walk, ip: VReg, rule: VReg, apply: BlockId, stop: BlockId) {
        let [first, later] = std::array::from_fn(|_| self.b().block());
        let at_entry = self.get(walk, Word::AtEntry);
        self.go_on_unless(Cmp::Eq, at_entry, 0, later);
        let count = self.get(walk, Word::Count);
        self.b().branch(Cmp::Eq, count, 1, first, later);
        self.b().switch_to(first);
        self.b().set(rule, i64::from(AT_ENTRY.encode()));
        self.b().jump(apply);
        self.b().switch_to(later);
        self.set_may_vanish(walk, true);
        let other = self.b().block();
        self.ends_soon(walk, ip, rule, apply, other);
        self.b().switch_to(other);
        self.by_frame_pointer(walk, rule, stop);
        self.b().jump(apply);
    }

    /// Sets the rule if the next instructions are the end of a function.
    fn ends_soon(&mut self, walk: Walk, ip: VReg, rule: VReg, apply: BlockId, other: BlockId) {
        let [pops, not_pops, adds] = std::array::from_fn(|_| self.b().block());
        let code = self.peek_by(Helper::ProbeReadUser, walk, ip, other);
        let low = self.b().bin(Bin::And, code, 0xffff);
        self.b().branch(Cmp::Eq, low, POP_RET, pops, not_pops);
        self.b().switch_to(pops);
        self.b().set(rule, i64::from(AT_POP.encode()));
        self.b().jump(apply);
        self.b().switch_to(not_pops);
        let shape = self.b().bin(Bin::And, code, ADD_RET_MASK);
        self.b().branch(Cmp::Eq, shape, ADD_RET, adds, other);
        self.b().switch_to(adds);
        let b = self.b();
        let bytes = b.bin(Bin::Shr, code, 24);
        let bytes = b.bin(Bin::And, bytes, 0x7f);
        let offset = b.bin(Bin::Shl, bytes, i64::from(unwind::OFFSET_AT));
        let sum = b.bin(Bin::Add, offset, i64::from(AT_ENTRY.encode()));
        b.set(rule, sum);
        b.jump(apply);
    }

    /// Uses the frame pointer. 0 marks the start of a thread; an implausible value is not a frame pointer.
    fn by_frame_pointer(&mut self, walk: Walk, rule: VReg, stop: BlockId) {
        let [none, fine] = std::array::from_fn(|_| self.b().block());
        let bp = self.get(walk, Word::Bp);
        let sp = self.get(walk, Word::Sp);
        self.go_on_unless(Cmp::Eq, bp, 0, stop);
        self.go_on_unless(Cmp::Ult, bp, sp, none);
        let distance = self.b().bin(Bin::Sub, bp, sp);
        self.b().branch(Cmp::Ugt, distance, LARGEST_FRAME, none, fine);
        self.b().switch_to(none);
        self.stop_with(walk, Stop::NoTable, stop);
        self.b().switch_to(fine);
        let unknown = self.get(walk, Word::Unknown);
        self.count_if(Cmp::Ne, unknown, 0, CounterKind::NoUnwindTable);
        self.put(walk, Word::Unknown, 0);
        self.b().set(rule, i64::from(BY_FRAME_POINTER.encode()));
    }

    /// Steps to the caller.
    fn apply_rule(&mut self, walk: Walk, rule: VReg, stop: BlockId) {
        let [below, kinds, unreadable, done] = std::array::from_fn(|_| self.b().block());
        let unsupported = self.b().block();
        let cfa = self.b().copy(0);
        let which = self.b().bin(Bin::And, rule, (1 << unwind::KIND_BITS) - 1);
        self.go_on_unless(Cmp::Eq, which, i64::from(kind::OUTERMOST), stop);
        self.b().jump(kinds);
        self.b().switch_to(kinds);
        self.base_of(walk, which, rule, cfa, [below, unsupported, unreadable, done]);
        self.b().switch_to(below);
        self.go_to_caller(walk, rule, cfa, unreadable, stop);
        self.b().jump(done);
        self.b().switch_to(unsupported);
        self.stop_with(walk, Stop::Unsupported, stop);
        self.b().switch_to(unreadable);
        self.stop_with(walk, Stop::Unreadable, stop);
        self.b().switch_to(done);
    }

    /// Sets `cfa` to the caller's stack pointer and jumps to `below`. A signal frame restores all registers and
    /// jumps to `done`.
    fn base_of(
        &mut self,
        walk: Walk,
        which: VReg,
        rule: VReg,
        cfa: VReg,
        [below, unsupported, unreadable, done]: [BlockId; 4],
    ) {
        let high = self.b().bin(Bin::Shl, rule, 32);
        let offset = self.b().bin(Bin::Sar, high, i64::from(32 + unwind::OFFSET_AT));
        for (kind, register) in [(kind::SP, Word::Sp), (kind::BP, Word::Bp), (kind::AT_BP, Word::Bp)] {
            let [yes, no] = std::array::from_fn(|_| self.b().block());
            self.b().branch(Cmp::Eq, which, i64::from(kind), yes, no);
            self.b().switch_to(yes);
            let register = self.get(walk, register);
            let mut sum = self.b().bin(Bin::Add, register, offset);
            if kind == kind::AT_BP {
                sum = self.peek(walk, sum, unreadable);
            }
            self.b().set(cfa, sum);
            self.b().jump(below);
            self.b().switch_to(no);
        }
        let [plt, signal, other] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Eq, which, i64::from(kind::PLT), plt, other);
        self.b().switch_to(plt);
        self.plt_base(walk, offset, cfa);
        self.b().jump(below);
        self.b().switch_to(other);
        self.b().branch(Cmp::Eq, which, i64::from(kind::SIGNAL), signal, unsupported);
        self.b().switch_to(signal);
        self.leave_signal(walk, unreadable);
        self.b().jump(done);
    }

    /// In a PLT entry a word is pushed at `offset`.
    fn plt_base(&mut self, walk: Walk, offset: VReg, cfa: VReg) {
        let ip = self.get(walk, Word::Ip);
        let sp = self.get(walk, Word::Sp);
        let b = self.b();
        let within = b.bin(Bin::And, ip, 15);
        let pushed = b.compare(Cmp::Uge, within, offset);
        let words = b.bin(Bin::Shl, pushed, 3);
        let base = b.bin(Bin::Add, sp, 8);
        let sum = b.bin(Bin::Add, base, words);
        b.set(cfa, sum);
    }

    /// Restores the interrupted registers from the kernel's signal frame.
    fn leave_signal(&mut self, walk: Walk, unreadable: BlockId) {
        let sp = self.get(walk, Word::Sp);
        for (word, offset) in [(Word::Bp, SIGNAL_BP), (Word::Ip, SIGNAL_IP), (Word::Sp, SIGNAL_SP)] {
            let at = self.b().bin(Bin::Add, sp, offset);
            let value = self.peek(walk, at, unreadable);
            self.put(walk, word, value);
        }
        self.put(walk, Word::Back, 0);
    }

    /// Reads the words below the caller's stack pointer.
    fn go_to_caller(&mut self, walk: Walk, rule: VReg, cfa: VReg, unreadable: BlockId, stop: BlockId) {
        let [backwards, upwards] = std::array::from_fn(|_| self.b().block());
        let sp = self.get(walk, Word::Sp);
        self.b().branch(Cmp::Ule, cfa, sp, backwards, upwards);
        self.b().switch_to(backwards);
        self.stop_with(walk, Stop::Backwards, stop);
        self.b().switch_to(upwards);
        let at = self.b().bin(Bin::Sub, cfa, 8);
        let ip = self.peek(walk, at, unreadable);
        self.put(walk, Word::Ip, ip);
        self.put(walk, Word::Back, 1);
        self.restore_bp(walk, rule, cfa, unreadable);
        self.put(walk, Word::Sp, cfa);
    }

    fn restore_bp(&mut self, walk: Walk, rule: VReg, cfa: VReg, unreadable: BlockId) {
        let [kept, saved, at_bp, read] = std::array::from_fn(|_| self.b().block());
        let shifted = self.b().bin(Bin::Shr, rule, i64::from(unwind::KIND_BITS));
        let words = self.b().bin(Bin::And, shifted, 0xff);
        self.b().branch(Cmp::Eq, words, 0, kept, saved);
        self.b().switch_to(saved);
        let bytes = self.b().bin(Bin::Shl, words, 3);
        let at = self.b().bin(Bin::Sub, cfa, bytes);
        self.b().branch(Cmp::Eq, words, i64::from(unwind::BP_AT_BP), at_bp, read);
        self.b().switch_to(at_bp);
        let bp = self.get(walk, Word::Bp);
        self.b().set(at, bp);
        self.b().fall_into(read);
        let bp = self.peek(walk, at, unreadable);
        self.put(walk, Word::Bp, bp);
        self.b().fall_into(kept);
    }

    /// If a return probe has replaced the address just read, takes the original one from the kernel's list.
    /// Entries at lower addresses belong to calls that have returned.
    fn restore_replaced(&mut self, walk: Walk) {
        let Some(chain) = self.returns() else { return };
        let done = self.b().block();
        for _ in 0..REPLACED {
            let instance = self.get(walk, Word::Chain);
            self.go_on_unless(Cmp::Eq, instance, 0, done);
            let stack = self.get(walk, Word::ChainStack);
            let sp = self.get(walk, Word::Sp);
            let at = self.b().bin(Bin::Sub, sp, 8);
            self.go_on_unless(Cmp::Ugt, stack, at, done);
            let [same, next] = std::array::from_fn(|_| self.b().block());
            self.b().branch(Cmp::Eq, stack, at, same, next);
            self.b().switch_to(same);
            let original = self.get(walk, Word::ChainOriginal);
            self.put(walk, Word::Ip, original);
            self.b().fall_into(next);
            let following = self.kernel_word(walk, instance, chain.next, done);
            self.follow_chain(walk, chain, following, done);
        }
        self.b().fall_into(done);
    }

    /// Stores the walked stack under a unique id.
    fn keep_stack(&mut self, walk: Walk, limit: u32, mode: StackMode) -> VReg {
        let map = self.cx.stack_map_ref(true, limit);
        let (none, done) = (self.b().cold_block(), self.b().block());
        let id = self.b().copy(i64::from(u32::MAX));
        let count = self.get(walk, Word::Count);
        // A thread that runs no Python has none of its frames.
        self.go_on_unless(Cmp::Eq, count, 0, if mode.is_python() { done } else { none });
        let hash = self.get(walk, Word::Hash);
        let number = self.b().bin(Bin::Shr, hash, 33);
        for attempt in 0..TRIES {
            let key = self.b().bin(Bin::Add, number, i64::from(attempt));
            self.store(walk.word(Word::Key), Width::B32, key);
            let missing = self.b().block();
            let other = self.b().block();
            self.is_kept(walk, map, hash, [missing, other], key, id, done);
            self.b().switch_to(missing);
            self.enter(map, walk.word(Word::Key), walk.word(Word::Hash));
            self.is_kept(walk, map, hash, [other, other], key, id, done);
            self.b().switch_to(other);
        }
        self.b().fall_into(none);
        self.count(CounterKind::LostStack);
        self.b().fall_into(done);
        id
    }

    /// Sets `id` and jumps to `done` if the key belongs to the same stack. Otherwise jumps to `missing` or
    /// `other`.
    #[allow(clippy::too_many_arguments, reason = "one test with three ways out")]
    fn is_kept(
        &mut self,
        walk: Walk,
        map: MapRef,
        hash: VReg,
        [missing, other]: [BlockId; 2],
        key: VReg,
        id: VReg,
        done: BlockId,
    ) {
        let cell = self.lookup_raw(map, walk.word(Word::Key));
        self.go_on_unless(Cmp::Eq, cell, 0, missing);
        let known = self.b().load(cell, 0, Width::B64, false);
        self.go_on_unless(Cmp::Ne, known, hash, other);
        self.b().set(id, key);
        self.b().jump(done);
    }

    /// Adds a key to a map, unless it is there.
    pub(super) fn enter(&mut self, map: MapRef, key: Place, value: Place) {
        let (key, value) = (self.pointer(key), self.pointer(value));
        let map = self.b().map_addr(map);
        let args = [map.into(), key.into(), value.into(), BPF_NOEXIST.into()];
        self.b().call_void(Helper::MapUpdateElem, &args);
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi;
    use super::*;

    #[test]
    fn registers_lie_where_the_machine_says() {
        let machine = abi::machine(crate::options::Arch::X86_64);
        assert_eq!(machine.sp, REGS_SP);
        assert_eq!(machine.register("ip"), Some(REGS_IP));
        assert_eq!(machine.register("bp"), Some(REGS_BP));
    }
}
