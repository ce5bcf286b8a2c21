//! `getopt("name", default, "help")`: options of the script, given after it on the command line.
//!
//! ```text
//! interval:s:1 { print(@, getopt("top", 10, "rows to show")) }
//!
//! cudatrace calls.ct --top=20      20 rows
//! cudatrace calls.ct --help        lists `--top`
//! ```
//!
//! The default determines the type of the option; without a default it is a switch.
//!
//! In the name of a probe the value of the option stands as text; the value 0 removes the probe:
//!
//! ```text
//! interval:s:getopt("interval", 0), END { print(@) }
//!     without the option        END { print(@) }
//!     with `--interval=5`       interval:s:5, END { print(@) }
//! ```
//!
//! An option that is the period of a probe, or whose help begins or ends with a unit (`seconds between reports`), takes durations:
//! `--interval=500ms`. The script gets a number in that unit. A period may be a fraction of its unit; elsewhere that is an error.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::expand::{durations, macros};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{Expr, ExprKind, Item, ProbeSpec, Script, SpecPart, UnaryOp};
use crate::syntax::parse::word_as_number;
use crate::syntax::print::print_expr;
use crate::syntax::visit::change as visit;

/// An option as the command line gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionValue {
    /// `top`
    pub name: String,
    /// `20` of `--top=20`; none for `--flag`.
    pub value: Option<String>,
}

/// An option of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptOption {
    /// `top`
    pub name: String,
    /// A literal; none for a switch.
    pub default: Option<Expr>,
    /// For `--help`.
    pub help: Option<String>,
    /// First use.
    pub span: Span,
    /// Restrictions of its values.
    pub range: Range,
}

/// Restrictions of the values of a numeric option.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Nanoseconds in the unit of a duration.
    unit: Option<u64>,
    /// True for the period of a probe, which may be a fraction of the unit.
    is_period: bool,
    /// True if the script casts it to an unsigned type.
    is_unsigned: bool,
    /// True for a number of printed rows or keys.
    is_count: bool,
}

impl ScriptOption {
    /// Whether it has a value, so that it is not a switch.
    pub fn takes_value(&self) -> bool {
        !matches!(self.default.as_ref().map(|default| &default.kind), None | Some(ExprKind::Bool(_)))
    }

    /// Its syntax: `--top=N`, `--name=TEXT`, `--flag`.
    pub fn form(&self) -> String {
        let value = match self.default.as_ref().map(|default| &default.kind) {
            None | Some(ExprKind::Bool(false)) => "",
            Some(ExprKind::Bool(true)) => "=false",
            Some(ExprKind::Str(_)) => "=TEXT",
            Some(_) => "=N",
        };
        format!("--{}{value}", self.name)
    }

    /// The default as text, except for switches and empty text.
    pub fn default_text(&self) -> Option<String> {
        let is_shown =
            |e: &&Expr| !matches!(&e.kind, ExprKind::Bool(_)) && e.kind != ExprKind::Str(Vec::new());
        self.default.as_ref().filter(is_shown).map(print_expr)
    }
}

/// The options of a script, those in macros that it uses too, in the order of their first use.
pub fn known(script: &Script) -> Vec<ScriptOption> {
    let mut script = script.clone();
    // Errors in its macros are reported when it is compiled.
    macros::expand(&mut script, |_| Some(0..=usize::MAX), &mut Diagnostics::default());
    let mut found: FxHashMap<String, ScriptOption> = FxHashMap::default();
    let (mut unsigned, mut counts): (HashSet<String>, HashSet<String>) = Default::default();
    let see = |e: &mut Expr| {
        if let ExprKind::Cast { ty, expr } = &e.kind
            && ty.name.starts_with("uint")
            && let Some(Ok(option)) = read(expr)
        {
            unsigned.insert(option.name);
        }
        counts.extend(counted(e).iter().filter_map(read).flatten().map(|option| option.name));
        let Some(Ok(mut option)) = read(e) else { return };
        let help = option.help.take();
        let known = found.entry(option.name.clone()).or_insert(option);
        known.help = known.help.take().or(help);
    };
    visit::script(&mut script, &mut visit::Exprs(see));
    for option in found.values_mut() {
        option.range.unit = option.help.as_deref().and_then(durations::unit_of_help);
        option.range.is_unsigned = unsigned.contains(&option.name);
        option.range.is_count = counts.contains(&option.name);
    }
    for (unit, count) in probes(&mut script).filter_map(period) {
        let Some(Ok(option)) = read(count) else { continue };
        if let Some(known) = found.get_mut(&option.name) {
            (known.range.unit, known.range.is_period) = (durations::unit(unit), true);
        }
    }
    let mut found: Vec<ScriptOption> = found.into_values().collect();
    found.sort_by_key(|option| option.span.start);
    found
}

