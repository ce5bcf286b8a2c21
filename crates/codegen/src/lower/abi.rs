//! Locations of arguments when a function is entered, and the fields of `pt_regs` for its registers.
//!
//! ```text
//! cudaLaunchKernel(func, dim3 grid, dim3 block, args, shmem, stream), x86-64:
//! func rdi; grid rsi:rdx; block rcx:r8; args r9; shmem [rsp + 8]; stream [rsp + 16]
//! ```
//!
//! Sources: System V AMD64 ABI 3.2.3, AAPCS64 6.8.2, `arch/*/include/uapi/asm/ptrace.h`. On aarch64 all
//! eightbytes of a struct count as class INTEGER.
//!
//! Not here: classes of eightbytes (`lang::types::passing`), loads (`expr`), bytes pushed before the probed instruction
//! (`stack_shift` of the site).

use crate::options::Arch;
use lang::hir::{Param, Signature, Struct, Type};
use lang::types::passing::{Class, Passing, passing};

/// Location of eight bytes of an argument.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Piece {
    /// The register at this offset of `pt_regs`.
    Reg(i16),
    /// User memory, this number of bytes above the first stack argument.
    Stack(u32),
    /// User memory, this number of bytes above the address in the register or on the stack.
    Behind(Pointer, u32),
    /// The low eight bytes of the vector register with this number, which programs in a traced process can read.
    Vector(u32),
    /// No location that probes can read.
    Unreadable,
}

/// Location of the address of an argument passed by reference.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pointer {
    /// The register at this offset of `pt_regs`.
    Reg(i16),
    /// The stack, this number of bytes above the first stack argument.
    Stack(u32),
}

impl Piece {
    /// Whether the value, or its address, is on the stack.
    pub(super) fn on_stack(&self) -> bool {
        matches!(self, Piece::Stack(_) | Piece::Behind(Pointer::Stack(_), _))
    }
}

/// Register offsets in `pt_regs` and stack layout of one architecture.
pub(super) struct Machine {
    /// Integer argument registers in order, as offsets in `pt_regs`.
    pub args: &'static [i16],
    /// Number of vector argument registers.
    pub vectors: u32,
    /// Result register.
    pub ret: i16,
    /// Register of the second eightbyte of a result.
    pub ret_second: i16,
    /// Stack pointer.
    pub sp: i16,
    /// Bytes between the stack pointer and the first stack argument at entry: the return address, if it is on the
    /// stack.
    pub stack_args: u32,
    /// Difference of the stack pointer after return and at entry, in bytes.
    pub sp_after_return: u32,
    /// The CPU mode.
    pub mode: CpuMode,
    /// Named registers.
    pub registers: &'static [(&'static str, i16)],
}

/// Bits of a register that are different in user space and in the kernel.
pub(super) struct CpuMode {
    /// The register, as an offset in `pt_regs`.
    pub register: i16,
    /// The bits.
    pub mask: i64,
    /// Their value in user space.
    pub user: i64,
}

/// The table of the architecture.
pub(super) fn machine(arch: Arch) -> &'static Machine {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Aarch64 => &AARCH64,
    }
}

static X86_64: Machine = Machine {
    args: &[112, 104, 96, 88, 72, 64],
    vectors: 8,
    ret: 80,
    ret_second: 96,
    sp: 152,
    stack_args: 8,
    sp_after_return: 8,
    mode: CpuMode { register: 136, mask: 3, user: 3 },
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
    ret_second: 8,
    sp: 248,
    stack_args: 0,
    sp_after_return: 0,
    mode: CpuMode { register: 264, mask: 0xf, user: 0 },
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
    pub(super) fn register(&self, name: &str) -> Option<i16> {
        self.registers.iter().find(|(known, _)| *known == name).map(|(_, offset)| *offset)
    }

    /// `argN`: the n-th integer register, or a stack argument after the last register.
    pub(super) fn arg(&self, n: u32) -> Piece {
        let behind = n.saturating_sub(self.args.len() as u32);
        self.args.get(n as usize).map_or(Piece::Stack(8 * behind), |&offset| Piece::Reg(offset))
    }
}

/// Assigns locations, argument by argument.
struct Assign {
    machine: &'static Machine,
    arch: Arch,
    regs: usize,
    vectors: u32,
    stack: u32,
}

impl Assign {
    fn stack(&mut self, bytes: u32, align: u32) -> Vec<Piece> {
        let start = self.stack.next_multiple_of(align);
        self.stack = start + bytes;
        (0..bytes.div_ceil(8)).map(|word| Piece::Stack(start + 8 * word)).collect()
    }

