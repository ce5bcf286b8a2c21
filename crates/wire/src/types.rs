//! Types of values in records and maps, their sizes, and offsets in tuples.

use serde::{Deserialize, Serialize};

/// A name that the BPF program writes as a small integer and the reader prints as text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NameKind {
    /// `func`: the symbol that was called.
    Func,
    /// `api`: name of its symbol family.
    Api,
    /// `probe`: `uprobe:PATH:SYMBOL`.
    Probe,
}

/// Print format of a stack.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StackMode {
    /// 8 spaces and `symbol+offset`.
    #[default]
    Bpftrace,
    /// Tab, hex address, `symbol+offset`, `(file)`.
    Perf,
    /// Hex addresses.
    Raw,
    /// `main;work;cuLaunchKernel`: outermost first, on one line, for flame graphs.
    Folded,
    /// Build id and offset in the file, for offline symbolisation.
    BuildId,
    /// As [`StackMode::Bpftrace`], without the frames of Python.
    Native,
    /// The frames of Python alone.
    Python,
    /// The innermost frame of Python that is of no library and its callers, then what it calls; without the frames that start a program.
    Site,
    /// The innermost frame of Python as its file and line, on one line.
    Line,
    /// The same of the innermost frame that is of no library.
    OwnLine,
    /// The innermost frame of Python as its function, on one line.
    Function,
    /// The same of the innermost frame that is of no library.
    OwnFunction,
    /// The text of the line of the innermost frame of Python.
    Source,
    /// The class of PyTorch's module whose method `forward` is the innermost one, on one line.
    Module,
}

impl StackMode {
    /// Whether a stack has frames of Python.
    pub fn has_python(self) -> bool {
        !matches!(self, StackMode::Native | StackMode::Raw | StackMode::BuildId)
    }

    /// Whether a stack has frames of Python only.
    pub fn is_python(self) -> bool {
        self == StackMode::Python || self.is_one_frame()
    }

    /// Whether it is a file with a line.
    pub fn is_line(self) -> bool {
        matches!(self, StackMode::Line | StackMode::OwnLine)
    }

    /// Whether it is a function.
    pub fn is_function(self) -> bool {
        matches!(self, StackMode::Function | StackMode::OwnFunction | StackMode::Module)
    }

    /// Whether frames of libraries are passed over.
    pub fn is_own(self) -> bool {
        matches!(self, StackMode::OwnLine | StackMode::OwnFunction)
    }

    /// Whether it is one frame, printed without a line of its own.
    pub fn is_one_frame(self) -> bool {
        self == StackMode::Source || self.is_line() || self.is_function()
    }
}

/// The treatment of a clause without attach points.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingProbes {
    /// The script is rejected.
    #[default]
    Error,
    /// A warning.
    Warn,
    /// The clause is skipped silently.
    Ignore,
}

/// The type of a value. In memory values are little endian, with the size and alignment of [`Type::size`] and
/// [`Type::align`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// 1 byte.
    Bool,
    /// 1, 2, 4 or 8 bytes.
    Int {
        /// Size.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// 4 or 8 bytes, IEEE 754; 16 bytes: x87 extended precision (10 bytes and 6 of padding).
    Float(u8),
    /// 4 bytes.
    Enum {
        /// An index into [`crate::Manifest::enums`].
        id: u32,
        /// Two's complement.
        signed: bool,
    },
    /// 8 bytes, printed in hex.
    Pointer,
    /// Text in this number of bytes, terminated by a NUL and zero-filled after it.
    Str(u32),
    /// Consecutive values, aligned.
    Tuple(Vec<Type>),
    /// A tuple with a name for each part.
    Record(Vec<String>, Vec<Type>),
    /// Members with the offsets of the C compiler.
    Struct(Struct),
    /// Consecutive elements, without gaps.
    Array(Box<Type>, u32),
    /// Text in this number of bytes, up to a NUL or to the end.
    Chars(u32),
    /// 4 bytes; an index into the manifest's table of names of that kind.
    Name(NameKind),
    /// `u64 address, u32 tgid, u32 0`.
    Usym,
    /// `u32 id, u32 tgid`; the id is a key of stack map [`crate::manifest::Manifest::stacks`]`[map]`; `u32::MAX`:
    /// no stack.
    Stack {
        /// Index into the manifest's stack maps.
        map: u32,
        /// Print format.
        mode: StackMode,
    },
    /// 8 bytes: boot-clock ns, printed by the strftime format.
    Timestamp(String),
    /// 8 bytes, signed: a number that the reader resolves to text.
    Lookup(Lookup),
    /// `u32 length` and this number of bytes, zero-filled after the length.
    Buf(u32),
    /// `u32 family` and 16 bytes in network order; IPv4 uses the first four.
    Inet,
    /// One of several variants: a tuple whose first part, a u32, is the index of the valid part.
    Either(Vec<Type>),
}