/// The arguments of a call that are numbers of rows or keys.
fn counted(e: &Expr) -> &[Expr] {
    match &e.kind {
        ExprKind::Call { name, args } if name.node == "rows" => args,
        ExprKind::Call { name, args } if name.node == "print" => args.get(1..).unwrap_or_default(),
        _ => &[],
    }
}

/// The alternative to an option of other tools that ends a trace after a time.
pub fn instead_of_limit(name: &str) -> Option<&'static str> {
    const LIMITS: [&str; 5] = ["duration", "timeout", "seconds", "time", "limit"];
    let instead = "Ctrl-C ends the trace; `timeout -s INT 10 cudatrace …` does that after 10 seconds";
    LIMITS.contains(&name).then_some(instead)
}

/// The alternative to bpftrace's `--aot`.
pub const INSTEAD_OF_AOT: &str = "`--emit FILE` writes the BPF object, which is not a program of its own";

/// The message for an option that no script has, if there is one. `others` are the options that are not of scripts.
pub fn unknown<'n>(
    given: &[OptionValue],
    known: &'n [ScriptOption],
    others: impl Iterator<Item = &'n str>,
    scripts: usize,
) -> Option<String> {
    let wrong = given.iter().find(|given| known.iter().all(|option| option.name != given.name))?;
    let near = similar(&wrong.name, known.iter().map(|option| option.name.as_str()).chain(others));
    let near: Vec<String> = near.iter().map(|name| format!("--{name}")).collect();
    let (whose, have) =
        if scripts == 1 { ("the script has", "it has") } else { ("the scripts have", "they have") };
    let limit = instead_of_limit(&wrong.name).map(str::to_owned);
    let help = match limit.or_else(|| did_you_mean(&near).pop()) {
        _ if wrong.name == "json" => "`-f json` prints JSON".into(),
        _ if wrong.name == "aot" => INSTEAD_OF_AOT.into(),
        Some(help) => help,
        None if known.is_empty() => format!("{have} none"),
        None => {
            let mut forms: Vec<String> = known.iter().map(|option| format!("`{}`", option.form())).collect();
            let mut seen = HashSet::new();
            forms.retain(|form| seen.insert(form.clone()));
            format!("{have} {}", forms.join(", "))
        }
    };
    Some(format!("{whose} no option `--{}`: {help}", wrong.name))
}

/// The message for an option with an invalid value, if there is one.
pub fn invalid(given: &[OptionValue], known: &[ScriptOption]) -> Option<String> {
    let wrong = given.iter().find_map(|given| {
        let option = known.iter().find(|option| option.name == given.name)?;
        taken(option, given.value.as_deref()).err()
    })?;
    Some(format!("{}: {}", wrong.message, wrong.help))
}

/// The attach points of all clauses.
fn probes(script: &mut Script) -> impl Iterator<Item = &mut ProbeSpec> {
    let clauses = script.items.iter_mut().filter_map(|item| match item {
        Item::Clause(clause) => Some(clause),
        _ => None,
    });
    clauses.flat_map(|clause| &mut clause.probes)
}

/// Unit and count of `interval:s:getopt("interval", 0)`.
fn period(probe: &mut ProbeSpec) -> Option<(&mut String, &mut Expr)> {
    match &mut probe.parts[..] {
        [WithSpan { node: SpecPart::Text(unit), .. }, WithSpan { node: SpecPart::Option(count), .. }] => {
            durations::unit(unit).is_some().then_some((unit, count))
        }
        _ => None,
    }
}

