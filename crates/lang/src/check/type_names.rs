//! Type names in scripts: `uint32`, `struct point *`, `typeof($x)`; and functions on types, such as `sizeof`.

use crate::check::Checker;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{int, unknown};
use crate::hir::{self, Type};
use crate::source::span::Span;
use crate::syntax::ast::{Expr, ExprKind, Name, TypeName};
use crate::types::{builtin_type_names, derived};

impl Checker<'_> {
    /// The type of a spelling; `None` after an error, or if the operand of `typeof` has no type yet.
    pub(crate) fn spelled(&mut self, name: &TypeName) -> Option<Type> {
        if let Some(of) = &name.of {
            let ty = self.type_of(of);
            return (ty != Type::Void).then(|| derived(ty, name.pointers, &name.dims));
        }
        if name.name == "string" && name.pointers == 0 {
            return self.string_type(name);
        }
        // Floating-point numbers exist only in memory.
        let found = self.types.spelled(name).filter(|found| !matches!(found, Type::Float(_)));
        if found.is_none() {
            self.unknown_type(name);
        }
        found
    }

    /// The type of an operand of `sizeof` or `typeof`, which may be the bare name of a type, or of a constant: a number.
    pub(crate) fn type_of(&mut self, e: &Expr) -> Type {
        match type_name(e).filter(|name| !self.is_value(&name.name)) {
            Some(name)
                if self.types.spelled(&name).is_none()
                    && self.types.kernel_constant(&name.name).is_some() =>
            {
                Type::I64
            }
            Some(name) => self.types.spelled(&name).or_else(|| self.spelled(&name)).unwrap_or(Type::Void),
            None => self.place(e).ty,
        }
    }

    /// `string`, `string[64]`
    fn string_type(&mut self, name: &TypeName) -> Option<Type> {
        match name.dims.as_slice() {
            [] => Some(Type::Str(self.config.max_strlen)),
            [bytes] if (1..=self.config.max_strlen).contains(bytes) => Some(Type::Str(*bytes)),
            _ => {
                let message = format!("a string has from 1 to {} bytes", self.config.max_strlen);
                self.error("E0222", name.span, message)
                    .help("raise the limit: `config = { max_strlen = N }`");
                None
            }
        }
    }

    fn unknown_type(&mut self, name: &TypeName) {
        if matches!(name.name.as_str(), "float" | "double" | "long double") {
            let message = format!("`{}` is a floating-point type", name.name);
            let error = self.error("E0216", name.span, message);
            error.note("code in the kernel has integers only").help("read it from memory: `*(float *)p`");
            return;
        }
        let known = builtin_type_names().chain(["CUresult", "CUdeviceptr", "cudaError_t", "dim3"]);
        let known = known.map(|name| -> &str { name });
        let bare = name.name.rsplit(' ').next().unwrap_or(&name.name);
        let near = self.diags.similar(bare, known.chain(self.types.declared_names()));
        let error = self.error("E0216", name.span, format!("unknown type `{}`", name.name));
        error.note(
            "known types are C's integers, CUDA's types, and declarations in the script or in the debug information of probed files",
        );
        error.help.extend(did_you_mean(&near));
    }

    /// `offsetof(struct point, corner.x)`
    pub(crate) fn offset_of(&mut self, ty: &TypeName, path: &[Name], span: Span) -> hir::Expr {
        let Some(mut ty) = self.spelled(ty) else { return unknown(span) };
        let mut offset = 0;
        for name in path {
            let Type::Struct(id) = ty else {
                let message = format!("{} has no field `{}`", self.types.show(&ty), name.node);
                self.error("E0214", name.span, message).help("name a struct: `offsetof(struct NAME, field)`");
                return unknown(span);
            };
            let Some(field) = self.types.member(id, &name.node) else { return self.no_field(id, name, span) };
            offset += field.offset;
            ty = field.ty;
        }
        int(i64::from(offset), Type::I64, span)
    }
}

/// `int8`, `int8[2]`: an expression that may be the spelling of a type.
fn type_name(e: &Expr) -> Option<TypeName> {
    match &e.kind {
        ExprKind::Ident(name) => Some(TypeName { name: name.clone(), ..TypeName::bare(e.span) }),
        ExprKind::Index { base, index } => {
            let ExprKind::Int { value, .. } = index.kind else { return None };
            let mut name = type_name(base)?;
            name.dims.push(u32::try_from(value).ok()?);
            Some(name)
        }
        _ => None,
    }
}
