//! Functions that `expand` inserts and scripts cannot name: `@kernel_short(id)`, `@text_hash(text)`.

use crate::builtins::args::Args;
use crate::builtins::spans::BEGUN;
use crate::check::Checker;
use crate::hir::make::{convert, expr, int, is_unknown, unknown};
use crate::hir::{Builtin, Expr, ExprKind, Lookup, NameKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use wire::map::KERNEL_TEXTS;

/// Functions whose number is printed as a name.
static LOOKUPS: [(&str, Lookup); 5] = [
    ("@kernel_short", Lookup::Kernel),
    ("@kernel_full", Lookup::KernelFull),
    ("@kernel_mangled", Lookup::KernelMangled),
    ("@device_uuid", Lookup::DeviceUuid),
    ("@device_pci", Lookup::DevicePci),
];

/// Bytes of the stored name of a GPU kernel, the NUL included.
const NAME_BYTES: u32 = 2048;

/// Bytes of a GPU kernel's name that conditions compare.
const COMPARED_BYTES: u32 = 256;

impl Checker<'_> {
    /// `@kernel_short(id)`
    pub(crate) fn hidden_call(&mut self, name: &str, arg: &ast::Expr, span: Span) -> Expr {
        if let ast::ExprKind::Str(device) = &arg.kind
            && let "@device_major" | "@driver_release" = name
        {
            return self.device(name, &String::from_utf8_lossy(device), span);
        }
        if let ast::ExprKind::Str(event) = &arg.kind
            && name == "@begin_event"
        {
            let name = self.names().intern(NameKind::Func, &String::from_utf8_lossy(event));
            let number = int(i64::from(name.0), Type::U64, span);
            return expr(ExprKind::Builtin(Builtin::BeginEvent, vec![number]), Type::U64, span);
        }
        if name == "@record" {
            return expr(ExprKind::Builtin(Builtin::RecordAddress, Vec::new()), Type::U64, span);
        }
        if name == "@thread_pointer" {
            return expr(ExprKind::Builtin(Builtin::ThreadPointer, Vec::new()), Type::U64, span);
        }
        if name == "@end_event" {
            return expr(ExprKind::Builtin(Builtin::EndEvent, Vec::new()), Type::U64, span);
        }
        let value = self.expr(arg);
        if is_unknown(&value) {
            return unknown(span);
        }
        match LOOKUPS.iter().find(|(function, _)| *function == name) {
            Some((_, lookup)) => {
                let id = Box::new(convert(value, &Type::I64));
                expr(ExprKind::Lookup(id), Type::Lookup(*lookup), span)
            }
            None if name == "@kernel_text" => {
                let base = Box::new(convert(value, &Type::U64));
                expr(ExprKind::ReadStr { base, limit: None }, Type::Str(NAME_BYTES), span)
            }
            None if name == BEGUN => convert(value, &Type::U64),
            None => expr(ExprKind::Builtin(Builtin::StrHash, vec![value]), Type::U64, span),
        }
    }

    /// `@device_major("nvidia-uvm")`, `@driver_release("nvidia-uvm")`: constants. An unknown release counts as the newest.
    fn device(&mut self, name: &str, device: &str, span: Span) -> Expr {
        let driver = self.scene().catalog.device(device);
        let number = match name {
            "@device_major" => driver.map(|driver| driver.major),
            _ => driver.and_then(|driver| driver.release).or(Some(u32::MAX)),
        };
        int(number.map_or(0, i64::from), Type::I64, span)
    }

    /// The mangled name of a GPU kernel, cut at the bytes that conditions compare.
    pub(crate) fn kernel_text(&mut self, name: Expr) -> Expr {
        let span = name.span;
        let map = self.map_id(KERNEL_TEXTS, span);
        if !self.maps[map.0 as usize].is_known(&self.types) {
            return unknown(span);
        }
        let id = expr(ExprKind::Cast(Box::new(name)), Type::U64, span);
        let kind = ExprKind::MapGet { map, key: vec![id] };
        let whole = expr(kind, Type::Str(NAME_BYTES), span);
        expr(ExprKind::Cast(Box::new(whole)), Type::Str(COMPARED_BYTES), span)
    }
}
