//! Expands a clause of `gpu:kernel` to a body for one record of a batch, which reads the part of the record that it uses.
//!
//! ```text
//! gpu:kernel / args.device == 0 / { @ = hist(args.duration) }
//!
//! struct __gpu_0_68 { uint64 start; uint64 end; ... uint32 device; };
//! gpu:kernel { $r = *(struct __gpu_0_68 *)@record(0); if ($r.device == 0) { @ = hist($r.end - $r.start) } }
//! ```
//!
//! The checker and the code generator run the body for each record ([`crate::hir::Records`]). The kinds of records and their arguments
//! are in `cuda::gpu`.

use std::fmt::Write;

use cuda::gpu::{Argument, FORWARD, KINDS, LAUNCH, MEMBERS, Member, OPERATOR, OPERATOR_TABLE, RecordKind};

use wire::manifest::{GPU_LAUNCHES, GPU_OPERATORS, GPU_RANGES};

use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::listed;
use crate::expand::const_eval;
use crate::expand::operations;
use crate::expand::template::{
    ArgsUse, ArgsUses, RenameVariables, SetSpan, absent, added, body_of, complete_span, expression,
    hide_calls, is_span, no_argument, used_arguments,
};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{Clause, Expr, ExprKind, Item, ProbeSpec, Script, SpecPart, Stmt, StmtKind};
use crate::syntax::glob::glob;
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};

/// The provider of these attach points.
pub const PROVIDER: &str = "gpu";

/// Suffix of the variable with the record, which scripts cannot name.
const HIDDEN: &str = "gpu";

/// Kinds that no pattern matches: those that scripts cannot name, and the operators of PyTorch, each of which would be slower.
const BY_NAME_ALONE: [&str; 5] =
    [LAUNCH.name, FORWARD.name, OPERATOR_TABLE.name, OPERATOR_KIND, ANNOTATION_KIND];

/// The kinds of records of an attach point; none for other attach points, and invalid ones.
pub fn kinds_of(spec: &ProbeSpec) -> Vec<&'static RecordKind> {
    match pattern_of(spec) {
        Some(pattern) if BY_NAME_ALONE.contains(&pattern) => RecordKind::of(pattern).into_iter().collect(),
        Some(pattern) => {
            let matches =
                |kind: &&RecordKind| !BY_NAME_ALONE.contains(&kind.name) && glob(pattern, kind.name);
            KINDS.iter().filter(matches).collect()
        }
        None => Vec::new(),
    }
}

/// The kind of records of an attach point without pattern.
pub fn kind_of(spec: &ProbeSpec) -> Option<&'static RecordKind> {
    pattern_of(spec).and_then(RecordKind::of)
}

fn pattern_of(spec: &ProbeSpec) -> Option<&str> {
    match &spec.parts[..] {
        [WithSpan { node: SpecPart::Text(text), .. }] if is_gpu(spec) => Some(text),
        _ => None,
    }
}

/// `gpu:...`
pub fn is_gpu(spec: &ProbeSpec) -> bool {
    spec.provider.node.eq_ignore_ascii_case(PROVIDER)
}

/// Gives each kind of records of a script a clause of its own.
pub(crate) fn expand(script: &mut Script, diags: &mut Diagnostics) {
    let mut expansion = Expansion { declared: Vec::new(), joins: 0, diags };
    let items = std::mem::take(&mut script.items);
    script.items = items.into_iter().flat_map(|item| expansion.item(item)).collect();
    script.gpu_joins = expansion.joins;
    let declarations = expansion.declared.iter().flat_map(|part| part.declaration());
    script.items.extend(declarations);
}

struct Expansion<'d> {
    /// Parts of records that bodies read.
    declared: Vec<Part>,
    /// Data of the launching call that bodies read: [`GPU_LAUNCHES`], [`GPU_RANGES`] and [`GPU_OPERATORS`].
    joins: u32,
    diags: &'d mut Diagnostics,
}

