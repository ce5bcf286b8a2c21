//! Writes BTF: the types of maps, functions and kernel functions, for libbpf and the verifier.
//!
//! Only kinds that Linux 5.15 supports: int, pointer, array, struct, function, prototype, variable, section.
//! Source: the kernel's `Documentation/bpf/btf.rst`.

use crate::bpf::code::{Assembly, Code};
use crate::bpf::mir::Kfunc;
use rustc_hash::FxHashMap;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: u32 = 24;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;

const INT_SIGNED: u32 = 1;

/// Linkage of variables and functions.
#[derive(Copy, Clone)]
pub(super) enum Linkage {
    /// Local to this file.
    Static = 0,
    /// Visible to other files.
    Global = 1,
    /// Defined by the kernel.
    Extern = 2,
}

/// Number of a type; 0 is void.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeId(pub u32);

const VOID: TypeId = TypeId(0);

/// A variable or function in a section.
pub(super) struct SectionMember {
    pub id: TypeId,
    /// Offset in the section.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Builder of a type section.
pub(super) struct Btf {
    types: Vec<u8>,
    count: u32,
    strings: Vec<u8>,
    offsets: FxHashMap<String, u32>,
    pointers: FxHashMap<TypeId, TypeId>,
    counts: FxHashMap<u32, TypeId>,
    int: TypeId,
    long: TypeId,
}

impl Btf {
    /// A section that contains the integer types, which all other types are made of.
    pub(super) fn new() -> Btf {
        let mut btf = Btf {
            types: Vec::new(),
            count: 0,
            strings: vec![0],
            offsets: FxHashMap::from_iter([(String::new(), 0)]),
            pointers: FxHashMap::default(),
            counts: FxHashMap::default(),
            int: VOID,
            long: VOID,
        };
        btf.int = btf.integer("int", 4, INT_SIGNED);
        btf.long = btf.integer("unsigned long", 8, 0);
        btf
    }

