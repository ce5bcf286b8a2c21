//! Describes types of the kernel, one level at a time. Typedefs and qualifiers are resolved; members of unnamed structs and
//! unions become members of the enclosing struct.

use super::format::{
    Head, KIND_ARRAY, KIND_ENUM, KIND_ENUM64, KIND_FLOAT, KIND_FUNC, KIND_INT, KIND_POINTER, KIND_STRUCT,
    KIND_TYPEDEF, KIND_UNION, offset_of_string, sections, string, text, types_and_tails, word,
};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Size in bytes of a constant of an enum: name and value.
const ENUM_CONSTANT: usize = 8;
const ENUM64_CONSTANT: usize = 12;
/// Bit in the info of structs whose members have sizes in bits, and of enums with signed values.
const FLAG: u32 = 1 << 31;
/// Longer chains of typedefs and deeper nesting of unnamed members occur only in invalid files.
const DEPTH: usize = 32;

/// A type, which refers to others by their ids.
pub type Type = wire::debug_info::Type<u32>;
/// Kind of a type.
pub type Kind = wire::debug_info::Kind<u32>;
/// A member of a struct.
pub type Field = wire::debug_info::Field<u32>;

/// A function of the kernel or of a module. Types are numbers for [`kernel_type`](super::kernel_type).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// C declaration.
    pub declared: String,
    /// Names and types of the parameters.
    pub params: Vec<(String, u64)>,
    /// Type of the result; `None` for `void`.
    pub ret: Option<u64>,
}

/// All types of a BTF file.
pub(crate) struct TypeIndex<'b> {
    pub(crate) data: &'b [u8],
    pub(crate) strings: &'b [u8],
    /// Type `n + 1`, and the offset of its variable part.
    types: Vec<(Head, usize)>,
    /// Ids of functions by name.
    functions: OnceLock<HashMap<&'b str, u32>>,
}

