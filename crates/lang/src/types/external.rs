//! Types from outside of the script: those of the CUDA tables and of debug information become types of the program.
//!
//! A type enters the program when something uses it, level by level: a pointer in a struct stays opaque until a script follows it.
//! Every compilation unit declares its types anew. Equal structs are merged here, so that functions of several units share a
//! program and a map.

use std::sync::Arc;

use crate::catalog::{KERNEL, debug_info};
use crate::hir::{Enum, EnumId, Field, Origin, Struct, StructId, Type};
use crate::limits::MAX_DEPTH;
use crate::types::passing::long_double;
use crate::types::type_ref::{EnumRef, Shape, StructRef, TypeRef};
use crate::types::{CHAR, Types, U8};

/// A member of a struct in the tables or debug information.
struct Member {
    name: String,
    offset: u32,
    ty: TypeRef,
    bits: Option<(u8, u8)>,
}

/// A struct in the tables or debug information.
struct StructDeclaration {
    name: String,
    /// Size in bytes.
    size: u32,
    members: Vec<Member>,
}

impl Types<'_> {
    /// One level of a type.
    pub fn shape(&self, ty: TypeRef) -> Shape {
        match ty {
            TypeRef::Void => Shape::Void,
            TypeRef::Cuda(id) => Shape::of_tables(cuda::ty(id).kind),
            TypeRef::Debug(id) => self.declared_shape(id),
        }
    }

    fn declared(&self, id: debug_info::TypeId) -> Arc<debug_info::Type> {
        let nothing = || Arc::new(debug_info::Type { name: String::new(), kind: debug_info::Kind::Void });
        self.catalog.map_or_else(nothing, |catalog| catalog.declared_type(id))
    }

    fn declared_shape(&self, id: debug_info::TypeId) -> Shape {
        match self.declared(id).kind {
            debug_info::Kind::Void => Shape::Void,
            debug_info::Kind::Other { size } => Shape::Bytes(size),
            debug_info::Kind::Bool => Shape::Bool,
            debug_info::Kind::Int { bytes, signed } => Shape::Int { bytes, signed },
            debug_info::Kind::Float { bytes } => Shape::Float { bytes },
            debug_info::Kind::Enum { .. } => Shape::Enum(EnumRef::Debug(id)),
            debug_info::Kind::Pointer(to) => Shape::Pointer(to.map_or(TypeRef::Void, TypeRef::Debug)),
            debug_info::Kind::Struct { .. } => Shape::Struct(StructRef::Debug(id)),
            debug_info::Kind::Array(element, count) => Shape::Array(TypeRef::Debug(element), count),
        }
    }

    /// Whether the type is a floating-point number, or an array of them.
    pub fn is_float(&self, ty: TypeRef) -> bool {
        let mut ty = ty;
        for _ in 0..MAX_DEPTH {
            match self.shape(ty) {
                Shape::Float { .. } => return true,
                Shape::Array(element, _) => ty = element,
                _ => return false,
            }
        }
        false
    }

    /// The type in scripts.
    pub fn of(&mut self, ty: TypeRef) -> Type {
        self.seen(ty, MAX_DEPTH)
    }

    fn seen(&mut self, ty: TypeRef, levels: usize) -> Type {
        let Some(levels) = levels.checked_sub(1) else { return Type::Void };
        match self.shape(ty) {
            Shape::Enum(id) => self.enum_type(id),
            Shape::Float { bytes } => Type::Float(bytes),
            Shape::Pointer(to) => Type::Pointer(Arc::new(self.seen(to, levels))),
            Shape::Text => Type::Pointer(Arc::new(CHAR)),
            Shape::Array(element, count) => array_of(self.seen(element, levels), count),
            _ => self.plain(ty),
        }
    }

    /// A type of the same size and the same parameter passing, without further properties.
    pub fn plain(&mut self, ty: TypeRef) -> Type {
        self.plain_within(ty, MAX_DEPTH)
    }

    fn plain_within(&mut self, ty: TypeRef, levels: usize) -> Type {
        let Some(levels) = levels.checked_sub(1) else { return Type::Void };
        match self.shape(ty) {
            Shape::Void => Type::Void,
            Shape::Bool => Type::Bool,
            Shape::Int { bytes, signed } => Type::Int { bytes, signed },
            Shape::Float { bytes: 16 } => long_double(),
            Shape::Float { bytes } => Type::Int { bytes, signed: false },
            Shape::Enum(id) => self.enum_bits(id),
            Shape::Pointer(_) | Shape::Text | Shape::Address => Type::Pointer(Arc::new(Type::Void)),
            Shape::Struct(id) => self.struct_of(id, levels).map_or(Type::Void, Type::Struct),
            Shape::Array(element, count) => array_of(self.plain_within(element, levels), count),
            Shape::Bytes(count) => bytes(count),
        }
    }

    /// The integer type of an enum's values.
    fn enum_bits(&self, id: EnumRef) -> Type {
        match id {
            EnumRef::Cuda(id) => Type::Int { bytes: 4, signed: cuda::enum_def(id).signed },
            EnumRef::Debug(id) => match self.declared(id).kind {
                debug_info::Kind::Enum { bytes, signed, .. } => Type::Int { bytes, signed },
                _ => Type::U32,
            },
        }
    }

    /// The type of an enum; an enum that is not 4 bytes wide is only an integer.
    fn enum_type(&mut self, id: EnumRef) -> Type {
        match self.enum_bits(id) {
            Type::Int { bytes: 4, .. } => Type::Enum(self.enum_of(id)),
            bits => bits,
        }
    }

    /// The enum with the names of a type's values, if the type is less than 4 bytes wide.
    pub fn named(&mut self, ty: TypeRef) -> Option<EnumId> {
        let Shape::Enum(id) = self.shape(ty) else { return None };
        let narrow = matches!(self.enum_bits(id), Type::Int { bytes: 1 | 2, .. });
        narrow.then(|| self.enum_of(id))
    }

    fn enum_of(&mut self, id: EnumRef) -> EnumId {
        match id {
            EnumRef::Cuda(id) => self.enum_id(id),
            EnumRef::Debug(id) => self.declared_enum(id),
        }
    }

    /// An enum of the CUDA tables.
    pub fn enum_id(&mut self, id: cuda::EnumId) -> EnumId {
        let known = cuda::enum_def(id);
        let named = |e: &Enum| e.origin == Origin::Cuda && e.name == known.name;
        if let Some(at) = self.enums.iter().position(named) {
            return EnumId(at as u32);
        }
        let variants = known.variants.iter().map(|&(name, value)| (name.to_string(), value)).collect();
        self.add_enum(Enum { name: known.name.into(), signed: known.signed, variants, origin: Origin::Cuda })
    }

    fn declared_enum(&mut self, id: debug_info::TypeId) -> EnumId {
        let declared = self.declared(id);
        let debug_info::Kind::Enum { signed, variants, .. } = &declared.kind else {
            unreachable!("only for enums")
        };
        let mut variants = variants.clone();
        variants.sort_by_key(|(_, value)| *value);
        let name = if declared.name.is_empty() { "enum" } else { &declared.name };
        let found = Enum { name: name.into(), signed: *signed, variants, origin: Origin::Debug };
        match self.enums.iter().position(|known| *known == found) {
            Some(at) => EnumId(at as u32),
            None => self.add_enum(found),
        }
    }

    fn add_enum(&mut self, def: Enum) -> EnumId {
        self.enums.push(def);
        EnumId(self.enums.len() as u32 - 1)
    }

    /// A constant of an enum of debug information that is the type of something in the program.
    pub fn declared_constant(&self, name: &str) -> Option<(EnumId, i64)> {
        let enums = self.enums.iter().enumerate().filter(|(_, def)| def.origin == Origin::Debug);
        let mut found = enums.filter_map(|(at, def)| {
            // In C++ the constant is `color::red`, in the enum it is `red`.
            let bare = name.strip_prefix(def.name.as_str()).and_then(|rest| rest.strip_prefix("::"));
            let (_, value) = def.variants.iter().find(|(known, _)| known == bare.unwrap_or(name))?;
            Some((EnumId(at as u32), *value))
        });
        found.next()
    }

    /// A constant of an enum of the kernel.
    pub fn kernel_constant(&mut self, name: &str) -> Option<(Type, i64)> {
        let id = self.catalog?.kernel_enum_with(name)?;
        let debug_info::Kind::Enum { variants, .. } = &self.declared(id).kind else { return None };
        let (_, value) = variants.iter().find(|(known, _)| known == name)?;
        let ty = match self.enum_type(EnumRef::Debug(id)) {
            ty @ Type::Enum(_) => ty,
            _ => Type::I64,
        };
        Some((ty, *value))
    }

    /// The struct or union of this name in the visible files or in the kernel.
    pub fn declared_struct(&mut self, name: &str) -> Option<Type> {
        self.declared_named(name).filter(|ty| matches!(ty, Type::Struct(_)))
    }

    /// Names of constants of enums of debug information, for suggestions.
    pub fn declared_constants(&self) -> impl Iterator<Item = &str> {
        let enums = self.enums.iter().filter(|def| def.origin == Origin::Debug);
        enums.flat_map(|def| &def.variants).map(|(name, _)| name.as_str())
    }

    /// Adds a struct, and the structs that it contains; `None` if they contain each other endlessly.
    fn struct_of(&mut self, id: StructRef, levels: usize) -> Option<StructId> {
        if let Some(known) = self.by_ref.get(&id) {
            return Some(*known);
        }
        levels.checked_sub(1)?;
        if self.open.contains(&id) {
            return None;
        }
        self.open.push(id);
        let StructDeclaration { name, size, members } = self.layout(id);
        let fields: Vec<Field> = members
            .iter()
            .map(|member| {
                let ty = self.plain_within(member.ty, levels - 1);
                self.field(member, ty, size)
            })
            .collect();
        self.open.pop();
        let align = match id {
            StructRef::Cuda(id) => cuda::struct_def(id).align,
            StructRef::Debug(_) => self.natural_align(size, &fields),
        };
        let origin = match id {
            StructRef::Cuda(_) => Origin::Cuda,
            StructRef::Debug(_) => Origin::Debug,
        };
        let found = self.alike(id, Struct { name, size, align, fields, origin });
        self.by_ref.insert(id, found);
        Some(found)
    }

    /// An equal struct of the program; the struct is added if there is none.
    fn alike(&mut self, id: StructRef, def: Struct) -> StructId {
        let same = |known: &&StructId| {
            let (at, known) = (known.0 as usize, self.struct_def(**known));
            known.origin == def.origin
                && same_places(known, &def)
                && self.origins[at].is_none_or(|other| self.gist(other) == self.gist(id))
        };
        let key = (def.name.clone(), def.size);
        let known = self.by_name.get(&key).and_then(|ids| ids.iter().find(same)).copied();
        let found = known.unwrap_or_else(|| {
            self.structs.push(def);
            self.origins.push(None);
            let added = StructId(self.structs.len() as u32 - 1);
            self.by_name.entry(key).or_default().push(added);
            added
        });
        self.origins[found.0 as usize].get_or_insert(id);
        found
    }

    /// Kinds and names of the members of a struct and of their pointees, which distinguish structs with equal
    /// names in two units.
    fn gist(&self, id: StructRef) -> Vec<(std::mem::Discriminant<Shape>, String)> {
        let name = |ty: TypeRef| match ty {
            TypeRef::Debug(id) => self.declared(id).name.clone(),
            _ => String::new(),
        };
        let StructDeclaration { members, .. } = self.layout(id);
        let of = |member: &Member| match self.shape(member.ty) {
            shape @ Shape::Pointer(to) => (std::mem::discriminant(&shape), name(to)),
            shape => (std::mem::discriminant(&shape), name(member.ty)),
        };
        members.iter().map(of).collect()
    }

    /// The declaration of a struct in the tables or debug information.
    fn layout(&self, id: StructRef) -> StructDeclaration {
        match id {
            StructRef::Cuda(id) => {
                let def = cuda::struct_def(id);
                let member = |field: &cuda::Field| Member {
                    name: field.name.into(),
                    offset: field.offset,
                    ty: TypeRef::Cuda(field.ty),
                    bits: None,
                };
                let members = def.fields.iter().map(member).collect();
                StructDeclaration { name: def.name.into(), size: def.size, members }
            }
            StructRef::Debug(id) => {
                let declared = self.declared(id);
                let debug_info::Kind::Struct { size, fields } = &declared.kind else {
                    unreachable!("only for structs")
                };
                let member = |field: &debug_info::Field| Member {
                    name: field.name.clone(),
                    offset: field.offset,
                    ty: TypeRef::Debug(field.ty),
                    bits: field.bits,
                };
                let name = if declared.name.is_empty() { "struct" } else { &declared.name };
                let members = fields.iter().map(member).collect();
                StructDeclaration { name: name.into(), size: *size, members }
            }
        }
    }

    /// The alignment that the members require; 1 if the struct is packed and their offsets violate it.
    fn natural_align(&self, size: u32, fields: &[Field]) -> u32 {
        let wide = |field: &Field| field.float && field.ty == long_double();
        let of = |field: &Field| if wide(field) { 16 } else { self.align(&field.ty).max(1) };
        let align = fields.iter().map(of).max().unwrap_or(1);
        let fits = |field: &Field| field.bits.is_some() || field.offset.is_multiple_of(of(field));
        if size.is_multiple_of(align) && fields.iter().all(fits) { align } else { 1 }
    }

    /// A member of a struct with its actual type.
    pub(crate) fn foreign_member(&mut self, id: StructRef, name: &str) -> Option<Field> {
        let StructDeclaration { size, members, .. } = self.layout(id);
        let member = members.iter().find(|member| member.name == name)?;
        let ty = self.of(member.ty);
        Some(Field { named: self.named(member.ty), ..self.field(member, ty, size) })
    }

    /// A member of a struct of `size` bytes. A member beyond the end has only a name: its declaration is damaged.
    fn field(&self, member: &Member, ty: Type, size: u32) -> Field {
        let bytes_of = |(first, count): (u8, u8)| (u32::from(first) + u32::from(count)).div_ceil(8);
        let end = member.offset.checked_add(member.bits.map_or_else(|| self.size(&ty), bytes_of));
        let fits = end.is_some_and(|end| end <= size) && ty != Type::Void;
        Field {
            name: member.name.clone(),
            offset: if fits { member.offset } else { 0 },
            ty: if fits { ty } else { bytes(0) },
            bits: bits(member).filter(|_| fits),
            float: fits && self.is_float(member.ty),
            named: None,
        }
    }

    /// Sets the types of a struct's members for printing, when it occurs as a value: enums get their names.
    pub fn complete(&mut self, id: StructId) {
        self.complete_within(id, MAX_DEPTH);
    }

    fn complete_within(&mut self, id: StructId, levels: usize) {
        let Some(origin) = self.origins[id.0 as usize] else { return };
        let Some(levels) = levels.checked_sub(1) else { return };
        let StructDeclaration { size, members, .. } = self.layout(origin);
        for (at, member) in members.iter().enumerate() {
            let ty = self.printed(member.ty, levels);
            self.structs[id.0 as usize].fields[at].ty = self.field(member, ty, size).ty;
        }
    }

    fn printed(&mut self, ty: TypeRef, levels: usize) -> Type {
        let Some(levels) = levels.checked_sub(1) else { return Type::Void };
        match self.shape(ty) {
            Shape::Enum(id) => self.enum_type(id),
            Shape::Array(element, count) => array_of(self.printed(element, levels), count),
            Shape::Struct(inner) => match self.struct_of(inner, levels) {
                Some(inner) => {
                    self.complete_within(inner, levels);
                    Type::Struct(inner)
                }
                None => Type::Void,
            },
            _ => self.plain(ty),
        }
    }

    /// The type of this name in the debug information of the visible files, or else of the kernel, whose types are known in all clauses.
    pub fn declared_named(&mut self, name: &str) -> Option<Type> {
        let catalog = self.catalog?;
        let mut of_files = self.visible_files.iter().filter(|file| **file != KERNEL);
        match of_files.find_map(|file| catalog.declared_type_named(*file, name)) {
            Some(found) => Some(self.of(TypeRef::Debug(found))),
            None => self.kernel_named(name),
        }
    }

    /// The type of this name in the kernel.
    pub fn kernel_named(&mut self, name: &str) -> Option<Type> {
        let found = self.catalog?.kernel_type_named(name)?;
        Some(self.of(TypeRef::Debug(found)))
    }
}

/// A C array; in damaged debug information the elements may have no type.
fn array_of(element: Type, count: u32) -> Type {
    if element == Type::Void { Type::Void } else { Type::Array(Arc::new(element), count) }
}

fn bytes(count: u32) -> Type {
    Type::Array(Arc::new(U8), count)
}

fn bits(member: &Member) -> Option<crate::hir::Bits> {
    member.bits.map(|(first, count)| crate::hir::Bits { first, count })
}

/// Whether the members have the same names and positions.
fn same_places(a: &Struct, b: &Struct) -> bool {
    let place = |field: &Field| (field.offset, field.bits);
    a.fields.len() == b.fields.len()
        && a.fields.iter().zip(&b.fields).all(|(a, b)| a.name == b.name && place(a) == place(b))
}
