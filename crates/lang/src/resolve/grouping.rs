//! Groups the functions of a clause by the values of a call that the body uses: one program per group.
//!
//! ```text
//! uprobe:libcuda:cuMem* { @ = sum(args.bytesize) }
//!   cuMemAlloc_v2(dptr, bytesize)    }  second argument, uint64: one program
//!   cuMemAllocHost_v2(pp, bytesize)  }
//!   cuMemAlloc(dptr, bytesize)          second argument, uint32: another program
//!   cuMemFree_v2(dptr)                  skipped with a warning
//! ```

use rustc_hash::FxHashMap;

use crate::catalog::debug_info::{Absent, Unsure, WITH_INFORMATION};
use crate::catalog::{FileId, MarkerArg};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::hir::{Environment, Hook, Param, Signature, Site, Trigger, Type};
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::spot::{Call, EventSpot, Spot};
use crate::resolve::usage::Usage;
use crate::source::span::Span;
use crate::types::Types;
use crate::types::passing::{Class, Passing, passing};
use crate::types::type_ref::{Shape, TypeRef};
use std::sync::Arc;

/// The locations of one program.
#[derive(Debug)]
pub enum ProgramGroup {
    /// An event other than a call.
    Event(EventSpot),
    /// Functions or markers.
    Calls {
        /// How they are probed.
        hook: Hook,
        /// At return.
        returns: bool,
        /// The functions, and the values that the body can use.
        layout: Layout,
    },
}

impl ProgramGroup {
    /// The functions.
    pub fn sites(&self) -> &[Site] {
        match self {
            ProgramGroup::Event(_) => &[],
            ProgramGroup::Calls { layout, .. } => &layout.sites,
        }
    }
}

/// Functions between which a body cannot distinguish.
#[derive(Debug, Default)]
pub struct Layout {
    /// The functions.
    pub sites: Vec<Site>,
    /// Arguments and result. Those that the body does not use have plain types of the same size.
    pub signature: Option<Signature>,
    /// The first function, for messages.
    pub symbol: String,
    /// The declaration of the first function.
    pub known: Option<FunctionDeclaration>,
    /// Arguments of a USDT marker that the body uses.
    pub passed: Option<Vec<MarkerArg>>,
}

/// The smallest number of integer registers for arguments of all architectures: further arguments may be on the stack.
const FEWEST_ARGUMENT_REGISTERS: u32 = 6;
/// The smallest number of vector registers for arguments; a struct uses two at most.
const FEWEST_VECTOR_REGISTERS: usize = 4;

/// The key of a group.
#[derive(PartialEq, Eq, Hash)]
struct GroupKey {
    hook: Hook,
    returns: bool,
    /// Used arguments: index and type.
    used: Vec<(usize, Type)>,
    /// Names of all arguments, if the body uses all.
    names: Option<Vec<String>>,
    /// The passing of the arguments up to the last used one.
    travel: Vec<Passing>,
    /// True if a register holds the address of the result.
    hidden: bool,
    /// Type of the result if it is used and known.
    ret: Option<Type>,
    /// Position of the stack arguments, if one may be used.
    stack_shift: Option<u32>,
    /// The function itself, if each function has its own program.
    place: Option<(Option<FileId>, u64)>,
    /// Arguments of a marker, up to the last used one.
    passed: Option<Vec<MarkerArg>>,
}

