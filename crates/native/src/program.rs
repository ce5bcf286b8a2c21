//! How the code of a traced function reaches the programs of a script.
//!
//! ```text
//! function: push %rbx; jmp detour     detour: undo the push; call enter; is the return traced? jmp stub; or moved
//!                                     moved:  push %rbx; instructions that gave way to the jump; jmp back
//!                                     stub:   call moved; push number; jmp leave       (`returns`)
//!                                     leave:  find the call; jmp to the return side; ret
//! ```
//!
//! A [`Dispatch`] is the code that a set of programs shares: its two sides store the registers as the context of the programs and call
//! these one after the other. A detour is the code of one function. In front of it lies its record, see [`Record`].
//!
//! All general registers are kept, also those that a C function may overwrite: callers within a library rely on what they know about
//! a function (`-fipa-ra` of GCC). Vector registers are never used; those that pass arguments are stored for programs that read them.

use crate::context::{
    ARGUMENT_VECTORS, COOKIE, FRAME, IS_RETURN, MASK, MAX_PROGRAMS, MOVED_WORD, RECORD, RESULT_VECTORS, RIP,
    RSP, Record, SESSION, SESSIONS, STUB_WORD, load_registers, stack, store_registers, store_vectors,
};
use crate::layout;
use crate::load;
use crate::registers::AUX;
use crate::returns::Returns;
use crate::x86::{Assembler, Cond, Label, Mem, Op, Reg, Width};

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
    /// Number of words on the stack meanwhile, always odd, see [`FRAME`].
    words: i32,
    programs: usize,
    sessions: i32,
}

/// A function as its detour must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Address of its first instruction.
    pub address: u64,
    /// Bytes by which its first instruction, which precedes the jump, has lowered the stack pointer. The detour undoes that; the moved
    /// instructions begin with the first one.
    pub undo: u32,
    /// Cookies of the programs, in the order of the dispatch.
    pub cookies: Vec<u64>,
    /// Offset in the region of the [gate](load) through which its calls pass.
    pub gate: Option<u64>,
}

/// The code of one function. The moved instructions follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Record and code.
    pub bytes: Vec<u8>,
    /// Offset in `bytes` to which the function jumps.
    pub entry: u64,
}

/// Generates a dispatch for programs, given by the offsets of their code in the region and their sides, in the order in which they run.
/// `vectors`: one of them reads vector registers.
///
/// # Panics
/// If there are more than 31 programs: each has a bit in a mask.
fn dispatch(
    asm: &mut Assembler,
    programs: &[(u64, Side)],
    vectors: bool,
    returns: Option<&Returns>,
) -> Dispatch {
    assert!(programs.len() <= MAX_PROGRAMS, "a function with {} programs", programs.len());
    let sessions = programs.iter().filter(|(_, side)| *side == Side::Session).count() as i32;
    let has_return = programs.iter().any(|(_, side)| *side != Side::Entry);
    // The record, and for a return the mask, the sessions, and the addresses of the stub and of the moved instructions.
    let words = if has_return { 4 + sessions } else { 1 };
    let dispatch = Dispatcher {
        programs,
        vectors,
        words: words | 1,
        returns: has_return.then(|| returns.expect("memory for returns")),
    };
    let enter = dispatch.enter(asm);
    let leave = dispatch.returns.map(|returns| dispatch.leave(asm, returns));
    Dispatch { enter, leave, words: dispatch.words, programs: programs.len(), sessions }
}

/// The same as code for an offset in the region. `returns` is needed if a program runs at the return.
pub fn dispatch_at(
    start: u64,
    programs: &[(u64, Side)],
    vectors: bool,
    returns: Option<&Returns>,
) -> (Dispatch, Vec<u8>) {
    let mut asm = Assembler::new(start);
    let dispatch = dispatch(&mut asm, programs, vectors, returns);
    (dispatch, asm.finish())
}

struct Dispatcher<'a> {
    programs: &'a [(u64, Side)],
    /// True if one of them reads vector registers.
    vectors: bool,
    words: i32,
    /// If a program runs at the return.
    returns: Option<&'a Returns>,
}

