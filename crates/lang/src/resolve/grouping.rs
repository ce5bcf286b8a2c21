//! Groups the functions of a clause by what the body uses of them: one program per group.
//!
//! ```text
//! uprobe:libcuda:cuMem* { @ = sum(args.bytesize) }
//!   cuMemAlloc_v2(dptr, bytesize)    }  second argument, uint64: one program
//!   cuMemAllocHost_v2(pp, bytesize)  }
//!   cuMemAlloc(dptr, bytesize)          second argument, uint32: another program
//!   cuMemFree_v2(dptr)                  left out with a warning
//! ```

use crate::hir::NameId;
use rustc_hash::FxHashMap;

use crate::catalog::debug_info::{Absent, Unsure, WITH_INFORMATION};
use crate::catalog::{FileId, MarkerArg};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::hir::{Environment, Param, Signature, Site, Trigger, Type};
use crate::resolve::signature::Declared;
use crate::resolve::spot::{Call, Spot};
use crate::resolve::usage::Usage;
use crate::source::span::Span;
use crate::types::Types;
use crate::types::passing::{Class, Passing, passing};
use crate::types::type_ref::{Shape, TypeRef};
use std::sync::Arc;

/// Functions that look the same to a body.
#[derive(Debug, Default)]
pub struct Layout {
    /// Where they are.
    pub sites: Vec<Site>,
    /// Arguments and result; those that the body uses have their real types, the others are only as wide as they are.
    pub signature: Option<Signature>,
    /// The first function, for messages.
    pub symbol: String,
    /// What is known of the first function.
    pub known: Option<Declared>,
    /// Arguments of a USDT marker that the body uses.
    pub passed: Option<Vec<MarkerArg>>,
}

/// Integer registers that hold arguments on the architecture with the fewest: what lies behind them may be on the stack.
const FEWEST_ARGUMENT_REGISTERS: u32 = 6;
/// The smallest number of vector registers for arguments; a struct uses two at most.
const FEWEST_VECTOR_REGISTERS: usize = 4;

/// What distinguishes two groups.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    returns: bool,
    /// Used arguments: position and type.
    used: Vec<(usize, Type)>,
    /// Names of all arguments, if the body uses all.
    names: Option<Vec<String>>,
    /// How the arguments up to the last used one travel.
    travel: Vec<Passing>,
    /// Whether a register goes to what says where the result goes.
    hidden: bool,
    /// Type of the result if it is used; `None` also where it is not known.
    ret: Option<Type>,
    /// Where the stack arguments are, if one may be used.
    stack_shift: Option<u32>,
    /// The function itself, if what the body sees of it is no other's.
    place: Option<(Option<FileId>, u64)>,
    /// What a marker passes on, up to the last that is used.
    passed: Option<Vec<MarkerArg>>,
}

/// Groups what a clause of this usage runs at. Functions that lack a used argument are left out with one warning; none left is an error.
pub fn group(usage: &Usage, spots: Vec<Spot>, types: &mut Types, diags: &mut Diagnostics) -> Vec<Attached> {
    let mut grouping = Grouping { usage, types, attached: Vec::new(), index: FxHashMap::default() };
    let mut lacking = Vec::new();
    let spots = with_fields(spots, usage, diags);
    let results = usage.retval.is_some() && spots.iter().any(returns_enum);
    for spot in spots {
        match spot {
            Spot::Timed { trigger, name, signature, pointees } => {
                grouping.attached.push(Attached::Timed { trigger, name, signature, pointees });
            }
            Spot::Call(call) => match lack(&call, usage, results, grouping.types) {
                // Whether the function has the arguments is decided when its file is there.
                Some(Lack::Signature(..) | Lack::Names(_)) if call.undeclared_yet => {}
                Some(what) => lacking.push((call, what)),
                None => grouping.add(call),
            },
        }
    }
    if !lacking.is_empty() {
        let some_left = grouping.attached.iter().any(|a| matches!(a, Attached::Calls { .. }));
        report(&lacking, some_left, diags);
        // The script is refused; what else is wrong in the body is said all the same.
        let first = lacking.into_iter().next().filter(|_| !some_left);
        first.into_iter().for_each(|(call, _)| grouping.add(call));
    }
    grouping.attached
}