/// Groups the locations of a clause with this usage. Functions without a used argument are skipped with one warning; an error if none is
/// left. `in_process`: the programs run in the traced processes, where they can read vector registers.
pub fn group(
    usage: &Usage,
    in_process: bool,
    spots: Vec<Spot>,
    types: &mut Types,
    diags: &mut Diagnostics,
) -> Vec<ProgramGroup> {
    let mut grouping = Grouping { usage, types, groups: Vec::new(), index: FxHashMap::default() };
    let mut lacking = Vec::new();
    let spots = with_fields(spots, usage, diags);
    let results = usage.retval.is_some() && spots.iter().any(returns_enum);
    for spot in spots {
        match spot {
            Spot::Event(event) => grouping.groups.push(ProgramGroup::Event(event)),
            Spot::Call(call) => match lack(&call, usage, results, in_process, grouping.types) {
                // Decided when the file is known.
                Some(MissingValue::Signature(..) | MissingValue::Names(_)) if call.undeclared_yet => {}
                Some(what) => lacking.push((call, what)),
                None => grouping.add(call),
            },
        }
    }
    if !lacking.is_empty() {
        let some_left = grouping.groups.iter().any(|a| matches!(a, ProgramGroup::Calls { .. }));
        report(&lacking, some_left, diags);
        // The script is refused, but the rest of the body is checked.
        let first = lacking.into_iter().next().filter(|_| !some_left);
        first.into_iter().for_each(|(call, _)| grouping.add(call));
    }
    grouping.groups
}

/// Skips tracepoints whose record lacks a field that the body uses, with a warning, unless none would be left.
fn with_fields(spots: Vec<Spot>, usage: &Usage, diags: &mut Diagnostics) -> Vec<Spot> {
    let lacks = |spot: &Spot| match spot {
        Spot::Event(EventSpot { trigger, signature: Some(signature), .. }) => {
            lacks_field(trigger, signature, usage)
        }
        _ => None,
    };
    let is_record = |spot: &Spot| matches!(spot, Spot::Event(EventSpot { signature: Some(_), .. }));
    if !spots.iter().any(|spot| is_record(spot) && lacks(spot).is_none()) {
        return spots;
    }
    let (lacking, left): (Vec<Spot>, Vec<Spot>) = spots.into_iter().partition(|spot| lacks(spot).is_some());
    if let Some((name, span)) = lacking.first().and_then(lacks) {
        let names = listed(lacking.iter().filter_map(event), 5);
        let message = skipped("tracepoint", lacking.len(), &format!("field `{name}`"), &names);
        diags.warning("W0151", span, message);
    }
    left
}

/// The first field that a body uses and a record lacks.
fn lacks_field(trigger: &Trigger, signature: &Signature, usage: &Usage) -> Option<(String, Span)> {
    let readable = |name: &str| signature.params.iter().any(|p| p.name == name && p.ty != Type::Void);
    let by_number = usage.highest_arg.filter(|_| trigger.environment() == Environment::Arguments);
    let missing = by_number.filter(|&(n, _)| n as usize >= signature.params.len());
    let named = usage.args.iter().find(|(name, _)| !readable(name)).cloned();
    named.or_else(|| missing.map(|(n, span)| (format!("arg{n}"), span)))
}

/// The event of a tracepoint.
fn event(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Event(EventSpot {
            trigger: Trigger::Tracepoint { event, .. } | Trigger::RawTracepoint { event },
            ..
        }) => Some(event),
        _ => None,
    }
}

struct Grouping<'a, 'c> {
    usage: &'a Usage,
    types: &'a mut Types<'c>,
    groups: Vec<ProgramGroup>,
    index: FxHashMap<GroupKey, usize>,
}

impl Grouping<'_, '_> {
    fn add(&mut self, call: Call) {
        let key = self.key(&call);
        if let Some(&at) = self.index.get(&key)
            && let ProgramGroup::Calls { layout, .. } = &mut self.groups[at]
        {
            layout.sites.push(call.site);
            return;
        }
        self.index.insert(key, self.groups.len());
        let signature = call.signature.as_ref().map(|known| self.signature(known));
        let layout = Layout {
            sites: vec![call.site],
            signature,
            symbol: call.symbol,
            known: call.signature,
            passed: call.passed,
        };
        self.groups.push(ProgramGroup::Calls { hook: call.hook, returns: call.returns, layout });
    }

