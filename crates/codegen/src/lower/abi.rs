//! Where arguments lie when a function is entered, and what `pt_regs` calls its registers.
//!
//! ```text
//! cudaLaunchKernel(func, dim3 grid, dim3 block, args, shmem, stream), x86-64:
//! func rdi; grid rsi:rdx; block rcx:r8; args r9; shmem [rsp + 8]; stream [rsp + 16]
//! ```
//!
//! Sources: System V AMD64 ABI 3.2.3, AAPCS64 6.8.2, `arch/*/include/uapi/asm/ptrace.h`. Structs of the CUDA API hold
//! integers only, so every eightbyte of one is of class INTEGER.
//!
//! Not here: loading (`expr`), what the probed instruction has already pushed (`stack_shift` of the site).

use crate::Arch;
use lang::hir::{Param, Struct, Type};

/// Where eight bytes of an argument lie.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// In the register at this offset of `pt_regs`.
    Reg(i16),
    /// In user memory, so many bytes above the first stack argument.
    Stack(u32),
    /// In user memory, so many bytes above the address in the register or stack place.
    Behind(Pointer, u32),
}

/// Where the address of an argument passed by reference lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pointer {
    /// In the register at this offset of `pt_regs`.
    Reg(i16),
    /// So many bytes above the first stack argument.
    Stack(u32),
}

impl Piece {
    /// It, or its address, lies on the stack.
    pub fn on_stack(&self) -> bool {
        matches!(self, Piece::Stack(_) | Piece::Behind(Pointer::Stack(_), _))
    }
}

/// Offsets in `pt_regs` and the like of one machine.
pub struct Machine {
    /// Integer argument registers in order, as offsets in `pt_regs`.
    pub args: &'static [i16],
    /// Vector argument registers.
    pub vectors: u32,
    /// Result register.
    pub ret: i16,
    /// Stack pointer.
    pub sp: i16,
    /// Bytes between the stack pointer and the first stack argument at entry: the return address, if it is there.
    pub stack_args: u32,
    /// How much higher the stack pointer is when the function has returned.
    pub sp_after_return: u32,
    /// Where the mode is kept, the bits of it, and what they are in user space.
    pub mode: (i16, i64, i64),
    /// Named registers.
    pub registers: &'static [(&'static str, i16)],
}

/// The machine's table.
pub fn machine(arch: Arch) -> &'static Machine {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Aarch64 => &AARCH64,
    }
}

static X86_64: Machine = Machine {
    args: &[112, 104, 96, 88, 72, 64],
    vectors: 8,
    ret: 80,
    sp: 152,
    stack_args: 8,
    sp_after_return: 8,
    mode: (136, 3, 3),
    registers: &[
        ("r15", 0),
        ("r14", 8),
        ("r13", 16),
        ("r12", 24),
        ("bp", 32),
        ("bx", 40),
        ("r11", 48),
        ("r10", 56),
        ("r9", 64),
        ("r8", 72),
        ("ax", 80),
        ("cx", 88),
        ("dx", 96),
        ("si", 104),
        ("di", 112),
        ("ip", 128),
        ("pc", 128),
        ("cs", 136),
        ("flags", 144),
        ("sp", 152),
        ("ss", 160),
    ],
};

static AARCH64: Machine = Machine {
    args: &[0, 8, 16, 24, 32, 40, 48, 56],
    vectors: 8,
    ret: 0,
    sp: 248,
    stack_args: 0,
    sp_after_return: 0,
    mode: (264, 0xf, 0),
    registers: &[
        ("r0", 0),
        ("r1", 8),
        ("r2", 16),
        ("r3", 24),
        ("r4", 32),
        ("r5", 40),
        ("r6", 48),
        ("r7", 56),
        ("r8", 64),
        ("r9", 72),
        ("r10", 80),
        ("r11", 88),
        ("r12", 96),
        ("r13", 104),
        ("r14", 112),
        ("r15", 120),
        ("r16", 128),
        ("r17", 136),
        ("r18", 144),
        ("r19", 152),
        ("r20", 160),
        ("r21", 168),
        ("r22", 176),
        ("r23", 184),
        ("r24", 192),
        ("r25", 200),
        ("r26", 208),
        ("r27", 216),
        ("r28", 224),
        ("r29", 232),
        ("r30", 240),
        ("sp", 248),
        ("pc", 256),
        ("pstate", 264),
    ],
};

impl Machine {
    /// Offset of a named register.
    pub fn register(&self, name: &str) -> Option<i16> {
        self.registers.iter().find(|(known, _)| *known == name).map(|(_, offset)| *offset)
    }

    /// `argN`: the n-th integer register, or the stack places behind the last.
    pub fn arg(&self, n: u32) -> Piece {
        let behind = n.saturating_sub(self.args.len() as u32);
        self.args.get(n as usize).map_or(Piece::Stack(8 * behind), |&offset| Piece::Reg(offset))
    }
}

