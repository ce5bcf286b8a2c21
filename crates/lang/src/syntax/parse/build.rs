//! Parse tree of the grammar to syntax tree.
//!
//! Each function takes the pair of the rule that it is named after. Mistakes that the grammar accepts on purpose (floats, an
//! assignment as a condition, an invalid target of an assignment) are reported here with a specific message. The node is then
//! a placeholder, and the script is refused.

use super::grammar::{Pair, Rule, position};
use super::literal::{self, Problem};
use super::{depth, headers};
use crate::diagnostics::Diagnostics;
use crate::limits::MAX_DEPTH;
use crate::source::span::{Span, WithSpan};
use crate::syntax::FindBuiltin;
use crate::syntax::ast::*;
use crate::syntax::operators;

/// `if a { }`
struct IfArm {
    span: Span,
    cond: Expr,
    then: Block,
}

/// Converts pest's pairs to the syntax tree.
pub(crate) struct Builder<'a> {
    /// Values of `$1`, `$2` ...
    params: &'a [String],
    pub(crate) builtins: FindBuiltin,
    /// Destination of diagnostics.
    pub(crate) diags: &'a mut Diagnostics,
    /// Offset in the script of the text that pest parsed.
    pub(crate) base: usize,
    depth: usize,
}

/// A placeholder for an invalid expression: a number, which causes no further diagnostics.
fn hole(span: Span) -> Expr {
    Expr { kind: ExprKind::Int { value: 1, unsigned: false }, span }
}

/// The next pair, which exists according to the grammar.
macro_rules! inner {
    ($pairs:expr, $what:literal) => {
        $pairs.next().expect(concat!("the grammar has ", $what, " here"))
    };
}

