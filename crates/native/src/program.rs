//! How the code of a traced function reaches the programs of a script.
//!
//! ```text
//! function: push %rbx; jmp detour          detour: undo the push; call enter; copy stack arguments; call moved; call leave; ret
//!                                          moved:  push %rbx; instructions that gave way to the jump; jmp back
//! ```
//!
//! A [`Dispatch`] is the code that a set of programs shares: `enter` and `leave` store the registers as the context of the programs and
//! call these one after the other. A detour is the code of one function. In front of it lies its record: the function's address, and
//! the cookies of the programs.
//!
//! All general registers are kept, also those that a C function may overwrite: callers within a library rely on what they know about
//! a function (`-fipa-ra` of GCC). Vector registers are never used.

use crate::layout;
use crate::translate::AUX;
use crate::x86::{Assembler, Cond, Label, Mem, Op, Reg, Width};

/// Size of `struct pt_regs` in bytes.
pub const REGISTERS: i32 = 168;
/// u64 in the context: attach cookie.
pub const COOKIE: i32 = REGISTERS;
/// u32 in the context: 1 on the return side of a session, 0 at its entry.
pub const IS_RETURN: i32 = REGISTERS + 8;
/// u64 in the context: address of the 8 bytes that a session keeps from entry to return.
pub const SESSION: i32 = REGISTERS + 16;
/// Size of the context in bytes.
pub const SIZE: i32 = REGISTERS + 24;

/// Registers that the code of programs may overwrite, with their offsets in `struct pt_regs`.
const VOLATILE: [(i32, Reg); 9] = [
    (48, Reg::R11),
    (56, Reg::R10),
    (64, Reg::R9),
    (72, Reg::R8),
    (80, Reg::RAX),
    (88, Reg::RCX),
    (96, Reg::RDX),
    (104, Reg::RSI),
    (112, Reg::RDI),
];
/// The other registers.
const KEPT: [(i32, Reg); 6] =
    [(0, Reg::R15), (8, Reg::R14), (16, Reg::R13), (24, Reg::R12), (32, Reg::RBP), (40, Reg::RBX)];
const RIP: i32 = 128;
const CS: i32 = 136;
const FLAGS: i32 = 144;
const RSP: i32 = 152;
const SS: i32 = 160;
/// Selectors of user code and data in 64-bit mode, and flags with interrupts enabled.
const CONSTANTS: [(i32, i32); 3] = [(CS, 0x33), (FLAGS, 0x202), (SS, 0x2b)];

/// When a program of a dispatch runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// At the entry.
    Entry,
    /// At the return.
    Return,
    /// At both, with 8 bytes for each call; the entry decides whether there is a return.
    Session,
}

/// Code that calls a set of programs; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Offset in the region of the entry's code.
    enter: u64,
    /// Offset in the region of the return's code, if a program runs there.
    leave: Option<u64>,
    /// Number of words on the stack meanwhile, always odd, see [`side`].
    words: i32,
    programs: usize,
}

/// A function as its detour must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Address of its first instruction.
    pub address: u64,
    /// Bytes by which its first instruction, which precedes the jump, has lowered the stack pointer. The detour undoes that; the moved
    /// instructions begin with the first one.
    pub undo: u32,
    /// Words of arguments on the stack.
    pub stack_words: u32,
    /// Cookies of the programs, in the order of the dispatch.
    pub cookies: Vec<u64>,
}

/// The code of one function. The moved instructions follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Record and code.
    pub bytes: Vec<u8>,
    /// Offset in `bytes` to which the function jumps.
    pub entry: u64,
    /// Offset in `bytes` from which on the code uses no data of the region, except by [`Dispatch::leave`].
    pub entered: u64,
    /// Offset in `bytes` to which the wrapped function returns.
    pub returns: Option<u64>,
}

/// Bits of the number behind a call of ours that tell it from other code, see `helpers.c`.
const MARK: i32 = 0x7ac0_0000;
/// Bytes of a dispatch's frame: the context, and what aligns the stack to 16 at the call of a program.
const FRAME: i32 = SIZE + 8;
/// Offsets from the stack pointer of a dispatch, above its frame and its return address.
const RECORD: i32 = FRAME + 8;
const MASK: i32 = RECORD + 8;
const SESSIONS: i32 = MASK + 8;
/// Offsets in a record.
const ADDRESS: i32 = 8;
const COOKIES: i32 = 16;

