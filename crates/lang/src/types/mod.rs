//! Types: from the CUDA tables and from spellings to types of the checked program; common types of two operands; printed forms.
//!
//! Enums and structs enter the program when something uses them, so that a script that prints one result carries one enum.

pub(crate) mod c_layout;
mod external;
pub mod passing;
pub mod type_ref;

use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, FileId};
use crate::hir::{Enum, EnumId, Field, Lookup, NameKind, Origin, Struct, StructId, Type};
use crate::syntax::ast::TypeName;
use crate::types::passing::{float_of, long_double};
use crate::types::type_ref::{StructRef, TypeRef};
use std::sync::Arc;

/// The enums and structs of a program under construction.
#[derive(Default)]
pub struct Types<'c> {
    /// Source of debug information.
    pub(crate) catalog: Option<&'c dyn Catalog>,
    /// Files whose debug information is searched for type names, the nearest first.
    pub visible_files: Vec<FileId>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) structs: Vec<Struct>,
    /// Origin of each struct, with the actual types of its fields. `None` for structs of the script, and for those
    /// of a running program that have not occurred again yet.
    pub(crate) origins: Vec<Option<StructRef>>,
    /// Struct of each origin.
    pub(crate) by_ref: FxHashMap<StructRef, StructId>,
    /// Structs whose layout is being computed: a struct that contains itself is damaged input.
    pub(crate) open: Vec<StructRef>,
    /// Structs that the script does not define, by name and size.
    pub(crate) by_name: FxHashMap<(String, u32), Vec<StructId>>,
    /// Types by tag: `point` for `struct point` or `enum point` of the script.
    tags: FxHashMap<String, Type>,
    /// Names that the script defines with `typedef`.
    typedefs: FxHashMap<String, Type>,
    /// Indices of the members of the script's structs.
    members: FxHashMap<StructId, FxHashMap<String, usize>>,
    /// Sizes of the script's structs, for limits.
    extents: FxHashMap<StructId, Extent>,
    /// Constants of the script's enums.
    constants: FxHashMap<String, (EnumId, i64)>,
    /// Number of structs and enums of a running program. Its script is compiled again for libraries that are
    /// loaded later, and then declares them again.
    recalled: (usize, usize),
    /// Recalled structs that were declared again with other members.
    changed: Vec<StructId>,
}

/// Size of a struct for limits: nesting depth and number of values, including those of nested structs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Nesting depth of structs, including this one.
    pub levels: usize,
    /// Number of scalar values.
    pub values: usize,
}

/// `char`
pub const CHAR: Type = Type::Int { bytes: 1, signed: true };
/// `uint8`
pub const U8: Type = Type::Int { bytes: 1, signed: false };