/// Meaning of a number that is resolved when it is printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lookup {
    /// `comm(pid)`: name of a process.
    Comm,
    /// `strerror(n)`: description of an errno.
    Error,
    /// `signal_name(n)`: `Killed`.
    Signal,
    /// `syscall_name(n)`: `openat`.
    Syscall,
    /// `username(uid)`: login name.
    User,
    /// `cgroup_path(id)`: path under the mounted hierarchy.
    CgroupPath,
    /// `macaddr(bytes)`: `00:16:3e:4f:00:01`; the value has six bytes, the first in the lowest byte.
    Mac,
    /// `ksym(address)`: symbol of the kernel.
    Ksym,
    /// `size_text(bytes)`: `1.5 MiB`.
    Size,
    /// `time_text(ns)`: `12.3 us`.
    Time,
    /// `percent_text(part, whole)`: `40`; the value is in tenths of a percent.
    Percent,
    /// `kernel_name(h)`: demangled and shortened name of a GPU kernel; the value is the number of the name.
    Kernel,
    /// `kernel_name(h, full)`: demangled name; the value is the number of the name.
    KernelFull,
    /// `kernel_name(h, mangled)`: name as in the driver; the value is the number of the name.
    KernelMangled,
    /// `device_uuid`: the value is the number of the UUID.
    DeviceUuid,
    /// `device_pci`: `0000:1b:00.0`; the value has PCI domain, bus, device and function in 16, 8, 5 and 3 bits.
    DevicePci,
    /// `error_text(e)` of a `CUresult`.
    DriverResult,
    /// `error_text(e)` of a `cudaError_t`.
    RuntimeResult,
    /// The value of a `float *`'s target, as its bits.
    Float,
    /// The value of a `double *`'s target, as its bits.
    Double,
}

impl Lookup {
    /// The unit of its number, as a word of names.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Lookup::Size => Some("bytes"),
            Lookup::Time => Some("ns"),
            Lookup::Percent => Some("percent"),
            _ => None,
        }
    }

    /// The function's name in scripts.
    pub fn function(self) -> &'static str {
        match self {
            Lookup::Comm => "comm",
            Lookup::Error => "strerror",
            Lookup::Float => "float",
            Lookup::Double => "double",
            Lookup::Kernel | Lookup::KernelFull | Lookup::KernelMangled => "kernel_name",
            Lookup::DeviceUuid => "device_uuid",
            Lookup::DevicePci => "device_pci",
            Lookup::DriverResult | Lookup::RuntimeResult => "error_text",
            Lookup::Signal => "signal_name",
            Lookup::Syscall => "syscall_name",
            Lookup::User => "username",
            Lookup::CgroupPath => "cgroup_path",
            Lookup::Mac => "macaddr",
            Lookup::Ksym => "ksym",
            Lookup::Size => "size_text",
            Lookup::Time => "time_text",
            Lookup::Percent => "percent_text",
        }
    }
}

/// A C struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Struct {
    /// Bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Members in order.
    pub members: Vec<Member>,
}

/// A member of a C struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Offset in bytes from the start.
    pub offset: u32,
    /// Its type.
    pub ty: Type,
    /// For a bit-field: its first bit in the integer, and its number of bits.
    pub bits: Option<(u8, u8)>,
}

impl Type {
    /// Size in memory in bytes.
    pub fn size(&self) -> u32 {
        match self {
            Type::Bool => 1,
            Type::Int { bytes, .. } | Type::Float(bytes) => u32::from(*bytes),
            Type::Enum { .. } | Type::Name(_) => 4,
            Type::Pointer | Type::Timestamp(_) | Type::Lookup(_) | Type::Stack { .. } => 8,
            Type::Buf(capacity) => 4 + capacity.next_multiple_of(4),
            Type::Usym => 16,
            Type::Inet => 20,
            Type::Str(capacity) | Type::Chars(capacity) => *capacity,
            Type::Struct(def) => def.size,
            Type::Array(element, count) => element.size() * count,
            Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => tuple(parts).size,
        }
    }

    /// Alignment in bytes.
    pub fn align(&self) -> u32 {
        match self {
            Type::Str(_) | Type::Chars(_) => 1,
            Type::Struct(def) => def.align,
            Type::Array(element, _) => element.align(),
            Type::Stack { .. } | Type::Buf(_) | Type::Inet => 4,
            Type::Usym => 8,
            Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => {
                parts.iter().map(Type::align).max().unwrap_or(1)
            }
            scalar => scalar.size(),
        }
    }
}

/// Offsets of a sequence of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of each value in bytes.
    pub offsets: Vec<u32>,
    /// Total size in bytes, a multiple of `align`.
    pub size: u32,
    /// Largest alignment.
    pub align: u32,
}

impl Offsets {
    /// The `(offset, length)` of the padding between and after `parts`, which a writer must zero.
    pub fn padding(&self, parts: &[Type]) -> Vec<(u32, u32)> {
        let ends = self.offsets.iter().zip(parts).map(|(offset, part)| offset + part.size());
        let next = self.offsets.iter().skip(1).copied().chain([self.size]);
        ends.zip(next).filter(|(end, next)| end < next).map(|(end, next)| (end, next - end)).collect()
    }
}

/// Lays out consecutive values, as in a C struct.
pub fn tuple(parts: &[Type]) -> Offsets {
    let align = parts.iter().map(Type::align).max().unwrap_or(1);
    let mut at = 0u32;
    let mut offsets = Vec::with_capacity(parts.len());
    for part in parts {
        at = at.next_multiple_of(part.align());
        offsets.push(at);
        at += part.size();
    }
    Offsets { offsets, size: at.next_multiple_of(align), align }
}

/// Layout of a map's key: its parts as a tuple. A scalar map has one key, a u32 0.
pub fn key(parts: &[Type]) -> Offsets {
    if parts.is_empty() { Offsets { offsets: vec![], size: 4, align: 4 } } else { tuple(parts) }
}