    fn key(&mut self, call: &Call) -> GroupKey {
        let params = call.signature.as_ref().map_or(Vec::new(), FunctionDeclaration::params);
        let used: Vec<usize> = match self.usage.all_args {
            Some(_) => (0..params.len()).collect(),
            None => {
                let named = self.usage.args.iter();
                named.filter_map(|(name, _)| params.iter().position(|(known, _)| known == name)).collect()
            }
        };
        let last = used.iter().map(|at| at + 1).max().unwrap_or(0);
        let used: Vec<(usize, Type)> = used.into_iter().map(|at| (at, self.visible(params[at].1))).collect();
        let travel: Vec<Passing> = params[..last].iter().map(|&(_, ty)| self.passing(ty)).collect();
        let hidden = call.signature.as_ref().is_some_and(|known| last > 0 && self.is_hidden(known));
        let on_stack = may_be_on_stack(&travel, hidden)
            || self.usage.highest_arg.is_some_and(|(n, _)| n >= FEWEST_ARGUMENT_REGISTERS);
        let ret = call.signature.as_ref().filter(|known| call.returns && self.depends_on_result(known));
        // A trampoline's program has one function.
        let is_separate = self.usage.place || call.hook == Hook::Trampoline;
        GroupKey {
            place: is_separate.then_some((call.site.file, call.site.place.offset)),
            hook: call.hook,
            returns: call.returns,
            used,
            names: self.usage.all_args.map(|_| params.iter().map(|(name, _)| (*name).to_string()).collect()),
            travel,
            hidden,
            ret: ret.map(|known| self.result(known)),
            passed: call.passed.as_ref().map(|args| {
                let used = self.usage.highest_arg.map_or(0, |(n, _)| n as usize + 1);
                args[..used.min(args.len())].to_vec()
            }),
            stack_shift: on_stack.then_some(call.site.place.stack_shift),
        }
    }

    /// Whether the body depends on the type of the result.
    fn depends_on_result(&self, known: &FunctionDeclaration) -> bool {
        self.usage.retval.is_some() || (self.usage.result && known.returns_code())
    }

    /// The type in the body. If the body follows no pointers, the pointed-to types do not matter.
    fn visible(&mut self, ty: TypeRef) -> Type {
        match self.types.shape(ty) {
            Shape::Pointer(_) if !self.usage.follows && matches!(ty, TypeRef::Debug(_)) => {
                self.types.plain(ty)
            }
            _ => self.types.of(ty),
        }
    }

    /// The type of `retval`. If a struct does not fit registers, the register holds its address.
    fn result(&mut self, known: &FunctionDeclaration) -> Type {
        match self.is_hidden(known) {
            true => Type::Pointer(Arc::new(self.types.of(known.ret()))),
            false => self.visible(known.ret()),
        }
    }

    fn is_hidden(&mut self, known: &FunctionDeclaration) -> bool {
        is_hidden(known, self.types)
    }

    fn passing(&mut self, ty: TypeRef) -> Passing {
        let (float, plain) = (self.types.is_float(ty), self.types.plain(ty));
        passing(&plain, float, self.types.structs())
    }

    fn signature(&mut self, known: &FunctionDeclaration) -> Signature {
        let usage = self.usage;
        let is_used = |name: &str| usage.all_args.is_some() || usage.uses_arg(name);
        let params = known.params();
        let params = params.iter().map(|&(name, ty)| Param {
            name: name.into(),
            ty: if is_used(name) { self.visible(ty) } else { self.types.plain(ty) },
            float: self.types.is_float(ty),
            named: if is_used(name) { self.types.named(ty) } else { None },
        });
        let params = params.collect();
        let ret = match self.depends_on_result(known) {
            true => self.result(known),
            false => self.types.plain(known.ret()),
        };
        let named = if usage.retval.is_some() { self.types.named(known.ret()) } else { None };
        Signature { params, offsets: Vec::new(), ret, named, hidden: self.is_hidden(known) }
    }
}