    fn float(&mut self) -> Vec<Piece> {
        if self.vectors >= self.machine.vectors {
            return self.stack(8, 8);
        }
        self.vectors += 1;
        vec![Piece::Vector(self.vectors - 1)]
    }

    /// Locations of a value with this number of eightbytes: all in registers, or all on the stack.
    fn words(&mut self, words: u32) -> Vec<Piece> {
        self.registers(&vec![Class::Integer; words as usize])
    }

    /// Locations of eightbytes with these classes: all in registers, or all on the stack.
    fn registers(&mut self, classes: &[Class]) -> Vec<Piece> {
        let count = |wanted: Class| classes.iter().filter(|class| **class == wanted).count();
        let (regs, vectors) = (self.regs + count(Class::Integer), self.vectors + count(Class::Vector) as u32);
        if regs > self.machine.args.len() || vectors > self.machine.vectors {
            if self.arch == Arch::Aarch64 {
                // AAPCS64 C.12: after one argument on the stack, no later one gets a register.
                self.regs = self.machine.args.len();
            }
            return self.stack(8 * classes.len() as u32, 8);
        }
        let mut next = self.machine.args[self.regs..regs].iter();
        (self.regs, self.vectors) = (regs, vectors);
        let mut piece = |class: &Class| match class {
            Class::Integer => Piece::Reg(*next.next().expect("counted above")),
            Class::Vector | Class::None => Piece::Unreadable,
        };
        classes.iter().map(&mut piece).collect()
    }

    /// Locations of a value that does not fit registers: on the stack, or in memory that a pointer refers to.
    fn memory(&mut self, bytes: u32, align: u32) -> Vec<Piece> {
        match self.arch {
            Arch::X86_64 => self.stack(bytes, align),
            Arch::Aarch64 => {
                let pointer = match self.words(1)[0] {
                    Piece::Stack(offset) => Pointer::Stack(offset),
                    Piece::Reg(offset) | Piece::Behind(Pointer::Reg(offset), _) => Pointer::Reg(offset),
                    Piece::Behind(pointer, _) => pointer,
                    Piece::Vector(_) | Piece::Unreadable => unreachable!("a word is somewhere else"),
                };
                (0..bytes.div_ceil(8)).map(|word| Piece::Behind(pointer, 8 * word)).collect()
            }
        }
    }

    fn param(&mut self, param: &Param, structs: &[Struct]) -> Vec<Piece> {
        match passing(&param.ty, param.float, structs) {
            Passing::Word => self.words(1),
            Passing::Vector => self.float(),
            Passing::Registers(classes) if self.arch == Arch::Aarch64 => self.words(classes.len() as u32),
            Passing::Registers(classes) => self.registers(&classes),
            Passing::Memory { bytes, align } => self.memory(bytes, align),
        }
    }
}

/// Location of the n-th word that a trampoline passes: its context is an array of words.
pub(super) fn passed(n: u32) -> Piece {
    Piece::Reg(8 * n as i16)
}

/// Locations of the eightbytes of each parameter in the context of a trampoline's program.
pub(super) fn passed_places(signature: &Signature, structs: &[Struct]) -> Vec<Vec<Piece>> {
    let mut next = 0..;
    let words = |param: &Param| match passing(&param.ty, param.float, structs) {
        Passing::Word | Passing::Vector => 1,
        Passing::Registers(classes) => classes.len(),
        Passing::Memory { bytes, .. } => bytes.div_ceil(8) as usize,
    };
    signature.params.iter().map(|param| next.by_ref().take(words(param)).map(passed).collect()).collect()
}

/// Locations of the eightbytes of each parameter.
pub(super) fn places(arch: Arch, signature: &Signature, structs: &[Struct]) -> Vec<Vec<Piece>> {
    let mut assign = Assign { machine: machine(arch), arch, regs: 0, vectors: 0, stack: 0 };
    // AAPCS64 has a separate register for the address of the result.
    assign.regs = usize::from(signature.hidden && arch == Arch::X86_64);
    signature.params.iter().map(|param| assign.param(param, structs)).collect()
}

