//! The catalog: every query of the compiler about the machine. The command line answers from ELF files and `/proc`, tests answer
//! from literals. Paths in answers are opaque to the language.

pub mod debug_info;
mod file_id;

pub use file_id::{FileId, KERNEL};

use std::sync::Arc;
pub use wire::hook::Hook;
pub use wire::kernel_function::{KernelFunction, VMLINUX};

use crate::catalog::debug_info::{Absent, TypeId};

/// A file of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Id in the catalog.
    pub id: FileId,
    /// Path in `probe` and in messages.
    pub path: String,
    /// Known library and its major version (0: all versions have one ABI); its signature tables apply.
    pub library: Option<(cuda::Library, u32)>,
}

/// A function of a file. Several symbols at one address are one function with several names.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// All names at the address, the preferred one (dynamic, global) first; never empty; without versions.
    pub names: Vec<String>,
    /// ELF symbol version of the first name.
    pub version: Option<String>,
    /// File offset of the first instruction.
    pub offset: u64,
}

/// Position of a probe in a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// File offset of the probed instruction.
    pub offset: u64,
    /// Number of bytes that the prologue has pushed before this position; stack arguments are at that distance.
    pub stack_shift: u32,
}

/// Result of examining a position in a file's code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Landing {
    /// The start of an instruction, as far as known.
    Begins,
    /// The middle of an instruction, with the file offsets of that instruction and the next one.
    Inside {
        /// Offset of the instruction.
        begins: u64,
        /// Offset of the next instruction.
        next: u64,
    },
    /// After the end of the function.
    After {
        /// Size of the function in bytes.
        size: u64,
    },
}

/// A USDT marker, which the author of a file has placed in the code. One name may have several positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// `libnccl`
    pub provider: String,
    /// `all_reduce`
    pub name: String,
    /// File offset of the instruction.
    pub offset: u64,
    /// File offset of the semaphore, a counter of attached tracers; 0: none.
    pub semaphore: u64,
    /// Arguments in order.
    pub args: Vec<MarkerArg>,
}

/// An argument of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MarkerArg {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Two's complement.
    pub signed: bool,
    /// Location of the value at the marker.
    pub place: MarkerPlace,
}

/// Location of a marker's argument. Registers have the names in `reg`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MarkerPlace {
    /// A constant.
    Constant(i64),
    /// The low bytes of a register.
    Register(String),
    /// Memory at the sum of these values.
    Memory {
        /// Base register.
        base: Option<String>,
        /// Index register, and its factor.
        index: Option<(String, u8)>,
        /// Offset in bytes.
        offset: i64,
    },
    /// An unsupported location, as written in the file.
    Unreadable(String),
}

/// A tracepoint of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// Fields of its record.
    pub fields: Vec<RecordField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// `prev_comm`
    pub name: String,
    /// Offset in the record in bytes.
    pub offset: u32,
    /// Type.
    pub kind: RecordKind,
}

/// Type of a field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An integer.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// An address.
    Pointer {
        /// True for `char *`.
        text: bool,
    },
    /// A pointer to a struct of the kernel with this name.
    PointerTo(String),
    /// `const char *const *argv`
    Texts,
    /// `char comm[16]`
    Text(u32),
    /// `__data_loc char[] name`: text at another position of the record.
    LocatedText,
    /// `unsigned long args[6]`
    Array {
        /// Size of an element, bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
        /// Number of elements.
        count: u32,
    },
    /// An unsupported type, as a C declaration.
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

/// The driver of a kind of character devices.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DeviceDriver {
    /// Major number of the devices.
    pub major: u32,
    /// First number of the driver's version: 580 of 580.65.06.
    pub release: Option<u32>,
}

/// The reason why a target has no files.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetError {
    /// No file of this name exists now, but a traced process may still map one.
    NotYet {
        /// Searched locations, for the message.
        looked_in: Vec<String>,
    },
    /// The file does not exist, is not an ELF file, or is not readable; the text is the reason.
    Unusable(String),
}

/// The machine, as far as the language depends on it.
pub trait Catalog {
    /// The files of a target (`libcuda`, `/usr/lib/*/libc.so.6`, `./prog`); never empty if `Ok`.
    fn files(&self, target: &str) -> Result<Vec<File>, TargetError>;

    /// The files of a target that are among the given ones.
    fn files_among(&self, target: &str, among: &[FileId]) -> Vec<File>;

    /// All functions of a file, without duplicate addresses, sorted by first name.
    fn functions(&self, file: FileId) -> &[Function];

    /// Whether a symbol is an IFUNC, which the loader resolves to one of several functions.
    fn is_indirect(&self, file: FileId, name: &str) -> bool;

    /// All markers of a file.
    fn markers(&self, file: FileId) -> &[Marker];

    /// The cheapest safe position for an entry probe of the function at `offset`.
    fn entry_place(&self, file: FileId, offset: u64) -> Place;

    /// Position for a return probe, or for a session, whose two sides share one position.
    fn return_place(&self, file: FileId, offset: u64) -> Place;

    /// Examines `offset` of a file, in the function at `function` or, without it, in the function that contains
    /// the offset. A breakpoint in the middle of an instruction would change the instruction.
    fn landing(&self, file: FileId, function: Option<u64>, offset: u64) -> Landing;

    /// File offset of a virtual address in the file's code; `None` if it is not code, or unknown.
    fn address_to_offset(&self, file: FileId, address: u64) -> Option<u64>;

    /// Virtual address in the file, and size in bytes, of a variable or function.
    fn symbol(&self, file: FileId, name: &str) -> Option<(u64, u64)>;