/// Leaves out tracepoints whose record lacks a field that the body uses, with a warning, as long as some are left.
fn with_fields(spots: Vec<Spot>, usage: &Usage, diags: &mut Diagnostics) -> Vec<Spot> {
    let lacks = |spot: &Spot| match spot {
        Spot::Timed { trigger, signature: Some(signature), .. } => lacks_field(trigger, signature, usage),
        _ => None,
    };
    let is_record = |spot: &Spot| matches!(spot, Spot::Timed { signature: Some(_), .. });
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

/// The first field of those that a body uses that a record does not have.
fn lacks_field(trigger: &Trigger, signature: &Signature, usage: &Usage) -> Option<(String, Span)> {
    let readable = |name: &str| signature.params.iter().any(|p| p.name == name && p.ty != Type::Void);
    let by_number = usage.highest_arg.filter(|_| trigger.environment() == Environment::Arguments);
    let missing = by_number.filter(|&(n, _)| n as usize >= signature.params.len());
    let named = usage.args.iter().find(|(name, _)| !readable(name)).cloned();
    named.or_else(|| missing.map(|(n, span)| (format!("arg{n}"), span)))
}

/// The name of a tracepoint.
fn event(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Timed {
            trigger: Trigger::Tracepoint { event, .. } | Trigger::RawTracepoint { event }, ..
        } => Some(event),
        _ => None,
    }
}

struct Grouping<'a, 'c> {
    usage: &'a Usage,
    types: &'a mut Types<'c>,
    attached: Vec<Attached>,
    index: FxHashMap<Key, usize>,
}

impl Grouping<'_, '_> {
    fn add(&mut self, call: Call) {
        let key = self.key(&call);
        if let Some(&at) = self.index.get(&key)
            && let Attached::Calls { layout, .. } = &mut self.attached[at]
        {
            layout.sites.push(call.site);
            return;
        }
        self.index.insert(key, self.attached.len());
        let signature = call.signature.as_ref().map(|known| self.signature(known));
        let layout = Layout {
            sites: vec![call.site],
            signature,
            symbol: call.symbol,
            known: call.signature,
            passed: call.passed,
        };
        self.attached.push(Attached::Calls { returns: call.returns, layout });
    }