/// A place at a distance from the stack pointer.
fn stack(offset: i32) -> Mem {
    Mem::At(Reg::RSP, offset)
}

/// Generates a dispatch for programs, given by the offsets of their code in the region and their sides, in the order in which they run.
///
/// # Panics
/// If there are more than 31 programs: each has a bit in a mask.
fn dispatch(asm: &mut Assembler, programs: &[(u64, Side)]) -> Dispatch {
    assert!(programs.len() < 32, "a function with {} programs", programs.len());
    let sessions = programs.iter().filter(|(_, side)| *side == Side::Session).count() as i32;
    let has_return = programs.iter().any(|(_, side)| *side != Side::Entry);
    let words = if has_return { 2 + sessions } else { 1 };
    let dispatch = Dispatcher { programs, words: words | 1, has_return };
    let enter = dispatch.side(asm, false);
    let leave = has_return.then(|| dispatch.side(asm, true));
    Dispatch { enter, leave, words: dispatch.words, programs: programs.len() }
}

/// The same as code for an offset in the region.
pub fn dispatch_at(start: u64, programs: &[(u64, Side)]) -> (Dispatch, Vec<u8>) {
    let mut asm = Assembler::new(start);
    let dispatch = dispatch(&mut asm, programs);
    (dispatch, asm.finish())
}

struct Dispatcher<'a> {
    programs: &'a [(u64, Side)],
    words: i32,
    has_return: bool,
}

impl Dispatcher<'_> {
    /// Generates one side; returns its offset in the region.
    ///
    /// ```text
    /// rsp -> context, padding (FRAME bytes)
    ///        return address into the detour
    ///        address of the record, mask of the programs that want the return, words of the sessions
    ///        return address of the function
    /// ```
    fn side(&self, asm: &mut Assembler, is_return: bool) -> u64 {
        asm.align(16);
        let start = asm.here();
        asm.lea(Reg::RSP, stack(-FRAME));
        for (offset, reg) in VOLATILE.into_iter().chain(KEPT) {
            asm.store(Width::W64, stack(offset), reg);
        }
        for (offset, value) in CONSTANTS {
            asm.store_imm(Width::W64, stack(offset), value);
        }
        self.position(asm, is_return);
        if self.has_return && !is_return {
            asm.store_imm(Width::W64, stack(MASK), 0);
        }
        let mut session = 0;
        for (number, (program, kind)) in self.programs.iter().enumerate() {
            let run = Run { number: number as i32, program: *program, session, is_return };
            match (kind, is_return) {
                (Side::Session, false) => run.session_entry(asm),
                (Side::Session, true) => run.session_return(asm),
                (Side::Entry, false) => run.call(asm),
                (Side::Return, false) => run.want_return(asm),
                (Side::Return, true) => run.call(asm),
                (Side::Entry, true) => {}
            }
            session += i32::from(*kind == Side::Session);
        }
        if self.has_return && !is_return {
            // The detour looks at the flags.
            asm.alu_mem_imm(Op::Cmp, true, stack(MASK), 0);
        }
        for (offset, reg) in VOLATILE {
            asm.load(Width::W64, reg, stack(offset));
        }
        asm.lea(Reg::RSP, stack(FRAME));
        asm.ret();
        start
    }

    /// Stores the stack pointer and the instruction pointer. At the return the function's return address is popped, and is where
    /// the program goes on.
    fn position(&self, asm: &mut Assembler, is_return: bool) {
        let caller = RECORD + 8 * self.words;
        asm.lea(AUX, stack(if is_return { caller + 8 } else { caller }));
        asm.store(Width::W64, stack(RSP), AUX);
        if is_return {
            asm.load(Width::W64, AUX, stack(caller));
        } else {
            asm.load(Width::W64, AUX, stack(RECORD));
            asm.load(Width::W64, AUX, Mem::At(AUX, ADDRESS));
        }
        asm.store(Width::W64, stack(RIP), AUX);
    }
}

/// One program on one side of a dispatch.
struct Run {
    number: i32,
    program: u64,
    /// Number of the session.
    session: i32,
    is_return: bool,
}