impl<'b> TypeIndex<'b> {
    pub(super) fn of(btf: &'b [u8]) -> Option<TypeIndex<'b>> {
        let (data, strings) = sections(btf)?;
        Some(TypeIndex { data, strings, types: types_and_tails(data).collect(), functions: OnceLock::new() })
    }

    /// The types of a module, whose ids and strings continue those of the kernel. The index lives for ever.
    pub(super) fn of_module(kernel: &TypeIndex<'_>, own: &[u8]) -> Option<TypeIndex<'static>> {
        let (data, strings) = sections(own)?;
        let data: &'static [u8] = [kernel.data, data].concat().leak();
        let strings: &'static [u8] = [kernel.strings, strings].concat().leak();
        Some(TypeIndex { data, strings, types: types_and_tails(data).collect(), functions: OnceLock::new() })
    }

    /// The declaration of a function; `number` converts ids of types.
    pub(super) fn function(&self, name: &str, number: impl Fn(u32) -> u64) -> Option<Function> {
        const PARAMETER: usize = 8;
        let (function, _) = self.at(self.function_id(name)?)?;
        let (prototype, tail) = self.at(function.type_id)?;
        let parameter = |n: usize| {
            let (name, ty) =
                (word(self.data, tail + PARAMETER * n)?, word(self.data, tail + PARAMETER * n + 4)?);
            let name = string(self.strings, name)?;
            Some((if name.is_empty() { format!("_{}", n + 1) } else { name }, ty))
        };
        let params: Vec<(String, u32)> =
            (0..prototype.members() as usize).map(parameter).collect::<Option<_>>()?;
        // A parameter without type stands for `...`.
        let shown: Vec<String> = params
            .iter()
            .map(|(name, ty)| if *ty == 0 { "...".into() } else { self.declared(*ty, name) })
            .collect();
        let declared = format!("{}({})", self.declared(prototype.type_id, name), shown.join(", "));
        let params = params.into_iter().filter(|(_, ty)| *ty != 0);
        Some(Function {
            declared,
            params: params.map(|(name, ty)| (name, number(ty))).collect(),
            ret: Some(prototype.type_id).filter(|&id| id != 0).map(number),
        })
    }

    /// Id of a function.
    pub(super) fn function_id(&self, name: &str) -> Option<u32> {
        let functions = self.functions.get_or_init(|| {
            let all = (1..).zip(&self.types).filter(|(_, (head, _))| head.kind() == KIND_FUNC);
            all.filter_map(|(id, (head, _))| Some((text(self.strings, head.name)?, id))).collect()
        });
        functions.get(name).copied()
    }

    /// The struct, union or enum of this name.
    pub(super) fn named(&self, name: &str) -> Option<u32> {
        let wanted = offset_of_string(self.strings, name)?;
        let is = |(head, _): &(Head, usize)| {
            head.name == wanted && matches!(head.kind(), KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64)
        };
        self.types.iter().position(is).map(|at| at as u32 + 1)
    }

    /// The enum with this constant.
    pub(super) fn enum_with(&self, constant: &str) -> Option<u32> {
        let wanted = offset_of_string(self.strings, constant)?;
        let has = |(head, tail): &(Head, usize)| {
            let each = match head.kind() {
                KIND_ENUM => ENUM_CONSTANT,
                KIND_ENUM64 => ENUM64_CONSTANT,
                _ => return false,
            };
            let mut constants = (0..head.members() as usize).map(|n| tail + each * n);
            constants.any(|at| word(self.data, at) == Some(wanted))
        };
        self.types.iter().position(has).map(|at| at as u32 + 1)
    }

    pub(crate) fn at(&self, id: u32) -> Option<&(Head, usize)> {
        self.types.get((id as usize).checked_sub(1)?)
    }

    /// The type without typedefs and qualifiers: its id, and the name of the last typedef.
    fn resolved(&self, id: u32) -> (u32, u32) {
        let (mut id, mut name) = (id, 0);
        for _ in 0..DEPTH {
            match self.at(id) {
                Some((head, _)) if head.renames() => {
                    if head.kind() == KIND_TYPEDEF {
                        name = head.name;
                    }
                    id = head.type_id;
                }
                _ => break,
            }
        }
        (id, name)
    }

    /// One level of a type.
    pub(super) fn describe(&self, id: u32) -> Option<Type> {
        let (id, alias) = self.resolved(id);
        let Some((head, tail)) = self.at(id) else {
            return Some(Type { name: String::new(), kind: Kind::Void });
        };
        let named = if head.name != 0 { head.name } else { alias };
        let kind = match head.kind() {
            KIND_INT => self.int(head, *tail)?,
            KIND_POINTER => Kind::Pointer(Some(self.resolved(head.type_id).0).filter(|&to| to != 0)),
            KIND_ARRAY => Kind::Array(word(self.data, *tail)?, word(self.data, tail + 8)?),
            KIND_STRUCT | KIND_UNION => {
                let mut fields = Vec::new();
                self.members(id, 0, DEPTH, &mut fields)?;
                Kind::Struct { size: head.type_id, fields }
            }
            KIND_ENUM | KIND_ENUM64 => self.enumeration(head, *tail)?,
            KIND_FLOAT => Kind::Other { size: head.type_id },
            _ => Kind::Void,
        };
        Some(Type { name: string(self.strings, named)?, kind })
    }

    fn int(&self, head: &Head, tail: usize) -> Option<Kind> {
        let encoding = word(self.data, tail)? >> 24;
        Some(match head.type_id {
            1 if encoding & 4 != 0 => Kind::Bool,
            bytes @ (1 | 2 | 4 | 8) => Kind::Int { bytes: bytes as u8, signed: encoding & 1 != 0 },
            size => Kind::Other { size },
        })
    }

    fn enumeration(&self, head: &Head, tail: usize) -> Option<Kind> {
        let wide = head.kind() == KIND_ENUM64;
        let signed = head.info & FLAG != 0;
        let each = if wide { ENUM64_CONSTANT } else { ENUM_CONSTANT };
        let variant = |n: usize| {
            let at = tail + each * n;
            let low = word(self.data, at + 4)?;
            let value = match (wide, signed) {
                (true, _) => (u64::from(word(self.data, at + 8)?) << 32 | u64::from(low)) as i64,
                (false, true) => i64::from(low as i32),
                (false, false) => i64::from(low),
            };
            Some((string(self.strings, word(self.data, at)?)?, value))
        };
        let variants = (0..head.members() as usize).map(variant).collect::<Option<_>>()?;
        Some(Kind::Enum { bytes: head.type_id as u8, signed, variants })
    }

    /// Appends the members of a struct that begins `base` bytes into the described one.
    fn members(&self, id: u32, base: u32, depth: usize, fields: &mut Vec<Field>) -> Option<()> {
        const MEMBER: usize = 12;
        let (head, tail) = self.at(id)?;
        let depth = depth.checked_sub(1)?;
        for n in 0..head.members() as usize {
            let at = tail + MEMBER * n;
            let (name, ty, place) =
                (word(self.data, at)?, word(self.data, at + 4)?, word(self.data, at + 8)?);
            let (count, bit) = match head.info & FLAG != 0 {
                true => (place >> 24, place & 0xff_ffff),
                false => (0, place),
            };
            let inner = self.resolved(ty).0;
            let unnamed =
                self.at(inner).is_some_and(|(head, _)| matches!(head.kind(), KIND_STRUCT | KIND_UNION));
            match name {
                0 if unnamed => self.members(inner, base + bit / 8, depth, fields)?,
                0 => {}
                _ => fields.push(self.field(string(self.strings, name)?, ty, base, bit, count)?),
            }
        }
        Some(())
    }

    /// A member at bit `bit` of a struct that begins `base` bytes into the described one; `count` is the number of bits of a bit-field,
    /// 0 for others.
    fn field(&self, name: String, ty: u32, base: u32, bit: u32, count: u32) -> Option<Field> {
        if count == 0 {
            return Some(Field { name, offset: base + bit / 8, ty, bits: None });
        }
        // A bit-field is within a unit of its type.
        let unit = match self.at(self.resolved(ty).0)?.0.type_id {
            bytes @ (1 | 2 | 4 | 8) => bytes,
            _ => return None,
        };
        let start = bit / (8 * unit) * unit;
        Some(Field { name, offset: base + start, ty, bits: Some(((bit - 8 * start) as u8, count as u8)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::btf::format::file;
    use crate::kernel::btf::{is_there, kernel_type, kernel_type_named};

    #[test]
    fn members_of_unnamed_structs_and_bit_fields_have_offsets() {
        let strings = b"\0int\0s\0a\0b\0c\0t\0";
        let (int, s, a, b, c, t) = (1, 5, 7, 9, 11, 13);
        let types: [&[u32]; 7] = [
            &[int, 1 << 24, 4, 1 << 24 | 32],                                    // 1: int
            &[0, 5 << 24 | 1, 4, b, 1, 0],                                       // 2: union { int b; }
            &[s, FLAG | 4 << 24 | 3, 12, a, 1, 0, 0, 2, 32, c, 4, 3 << 24 | 69], // 3: struct s { int a; union; t c : 3; }
            &[t, 8 << 24, 1],                                                    // 4: typedef int t
            &[0, 2 << 24, 3],                                                    // 5: struct s *
            &[0, 3 << 24, 0, 5, 1, 6],                                           // 6: (struct s *)[6]
            &[t, 8 << 24, 2],                                                    // 7: typedef union { } t
        ];
        let bytes = file(strings, &types.concat());
        let all = TypeIndex::of(&bytes).expect("BTF");
        let id = all.named("s").expect("a struct");
        let field = |name: &str, offset, ty, bits| Field { name: name.into(), offset, ty, bits };
        let fields = vec![field("a", 0, 1, None), field("b", 4, 1, None), field("c", 8, 4, Some((5, 3)))];
        assert_eq!(
            all.describe(id),
            Some(Type { name: "s".into(), kind: Kind::Struct { size: 12, fields } })
        );
        let kind = |id| all.describe(id).expect("a type").kind;
        assert_eq!(kind(4), Kind::Int { bytes: 4, signed: true }, "typedefs are resolved");
        assert_eq!(kind(5), Kind::Pointer(Some(3)));
        assert_eq!(kind(6), Kind::Array(5, 6));
        assert_eq!(all.describe(7).expect("a type").name, "t", "an unnamed type has the name of its typedef");
        assert_eq!(all.named("a"), None, "a member is no type");
    }

    #[test]
    fn truncated_types_are_unknown() {
        let bytes = file(b"\0s\0a\0", &[1, 4 << 24 | 2, 8, 3, 1, 0]);
        for end in 0..bytes.len() {
            let all = TypeIndex::of(&bytes[..end]);
            all.iter().for_each(|all| (1..3).for_each(|id| drop(all.describe(id))));
        }
        let ring = file(b"\0", &[0, 8 << 24, 1]);
        assert!(TypeIndex::of(&ring).expect("BTF").describe(1).is_some_and(|ty| ty.kind == Kind::Void));
    }

    #[test]
    fn this_kernel_describes_its_tasks() {
        if !is_there() {
            eprintln!("skipped: this kernel has no BTF");
            return;
        }
        let task = kernel_type(kernel_type_named("task_struct").expect("a struct").into()).expect("a type");
        let Kind::Struct { fields, .. } = task.kind else { panic!("{task:?}") };
        let ty = |name: &str| {
            let field = fields.iter().find(|field| field.name == name).expect(name);
            kernel_type(field.ty.into()).expect("a type").kind
        };
        assert_eq!(ty("tgid"), Kind::Int { bytes: 4, signed: true });
        assert!(matches!(ty("comm"), Kind::Array(_, 16)));
        assert!(matches!(ty("real_parent"), Kind::Pointer(Some(_))));
    }
}