impl<'a> Builder<'a> {
    /// Creates a builder for texts at offset 0 of the script.
    pub(crate) fn new(
        params: &'a [String],
        builtins: FindBuiltin,
        diags: &'a mut Diagnostics,
    ) -> Builder<'a> {
        Builder { params, builtins, diags, base: 0, depth: 0 }
    }

    pub(crate) fn span(&self, pair: &Pair) -> Span {
        let span = pair.as_span();
        // Rules that end in an optional part include the blanks before it.
        let length = pair.as_str().trim_end().len();
        Span::new(self.base + span.start(), self.base + span.start() + length)
    }

    pub(crate) fn name(&self, pair: &Pair) -> Name {
        WithSpan { node: pair.as_str().to_owned(), span: self.span(pair) }
    }

    /// A name without bpftrace's prefix for what its standard library wraps: `__builtin_pid` is `pid`.
    fn without_prefix<'n>(&self, name: &'n str) -> &'n str {
        let name_of_builtin = name.strip_prefix("__builtin_").filter(|name| (self.builtins)(name).is_some());
        name_of_builtin.unwrap_or(name)
    }

    /// A name without its first character: `x` for `$x`.
    fn bare_name(&self, pair: &Pair) -> Name {
        WithSpan { node: pair.as_str()[1..].to_owned(), span: self.span(pair) }
    }

    /// Builds a subtree that is `levels` deeper; `None` beyond the limit.
    pub(crate) fn deeper<T>(
        &mut self,
        levels: usize,
        span: Span,
        build: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        self.depth += levels;
        let built = if self.depth <= MAX_DEPTH {
            Some(build(self))
        } else {
            depth::report_too_deep(span, self.diags);
            None
        };
        self.depth -= levels;
        built
    }

    // ---- script

    /// An item at the top level; `None` for items that are not part of the AST.
    pub(crate) fn item(&mut self, pair: Pair) -> Option<Item> {
        match pair.as_rule() {
            Rule::clause => Some(Item::Clause(self.clause(pair))),
            Rule::config => Some(Item::Config(self.config(pair))),
            Rule::define => self.define(pair),
            Rule::declaration => Some(Item::Declaration(self.declaration(pair))),
            Rule::map_decl => Some(self.map_decl(pair)),
            Rule::metric => Some(self.metric(pair)),
            Rule::import => Some(self.import(pair)),
            Rule::macro_def => Some(Item::Macro(self.macro_def(pair))),
            Rule::include => self.include(pair),
            _ => None,
        }
    }

    fn include(&mut self, pair: Pair) -> Option<Item> {
        let header = inner!(pair.into_inner(), "a header");
        let path = header.as_str().trim_matches(['<', '>', '"']);
        if !headers::is_known(path) {
            let span = self.span(&header);
            self.diags
                .warning("W0051", span, format!("header `{path}` is not read"))
                .label("its definitions are unknown here");
        }
        None
    }

    fn define(&mut self, pair: Pair) -> Option<Item> {
        let whole = self.span(&pair);
        let mut parts = pair.into_inner();
        let name = self.name(&inner!(parts, "a name"));
        let rest = inner!(parts, "the rest of the line");
        let text = rest.as_str().replace("\\\r\n", "   ").replace("\\\n", "  ");
        if text.starts_with('(') {
            let message = format!("`{}` has parameters and is not expanded", name.node);
            self.without_effect(whole, message, "declare it by `macro`: `macro twice(x) { x + x }`");
            return None;
        }
        let start = self.base + rest.as_span().start();
        match depth::parse(Rule::defined_value, &text) {
            Ok(pairs) => {
                let base = std::mem::replace(&mut self.base, start);
                let value = pairs.flat_map(Pair::into_inner).find(|pair| pair.as_rule() == Rule::expr);
                let value = value.map(|pair| self.expr(pair));
                self.base = base;
                value.map(|value| Item::Define { name, value })
            }
            Err(_) if text.trim().is_empty() => {
                let message = format!("`{}` is defined without a value and has no effect", name.node);
                self.without_effect(whole, message, "give it a literal, or remove it");
                None
            }
            Err(error) => {
                let end = text.trim_end().len();
                let span = Span::new(start + position(&error).min(end), start + end);
                let message = format!("the value of `{}` is not a literal: it has no effect", name.node);
                self.without_effect(span, message, "`#define NAME literal` names a constant");
                None
            }
        }
    }

    /// Warns of a C definition that has no effect in a script.
    fn without_effect(&mut self, span: Span, message: String, help: &str) {
        self.diags.warning("W0052", span, message).help(help);
    }

    fn config(&mut self, pair: Pair) -> Vec<ConfigEntry> {
        pair.into_inner()
            .filter(|part| part.as_rule() == Rule::config_entry)
            .map(|entry| self.entry(entry))
            .collect()
    }

    fn entry(&mut self, pair: Pair) -> ConfigEntry {
        let mut parts = pair.into_inner().filter(|part| part.as_rule() != Rule::assign);
        let key = self.name(&inner!(parts, "a key"));
        let value = inner!(inner!(parts, "a value").into_inner(), "a literal");
        ConfigEntry { key, value: self.primary(value) }
    }

    fn import(&mut self, pair: Pair) -> Item {
        let path = pair.into_inner().find(|part| part.as_rule() == Rule::string);
        let path = path.expect("the grammar has a path here");
        let (span, text) = (self.span(&path), path.as_str());
        Item::Import(WithSpan { node: self.quoted(&text[1..text.len() - 1], span), span })
    }

    fn macro_def(&mut self, pair: Pair) -> Macro {
        let (mut name, mut params, mut whole) = (None, Vec::new(), (Block::default(), None));
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => name = Some(self.name(&part)),
                Rule::macro_param => params.push(self.macro_param(part)),
                Rule::braces => whole = self.valued_block(part),
                _ => {}
            }
        }
        let (body, value) = whole;
        Macro { name: name.expect("the grammar has a name here"), params, body, value }
    }

    fn macro_param(&mut self, pair: Pair) -> MacroParam {
        let part = inner!(pair.into_inner(), "a parameter");
        match part.as_rule() {
            Rule::var => MacroParam::Var(self.bare_name(&part)),
            Rule::map_name => MacroParam::Map(self.bare_name(&part)),
            _ => MacroParam::Expr(self.name(&part)),
        }
    }

    /// A block in a position that requires a value; an `if` at its end is the value.
    fn required_block(&mut self, pair: Pair) -> (Block, Option<Expr>) {
        let is_else = |part: Pair| part.as_rule() == Rule::braces;
        let chooses = |stmt: &Pair| {
            stmt.as_rule() == Rule::if_stmt && stmt.clone().into_inner().last().is_some_and(is_else)
        };
        let Some(last) = last_stmt(&pair).filter(chooses) else { return self.valued_block(pair) };
        let span = self.span(&pair);
        let mut before: Vec<Pair> = pair.into_inner().filter(is_stmt).collect();
        before.pop();
        let built = self.deeper(1, span, |this| {
            let stmts = before.into_iter().map(|part| this.stmt(part)).collect();
            (Block { stmts, span }, Some(this.if_of_stmt(last)))
        });
        built.unwrap_or_default()
    }

    /// `if a { 1 } else if b { 2 } else { 3 }`, which was parsed as a statement.
    fn if_of_stmt(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let mut arms: Vec<Pair> = pair.into_inner().filter(|part| part.as_rule() != Rule::kw_else).collect();
        let arm = |this: &mut Self, part: Option<Pair>| {
            let part = part.expect("the grammar has a block here");
            this.deeper(1, span, |this| this.if_value(part)).unwrap_or_else(|| hole(span))
        };
        let mut value = arm(self, arms.pop());
        for part in arms.into_iter().rev() {
            let mut parts: Vec<Pair> =
                part.into_inner().filter(|part| part.as_rule() != Rule::kw_if).collect();
            let then = Some(Box::new(arm(self, parts.pop())));
            let cond = Box::new(self.condition(&parts));
            value = Expr { kind: ExprKind::Ternary { cond, then, otherwise: Box::new(value) }, span };
        }
        value
    }

    /// A block, and its last expression if no `;` follows it.
    fn valued_block(&mut self, pair: Pair) -> (Block, Option<Expr>) {
        let last = last_stmt(&pair);
        let valued = last.is_some_and(|part| part.as_rule() == Rule::expr_stmt);
        let mut block = self.block(pair);
        match block.stmts.pop() {
            Some(Stmt { kind: StmtKind::Expr(value), .. }) if valued => (block, Some(value)),
            last => {
                block.stmts.extend(last);
                (block, None)
            }
        }
    }

    fn map_decl(&mut self, pair: Pair) -> Item {
        let mut parts = pair
            .into_inner()
            .filter(|part| !matches!(part.as_rule(), Rule::kw_let | Rule::assign | Rule::lparen));
        let name = self.bare_name(&inner!(parts, "a map"));
        let kind = self.name(&inner!(parts, "a kind"));
        let max_entries = self.expr(inner!(parts, "a number"));
        Item::MapDecl { name, kind, max_entries }
    }

    fn metric(&mut self, pair: Pair) -> Item {
        let mut map = None;
        let mut entries = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::map_name => map = Some(self.bare_name(&part)),
                Rule::metric_entry => entries.push(self.entry(part)),
                _ => {}
            }
        }
        Item::Metric { map: map.expect("the grammar has a map here"), entries }
    }

    // ---- probes

    fn clause(&mut self, pair: Pair) -> Clause {
        let start = self.span(&pair);
        let mut probes: Vec<ProbeSpec> = Vec::new();
        let (mut name, mut predicate, mut body) = (None, None, Block::default());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::clause_name => name = part.into_inner().next().map(|part| self.name(&part)),
                Rule::spec => probes.push(self.spec(part)),
                Rule::bare_spec => {
                    let spec = self.bare_spec(part, probes.last());
                    probes.push(spec);
                }
                Rule::predicate => predicate = Some(self.predicate(part)),
                Rule::braces | Rule::angles => body = self.block(part),
                _ => {}
            }
        }
        let span = start.to(body.span);
        Clause { name, probes, predicate, body, span }
    }

    fn spec(&mut self, pair: Pair) -> ProbeSpec {
        let span = self.span(&pair);
        let text = pair.as_str();
        let mut parts = pair.into_inner().filter(|part| part.as_rule() != Rule::spec_colon).peekable();
        if parts.peek().is_some_and(|part| part.as_rule() == Rule::spec_given) {
            return self.given_spec(text, span);
        }
        let provider = self.name(&inner!(parts, "a provider"));
        let parts = parts.map(|part| self.spec_part(part)).collect();
        ProbeSpec { provider, parts, span }
    }

    /// `$1`, `BEG$1`, `$1:hz:99`: an attach point after substitution of the command line's words.
    fn given_spec(&mut self, text: &str, span: Span) -> ProbeSpec {
        let whole = self.substitute(text, span);
        let mut parts = whole.split(':').map(str::to_owned);
        let provider = WithSpan { node: parts.next().unwrap_or_default(), span };
        let parts = parts.map(|part| WithSpan { node: SpecPart::Text(part), span }).collect();
        ProbeSpec { provider, parts, span }
    }

    /// `cuMemAlloc` after `uprobe:libcuda:cuInit,`: inherits everything but the last part.
    fn bare_spec(&mut self, pair: Pair, before: Option<&ProbeSpec>) -> ProbeSpec {
        let span = self.span(&pair);
        let part = self.spec_part(inner!(pair.into_inner(), "a part"));
        match before {
            Some(ProbeSpec { provider, parts, .. }) if !parts.is_empty() => {
                let kept = parts[..parts.len() - 1].iter().cloned();
                ProbeSpec { provider: provider.clone(), parts: kept.chain([part]).collect(), span }
            }
            _ => {
                let message = "a bare name after a comma belongs to the target before it, and there is none";
                self.diags
                    .error("E0010", span, message)
                    .help("write the whole probe, such as `uprobe:libcuda:cuInit`");
                ProbeSpec { provider: WithSpan { node: String::new(), span }, parts: vec![part], span }
            }
        }
    }

    fn spec_part(&mut self, pair: Pair) -> WithSpan<SpecPart> {
        let span = self.span(&pair);
        let text = pair.as_str();
        let node = match pair.as_rule() {
            Rule::quoted => SpecPart::Quoted(self.quoted(&text[1..text.len() - 1], span)),
            Rule::quoted_at => {
                let mut inner = pair.into_inner();
                let (name, offset) = (inner!(inner, "a name").as_str(), inner!(inner, "an offset").as_str());
                let name = self.quoted(&name[1..name.len() - 1], span);
                SpecPart::QuotedAt(name, self.substitute(offset, span))
            }
            Rule::spec_option => {
                SpecPart::Option(Box::new(self.name_or_call(inner!(pair.into_inner(), "a call"))))
            }
            Rule::function_regex => SpecPart::Regex(text[1..text.len() - 1].replace("\\/", "/")),
            _ => SpecPart::Text(self.substitute(text, span)),
        };
        WithSpan { node, span }
    }

    fn quoted(&mut self, inside: &str, span: Span) -> String {
        String::from_utf8(self.unescape(inside, span)).unwrap_or_else(|_| {
            self.diags.error("E0010", span, "the name of a probe is not valid UTF-8");
            String::new()
        })
    }

    /// Replaces `$1` in a probe's text.
    fn substitute(&mut self, text: &str, span: Span) -> String {
        let mut pieces = text.split('$');
        let mut out = pieces.next().unwrap_or("").to_owned();
        for piece in pieces {
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            match piece[..digits].parse::<u32>() {
                Ok(number) => out.push_str(self.parameter_text(number, span)),
                Err(_) => out.push('$'),
            }
            let digits = if piece[..digits].parse::<u32>().is_ok() { digits } else { 0 };
            out.push_str(&piece[digits..]);
        }
        out
    }

    fn parameter_text(&mut self, number: u32, span: Span) -> &'a str {
        let given = self.params.len();
        match self.parameter(number) {
            Some(text) => text,
            None => {
                let message =
                    format!("the probe uses `${number}`, and the command line has no such parameter");
                let plural = if given == 1 { "" } else { "s" };
                let help = format!(
                    "the command line has {given} positional parameter{plural}; add the missing ones after the script"
                );
                self.diags.error("E0010", span, message).help(help);
                ""
            }
        }
    }

    fn parameter(&self, number: u32) -> Option<&'a str> {
        let params = self.params;
        (number as usize).checked_sub(1).and_then(|index| params.get(index)).map(String::as_str)
    }

    fn predicate(&mut self, pair: Pair) -> Expr {
        let parts: Vec<Pair> = pair.into_inner().collect();
        self.condition(&parts)
    }

    // ---- statements

    fn block(&mut self, pair: Pair) -> Block {
        let span = self.span(&pair);
        let stmts = self.deeper(1, span, |this| this.stmts(pair)).unwrap_or_default();
        Block { stmts, span }
    }

    fn stmts(&mut self, pair: Pair) -> Vec<Stmt> {
        pair.into_inner().filter(is_stmt).map(|part| self.stmt(part)).collect()
    }

    fn stmt(&mut self, pair: Pair) -> Stmt {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        if rule == Rule::if_stmt {
            return self.if_stmt(pair);
        }
        if rule == Rule::braces {
            return Stmt { kind: StmtKind::Block(self.block(pair)), span };
        }
        let mut parts = pair.into_inner().filter(|part| !is_mark(part.as_rule()));
        let kind = match rule {
            Rule::while_stmt => self.while_stmt(&mut parts),
            Rule::for_stmt => self.for_stmt(&mut parts),
            Rule::unroll_stmt => StmtKind::Unroll {
                count: self.expr(inner!(parts, "a count")),
                body: self.block(inner!(parts, "a body")),
            },
            Rule::let_stmt => self.let_stmt(&mut parts),
            Rule::return_stmt => StmtKind::Return(parts.next().map(|value| self.expr(value))),
            Rule::break_stmt => StmtKind::Break,
            Rule::continue_stmt => StmtKind::Continue,
            _ => self.expr_stmt(&mut parts),
        };
        Stmt { kind, span }
    }

    fn if_stmt(&mut self, pair: Pair) -> Stmt {
        let span = self.span(&pair);
        let parts: Vec<Pair> = pair.into_inner().filter(|part| part.as_rule() != Rule::kw_else).collect();
        let built = self.deeper(parts.len(), span, |this| this.if_arms(parts));
        built.unwrap_or(Stmt { kind: StmtKind::Block(Block::default()), span })
    }

    /// `if a { } else if b { } else { }`, built from the last arm to the first.
    fn if_arms(&mut self, parts: Vec<Pair>) -> Stmt {
        let mut arms = Vec::new();
        let mut otherwise = None;
        for part in parts {
            match part.as_rule() {
                Rule::if_arm => arms.push(self.if_arm(part)),
                _ => otherwise = Some(self.block(part)),
            }
        }
        let mut last = None;
        for IfArm { span: start, cond, then } in arms.into_iter().rev() {
            if let Some(stmt) = last.take() {
                otherwise = Some(block_of(stmt));
            }
            let span = start.to(otherwise.as_ref().map_or(then.span, |block: &Block| block.span));
            last = Some(Stmt { kind: StmtKind::If { cond, then, otherwise: otherwise.take() }, span });
        }
        last.expect("the grammar has an arm here")
    }

    fn if_arm(&mut self, pair: Pair) -> IfArm {
        let span = self.span(&pair);
        let (cond, then) = self.cond_and_body(pair.into_inner());
        IfArm { span, cond, then }
    }

    fn while_stmt<'p>(&mut self, parts: &mut impl Iterator<Item = Pair<'p>>) -> StmtKind {
        let (cond, body) = self.cond_and_body(parts);
        StmtKind::While { cond, body }
    }

    fn cond_and_body<'p>(&mut self, parts: impl Iterator<Item = Pair<'p>>) -> (Expr, Block) {
        let mut parts: Vec<Pair> = parts.collect();
        let body = parts.pop().expect("the grammar has a body here");
        (self.condition(&parts), self.block(body))
    }

    fn for_stmt<'p>(&mut self, parts: &mut impl Iterator<Item = Pair<'p>>) -> StmtKind {
        let var = self.bare_name(&inner!(parts, "a variable"));
        let start = self.expr(inner!(parts, "a range or map"));
        let next = inner!(parts, "a body");
        if next.as_rule() == Rule::expr {
            let end = self.expr(next);
            return StmtKind::ForRange { var, start, end, body: self.block(inner!(parts, "a body")) };
        }
        let body = self.block(next);
        if let ExprKind::Map { name, keys: None } = start.kind {
            return StmtKind::ForMap { var, map: WithSpan { node: name, span: start.span }, body };
        }
        self.diags
            .error("E0016", start.span, "`for` loops over a range or a map")
            .help("write `for $i : 0..10 { }` or `for $kv : @m { }`");
        StmtKind::Block(body)
    }

    fn let_stmt<'p>(&mut self, parts: &mut impl Iterator<Item = Pair<'p>>) -> StmtKind {
        let name = self.bare_name(&inner!(parts, "a variable"));
        let (mut ty, mut value) = (None, None);
        for part in parts {
            match part.as_rule() {
                Rule::type_name => ty = Some(self.type_name(part)),
                _ => value = Some(self.expr(part)),
            }
        }
        StmtKind::Let { name, ty, value }
    }

    fn expr_stmt<'p>(&mut self, parts: &mut impl Iterator<Item = Pair<'p>>) -> StmtKind {
        let target = self.expr(inner!(parts, "an expression"));
        let Some(op) = parts.next() else { return StmtKind::Expr(target) };
        let op = operators::from_symbol(op.as_str().trim_end_matches('='));
        let value = self.expr(inner!(parts, "a value"));
        match target.kind {
            ExprKind::Ident(name) if name == "_" && op.is_none() => StmtKind::Expr(value),
            ExprKind::Var(_) | ExprKind::Map { .. } => StmtKind::Assign { target, op, value },
            _ => {
                self.not_assignable(&target);
                StmtKind::Expr(value)
            }
        }
    }

    fn not_assignable(&mut self, target: &Expr) {
        let label = match target.kind {
            ExprKind::TupleIndex { .. } => "a part of a tuple, which is a value as a whole",
            _ => "neither a variable nor a map",
        };
        self.diags
            .error("E0008", target.span, "this cannot be assigned to")
            .label(label)
            .help(way_to_assign(&target.kind));
    }

    // ---- expressions

    /// A condition; an assignment in its place is an error.
    fn condition(&mut self, parts: &[Pair]) -> Expr {
        let find = |rule| parts.iter().find(|part| part.as_rule() == rule).cloned();
        let pair = find(Rule::expr).expect("the grammar has a condition here");
        let expr = self.expr(pair.clone());
        if let Some(wrong) = find(Rule::wrong_assign) {
            self.wrong_assign(wrong);
        }
        if self.refuse_record(&pair, &expr) { hole(expr.span) } else { expr }
    }

    /// Reports `if (x = 3)`, which is parsed as a record but was meant as a comparison.
    fn refuse_record(&mut self, pair: &Pair, condition: &Expr) -> bool {
        let ExprKind::Record(members) = &condition.kind else { return false };
        let [_] = members.as_slice() else { return false };
        let at = condition.span.start as usize + pair.as_str().find('=').unwrap_or(0);
        let span = Span::new(at, at + 1);
        let message = "`=` assigns; a value is expected here";
        self.diags.error("E0006", span, message).help("`==` compares");
        true
    }

    fn wrong_assign(&mut self, pair: Pair) {
        let mut parts = pair.into_inner();
        let op = inner!(parts, "an operator");
        let text = op.as_str();
        let span = self.span(&op);
        let value = inner!(parts, "a value");
        let diag = self.diags.error("E0006", span, format!("`{text}` assigns; a value is expected here"));
        match text {
            "=" if value.as_str().starts_with('~') => {
                diag.help("to search in a string use `strcontains(text, \"part\")`")
            }
            "=" => diag.help("`==` compares"),
            _ => diag.help("assign in a separate statement before this one"),
        };
        // The right side may have errors of its own.
        self.expr(value);
    }

    pub(crate) fn expr(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let branches = pair.clone().into_inner().filter(|part| part.as_rule() == Rule::question).count();
        self.deeper(1 + branches, span, |this| this.ternary(pair)).unwrap_or_else(|| hole(span))
    }

    /// `a ? b : c ? d : e`; associates to the right.
    fn ternary(&mut self, pair: Pair) -> Expr {
        let mut conds = Vec::new();
        let mut thens = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::question => thens.push(None),
                Rule::expr => *thens.last_mut().expect("a `?` stands before") = Some(self.expr(part)),
                Rule::binary => conds.push(self.binary(part)),
                _ => {}
            }
        }
        let last = conds.pop().expect("the grammar has an operand here");
        conds.into_iter().zip(thens).rev().fold(last, |otherwise, (cond, then)| {
            let span = cond.span.to(otherwise.span);
            let (cond, then, otherwise) = (Box::new(cond), then.map(Box::new), Box::new(otherwise));
            Expr { kind: ExprKind::Ternary { cond, then, otherwise }, span }
        })
    }

    fn binary(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let parts: Vec<Pair> = pair.into_inner().collect();
        self.deeper(levels(&parts), span, |this| this.operators(parts)).unwrap_or_else(|| hole(span))
    }

    /// Builds a tree from alternating operands and operators, by precedence. A chain of `||` or of `&&` becomes a
    /// balanced tree, since its meaning does not depend on associativity.
    fn operators(&mut self, parts: Vec<Pair>) -> Expr {
        let mut operands: Vec<Expr> = Vec::new();
        let mut pending: Vec<BinaryOp> = Vec::new();
        for part in parts {
            if part.as_rule() == Rule::unary {
                operands.push(self.unary(part));
                continue;
            }
            let op = operators::from_symbol(part.as_str()).expect("the grammar's operators are in the table");
            let is_chained = |before: BinaryOp| before == op && is_logical(op);
            while pending.last().is_some_and(|&before| {
                operators::level(before) >= operators::level(op) && !is_chained(before)
            }) {
                join(&mut operands, &mut pending);
            }
            pending.push(op);
        }
        while !pending.is_empty() {
            join(&mut operands, &mut pending);
        }
        operands.pop().expect("the grammar has an operand here")
    }

    fn unary(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let parts: Vec<Pair> = pair.into_inner().collect();
        if parts.len() == 1 {
            return parts.into_iter().map(|part| self.primary(part)).next().unwrap_or_else(|| hole(span));
        }
        self.deeper(parts.len() - 1, span, |this| this.affixes(parts)).unwrap_or_else(|| hole(span))
    }

    /// Prefix operators, a primary, and postfix operators, which bind tighter.
    fn affixes(&mut self, mut parts: Vec<Pair>) -> Expr {
        let primary = parts.iter().position(|part| !is_prefix(part.as_rule())).unwrap_or(0);
        let suffixes = parts.split_off(primary + 1);
        let mut expr = parts.pop().map(|part| self.primary(part)).expect("the grammar has an operand here");
        for part in suffixes {
            expr = self.postfix(expr, part);
        }
        for part in parts.into_iter().rev() {
            expr = self.prefix(part, expr);
        }
        expr
    }

    fn prefix(&mut self, pair: Pair, expr: Expr) -> Expr {
        let start = self.span(&pair);
        let span = start.to(expr.span);
        let op = match pair.as_rule() {
            Rule::cast => {
                let ty = self.type_name(pair);
                return Expr { kind: ExprKind::Cast { ty, expr: Box::new(expr) }, span };
            }
            Rule::increment => return self.inc_dec(expr, span, 1, false),
            Rule::decrement => return self.inc_dec(expr, span, -1, false),
            Rule::neg => UnaryOp::Neg,
            Rule::not => UnaryOp::Not,
            Rule::bit_not => UnaryOp::BitNot,
            Rule::deref => UnaryOp::Deref,
            Rule::kw_comptime => UnaryOp::Comptime,
            _ => UnaryOp::AddressOf,
        };
        Expr { kind: ExprKind::Unary { op, expr: Box::new(expr) }, span }
    }

    fn postfix(&mut self, expr: Expr, pair: Pair) -> Expr {
        let span = expr.span.to(self.span(&pair));
        let kind = match pair.as_rule() {
            Rule::increment => return self.inc_dec(expr, span, 1, true),
            Rule::decrement => return self.inc_dec(expr, span, -1, true),
            Rule::keys => return self.subscript(expr, pair, span),
            rule => {
                let part = inner!(pair.into_inner(), "a field");
                match part.as_rule() {
                    Rule::tuple_index => {
                        ExprKind::TupleIndex { index: self.index_of(&part), base: Box::new(expr) }
                    }
                    _ => ExprKind::Field {
                        name: self.name(&part),
                        base: Box::new(expr),
                        arrow: rule == Rule::arrow,
                    },
                }
            }
        };
        Expr { kind, span }
    }

    fn inc_dec(&mut self, target: Expr, span: Span, delta: i8, postfix: bool) -> Expr {
        if !matches!(target.kind, ExprKind::Var(_) | ExprKind::Map { .. }) {
            self.not_assignable(&target);
        }
        Expr { kind: ExprKind::IncDec { target: Box::new(target), delta, postfix }, span }
    }

    /// `@m[k, 2]`: the keys of a map; `e[i]`: an index.
    fn subscript(&mut self, expr: Expr, pair: Pair, span: Span) -> Expr {
        let mut keys = self.exprs(pair);
        let kind = match expr.kind {
            ExprKind::Map { name, keys: None } => ExprKind::Map { name, keys: Some(keys) },
            _ => {
                if let Some(second) = keys.get(1) {
                    self.diags
                        .error("E0001", second.span, "expected one index, found several")
                        .help("only maps have keys of several values: `@m[a, b]`");
                }
                let index = Box::new(keys.swap_remove(0));
                ExprKind::Index { base: Box::new(expr), index }
            }
        };
        Expr { kind, span }
    }

    pub(crate) fn index_of(&mut self, pair: &Pair) -> u32 {
        pair.as_str().parse().unwrap_or_else(|_| {
            let span = self.span(pair);
            self.diags.error("E0005", span, format!("`{}` is too large for an index", pair.as_str()));
            0
        })
    }

    fn exprs(&mut self, pair: Pair) -> Vec<Expr> {
        pair.into_inner().filter(|part| part.as_rule() == Rule::expr).map(|part| self.expr(part)).collect()
    }

    fn primary(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let text = pair.as_str();
        let kind = match pair.as_rule() {
            Rule::number => self.number(text, span),
            Rule::string => ExprKind::Str(self.unescape(&text[1..text.len() - 1], span)),
            Rule::boolean => ExprKind::Bool(text == "true"),
            Rule::ident => ExprKind::Ident(self.without_prefix(text).to_owned()),
            Rule::var => ExprKind::Var(text[1..].to_owned()),
            Rule::map_name => ExprKind::Map { name: text[1..].to_owned(), keys: None },
            Rule::positional => self.positional(text, span),
            Rule::positional_count => ExprKind::Int { value: self.params.len() as u64, unsigned: false },
            Rule::sizeof => self.sizeof(pair),
            Rule::typeinfo => self.type_info(pair),
            Rule::offsetof => self.offset_of(pair),
            Rule::container_of => self.container_of(pair),
            Rule::record => self.record(pair),
            Rule::if_expr => return self.if_expr(pair),
            Rule::type_value => ExprKind::Type(self.type_of(pair)),
            Rule::paren => return self.paren(pair),
            Rule::block_expr => {
                let (body, value) = self.required_block(inner!(pair.into_inner(), "a block"));
                ExprKind::Block { body, value: value.map(Box::new) }
            }
            _ => return self.name_or_call(pair),
        };
        Expr { kind, span }
    }

    /// `if c { 1 } else { 2 }` becomes `c ? { 1 } : { 2 }`.
    fn if_expr(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let mut parts: Vec<Pair> =
            pair.into_inner().filter(|part| !matches!(part.as_rule(), Rule::kw_if | Rule::kw_else)).collect();
        let (otherwise, then) = (parts.pop(), parts.pop());
        let cond = Box::new(self.condition(&parts));
        let mut arm = |part: Option<Pair>| {
            let part = part.expect("the grammar has two arms here");
            let built = self.deeper(1, span, |this| this.if_value(part));
            Box::new(built.unwrap_or_else(|| hole(span)))
        };
        let (then, otherwise) = (arm(then), arm(otherwise));
        Expr { kind: ExprKind::Ternary { cond, then: Some(then), otherwise }, span }
    }

    /// A block, or another `if`.
    fn if_value(&mut self, pair: Pair) -> Expr {
        if pair.as_rule() == Rule::if_expr {
            return self.if_expr(pair);
        }
        let span = self.span(&pair);
        let (body, value) = self.required_block(pair);
        Expr { kind: ExprKind::Block { body, value: value.map(Box::new) }, span }
    }

    fn number(&mut self, text: &str, span: Span) -> ExprKind {
        literal::number(text).unwrap_or_else(|Problem { code, message, help }| {
            self.diags.error(code, span, message).help(help);
            hole(span).kind
        })
    }

    /// The bytes of a string without its quotes; `span` includes the quotes.
    fn unescape(&mut self, inside: &str, span: Span) -> Vec<u8> {
        literal::unescape(inside).unwrap_or_else(|bad| {
            let start = span.start as usize + 1;
            let message = format!("`{}` is not an escape", &inside[bad.clone()]);
            let help = match inside.get(bad.clone()) {
                Some("\\%") => "a percent sign is written `%%` in a format",
                _ => "a backslash itself is written `\\\\`",
            };
            self.diags.error("E0009", Span::new(start + bad.start, start + bad.end), message).help(help);
            Vec::new()
        })
    }

    fn positional(&mut self, text: &str, span: Span) -> ExprKind {
        let Some(given) = text[1..].parse().ok().and_then(|number| self.parameter(number)) else {
            // A parameter without a value is 0.
            return ExprKind::Int { value: 0, unsigned: false };
        };
        match literal::parameter(given) {
            Some((false, kind)) => kind,
            Some((true, kind)) => ExprKind::Unary { op: UnaryOp::Neg, expr: Box::new(Expr { kind, span }) },
            None => ExprKind::Str(given.as_bytes().to_vec()),
        }
    }

    fn name_or_call(&mut self, pair: Pair) -> Expr {
        let mut parts = pair.into_inner();
        let mut name = self.name(&inner!(parts, "a name"));
        name.node = self.without_prefix(&name.node).to_owned();
        let Some(args) = parts.next() else {
            return Expr { span: name.span, kind: ExprKind::Ident(name.node) };
        };
        let span = name.span.to(self.span(&args));
        if let Some(kind) = self.positional_string(&name, &args) {
            return Expr { kind, span };
        }
        let args = self.call_args(&name, args);
        Expr { kind: ExprKind::Call { name, args }, span }
    }

    /// `"x", key = value`: the named arguments become one record at the end.
    fn call_args(&mut self, function: &Name, pair: Pair) -> Vec<Expr> {
        let (mut args, mut named) = (Vec::new(), Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::entry => {
                    let span = self.span(&part);
                    named.push((span, self.named_value(part)));
                }
                Rule::expr => {
                    let value = self.expr(part);
                    if !named.is_empty() {
                        self.diags.error("E0017", value.span, "a value without a name follows a named one");
                    }
                    args.push(value);
                }
                _ => {}
            }
        }
        let (Some((first, _)), Some((last, _))) = (named.first(), named.last()) else { return args };
        let span = first.to(*last);
        if !TAKE_NAMED.contains(&function.node.as_str()) {
            let message = format!("`{}` takes no named values", function.node);
            let error = self.diags.error("E0017", span, message);
            error.help("`==` compares; `span`, `event` and `counter` take `name = value`");
        }
        let members = named.into_iter().map(|(_, entry)| entry).collect();
        args.push(Expr { kind: ExprKind::Record(members), span });
        args
    }

    /// `str($1)`, `str($1, 8)`, `str($1 + 2)`: the parameter's text, even if it looks like a number, or the rest
    /// of it; the length includes a NUL.
    fn positional_string(&mut self, name: &Name, args: &Pair) -> Option<ExprKind> {
        let inside = args.as_str().strip_prefix('(')?.strip_suffix(')').filter(|_| name.node == "str")?;
        let (first, limit) = inside.split_once(',').unwrap_or((inside, "4294967296"));
        let (word, skipped) = first.split_once('+').unwrap_or((first, "0"));
        let number = word.trim().strip_prefix('$')?.parse().ok()?;
        let skipped: usize = skipped.trim().parse().ok()?;
        let limit: usize = limit.trim().parse().ok()?;
        let text = self.parameter(number).unwrap_or("").bytes().skip(skipped).take(limit.saturating_sub(1));
        Some(ExprKind::Str(text.collect()))
    }

    /// `(e)`, `(1, "a")`, `(1,)`
    pub(crate) fn paren(&mut self, pair: Pair) -> Expr {
        let span = self.span(&pair);
        let mut tuple = false;
        let mut parts = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::expr => parts.push(self.expr(part)),
                Rule::comma | Rule::trailing_comma => tuple = true,
                Rule::wrong_assign => self.wrong_assign(part),
                _ => {}
            }
        }
        match parts.pop() {
            Some(only) if !tuple => Expr { span, ..only },
            Some(last) => {
                parts.push(last);
                Expr { kind: ExprKind::Tuple(parts), span }
            }
            None => hole(span),
        }
    }

    /// `(a = 1, b = "x")`
    fn record(&mut self, pair: Pair) -> ExprKind {
        let entries = pair.into_inner().filter(|part| part.as_rule() == Rule::entry);
        ExprKind::Record(entries.map(|entry| self.named_value(entry)).collect())
    }

    /// `a = 1`
    fn named_value(&mut self, entry: Pair) -> (Name, Expr) {
        let mut parts = entry.into_inner().filter(|part| part.as_rule() != Rule::assign);
        (self.name(&inner!(parts, "a name")), self.expr(inner!(parts, "a value")))
    }

    /// `sizeof(uint32)`, `sizeof($x)`
    fn sizeof(&mut self, pair: Pair) -> ExprKind {
        let part = pair
            .into_inner()
            .find(|part| part.as_rule() != Rule::kw_sizeof)
            .expect("the grammar has an operand here");
        match part.as_rule() {
            Rule::paren => ExprKind::SizeofExpr(Box::new(self.paren(part))),
            _ => ExprKind::SizeofType(self.type_of(part)),
        }
    }
}

