//! C declarations of a script: structs, unions, enums and typedefs become types.
//!
//! ```text
//! struct point { int x; char name[4]; };      point: size 8, x int32 at 0, name int8[4] at 4
//! ```
//!
//! `types::c_layout` computes the offsets of members.

use crate::builtins::args::Args;
use crate::check::Checker;
use crate::hir::{StructId, Type};
use crate::limits;
use crate::limits::MAX_DEPTH;
use crate::source::span::Span;
use crate::syntax::ast::{
    CType, Compound, Declaration, Declarator, Enumeration, Expr, Member, Name, TypeName,
};
use crate::types::c_layout::{Layout, MemberLayout};
use crate::types::passing::{float_of, long_double};
use crate::types::{derived, int_holds, levels};

/// The type of a member. For a floating-point number, it is the unsigned integer of the same size.
struct MemberType {
    ty: Type,
    float: bool,
}

impl Checker<'_> {
    /// `struct point { int x; };` `typedef struct point *point_t;`
    pub(crate) fn declare(&mut self, declaration: &Declaration) {
        if declaration.names.is_empty() {
            self.declare_base(&declaration.base);
            return;
        }
        let named = name_unnamed(&declaration.base, &declaration.names);
        let Some(base) = self.base(named.as_ref().unwrap_or(&declaration.base)) else { return };
        for name in &declaration.names {
            let Some(declared) = self.declared(&base, name) else { continue };
            match &name.name {
                Some(name) => self.types.define_name(&name.node, declared.ty),
                None => self.declared_without_name(name.span),
            }
        }
    }

    /// Declares the tags that a declaration defines, so that earlier uses find them and not the kernel's.
    pub(crate) fn declare_tags(&mut self, base: &CType) {
        let CType::Compound(compound) = base else { return };
        if let Some(name) = compound.name.as_ref().filter(|name| self.types.tagged(&name.node).is_none()) {
            self.types.declare_struct(&name.node);
        }
        compound.members.iter().for_each(|member| self.declare_tags(&member.base));
    }

    /// A declaration without names: a struct or enum, or a forward declaration.
    fn declare_base(&mut self, base: &CType) {
        match base {
            CType::Named(name) => {
                let tag = name.name.strip_prefix("struct ").or(name.name.strip_prefix("union "));
                if let Some(tag) = tag.filter(|_| self.types.spelled(name).is_none()) {
                    self.tag(tag);
                }
            }
            _ => {
                self.base(base);
            }
        }
    }

    fn declared_without_name(&mut self, span: Span) {
        self.error("E0240", span, "a name is missing here").help("write `TYPE NAME;`");
    }

    /// The type before the names.
    fn base(&mut self, base: &CType) -> Option<MemberType> {
        match base {
            CType::Named(name) => self.base_named(name),
            CType::Compound(compound) => self.compound(compound).map(|id| integer(Type::Struct(id))),
            CType::Enumeration(e) => self.enumeration(e).map(integer),
        }
    }

    fn base_named(&mut self, name: &TypeName) -> Option<MemberType> {
        match name.name.as_str() {
            "float" => return Some(MemberType { ty: Type::U32, float: true }),
            "double" => return Some(MemberType { ty: Type::U64, float: true }),
            "long double" => return Some(MemberType { ty: long_double(), float: true }),
            _ => {}
        }
        let tag = name.name.strip_prefix("struct ").or(name.name.strip_prefix("union "));
        match tag {
            // An incomplete struct: pointers to it are allowed.
            Some(tag) if self.types.spelled(name).is_none() => Some(integer(Type::Struct(self.tag(tag)))),
            _ => self.spelled(name).map(integer),
        }
    }

    /// The struct of this tag, declared now if it is new.
    fn tag(&mut self, tag: &str) -> StructId {
        match self.types.tagged(tag) {
            Some(Type::Struct(id)) => *id,
            _ => self.types.declare_struct(tag),
        }
    }

    /// Applies a declarator to its base type.
    fn declared(&mut self, base: &MemberType, name: &Declarator) -> Option<MemberType> {
        let mut dims = Vec::new();
        for dim in &name.dims {
            dims.push(match dim {
                Some(dim) => self.length(dim)?,
                None => 0,
            });
        }
        let pointed = name.pointers > 0 || name.function;
        let inner = match (name.function, base.float && pointed) {
            // Functions cannot be used, so a pointer to one is `void *`.
            (true, _) => Type::Void,
            (false, true) => float_of(&base.ty),
            (false, false) => base.ty.clone(),
        };
        let ty = derived(inner, name.pointers.max(u32::from(name.function)), &dims);
        if levels(&ty) > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} nested pointers and arrays");
            self.error("E0007", name.span, message);
            return None;
        }
        Some(MemberType { ty, float: base.float && !pointed })
    }

    fn length(&mut self, e: &Expr) -> Option<u32> {
        let length = self.constant(e, "the length of an array")?;
        if !(0..=i64::from(limits::STRUCT_BYTES)).contains(&length) {
            let message = format!("an array has from 0 to {} elements", limits::STRUCT_BYTES);
            self.error("E0222", e.span, message);
            return None;
        }
        Some(length as u32)
    }

    fn compound(&mut self, compound: &Compound) -> Option<StructId> {
        let id = match &compound.name {
            Some(name) => self.new_tag(name)?,
            None => self.types.declare_anonymous(if compound.union { "union" } else { "struct" }),
        };
        let mut layout = Layout::new(compound.union, compound.packed);
        for member in &compound.members {
            self.member_declared(member, &mut layout);
        }
        let MemberLayout { size, align, fields } = layout.finish(compound.align);
        if size > limits::STRUCT_BYTES {
            let message = format!("this takes {size} bytes, {} at most", limits::STRUCT_BYTES);
            self.error("E0222", compound.span, message);
        }
        self.types.define_struct(id, size, align, fields);
        if self.types.extent(&Type::Struct(id)).levels > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} nested structs");
            self.error("E0007", compound.span, message).help("point to one of them");
            self.types.define_struct(id, size, align, Vec::new());
        }
        Some(id)
    }

    /// The struct of a tag without members.
    fn new_tag(&mut self, name: &Name) -> Option<StructId> {
        match self.types.tagged(&name.node) {
            Some(Type::Struct(id)) if self.types.struct_def(*id).size == 0 || self.types.is_recalled(*id) => {
                Some(*id)
            }
            Some(_) => {
                let error = self.error("E0241", name.span, format!("`{}` is declared twice", name.node));
                error.help("keep one of the two, or give one another name");
                None
            }
            None => Some(self.types.declare_struct(&name.node)),
        }
    }

    fn member_declared(&mut self, member: &Member, layout: &mut Layout) {
        let Some(base) = self.base(&member.base) else { return };
        if member.names.is_empty() {
            match base.ty {
                Type::Struct(id) => layout.embed(self.types.struct_def(id)),
                _ => self.declared_without_name(member_span(member)),
            }
            return;
        }
        for name in &member.names {
            if let Some(declared) = self.declared(&base, name) {
                self.place_member(declared, name, layout);
            }
        }
    }

    fn place_member(&mut self, mut declared: MemberType, name: &Declarator, layout: &mut Layout) {
        self.complete_struct(&mut declared.ty);
        let real = if declared.float { float_of(&declared.ty) } else { declared.ty.clone() };
        let (size, align) = (self.types.size(&real), self.types.align(&real));
        let text = name.name.as_ref().map_or("", |name| name.node.as_str());
        if !text.is_empty() && layout.has(text) {
            self.error("E0241", name.span, format!("member `{text}` is declared twice"));
            return;
        }
        if let Some(bits) = &name.bits {
            if let Some(count) = self.bit_count(bits, &declared, size) {
                layout.bits(text, declared.ty, size, count);
            }
            return;
        }
        match (&name.name, &declared.ty) {
            (None, _) => self.declared_without_name(name.span),
            (_, Type::Void) => {
                self.error("E0240", name.span, format!("member `{text}` has no size: `void` is not a value"));
            }
            (_, Type::Struct(id)) if size == 0 => {
                let message =
                    format!("the members of `{}` are unknown here", self.types.struct_def(*id).name);
                self.error("E0240", name.span, message).help("declare it before, or use a pointer to it");
            }
            _ => layout.field(text, declared.ty, declared.float, size, align),
        }
    }

    /// Completes a member whose struct is declared by the traced program or the kernel.
    fn complete_struct(&mut self, ty: &mut Type) {
        match ty {
            Type::Struct(id) if self.types.struct_def(*id).size == 0 => {
                let name = self.types.struct_def(*id).name.clone();
                if let Some(declared) = self.types.declared_struct(&name) {
                    *ty = declared;
                }
            }
            Type::Array(element, _) => self.complete_struct(std::sync::Arc::make_mut(element)),
            _ => {}
        }
    }

    fn bit_count(&mut self, e: &Expr, declared: &MemberType, size: u32) -> Option<u8> {
        let count = self.constant(e, "the width of a bit-field")?;
        let ty = &declared.ty;
        if declared.float || !matches!(ty, Type::Int { .. } | Type::Bool | Type::Enum(_)) {
            let found = if declared.float { "a float".to_string() } else { self.types.show(ty) };
            let message = format!("a bit-field is an integer, found {found}");
            self.error("E0240", e.span, message);
            return None;
        }
        if !(0..=i64::from(size) * 8).contains(&count) {
            let message = format!("{} has {} bits, found {count}", self.types.show(ty), size * 8);
            self.error("E0222", e.span, message);
            return None;
        }
        Some(count as u8)
    }

    fn enumeration(&mut self, e: &Enumeration) -> Option<Type> {
        let mut values: Vec<(String, i64)> = Vec::new();
        let mut next = 0i64;
        self.enumerators.clear();
        for (name, value) in &e.values {
            if let Some(value) = value {
                next = self.constant(value, "the value of an enum's constant")?;
            }
            if !int_holds(&Type::I32, next) && !int_holds(&Type::U32, next) {
                self.error("E0222", name.span, format!("`{}` is {next}: an enum has 32 bits", name.node));
                return None;
            }
            if self.enumerators.contains_key(&name.node) {
                self.error("E0241", name.span, format!("constant `{}` is declared twice", name.node));
            }
            values.push((name.node.clone(), next));
            // The values of later constants may use earlier ones.
            self.enumerators.insert(name.node.clone(), next);
            next += 1;
        }
        self.enumerators.clear();
        let name = e.name.as_ref().map_or("enum", |name| name.node.as_str());
        if let Some(known) = self.types.recalled_enum(name, &values) {
            return Some(Type::Enum(known));
        }
        for (name, _) in &e.values {
            let known = self.types.constant(&name.node);
            if known.is_some_and(|(id, _)| !self.types.is_recalled_enum(id)) {
                self.error("E0241", name.span, format!("constant `{}` is declared twice", name.node));
            }
        }
        let is_taken = |name: &&Name| match self.types.tagged(&name.node) {
            Some(Type::Enum(id)) => !self.types.is_recalled_enum(*id),
            other => other.is_some(),
        };
        if let Some(name) = e.name.as_ref().filter(is_taken) {
            self.error("E0241", name.span, format!("`{}` is declared twice", name.node));
            return None;
        }
        Some(Type::Enum(self.types.define_enum(name, values)))
    }
}

fn integer(ty: Type) -> MemberType {
    MemberType { ty, float: false }
}

/// `typedef struct { int x; } point;`: the first name becomes the struct's.
fn name_unnamed(base: &CType, names: &[Declarator]) -> Option<CType> {
    let first = names.iter().find(|name| name.pointers == 0 && name.dims.is_empty())?.name.clone()?;
    match base {
        CType::Compound(c) if c.name.is_none() => {
            Some(CType::Compound(Compound { name: Some(first), ..c.clone() }))
        }
        CType::Enumeration(e) if e.name.is_none() => {
            Some(CType::Enumeration(Enumeration { name: Some(first), ..e.clone() }))
        }
        _ => None,
    }
}

fn member_span(member: &Member) -> Span {
    match &member.base {
        CType::Named(name) => name.span,
        CType::Compound(compound) => compound.span,
        CType::Enumeration(e) => e.span,
    }
}