    /// Offset of a string, which is added if it is new.
    pub(super) fn string(&mut self, text: &str) -> u32 {
        // A NUL would terminate it early.
        let text = text.split('\0').next().unwrap_or("");
        if let Some(&known) = self.offsets.get(text) {
            return known;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }

    fn word(&mut self, word: u32) {
        self.types.extend(word.to_le_bytes());
    }

    /// Begins a type. `word` is its size or the type that it refers to.
    fn start(&mut self, name: &str, kind: u32, len: usize, word: u32) -> TypeId {
        let name = self.string(name);
        [name, kind << 24 | len as u32, word].into_iter().for_each(|word| self.word(word));
        self.count += 1;
        TypeId(self.count)
    }

    fn integer(&mut self, name: &str, bytes: u32, encoding: u32) -> TypeId {
        let id = self.start(name, INT, 0, bytes);
        self.word((encoding << 24) | (8 * bytes));
        id
    }

    fn pointer(&mut self, to: TypeId) -> TypeId {
        if let Some(&known) = self.pointers.get(&to) {
            return known;
        }
        let id = self.start("", PTR, 0, to.0);
        self.pointers.insert(to, id);
        id
    }

    /// `int (*)[count]`: the encoding of a number in the description of a map.
    pub(super) fn number(&mut self, count: u32) -> TypeId {
        if let Some(&known) = self.counts.get(&count) {
            return known;
        }
        let array = self.start("", ARRAY, 0, 0);
        let int = self.int.0;
        [int, int, count].into_iter().for_each(|word| self.word(word));
        let id = self.pointer(array);
        self.counts.insert(count, id);
        id
    }

    /// A struct of pointers.
    pub(super) fn pointers(&mut self, members: &[(&str, TypeId)]) -> TypeId {
        let id = self.start("", STRUCT, members.len(), 8 * members.len() as u32);
        for (at, (name, ty)) in members.iter().enumerate() {
            let name = self.string(name);
            [name, ty.0, 64 * at as u32].into_iter().for_each(|word| self.word(word));
        }
        id
    }

    /// A global variable.
    pub(super) fn variable(&mut self, name: &str, ty: TypeId) -> TypeId {
        let id = self.start(name, VAR, 0, ty.0);
        self.word(Linkage::Global as u32);
        id
    }

    /// A section of variables or functions.
    pub(super) fn section(&mut self, name: &str, members: &[SectionMember]) {
        let size = members.last().map_or(0, |last| last.offset + last.size);
        self.start(name, DATASEC, members.len(), size);
        for member in members {
            [member.id.0, member.offset, member.size].into_iter().for_each(|word| self.word(word));
        }
    }

    fn prototype(&mut self, result: TypeId, params: &[(String, TypeId)]) -> TypeId {
        let id = self.start("", FUNC_PROTO, params.len(), result.0);
        for (name, ty) in params {
            let name = self.string(name);
            [name, ty.0].into_iter().for_each(|word| self.word(word));
        }
        id
    }

    fn function(&mut self, name: &str, prototype: TypeId, linkage: Linkage) -> TypeId {
        self.start(name, FUNC, linkage as usize, prototype.0)
    }

    /// Declares all functions, and the section of kernel functions. Returns the type of each function of the
    /// module.
    pub(super) fn functions(&mut self, assembly: &Assembly) -> Vec<TypeId> {
        let codes = assembly.codes.iter().map(|code| self.code(code)).collect();
        // Kernel functions have no offset in this file; libbpf finds them by name.
        let member = |kfunc| SectionMember { id: self.kfunc(kfunc), offset: 0, size: 0 };
        let kfuncs: Vec<_> = assembly.kfuncs.iter().map(member).collect();
        if !kfuncs.is_empty() {
            self.section(".ksyms", &kfuncs);
        }
        codes
    }

    /// `int probe(void *ctx)`, `static unsigned long callback(unsigned long a0, ...)`
    fn code(&mut self, code: &Code) -> TypeId {
        if code.section.is_some() {
            let context = self.pointer(VOID);
            let prototype = self.prototype(self.int, &[("ctx".into(), context)]);
            return self.function(&code.name, prototype, Linkage::Global);
        }
        let params: Vec<_> = (0..code.params).map(|n| (format!("a{n}"), self.long)).collect();
        let prototype = self.prototype(self.long, &params);
        self.function(&code.name, prototype, Linkage::Static)
    }

    /// A prototype that libbpf accepts. It compares kinds with the kernel's prototype: integers match integers of
    /// any size, and pointers match pointers.
    fn kfunc(&mut self, kfunc: &Kfunc) -> TypeId {
        let shape = SHAPES.iter().find(|shape| shape.name == kfunc.name);
        let (result, param) =
            shape.map_or((Kind::Integer, Kind::Integer), |shape| (shape.result, shape.param));
        let (result, param) = (self.of_kind(result), self.of_kind(param));
        let params: Vec<_> = (0..kfunc.args).map(|n| (format!("a{n}"), param)).collect();
        let prototype = self.prototype(result, &params);
        self.function(&kfunc.name, prototype, Linkage::Extern)
    }

    fn of_kind(&mut self, kind: Kind) -> TypeId {
        match kind {
            Kind::Integer => self.long,
            Kind::Number => self.pointer(self.long),
            Kind::Context => self.pointer(VOID),
            Kind::Nothing => VOID,
        }
    }

    /// The section's bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.types.len() + self.strings.len() + HEADER as usize);
        out.extend(MAGIC.to_le_bytes());
        out.extend([VERSION, 0]);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [HEADER, 0, types, types, strings] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

/// Kinds of results and parameters of kernel functions.
#[derive(Copy, Clone)]
enum Kind {
    Integer,
    /// `u64 *`
    Number,
    /// `void *`
    Context,
    /// `void`
    Nothing,
}

/// Prototype of a kernel function; by default, parameters and result are integers.
struct Shape {
    name: &'static str,
    result: Kind,
    param: Kind,
}

/// Source: `kernel/trace/bpf_trace.c` and `kernel/bpf/helpers.c`. Linux 7.0 passes the context to both session
/// functions; earlier kernels pass nothing.
const SHAPES: [Shape; 4] = [
    Shape { name: "bpf_session_is_return", result: Kind::Integer, param: Kind::Context },
    Shape { name: "bpf_session_cookie", result: Kind::Number, param: Kind::Context },
    Shape { name: "bpf_preempt_disable", result: Kind::Nothing, param: Kind::Nothing },
    Shape { name: "bpf_preempt_enable", result: Kind::Nothing, param: Kind::Nothing },
];