/// Converts periods that are not a multiple of the probe's unit to nanoseconds: `interval:s:` with `--interval=500ms`.
fn expand_periods(script: &mut Script, given: &[OptionValue]) {
    for (unit, count) in probes(script).filter_map(period) {
        let Some(Ok(option)) = read(count) else { continue };
        let value = given
            .iter()
            .rev()
            .find(|given| given.name == option.name)
            .and_then(|given| given.value.as_deref());
        let Some(unit_ns) = durations::unit(unit) else { continue };
        let ns = value.and_then(|text| durations::parse(text, unit_ns));
        if let Some(value) = ns.filter(|ns| ns % unit_ns != 0) {
            (*unit, count.kind) = ("ns".into(), ExprKind::Int { value, unsigned: false });
        }
    }
}

/// Replaces each `getopt` by its value.
pub fn expand(script: &mut Script, given: &[OptionValue], diags: &mut Diagnostics) {
    let ranges: FxHashMap<String, Range> = match given.is_empty() {
        true => FxHashMap::default(),
        false => known(script).into_iter().map(|option| (option.name, option.range)).collect(),
    };
    expand_periods(script, given);
    let (mut seen, mut texts) = (FxHashMap::default(), Vec::new());
    visit::script(
        script,
        &mut visit::Exprs(|e: &mut Expr| {
            let Some(read) = read(e) else { return };
            let value = read.and_then(|mut option| {
                option.range = ranges.get(&option.name).copied().unwrap_or_default();
                value(option, given, &mut seen)
            });
            match value {
                Ok(kind) => {
                    texts.extend(matches!(kind, ExprKind::Str(_)).then_some(e.span));
                    e.kind = kind;
                }
                Err(OptionError { span, message, help }) => {
                    diags.error("E0031", span, message).help(help);
                    e.kind = ExprKind::Int { value: 0, unsigned: false };
                }
            }
        }),
    );
    script.given = texts;
    for item in &mut script.items {
        if let Item::Clause(clause) = item {
            clause.probes.retain_mut(|probe| probe.parts.iter_mut().all(is_enabled));
        }
    }
}

/// Replaces an option by its value as a part of a probe; false for the value 0.
fn is_enabled(part: &mut WithSpan<SpecPart>) -> bool {
    let SpecPart::Option(value) = &part.node else { return true };
    let text = match &value.kind {
        ExprKind::Int { value: 0, .. } | ExprKind::Bool(false) => return false,
        ExprKind::Str(text) => String::from_utf8_lossy(text).into_owned(),
        _ => print_expr(value),
    };
    part.node = SpecPart::Text(text);
    true
}

struct OptionError {
    span: Span,
    message: String,
    help: String,
}

fn wrong(span: Span, message: impl Into<String>, help: impl Into<String>) -> OptionError {
    OptionError { span, message: message.into(), help: help.into() }
}

/// The option of a `getopt`; `None` for other expressions.
fn read(e: &Expr) -> Option<Result<ScriptOption, OptionError>> {
    let ExprKind::Call { name, args } = &e.kind else { return None };
    (name.node == "getopt").then(|| option(args, e.span))
}

fn option(args: &[Expr], span: Span) -> Result<ScriptOption, OptionError> {
    const FORM: &str =
        "write `getopt(\"name\")`, `getopt(\"name\", default)` or `getopt(\"name\", default, \"help\")`";
    let text = |e: &Expr, what: &str| match &e.kind {
        ExprKind::Str(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(wrong(e.span, format!("{what} of an option must be a string in quotes"), FORM)),
    };
    let (name, rest) = match args {
        [name, rest @ ..] if rest.len() <= 2 => (name, rest),
        _ => {
            return Err(wrong(span, format!("`getopt` takes 1 to 3 arguments, found {}", args.len()), FORM));
        }
    };
    let spelled = text(name, "the name")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if spelled.is_empty() || spelled.starts_with('-') || !spelled.chars().all(plain) {
        let help = "use letters, digits, `-` and `_`: `getopt(\"top\", 10)` is `--top=10`";
        return Err(wrong(name.span, format!("`{spelled}` is not a valid name of an option"), help));
    }
    let default = rest.first().cloned();
    if let Some(default) = default.as_ref().filter(|default| !is_literal(default)) {
        let help = "write a number, a string, `true` or `false`";
        return Err(wrong(default.span, "the default of an option must be a literal", help));
    }
    let help = rest.get(1).map(|help| text(help, "the help")).transpose()?;
    Ok(ScriptOption { name: spelled, default, help, span, range: Range::default() })
}

fn is_literal(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int { .. } | ExprKind::Str(_) | ExprKind::Bool(_) => true,
        ExprKind::Unary { op: UnaryOp::Neg, expr } => matches!(expr.kind, ExprKind::Int { .. }),
        _ => false,
    }
}

