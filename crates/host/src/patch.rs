//! The place of a jump within a function: a 5-byte jump that leads to a probe in the traced process.
//!
//! ```text
//! endbr64; push %rbp; mov %rsp,%rbp; sub $16,%rsp      endbr64; push %rbp; jmp probe; (2 bytes left)
//! ```
//!
//! The jump is located after the first instruction. The kernel executes an instruction that has a uprobe elsewhere and continues after
//! it, so that both kinds of probe may be on one function. The first instruction is executed again, in front of the moved ones: it is
//! a `push` or `sub $n,%rsp`, which the probe undoes, or one that has the same effect twice. The whole instructions that the jump overwrites are executed elsewhere. They are
//! straight-line code, and nothing but the instruction before them may lead to them:
//!
//! - no branch of the function leads to them, and no jump table may;
//! - none of them leaves an address of itself behind (system calls, and calls other than a last direct one), or cannot be executed
//!   elsewhere (`loop`);
//! - they belong to the function, or are padding after it.
//!
//! Not here: the moved instructions (`native::site`), writing (`runtime`). A refused function is probed by the kernel.

use std::fmt;
use std::ops::Range;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

pub use crate::branches::Body;
use crate::branches::{self, ENDBR64, Indirect, Obstacle, decoder, ends_flow, is_push, writes};
use crate::prologue::is_argument;

/// Size of the jump in bytes.
pub const JUMP: u64 = 5;
/// Largest distance in bytes in which the prologue is followed.
const MAX_PROLOGUE: u64 = 96;

/// The instructions that give way to a jump.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PatchPlace {
    /// Distance of the jump from the first instruction, in bytes.
    pub bytes: u64,
    /// Bytes of the whole instructions that the jump overwrites, at least 5.
    pub len: u8,
    /// Size of the first instruction, which is directly before the jump, in bytes.
    pub first: u8,
    /// Bytes by which it lowers the stack pointer.
    pub undo: u32,
}

/// The reason why a function cannot be patched.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// A symbol without a size, or bytes that are not in the file.
    UnknownSize,
    /// A function of more than a megabyte.
    TooLarge,
    /// `add %rdi,%rax`: it cannot be executed twice, or changes an argument.
    First,
    /// `push %rbx; ret`, and other code follows.
    TooShort,
    /// Data between the instructions, or instructions that are not known here.
    Undecodable,
    /// `push %rbx; L: dec %edi; jne L`
    Branch,
    /// `push %rbx; L: mov (%rdi),%eax; jmp *table(,%rax,8)`, where L may be in the table.
    JumpTable,
    /// Jumps to many places outside of the function.
    TooManyParts,
    /// `push %rbx; call *%rax`
    Call,
    /// `push %rbx; mov $39,%eax; syscall`
    SystemCall,
    /// `endbr64` after the first instruction: an indirect jump leads there.
    LandingPad,
    /// Stacks of goroutines are too small for the frames of probes.
    GoStack,
    /// `loop`, `jrcxz`, `xbegin` and memory operands relative to `%eip`.
    Unmovable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownSize => "its size is not known",
            Refusal::TooLarge => "it is too large to be searched for branches",
            Refusal::First => "its first instruction cannot be executed twice",
            Refusal::TooShort => "it is shorter than a jump",
            Refusal::Undecodable => "it contains bytes that are no known instructions",
            Refusal::Branch => "it branches to one of its first instructions",
            Refusal::JumpTable => "it has a jump table that may lead to one of its first instructions",
            Refusal::TooManyParts => "it jumps to too many places outside of itself",
            Refusal::Call => "one of its first instructions is a call",
            Refusal::SystemCall => "one of its first instructions is a system call",
            Refusal::LandingPad => "an indirect jump may lead to one of its first instructions",
            Refusal::GoStack => "it is Go code, whose stacks are too small",
            Refusal::Unmovable => "one of its first instructions cannot be moved",
        })
    }
}

impl From<Obstacle> for Refusal {
    fn from(obstacle: Obstacle) -> Refusal {
        match obstacle {
            Obstacle::UnknownSize => Refusal::UnknownSize,
            Obstacle::TooLarge => Refusal::TooLarge,
            Obstacle::Undecodable => Refusal::Undecodable,
            Obstacle::Branch => Refusal::Branch,
            Obstacle::JumpTable => Refusal::JumpTable,
            Obstacle::TooManyParts => Refusal::TooManyParts,
        }
    }
}

