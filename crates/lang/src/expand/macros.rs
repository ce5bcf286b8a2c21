//! Macros: replaces a call by the macro's body.
//!
//! ```text
//! macro add($to, n) { let $old = $to; $to += n; $old }
//! BEGIN { $x = 1; print(add($x, 2)); }
//!
//! BEGIN { $x = 1; print({ let $old@1 = $x; $x += 2; $old@1 }); }
//! ```
//!
//! Expansion is hygienic: variables of the body are distinct from the caller's, and a map must be passed as an argument. An
//! argument expression replaces each use of its parameter. Macros may be overloaded by number and kind of parameters.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::diagnostics::wording::listed;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::expand::template::SetSpan;
use crate::limits::MAX_DEPTH;
use crate::source::span::{Source, Span};
use crate::syntax::FindBuiltin;
use crate::syntax::ast::{
    Block, Expr, ExprKind, Item, Macro, MacroParam, Name, Script, Stmt, StmtKind, TypeName,
};
use crate::syntax::print::macro_param;
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Measure, look};

/// Largest number of expanded calls in a script.
const MOST_EXPANSIONS: u32 = 10_000;

/// Largest number of expressions and statements that they expand to. Nested calls copy their arguments at each level.
const MOST_NODES: usize = 1_000_000;

/// Replaces all calls of macros, and removes the macros.
pub(crate) fn expand(script: &mut Script, builtins: FindBuiltin, diags: &mut Diagnostics) {
    let macros = definitions(script, diags);
    let calls = FxHashMap::default();
    let mut expander = Expander {
        macros: &macros,
        builtins,
        prelude: None,
        active: Vec::new(),
        count: 0,
        nodes: 0,
        calls,
        diags,
    };
    visit::script(script, &mut expander);
    script.expansions = expander.calls;
    visit::script(script, &mut Valueless { diags });
}

/// Adds the position of a macro's value to messages about its call: a call of only a value is replaced by the value.
pub(crate) fn note_values(script: &Script, src: &Source, findings: &mut [Diagnostic]) {
    for finding in findings {
        let Some(Some(value)) = script.expansions.get(&finding.span) else { continue };
        let (line, column) = src.line_column(value.start);
        let (text, file) = (src.slice(*value), &src.file_at(value.start).name);
        let shown = if text.len() < 40 {
            format!("the macro's value is `{text}`, at")
        } else {
            "the macro's value is at".into()
        };
        finding.note(format!("{shown} {file}:{line}:{column}"));
    }
}