/// Hands out places, argument by argument.
struct Assign {
    machine: &'static Machine,
    arch: Arch,
    regs: usize,
    vectors: u32,
    stack: u32,
}

impl Assign {
    fn stack(&mut self, words: u32) -> Vec<Piece> {
        let start = self.stack;
        self.stack += 8 * words;
        (0..words).map(|word| Piece::Stack(start + 8 * word)).collect()
    }

    fn float(&mut self) -> Vec<Piece> {
        self.vectors += 1;
        if self.vectors > self.machine.vectors { self.stack(1) } else { vec![] }
    }

    /// A value of so many eightbytes: all in registers, or all on the stack.
    fn words(&mut self, words: u32) -> Vec<Piece> {
        let end = self.regs + words as usize;
        if let Some(regs) = self.machine.args.get(self.regs..end) {
            self.regs = end;
            return regs.iter().map(|&offset| Piece::Reg(offset)).collect();
        }
        if self.arch == Arch::Aarch64 {
            // AAPCS64 C.12: once one argument went to the stack, no later one takes a register.
            self.regs = self.machine.args.len();
        }
        self.stack(words)
    }

    fn structure(&mut self, size: u32) -> Vec<Piece> {
        let words = size.div_ceil(8);
        match self.arch {
            _ if size <= 16 => self.words(words),
            Arch::X86_64 => self.stack(words),
            Arch::Aarch64 => {
                let pointer = match self.words(1)[0] {
                    Piece::Stack(offset) => Pointer::Stack(offset),
                    Piece::Reg(offset) | Piece::Behind(Pointer::Reg(offset), _) => Pointer::Reg(offset),
                    Piece::Behind(pointer, _) => pointer,
                };
                (0..words).map(|word| Piece::Behind(pointer, 8 * word)).collect()
            }
        }
    }
}

/// The places of each parameter's eightbytes; none for one in a vector register.
pub fn places(arch: Arch, params: &[Param], structs: &[Struct]) -> Vec<Vec<Piece>> {
    let mut assign = Assign { machine: machine(arch), arch, regs: 0, vectors: 0, stack: 0 };
    let place = |param: &Param| match &param.ty {
        _ if param.float => assign.float(),
        Type::Struct(id) => assign.structure(structs[id.0 as usize].size),
        _ => assign.words(1),
    };
    params.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::hir::StructId;

    fn param(ty: Type, float: bool) -> Param {
        Param { name: String::new(), ty, float }
    }

    fn dim3() -> Vec<Struct> {
        vec![Struct { name: "dim3".into(), size: 12, align: 4, fields: vec![] }]
    }

    fn launch() -> Vec<Param> {
        let (word, grid) = (param(Type::U64, false), param(Type::Struct(StructId(0)), false));
        vec![word.clone(), grid.clone(), grid, word.clone(), word.clone(), word]
    }

    #[test]
    fn a_launch_has_its_grid_in_two_registers_and_its_stream_on_the_stack() {
        let reg = |name| Piece::Reg(machine(Arch::X86_64).register(name).unwrap());
        assert_eq!(
            places(Arch::X86_64, &launch(), &dim3()),
            [
                vec![reg("di")],
                vec![reg("si"), reg("dx")],
                vec![reg("cx"), reg("r8")],
                vec![reg("r9")],
                vec![Piece::Stack(0)],
                vec![Piece::Stack(8)],
            ]
        );
        let aarch64 = places(Arch::Aarch64, &launch(), &dim3());
        assert_eq!(aarch64[5], [Piece::Reg(56)]);
    }

    #[test]
    fn a_struct_that_does_not_fit_in_the_rest_leaves_the_registers_to_others() {
        let word = param(Type::U64, false);
        let mut params = vec![word.clone(); 5];
        params.push(param(Type::Struct(StructId(0)), false));
        params.push(word);
        let places = places(Arch::X86_64, &params, &dim3());
        assert_eq!(places[5], [Piece::Stack(0), Piece::Stack(8)]);
        assert_eq!(places[6], [Piece::Reg(64)]);
    }

    #[test]
    fn floats_take_no_integer_register() {
        let params = [param(Type::U64, true), param(Type::U64, false)];
        assert_eq!(places(Arch::X86_64, &params, &[]), [vec![], vec![Piece::Reg(112)]]);
    }

    #[test]
    fn a_large_struct_is_on_the_stack_or_behind_a_pointer() {
        let structs = [Struct { name: "big".into(), size: 24, align: 8, fields: vec![] }];
        let params = [param(Type::Struct(StructId(0)), false), param(Type::U64, false)];
        let stack = [0, 8, 16].map(Piece::Stack).to_vec();
        assert_eq!(places(Arch::X86_64, &params, &structs), [stack, vec![Piece::Reg(112)]]);
        let behind = [0, 8, 16].map(|at| Piece::Behind(Pointer::Reg(0), at)).to_vec();
        assert_eq!(places(Arch::Aarch64, &params, &structs), [behind, vec![Piece::Reg(8)]]);
    }
}
