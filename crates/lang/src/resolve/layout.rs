//! Groups the functions of a clause by what its body sees of them: one program for each group.
//!
//! ```text
//! uprobe:libcuda:cuMem* { @ = sum(args.bytesize) }
//!   cuMemAlloc_v2(dptr, bytesize)    }  second argument, uint64: one program
//!   cuMemAllocHost_v2(pp, bytesize)  }
//!   cuMemAlloc(dptr, bytesize)          second argument, uint32: another program
//!   cuMemFree_v2(dptr)                  left out with a warning
//! ```

use rustc_hash::FxHashMap;

use crate::ast::Clause;
use crate::catalog::{FileId, MarkerArg};
use crate::check::types::Types;
use crate::diagnostic::Diagnostics;
use crate::hir::{Attach, Param, Signature, Site, Type};
use crate::resolve::Attached;
use crate::resolve::probes::{Call, Spot, did_you_mean, listed};
use crate::resolve::usage::Usage;
use crate::span::Span;

/// Functions that look the same to a body.
#[derive(Debug)]
pub struct Layout {
    /// Where they are.
    pub sites: Vec<Site>,
    /// Arguments and result; those that the body uses have their real types, the others are only as wide as they are.
    pub signature: Option<Signature>,
    /// The first function, for messages.
    pub symbol: String,
    /// What the tables say of the first function.
    pub known: Option<&'static cuda::Signature>,
    /// Of markers: what they pass on, as far as the body uses it.
    pub passed: Option<Vec<MarkerArg>>,
}

/// Integer registers that hold arguments on the architecture with the fewest: what lies behind them may be on the stack.
const FEWEST_ARGUMENT_REGISTERS: u32 = 6;

/// What distinguishes two groups.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    returns: bool,
    /// Used arguments: position and type.
    used: Vec<(usize, Type)>,
    /// Names of all arguments, if the body uses all.
    names: Option<Vec<&'static str>>,
    /// How the arguments up to the last used one travel.
    travel: Vec<Travel>,
    /// Type of the result if it is used; `None` also where it is not known.
    ret: Option<Type>,
    /// Where the stack arguments are, if one may be used.
    stack_shift: Option<u32>,
    /// The function itself, if what the body sees of it is no other's.
    place: Option<(Option<FileId>, u64)>,
    /// What a marker passes on, up to the last that is used.
    passed: Option<Vec<MarkerArg>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Travel {
    Integer,
    Float,
    Struct(u32),
}

/// Groups what a clause runs at. Functions that lack a used argument are left out with one warning; none left is an error.
pub fn group(clause: &Clause, spots: Vec<Spot>, types: &mut Types, diags: &mut Diagnostics) -> Vec<Attached> {
    let usage = Usage::of(clause);
    let mut grouping = Grouping { usage: &usage, types, attached: Vec::new(), index: FxHashMap::default() };
    let mut lacking = Vec::new();
    let spots = with_fields(spots, &usage, diags);
    let results = usage.retval.is_some() && spots.iter().any(returns_enum);
    for spot in spots {
        match spot {
            Spot::Timed { attach, name, signature } => {
                grouping.attached.push(Attached::Timed { attach, name, signature });
            }
            Spot::Call(call) => match lack(&call, &usage, results) {
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
        Spot::Timed { attach, signature: Some(signature), .. } => lacks_field(attach, signature, usage),
        _ => None,
    };
    let is_record = |spot: &Spot| matches!(spot, Spot::Timed { signature: Some(_), .. });
    if !spots.iter().any(|spot| is_record(spot) && lacks(spot).is_none()) {
        return spots;
    }
    let (lacking, left): (Vec<Spot>, Vec<Spot>) = spots.into_iter().partition(|spot| lacks(spot).is_some());
    if let Some((name, span)) = lacking.first().and_then(lacks) {
        let names = listed(lacking.iter().filter_map(event), 5);
        let plural = if lacking.len() == 1 { "tracepoint is" } else { "tracepoints are" };
        let message = format!("{} {plural} left out for want of a field `{name}`: {names}", lacking.len());
        diags.warning("W0151", span, message);
    }
    left
}

/// The first field of those that a body uses that a record does not have.
fn lacks_field(attach: &Attach, signature: &Signature, usage: &Usage) -> Option<(String, Span)> {
    let readable = |name: &str| signature.params.iter().any(|p| p.name == name && p.ty != Type::Void);
    let by_number = usage.highest_arg.filter(|_| matches!(attach, Attach::RawTracepoint { .. }));
    let missing = by_number.filter(|&(n, _)| n as usize >= signature.params.len());
    let named = usage.args.iter().find(|(name, _)| !readable(name)).cloned();
    named.or_else(|| missing.map(|(n, span)| (format!("arg{n}"), span)))
}

/// The name of a tracepoint.
fn event(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Timed {
            attach: Attach::Tracepoint { event, .. } | Attach::RawTracepoint { event, .. },
            ..
        } => Some(event),
        _ => None,
    }
}

struct Grouping<'a> {
    usage: &'a Usage,
    types: &'a mut Types,
    attached: Vec<Attached>,
    index: FxHashMap<Key, usize>,
}

