//! The checked program as text, for `-d hir` and golden files. Conversions are printed as `(type)e`.
//!
//! ```text
//! map 0 @[func]: count() 4096
//! probe 0 entry
//!   site libcuda.so.1+0x1000 func=cuInit api=cuInit probe=uprobe:/lib/libcuda.so.1:cuInit
//!   @[func] = count()
//! ```

use std::fmt::Write;

use crate::catalog::{FileId, KERNEL};
use crate::hir::*;
use crate::syntax::operators::symbol;

/// Prints the whole program.
pub fn print(program: &Program) -> String {
    let mut printer = Printer { program, vars: &[], signature: None, out: String::new() };
    printer.maps();
    program.probes.iter().for_each(|probe| printer.probe(probe));
    printer.out
}

struct Printer<'a> {
    program: &'a Program,
    vars: &'a [Var],
    signature: Option<&'a Signature>,
    out: String,
}

impl<'a> Printer<'a> {
    fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        self.out.push_str(&"  ".repeat(depth));
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    fn maps(&mut self) {
        for (id, map) in self.program.maps.iter().enumerate() {
            let key = match map.key.as_slice() {
                [] => String::new(),
                key => format!("[{}]", self.types(key)),
            };
            let value = match &map.value {
                MapValue::Plain(ty) => self.ty(ty),
                MapValue::Agg(agg) => aggregation(agg),
            };
            let evicts = match (map.evicts, map.by_process) {
                (true, _) => " lru",
                (_, true) => " by process",
                _ => "",
            };
            self.line(0, format!("map {id} @{}{key}: {value} max {}{evicts}", map.name, map.max_entries));
            if map.metric.declared {
                self.line(1, metric(&map.metric));
            }
        }
    }

    fn probe(&mut self, probe: &'a Probe) {
        (self.vars, self.signature) = (&probe.vars, probe.signature.as_ref());
        let kind = match &probe.attach {
            Attach::Event(trigger) => trigger.to_string(),
            Attach::Entry(Hook::Uprobe, _) => "entry".into(),
            Attach::Return(Hook::Uprobe, _) => "return".into(),
            Attach::Entry(hook, _) => hook.probe_type(false).into(),
            Attach::Return(hook, _) => hook.probe_type(true).into(),
        };
        self.line(0, format!("probe {} {kind}", probe.clause));
        probe.attach.sites().iter().for_each(|site| self.site(site));
        if let Some(signature) = &probe.signature {
            let params: Vec<String> =
                signature.params.iter().map(|p| format!("{} {}", self.ty(&p.ty), p.name)).collect();
            self.line(1, format!("signature ({}) {}", params.join(", "), self.ty(&signature.ret)));
        }
        if let Some(records) = probe.records {
            self.line(1, format!("records of kind {}, {} bytes each", records.kind, records.bytes));
        }
        for var in &probe.vars {
            self.line(1, format!("var ${}: {}", var.name, self.ty(&var.ty)));
        }
        if let Some(predicate) = &probe.predicate {
            self.line(1, format!("if not {} return", self.expr(predicate)));
        }
        self.block(1, &probe.body);
    }

    fn site(&mut self, site: &Site) {
        let place = match site.file {
            Some(file) => format!("{}+{:#x}", self.file(file), site.place.offset),
            None => "expected".to_string(),
        };
        let shift = match site.place.stack_shift {
            0 => String::new(),
            bytes => format!(" shift {bytes}"),
        };
        let semaphore = match site.semaphore {
            0 => String::new(),
            at => format!(" semaphore {at:#x}"),
        };
        let names = &self.program.names;
        let text = format!(
            "site {place}{shift}{semaphore} func={} api={} probe={}",
            names.funcs[site.func.0 as usize],
            names.apis[site.api.0 as usize],
            names.probes[site.probe.0 as usize]
        );
        self.line(1, text);
    }

    fn file(&self, id: FileId) -> &str {
        if id == KERNEL {
            return "kernel";
        }
        let path =
            self.program.files.iter().find(|file| file.id == id).map_or("?", |file| file.path.as_str());
        path.rsplit('/').next().unwrap_or(path)
    }

