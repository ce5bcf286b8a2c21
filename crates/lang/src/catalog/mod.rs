//! The catalog: every query of the compiler about the machine. The command line answers from ELF files and `/proc`, tests answer
//! from literals. Paths in answers are opaque to the language.

pub mod debug_info;

use std::sync::Arc;

use crate::catalog::debug_info::{Absent, TypeId};

/// A file that can be probed, as an index into the catalog's own list.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Stands for the kernel, whose types are told as those of a file are: by its BTF.
pub const KERNEL: FileId = FileId(u32::MAX);

/// A file that a target name stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The catalog's name for it.
    pub id: FileId,
    /// What `probe` and messages show.
    pub path: String,
    /// Known library and its major version (0: the library has one ABI for all), whose signature tables apply.
    pub library: Option<(cuda::Library, u32)>,
}

/// A function of a file. Several symbols at one address are one function with several names.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// All names at the address, the preferred (dynamic, global) first; never empty; versions stripped.
    pub names: Vec<String>,
    /// ELF symbol version of the first name.
    pub version: Option<String>,
    /// File offset of the first instruction.
    pub offset: u64,
}

/// Where a probe of a function goes in the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// File offset of the probed instruction.
    pub offset: u64,
    /// Bytes that the prologue has already pushed there: stack arguments lie that much higher.
    pub stack_shift: u32,
}

/// What is at a place in a file's code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Landing {
    /// An instruction begins there, as far as anybody can tell.
    Begins,
    /// The middle of an instruction: the file offsets of it and of the next one.
    Inside {
        /// It.
        begins: u64,
        /// The next one.
        next: u64,
    },
    /// Behind the end of the function, which has so many bytes.
    Behind {
        /// Bytes.
        size: u64,
    },
}

/// A marker that a file's author put into the code for tracers: `usdt`. One name may stand at several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// `libnccl`
    pub provider: String,
    /// `all_reduce`
    pub name: String,
    /// File offset of the instruction.
    pub offset: u64,
    /// File offset of the counter that tells the program that somebody listens; 0: there is none.
    pub semaphore: u64,
    /// What is passed on, in order.
    pub args: Vec<MarkerArg>,
}

/// A value that a marker passes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MarkerArg {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Two's complement.
    pub signed: bool,
    /// Where it is when the marker is passed.
    pub place: MarkerPlace,
}

/// Where a marker's value is. Registers have the names that `reg` takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MarkerPlace {
    /// Always the same.
    Constant(i64),
    /// The low bytes of it.
    Register(String),
    /// In memory, at the sum of these.
    Memory {
        /// A register.
        base: Option<String>,
        /// Another one, and what it is multiplied by.
        index: Option<(String, u8)>,
        /// Bytes.
        offset: i64,
    },
    /// Somewhere that cannot be read: as the file says it.
    Unreadable(String),
}

/// A tracepoint of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// What its record holds.
    pub fields: Vec<RecordField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// `prev_comm`
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: u32,
    /// What it is.
    pub kind: RecordKind,
}

/// What a field of a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A number.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// An address, of text or of something else.
    Pointer {
        /// `char *`
        text: bool,
    },
    /// The address of a struct that the kernel declares, by its name.
    PointerTo(String),
    /// `const char *const *argv`
    Texts,
    /// `char comm[16]`
    Text(u32),
    /// `__data_loc char[] name`: text elsewhere in the record.
    LocatedText,
    /// `unsigned long args[6]`
    Array {
        /// Size of an element, bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
        /// Elements.
        count: u32,
    },
    /// Something that scripts cannot read, as C declares it.
    Other(String),
}

impl std::fmt::Display for RecordKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let int = |bytes: u8, signed: bool| format!("{}int{}", if signed { "" } else { "u" }, bytes * 8);
        match self {
            RecordKind::Int { bytes, signed } => f.write_str(&int(*bytes, *signed)),
            RecordKind::Array { bytes, signed, count } => write!(f, "{}[{count}]", int(*bytes, *signed)),
            RecordKind::Pointer { text: true } => f.write_str("char *"),
            RecordKind::Pointer { text: false } => f.write_str("void *"),
            RecordKind::Texts => f.write_str("char **"),
            RecordKind::PointerTo(name) => write!(f, "struct {name} *"),
            RecordKind::Text(bytes) => write!(f, "char[{bytes}]"),
            RecordKind::LocatedText => f.write_str("string"),
            RecordKind::Other(declared) => f.write_str(declared),
        }
    }
}