/// Whether integer registers hold part of the result, a struct.
fn is_in_registers(known: &FunctionDeclaration, types: &mut Types) -> bool {
    let ty = types.plain(known.ret());
    match passing(&ty, false, types.structs()) {
        Passing::Registers(classes) => classes.contains(&Class::Integer),
        _ => false,
    }
}

/// Whether the caller passes the address of the result, a struct that does not fit registers.
fn is_hidden(known: &FunctionDeclaration, types: &mut Types) -> bool {
    let returns_struct = || matches!(types.shape(known.ret()), Shape::Struct(_));
    known.is_hidden()
        || returns_struct() && {
            let ty = types.plain(known.ret());
            matches!(passing(&ty, false, types.structs()), Passing::Memory { .. })
        }
}

/// Whether an argument may be on the stack on some architecture.
fn may_be_on_stack(travel: &[Passing], hidden: bool) -> bool {
    let words = |passing: &Passing| match passing {
        Passing::Word => 1,
        Passing::Vector => 0,
        Passing::Registers(classes) => classes.len() as u32,
        Passing::Memory { bytes, .. } => bytes / 8,
    };
    let words: u32 = travel.iter().map(words).sum();
    let vectors = travel.iter().filter(|p| matches!(p, Passing::Vector | Passing::Registers(_))).count();
    words + u32::from(hidden) > FEWEST_ARGUMENT_REGISTERS
        || vectors > FEWEST_VECTOR_REGISTERS
        || travel.iter().any(|p| matches!(p, Passing::Memory { .. }))
}

/// Whether a call returns a result code.
fn returns_enum(spot: &Spot) -> bool {
    match spot {
        Spot::Call(call) => {
            call.returns && call.signature.as_ref().is_some_and(FunctionDeclaration::returns_code)
        }
        Spot::Event(_) => false,
    }
}

/// A value that a body uses and a function lacks.
#[derive(Clone, PartialEq)]
enum MissingValue {
    /// The argument: the declaration is unknown.
    Signature(String, Span),
    /// All arguments: the declaration is unknown.
    Names(Span),
    /// The argument: its location is unknown.
    Place(String, Span, Unsure),
    /// The argument: the function has none of this name.
    Argument(String, Span),
    /// The argument: it is in a vector register.
    Float(String, Span),
    /// The result: it is in a vector register.
    FloatResult(Span),
    /// The result: there is none, or it is a struct.
    Result(Span),
    /// A result code. The pattern also matches functions that return one.
    Code(Span),
}

/// The value that a function lacks. `codes`: some function of the clause returns a result code. Then all must: with a plain number
/// among them, the names of the codes would be lost. `vectors`: vector registers can be read.
fn lack(call: &Call, usage: &Usage, codes: bool, vectors: bool, types: &mut Types) -> Option<MissingValue> {
    let retval = usage.retval.filter(|_| call.returns);
    if codes && !call.by_name && !call.signature.as_ref().is_some_and(FunctionDeclaration::returns_code) {
        return retval.map(MissingValue::Code);
    }
    let Some(known) = &call.signature else {
        let all = usage.all_args.map(MissingValue::Names);
        return all
            .or_else(|| usage.args.first().map(|(name, span)| MissingValue::Signature(name.clone(), *span)));
    };
    let unsure = |at: usize| known.unsure().filter(|unsure| unsure.from <= at).cloned();
    let lacks = |(name, span): &(String, Span)| match known.param(name) {
        None => Some(MissingValue::Argument(name.clone(), *span)),
        Some((_, ty)) if types.is_float(ty) && !(vectors && is_in_vector(ty, types)) => {
            Some(MissingValue::Float(name.clone(), *span))
        }
        Some((at, _)) => Some(MissingValue::Place(name.clone(), *span, unsure(at)?)),
    };
    let all = usage.all_args.and_then(|span| {
        Some(MissingValue::Place("args".into(), span, unsure(known.params().len().checked_sub(1)?)?))
    });
    let named = usage.args.iter().find_map(lacks);
    let result = retval.filter(|_| !is_readable(known, vectors, types));
    let is_float = |types: &mut Types| types.is_float(known.ret());
    let result = result.map(|span| match is_float(types) {
        true => MissingValue::FloatResult(span),
        false => MissingValue::Result(span),
    });
    named.or(all).or(result)
}

