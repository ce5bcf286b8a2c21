//! How a call of the program loads the agent into its process.
//!
//! ```text
//! detour:  ...; is ACTIVE set? is STATE zero? if not, call gate; programs; moved instructions
//! gate:    save all registers; begin_load: STATE requested -> claimed, pthread_create(run_load); wait for zero; restore; ret
//! thread:  run_load: sends BEGINS, waits for a byte; dlopen(path), dlsym(symbol); sends LOADED; attach(socket); STATE zero
//! ```
//!
//! Calls of the driver wait meanwhile, for at most two seconds, so that the library misses nothing that they do.
//!
//! A thread at the entry of a function of the driver is in an ordinary call: it is in no function of the C library or its loader, so it
//! may create a thread. The new thread may wait for the loader's lock; no thread of the program waits for it.
//!
//! The tracer stops the other threads for a short time while the library is loaded: a child of `fork` has the loader's data as they are at that
//! moment. Without a tracer nothing is loaded.
//!
//! The words are in the page of the process alone. A child of `fork` finds zeros: nothing is requested there.
//!
//! Not here: which functions have a gate (`cudatrace`), writing the words (`runtime`).

use crate::Image;
use crate::calls::function;
use crate::layout::LOAD;
use crate::x86::{Assembler, Cond, Mem, Op, Reg, Width};

/// u32: [`REQUESTED`] if the next call through a gate is to load the library, another number while it is loaded, and zero at other times.
pub const STATE: u64 = LOAD;
/// u32: threads that are outside of the region and will return to it.
pub const RUNNING: u64 = LOAD + 4;
/// The library's descriptor, then the socket's.
pub const DESCRIPTORS: u64 = LOAD + 16;
/// The other words of a [`Request`].
pub const FUNCTIONS: u64 = DESCRIPTORS + 2 * DESCRIPTOR;
/// A value of [`STATE`].
pub const REQUESTED: u32 = 1;
/// Packets of the thread, of a byte: it is about to load the library, and it has loaded it.
pub const BEGINS: u8 = 1;
/// See [`BEGINS`].
pub const LOADED: u8 = 2;
/// Size of a descriptor's words in bytes.
pub const DESCRIPTOR: u64 = 24;
/// Sizes of the texts in bytes.
const SYMBOL: usize = 24;
const PATH: usize = 112;

/// A descriptor of the process. Its file shows whether the program has closed it, and uses its number again.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Number.
    pub number: u32,
    /// Device and inode of the file, as stat(2) has them.
    pub file: (u64, u64),
}

impl Descriptor {
    fn words(self) -> [u64; 3] {
        [self.number.into(), self.file.0, self.file.1]
    }

    /// A descriptor from its words.
    pub fn of_words([number, device, inode]: [u64; 3]) -> Descriptor {
        Descriptor { number: number as u32, file: (device, inode) }
    }
}

/// Addresses of functions of the process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Functions {
    /// `pthread_create`
    pub pthread_create: u64,
    /// `pthread_detach`
    pub pthread_detach: u64,
    /// `dlopen`
    pub dlopen: u64,
    /// `dlsym`
    pub dlsym: u64,
    /// Signals that the thread blocks: all but those that the C library uses itself.
    pub blocked: u64,
}

/// A library to load.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The library's file.
    pub library: Descriptor,
    /// The socket for its function.
    pub socket: Descriptor,
    /// Functions to call for that.
    pub functions: Functions,
    /// Name of its function, which takes a socket: `int f(int)`.
    pub symbol: &'a str,
    /// A path of `library` in the process.
    pub path: &'a str,
}

impl Request<'_> {
    /// The words from [`DESCRIPTORS`] on: `struct load` of `load.c`.
    ///
    /// # Panics
    /// If a text is too long.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Functions { pthread_create, pthread_detach, dlopen, dlsym, blocked } = self.functions;
        let descriptors = [self.library, self.socket].map(Descriptor::words).concat();
        let words = descriptors.into_iter().chain([pthread_create, pthread_detach, dlopen, dlsym, blocked]);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        for (text, size) in [(self.symbol, SYMBOL), (self.path, PATH)] {
            assert!(text.len() < size, "`{text}` has room for a zero");
            bytes.extend(text.bytes().chain(std::iter::repeat(0)).take(size));
        }
        bytes
    }
}