impl Expansion<'_> {
    fn item(&mut self, item: Item) -> Vec<Item> {
        let Item::Clause(mut clause) = item else { return vec![item] };
        let mut all: Vec<(ProbeSpec, &RecordKind)> = Vec::new();
        let mut others = Vec::new();
        for spec in std::mem::take(&mut clause.probes) {
            let kinds = self.with_arguments(&clause, &spec);
            for kind in &kinds {
                if !all.iter().any(|(_, known)| known.name == kind.name) {
                    all.push((of_kind(&spec, kind), kind));
                }
            }
            if kinds.is_empty() {
                others.push(spec);
            }
        }
        let kinds: Vec<&RecordKind> = all.iter().map(|(_, kind)| *kind).collect();
        let made: Vec<Clause> =
            all.into_iter().map(|(spec, kind)| self.of_kind(&clause, spec, kind)).collect();
        if others.is_empty() && !made.is_empty() && made.iter().all(is_never) {
            self.warn_of_never(&clause, &kinds);
        }
        clause.probes = others;
        let rest = Some(clause).filter(|clause| !clause.probes.is_empty());
        made.into_iter().chain(rest).map(Item::Clause).collect()
    }

    /// The kinds of an attach point; of those that a pattern matches the ones that have all arguments of the clause.
    fn with_arguments(&mut self, clause: &Clause, spec: &ProbeSpec) -> Vec<&'static RecordKind> {
        let mut kinds = kinds_of(spec);
        if kinds.len() < 2 {
            return kinds;
        }
        for (name, span) in used_arguments(clause) {
            let lacks = |kind: &&'static RecordKind| kind.arg(&name).is_none();
            let without: Vec<&str> = kinds.iter().copied().filter(lacks).map(|kind| kind.name).collect();
            if !without.is_empty() && without.len() < kinds.len() {
                let names = listed(without.iter().copied(), KINDS.len());
                let message = format!("kinds of records without an argument `{name}` are left out: {names}");
                self.diags.warning("W0043", span, message);
                kinds.retain(|kind| !lacks(kind));
            }
        }
        kinds
    }

    /// No record of these kinds meets the condition of a clause. Without a warning if an option makes it false.
    fn warn_of_never(&mut self, clause: &Clause, kinds: &[&'static RecordKind]) {
        let Some(predicate) = clause.predicate.as_ref().filter(|e| const_eval::truth(e).is_none()) else {
            return;
        };
        let names: Vec<String> = kinds.iter().map(|kind| format!("{PROVIDER}:{}", kind.name)).collect();
        let message =
            format!("no record of {} meets this condition", listed(names.iter().map(String::as_str), 3));
        let mut used = used_arguments(clause);
        used.retain(|(_, span)| predicate.span.start <= span.start && span.end <= predicate.span.end);
        let words = used.iter().filter_map(|(name, _)| {
            operations::one_of(name, kinds.iter().filter_map(|kind| kind.arg(name)).map(|arg| arg.value))
        });
        self.diags.warning("W0041", predicate.span, message).help.extend(words);
    }

    fn of_kind(&mut self, clause: &Clause, spec: ProbeSpec, kind: &'static RecordKind) -> Clause {
        let mut own = clause.clone();
        let mut replace = Replace { kind, uses: ArgsUses::default(), diags: self.diags };
        visit::clause(&mut own, &mut replace);
        let never = const_eval::as_never(own.predicate.as_ref());
        let used = used_members(&own);
        let reads = |name: &&str| used.iter().any(|member| MEMBERS[*member].name == *name);
        // Records that threads of the program pass on themselves have a name, and no launch.
        let is_launch = kind.name == LAUNCH.name;
        if is_launch || !kind.is_at_once() && OF_LAUNCH.iter().any(reads) {
            self.joins |= GPU_LAUNCHES;
        }
        if kind.name == RANGE || reads(&RANGE) {
            self.joins |= GPU_RANGES;
        }
        let is_of_operators = [OPERATOR_KIND, FORWARD.name, OPERATOR_TABLE.name].contains(&kind.name);
        if is_of_operators || OF_OPERATOR.iter().any(reads) {
            self.joins |= GPU_OPERATORS;
        }
        let part = Part::of(&used);
        let (name, span, mut body) = (own.name.clone(), own.span, own.body.clone());
        body.stmts = part.iter().map(|part| part.reads(span)).collect();
        body.stmts.push(body_of(own));
        if let Some(part) = part.filter(|part| !self.declared.contains(part)) {
            self.declared.push(part);
        }
        Clause { name, probes: vec![spec], predicate: never, body, span }
    }
}

/// Whether the condition of an expanded clause is never met.
fn is_never(clause: &Clause) -> bool {
    clause.predicate.as_ref().and_then(const_eval::truth) == Some(false)
}

/// The attach point of one kind, at the position of the script's.
fn of_kind(spec: &ProbeSpec, kind: &RecordKind) -> ProbeSpec {
    let mut spec = spec.clone();
    spec.parts[0].node = SpecPart::Text(kind.name.into());
    spec
}

/// A part of a record: from one member to another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Index of the first member.
    first: usize,
    /// Index of the last member.
    last: usize,
}

impl Part {
    /// The smallest part with all these members; `None` if there are none.
    fn of(used: &[usize]) -> Option<Part> {
        Some(Part { first: *used.iter().min()?, last: *used.iter().max()? })
    }