    /// Virtual address of an offset in the file's code; the inverse of [`Catalog::address_to_offset`].
    fn offset_to_address(&self, file: FileId, offset: u64) -> Option<u64>;

    /// The declaration in the file's debug information of the function at an offset; `symbol` is the probed
    /// symbol.
    ///
    /// # Errors
    /// There is no declaration; the error is the reason.
    fn declared(&self, file: FileId, offset: u64, symbol: &str) -> Result<Arc<debug_info::Function>, Absent>;

    /// Lines of a source file with code in a file, and the address where the code begins. A line occurs once per
    /// function that has code of it. Sorted. `source` is the end of the path of the source file.
    ///
    /// # Errors
    /// There is no information; the error is the reason.
    fn source_lines(&self, file: FileId, source: &str) -> Result<Vec<(u64, u64)>, Absent>;

    /// A type of a file's debug information.
    fn declared_type(&self, id: TypeId) -> Arc<debug_info::Type>;

    /// The type of this name in a file's debug information: `point`, `ns::point`, without the keyword `struct`.
    fn declared_type_named(&self, file: FileId, name: &str) -> Option<TypeId>;

    /// The struct, union or enum of the kernel with this name, a type of [`KERNEL`].
    fn kernel_type_named(&self, name: &str) -> Option<TypeId>;

    /// The enum of the kernel with a constant of this name, a type of [`KERNEL`].
    fn kernel_enum_with(&self, constant: &str) -> Option<TypeId>;

    /// Address of a function or variable of the kernel; of a variable of each CPU the offset in the CPU's area.
    fn kernel_symbol(&self, name: &str) -> Option<u64>;

    /// Id of the cgroup (version 2) at a path; `None` if there is none.
    fn cgroup_id(&self, path: &str) -> Option<u64>;

    /// The fields of a tracepoint's record.
    ///
    /// # Errors
    /// There is no such tracepoint, or it cannot be read; the error is the reason.
    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String>;

    /// Category and name of all tracepoints.
    fn tracepoints(&self) -> Vec<(String, String)>;

    /// The arguments of a raw tracepoint, 8 bytes each.
    ///
    /// # Errors
    /// There is no such tracepoint, or it cannot be read; the error is the reason.
    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String>;

    /// Names of all raw tracepoints.
    fn raw_tracepoints(&self) -> Vec<String>;

    /// The fields of an iterator's items, 8 bytes each, as its programs get them.
    ///
    /// # Errors
    /// There is no such iterator; the error is the reason.
    fn iterator(&self, items: &str) -> Result<Tracepoint, String>;

    /// Names of all iterators: `task`.
    fn iterators(&self) -> Vec<String>;

    /// Whether functions of the kernel can be probed in this way.
    ///
    /// # Errors
    /// The kernel has no such probes; the error is the reason.
    fn kernel_hook(&self, hook: Hook) -> Result<(), String>;

    /// The functions of the kernel and its modules, sorted by name, module and address.
    fn kernel_functions(&self) -> &[KernelFunction];

    /// The functions at which trampolines can be, among [`Catalog::kernel_functions`]: traceable, and described by BTF.
    fn trampoline_functions(&self) -> &[KernelFunction];

    /// Offset of a field in a struct of the kernel, in bytes: `("task_struct", "real_parent")`.
    fn kernel_field(&self, of: &str, field: &str) -> Option<u32>;

    /// Whether programs run in the traced processes, without the kernel.
    fn runs_in_process(&self) -> bool {
        false
    }

    /// The library that is loaded into traced processes for the records of their GPUs; `None` if there is none.
    fn agent(&self) -> Option<File>;

    /// The driver of the character devices with this name, `nvidia-uvm`; `None` if no such driver is loaded.
    fn device(&self, name: &str) -> Option<DeviceDriver>;

    /// Library names for suggestions if a target is misspelled.
    fn known_targets(&self) -> Vec<String>;
}

/// Empty implementations of groups of [`Catalog`] methods, for tests: `lang::lacks!(markers, kernel)` within the
/// implementation. A test names each group that its machine lacks, so that a new method is not overlooked.
#[doc(hidden)]
#[macro_export]
macro_rules! lacks {
    ($($kind:ident),+ $(,)?) => { $($crate::lacks!(@ $kind);)+ };
    (@ all_but_functions) => {
        $crate::lacks!(later_files, indirect_functions, markers, instructions, code_addresses, code_offsets);
        $crate::lacks!(variables, debug_information, source_lines, kernel_types, kernel_symbols, iterators, kernel_fields, cgroups, records, tracepoints, kernel_functions);
        $crate::lacks!(agent, devices, known_targets);
    };
    (@ agent) => {
        fn agent(&self) -> Option<$crate::catalog::File> {
            None
        }
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
    (@ kernel_symbols) => {
        fn kernel_symbol(&self, _: &str) -> Option<u64> {
            None
        }
    };
    (@ kernel_functions) => {
        fn kernel_hook(&self, _: $crate::catalog::Hook) -> Result<(), String> {
            Err("its functions are not known here".into())
        }

        fn kernel_functions(&self) -> &[$crate::catalog::KernelFunction] {
            &[]
        }

        fn trampoline_functions(&self) -> &[$crate::catalog::KernelFunction] {
            &[]
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
    (@ iterators) => {
        fn iterator(&self, _: &str) -> Result<$crate::catalog::Tracepoint, String> {
            Err("iterators are not known here".into())
        }

        fn iterators(&self) -> Vec<String> {
            Vec::new()
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
    (@ devices) => {
        fn device(&self, _: &str) -> Option<$crate::catalog::DeviceDriver> {
            None
        }
    };
    (@ known_targets) => {
        fn known_targets(&self) -> Vec<String> {
            Vec::new()
        }
    };
}