/// Functions with arguments of the form `name = value`.
const TAKE_NAMED: [&str; 3] = ["span", "event", "counter"];

/// Whether the rule is a keyword or punctuation of a statement.
fn is_mark(rule: Rule) -> bool {
    use Rule::*;
    matches!(
        rule,
        kw_if
            | kw_while
            | kw_for
            | kw_unroll
            | kw_let
            | kw_return
            | kw_break
            | kw_continue
            | lparen
            | rparen
            | colon
            | range
            | assign
    )
}

/// The advice for a target that cannot be assigned to.
fn way_to_assign(target: &ExprKind) -> String {
    let named = |base: &Expr, word: &str| matches!(&base.kind, ExprKind::Ident(name) if name == word);
    match target {
        ExprKind::Index { base, .. } if matches!(base.kind, ExprKind::Map { keys: Some(_), .. }) => {
            "all keys are written in one pair of brackets: `@m[a, b]`".into()
        }
        ExprKind::Field { base, name, .. } if named(base, "self") => {
            format!("keep values of a thread in a map: `@{}[tid]`", name.node)
        }
        ExprKind::Field { base, name, .. } if named(base, "this") => {
            format!("keep values of one run of the clause in a variable: `${}`", name.node)
        }
        ExprKind::TupleIndex { .. } => "tuples are values: assign a new one, `$t = (3, $t.1)`".into(),
        _ => "scratch variables are written `$x`, maps `@m` or `@m[key]`".into(),
    }
}

