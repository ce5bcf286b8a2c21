//! The BPF object of a compiled script as x86-64 code for the traced process itself: a probe there is a jump, not a trap.
//!
//! ```text
//! object -> object/ (functions, maps, references) -> layout (what lies where) -> translate, calls (x86) -> Image
//! function of the process -> site (the instructions that give way to a jump), program (what calls the programs)
//! ```
//!
//! Bytes in, bytes out: nothing here touches a process.

#![forbid(unsafe_code)]

mod calls;
pub mod context;
pub mod layout;
pub mod load;
pub mod object;
pub mod program;
mod registers;
pub mod returns;
pub mod site;
pub mod survey;
mod translate;
mod translator;
pub mod unwind;
pub mod x86;

pub use layout::{Layout, Placement};

use object::Object;
use x86::{Assembler, Label};

/// How the number of the CPU is found.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CpuNumber {
    /// `struct rseq` at this offset from the thread control block (`__rseq_offset` of glibc).
    Rseq(i32),
    /// The instruction RDPID.
    Rdpid,
    /// The limit of the segment that the kernel keeps for `getcpu`.
    Segment,
}

/// How the number of the thread is found.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ThreadId {
    /// A 32-bit word at this offset from the thread control block.
    Stored(i32),
    /// The system call `gettid`, until the id is found in the thread control block.
    Asked {
        /// Offset at which it is looked for, by RDFSBASE; 0: it is not looked for.
        expected_at: u32,
    },
    /// The word at [`layout::TID`]: the tracer runs programs on behalf of others.
    Word,
}

/// How the time is found.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The time stamp counter, with the numbers at [`layout::CLOCKS`].
    Counter,
    /// The system call `clock_gettime`.
    Asked,
}

/// Facts about the traced process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Number of possible CPUs.
    pub cpus: u32,
    /// How a thread finds its CPU.
    pub cpu: CpuNumber,
    /// How a thread finds its id.
    pub thread: ThreadId,
    /// How it finds the time.
    pub time: TimeSource,
    /// Memory that stack walks read; `None`: there are no tables.
    pub unwind: Option<Unwind>,
}

impl Process {
    /// Whether this is the tracer, which runs programs on behalf of others: these must not read its memory.
    fn is_tracer(&self) -> bool {
        self.thread == ThreadId::Word
    }
}

/// Memory that stack walks read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Unwind {
    /// Address of the [tables](unwind).
    pub tables: u64,
    /// Offset in the region of the memory for [`returns`], which is zero if no return is traced.
    pub returns: u64,
}

/// Implementation of the helpers for process and time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Helpers query the process in which they run.
    Process(Process),
    /// Helpers call functions whose addresses are at [`layout::REPLACED`], and the CPU's number is a word: for tests.
    Replaced {
        /// Number of possible CPUs.
        cpus: u32,
    },
}

/// The reason why an object cannot run in a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// An instruction without translation.
    #[error("instruction {at} of `{function}` ({code:#018x}) has no translation")]
    Instruction {
        /// Symbol.
        function: String,
        /// Number of the instruction.
        at: usize,
        /// Its bytes.
        code: u64,
    },
    /// A helper that only the kernel has.
    #[error("instruction {at} of `{function}` calls {name}, which only the kernel has")]
    Helper {
        /// Symbol.
        function: String,
        /// Number of the instruction.
        at: usize,
        /// Name of the kernel function, or number of the helper.
        name: String,
    },
    /// A part of the language that only the kernel has, as the end of a sentence.
    #[error("only the kernel {0}")]
    Language(&'static str),
    /// A kind of map that only the kernel has.
    #[error("map `{0}` is of a kind that only the kernel has")]
    Map(String),
}

/// Code of an object for the region of a process.
#[derive(Clone, Debug)]
pub struct Image {
    /// Offset of the code in the region.
    pub start: u64,
    /// Code.
    pub code: Vec<u8>,
    /// Functions of the object: symbol, offset in the region. A function gets the address of its [context](program) in rdi and keeps
    /// the registers that a C function keeps.
    pub functions: Vec<(String, u64)>,
    /// Symbols of those that read vector registers.
    pub vector_readers: Vec<String>,
    /// Compiled helpers behind them: name, offset in the region.
    pub helpers: Vec<(&'static str, u64)>,
    /// Offsets in the region of the descriptions of the object's maps, by index in [`Object::maps`].
    pub descriptions: Vec<u64>,
}

impl Image {
    /// Offset in the region of the byte behind the code.
    pub fn end(&self) -> u64 {
        self.start + self.code.len() as u64
    }

    /// Whether a function reads vector registers.
    pub fn reads_vectors(&self, symbol: &str) -> bool {
        self.vector_readers.iter().any(|name| name == symbol)
    }

    /// Offset in the region of a function.
    pub fn function(&self, symbol: &str) -> Option<u64> {
        self.functions.iter().find(|(name, _)| name == symbol).map(|(_, offset)| *offset)
    }
}

fn context<'a>(
    object: &'a Object,
    layout: &'a Layout,
    placement: &'a Placement,
    head: &'a translator::Head,
    environment: &'a Environment,
    asm: &mut Assembler,
) -> translator::Context<'a> {
    let functions = object.functions.iter().map(|_| asm.label()).collect();
    let helpers = calls::function::ALL.iter().map(|_| asm.label()).collect();
    let end = asm.label();
    translator::Context { object, layout, placement, head, environment, helpers, functions, end }
}

/// Translates an object, whose data have places in a layout. The code is for an offset in the region, a multiple of 16.
pub fn translate(
    object: &Object,
    layout: &Layout,
    placement: &Placement,
    environment: &Environment,
    start: u64,
) -> Result<Image, TranslateError> {
    let mut maps = placement.maps.iter().map(|map| &layout.maps[*map]);
    if let Some(map) = maps.find(|map| !map.is_supported()) {
        return Err(TranslateError::Map(map.def.name.clone()));
    }
    let head = translator::Head::new(object, layout, placement, start);
    let mut asm = Assembler::new(start);
    asm.raw(&head.bytes);
    let context = context(object, layout, placement, &head, environment, &mut asm);
    for number in 0..object.functions.len() {
        translate::function(&context, &mut asm, number)?;
    }
    asm.align(16);
    for (label, (_, offset)) in context.helpers.iter().zip(calls::function::ALL) {
        asm.bind_ahead(*label, offset);
    }
    asm.raw(calls::CODE);
    asm.bind(context.end);
    let offset = |label: &Label| asm.offset(*label).expect("every label is bound");
    let names = object.functions.iter().map(|function| function.name.clone());
    let functions = names.zip(context.functions.iter().map(offset)).collect();
    let names = calls::function::ALL.iter().map(|(name, _)| *name);
    let helpers = names.zip(context.helpers.iter().map(offset)).collect();
    let readers = object.functions.iter().filter(|function| function.reads_vectors());
    let vector_readers = readers.map(|function| function.name.clone()).collect();
    let code = asm.finish();
    Ok(Image { start, code, functions, vector_readers, helpers, descriptions: head.descriptions })
}