/// The value of an option in this run. The last occurrence on the command line has priority.
fn value(
    option: ScriptOption,
    given: &[OptionValue],
    seen: &mut FxHashMap<String, ScriptOption>,
) -> Result<ExprKind, OptionError> {
    let literal = |known: &ScriptOption| known.default.as_ref().map(print_expr);
    if let Some(other) = seen.get(&option.name).filter(|other| literal(other) != literal(&option)) {
        let other = literal(other).map_or("none".to_string(), |default| format!("`{default}`"));
        let message = format!("option `{}` has two defaults: here, and {other} before", option.name);
        return Err(wrong(
            option.span,
            message,
            "give it the same default everywhere, or store it in a variable",
        ));
    }
    let found = given.iter().rev().find(|given| given.name == option.name);
    let kind = match found {
        Some(given) => taken(&option, given.value.as_deref()),
        None => Ok(option.default.clone().map_or(ExprKind::Bool(false), |default| default.kind)),
    };
    seen.insert(option.name.clone(), option);
    kind
}

/// The value on the command line, in the type of the default.
fn taken(option: &ScriptOption, given: Option<&str>) -> Result<ExprKind, OptionError> {
    let refuse = |expected: &str| {
        let got =
            given.map_or_else(|| format!("--{}", option.name), |text| format!("--{}={text}", option.name));
        wrong(option.span, format!("`{got}`: expected {expected}"), format!("write `{}`", option.form()))
    };
    match option.default.as_ref().map(|default| &default.kind) {
        None | Some(ExprKind::Bool(_)) => match given {
            None | Some("true" | "True" | "1") => Ok(ExprKind::Bool(true)),
            Some("false" | "False" | "0") => Ok(ExprKind::Bool(false)),
            Some(_) => Err(refuse("true or false")),
        },
        Some(ExprKind::Str(_)) => {
            let text = given.ok_or_else(|| refuse("a text"))?;
            Ok(ExprKind::Str(text.as_bytes().to_vec()))
        }
        Some(_) => number(option, given).map_err(|expected| refuse(&expected)),
    }
}

/// The value of a numeric option, in the unit of a duration. The error is what was expected.
fn number(option: &ScriptOption, given: Option<&str>) -> Result<ExprKind, String> {
    let Range { unit, is_period, is_unsigned, is_count } = option.range;
    let Some(unit_ns) = unit else {
        let number = given.and_then(|text| word_as_number(text, option.span));
        let is_long =
            given.is_some_and(|text| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()));
        return match number.ok_or(if is_long { "a number of at most 64 bits" } else { "a number" })? {
            ExprKind::Int { value, .. } if is_count && value > u64::from(u32::MAX) => {
                Err(format!("a number up to {}", u32::MAX))
            }
            ExprKind::Unary { .. } if is_unsigned || is_count => Err("a number of at least 0".into()),
            number => Ok(number),
        };
    };
    let name = durations::name(unit_ns);
    let ns = given.and_then(|text| durations::parse(text, unit_ns));
    let ns = ns.ok_or_else(|| format!("a time, such as `5` ({name}), `500ms` or `2m`"))?;
    if ns % unit_ns != 0 && !is_period {
        return Err(format!("a whole number of {name}"));
    }
    Ok(ExprKind::Int { value: ns.div_ceil(unit_ns), unsigned: false })
}