/// Whether a floating-point number is in a vector register, or on the stack after many others: `float`, `double`.
fn is_in_vector(ty: TypeRef, types: &mut Types) -> bool {
    matches!(types.shape(ty), Shape::Float { bytes: 4 | 8 })
}

/// Whether the result register holds the result, or its address.
fn is_readable(known: &FunctionDeclaration, vectors: bool, types: &mut Types) -> bool {
    match types.shape(known.ret()) {
        Shape::Float { .. } => vectors && is_in_vector(known.ret(), types),
        Shape::Void | Shape::Array(..) | Shape::Bytes(_) => false,
        Shape::Struct(_) => is_hidden(known, types) || is_in_registers(known, types),
        _ => true,
    }
}

/// `2 functions have no argument `x` and are skipped: ...`
fn skipped(kind: &str, count: usize, lack: &str, names: &str) -> String {
    match count {
        1 => format!("1 {kind} has no {lack} and is skipped: {names}"),
        _ => format!("{count} {kind}s have no {lack} and are skipped: {names}"),
    }
}

const NOT_BY_KERNEL: &str = "such values are in vector registers, which programs in the kernel cannot read";
const IN_PROCESS: &str = "with `--in-process` it is read, if it is a `float` or `double`";

fn report(lacking: &[(Call, MissingValue)], some_left: bool, diags: &mut Diagnostics) {
    let (first, lack) = &lacking[0];
    let (span, what) = match lack {
        MissingValue::Signature(name, span) | MissingValue::Argument(name, span) => {
            (*span, format!("argument `{name}`"))
        }
        MissingValue::Names(span) => (*span, "arguments known by name".to_string()),
        MissingValue::Float(name, span) | MissingValue::Place(name, span, _) => {
            (*span, format!("readable argument `{name}`"))
        }
        MissingValue::Result(span) | MissingValue::FloatResult(span) => {
            (*span, "result that fits a register".to_string())
        }
        MissingValue::Code(span) => (*span, "result code".to_string()),
    };
    if some_left {
        let symbols = symbols(lacking);
        let names = listed(symbols.iter().copied(), 5);
        let message = skipped("function", symbols.len(), &what, &names);
        diags.warning("W0151", span, message);
        return;
    }
    match lack {
        MissingValue::Signature(..) | MissingValue::Names(_) => no_signature(first, span, diags),
        MissingValue::Argument(name, _) => no_argument(lacking, name, span, diags),
        MissingValue::Float(name, _) => {
            let message = format!("argument `{name}` of `{}` is a floating-point number", first.symbol);
            diags.error("E0122", span, message).note(NOT_BY_KERNEL).help(IN_PROCESS);
        }
        MissingValue::FloatResult(_) => {
            let message = format!("the result of `{}` is a floating-point number", first.symbol);
            diags.error("E0123", span, message).note(NOT_BY_KERNEL).help(IN_PROCESS);
        }
        MissingValue::Place(name, _, unsure) => {
            let message = format!("the location of `{name}` of `{}` is unknown", first.symbol);
            let error = diags.error("E0124", span, message);
            error
                .note(&unsure.why)
                .note(shown(first))
                .help("`arg0`, `arg1` ... and `reg(\"di\")` read registers, if you know their contents");
        }
        MissingValue::Result(_) | MissingValue::Code(_) => {
            let message = format!("`{}` has no readable result", first.symbol);
            diags.error("E0123", span, message).note(shown(first));
        }
    }
}