    fn members(self) -> &'static [Member] {
        &MEMBERS[self.first..=self.last]
    }

    fn start(self) -> u32 {
        MEMBERS[self.first].offset
    }

    fn end(self) -> u32 {
        let last = MEMBERS[self.last];
        last.offset + last.bytes
    }

    fn name(self) -> String {
        format!("__gpu_{}_{}", self.start(), self.end())
    }

    /// The declaration of a struct with this part.
    fn declaration(self) -> Vec<Item> {
        let mut text = format!("struct {} {{", self.name());
        for member in self.members() {
            let _ = write!(text, " uint{} {};", 8 * member.bytes, member.name);
        }
        text.push_str(" };");
        added(&text, Span::default())
    }

    /// `$r = *(struct __gpu_0_24 *)@record(0)`
    fn reads(self, span: Span) -> Stmt {
        let text = format!("*(struct {} *)(__record(0) + {})", self.name(), self.start());
        let mut value = expression(&text, span);
        hide_calls(&mut value);
        let target = Expr { kind: ExprKind::Var(format!("r@{HIDDEN}")), span };
        Stmt { kind: StmtKind::Assign { target, op: None, value }, span }
    }
}

/// Members that only records have whose launch was noted.
const OF_LAUNCH: [&str; 6] = ["launch", "func", RANGE, "tid", OF_OPERATOR[0], OF_OPERATOR[1]];
/// Members with the operator of PyTorch around a launch, and with the forward operator that it belongs to.
const OF_OPERATOR: [&str; 2] = ["operator", "forward"];
/// Whether work belongs to a forward operator, which is only so in the backward pass.
const IN_BACKWARD: &str = "$r.forward != 0";
/// Kind of the records of operators.
const OPERATOR_KIND: &str = "operator";
/// Kind of the records of ranges that the program names for PyTorch.
const ANNOTATION_KIND: &str = "annotation";
/// Kind of the records of ranges of NVTX, and member with the range around a launch.
const RANGE: &str = "range";

/// Indices of the members that a clause uses.
fn used_members(clause: &Clause) -> Vec<usize> {
    let mut used = Vec::new();
    let see = |e: &Expr| {
        if let ExprKind::Field { base, name, .. } = &e.kind
            && matches!(&base.kind, ExprKind::Var(var) if is_record(var))
        {
            used.extend(MEMBERS.iter().position(|member| member.name == name.node));
        }
    };
    look::clause(clause, &mut Preorder(see));
    used
}

fn is_record(var: &str) -> bool {
    var.strip_prefix("r@") == Some(HIDDEN)
}

/// Replaces the arguments of a kind of records by expressions of the record.
struct Replace<'d> {
    kind: &'static RecordKind,
    uses: ArgsUses,
    diags: &'d mut Diagnostics,
}

impl Visit for Replace<'_> {
    fn before_expr(&mut self, e: &Expr) {
        self.uses.before(e);
    }

    fn expr(&mut self, e: &mut Expr) {
        let value = match self.uses.of(e) {
            Some(ArgsUse::Named(name)) => match self.kind.arg(&name.node) {
                Some(arg) => value(arg.value, e.span),
                None => {
                    let known: Vec<&str> = self.kind.args().map(|arg| arg.name).collect();
                    no_argument(self.diags, &format!("{PROVIDER}:{}", self.kind.name), name, &known);
                    absent(e.span)
                }
            },
            Some(ArgsUse::All) => value(&all_arguments(self.kind), e.span),
            None if is_span(e) => return self.span(e),
            None => match self.of_launch(e) {
                Some(value) => value,
                None => return,
            },
        };
        e.kind = value.kind;
    }
}

impl Replace<'_> {
    /// The value of a built-in that means the launching call; `None` for other expressions.
    fn of_launch(&self, e: &Expr) -> Option<Expr> {
        let ExprKind::Ident(name) = &e.kind else { return None };
        let has_launch = self.kind.arg("corr").is_some();
        let has_operator = has_launch || self.kind.name == OPERATOR_KIND;
        let text = match name.as_str() {
            "torch_op" if has_operator => OPERATOR,
            "torch_backward" if has_operator => IN_BACKWARD,
            _ if !has_launch => return None,
            "corr" => "$r.corr",
            // At the launch this is the thread: its own number, also in a container.
            "tid" if self.kind.name != LAUNCH.name => "$r.tid",
            "nvtx" => "$r.range == 0 ? \"\" : str((uint8 *)$r.range)",
            "func" => "$r.func == 0 ? \"\" : str((uint8 *)$r.func)",
            _ => return None,
        };
        Some(value(text, e.span))
    }

    /// `span(key = value)`: the work from its start to its end, with the name of the kernel, of the range or of the kind.
    fn span(&self, e: &mut Expr) {
        let name = match (self.kind.arg("kernel"), self.kind.arg("name")) {
            (Some(kernel), _) => format!("kernel_name({})", kernel.value),
            (None, Some(name)) => name.value.to_owned(),
            (None, None) => format!("\"{}\"", self.kind.name),
        };
        let mut times = value("__recorded($r.start, $r.end)", e.span);
        hide_calls(&mut times);
        complete_span(e, value(&name, e.span), times);
    }
}

