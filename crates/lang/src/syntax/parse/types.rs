//! Types in the parse tree: spellings in casts, `let`, `sizeof`, and C declarations.

use super::build::Builder;
use super::grammar::{Pair, Rule};
use crate::source::span::Span;
use crate::syntax::ast::*;

impl Builder<'_> {
    /// The type in a `type_name` or `cast`.
    pub(crate) fn type_name(&mut self, pair: Pair) -> TypeName {
        let inner = pair.into_inner().next().expect("the grammar has a type here");
        self.type_of(inner)
    }

    /// The type of a `sure_type` or `maybe_type`.
    pub(crate) fn type_of(&mut self, pair: Pair) -> TypeName {
        let mut ty = TypeName::bare(self.span(&pair));
        for part in pair.into_inner() {
            self.type_part(part, &mut ty);
        }
        let levels = self.levels(ty.pointers, ty.dims.len(), ty.span);
        if levels { ty } else { TypeName { pointers: 0, dims: Vec::new(), ..ty } }
    }

    /// Checks the number of stars and dimensions against the limit of nesting; reports an excess.
    fn levels(&mut self, pointers: u32, dims: usize, span: Span) -> bool {
        self.deeper(pointers as usize + dims, span, |_| ()).is_some()
    }

    fn type_part(&mut self, part: Pair, ty: &mut TypeName) {
        match part.as_rule() {
            Rule::stars => ty.pointers += part.as_str().matches('*').count() as u32,
            // `[]`: the number of elements is that of the operand of the cast.
            Rule::array => {
                ty.dims.push(part.into_inner().next().map_or(0, |digits| self.index_of(&digits)));
            }
            Rule::ident => ty.name = part.as_str().to_owned(),
            Rule::typeof_type => self.type_of_what(part, ty),
            Rule::qualifier => {}
            _ => ty.name = part.into_inner().map(|word| word.as_str()).collect::<Vec<_>>().join(" "),
        }
    }

    /// `typeof(uint32)` is `uint32`; `typeof($x)` has the type of the expression.
    fn type_of_what(&mut self, pair: Pair, ty: &mut TypeName) {
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::paren => ty.of = Some(Box::new(self.paren(part))),
                Rule::sure_type => *ty = TypeName { span: ty.span, ..self.type_of(part) },
                _ => {}
            }
        }
    }

    /// `typeinfo(uint32)`, `typeinfo($x)`
    pub(crate) fn type_info(&mut self, pair: Pair) -> ExprKind {
        let mut ty = TypeName::bare(self.span(&pair));
        self.type_of_what(pair, &mut ty);
        ExprKind::TypeInfo(ty)
    }

    /// `offsetof(struct point, corner.x)`
    pub(crate) fn offset_of(&mut self, pair: Pair) -> ExprKind {
        let span = self.span(&pair);
        let mut ty = TypeName::bare(span);
        let mut path = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::sure_type => ty = self.type_of(part),
                Rule::expr => ty = named_or_of(self.expr(part)),
                Rule::field => path.push(self.name(&part)),
                _ => {}
            }
        }
        ExprKind::OffsetOf { ty, path }
    }

    /// `container_of(p, struct request, link)` becomes
    /// `(struct request *)((uint64)p - offsetof(struct request, link))`
    pub(crate) fn container_of(&mut self, pair: Pair) -> ExprKind {
        let span = self.span(&pair);
        let number = TypeName { name: "uint64".into(), ..TypeName::bare(span) };
        let within = pair.clone().into_inner().find(|part| part.as_rule() == Rule::expr);
        let within = self.expr(within.expect("the grammar has the address first"));
        let mut ty = TypeName::bare(span);
        let mut path = Vec::new();
        for part in pair.into_inner().skip_while(|part| part.as_rule() != Rule::comma).skip(1) {
            match part.as_rule() {
                Rule::sure_type => ty = self.type_of(part),
                Rule::expr => ty = named_or_of(self.expr(part)),
                Rule::field => path.push(self.name(&part)),
                _ => {}
            }
        }
        let whole = TypeName { pointers: ty.pointers + 1, ..ty.clone() };
        let node = |kind| Box::new(Expr { kind, span });
        let lhs = node(ExprKind::Cast { ty: number, expr: Box::new(within) });
        let rhs = node(ExprKind::OffsetOf { ty, path });
        let start = node(ExprKind::Binary { op: BinaryOp::Sub, lhs, rhs });
        ExprKind::Cast { ty: whole, expr: start }
    }

    // ---- C declarations

    /// `struct point { int x, y; };` `typedef unsigned long bytes;`
    pub(crate) fn declaration(&mut self, pair: Pair) -> Declaration {
        let span = self.span(&pair);
        let part = pair.into_inner().next().expect("the grammar has a declaration here");
        if part.as_rule() != Rule::c_typedef {
            return Declaration { base: self.c_type(part), names: Vec::new(), span };
        }
        let mut parts = part.into_inner().filter(|part| part.as_rule() != Rule::kw_typedef);
        let base = parts.next().expect("the grammar has a type here");
        let names = parts.flat_map(Pair::into_inner).collect::<Vec<_>>();
        Declaration { base: self.c_base(base), names: self.declarators(names), span }
    }

    fn c_base(&mut self, pair: Pair) -> CType {
        let whole = self.span(&pair);
        let parts: Vec<Pair> = pair.into_inner().collect();
        let compound = |part: &Pair| matches!(part.as_rule(), Rule::compound | Rule::enumeration);
        if let [only] = parts.as_slice()
            && compound(only)
        {
            return self.c_type(only.clone());
        }
        let mut ty = TypeName::bare(whole);
        parts.into_iter().for_each(|part| self.type_part(part, &mut ty));
        CType::Named(ty)
    }

    fn c_type(&mut self, pair: Pair) -> CType {
        let span = self.span(&pair);
        match pair.as_rule() {
            Rule::compound => {
                let made = self.deeper(1, span, |this| this.compound(pair));
                CType::Compound(made.unwrap_or_else(|| no_members(span)))
            }
            Rule::enumeration => CType::Enumeration(self.enumeration(pair)),
            _ => {
                let mut ty = TypeName::bare(span);
                self.type_part(pair, &mut ty);
                CType::Named(ty)
            }
        }
    }

    fn compound(&mut self, pair: Pair) -> Compound {
        let span = self.span(&pair);
        let mut made = no_members(span);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::compound_tag => made.union = part.as_str() == "union",
                Rule::ident => made.name = Some(self.name(&part)),
                Rule::member => made.members.push(self.member(part)),
                Rule::attribute => {
                    made.packed |= part.as_str().contains("packed");
                    made.align = aligned(part.as_str()).or(made.align);
                }
                _ => {}
            }
        }
        made
    }

    fn member(&mut self, pair: Pair) -> Member {
        let mut parts = pair.into_inner();
        let base = parts.next().expect("the grammar has a type here");
        let names = parts.filter(|part| part.as_rule() == Rule::declarators).flat_map(Pair::into_inner);
        let names = names.collect();
        Member { base: self.c_base(base), names: self.declarators(names) }
    }

    fn declarators(&mut self, parts: Vec<Pair>) -> Vec<Declarator> {
        let declarators = parts.into_iter().filter(|part| part.as_rule() == Rule::declarator);
        declarators.map(|part| self.declarator(part)).collect()
    }

    fn declarator(&mut self, pair: Pair) -> Declarator {
        let span = self.span(&pair);
        let mut made =
            Declarator { name: None, pointers: 0, dims: Vec::new(), bits: None, function: false, span };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::stars => made.pointers = part.as_str().matches('*').count() as u32,
                Rule::field => made.name = Some(self.name(&part)),
                Rule::function_pointer => {
                    made.function = true;
                    let name = part.into_inner().find(|part| part.as_rule() == Rule::field);
                    made.name = name.map(|name| self.name(&name));
                }
                Rule::dimension => made.dims.push(self.inner_expr(part)),
                Rule::bits => made.bits = self.inner_expr(part),
                _ => {}
            }
        }
        if !self.levels(made.pointers, made.dims.len(), span) {
            (made.pointers, made.dims) = (0, Vec::new());
        }
        made
    }

    fn enumeration(&mut self, pair: Pair) -> Enumeration {
        let mut made = Enumeration { name: None, values: Vec::new(), span: self.span(&pair) };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => made.name = Some(self.name(&part)),
                Rule::enumerator => {
                    let name = part.clone().into_inner().next().expect("the grammar has a name here");
                    made.values.push((self.name(&name), self.inner_expr(part)));
                }
                _ => {}
            }
        }
        made
    }

    fn inner_expr(&mut self, pair: Pair) -> Option<Expr> {
        let found = pair.into_inner().find(|part| part.as_rule() == Rule::expr);
        found.map(|part| self.expr(part))
    }
}

fn no_members(span: Span) -> Compound {
    Compound { union: false, name: None, members: Vec::new(), packed: false, align: None, span }
}

/// A name in place of a type is a type name; another expression stands for its type.
fn named_or_of(e: Expr) -> TypeName {
    let span = e.span;
    let (name, of) = match e.kind {
        ExprKind::Ident(name) => (name, None),
        kind => (String::new(), Some(Box::new(Expr { kind, span }))),
    };
    TypeName { name, of, ..TypeName::bare(span) }
}

/// `16` of `__attribute__((aligned(16)))`
fn aligned(attribute: &str) -> Option<u32> {
    let inside = attribute.split_once("aligned")?.1.trim_start().trim_start_matches('_').trim_start();
    inside.strip_prefix('(')?.split(')').next()?.trim().parse().ok()
}