impl Dispatcher<'_> {
    /// Generates the entry side; returns its offset in the region. At its end the flags tell whether there is a stub.
    fn enter(&self, asm: &mut Assembler) -> u64 {
        asm.align(16);
        let start = asm.here();
        let place = RECORD + 8 * self.words;
        asm.lea(Reg::RSP, stack(-FRAME));
        store_registers(asm);
        if self.vectors {
            store_vectors(asm, ARGUMENT_VECTORS);
        }
        asm.lea(AUX, stack(place));
        asm.store(Width::W64, stack(RSP), AUX);
        asm.load(Width::W64, AUX, stack(RECORD));
        asm.load(Width::W64, AUX, Mem::At(AUX, Record::ADDRESS));
        asm.store(Width::W64, stack(RIP), AUX);
        if self.returns.is_some() {
            asm.store_imm(Width::W64, stack(MASK), 0);
        }
        self.run(asm, false);
        if let Some(returns) = self.returns {
            let no_return = asm.label();
            asm.load(Width::W64, Reg::RAX, stack(MASK));
            asm.test(true, Reg::RAX, Reg::RAX);
            asm.jcc(Cond::Equal, no_return);
            asm.lea(Reg::RDI, Mem::Region(returns.area()));
            asm.lea(Reg::RSI, stack(place));
            asm.lea(Reg::RDX, stack(RECORD));
            asm.call_region(returns.enters());
            asm.load(Width::W64, AUX, stack(RECORD));
            asm.load(Width::W64, AUX, Mem::At(AUX, Record::MOVED));
            asm.store(Width::W64, stack(place + MOVED_WORD), AUX);
            asm.bind(no_return);
            asm.store(Width::W64, stack(place + STUB_WORD), Reg::RAX);
            asm.test(true, Reg::RAX, Reg::RAX);
        }
        load_registers(asm);
        asm.lea(Reg::RSP, stack(FRAME));
        asm.ret();
        start
    }

    /// Generates the return side, which [`leave`] reaches with the same frame.
    fn leave(&self, asm: &mut Assembler, returns: &Returns) -> u64 {
        asm.align(16);
        let start = asm.here();
        if self.vectors {
            store_vectors(asm, RESULT_VECTORS);
        }
        self.run(asm, true);
        asm.jmp_region(returns.left());
        start
    }

    fn run(&self, asm: &mut Assembler, is_return: bool) {
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
        asm.load(Width::W64, AUX, Mem::At(AUX, Record::COOKIES + 8 * self.number));
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
        let mut code = Assembler::new(at + Record::COOKIES as u64 + 8 * self.programs as u64);
        let entry = code.here() - at;
        self.code(&mut code, site, at);
        let moved = region + code.here();
        let leave = self.leave.map_or(0, |leave| region + leave);
        let record = [region + at, site.address, moved, leave, self.sessions as u64];
        let words = record.into_iter().chain(site.cookies.iter().copied());
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.extend(code.finish());
        Detour { bytes, entry }
    }

    fn code(&self, asm: &mut Assembler, site: &Site, record: u64) {
        let moved = asm.label();
        if site.undo > 0 {
            asm.lea(Reg::RSP, stack(site.undo as i32));
        }
        asm.test_mem_imm(false, Mem::Region(layout::ACTIVE), layout::ACTIVE_THREAD as i32);
        asm.jcc(Cond::Equal, moved);
        if let Some(gate) = site.gate {
            load::pass(asm, gate);
        }
        if self.programs > 0 {
            self.run(asm, record, moved);
        }
        asm.bind(moved);
    }

    /// Generates the call of the programs.
    fn run(&self, asm: &mut Assembler, record: u64, moved: Label) {
        let below = 8 * (self.words - 1);
        if below > 0 {
            asm.lea(Reg::RSP, stack(-below));
        }
        asm.push_mem(Mem::Region(record));
        asm.call_region(self.enter);
        asm.lea(Reg::RSP, stack(8 * self.words));
        if self.leave.is_some() {
            asm.jcc(Cond::Equal, moved);
            // The stub's call stores its return address where the function's is. Signal handlers leave the words below alone: they
            // are in the red zone.
            asm.lea(Reg::RSP, stack(8));
            asm.jmp_mem(stack(STUB_WORD - 8));
        }
    }
}