/// Locations of the eightbytes of a struct result in registers.
pub(super) fn result_places(arch: Arch, ret: &Type, structs: &[Struct]) -> Vec<Piece> {
    let Passing::Registers(classes) = passing(ret, false, structs) else { return vec![] };
    let mut next = [machine(arch).ret, machine(arch).ret_second].into_iter();
    let mut piece = |class: &Class| match class {
        // AAPCS64 has no classes: the members of such a struct are in integer registers.
        Class::Vector | Class::None if arch == Arch::X86_64 => Piece::Unreadable,
        _ => next.next().map_or(Piece::Unreadable, Piece::Reg),
    };
    classes.iter().map(&mut piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::hir::{Field, Origin, StructId};

    fn param(ty: Type, float: bool) -> Param {
        Param { name: String::new(), ty, float, named: None }
    }

    fn of(size: u32, align: u32, fields: &[(u32, Type, bool)]) -> Struct {
        let field = |(offset, ty, float): &(u32, Type, bool)| Field {
            name: String::new(),
            offset: *offset,
            ty: ty.clone(),
            bits: None,
            float: *float,
            named: None,
        };
        let fields = fields.iter().map(field).collect();
        Struct { name: String::new(), size, align, fields, origin: Origin::Cuda }
    }

    fn dim3() -> Vec<Struct> {
        vec![of(12, 4, &[0, 4, 8].map(|at| (at, Type::U32, false)))]
    }

    fn places(arch: Arch, params: &[Param], structs: &[Struct]) -> Vec<Vec<Piece>> {
        let signature = Signature {
            params: params.to_vec(),
            offsets: vec![],
            ret: Type::Void,
            named: None,
            hidden: false,
        };
        super::places(arch, &signature, structs)
    }

    #[test]
    fn small_structs_come_back_in_registers() {
        let field = |at, float| (at, if float { Type::U64 } else { Type::I64 }, float);
        let structs = [
            of(16, 8, &[field(0, false), field(8, false)]),
            of(16, 8, &[field(0, true), field(8, false)]),
            of(24, 8, &[field(0, false), field(8, false), field(16, false)]),
        ];
        let places = |arch, id| result_places(arch, &Type::Struct(StructId(id)), &structs);
        assert_eq!(places(Arch::X86_64, 0), [Piece::Reg(80), Piece::Reg(96)]);
        assert_eq!(
            places(Arch::X86_64, 1),
            [Piece::Unreadable, Piece::Reg(80)],
            "rax is the first for integers"
        );
        assert_eq!(places(Arch::X86_64, 2), [], "in memory");
        assert_eq!(places(Arch::Aarch64, 1), [Piece::Reg(0), Piece::Reg(8)]);
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
        assert_eq!(places(Arch::X86_64, &params, &[]), [vec![Piece::Vector(0)], vec![Piece::Reg(112)]]);
    }

    #[test]
    fn the_ninth_float_is_on_the_stack() {
        let places = places(Arch::X86_64, &vec![param(Type::U32, true); 10], &[]);
        assert_eq!(places[7..], [[Piece::Vector(7)], [Piece::Stack(0)], [Piece::Stack(8)]]);
    }

    #[test]
    fn eightbytes_of_floats_take_vector_registers() {
        let mixed = of(16, 8, &[(0, Type::U64, true), (8, Type::I64, false)]);
        let params = [param(Type::Struct(StructId(0)), false), param(Type::U64, false)];
        let expected = [vec![Piece::Unreadable, Piece::Reg(112)], vec![Piece::Reg(104)]];
        assert_eq!(places(Arch::X86_64, &params, &[mixed]), expected);
    }

    #[test]
    fn where_the_result_goes_takes_a_register() {
        let signature = Signature {
            params: vec![param(Type::U64, false)],
            offsets: vec![],
            ret: Type::U64,
            named: None,
            hidden: true,
        };
        assert_eq!(super::places(Arch::X86_64, &signature, &[]), [[Piece::Reg(104)]]);
        assert_eq!(super::places(Arch::Aarch64, &signature, &[]), [[Piece::Reg(0)]]);
    }

    #[test]
    fn long_doubles_are_aligned_on_the_stack() {
        let mut params = vec![param(Type::U64, false); 7];
        params.push(param(lang::types::passing::long_double(), true));
        let places = places(Arch::X86_64, &params, &[]);
        assert_eq!(places[6..], [vec![Piece::Stack(0)], vec![Piece::Stack(16), Piece::Stack(24)]]);
    }

    #[test]
    fn a_large_struct_is_on_the_stack_or_behind_a_pointer() {
        let structs = [of(24, 8, &[0, 8, 16].map(|at| (at, Type::U64, false)))];
        let params = [param(Type::Struct(StructId(0)), false), param(Type::U64, false)];
        let stack = [0, 8, 16].map(Piece::Stack).to_vec();
        assert_eq!(places(Arch::X86_64, &params, &structs), [stack, vec![Piece::Reg(112)]]);
        let behind = [0, 8, 16].map(|at| Piece::Behind(Pointer::Reg(0), at)).to_vec();
        assert_eq!(places(Arch::Aarch64, &params, &structs), [behind, vec![Piece::Reg(8)]]);
    }
}