/// Why a target name stands for nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetError {
    /// Nothing of this name now; a traced process may still map it. `looked_in` says where we looked.
    NotYet {
        /// Places searched, for the message.
        looked_in: Vec<String>,
    },
    /// No such file, not an ELF file, not readable ...: the reason in words.
    Unusable(String),
}

/// The machine as the language sees it.
pub trait Catalog {
    /// The files that a target (`libcuda`, `/usr/lib/*/libc.so.6`, `./prog`) stands for; never empty when `Ok`.
    fn files(&self, target: &str) -> Result<Vec<File>, TargetError>;

    /// The files among these that a target stands for.
    fn files_among(&self, target: &str, among: &[FileId]) -> Vec<File>;

    /// All functions of a file, each address once, sorted by first name.
    fn functions(&self, file: FileId) -> &[Function];

    /// Whether a symbol stands for one of several functions, of which the loader takes one (IFUNC).
    fn is_indirect(&self, file: FileId, name: &str) -> bool;

    /// All markers of a file.
    fn markers(&self, file: FileId) -> &[Marker];

    /// Cheapest safe place for an entry probe of the function at `offset`.
    fn entry_place(&self, file: FileId, offset: u64) -> Place;

    /// Place for a return probe, or a session whose two sides share one place.
    fn return_place(&self, file: FileId, offset: u64) -> Place;

    /// What is at `offset` of a file, in the function that begins at `function` or in whichever has that place. A breakpoint in the
    /// middle of an instruction makes another one of it.
    fn landing(&self, file: FileId, function: Option<u64>, offset: u64) -> Landing;

    /// File offset of a virtual address in the file's code; `None` where it has no code, or nobody can tell.
    fn address_to_offset(&self, file: FileId, address: u64) -> Option<u64>;

    /// Virtual address in the file, and size in bytes, of a variable or function.
    fn symbol(&self, file: FileId, name: &str) -> Option<(u64, u64)>;

    /// Virtual address of a place in the file's code; the other way round than [`Catalog::address_to_offset`].
    fn offset_to_address(&self, file: FileId, offset: u64) -> Option<u64>;

    /// What the file's debug information declares of the function at an offset, by this symbol.
    ///
    /// # Errors
    /// Nothing: why.
    fn declared(&self, file: FileId, offset: u64, symbol: &str) -> Result<Arc<debug_info::Function>, Absent>;

    /// Lines of a source file that have code in a file, and the address where that begins; a line is there once for each function that
    /// has code of it. Sorted. `source` is the end of the path of the source file.
    ///
    /// # Errors
    /// Nothing is known: why.
    fn source_lines(&self, file: FileId, source: &str) -> Result<Vec<(u64, u64)>, Absent>;

    /// A type of a file's debug information.
    fn declared_type(&self, id: TypeId) -> Arc<debug_info::Type>;

    /// The type of this name in a file's debug information: `point`, `ns::point`, without `struct` before it.
    fn declared_type_named(&self, file: FileId, name: &str) -> Option<TypeId>;

    /// The struct, union or enum of this name that the kernel declares, a type of [`KERNEL`].
    fn kernel_type_named(&self, name: &str) -> Option<TypeId>;

    /// The enum that the kernel declares with a constant of this name, a type of [`KERNEL`].
    fn kernel_enum_with(&self, constant: &str) -> Option<TypeId>;

    /// Id of the cgroup (version 2) at a path; `None` if there is none.
    fn cgroup_id(&self, path: &str) -> Option<u64>;

    /// What a tracepoint's record holds.
    ///
    /// # Errors
    /// There is none, or nobody can tell: why.
    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String>;

    /// Category and name of all tracepoints.
    fn tracepoints(&self) -> Vec<(String, String)>;

    /// What a tracepoint passes on, each in 8 bytes.
    ///
    /// # Errors
    /// There is none, or nobody can tell: why.
    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String>;

    /// Names of all raw tracepoints.
    fn raw_tracepoints(&self) -> Vec<String>;

    /// Where a field lies in a struct of the kernel, in bytes: `("task_struct", "real_parent")`.
    fn kernel_field(&self, of: &str, field: &str) -> Option<u32>;

    /// Library names worth suggesting when a target is misspelled.
    fn known_targets(&self) -> Vec<String>;
}