impl Grouping<'_> {
    fn add(&mut self, call: Call) {
        let key = self.key(&call);
        if let Some(&at) = self.index.get(&key)
            && let Attached::Calls { layout, .. } = &mut self.attached[at]
        {
            layout.sites.push(call.site);
            return;
        }
        self.index.insert(key, self.attached.len());
        let signature = call.signature.map(|known| self.signature(known));
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
        let params = call.signature.map_or(&[][..], |known| known.params);
        let used: Vec<usize> = match self.usage.all_args {
            Some(_) => (0..params.len()).collect(),
            None => {
                let named = self.usage.args.iter();
                named.filter_map(|(name, _)| params.iter().position(|p| p.name == name)).collect()
            }
        };
        let used: Vec<(usize, Type)> =
            used.into_iter().map(|at| (at, self.types.of_cuda(params[at].ty))).collect();
        let last = used.iter().map(|(at, _)| at + 1).max().unwrap_or(0);
        let travel: Vec<Travel> = params[..last].iter().map(|p| travel(p.ty)).collect();
        let on_stack = words(&travel) > FEWEST_ARGUMENT_REGISTERS
            || self.usage.highest_arg.is_some_and(|(n, _)| n >= FEWEST_ARGUMENT_REGISTERS);
        let ret = call.signature.filter(|known| call.returns && self.tells_result(known));
        Key {
            place: self.usage.place.then_some((call.site.file, call.site.place.offset)),
            returns: call.returns,
            used,
            names: self.usage.all_args.map(|_| params.iter().map(|p| p.name).collect()),
            travel,
            ret: ret.map(|known| self.types.of_cuda(known.ret)),
            passed: call.passed.as_ref().map(|args| {
                let used = self.usage.highest_arg.map_or(0, |(n, _)| n as usize + 1);
                args[..used.min(args.len())].to_vec()
            }),
            stack_shift: on_stack.then_some(call.site.place.stack_shift),
        }
    }

    /// The type of the result matters to the body.
    fn tells_result(&self, known: &cuda::Signature) -> bool {
        self.usage.retval.is_some() || (self.usage.result && is_enum(known.ret))
    }

    fn signature(&mut self, known: &cuda::Signature) -> Signature {
        let usage = self.usage;
        let is_used = |name| usage.all_args.is_some() || usage.uses_arg(name);
        let params = known.params.iter().map(|param| Param {
            name: param.name.into(),
            ty: if is_used(param.name) { self.types.of_cuda(param.ty) } else { self.types.plain(param.ty) },
            float: is_float(param.ty),
        });
        let params = params.collect();
        let ret = if self.tells_result(known) {
            self.types.of_cuda(known.ret)
        } else {
            self.types.plain(known.ret)
        };
        Signature { params, ret }
    }
}

fn is_float(ty: cuda::TypeId) -> bool {
    matches!(cuda::ty(ty).kind, cuda::Kind::Float { .. })
}

fn travel(ty: cuda::TypeId) -> Travel {
    match cuda::ty(ty).kind {
        cuda::Kind::Float { .. } => Travel::Float,
        cuda::Kind::Struct(id) => Travel::Struct(cuda::struct_def(id).size),
        _ => Travel::Integer,
    }
}

/// Integer registers, or stack slots, that arguments take; a struct by value takes one for each 8 bytes.
fn words(travel: &[Travel]) -> u32 {
    let word = |t: &Travel| match t {
        Travel::Integer => 1,
        Travel::Float => 0,
        Travel::Struct(size) => size.div_ceil(8),
    };
    travel.iter().map(word).sum()
}