/// A value of a record.
fn value(text: &str, span: Span) -> Expr {
    let mut value = expression(text, span);
    visit::expr(&mut value, &mut RenameVariables { suffix: HIDDEN.into() });
    visit::expr(&mut value, &mut SetSpan(span));
    value
}

/// The value of `args`: a record of all arguments.
fn all_arguments(kind: &RecordKind) -> String {
    let part = |arg: &Argument| format!("{} = {}", arg.name, arg.value);
    let parts: Vec<String> = kind.args().map(part).collect();
    format!("({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expanded text of a script, and the messages.
    fn expanded(script: &str) -> (String, Vec<String>) {
        let mut diags = Diagnostics::default();
        let mut script = crate::parse(&crate::Source::new("t.ct", script), &[], &mut diags).unwrap();
        expand(&mut script, &mut diags);
        let messages = diags.list.iter().map(|found| format!("{} {}", found.code, found.message)).collect();
        (crate::syntax::print::print(&script), messages)
    }

    #[test]
    fn all_arguments_of_all_kinds_can_be_read() {
        for kind in KINDS {
            let (text, messages) = expanded(&format!("gpu:{} {{ print(args) }}", kind.name));
            assert_eq!(messages, [""; 0], "{text}");
            for arg in kind.args() {
                let (text, messages) = expanded(&format!("gpu:{} {{ print(args.{}) }}", kind.name, arg.name));
                assert_eq!(messages, [""; 0], "{text}");
                assert!(text.contains("@record(0)"), "{text}");
            }
        }
    }

    #[test]
    fn the_used_part_of_a_record_is_read_at_once() {
        let (text, _) = expanded("gpu:kernel / args.device == 1 / { @[args.grid.y] = count() }");
        assert_eq!(text.matches("@record(0)").count(), 1, "{text}");
        // From `device` at 80 to `grid.z` at 104.
        assert!(text.contains("(struct __gpu_80_108 *)(@record(0) + 80)"), "{text}");
        assert!(text.contains("struct __gpu_80_108 {"), "{text}");
        let (text, _) = expanded("gpu:kernel { @ = count() }");
        assert!(!text.contains("@record") && !text.contains("struct"), "{text}");
    }

    #[test]
    fn parts_are_declared_once() {
        let (text, _) =
            expanded("gpu:kernel { @a = sum(args.duration) } gpu:mem* { @b = sum(args.duration) }");
        assert_eq!(text.matches("struct __gpu_0_16 {").count(), 1, "{text}");
        assert_eq!(text.matches("@record(0)").count(), 3, "{text}");
    }

    #[test]
    fn a_kind_of_several_patterns_is_observed_once() {
        let (text, messages) = expanded("gpu:mem*, gpu:memset, BEGIN, GPU:memcpy { @ = count() }");
        assert_eq!(messages, [""; 0], "{text}");
        for kind in ["gpu:memcpy {", "gpu:memset {", "BEGIN {"] {
            assert_eq!(text.matches(kind).count(), 1, "{kind} {text}");
        }
    }

    #[test]
    fn kinds_without_an_argument_are_left_out_of_patterns() {
        let (text, messages) = expanded("gpu:* { @ = sum(args.bytes) }");
        let left = "W0043 kinds of records without an argument `bytes` are left out: `kernel`, `graph`, ";
        assert!(messages.len() == 1 && messages[0].starts_with(left), "{text} {messages:?}");
        let (text, messages) = expanded("gpu:memcpy, gpu:graph { @ = sum(args.bytes) }");
        assert_eq!(messages, ["E0040 `gpu:graph` has no argument `bytes`"], "{text}");
        let (_, messages) = expanded("gpu:mem* { @ = sum(args.byte) }");
        assert_eq!(messages, ["E0040 `gpu:memcpy` has no argument `byte`"]);
    }

    #[test]
    fn a_span_is_the_work_with_the_name_of_the_kernel() {
        let (text, _) = expanded("gpu:kernel { span(grid = args.grid.x) }");
        assert!(text.contains("span(kernel_name(") && text.contains("start = @recorded("), "{text}");
        let (text, _) = expanded("gpu:graph { span() }");
        assert!(text.contains("span(\"graph\","), "{text}");
        let (text, _) = expanded("gpu:graph { span(\"mine\", start = 7) }");
        assert!(text.contains("start = 7") && !text.contains("@recorded"), "{text}");
    }
}
