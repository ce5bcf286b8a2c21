//! The operations of the checker that checks of built-ins use.
//!
//! Values of arguments come from [`Args::place`] and the functions on top of it, errors go to [`Args::diags`],
//! and [`Args::scene`] has the probe, the settings and the catalog. The checker itself implements built-ins of maps,
//! variables and statements: their rows call [`Args::core`] or [`Args::core_action`].

use crate::builtins::Call;
use crate::builtins::probe_context::ProbeContext;
use crate::catalog::Catalog;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::hir::make::{convert, expr, is_unknown, unknown, value_after};
use crate::hir::{Config, Expr, ExprKind, NameId, NameKind, Stmt, StmtKind, Type, VarId};
use crate::limits;
use crate::resolve::interner::Interner;
use crate::source::span::{Source, Span};
use crate::syntax::ast;
use crate::syntax::print::print_expr;
use crate::types::{CHAR, Types, leaves};
use rustc_hash::FxHashSet;

/// The context of a built-in's use.
#[derive(Copy, Clone)]
pub(crate) struct Scene<'s> {
    pub probe: &'s ProbeContext,
    pub config: &'s Config,
    pub catalog: &'s dyn Catalog,
    pub source: &'s Source,
    /// The script exports calls as spans, so nested exports name their parent.
    pub sends_calls: bool,
    /// Dead code: a constant condition excludes this use.
    pub dead: bool,
}

/// Built-ins with a value that need the checker's maps, variables or definitions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Core {
    /// `args`
    Args,
    /// `arg3`, `sarg1`
    Arg,
    /// `ustack`, `kstack(3)`
    Stack,
    /// `str(p, n)`
    Str,
    /// `len(@m)`
    Len,
    /// `is_scalar(@m)`
    IsScalar,
    /// `has_key(@m, k)`
    HasKey,
    /// `find(@m, k, $v)`
    Find,
    /// `delete(@m, k)`
    Delete,
}

/// Built-in statements that need the checker's maps or change the flow of the body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CoreAction {
    /// `print(@m, 5)`, `print(e)`
    Print,
    /// `clear(@m)`
    Clear,
    /// `zero(@m)`
    Zero,
    /// `exit(1)`
    Exit,
}

/// Help where an address is expected and the value has another type.
pub(crate) const NO_ADDRESS: &str = "addresses are pointers and numbers of 64 bits, such as `arg0` and `args.path`; other values are printed by `print` and `%s`";

