//! `typeinfo`: describes a type by words, as bpftrace names it.
//!
//! ```text
//! typeinfo(pid)        (btf_id = 0, base_type = "int", full_type = "uint32")
//! ```

use crate::check::Checker;
use crate::check::config::{ONE_FRAME, STACK_MODES};
use crate::check::slots::{ValueState, agg_name};
use crate::hir::make::{expr, int, unknown};
use crate::hir::{Agg, Expr, ExprKind, Lookup, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::Types;

/// The words for a type.
struct Description {
    /// `int`
    base: String,
    /// `uint32`
    full: String,
}

impl Description {
    /// A type with one name.
    fn of(name: &str) -> Description {
        Description { base: name.into(), full: name.into() }
    }
}

impl Checker<'_> {
    /// `typeinfo(uint32)`, `typeinfo($x)`
    pub(crate) fn type_info(&mut self, of: &ast::TypeName, span: Span) -> Expr {
        let Some(found) = self.description(of) else { return unknown(span) };
        let text = |text: String| {
            let room = text.len() as u32 + 1;
            expr(ExprKind::Str(text.into_bytes()), Type::Str(room), span)
        };
        let parts = vec![int(0, Type::I64, span), text(found.base), text(found.full)];
        let names = ["btf_id", "base_type", "full_type"].map(str::to_owned);
        let types = parts.iter().map(|part| part.ty.clone()).collect();
        expr(ExprKind::Tuple(parts), Type::Record(names.into(), types), span)
    }

    /// The words for a type or the type of an expression; `None` while it is unknown.
    fn description(&mut self, of: &ast::TypeName) -> Option<Description> {
        let operand = of.of.as_deref().filter(|_| of.pointers == 0 && of.dims.is_empty());
        if let Some(ast::ExprKind::Map { name, keys }) = operand.map(|operand| &operand.kind) {
            return self.values_of(name, keys.as_deref(), of.span);
        }
        let ty = match operand {
            Some(operand) => self.type_of(operand),
            None if of.name == "void" && of.pointers == 0 && of.of.is_none() => {
                return Some(Description::of("void"));
            }
            None => self.types.spelled(of).filter(|_| of.of.is_none()).or_else(|| self.spelled(of))?,
        };
        (ty != Type::Void).then(|| described(&self.types, &ty))
    }

    /// The words for the values of a map: `@m`, `@m[k]`.
    fn values_of(&mut self, name: &str, keys: Option<&[ast::Expr]>, span: Span) -> Option<Description> {
        let map = self.map_id(name, span);
        if keys.is_some() {
            self.cell(name, keys, span)?;
        }
        let agg = match self.maps[map.0 as usize].value.get() {
            ValueState::Plain(slot) => return Some(described(&self.types, &slot.ty(&self.types)?)),
            ValueState::Agg(agg) => agg.clone(),
        };
        let base = format!("{}_t", agg_name(&agg));
        let unsigned = match agg {
            Agg::Sum { signed } | Agg::Min { signed } | Agg::Max { signed } | Agg::Avg { signed } => !signed,
            Agg::Stats { signed } => !signed,
            Agg::Count | Agg::Hist { .. } | Agg::LHist { .. } | Agg::TSeries { .. } => false,
        };
        let full = if unsigned { format!("u{base}") } else { base.clone() };
        Some(Description { base, full })
    }
}

/// The words for the type of a value.
fn described(types: &Types, ty: &Type) -> Description {
    let full = |ty: &Type| described(types, ty).full;
    let all = |parts: &[Type]| parts.iter().map(full).collect::<Vec<_>>();
    let (base, full) = match ty {
        Type::Void => return Description::of("void"),
        Type::Bool => return Description::of("bool"),
        Type::Int { .. } => ("int", types.show(ty)),
        Type::Float(_) | Type::Lookup(Lookup::Float | Lookup::Double) => {
            return Description::of(&types.show(ty));
        }
        Type::Enum(id) => ("int", format!("enum {}", types.enum_def(*id).name)),
        Type::Pointer(to) => ("pointer", format!("{} *", full(to))),
        Type::Str(_) => ("string", types.show(ty)),
        Type::Buf(_) => ("buffer", types.show(ty)),
        Type::Struct(id) => ("c_type", tagged(&types.struct_def(*id).name)),
        Type::Array(element, count) => ("array", format!("{}[{count}]", full(element))),
        Type::Tuple(parts) => ("tuple", format!("({})", all(parts).join(","))),
        Type::Record(names, parts) => {
            let members = names.iter().zip(all(parts)).map(|(name, ty)| format!(".{name} = {ty}"));
            ("record", format!("record {{ {} }}", members.collect::<Vec<_>>().join(", ")))
        }
        Type::Stack { user, limit, mode } => {
            if let Some((name, ..)) =
                ONE_FRAME.iter().find(|(_, one, own)| one == mode || own.as_ref() == Some(mode))
            {
                return Description::of(name);
            }
            let base = if *user { "ustack" } else { "kstack" };
            let mode = STACK_MODES.iter().find(|(_, known)| known == mode).map_or("", |(name, _)| name);
            (base, format!("{base}_{mode}_{limit}"))
        }
        Type::Usym => return Description::of("usym_t"),
        Type::Lookup(Lookup::Ksym) => return Description::of("ksym_t"),
        Type::Lookup(Lookup::User) => return Description::of("username_t"),
        Type::Lookup(Lookup::CgroupPath) => return Description::of("cgroup_path_t"),
        Type::Lookup(Lookup::Mac) => return Description::of("mac_address"),
        Type::Timestamp(_) => return Description::of("timestamp"),
        Type::Inet => return Description::of("inet"),
        // Values that print as a text.
        Type::Name(_) | Type::Lookup(_) | Type::Either(_) => return Description::of("string"),
    };
    Description { base: base.into(), full }
}

/// `struct point`; a struct without a name is called `struct`.
fn tagged(name: &str) -> String {
    match name {
        "struct" | "union" => name.into(),
        name => format!("struct {name}"),
    }
}
