//! `span`, `event` and `counter`: records for the exporters, with default attributes and the script's attributes.

use crate::builtins::args::Args;
use crate::builtins::probe_context::At;
use crate::builtins::row::{BuiltinSpec, Check, call, running};
use crate::hir::make::{binary, convert, expr, is_unknown};
use crate::hir::{Around, BinaryOp, Builtin, Export, Expr, ExprKind, HiddenValue, NameKind, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::is_scalar;
use Check::Action;

/// `@begun(start)`: marks the start of a span as that of an event, see [`Builtin::BeginEvent`].
pub(crate) const BEGUN: &str = "@begun";

/// `@recorded(start, end)`: the times of the work of a GPU.
pub(crate) const RECORDED: &str = "@recorded";

/// The key of a span's start time.
const START: &str = "start";

/// Enums of call results.
const RESULTS: [&str; 4] = ["CUresult", "cudaError_t", "cudaError", "ncclResult_t"];

/// Arguments: positional ones, then `key = value`.
struct ExportArgs<'a> {
    plain: &'a [ast::Expr],
    named: &'a [(ast::Name, ast::Expr)],
}

impl<'a> ExportArgs<'a> {
    fn of(args: &'a [ast::Expr]) -> ExportArgs<'a> {
        match args.split_last() {
            Some((ast::Expr { kind: ast::ExprKind::Record(members), .. }, plain)) => {
                ExportArgs { plain, named: members }
            }
            _ => ExportArgs { plain: args, named: &[] },
        }
    }
}

pub(super) static ROWS: &[BuiltinSpec] = &[
    running(call(
        Action(|c, f, _| c.export(Export::Span, f.args, f.span)),
        0..=2,
        "span([\"name\"][, key = value, ...])",
        "records the call as a span for `--export`: start, duration, thread, enclosing traced call, status; the default name is the function's. \
         At records of a GPU, its work. In other probes, the span lasts from `start = `, a value of `nsecs`, to now",
        "uretprobe:libcuda:cuMemAlloc { span(bytes = args.bytesize) }",
    )),
    call(
        Action(|c, f, _| c.export(Export::Instant, f.args, f.span)),
        1..=2,
        "event(\"name\"[, key = value, ...])",
        "records an instant event for `--export`",
        "uprobe:libcuda:cuInit { event(\"CUDA begins\", flags = args.Flags) }",
    ),
    call(
        Action(|c, f, _| c.export(Export::Counter, f.args, f.span)),
        2..=3,
        "counter(\"name\", number[, key = value, ...])",
        "records a value of a counter for `--export`; keys distinguish counters of one name",
        "uretprobe:libcuda:cuMemAlloc { @live += args.bytesize; counter(\"live bytes\", @live, pid = pid) }",
    ),
];

impl dyn Args + '_ {
    /// `span("name", key = value)` and its like.
    pub(crate) fn export(&mut self, what: Export, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let given = ExportArgs::of(args);
        let function = what.function();
        let least = usize::from(what != Export::Span) + usize::from(what == Export::Counter);
        let most = least.max(1);
        if given.plain.len() < least || given.plain.len() > most {
            let message = format!("`{function}` takes {}", shape(what));
            self.error("E0243", span, message).help("write other attributes as `name = value`");
            return None;
        }
        let (name, mut hidden) = self.export_name(given.plain.first())?;
        let fields = self.export_fields(what, &given);
        match what {
            Export::Span => hidden.extend(self.span_times(&given, span)?),
            Export::Counter => hidden.push((HiddenValue::Number, self.number(&given.plain[1], "a counter"))),
            Export::Instant => {}
        }
        hidden.extend(self.parent(what, &hidden, span));
        hidden.extend(self.default_attributes(span));
        let all = hidden.iter().map(|(_, e)| e).chain(fields.iter().map(|(_, e)| e));
        if all.into_iter().any(is_unknown) {
            return None;
        }
        Some(StmtKind::Export { what, name, hidden, fields })
    }

    /// A literal name, or a name that is computed at each hit.
    #[allow(clippy::type_complexity)]
    fn export_name(
        &mut self,
        name: Option<&ast::Expr>,
    ) -> Option<(Option<Vec<u8>>, Vec<(HiddenValue, Expr)>)> {
        let Some(name) = name else { return Some((None, Vec::new())) };
        let value = self.expr(name);
        let value = self.text_of(value);
        match value.kind {
            _ if is_unknown(&value) => None,
            ExprKind::Str(text) => Some((Some(text), Vec::new())),
            _ => Some((None, vec![(HiddenValue::Name, value)])),
        }
    }