/// A call that returns a result code.
fn returns_enum(spot: &Spot) -> bool {
    match spot {
        Spot::Call(call) => call.returns && call.signature.is_some_and(|known| is_enum(known.ret)),
        Spot::Timed { .. } => false,
    }
}

fn is_enum(ty: cuda::TypeId) -> bool {
    matches!(cuda::ty(ty).kind, cuda::Kind::Enum(_))
}

/// What a function lacks of what a body uses.
#[derive(Clone, PartialEq)]
enum Lack {
    /// Nothing is known of its arguments.
    Signature(String, Span),
    /// Likewise, and all of them are asked for.
    Names(Span),
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
fn lack(call: &Call, usage: &Usage, codes: bool) -> Option<Lack> {
    let retval = usage.retval.filter(|_| call.returns);
    if codes && !call.by_name && !call.signature.is_some_and(|known| is_enum(known.ret)) {
        return retval.map(Lack::Code);
    }
    let Some(known) = call.signature else {
        let all = usage.all_args.map(Lack::Names);
        return all.or_else(|| usage.args.first().map(|(name, span)| Lack::Signature(name.clone(), *span)));
    };
    let lacks = |(name, span): &(String, Span)| match known.param(name) {
        None => Some(Lack::Argument(name.clone(), *span)),
        Some((_, param)) if is_float(param.ty) => Some(Lack::Float(name.clone(), *span)),
        Some(_) => None,
    };
    let unreadable = matches!(
        cuda::ty(known.ret).kind,
        cuda::Kind::Void | cuda::Kind::Float { .. } | cuda::Kind::Struct(_) | cuda::Kind::Array(..)
    );
    let result = retval.filter(|_| unreadable).map(Lack::Result);
    usage.args.iter().find_map(lacks).or(result)
}

fn report(lacking: &[(Call, Lack)], some_left: bool, diags: &mut Diagnostics) {
    let (first, lack) = &lacking[0];
    let (span, what) = match lack {
        Lack::Signature(name, span) | Lack::Argument(name, span) => (*span, format!("an argument `{name}`")),
        Lack::Names(span) => (*span, "arguments known by name".to_string()),
        Lack::Float(name, span) => (*span, format!("a readable argument `{name}`")),
        Lack::Result(span) => (*span, "a result that fits a register".to_string()),
        Lack::Code(span) => (*span, "a result code".to_string()),
    };
    if some_left {
        let names = listed(lacking.iter().map(|(call, _)| call.symbol.as_str()), 5);
        let plural = if lacking.len() == 1 { "function is" } else { "functions are" };
        let message = format!("{} {plural} left out for want of {what}: {names}", lacking.len());
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
    diags
        .error("E0121", span, message)
        .note("names are known for the functions of the CUDA driver, the CUDA runtime and NCCL")
        .help(
            "use `arg0`, `arg1` ... for the integer arguments in order, cast to their types: `(int32)arg0`",
        );
}

fn no_argument(lacking: &[(Call, Lack)], name: &str, span: Span, diags: &mut Diagnostics) {
    let names = listed(lacking.iter().map(|(call, _)| call.symbol.as_str()), 3);
    let params = lacking.iter().filter_map(|(call, _)| call.signature).flat_map(|known| known.params);
    let mut candidates: Vec<&str> = params.map(|p| p.name).collect();
    candidates.sort_unstable();
    candidates.dedup();
    let near = diags.similar(name, candidates.iter().copied());
    let error = diags.error("E0120", span, format!("no argument `{name}` in {names}"));
    error.label("no such argument").note(shown(&lacking[0].0));
    error.help.extend(did_you_mean(&near));
}

/// The C declaration of a function, as far as it is known.
fn shown(call: &Call) -> String {
    let Some(known) = call.signature else { return call.symbol.clone() };
    let params: Vec<String> = known.params.iter().map(|p| declare(cuda::ty(p.ty).c_name, p.name)).collect();
    format!("{}({})", declare(cuda::ty(known.ret).c_name, &call.symbol), params.join(", "))
}

fn declare(c_type: &str, name: &str) -> String {
    if c_type.ends_with('*') { format!("{c_type}{name}") } else { format!("{c_type} {name}") }
}