impl Run {
    fn call(&self, asm: &mut Assembler) {
        asm.load(Width::W64, AUX, stack(RECORD));
        asm.load(Width::W64, AUX, Mem::At(AUX, COOKIES + 8 * self.number));
        asm.store(Width::W64, stack(COOKIE), AUX);
        asm.mov(true, Reg::RDI, Reg::RSP);
        asm.call_region(self.program);
    }

    fn want_return(&self, asm: &mut Assembler) {
        asm.alu_mem_imm(Op::Or, true, stack(MASK), 1 << self.number);
    }

    fn call_session(&self, asm: &mut Assembler) {
        asm.store_imm(Width::W32, stack(IS_RETURN), i32::from(self.is_return));
        asm.lea(AUX, stack(SESSIONS + 8 * self.session));
        asm.store(Width::W64, stack(SESSION), AUX);
        self.call(asm);
    }

    fn session_entry(&self, asm: &mut Assembler) {
        self.call_session(asm);
        let declined = asm.label();
        asm.test(true, Reg::RAX, Reg::RAX);
        asm.jcc(Cond::NotEqual, declined);
        self.want_return(asm);
        asm.bind(declined);
    }

    fn session_return(&self, asm: &mut Assembler) {
        let declined = asm.label();
        asm.load(Width::W64, Reg::RAX, stack(MASK));
        asm.test_imm(false, Reg::RAX, 1 << self.number);
        asm.jcc(Cond::Equal, declined);
        self.call_session(asm);
        asm.bind(declined);
    }
}

impl Dispatch {
    /// The detour of a function, for an offset in the region of a process whose region begins at `region`.
    pub fn detour(&self, site: &Site, at: u64, region: u64) -> Detour {
        assert_eq!(site.cookies.len(), self.programs, "a cookie for each program");
        let mut asm = Assembler::new(at);
        for word in [region + at, site.address].into_iter().chain(site.cookies.iter().copied()) {
            asm.raw(&word.to_le_bytes());
        }
        let entry = asm.here() - at;
        let moved = asm.label();
        if site.undo > 0 {
            asm.lea(Reg::RSP, stack(site.undo as i32));
        }
        asm.test_mem_imm(false, Mem::Region(layout::ACTIVE), layout::ACTIVE_THREAD as i32);
        asm.jcc(Cond::Equal, moved);
        let below = 8 * (self.words - 1);
        if below > 0 {
            asm.lea(Reg::RSP, stack(-below));
        }
        asm.push_mem(Mem::Region(at));
        asm.call_region(self.enter);
        let entered = asm.here() - at;
        let mut returns = None;
        match self.leave {
            None => asm.lea(Reg::RSP, stack(8 * self.words)),
            Some(leave) => returns = Some(self.through_call(&mut asm, site, leave, moved) - at),
        }
        asm.bind(moved);
        Detour { bytes: asm.finish(), entry, entered, returns }
    }

    /// Offset in the region of the code of returns, if there is any. After a `ret` was written there, running calls return without a
    /// program.
    pub fn leave(&self) -> Option<u64> {
        self.leave
    }

    /// Calls the function with a copy of its stack arguments, if a program wants its return. Returns the offset in the region to which
    /// the function returns.
    fn through_call(&self, asm: &mut Assembler, site: &Site, leave: u64, moved: Label) -> u64 {
        let skipped = asm.label();
        asm.jcc(Cond::Equal, skipped);
        // An even number keeps the alignment. The arguments lie above the function's return address.
        let copied = site.stack_words.next_multiple_of(2) as i32;
        for _ in 0..copied {
            asm.push_mem(stack(8 * (self.words + copied)));
        }
        asm.call(moved);
        let returns = asm.here();
        // Stack walks learn from it where the function's return address is.
        asm.marker(MARK | (8 * (copied + self.words + 1)));
        if copied > 0 {
            asm.lea(Reg::RSP, stack(8 * copied));
        }
        asm.call_region(leave);
        asm.lea(Reg::RSP, stack(8 * self.words));
        asm.ret();
        asm.bind(skipped);
        asm.lea(Reg::RSP, stack(8 * self.words));
        returns
    }
}