/// The checker's interface for built-ins; see the module.
pub(crate) trait Args {
    /// Checks an argument: a value, or a struct or array in memory.
    fn place(&mut self, arg: &ast::Expr) -> Expr;
    /// The value at a memory location; other expressions are unchanged.
    fn value_of(&mut self, place: Expr) -> Expr;
    /// The address of a memory location, uint64.
    fn address_of(&mut self, place: Expr) -> Expr;
    /// Checks statements that a built-in expands to.
    fn block(&mut self, body: &ast::Block) -> Vec<Stmt>;
    /// Declares a variable that no script can name.
    fn hidden_var(&mut self, span: Span, ty: Type) -> VarId;
    /// The list of errors and warnings.
    fn diags(&mut self) -> &mut Diagnostics;
    fn types(&self) -> &Types<'_>;
    /// A struct of the kernel as the script declares it, or else by the kernel's BTF.
    fn kernel_struct(&mut self, name: &str) -> Option<Type>;
    fn names(&mut self) -> &mut Interner;
    fn name_text(&self, kind: NameKind, id: NameId) -> &str;
    fn scene(&self) -> Scene<'_>;
    /// Whether a value comes from the command line.
    fn is_option(&self, text: Span) -> bool;
    /// Whether a value is a whole register of unknown type: `arg0`, `retval`, or a copy of it.
    fn is_register(&self, value: &Expr) -> bool;
    /// The text of a GPU kernel's name, cut for comparisons.
    fn kernel_text(&mut self, name: Expr) -> Expr;
    /// Whether control flow may leave here; reports `word` if it would leave a block with a value.
    fn may_leave(&mut self, span: Span, word: &str) -> bool;
    /// Checks a built-in of the checker.
    fn core(&mut self, which: Core, call: &Call<'_>) -> Expr;
    /// Checks a built-in statement of the checker.
    fn core_action(&mut self, which: CoreAction, call: &Call<'_>) -> Option<StmtKind>;

    /// Checks an argument: a value that can be computed with, stored and printed.
    fn expr(&mut self, arg: &ast::Expr) -> Expr {
        let place = self.place(arg);
        self.value_of(place)
    }

    /// A condition: bool or an integer.
    fn condition(&mut self, arg: &ast::Expr) -> Expr {
        let value = self.expr(arg);
        self.as_condition(value)
    }

    /// A value as a condition.
    fn as_condition(&mut self, value: Expr) -> Expr {
        let span = value.span;
        match &value.ty {
            Type::Bool | Type::Int { .. } | Type::Void => value,
            Type::Enum(id) => {
                let ty = self.types().enum_int(*id);
                convert(value, &ty)
            }
            Type::Pointer(_) => convert(value, &Type::U64),
            _ => {
                let message = format!("a condition must be a number, found {}", self.types().show(&value.ty));
                let error = self.diags().error("E0212", span, message);
                error.help("compare it: `== \"text\"`");
                unknown(span)
            }
        }
    }

    /// A constant number; `what` names it in errors.
    fn constant(&mut self, arg: &ast::Expr, what: &str) -> Option<i64> {
        let value = self.expr(arg);
        match value.kind {
            _ if is_unknown(&value) => None,
            ExprKind::Int(number) => Some(number),
            _ => {
                let error =
                    self.diags().error("E0221", arg.span, format!("{what} must be a constant number"));
                error.help("write a number, a name that `#define` gives one, or a parameter such as `$1`");
                None
            }
        }
    }

    /// A string literal.
    fn text(&mut self, arg: &ast::Expr, what: &str) -> Option<Vec<u8>> {
        let value = self.place(arg);
        match value.kind {
            _ if is_unknown(&value) => None,
            ExprKind::Str(bytes) if matches!(value.ty, Type::Str(_)) => Some(bytes),
            _ => {
                let error =
                    self.diags().error("E0221", arg.span, format!("{what} must be a string in quotes"));
                if what.contains("`printf`") {
                    error.help(match value.ty {
                        Type::Str(_) => {
                            format!("print it with `%s`: `printf(\"%s\\n\", {})`", print_expr(arg))
                        }
                        _ => "write the format first: `printf(\"%d\\n\", pid)`".into(),
                    });
                }
                None
            }
        }
    }

    /// An integer of 64 bits, with the sign of the value's type.
    fn number(&mut self, arg: &ast::Expr, what: &str) -> Expr {
        let value = self.expr(arg);
        match self.widened(value) {
            Ok(value) => value,
            Err(value) => {
                let message = format!("{what} must be a number, found {}", self.types().show(&value.ty));
                let help = match &value.ty {
                    Type::Str(_) => Some("strings have no arithmetic".to_owned()),
                    Type::Record(names, _) => {
                        Some(format!("take a part of it, by its name: `.{}`", names[0]))
                    }
                    _ => None,
                };
                let error = self.diags().error("E0210", arg.span, message);
                error.help.extend(help);
                unknown(arg.span)
            }
        }
    }

    /// A scalar as int64 or uint64; `Err` returns other values.
    fn widened(&self, value: Expr) -> Result<Expr, Expr> {
        let ty = match &value.ty {
            Type::Int { signed, .. } => Type::Int { bytes: 8, signed: *signed },
            Type::Bool => Type::I64,
            Type::Enum(id) => Type::Int { bytes: 8, signed: self.types().enum_def(*id).signed },
            Type::Pointer(_) => Type::U64,
            Type::Void => return Ok(value),
            _ => return Err(value),
        };
        Ok(convert(value, &ty))
    }

    /// A `char *` as the text at that address, for `%s`.
    fn text_of(&self, value: Expr) -> Expr {
        if !matches!(&value.ty, Type::Pointer(to) if **to == CHAR) {
            return value;
        }
        let span = value.span;
        let kind = ExprKind::ReadStr { base: Box::new(value), limit: None };
        expr(kind, Type::Str(self.scene().config.max_strlen), span)
    }

    /// A record of values by name.
    fn record_of(&mut self, names: Vec<String>, parts: Vec<Expr>, span: Span) -> Expr {
        if parts.iter().any(is_unknown) || !self.fits_tuple(&parts, span) {
            return unknown(span);
        }
        let types = parts.iter().map(|part| part.ty.clone()).collect();
        expr(ExprKind::Tuple(parts), Type::Record(names.into(), types), span)
    }

    /// The names of a record's members; reports duplicates.
    fn names_of(&mut self, members: &[(ast::Name, ast::Expr)]) -> Vec<String> {
        let mut known = FxHashSet::default();
        for (name, _) in members {
            if !known.insert(&name.node) {
                self.diags().error(
                    "E0241",
                    name.span,
                    format!("`{}` is declared twice in this record", name.node),
                );
            }
        }
        members.iter().map(|(name, _)| name.node.clone()).collect()
    }

    /// Whether a tuple of these parts has at most [`limits::TUPLE_VALUES`] values; each use of it copies its type.
    fn fits_tuple(&mut self, parts: &[Expr], span: Span) -> bool {
        let values: usize = parts.iter().map(|part| leaves(&part.ty)).sum();
        if values > limits::TUPLE_VALUES {
            let message = format!("this has {values} values, {} at most", limits::TUPLE_VALUES);
            self.diags().error("E0227", span, message).help("store them in a map with a numeric key");
        }
        values <= limits::TUPLE_VALUES
    }

    /// Assigns a value to a hidden variable in `setup`, and returns a read of the variable.
    fn kept(&mut self, value: Expr, setup: &mut Vec<Stmt>) -> Expr {
        let (ty, span, in_kernel) = (value.ty.clone(), value.span, value.in_kernel());
        let var = self.hidden_var(span, ty.clone());
        setup.push(Stmt { kind: StmtKind::SetVar { var, value }, span });
        let read = expr(ExprKind::Var(var), ty.clone(), span);
        match ty {
            Type::Pointer(_) if in_kernel => expr(ExprKind::Kernel(Box::new(read)), ty, span),
            _ => read,
        }
    }
}

impl dyn Args + '_ {
    /// Adds an error.
    pub(crate) fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.diags().error(code, span, message)
    }

    /// Adds a warning.
    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.diags().warning(code, span, message)
    }

    /// Passes a value to `make`, which may use it several times. A value with side effects is evaluated
    /// once, to a hidden variable.
    pub(crate) fn once(&mut self, value: Expr, make: impl FnOnce(&mut Self, Expr) -> Expr) -> Expr {
        if is_unknown(&value) || !value.changes() {
            return make(self, value);
        }
        let mut setup = Vec::new();
        let value = self.kept(value, &mut setup);
        let made = make(self, value);
        value_after(setup, made)
    }
}