/// The name of a variable in the source.
pub fn written(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

pub(crate) type Macros = HashMap<String, Vec<Macro>>;

/// Removes the macros of a script and returns them.
pub(crate) fn definitions(script: &mut Script, diags: &mut Diagnostics) -> Macros {
    let mut macros = Macros::new();
    let (defs, items) =
        std::mem::take(&mut script.items).into_iter().partition(|i| matches!(i, Item::Macro(_)));
    script.items = items;
    let defs: Vec<Item> = defs;
    for item in defs {
        let Item::Macro(def) = item else { continue };
        let same = macros.entry(def.name.node.clone()).or_default();
        if same.iter().any(|other| kinds(other) == kinds(&def)) {
            diags
                .error("E0032", def.name.span, format!("macro `{}` is defined twice", signature(&def)))
                .help("macros of one name must differ in the number or kinds of their parameters");
        } else {
            same.push(def);
        }
    }
    macros
}

/// The kinds of the parameters, which distinguish macros of one name.
fn kinds(def: &Macro) -> Vec<std::mem::Discriminant<MacroParam>> {
    def.params.iter().map(std::mem::discriminant).collect()
}

/// `add($to, n)`
fn signature(def: &Macro) -> String {
    let params: Vec<String> = def.params.iter().map(macro_param).collect();
    format!("{}({})", def.name.node, params.join(", "))
}

/// Expands calls of macros.
pub(crate) struct Expander<'m, 'd> {
    macros: &'m Macros,
    builtins: FindBuiltin,
    /// The name of the prelude that has the macros. They may use all maps and have no limits.
    prelude: Option<&'static str>,
    /// Macros that are being expanded.
    active: Vec<&'m str>,
    count: u32,
    /// Number of inserted expressions and statements.
    nodes: usize,
    /// As [`Script::expansions`].
    calls: FxHashMap<Span, Option<Span>>,
    diags: &'d mut Diagnostics,
}

impl Visit for Expander<'_, '_> {
    fn expr(&mut self, e: &mut Expr) {
        let expanded = match &e.kind {
            ExprKind::Call { name, args } => self.call(&name.node, args, e.span),
            ExprKind::Ident(name) => self.call(name, &[], e.span),
            _ => None,
        };
        if let Some(kind) = expanded {
            e.kind = kind;
        }
    }

    /// A call as a statement becomes a block of statements.
    fn stmt(&mut self, stmt: &mut Stmt) {
        let StmtKind::Expr(Expr { kind: ExprKind::Block { body, value }, span }) = &mut stmt.kind else {
            return;
        };
        let (mut body, span) = (std::mem::take(body), *span);
        let acts = |e: &Expr| {
            matches!(e.kind, ExprKind::Call { .. } | ExprKind::IncDec { .. } | ExprKind::Block { .. })
        };
        let value = value.take().filter(|value| acts(value));
        body.stmts.extend(value.map(|value| {
            let mut last = Stmt { span: value.span, kind: StmtKind::Expr(*value) };
            self.stmt(&mut last);
            last
        }));
        stmt.kind = StmtKind::Block(Block { stmts: body.stmts, span });
    }
}

impl<'m, 'd> Expander<'m, 'd> {
    /// An expander for the macros of a prelude.
    pub(crate) fn of_prelude(
        macros: &'m Macros,
        name: &'static str,
        diags: &'d mut Diagnostics,
    ) -> Expander<'m, 'd> {
        let any: FindBuiltin = |_| Some(0..=usize::MAX);
        let (active, calls) = (Vec::new(), FxHashMap::default());
        Expander { macros, builtins: any, prelude: Some(name), active, count: 0, nodes: 0, calls, diags }
    }

    /// The expansion of a call; `None` if it is not a call of a macro.
    pub(crate) fn call(&mut self, name: &str, args: &[Expr], span: Span) -> Option<ExprKind> {
        let macros = self.macros;
        let (name, candidates) = macros.get_key_value(name)?;
        // A parameter that takes a variable or map has priority over one that takes any expression.
        let fitting = candidates.iter().filter(|def| fits(def, args));
        let specific = |def: &&Macro| def.params.iter().filter(|p| !matches!(p, MacroParam::Expr(_))).count();
        let Some(def) = fitting.max_by_key(specific) else {
            // A macro may overload a built-in.
            if (self.builtins)(name).is_some_and(|arity| arity.contains(&args.len())) {
                return None;
            }
            self.misfit(name, candidates, args, span);
            return Some(hole());
        };
        if let Some(at) = self.active.iter().position(|active| active == name) {
            let cycle: Vec<&str> = self.active[at..].iter().copied().chain([name.as_str()]).collect();
            let error = self.diags.error("E0033", span, format!("macro `{name}` uses itself"));
            error.note(format!("cycle: {}", cycle.join(" uses ")));
            error.help("a macro is expanded where it is used, so it cannot be recursive: use a loop");
            return Some(hole());
        }
        self.count += 1;
        if self.prelude.is_none() && (self.count > MOST_EXPANSIONS || self.active.len() > MAX_DEPTH / 4) {
            return Some(self.too_much(span));
        }
        self.calls.insert(span, def.value.as_ref().map(|value| value.span));
        self.active.push(name);
        let kind = self.body(def, args, span);
        self.active.pop();
        Some(kind.unwrap_or_else(|| self.too_much(span)))
    }

    fn too_much(&mut self, span: Span) -> ExprKind {
        self.diags
            .error("E0033", span, "macros expand to too much code")
            .help("use fewer of them, or a loop");
        hole()
    }

    fn misfit(&mut self, name: &str, candidates: &[Macro], args: &[Expr], span: Span) {
        let forms: Vec<String> = candidates.iter().map(signature).collect();
        let error = self.diags.error("E0034", span, format!("macro `{name}` does not take these arguments"));
        error.note(format!("its forms are {}", listed(forms.iter().map(String::as_str), 5)));
        if candidates.iter().any(|def| def.params.len() == args.len()) {
            error.help("for `$v` pass a variable, for `@m` a whole map");
        }
    }

    /// The body of a macro with the arguments inserted; `None` beyond the limits.
    fn body(&mut self, def: &'m Macro, args: &[Expr], span: Span) -> Option<ExprKind> {
        let (mut body, mut value) = (def.body.clone(), def.value.clone());
        body.span = span;
        let sizes = args.iter().map(|arg| Measure::of(arg).nodes).collect();
        let room = if self.prelude.is_some() { Some(usize::MAX) } else { MOST_NODES.checked_sub(self.nodes) };
        let mut all = |visit: &mut dyn Visit| {
            visit::block(&mut body, visit);
            value.iter_mut().for_each(|e| visit::expr(e, visit));
        };
        if self.prelude.is_some() {
            all(&mut SetSpan(span));
        }
        let suffix = format!("{}{}", self.prelude.unwrap_or_default(), self.count);
        let mut insert = InsertArguments {
            def,
            args,
            sizes,
            room,
            prelude: self.prelude.is_some(),
            suffix,
            diags: self.diags,
        };
        all(&mut insert);
        insert.room?;
        all(self);
        let mut measure = Measure::default();
        look::block(&body, &mut measure);
        value.iter().for_each(|e| look::expr(e, &mut measure));
        self.nodes += measure.nodes;
        (measure.levels < MAX_DEPTH || self.prelude.is_some())
            .then(|| ExprKind::Block { body, value: value.map(Box::new) })
    }
}

/// A placeholder for an invalid call: a value, and no statement.
fn hole() -> ExprKind {
    let value = Expr { kind: ExprKind::Int { value: 0, unsigned: false }, span: Span::default() };
    ExprKind::Block { body: Block::default(), value: Some(Box::new(value)) }
}

fn fits(def: &Macro, args: &[Expr]) -> bool {
    let fits = |(param, arg): (&MacroParam, &Expr)| match param {
        MacroParam::Expr(_) => true,
        MacroParam::Var(_) => matches!(arg.kind, ExprKind::Var(_)),
        MacroParam::Map(_) => matches!(arg.kind, ExprKind::Map { keys: None, .. }),
    };
    def.params.len() == args.len() && def.params.iter().zip(args).all(fits)
}

/// Inserts the arguments of a call into a copy of the macro's body.
struct InsertArguments<'a, 'd> {
    def: &'a Macro,
    args: &'a [Expr],
    /// Sizes of the arguments.
    sizes: Vec<usize>,
    /// Size that may still be inserted; `None` after the limit was exceeded.
    room: Option<usize>,
    /// The macro may use all maps.
    prelude: bool,
    /// Distinguishes the variables of this expansion from those of others.
    suffix: String,
    diags: &'d mut Diagnostics,
}

impl InsertArguments<'_, '_> {
    fn argument(&self, is: impl Fn(&MacroParam) -> bool) -> Option<&ExprKind> {
        self.def.params.iter().zip(self.args).find(|(param, _)| is(param)).map(|(_, arg)| &arg.kind)
    }

    /// A copy of an argument; a placeholder beyond the limit, since the call is rejected.
    fn copy(&mut self, at: usize) -> ExprKind {
        self.room = self.room.and_then(|room| room.checked_sub(self.sizes[at]));
        self.room.map_or_else(hole, |_| self.args[at].kind.clone())
    }

    fn renamed(&self, name: &str) -> String {
        let of_caller = self.argument(|param| matches!(param, MacroParam::Var(known) if known.node == name));
        match of_caller {
            Some(ExprKind::Var(name)) => name.clone(),
            _ => format!("{name}@{}", self.suffix),
        }
    }

    fn map_renamed(&mut self, name: &str, span: Span) -> String {
        let given = self.argument(|param| matches!(param, MacroParam::Map(known) if known.node == name));
        if let Some(ExprKind::Map { name, .. }) = given {
            return name.clone();
        }
        if self.prelude {
            return name.to_owned();
        }
        let (user, signature) = (&self.def.name.node, signature(self.def));
        let message = format!("macro `{user}` uses the map `@{name}`, which is not an argument");
        let error = self.diags.error("E0035", span, message);
        error.help(format!("a macro uses only its arguments: add `@{name}` to `{signature}`"));
        name.to_string()
    }
}

impl Visit for InsertArguments<'_, '_> {
    fn expr(&mut self, e: &mut Expr) {
        match &mut e.kind {
            ExprKind::Ident(name) => {
                let is_given =
                    |param: &MacroParam| matches!(param, MacroParam::Expr(known) if known.node == *name);
                if let Some(at) = self.def.params.iter().position(is_given) {
                    e.kind = self.copy(at);
                    if self.prelude {
                        e.span = self.args[at].span;
                    }
                }
            }
            ExprKind::Var(name) => *name = self.renamed(name),
            ExprKind::Map { name, .. } => *name = self.map_renamed(&name.clone(), e.span),
            // `sizeof(t)`, where the argument `t` is a type.
            ExprKind::SizeofExpr(inner) => {
                if let Some(ty) = type_in(&inner.kind) {
                    e.kind = ExprKind::SizeofType(ty);
                }
            }
            _ => {}
        }
    }

    /// `(t)x` and `(t *)p`, where the argument `t` is a type.
    fn ty(&mut self, ty: &mut TypeName) {
        let is_param = |param: &MacroParam| matches!(param, MacroParam::Expr(known) if known.node == ty.name);
        let given = match &ty.of {
            Some(of) => Some(&of.kind),
            None => self.argument(is_param),
        };
        let given = match given {
            // `b *`, where the argument `b` is `uint32`.
            Some(ExprKind::Ident(name)) if ty.of.is_none() => {
                Some(TypeName { name: name.clone(), ..TypeName::bare(ty.span) })
            }
            given => given.and_then(type_in),
        };
        let Some(given) = given else { return };
        *ty = TypeName {
            pointers: ty.pointers + given.pointers,
            dims: [ty.dims.as_slice(), &given.dims].concat(),
            span: ty.span,
            ..given
        };
    }

    fn var(&mut self, name: &mut Name) {
        name.node = self.renamed(&name.node);
    }

    fn map(&mut self, name: &mut Name) {
        name.node = self.map_renamed(&name.node.clone(), name.span);
    }
}

/// The type in an expression with an argument that is a type: `b`, `b[3]`.
fn type_in(kind: &ExprKind) -> Option<TypeName> {
    match kind {
        ExprKind::Type(ty) => Some(ty.clone()),
        ExprKind::Index { base, index } => {
            let mut ty = type_in(&base.kind)?;
            let ExprKind::Int { value, .. } = index.kind else { return None };
            // `b[2][3]` of `uint8[4]` is `uint8[2][3][4]`.
            ty.dims.insert(indices(base), u32::try_from(value).ok()?);
            Some(ty)
        }
        _ => None,
    }
}

/// The number of indices at the end of an expression.
fn indices(e: &Expr) -> usize {
    match &e.kind {
        ExprKind::Index { base, .. } => 1 + indices(base),
        _ => 0,
    }
}

/// Converts an `if` at the end of a block to the block's value, if each branch ends in a value.
fn chosen(block: &mut Block) -> Option<Expr> {
    if !block.stmts.last().is_some_and(|last| matches!(last.kind, StmtKind::If { .. }) && is_value(last)) {
        return None;
    }
    value_at_end(block)
}

/// Removes the value from the end of a block.
fn value_at_end(block: &mut Block) -> Option<Expr> {
    let Stmt { kind, span } = block.stmts.pop()?;
    let whole = |mut block: Block| {
        let (span, value) = (block.span, value_at_end(&mut block)?);
        Some(Expr { kind: ExprKind::Block { body: block, value: Some(Box::new(value)) }, span })
    };
    match kind {
        StmtKind::Expr(value) => Some(value),
        StmtKind::Block(inner) => whole(inner),
        StmtKind::If { cond, then, otherwise } => {
            let (then, otherwise) = (Some(Box::new(whole(then)?)), Box::new(whole(otherwise?)?));
            Some(Expr { kind: ExprKind::Ternary { cond: Box::new(cond), then, otherwise }, span })
        }
        _ => None,
    }
}

/// Whether a statement can be a value. Calls of macros have become blocks.
fn is_value(stmt: &Stmt) -> bool {
    let ends = |block: &Block| block.stmts.last().is_some_and(is_value);
    match &stmt.kind {
        StmtKind::Expr(_) => true,
        StmtKind::Block(inner) => ends(inner),
        StmtKind::If { then, otherwise: Some(otherwise), .. } => ends(then) && ends(otherwise),
        _ => false,
    }
}

/// Reports blocks without a value where one is expected, and replaces a block of only a value by the value.
struct Valueless<'d> {
    diags: &'d mut Diagnostics,
}

impl Visit for Valueless<'_> {
    fn expr(&mut self, e: &mut Expr) {
        if let ExprKind::Block { body, value: Some(value) } = &mut e.kind
            && body.stmts.is_empty()
        {
            e.kind = std::mem::replace(&mut value.kind, ExprKind::Bool(false));
        }
        if let ExprKind::Block { body, value: value @ None } = &mut e.kind {
            *value = chosen(body).map(Box::new);
        }
        if let ExprKind::Block { value: None, .. } = e.kind {
            self.diags
                .error("E0036", e.span, "a value is expected here, and this block has none")
                .help("its value is a last expression without `;`: `{ let $x = 1; $x + 1 }`");
            e.kind = hole();
        }
    }
}