    fn block(&mut self, depth: usize, stmts: &[Stmt]) {
        stmts.iter().for_each(|stmt| self.stmt(depth, &stmt.kind));
    }

    fn nested(&mut self, depth: usize, head: String, body: &[Stmt]) {
        self.line(depth, head);
        self.block(depth + 1, body);
    }

    fn stmt(&mut self, depth: usize, kind: &StmtKind) {
        let text = match kind {
            StmtKind::If { cond, then, otherwise } => {
                self.nested(depth, format!("if {}", self.expr(cond)), then);
                if !otherwise.is_empty() {
                    self.nested(depth, "else".into(), otherwise);
                }
                return;
            }
            StmtKind::While { cond, body } => {
                return self.nested(depth, format!("while {}", self.expr(cond)), body);
            }
            StmtKind::Unroll { count, body } => return self.nested(depth, format!("unroll {count}"), body),
            StmtKind::ForRange { var, start, end, body } => {
                let head = format!("for {} : {}..{}", self.var(*var), self.expr(start), self.expr(end));
                return self.nested(depth, head, body);
            }
            StmtKind::ForMap { var, map, body } => {
                return self.nested(depth, format!("for {} : {}", self.var(*var), self.map(*map)), body);
            }
            StmtKind::SetVar { var, value } => format!("{} = {}", self.var(*var), self.expr(value)),
            StmtKind::SetMap { map, key, value } => {
                format!("{} = {}", self.cell(*map, key), self.expr(value))
            }
            StmtKind::Aggregate { map, key, arg } => self.aggregate(*map, key, arg.as_ref()),
            StmtKind::Expr(e) => self.expr(e),
            StmtKind::Break => "break".into(),
            StmtKind::Continue => "continue".into(),
            StmtKind::Return(None) => "return".into(),
            StmtKind::Return(Some(value)) => format!("return {}", self.expr(value)),
            StmtKind::Exit { code } => format!("exit({})", self.expr(code)),
            StmtKind::Printf { format, args } => self.printf("printf", format, args),
            StmtKind::Message { what, format, args, .. } => self.printf(what.function(), format, args),
            StmtKind::Rows { top, none, name } => {
                let none = String::from_utf8_lossy(none);
                match (none.as_ref(), name.as_str()) {
                    ("", "") => format!("rows({top})"),
                    (_, "") => format!("rows({top}, {none:?})"),
                    _ => format!("rows({top}, {none:?}, {name:?})"),
                }
            }
            StmtKind::Signal { number, thread } => {
                let function = if *thread { "signal_thread" } else { "signal" };
                format!("{function}({})", self.expr(number))
            }
            StmtKind::Export { what, name, hidden, fields } => {
                let name = name.iter().map(|name| format!("{:?}", String::from_utf8_lossy(name)));
                let hidden = hidden.iter().map(|(kind, e)| format!("<{kind:?}> {}", self.expr(e)));
                let fields = fields.iter().map(|(key, e)| format!("{key} = {}", self.expr(e)));
                let all: Vec<String> = name.chain(hidden).chain(fields).collect();
                format!("{}({})", what.function(), all.join(", "))
            }
            StmtKind::PrintValue(e) => format!("print({})", self.expr(e)),
            StmtKind::PrintEntry { map, key } => format!("print({})", self.cell(*map, key)),
            StmtKind::PrintMap { map, top, div } => format!("print({}, {top}, {div})", self.map(*map)),
            StmtKind::Clear(map) => format!("clear({})", self.map(*map)),
            StmtKind::Zero(map) => format!("zero({})", self.map(*map)),
            StmtKind::Time(format) => format!("time({format:?})"),
        };
        self.line(depth, text);
    }

    fn aggregate(&self, map: MapId, key: &[Expr], arg: Option<&Expr>) -> String {
        let function = match &self.program.maps[map.0 as usize].value {
            MapValue::Agg(agg) => aggregation(agg),
            MapValue::Plain(_) => "?".into(),
        };
        let arg = arg.map(|arg| format!(" of {}", self.expr(arg))).unwrap_or_default();
        format!("{} = {function}{arg}", self.cell(map, key))
    }