/// Answers of a [`Catalog`] that has nothing of a kind, for tests: `lang::lacks!(markers, kernel)` within its implementation.
/// A test names each kind that its machine lacks, so that a new question to catalogs is forgotten nowhere.
#[doc(hidden)]
#[macro_export]
macro_rules! lacks {
    ($($kind:ident),+ $(,)?) => { $($crate::lacks!(@ $kind);)+ };
    (@ all_but_functions) => {
        $crate::lacks!(later_files, indirect_functions, markers, instructions, code_addresses, code_offsets);
        $crate::lacks!(variables, debug_information, source_lines, kernel_types, kernel_fields, cgroups, records, tracepoints);
        $crate::lacks!(known_targets);
    };
    (@ later_files) => {
        fn files_among(&self, _: &str, _: &[$crate::catalog::FileId]) -> Vec<$crate::catalog::File> {
            Vec::new()
        }
    };
    (@ indirect_functions) => {
        fn is_indirect(&self, _: $crate::catalog::FileId, _: &str) -> bool {
            false
        }
    };
    (@ markers) => {
        fn markers(&self, _: $crate::catalog::FileId) -> &[$crate::catalog::Marker] {
            &[]
        }
    };
    (@ instructions) => {
        fn landing(&self, _: $crate::catalog::FileId, _: Option<u64>, _: u64) -> $crate::catalog::Landing {
            $crate::catalog::Landing::Begins
        }
    };
    (@ code_addresses) => {
        fn address_to_offset(&self, _: $crate::catalog::FileId, _: u64) -> Option<u64> {
            None
        }
    };
    (@ code_offsets) => {
        fn offset_to_address(&self, _: $crate::catalog::FileId, _: u64) -> Option<u64> {
            None
        }
    };
    (@ variables) => {
        fn symbol(&self, _: $crate::catalog::FileId, _: &str) -> Option<(u64, u64)> {
            None
        }
    };
    (@ debug_information) => {
        fn declared(
            &self,
            _: $crate::catalog::FileId,
            _: u64,
            _: &str,
        ) -> Result<std::sync::Arc<$crate::catalog::debug_info::Function>, $crate::catalog::debug_info::Absent> {
            Err($crate::catalog::debug_info::Absent::NoInformation { looked_for: Vec::new() })
        }

        fn declared_type(&self, _: $crate::catalog::debug_info::TypeId) -> std::sync::Arc<$crate::catalog::debug_info::Type> {
            std::sync::Arc::new($crate::catalog::debug_info::Type { name: String::new(), kind: $crate::catalog::debug_info::Kind::Void })
        }

        fn declared_type_named(
            &self,
            _: $crate::catalog::FileId,
            _: &str,
        ) -> Option<$crate::catalog::debug_info::TypeId> {
            None
        }
    };
    (@ source_lines) => {
        fn source_lines(
            &self,
            _: $crate::catalog::FileId,
            _: &str,
        ) -> Result<Vec<(u64, u64)>, $crate::catalog::debug_info::Absent> {
            Err($crate::catalog::debug_info::Absent::NoInformation { looked_for: Vec::new() })
        }
    };
    (@ kernel_types) => {
        fn kernel_type_named(&self, _: &str) -> Option<$crate::catalog::debug_info::TypeId> {
            None
        }

        fn kernel_enum_with(&self, _: &str) -> Option<$crate::catalog::debug_info::TypeId> {
            None
        }
    };
    (@ kernel_fields) => {
        fn kernel_field(&self, _: &str, _: &str) -> Option<u32> {
            None
        }
    };
    (@ cgroups) => {
        fn cgroup_id(&self, _: &str) -> Option<u64> {
            None
        }
    };
    (@ records) => {
        fn tracepoint(&self, _: &str, _: &str) -> Result<$crate::catalog::Tracepoint, String> {
            Err("tracepoints are not known here".into())
        }

        fn raw_tracepoint(&self, _: &str) -> Result<$crate::catalog::Tracepoint, String> {
            Err("tracepoints are not known here".into())
        }
    };
    (@ tracepoints) => {
        fn tracepoints(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn raw_tracepoints(&self) -> Vec<String> {
            Vec::new()
        }
    };
    (@ known_targets) => {
        fn known_targets(&self) -> Vec<String> {
            Vec::new()
        }
    };
}