impl<'c> Types<'c> {
    /// Creates the types, beginning with those of a running program, which keep their ids.
    pub fn new(enums: Vec<Enum>, structs: Vec<Struct>, catalog: &'c dyn Catalog) -> Types<'c> {
        let recalled = (structs.len(), enums.len());
        let origins = vec![None; structs.len()];
        let mut types =
            Types { catalog: Some(catalog), enums, structs, origins, recalled, ..Types::default() };
        types.recall();
        types
    }

    /// Adds the types of earlier clauses of a running program.
    fn recall(&mut self) {
        for at in 0..self.structs.len() {
            let (id, def) = (StructId(at as u32), &self.structs[at]);
            match def.origin {
                Origin::Script => {
                    self.tags.insert(def.name.clone(), Type::Struct(id));
                    self.index_members(id);
                }
                Origin::Cuda | Origin::Debug => {
                    let known = cuda::find_struct(&def.name).filter(|_| def.origin == Origin::Cuda);
                    let key = (def.name.clone(), def.size);
                    self.by_name.entry(key).or_default().push(id);
                    if let Some(known) = known.map(StructRef::Cuda) {
                        self.origins[at] = Some(known);
                        self.by_ref.insert(known, id);
                    }
                }
            }
        }
        for at in 0..self.enums.len() {
            if self.enums[at].origin == Origin::Script {
                self.add_constants(EnumId(at as u32));
            }
        }
    }

    fn add_constants(&mut self, id: EnumId) {
        let def = &self.enums[id.0 as usize];
        self.constants.extend(def.variants.iter().map(|(name, value)| (name.clone(), (id, *value))));
        self.tags.insert(def.name.clone(), Type::Enum(id));
    }

    /// Declares `struct point`, without members until they are set.
    pub fn declare_struct(&mut self, name: &str) -> StructId {
        let id = self.declare_anonymous(name);
        self.tags.insert(name.into(), Type::Struct(id));
        id
    }

    /// Declares a struct without a tag; `what` is its name in messages.
    pub fn declare_anonymous(&mut self, what: &str) -> StructId {
        self.structs.push(Struct {
            name: what.into(),
            size: 0,
            align: 1,
            fields: Vec::new(),
            origin: Origin::Script,
        });
        self.origins.push(None);
        StructId(self.structs.len() as u32 - 1)
    }

    /// Sets the members of a struct.
    pub fn define_struct(&mut self, id: StructId, size: u32, align: u32, fields: Vec<Field>) {
        let before = &self.structs[id.0 as usize];
        let new = Struct { size, align, fields, ..before.clone() };
        if self.is_recalled(id) && before.size != 0 && !self.is_same_struct(before, &new) {
            self.changed.push(id);
        }
        self.structs[id.0 as usize] = new;
        self.index_members(id);
    }

    /// The first struct in a type that has other members in the running program.
    pub fn changed_in(&self, ty: &Type) -> Option<&Struct> {
        match ty {
            Type::Struct(id) if self.changed.contains(id) => Some(self.struct_def(*id)),
            Type::Struct(id) => {
                self.struct_def(*id).fields.iter().find_map(|field| self.changed_in(&field.ty))
            }
            Type::Array(element, _) => self.changed_in(element),
            Type::Tuple(parts) | Type::Record(_, parts) => {
                parts.iter().find_map(|part| self.changed_in(part))
            }
            _ => None,
        }
    }

    fn is_same_struct(&self, a: &Struct, b: &Struct) -> bool {
        let same = |(a, b): (&Field, &Field)| {
            (&a.name, a.offset, a.bits, a.float) == (&b.name, b.offset, b.bits, b.float)
                && self.is_same(&a.ty, &b.ty)
        };
        (a.size, a.align, a.fields.len()) == (b.size, b.align, b.fields.len())
            && a.fields.iter().zip(&b.fields).all(same)
    }

    /// Whether two types are equal; structs without a name are declared again each time, and pointees are ignored.
    fn is_same(&self, a: &Type, b: &Type) -> bool {
        match (a, b) {
            (Type::Struct(a), Type::Struct(b)) => {
                a == b || self.is_same_struct(self.struct_def(*a), self.struct_def(*b))
            }
            (Type::Array(a, n), Type::Array(b, m)) => n == m && self.is_same(a, b),
            (Type::Pointer(_), Type::Pointer(_)) => true,
            (a, b) => a == b,
        }
    }

    fn index_members(&mut self, id: StructId) {
        let fields = self.structs[id.0 as usize].fields.iter().enumerate();
        // If two members have one name, the first is used.
        let places = fields.rev().map(|(at, field)| (field.name.clone(), at)).collect();
        self.members.insert(id, places);
        let extents = self.struct_def(id).fields.iter().map(|field| self.extent(&field.ty));
        let joined = extents.reduce(|a, b| Extent {
            levels: a.levels.max(b.levels),
            values: a.values.saturating_add(b.values),
        });
        let Extent { levels, values } = joined.unwrap_or_default();
        self.extents.insert(id, Extent { levels: levels + 1, values });
    }

    /// Size of a type for limits; a type that is not a struct of the script is one value.
    pub fn extent(&self, ty: &Type) -> Extent {
        let one = Extent { levels: 0, values: 1 };
        match ty {
            Type::Struct(id) => self.extents.get(id).copied().unwrap_or(one),
            Type::Array(element, _) => self.extent(element),
            _ => one,
        }
    }

    /// Defines an enum of the script.
    pub fn define_enum(&mut self, name: &str, mut variants: Vec<(String, i64)>) -> EnumId {
        variants.sort_by_key(|(_, value)| *value);
        let signed = variants.iter().any(|(_, value)| *value < 0);
        self.enums.push(Enum { name: name.into(), signed, variants, origin: Origin::Script });
        let id = EnumId(self.enums.len() as u32 - 1);
        self.add_constants(id);
        id
    }

    /// The enum of a running program with this declaration.
    pub fn recalled_enum(&self, name: &str, variants: &[(String, i64)]) -> Option<EnumId> {
        let mut sorted = variants.to_vec();
        sorted.sort_by_key(|(_, value)| *value);
        let mut recalled = self.enums[..self.recalled.1].iter();
        recalled.position(|known| known.name == name && known.variants == sorted).map(|at| EnumId(at as u32))
    }

    /// Whether the enum is of a running program; another script may declare a different enum with its name.
    pub fn is_recalled_enum(&self, id: EnumId) -> bool {
        (id.0 as usize) < self.recalled.1
    }

    /// Whether the struct is of a running program.
    pub fn is_recalled(&self, id: StructId) -> bool {
        (id.0 as usize) < self.recalled.0
    }

    /// Defines a name with `typedef`.
    pub fn define_name(&mut self, name: &str, ty: Type) {
        self.typedefs.insert(name.into(), ty);
    }

    /// A struct or enum of the script by its tag.
    pub fn tagged(&self, tag: &str) -> Option<&Type> {
        self.tags.get(tag)
    }

    /// A constant of an enum of the script.
    pub fn constant(&self, name: &str) -> Option<(EnumId, i64)> {
        self.constants.get(name).copied()
    }

    /// Names of the script's own types and constants, for suggestions.
    pub fn declared_names(&self) -> impl Iterator<Item = &str> {
        self.tags.keys().chain(self.typedefs.keys()).map(String::as_str)
    }

    /// Names of the constants of the script's enums, for suggestions.
    pub fn constant_names(&self) -> impl Iterator<Item = &str> {
        self.constants.keys().map(String::as_str)
    }

    /// A member of a struct with its actual type.
    pub fn member(&mut self, id: StructId, name: &str) -> Option<Field> {
        if let Some(origin) = self.origins[id.0 as usize] {
            return self.foreign_member(origin, name);
        }
        if self.is_opaque(id) {
            let tag = self.struct_def(id).name.clone();
            return match self.declared_named(&tag)? {
                Type::Struct(known) if known != id => self.member(known, name),
                _ => None,
            };
        }
        let def = self.struct_def(id);
        let place = || def.fields.iter().position(|field| field.name == name);
        let at = match self.members.get(&id) {
            Some(members) => *members.get(name)?,
            None => place()?,
        };
        Some(def.fields[at].clone())
    }

    /// The lists of enums and structs.
    pub fn into_lists(self) -> (Vec<Enum>, Vec<Struct>) {
        (self.enums, self.structs)
    }

    /// An enum of this program.
    pub fn enum_def(&self, id: EnumId) -> &Enum {
        &self.enums[id.0 as usize]
    }

    /// The structs of this program.
    pub fn structs(&self) -> &[Struct] {
        &self.structs
    }

    /// A struct of this program.
    pub fn struct_def(&self, id: StructId) -> &Struct {
        &self.structs[id.0 as usize]
    }

    /// The type of a cast, `let` or `sizeof`; `None` if it is unknown.
    pub fn spelled(&mut self, name: &TypeName) -> Option<Type> {
        let base = self.of_name(&name.name)?;
        Some(derived(base, name.pointers, &name.dims))
    }

    /// The type of a name, without pointers and dimensions.
    fn of_name(&mut self, name: &str) -> Option<Type> {
        let spelled = name.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(ty) = builtin_type(&spelled).or_else(|| float_type(&spelled)) {
            return Some(ty);
        }
        let bare = ["struct ", "union ", "enum "].iter().find_map(|tag| spelled.strip_prefix(tag));
        let own = match bare {
            Some(tag) => self.tags.get(tag),
            None => self.typedefs.get(&spelled).or_else(|| self.tags.get(&spelled)),
        };
        let name = bare.unwrap_or(&spelled);
        match (own, cuda::find_type(name)) {
            (Some(ty), _) => Some(ty.clone()),
            (None, Some(id)) => Some(self.of(TypeRef::Cuda(id))),
            (None, None) => self.declared_named(name),
        }
    }

    /// Whether the script only declares the struct, without members: `struct file *f;`
    fn is_opaque(&self, id: StructId) -> bool {
        let def = self.struct_def(id);
        def.origin == Origin::Script && def.size == 0 && def.fields.is_empty()
    }

    /// Size of a value in memory, in bytes.
    pub fn size(&self, ty: &Type) -> u32 {
        match ty {
            Type::Void => 0,
            Type::Bool => 1,
            Type::Int { bytes, .. } | Type::Float(bytes) => u32::from(*bytes),
            Type::Enum(_) | Type::Name(_) => 4,
            Type::Pointer(_) | Type::Timestamp(_) | Type::Lookup(_) => 8,
            Type::Buf(capacity) => 4 + capacity.next_multiple_of(4),
            Type::Str(capacity) => *capacity,
            Type::Struct(id) => self.struct_def(*id).size,
            Type::Array(element, count) => self.size(element).saturating_mul(*count),
            Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => {
                let append = |at: u32, part: &Type| at.next_multiple_of(self.align(part)) + self.size(part);
                parts.iter().fold(0, append).next_multiple_of(self.align(ty))
            }
            Type::Usym | Type::Stack { .. } => 16,
            Type::Inet => 20,
        }
    }

    /// Alignment in C, in bytes.
    pub fn align(&self, ty: &Type) -> u32 {
        match ty {
            Type::Struct(id) => self.struct_def(*id).align,
            Type::Array(element, _) => self.align(element),
            Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => {
                parts.iter().map(|part| self.align(part)).max().unwrap_or(1)
            }
            Type::Buf(_) | Type::Inet => 4,
            Type::Str(_) | Type::Void => 1,
            Type::Float(bytes) => u32::from(*bytes),
            scalar => self.size(scalar).clamp(1, 8),
        }
    }

    /// The integer type of an enum's values.
    pub fn enum_int(&self, id: EnumId) -> Type {
        Type::Int { bytes: 4, signed: self.enum_def(id).signed }
    }

    /// The type that can represent the values of both types; `None` if there is none.
    pub fn join(&self, a: &Type, b: &Type) -> Option<Type> {
        use Type::*;
        Some(match (a, b) {
            (a, b) if a == b => a.clone(),
            (&Int { bytes: x, signed: s }, &Int { bytes: y, signed: t }) if s == t => {
                Int { bytes: x.max(y), signed: s }
            }
            (&Int { bytes: unsigned, signed: false }, &Int { bytes: signed, signed: true })
            | (&Int { bytes: signed, signed: true }, &Int { bytes: unsigned, signed: false }) => {
                Int { bytes: signed.max(unsigned * 2).min(8), signed: true }
            }
            (Bool, int @ Int { .. }) | (int @ Int { .. }, Bool) => int.clone(),
            (&Enum(id), other @ (Int { .. } | Bool | Enum(_))) => self.join(&self.enum_int(id), other)?,
            (other @ (Int { .. } | Bool), &Enum(id)) => self.join(other, &self.enum_int(id))?,
            (Pointer(_), Pointer(_)) => Pointer(Arc::new(Void)),
            (Pointer(_), Int { .. }) | (Int { .. }, Pointer(_)) => Type::U64,
            (Str(x), Str(y)) => Str(*x.max(y)),
            (Buf(x), Buf(y)) => Buf(*x.max(y)),
            (Tuple(x), Tuple(y)) if x.len() == y.len() => {
                Tuple(x.iter().zip(&**y).map(|(a, b)| self.join(a, b)).collect::<Option<_>>()?)
            }
            (Either(x), Either(y)) if x.len() == y.len() => {
                Either(x.iter().zip(&**y).map(|(a, b)| self.join(a, b)).collect::<Option<_>>()?)
            }
            (Record(names, x), Record(_, y)) => {
                let parts = places_of(a, b)?.into_iter().zip(&**x).map(|(at, a)| self.join(a, &y[at]));
                Record(names.clone(), parts.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// The type as text for messages.
    pub fn show(&self, ty: &Type) -> String {
        match ty {
            Type::Void => "void".into(),
            Type::Bool => "bool".into(),
            Type::Int { bytes, signed } => format!("{}int{}", if *signed { "" } else { "u" }, bytes * 8),
            Type::Enum(id) => self.enum_def(*id).name.clone(),
            Type::Pointer(to) => format!("{} *", self.show(to)),
            Type::Str(capacity) => format!("string[{capacity}]"),
            Type::Struct(id) => self.struct_def(*id).name.clone(),
            Type::Array(element, count) => format!("{}[{count}]", self.show(element)),
            Type::Tuple(parts) => format!("({})", self.show_all(parts)),
            Type::Record(names, parts) => {
                let parts =
                    names.iter().zip(&**parts).map(|(name, ty)| format!("{name} = {}", self.show(ty)));
                format!("({})", parts.collect::<Vec<_>>().join(", "))
            }
            Type::Name(NameKind::Func) => "func".into(),
            Type::Name(NameKind::Api) => "api".into(),
            Type::Name(NameKind::Probe) => "probe".into(),
            Type::Usym => "usym".into(),
            Type::Stack { user: true, .. } => "ustack".into(),
            Type::Stack { user: false, .. } => "kstack".into(),
            Type::Timestamp(_) => "timestamp".into(),
            Type::Float(4) | Type::Lookup(Lookup::Float) => "float".into(),
            Type::Float(8) | Type::Lookup(Lookup::Double) => "double".into(),
            Type::Float(_) => "long double".into(),
            Type::Lookup(lookup) => format!("the result of `{}`", lookup.function()),
            Type::Buf(capacity) => format!("buffer[{capacity}]"),
            Type::Inet => "the result of `ntop`".into(),
            Type::Either(parts) => parts[1..].iter().map(|ty| self.show(ty)).collect::<Vec<_>>().join("|"),
        }
    }

    /// Several types, separated by commas.
    pub fn show_all(&self, types: &[Type]) -> String {
        types.iter().map(|ty| self.show(ty)).collect::<Vec<_>>().join(", ")
    }
}

/// Pointers to a type, and arrays of them; `dims` begins with the outermost dimension.
pub fn derived(base: Type, pointers: u32, dims: &[u32]) -> Type {
    let pointed = (0..pointers).fold(base, |ty, _| Type::Pointer(Arc::new(ty)));
    dims.iter().rev().fold(pointed, |ty, count| Type::Array(Arc::new(ty), *count))
}
/// For each part of one tuple or record, its index in another one with the same parts: members of records match by
/// name.
pub fn places_of(one: &Type, other: &Type) -> Option<Vec<usize>> {
    match (one, other) {
        (Type::Tuple(a), Type::Tuple(b)) => (a.len() == b.len()).then(|| (0..a.len()).collect()),
        (Type::Record(names, _), Type::Record(others, _)) if names.len() == others.len() => {
            names.iter().map(|name| others.iter().position(|other| other == name)).collect()
        }
        _ => None,
    }
}

/// Names of integer types, with their size in bytes and signedness.
static INTS: &[(&[&str], u8, bool)] = &[
    (&["int8", "int8_t", "char", "signed char", "s8", "__s8"], 1, true),
    (&["uint8", "uint8_t", "unsigned char", "u8", "__u8"], 1, false),
    (&["int16", "int16_t", "short", "short int", "s16", "__s16"], 2, true),
    (&["uint16", "uint16_t", "unsigned short", "unsigned short int", "u16", "__u16"], 2, false),
    (&["int32", "int32_t", "int", "signed", "signed int", "s32", "__s32"], 4, true),
    (&["uint32", "uint32_t", "unsigned int", "unsigned", "u32", "__u32"], 4, false),
    (
        &[
            "int64",
            "int64_t",
            "long",
            "long int",
            "long long",
            "long long int",
            "ssize_t",
            "intptr_t",
            "s64",
            "__s64",
        ],
        8,
        true,
    ),
    (
        &[
            "uint64",
            "uint64_t",
            "unsigned long",
            "unsigned long int",
            "unsigned long long",
            "unsigned long long int",
            "size_t",
            "uintptr_t",
            "u64",
            "__u64",
        ],
        8,
        false,
    ),
];

fn builtin_type(name: &str) -> Option<Type> {
    match name {
        "void" => Some(Type::Void),
        "bool" | "_Bool" => Some(Type::Bool),
        _ => INTS
            .iter()
            .find(|(names, ..)| names.contains(&name))
            .map(|&(_, bytes, signed)| Type::Int { bytes, signed }),
    }
}

/// Names of types for suggestions.
pub fn builtin_type_names() -> impl Iterator<Item = &'static str> {
    INTS.iter().flat_map(|(names, ..)| names.iter().copied()).chain(["bool", "void"])
}

/// Whether the type is an array of integers.
pub fn is_integers(ty: &Type) -> bool {
    matches!(ty, Type::Array(element, _) if matches!(**element, Type::Int { .. }))
}

/// Whether the type is an array of one-byte integers.
pub fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::Array(element, _) if matches!(**element, Type::Int { bytes: 1, .. }))
}

/// Whether the type is a number that prints as the name of a GPU kernel.
pub fn is_kernel_name(ty: &Type) -> bool {
    matches!(ty, Type::Lookup(Lookup::Kernel | Lookup::KernelFull | Lookup::KernelMangled))
}

/// Whether the type fits a register: integer, bool, enum, pointer.
pub fn is_scalar(ty: &Type) -> bool {
    matches!(ty, Type::Bool | Type::Int { .. } | Type::Enum(_) | Type::Pointer(_))
}

/// `float` and other floating-point types.
fn float_type(name: &str) -> Option<Type> {
    match name {
        "float" => Some(Type::Float(4)),
        "double" => Some(Type::Float(8)),
        "long double" => Some(float_of(&long_double())),
        _ => None,
    }
}

/// Number of nested pointers and arrays.
pub fn levels(ty: &Type) -> usize {
    match ty {
        Type::Pointer(inner) | Type::Array(inner, _) => 1 + levels(inner),
        _ => 0,
    }
}

/// Number of values of a tuple or record, including nested ones; 1 for other types.
pub fn leaves(ty: &Type) -> usize {
    match ty {
        Type::Tuple(parts) | Type::Record(_, parts) => parts.iter().map(leaves).sum::<usize>().max(1),
        _ => 1,
    }
}

/// Whether an integer type can represent a value.
pub fn int_holds(ty: &Type, value: i64) -> bool {
    match *ty {
        Type::Int { bytes: 8, signed } => signed || value >= 0,
        Type::Int { bytes, signed: true } => {
            let limit = 1i64 << (bytes * 8 - 1);
            (-limit..limit).contains(&value)
        }
        Type::Int { bytes, signed: false } => (0..1i64 << (bytes * 8)).contains(&value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(bytes: u8, signed: bool) -> Type {
        Type::Int { bytes, signed }
    }

    #[test]
    fn joins() {
        let mut types = Types::default();
        let result = types.enum_id(cuda::find_enum("CUresult").unwrap());
        let tuple = |types: &[Type]| Type::Tuple(types.into());
        let cases = [
            (Type::U32, Type::U64, Some(Type::U64)),
            (Type::U32, Type::I32, Some(Type::I64)),
            (int(1, false), Type::I32, Some(Type::I32)),
            (Type::U64, Type::I64, Some(Type::I64)),
            (Type::Bool, Type::I32, Some(Type::I32)),
            (Type::Enum(result), Type::U32, Some(Type::U32)),
            (Type::Str(4), Type::Str(16), Some(Type::Str(16))),
            (Type::Str(4), Type::I64, None),
            (tuple(&[Type::U32]), tuple(&[Type::U64]), Some(tuple(&[Type::U64]))),
            (tuple(&[]), tuple(&[Type::U64]), None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(types.join(&a, &b), expected, "{a:?} {b:?}");
            assert_eq!(types.join(&b, &a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn integers_hold() {
        assert!(int_holds(&int(1, false), 255) && !int_holds(&int(1, false), 256));
        assert!(int_holds(&int(1, true), -128) && !int_holds(&int(1, true), 128));
        assert!(!int_holds(&Type::U64, -1) && int_holds(&Type::I64, i64::MIN));
    }

    #[test]
    fn spellings() {
        let mut types = Types::default();
        let mut spell = |name: &str, pointers| {
            let name = TypeName { name: name.into(), pointers, ..TypeName::bare(Default::default()) };
            let ty = types.spelled(&name)?;
            Some(types.show(&ty))
        };
        assert_eq!(spell("unsigned  int", 0).as_deref(), Some("uint32"));
        assert_eq!(spell("char", 1).as_deref(), Some("int8 *"));
        assert_eq!(spell("struct CUlaunchConfig_st", 1).as_deref(), Some("CUlaunchConfig *"));
        assert_eq!(spell("enum cudaError", 0).as_deref(), Some("cudaError_t"));
        assert_eq!(spell("struct nothing", 1), None);
    }
}