    fn printf(&self, function: &str, format: &[Piece], args: &[Expr]) -> String {
        let text: String = format.iter().map(piece).collect();
        let args: String =
            args.iter().map(|arg| format!(", {}: {}", self.expr(arg), self.ty(&arg.ty))).collect();
        format!("{function}(\"{text}\"{args})")
    }

    fn map(&self, id: MapId) -> String {
        format!("@{}", self.program.maps[id.0 as usize].name)
    }

    fn cell(&self, id: MapId, key: &[Expr]) -> String {
        match key {
            [] => self.map(id),
            key => format!("{}[{}]", self.map(id), self.list(key)),
        }
    }

    fn var(&self, id: VarId) -> String {
        format!("${}", self.vars[id.0 as usize].name)
    }

    fn list(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", ")
    }

    /// `{ $b = 1; $b + 1 }`, on one line.
    fn valued_block(&self, body: &[Stmt], value: &Expr) -> String {
        let Printer { program, vars, signature, .. } = *self;
        let mut inner = Printer { program, vars, signature, out: String::new() };
        inner.block(0, body);
        let words = inner.out.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        format!("{{ {words}; {} }}", self.expr(value))
    }

    fn expr(&self, e: &Expr) -> String {
        match &e.kind {
            ExprKind::Int(value) => self.constant(*value, &e.ty),
            ExprKind::Str(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            ExprKind::Var(id) => self.var(*id),
            ExprKind::VarAddress(id) => format!("&{}", self.var(*id)),
            ExprKind::MapGet { map, key } => self.cell(*map, key),
            ExprKind::Param(at) => format!("args.{}", self.param(*at)),
            ExprKind::RecordBytes { param, .. } => format!("args.{}", self.param(*param)),
            ExprKind::ParamField { param, offset } => {
                format!("{}:args.{}+{offset}", self.ty(&e.ty), self.param(*param))
            }
            ExprKind::RetvalField { offset } => format!("{}:retval+{offset}", self.ty(&e.ty)),
            ExprKind::Arg(at) => format!("arg{at}"),
            ExprKind::Reg(name) => format!("reg({name})"),
            ExprKind::Name(kind) => name_word(*kind).into(),
            ExprKind::NameIn { kind, ids } => self.name_in(*kind, ids),
            ExprKind::Neg(inner) => format!("-{}", self.expr(inner)),
            ExprKind::BitNot(inner) => format!("~{}", self.expr(inner)),
            ExprKind::Not(inner) => format!("!{}", self.expr(inner)),
            ExprKind::Binary { op, lhs, rhs } => {
                format!("({} {} {})", self.expr(lhs), symbol(*op), self.expr(rhs))
            }
            ExprKind::StrEq { lhs, rhs, limit } => {
                let limit = limit.map(|n| format!(", {n}")).unwrap_or_default();
                format!("streq({}, {}{limit})", self.expr(lhs), self.expr(rhs))
            }
            ExprKind::StrContains { haystack, needle } => {
                format!("strcontains({}, \"{}\")", self.expr(haystack), needle.escape_ascii())
            }
            ExprKind::Builtin(id, args) if args.is_empty() => id.name().into(),
            ExprKind::Builtin(id, args) => format!("{}({})", id.name(), self.list(args)),
            ExprKind::ReadBuf { base, len } => {
                format!("{}:buf({}, {})", self.ty(&e.ty), self.expr(base), self.expr(len))
            }
            ExprKind::Lookup(n) => format!("{}({})", self.ty(&e.ty), self.expr(n)),
            ExprKind::StackLen { mode: StackMode::Python, limit, .. } => {
                format!("len(ustack(python, {limit}))")
            }
            ExprKind::StackLen { user, limit, .. } => {
                format!("len({}stack({limit}))", if *user { "u" } else { "k" })
            }
            ExprKind::Kernel(inner) => format!("kernel:{}", self.expr(inner)),
            ExprKind::Cast(inner) => format!("({}){}", self.ty(&e.ty), self.expr(inner)),
            ExprKind::Ternary { cond, then, otherwise } => {
                format!("({} ? {} : {})", self.expr(cond), self.expr(then), self.expr(otherwise))
            }
            ExprKind::Block { body, value } => self.valued_block(body, value),
            ExprKind::Load { base, offset } => {
                format!("{}:*({} + {offset})", self.ty(&e.ty), self.expr(base))
            }
            ExprKind::Member { base, offset } => {
                format!("{}:{}+{offset}", self.ty(&e.ty), self.expr(base))
            }
            ExprKind::Element { base, index } | ExprKind::StrIndex { base, index } => {
                format!("{}[{}]", self.expr(base), self.expr(index))
            }
            ExprKind::Tuple(parts) => format!("({})", self.list(parts)),
            ExprKind::TupleGet { base, index } => format!("{}.{index}", self.expr(base)),
            ExprKind::ReadStr { base, limit } => self.read_str(e, base, limit.as_deref()),
            ExprKind::Stack => self.ty(&e.ty),
            ExprKind::HasKey { map, key } => format!("has_key({})", self.cell(*map, key)),
            ExprKind::Len(map) => format!("len({})", self.map(*map)),
            ExprKind::Delete { map, key } => format!("delete({})", self.cell(*map, key)),
            ExprKind::UpdateMap { map, key, op, value, yields } => {
                update(&self.cell(*map, key), *op, &self.expr(value), *yields)
            }
            ExprKind::UpdateVar { var, op, value, yields } => {
                update(&self.var(*var), *op, &self.expr(value), *yields)
            }
            ExprKind::ByCase(arms) => {
                let arms: Vec<String> =
                    arms.iter().map(|arm| format!("{:#b}: {}", arm.cases, self.expr(&arm.value))).collect();
                format!("by case {{ {} }}", arms.join(", "))
            }
            other => simple(other).into(),
        }
    }

    fn constant(&self, value: i64, ty: &Type) -> String {
        match ty {
            Type::Bool => (value != 0).to_string(),
            Type::Enum(id) => {
                let variants = &self.program.enums[id.0 as usize].variants;
                let name = variants.iter().find(|(_, v)| *v == value).map(|(name, _)| name.clone());
                name.unwrap_or_else(|| value.to_string())
            }
            Type::Name(kind) => format!("\"{}\"", self.program.names.table(*kind)[value as usize]),
            _ => value.to_string(),
        }
    }

    fn param(&self, at: u32) -> &str {
        self.signature.map_or("?", |signature| &signature.params[at as usize].name)
    }

    fn name_in(&self, kind: NameKind, ids: &[NameId]) -> String {
        let table = self.program.names.table(kind);
        let names: Vec<&str> = ids.iter().map(|id| table[id.0 as usize].as_str()).collect();
        format!("{} in {{{}}}", name_word(kind), names.join(", "))
    }

    fn read_str(&self, e: &Expr, base: &Expr, limit: Option<&Expr>) -> String {
        let limit = limit.map(|limit| format!(", {}", self.expr(limit))).unwrap_or_default();
        format!("{}:str({}{limit})", self.ty(&e.ty), self.expr(base))
    }

    fn types(&self, types: &[Type]) -> String {
        types.iter().map(|ty| self.ty(ty)).collect::<Vec<_>>().join(", ")
    }

    fn ty(&self, ty: &Type) -> String {
        match ty {
            Type::Void => "void".into(),
            Type::Bool => "bool".into(),
            Type::Int { bytes, signed } => format!("{}int{}", if *signed { "" } else { "u" }, bytes * 8),
            Type::Enum(id) => self.program.enums[id.0 as usize].name.clone(),
            Type::Pointer(to) => format!("{}*", self.ty(to)),
            Type::Str(capacity) => format!("string[{capacity}]"),
            Type::Struct(id) => self.program.structs[id.0 as usize].name.clone(),
            Type::Array(element, count) => format!("{}[{count}]", self.ty(element)),
            Type::Tuple(parts) => format!("({})", self.types(parts)),
            Type::Record(names, parts) => {
                let parts = names.iter().zip(&**parts).map(|(name, ty)| format!("{name}: {}", self.ty(ty)));
                format!("({})", parts.collect::<Vec<_>>().join(", "))
            }
            Type::Name(kind) => name_word(*kind).into(),
            Type::Usym => "usym".into(),
            Type::Stack { user, limit, mode } => {
                format!("{}stack({mode:?}, {limit})", if *user { "u" } else { "k" }).to_lowercase()
            }
            Type::Timestamp(format) => format!("strftime({format:?})"),
            Type::Float(bytes) => format!("f{}", u32::from(*bytes) * 8),
            Type::Lookup(lookup) => lookup.function().into(),
            Type::Buf(capacity) => format!("buffer[{capacity}]"),
            Type::Inet => "inet".into(),
            Type::Either(parts) => parts[1..].iter().map(|ty| self.ty(ty)).collect::<Vec<_>>().join(" or "),
        }
    }
}