/// The author of the code of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A compiler: functions are entered at their start only.
    Compiler,
    /// Perhaps a person: `mempcpy` of glibc jumps to the second instruction of `memcpy`. Only a first `push` is accepted then.
    Unknown,
}

/// The place of a jump in the function.
///
/// # Errors
/// A [`Refusal`] if the function cannot be patched safely.
pub fn patch_place(body: Body<'_>, author: Author) -> Result<PatchPlace, Refusal> {
    if body.size == 0 {
        return Err(Refusal::UnknownSize);
    }
    let (start, undo) = after_first(body, author)?;
    let (end, last) = overwritten(body, start)?;
    let indirect = match last {
        last if last <= frame_set_up(body, start) => Indirect::Harmless,
        _ if body.code.starts_with(&ENDBR64) => Indirect::HarmlessUnmarked,
        _ if author == Author::Compiler => Indirect::SuspectTables,
        _ => Indirect::Suspect,
    };
    branches::search(body, 1..end, indirect)?;
    let len = u8::try_from(end - start).map_err(|_| Refusal::Undecodable)?;
    let landing_pad = if body.code.starts_with(&ENDBR64) { ENDBR64.len() as u64 } else { 0 };
    Ok(PatchPlace { bytes: start, len, first: (start - landing_pad) as u8, undo })
}

/// The position after the first instruction, and the bytes by which it lowers the stack pointer.
fn after_first(body: Body<'_>, author: Author) -> Result<(u64, u32), Refusal> {
    let mut decoder = decoder(body.code, 0);
    let mut first = decoder.decode();
    if first.code() == Code::Endbr64 {
        first = decoder.decode();
    }
    if first.is_invalid() {
        return Err(Refusal::Undecodable);
    }
    check_movable(&first)?;
    let undo = match author {
        _ if is_push(&first) => Some(8),
        Author::Compiler => reserved(&first).or_else(|| has_same_effect_twice(&first).then_some(0)),
        Author::Unknown => None,
    };
    match undo {
        None => Err(Refusal::First),
        Some(_) if first.next_ip() > body.end() => Err(Refusal::TooShort),
        Some(undo) => Ok((first.next_ip(), undo)),
    }
}

/// Bytes that `sub $n,%rsp` reserves.
fn reserved(instruction: &Instruction) -> Option<u32> {
    let is_constant = matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    let is_sub = instruction.mnemonic() == Mnemonic::Sub && instruction.op0_register() == Register::RSP;
    (is_sub && is_constant).then(|| u32::try_from(instruction.immediate(1) as i64).ok())?
}

/// Whether an instruction can be executed a second time directly after the first time, and changes no argument: what it writes are
/// registers that it does not read.
fn has_same_effect_twice(instruction: &Instruction) -> bool {
    if instruction.flow_control() != FlowControl::Next
        || instruction.is_stack_instruction()
        || instruction.has_lock_prefix()
    {
        return false;
    }
    let mut info = InstructionInfoFactory::new();
    let used = info.info(instruction);
    let registers = used.used_registers();
    let of = |wanted: fn(OpAccess) -> bool| {
        registers.iter().filter(move |used| wanted(used.access())).map(|used| used.register().full_register())
    };
    let written: Vec<Register> = of(writes).collect();
    let harmless =
        |register: &Register| register.is_gpr() && *register != Register::RSP && !is_argument(*register);
    written.iter().all(harmless)
        && of(reads).all(|register| !written.contains(&register))
        && used.used_memory().iter().all(|memory| !writes(memory.access()))
}

fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess)
}

