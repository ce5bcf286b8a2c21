//! Search of a function for branches into a range of its first bytes.
//!
//! Jumps out of the function are followed, since compilers move cold code elsewhere and cold code jumps back. The code must be
//! straight-line decodable: data between instructions ends the search with an error.
//!
//! Not here: the use of the answer (`prologue`, `patch`). Branches of other functions into the range are not found.

use std::ops::Range;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};
use std::collections::{BTreeSet, VecDeque};

use crate::elf::{ElfFile, Functions};

/// Largest size in bytes of a function that is searched.
const MAX_BODY: u64 = 1 << 20;
/// Largest number of instructions that are searched in a part outside the function (cold code).
const MAX_FRAGMENT: usize = 256;
/// Largest number of such parts.
const MAX_FRAGMENTS: usize = 1024;
/// Largest distance in instructions between a jump by a register and the instruction that has set the register.
const MAX_BACK: usize = 32;

pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Code that the decoder may read.
#[derive(Copy, Clone, Debug)]
pub struct Body<'a> {
    /// Code from the first instruction to the end of the executable segment, or less.
    pub code: &'a [u8],
    /// Code that ends directly before the first instruction: cold parts may be there.
    pub before: &'a [u8],
    /// Size of the function in bytes; 0: unknown.
    pub size: u64,
    /// Distance to the next symbol in bytes; probes never move onto or beyond it.
    pub next_symbol: u64,
}

impl<'a> Body<'a> {
    /// The function at a file offset, with at most `around` bytes of the code before and after it.
    pub fn of(elf: &'a ElfFile, functions: &Functions, offset: u64, around: u64) -> Body<'a> {
        let before = offset.min(around);
        let size = functions.size_at(offset).unwrap_or(0);
        Body {
            code: elf.code(offset, size.saturating_add(around)),
            before: elf.code(offset - before, before),
            size,
            next_symbol: functions.next_after(offset).map_or(u64::MAX, |next| next - offset),
        }
    }

    /// Size of the function in bytes, as far as known.
    pub(crate) fn end(self) -> u64 {
        if self.size == 0 { self.next_symbol } else { self.size.min(self.next_symbol) }
    }

    /// The bytes of the function, if the size is known and they are all given.
    fn known_code(self) -> Option<&'a [u8]> {
        self.code.get(..usize::try_from(self.size).ok()?)
    }
}

pub(crate) fn decoder(code: &[u8], ip: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, ip, DecoderOptions::NONE)
}

/// Assumption about indirect jumps in a function.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Indirect {
    /// Indirect jumps do not reach the range: it contains only instructions that compilers do not place in loops and cases.
    Harmless,
    /// Jumps without `notrack` are tail calls: compilers that emit `endbr64` mark jump tables with `notrack`.
    HarmlessUnmarked,
    /// A jump table may have an entry for the head of a loop. A jump by a pointer that was loaded without an index is a tail call.
    SuspectTables,
    /// Any indirect jump may use a jump table with an entry for the head of a loop.
    Suspect,
}

/// The reason why a range may be the target of a branch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The size of the function is unknown, or its bytes are not all given.
    UnknownSize,
    /// The function is larger than the search.
    TooLarge,
    /// Bytes of the function are no instructions.
    Undecodable,
    /// A branch of the function leads into the range.
    Branch,
    /// The function has a jump table, which may lead into the range.
    JumpTable,
    /// The function jumps to more places than the search follows.
    TooManyParts,
}

/// Searches the function for a branch into `range`, whose offsets are relative to the first instruction.
pub(crate) fn search(body: Body<'_>, range: Range<u64>, indirect: Indirect) -> Result<(), Obstacle> {
    if body.size > MAX_BODY {
        return Err(Obstacle::TooLarge);
    }
    let code = body.known_code().filter(|code| !code.is_empty()).ok_or(Obstacle::UnknownSize)?;
    let (pending, seen, recent) = (Vec::new(), BTreeSet::new(), VecDeque::with_capacity(MAX_BACK));
    let mut search = Search { body, range, indirect, pending, seen, recent };
    for instruction in decoder(code, 0) {
        search.check(&instruction)?;
        search.recent.truncate(MAX_BACK - 1);
        search.recent.push_front(instruction);
    }
    search.check_outside()
}