/// The spelling of expressions without operands.
fn simple(kind: &ExprKind) -> &'static str {
    match kind {
        ExprKind::Retval => "retval",
        ExprKind::Duration => "duration",
        ExprKind::Started => "started",
        ExprKind::Around(Around::Depth) => "call_depth",
        ExprKind::Around(Around::Func { .. }) => "parent_func",
        ExprKind::Around(Around::Start) => "parent_start",
        ExprKind::Zero => "zero",
        _ => unreachable!("an expression with parts has its own arm"),
    }
}

fn name_word(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Func => "func",
        NameKind::Api => "api",
        NameKind::Probe => "probe",
    }
}

fn update(target: &str, op: BinaryOp, value: &str, yields: Yields) -> String {
    match yields {
        Yields::New => format!("({target} {}= {value})", symbol(op)),
        Yields::Old => format!("({target} {}= {value}, old)", symbol(op)),
    }
}

fn aggregation(agg: &Agg) -> String {
    let sign = |signed: bool| if signed { "int64" } else { "uint64" };
    match *agg {
        Agg::Count => "count()".into(),
        Agg::Sum { signed } => format!("sum({})", sign(signed)),
        Agg::Min { signed } => format!("min({})", sign(signed)),
        Agg::Max { signed } => format!("max({})", sign(signed)),
        Agg::Avg { signed } => format!("avg({})", sign(signed)),
        Agg::Stats { signed } => format!("stats({})", sign(signed)),
        Agg::Hist { bits, .. } => format!("hist({bits})"),
        Agg::LHist { min, max, step, .. } => format!("lhist({min}, {max}, {step})"),
        Agg::TSeries { interval, count, keeps, signed } => {
            format!("tseries({}, {count} of {interval} ns, {keeps:?})", sign(signed))
        }
    }
}