fn no_signature(call: &Call, span: Span, diags: &mut Diagnostics) {
    if let Some(passed) = &call.passed {
        let error = diags.error(
            "E0121",
            span,
            format!("the arguments of USDT marker `{}` have no names", call.symbol),
        );
        error.help(match passed.len() {
            0 => "this marker has none".into(),
            1 => "use `arg0`: this marker has 1 argument".into(),
            many => format!("use `arg0`, `arg1` ...: this marker has {many} arguments"),
        });
        return;
    }
    let message = format!("the arguments of `{}` are not known by name", call.symbol);
    let error = diags.error("E0121", span, message);
    let numbers =
        "use `arg0`, `arg1` ... for the integer arguments in order, cast to their types: `(int32)arg0`";
    match call.absent.as_ref().map(|(path, why)| (path, why)) {
        None => {
            error.note("names are known for functions of the CUDA libraries and for functions with debug information");
            error.help(numbers);
        }
        Some((path, Absent::NoInformation { looked_for })) => {
            error.note(format!("`{path}` has no debug information"));
            if !looked_for.is_empty() {
                let paths = listed(looked_for.iter().map(String::as_str), 5);
                error.note(format!("these files do not exist: {paths}"));
            }
            error.help(WITH_INFORMATION);
            error.help(numbers);
        }
        Some((path, Absent::NotDescribed)) => {
            error.note(format!("the debug information of `{path}` does not describe this function: its source was compiled without `-g`"));
            error.help(numbers);
        }
        Some((path, Absent::Unusable(why))) => {
            error.note(format!("`{path}`: {why}")).help(numbers);
        }
    }
}

/// The names of functions, without duplicates: several copies of a library have the same.
fn symbols(lacking: &[(Call, MissingValue)]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (call, _) in lacking {
        if !names.contains(&call.symbol.as_str()) {
            names.push(&call.symbol);
        }
    }
    names
}

fn no_argument(lacking: &[(Call, MissingValue)], name: &str, span: Span, diags: &mut Diagnostics) {
    let names = listed(symbols(lacking).into_iter(), 3);
    let known = lacking.iter().filter_map(|(call, _)| call.signature.as_ref());
    let mut candidates: Vec<&str> =
        known.flat_map(FunctionDeclaration::params).map(|(name, _)| name).collect();
    candidates.sort_unstable();
    candidates.dedup();
    let near = diags.similar(name, candidates.iter().copied());
    let error = diags.error("E0120", span, format!("no argument `{name}` in {names}"));
    error.label("no such argument").note(shown(&lacking[0].0));
    let has_it = |candidate: &&&str| name.len() > 2 && candidate.contains(name);
    let near = if near.is_empty() {
        candidates.iter().filter(has_it).map(|c| c.to_string()).collect()
    } else {
        near
    };
    error.help.extend(did_you_mean(&near));
    if near.is_empty()
        && let [first, _, ..] = lacking
    {
        error.help(format!("`cudatrace -lv {}` and so on show their parameters", first.0.symbol));
    }
}

/// The C declaration of a function, or its name if the declaration is unknown.
fn shown(call: &Call) -> String {
    match &call.signature {
        None => call.symbol.clone(),
        Some(known @ FunctionDeclaration::Debug(_)) => known.to_string(),
        // The tables have only one name of a family.
        Some(FunctionDeclaration::Cuda(known)) => {
            let params: Vec<String> =
                known.params.iter().map(|p| declare(cuda::ty(p.ty).c_name, p.name)).collect();
            format!("{}({})", declare(cuda::ty(known.ret).c_name, &call.symbol), params.join(", "))
        }
    }
}

fn declare(c_type: &str, name: &str) -> String {
    if c_type.ends_with('*') { format!("{c_type}{name}") } else { format!("{c_type} {name}") }
}