    fn export_fields(&mut self, what: Export, given: &ExportArgs) -> Vec<(String, Expr)> {
        let mut fields: Vec<(String, Expr)> = Vec::new();
        for (key, value) in given.named {
            if what == Export::Span && key.node == START {
                continue;
            }
            if fields.iter().any(|(known, _)| *known == key.node) {
                self.error("E0243", key.span, format!("`{}` already has a value", key.node));
                continue;
            }
            let value = self.expr(value);
            fields.push((key.node.clone(), self.text_of(value)));
        }
        fields
    }

    /// Start and duration: of the call, or from `start = ` to now.
    fn span_times(&mut self, given: &ExportArgs, span: Span) -> Option<Vec<(HiddenValue, Expr)>> {
        let given = given.named.iter().find(|(key, _)| key.node == START);
        if let Some((_, ast::Expr { kind: ast::ExprKind::Call { name, args }, .. })) = given
            && name.node == RECORDED
        {
            let [start, end] = [&args[0], &args[1]].map(|time| self.expr(time));
            let duration = binary(BinaryOp::Sub, end, start.clone(), Type::U64, span);
            return Some(vec![(HiddenValue::Start, start), (HiddenValue::Duration, duration)]);
        }
        if let Some((_, start)) = given {
            let is_event = matches!(&start.kind, ast::ExprKind::Call { name, .. } if name.node == BEGUN);
            let (hidden, clock) = match is_event {
                true => (HiddenValue::EventStart, Builtin::Monotonic),
                false => (HiddenValue::BootStart, Builtin::Nsecs),
            };
            let start = convert(self.number(start, "the start of a span"), &Type::U64);
            let now = expr(ExprKind::Builtin(clock, Vec::new()), Type::U64, span);
            let duration = binary(BinaryOp::Sub, now, start.clone(), Type::U64, span);
            return Some(vec![(hidden, start), (HiddenValue::Duration, duration)]);
        }
        if self.scene().probe.at != At::Return {
            let message = "a span needs the return of a call, and this probe is not at a return";
            let error = self.error("E0243", span, message);
            error.help(
                "use a `uretprobe`, or give the start: `span(\"name\", start = $t)` with a time of `nsecs`",
            );
            return None;
        }
        let start = (HiddenValue::Start, expr(ExprKind::Started, Type::U64, span));
        let duration = (HiddenValue::Duration, expr(ExprKind::Duration, Type::U64, span));
        Some([start, duration].into_iter().chain(self.status_of(span)).collect())
    }

    /// The enclosing call: the parent of spans and instants. [`crate::check::passes::unique_spans`] replaces the parent of
    /// instants whose own call has a span.
    fn parent(
        &self,
        what: Export,
        hidden: &[(HiddenValue, Expr)],
        span: Span,
    ) -> Option<(HiddenValue, Expr)> {
        let is_call =
            hidden.iter().any(|(kind, _)| matches!(kind, HiddenValue::Start | HiddenValue::EventStart));
        let is_nested = match (what, self.scene().probe.at) {
            (Export::Span, At::Record) => true,
            (Export::Instant, At::Entry | At::Return | At::Record | At::Sample) => true,
            _ => is_call,
        };
        let parent = || (HiddenValue::ParentStart, expr(ExprKind::Around(Around::Start), Type::U64, span));
        // A GPU works in no call of a thread.
        let is_of_thread = self.scene().probe.gpu.is_none();
        (is_nested && is_of_thread && self.scene().sends_calls).then(parent)
    }

    /// The call's result, if its type is an enum of results.
    fn status_of(&self, span: Span) -> Option<(HiddenValue, Expr)> {
        let ty = self.scene().probe.signature.as_ref()?.ret.clone();
        let Type::Enum(id) = ty else { return None };
        let known = RESULTS.contains(&self.types().enum_def(id).name.as_str());
        known.then(|| (HiddenValue::Result, expr(ExprKind::Retval, ty, span)))
    }

    /// Default attributes: function, probe and process name.
    fn default_attributes(&mut self, span: Span) -> Vec<(HiddenValue, Expr)> {
        let name = |kind| expr(ExprKind::Name(kind), Type::Name(kind), span);
        let mut attributes = match self.scene().probe.at {
            At::Entry | At::Return if self.scene().probe.gpu.is_none() => {
                vec![(HiddenValue::Func, name(NameKind::Func)), (HiddenValue::Api, name(NameKind::Api))]
            }
            _ => Vec::new(),
        };
        attributes.push((HiddenValue::Probe, self.probe_name(span)));
        attributes.push((
            HiddenValue::Comm,
            expr(ExprKind::Builtin(Builtin::Comm, Vec::new()), Type::Str(16), span),
        ));
        debug_assert!(
            attributes.iter().all(|(_, e)| is_scalar(&e.ty) || matches!(e.ty, Type::Str(_) | Type::Name(_)))
        );
        attributes
    }
}

fn shape(what: Export) -> &'static str {
    match what {
        Export::Span => "at most a name",
        Export::Instant => "a name",
        Export::Counter => "a name and a number",
    }
}