struct Search<'a> {
    body: Body<'a>,
    range: Range<u64>,
    indirect: Indirect,
    /// Targets outside the function that are still to be searched.
    pending: Vec<u64>,
    seen: BTreeSet<u64>,
    /// The instructions before the current one, the last one first.
    recent: VecDeque<Instruction>,
}

impl<'a> Search<'a> {
    /// Follows jumps out of the function.
    fn check_outside(&mut self) -> Result<(), Obstacle> {
        while let Some(target) = self.pending.pop() {
            if self.seen.contains(&target) {
                continue;
            }
            if self.seen.len() == MAX_FRAGMENTS {
                return Err(Obstacle::TooManyParts);
            }
            self.seen.insert(target);
            // The target is outside of the given code: in another section of the file, such as the PLT.
            let Some(code) = self.code_at(target) else { continue };
            for instruction in decoder(code, target).into_iter().take(MAX_FRAGMENT) {
                // Code that cannot be decoded there is not part of this function.
                if instruction.is_invalid() {
                    break;
                }
                if instruction.flow_control() != FlowControl::IndirectBranch {
                    self.check(&instruction)?;
                }
                if ends_flow(&instruction) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn code_at(&self, target: u64) -> Option<&'a [u8]> {
        match target as i64 {
            forward @ 0.. => self.body.code.get(forward as usize..),
            back => {
                let distance = usize::try_from(back.unsigned_abs()).ok()?;
                self.body.before.get(self.body.before.len().checked_sub(distance)?..)
            }
        }
    }

    /// Whether the instruction does not jump into the range, as far as can be determined.
    fn check(&mut self, instruction: &Instruction) -> Result<(), Obstacle> {
        if instruction.is_invalid() {
            return Err(Obstacle::Undecodable);
        }
        match instruction.flow_control() {
            FlowControl::IndirectBranch if self.is_suspect(instruction) => Err(Obstacle::JumpTable),
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend
                if is_near(instruction) =>
            {
                self.check_target(instruction)
            }
            _ => Ok(()),
        }
    }

    fn is_suspect(&self, instruction: &Instruction) -> bool {
        match self.indirect {
            Indirect::Harmless => false,
            Indirect::HarmlessUnmarked => has_notrack(instruction),
            Indirect::SuspectTables => !is_by_pointer(instruction, &self.recent),
            // A single pointer is no table.
            Indirect::Suspect => !instruction.is_ip_rel_memory_operand(),
        }
    }

    fn check_target(&mut self, instruction: &Instruction) -> Result<(), Obstacle> {
        let target = instruction.near_branch_target();
        let outside = target >= self.body.size;
        if outside && instruction.flow_control() != FlowControl::Call {
            self.pending.push(target);
        }
        if self.range.contains(&target) { Err(Obstacle::Branch) } else { Ok(()) }
    }
}

fn is_near(instruction: &Instruction) -> bool {
    instruction.op_count() > 0 && instruction.op_kind(0) == OpKind::NearBranch64
}

fn has_notrack(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::DS
}

/// Whether a jump leads to where a single pointer points: `jmp *16(%rax)`, or `mov (%rdi),%rax; ...; jmp *%rax`. To a place in a table lead
/// `jmp *table(,%rax,8)` and `movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax`.
fn is_by_pointer(jump: &Instruction, before: &VecDeque<Instruction>) -> bool {
    if jump.op0_kind() == OpKind::Memory {
        return jump.memory_index() == Register::None;
    }
    let register = jump.op0_register().full_register();
    let mut info = InstructionInfoFactory::new();
    let mut sets_register = |instruction: &&Instruction| {
        let used = info.info(instruction);
        used.used_registers()
            .iter()
            .any(|used| used.register().full_register() == register && writes(used.access()))
    };
    let set = before.iter().find(|instruction| sets_register(instruction));
    set.is_some_and(|set| {
        set.code() == Code::Mov_r64_rm64
            && set.op1_kind() == OpKind::Memory
            && set.memory_index() == Register::None
    })
}

/// Whether an instruction with this access to an operand changes it.
pub(crate) fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// Whether the next instruction is not executed after this one.
pub(crate) fn ends_flow(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Interrupt
    )
}

/// Whether the instruction is a `push` of a whole register.
pub(crate) fn is_push(instruction: &Instruction) -> bool {
    instruction.code() == Code::Push_r64
}
