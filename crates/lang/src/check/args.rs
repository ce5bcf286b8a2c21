//! The checker's implementation of `Args` for built-ins, and dispatch of the built-ins that the checker itself implements.

use crate::builtins::Call;
use crate::builtins::args::{Args, Core, CoreAction, Scene};
use crate::check::Checker;
use crate::diagnostics::Diagnostics;
use crate::hir::make::unknown;
use crate::hir::{Expr, NameId, NameKind, Stmt, StmtKind, Type, VarId};
use crate::resolve::interner::Interner;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::Types;

impl<'a> Checker<'a> {
    /// This checker as the interface of built-ins.
    pub(crate) fn args(&mut self) -> &mut (dyn Args + 'a) {
        self
    }
}

impl Args for Checker<'_> {
    fn place(&mut self, arg: &ast::Expr) -> Expr {
        Checker::place(self, arg)
    }

    fn value_of(&mut self, place: Expr) -> Expr {
        Checker::value_of(self, place)
    }

    fn address_of(&mut self, place: Expr) -> Expr {
        Checker::address_of(self, place)
    }

    fn block(&mut self, body: &ast::Block) -> Vec<Stmt> {
        Checker::block(self, body)
    }

    fn hidden_var(&mut self, span: Span, ty: Type) -> VarId {
        self.scope.hidden(span, ty)
    }

    fn diags(&mut self) -> &mut Diagnostics {
        &mut self.diags
    }

    fn types(&self) -> &Types<'_> {
        &self.types
    }

    fn kernel_struct(&mut self, name: &str) -> Option<Type> {
        if let Some(own) = self.types.tagged(name) {
            return Some(own.clone());
        }
        self.types.kernel_named(name)
    }

    fn names(&mut self) -> &mut Interner {
        &mut self.names
    }

    fn name_text(&self, kind: NameKind, id: NameId) -> &str {
        &self.names.names().table(kind)[id.0 as usize]
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            probe: &self.context,
            config: &self.config,
            catalog: self.catalog,
            source: self.src,
            sends_calls: self.sends_calls,
            dead: self.scope.dead,
        }
    }

    fn is_option(&self, text: Span) -> bool {
        self.given.contains(&text)
    }

    fn is_register(&self, value: &Expr) -> bool {
        Checker::is_register(self, value)
    }

    fn kernel_text(&mut self, name: Expr) -> Expr {
        Checker::kernel_text(self, name)
    }

    fn may_leave(&mut self, span: Span, word: &str) -> bool {
        Checker::may_leave(self, span, word)
    }

    fn core(&mut self, which: Core, call: &Call<'_>) -> Expr {
        let (args, span) = (call.args, call.span);
        match which {
            Core::Args => self.all_args(span),
            Core::Arg => self.argument(call),
            Core::Stack => self.stack(call.name, args, span),
            Core::Str => self.read_str(args, span),
            Core::Len => self.len(&args[0], span),
            Core::IsScalar => self.is_scalar_map(&args[0], span),
            Core::HasKey => self.has_key(args, span),
            Core::Find => self.find(args, span),
            Core::Delete => self.delete(args, span).pop().unwrap_or_else(|| unknown(span)),
        }
    }

    fn core_action(&mut self, which: CoreAction, call: &Call<'_>) -> Option<StmtKind> {
        match which {
            CoreAction::Print => self.print(call.args, call.span),
            CoreAction::Clear => self.whole_map(&call.args[0], "clear").map(StmtKind::Clear),
            CoreAction::Zero => self.whole_map(&call.args[0], "zero").map(StmtKind::Zero),
            CoreAction::Exit => self.exit(call.args, call.span),
        }
    }
}