/// Registers that functions may overwrite, and one for the stack pointer.
const SAVED: [Reg; 10] =
    [Reg::RBX, Reg::RAX, Reg::RCX, Reg::RDX, Reg::RSI, Reg::RDI, Reg::R8, Reg::R9, Reg::R10, Reg::R11];
/// Components of the processor's extended state: x87, SSE, AVX, and the three of AVX-512. Functions use no others.
const COMPONENTS: u64 = 0xe7;
/// Size of their area: the last one ends at 2688.
const AREA: i32 = 2688;
/// Offset of the header of XSAVE in the area, which must be zero before, and its size in bytes.
const HEADER: i32 = 512;
const HEADER_SIZE: i32 = 64;
const ALIGNMENT: i32 = 64;

/// How the extended state is saved.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum VectorState {
    /// XSAVE
    Xsave,
    /// FXSAVE, on processors without XSAVE: they have no AVX.
    Fxsave,
}

impl VectorState {
    /// `xsave64 [rsp]`, `fxsave64 [rsp]`
    fn save(self) -> [u8; 5] {
        match self {
            VectorState::Xsave => [0x48, 0x0f, 0xae, 0x24, 0x24],
            VectorState::Fxsave => [0x48, 0x0f, 0xae, 0x04, 0x24],
        }
    }

    /// `xrstor64 [rsp]`, `fxrstor64 [rsp]`
    fn restore(self) -> [u8; 5] {
        match self {
            VectorState::Xsave => [0x48, 0x0f, 0xae, 0x2c, 0x24],
            VectorState::Fxsave => [0x48, 0x0f, 0xae, 0x0c, 0x24],
        }
    }
}

/// Generates the gate for an offset in the region. `image`: code with the helpers. All registers but the flags are kept.
pub fn gate(start: u64, image: &Image, state: VectorState) -> Vec<u8> {
    let helper = |number: usize| image.helpers[number].1;
    let mut asm = Assembler::new(start);
    let components = |asm: &mut Assembler| {
        asm.mov_imm(Reg::RAX, COMPONENTS);
        asm.mov_imm(Reg::RDX, 0);
    };
    SAVED.into_iter().for_each(|reg| asm.push(reg));
    asm.mov(true, Reg::RBX, Reg::RSP);
    asm.lea(Reg::RSP, Mem::At(Reg::RSP, -AREA));
    asm.alu_imm(Op::And, true, Reg::RSP, -ALIGNMENT);
    for at in (HEADER..HEADER + HEADER_SIZE).step_by(8) {
        asm.store_imm(Width::W64, Mem::At(Reg::RSP, at), 0);
    }
    components(&mut asm);
    asm.raw(&state.save());
    asm.lea(Reg::RDI, Mem::Region(LOAD));
    asm.lea(Reg::RSI, Mem::Region(helper(function::RUN_LOAD)));
    asm.call_region(helper(function::BEGIN_LOAD));
    components(&mut asm);
    asm.raw(&state.restore());
    asm.mov(true, Reg::RSP, Reg::RBX);
    SAVED.into_iter().rev().for_each(|reg| asm.pop(reg));
    asm.ret();
    asm.finish()
}

/// Generates a call of the gate at `gate` if a library is to be loaded, or is being loaded. The stack is as at the entry of a function, so the flags are free.
pub(crate) fn pass(asm: &mut Assembler, gate: u64) {
    let nothing = asm.label();
    asm.alu_mem_imm(Op::Cmp, false, Mem::Region(STATE), 0);
    asm.jcc(Cond::Equal, nothing);
    asm.call_region(gate);
    asm.bind(nothing);
}