/// End of the instructions from `start` that a jump overwrites, and the position of the last one.
fn overwritten(body: Body<'_>, start: u64) -> Result<(u64, u64), Refusal> {
    let mut decoder = decoder(tail(body.code, start), start);
    let mut end = start;
    let mut last = start;
    let mut falls_through = true;
    while end < start + JUMP {
        if !falls_through || end >= body.end() {
            return Ok((after_padding(body, end..start + JUMP)?, last));
        }
        let instruction = decoder.decode();
        // A call returns behind the overwritten instructions if it is the last one.
        let returns_behind =
            instruction.code() == Code::Call_rel32_64 && instruction.next_ip() >= start + JUMP;
        if !returns_behind {
            check_movable(&instruction)?;
        }
        if instruction.next_ip() > body.end() {
            return Err(Refusal::TooShort);
        }
        falls_through = !ends_flow(&instruction);
        last = instruction.ip();
        end = instruction.next_ip();
    }
    Ok((end, last))
}

fn tail(code: &[u8], start: u64) -> &[u8] {
    usize::try_from(start).ok().and_then(|start| code.get(start..)).unwrap_or_default()
}

/// Whether the instruction has the same effect at another address, and leaves no address of its own behind.
fn check_movable(instruction: &Instruction) -> Result<(), Refusal> {
    if instruction.is_invalid() {
        return Err(Refusal::Undecodable);
    }
    if matches!(instruction.code(), Code::Endbr64 | Code::Endbr32) {
        return Err(Refusal::LandingPad);
    }
    let known_branch = |is_known: bool| if is_known { Ok(()) } else { Err(Refusal::Unmovable) };
    match instruction.flow_control() {
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Err(Refusal::Call),
        FlowControl::IndirectCall => Err(Refusal::Call),
        // System calls by `syscall` are calls to the decoder.
        FlowControl::Call | FlowControl::Interrupt => Err(Refusal::SystemCall),
        FlowControl::XbeginXabortXend => Err(Refusal::Unmovable),
        FlowControl::UnconditionalBranch => known_branch(instruction.is_jmp_short_or_near()),
        FlowControl::ConditionalBranch => known_branch(instruction.is_jcc_short_or_near()),
        _ => known_branch(instruction.memory_base() != Register::EIP),
    }
}

/// End of the padding that fills the range after the last instruction of the function, and belongs to no other function.
fn after_padding(body: Body<'_>, range: Range<u64>) -> Result<u64, Refusal> {
    let is_padding = |at: &Instruction| matches!(at.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    let mut decoder = decoder(tail(body.code, range.start), range.start);
    while decoder.ip() < range.end {
        if !is_padding(&decoder.decode()) {
            return Err(Refusal::TooShort);
        }
    }
    if decoder.ip() > body.next_symbol { Err(Refusal::TooShort) } else { Ok(decoder.ip()) }
}

/// Position of the last instruction that sets up the frame, in the straight-line code from `start`; 0: none.
///
/// No jump leads to it or to an instruction before it, because it would set up the frame again. The arguments of a call are
/// pushed in loops and cases, too. But a register that keeps its value for the caller is pushed in the prologue only, as long as
/// the function has not changed it.
fn frame_set_up(body: Body<'_>, start: u64) -> u64 {
    let mut info = InstructionInfoFactory::new();
    let mut changed = Vec::new();
    let mut last = 0;
    let code = tail(body.code, start);
    let limit = body.end().min(start + MAX_PROLOGUE);
    for instruction in decoder(code, start).into_iter().take_while(|i| i.next_ip() <= limit) {
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            break;
        }
        if sets_up_frame(&instruction, &changed) {
            last = instruction.ip();
        }
        let used = info.info(&instruction);
        let written = used.used_registers().iter().filter(|used| writes(used.access()));
        changed.extend(written.map(|used| used.register().full_register()));
    }
    last
}

fn sets_up_frame(instruction: &Instruction, changed: &[Register]) -> bool {
    use Register::{R12, R13, R14, R15, RBP, RBX, RSP};
    let operand = |n: u32| instruction.op_kind(n) == OpKind::Register;
    match instruction.mnemonic() {
        Mnemonic::Push => {
            let pushed = instruction.op0_register();
            is_push(instruction)
                && [RBX, RBP, R12, R13, R14, R15].contains(&pushed)
                && !changed.contains(&pushed)
        }
        Mnemonic::Mov => {
            operand(0)
                && operand(1)
                && instruction.op0_register() == RBP
                && instruction.op1_register() == RSP
                && !changed.contains(&RBP)
        }
        _ => false,
    }
}