    fn key(&mut self, call: &Call) -> Key {
        let params = call.signature.as_ref().map_or(Vec::new(), Declared::params);
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
        let ret = call.signature.as_ref().filter(|known| call.returns && self.tells_result(known));
        Key {
            place: self.usage.place.then_some((call.site.file, call.site.place.offset)),
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

    /// The type of the result matters to the body.
    fn tells_result(&self, known: &Declared) -> bool {
        self.usage.retval.is_some() || (self.usage.result && known.returns_code())
    }

    /// The type that the body sees. Where it follows no pointers, it is all the same what they point to.
    fn visible(&mut self, ty: TypeRef) -> Type {
        match self.types.shape(ty) {
            Shape::Pointer(_) if !self.usage.follows && matches!(ty, TypeRef::Debug(_)) => {
                self.types.plain(ty)
            }
            _ => self.types.of(ty),
        }
    }

    /// The type of `retval`: a struct that does not fit registers is where the caller wants it, which the register says.
    fn result(&mut self, known: &Declared) -> Type {
        match self.is_hidden(known) {
            true => Type::Pointer(Arc::new(self.types.of(known.ret()))),
            false => self.visible(known.ret()),
        }
    }

    fn is_hidden(&mut self, known: &Declared) -> bool {
        is_hidden(known, self.types)
    }

    fn passing(&mut self, ty: TypeRef) -> Passing {
        let (float, plain) = (self.types.is_float(ty), self.types.plain(ty));
        passing(&plain, float, self.types.structs())
    }

    fn signature(&mut self, known: &Declared) -> Signature {
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
        let ret = match self.tells_result(known) {
            true => self.result(known),
            false => self.types.plain(known.ret()),
        };
        let named = if usage.retval.is_some() { self.types.named(known.ret()) } else { None };
        Signature { params, offsets: Vec::new(), ret, named, hidden: self.is_hidden(known) }
    }
}

/// Integer registers hold some of the result, a struct.
fn is_in_registers(known: &Declared, types: &mut Types) -> bool {
    let ty = types.plain(known.ret());
    match passing(&ty, false, types.structs()) {
        Passing::Registers(classes) => classes.contains(&Class::Integer),
        _ => false,
    }
}

/// The caller says where the result goes: it is a struct that does not fit registers.
fn is_hidden(known: &Declared, types: &mut Types) -> bool {
    let returns_struct = || matches!(types.shape(known.ret()), Shape::Struct(_));
    known.is_hidden()
        || returns_struct() && {
            let ty = types.plain(known.ret());
            matches!(passing(&ty, false, types.structs()), Passing::Memory { .. })
        }
}

/// An argument may lie on the stack on some architecture.
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

/// A call that returns a result code.
fn returns_enum(spot: &Spot) -> bool {
    match spot {
        Spot::Call(call) => call.returns && call.signature.as_ref().is_some_and(Declared::returns_code),
        Spot::Timed { .. } => false,
    }
}

/// What a function lacks of what a body uses.
#[derive(Clone, PartialEq)]
enum Lack {
    /// Nothing is known of its arguments.
    Signature(String, Span),
    /// Nothing is known of its arguments, and the body uses all of them.
    Names(Span),
    /// Nobody can tell where it lies.
    Place(String, Span, Unsure),
    /// It has no such argument.
    Argument(String, Span),
    /// It has one, in a vector register.
    Float(String, Span),
    /// It returns nothing, or a struct or floating-point number.
    Result(Span),
    /// A pattern found it among functions that return a result code, and it returns something else, or nobody knows what.
    Code(Span),
}

/// `codes`: some function of the clause returns a result code. The body is about those, then: a number that is none would
/// take the names from all of them.
fn lack(call: &Call, usage: &Usage, codes: bool, types: &mut Types) -> Option<Lack> {
    let retval = usage.retval.filter(|_| call.returns);
    if codes && !call.by_name && !call.signature.as_ref().is_some_and(Declared::returns_code) {
        return retval.map(Lack::Code);
    }
    let Some(known) = &call.signature else {
        let all = usage.all_args.map(Lack::Names);
        return all.or_else(|| usage.args.first().map(|(name, span)| Lack::Signature(name.clone(), *span)));
    };
    let unsure = |at: usize| known.unsure().filter(|unsure| unsure.from <= at).cloned();
    let lacks = |(name, span): &(String, Span)| match known.param(name) {
        None => Some(Lack::Argument(name.clone(), *span)),
        Some((_, ty)) if types.is_float(ty) => Some(Lack::Float(name.clone(), *span)),
        Some((at, _)) => Some(Lack::Place(name.clone(), *span, unsure(at)?)),
    };
    let all = usage.all_args.and_then(|span| {
        Some(Lack::Place("args".into(), span, unsure(known.params().len().checked_sub(1)?)?))
    });
    let named = usage.args.iter().find_map(lacks);
    let result = retval.filter(|_| !is_readable(known, types)).map(Lack::Result);
    named.or(all).or(result)
}

/// The result register has it, or says where it is.
fn is_readable(known: &Declared, types: &mut Types) -> bool {
    match types.shape(known.ret()) {
        Shape::Void | Shape::Float { .. } | Shape::Array(..) | Shape::Bytes(_) => false,
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

fn report(lacking: &[(Call, Lack)], some_left: bool, diags: &mut Diagnostics) {
    let (first, lack) = &lacking[0];
    let (span, what) = match lack {
        Lack::Signature(name, span) | Lack::Argument(name, span) => (*span, format!("argument `{name}`")),
        Lack::Names(span) => (*span, "arguments known by name".to_string()),
        Lack::Float(name, span) | Lack::Place(name, span, _) => {
            (*span, format!("readable argument `{name}`"))
        }
        Lack::Result(span) => (*span, "result that fits a register".to_string()),
        Lack::Code(span) => (*span, "result code".to_string()),
    };
    if some_left {
        let symbols = symbols(lacking);
        let names = listed(symbols.iter().copied(), 5);
        let message = skipped("function", symbols.len(), &what, &names);
        diags.warning("W0151", span, message);
        return;
    }
    match lack {
        Lack::Signature(..) | Lack::Names(_) => no_signature(first, span, diags),
        Lack::Argument(name, _) => no_argument(lacking, name, span, diags),
        Lack::Float(name, _) => {
            let message = format!("argument `{name}` of `{}` is a floating-point number", first.symbol);
            diags
                .error("E0122", span, message)
                .note("such arguments travel in registers that probes cannot read");
        }
        Lack::Place(name, _, unsure) => {
            let message = format!("nobody can tell where `{name}` of `{}` lies", first.symbol);
            let error = diags.error("E0124", span, message);
            error.note(&unsure.why).note(shown(first)).help(
                "`arg0`, `arg1` ... and `reg(\"di\")` read registers as they are, if you know what is in them",
            );
        }
        Lack::Result(_) | Lack::Code(_) => {
            let message = format!("`{}` has no result to read", first.symbol);
            diags.error("E0123", span, message).note(shown(first));
        }
    }
}

fn no_signature(call: &Call, span: Span, diags: &mut Diagnostics) {
    if let Some(passed) = &call.passed {
        let error = diags.error("E0121", span, format!("what `{}` passes on has no names", call.symbol));
        error.help(format!(
            "use `arg0`, `arg1` ...: a marker passes on values by position, this one {}",
            passed.len()
        ));
        return;
    }
    let message = format!("the arguments of `{}` are not known by name", call.symbol);
    let error = diags.error("E0121", span, message);
    let numbers =
        "use `arg0`, `arg1` ... for the integer arguments in order, cast to their types: `(int32)arg0`";
    match call.absent.as_ref().map(|(path, why)| (path, why)) {
        None => {
            error.note("names are known for the functions of CUDA's libraries, and for those that a file's debug information describes");
            error.help(numbers);
        }
        Some((path, Absent::NoInformation { looked_for })) => {
            error.note(format!("`{path}` has no debug information"));
            if !looked_for.is_empty() {
                let paths = listed(looked_for.iter().map(String::as_str), 5);
                error.note(format!("nor is there {paths}"));
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

/// The names of functions, each once: several copies of a library have them.
fn symbols(lacking: &[(Call, Lack)]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (call, _) in lacking {
        if !names.contains(&call.symbol.as_str()) {
            names.push(&call.symbol);
        }
    }
    names
}

fn no_argument(lacking: &[(Call, Lack)], name: &str, span: Span, diags: &mut Diagnostics) {
    let names = listed(symbols(lacking).into_iter(), 3);
    let known = lacking.iter().filter_map(|(call, _)| call.signature.as_ref());
    let mut candidates: Vec<&str> = known.flat_map(Declared::params).map(|(name, _)| name).collect();
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
}

/// The C declaration of a function, as far as it is known.
fn shown(call: &Call) -> String {
    match &call.signature {
        None => call.symbol.clone(),
        Some(known @ Declared::Debug(_)) => known.to_string(),
        // The tables know a family by one of its names.
        Some(Declared::Cuda(known)) => {
            let params: Vec<String> =
                known.params.iter().map(|p| declare(cuda::ty(p.ty).c_name, p.name)).collect();
            format!("{}({})", declare(cuda::ty(known.ret).c_name, &call.symbol), params.join(", "))
        }
    }
}

fn declare(c_type: &str, name: &str) -> String {
    if c_type.ends_with('*') { format!("{c_type}{name}") } else { format!("{c_type} {name}") }
}

/// Where one program runs.
#[derive(Debug)]
pub enum Attached {
    /// `BEGIN`, `END`, `interval`, `profile`, `tracepoint`
    Timed {
        /// Which.
        trigger: Trigger,
        /// What `probe` says there.
        name: NameId,
        /// The record of a tracepoint.
        signature: Option<Signature>,
        /// For each field of it, the kernel struct that it points to.
        pointees: Vec<Option<String>>,
    },
    /// `uprobe`, `uretprobe`
    Calls {
        /// At return.
        returns: bool,
        /// The functions and what the body sees of them.
        layout: Layout,
    },
}