fn piece(piece: &Piece) -> String {
    let d = match piece {
        Piece::Text(bytes) => return bytes.escape_ascii().to_string().replace('%', "%%"),
        Piece::Directive(directive) => directive,
    };
    let mut text = String::from("%");
    let flags = [(d.left, '-'), (d.plus, '+'), (d.space, ' '), (d.alternate, '#'), (d.zero, '0')];
    text.extend(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag));
    if d.width > 0 {
        let _ = write!(text, "{}", d.width);
    }
    if let Some(precision) = d.precision {
        let _ = write!(text, ".{precision}");
    }
    text.push_str(match d.length {
        1 => "hh",
        2 => "h",
        8 => "l",
        _ => "",
    });
    text.push(d.conversion);
    if d.register {
        text.push_str("{register}");
    }
    text
}
/// `metric x.duration s labels a, b / 1000`
fn metric(metric: &Metric) -> String {
    let mut words = vec!["metric".to_owned(), metric.name.clone(), metric.unit.clone()];
    words.extend(metric.kind.map(|kind| format!("{kind:?}").to_lowercase()));
    if !metric.labels.is_empty() {
        words.push(format!("labels {}", metric.labels.join(", ")));
    }
    if metric.divisor > 1 {
        words.push(format!("/ {}", metric.divisor));
    }
    words.push(metric.help.clone());
    words.retain(|word| !word.is_empty());
    words.join(" ")
}