fn is_prefix(rule: Rule) -> bool {
    use Rule::*;
    matches!(rule, cast | increment | decrement | neg | not | bit_not | deref | address_of | kw_comptime)
}

/// Combines the operands of the last operator, or of the last chain of `||` or `&&`.
fn join(operands: &mut Vec<Expr>, pending: &mut Vec<BinaryOp>) {
    let Some(op) = pending.pop() else { return };
    let mut count = 2;
    while is_logical(op) && pending.last() == Some(&op) {
        pending.pop();
        count += 1;
    }
    let chain = operands.split_off(operands.len().saturating_sub(count));
    operands.extend(balanced(op, chain));
}

/// A tree of minimal depth; operands keep their order.
fn balanced(op: BinaryOp, mut chain: Vec<Expr>) -> Option<Expr> {
    if chain.len() < 2 {
        return chain.pop();
    }
    let rest = chain.split_off(chain.len().div_ceil(2));
    let (lhs, rhs) = (balanced(op, chain)?, balanced(op, rest)?);
    let span = lhs.span.to(rhs.span);
    Some(Expr { kind: ExprKind::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }, span })
}

fn is_logical(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Or | BinaryOp::And)
}

/// Upper bound of the depth of the tree of operands and operators.
fn levels(parts: &[Pair]) -> usize {
    let is_logical = |part: &Pair| matches!(part.as_str(), "||" | "&&");
    let between = parts.split(is_logical).map(|parts| parts.len() / 2);
    let chains = parts.iter().filter(|part| is_logical(part)).count();
    // A chain of `||`, whose operands are chains of `&&`.
    let of_chains = if chains == 0 { 0 } else { 2 * (chains.ilog2() as usize + 1) };
    between.max().unwrap_or(0) + of_chains
}

/// Whether the pair is a statement, not a delimiter.
fn is_stmt(part: &Pair) -> bool {
    use Rule::*;
    !matches!(part.as_rule(), lbrace | rbrace | langle | rangle | semi)
}

/// The last part of a block, which may be a `;`.
fn last_stmt<'p>(block: &Pair<'p>) -> Option<Pair<'p>> {
    let marks = [Rule::lbrace, Rule::rbrace];
    block.clone().into_inner().filter(|part| !marks.contains(&part.as_rule())).last()
}

fn block_of(stmt: Stmt) -> Block {
    Block { span: stmt.span, stmts: vec![stmt] }
}
