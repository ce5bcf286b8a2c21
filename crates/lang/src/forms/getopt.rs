//! `getopt("name", default, "help")`: options of the script itself, given behind it on the command line.
//!
//! ```text
//! interval:s:1 { print(@, getopt("top", 10, "rows to show")) }
//!
//! cudatrace calls.ct --top=20      20 rows
//! cudatrace calls.ct --help        lists `--top`
//! ```
//!
//! The default says of what type the option is; without one it is a switch.
//!
//! As a part of a probe it is that part's text, and with 0 the probe is left out:
//!
//! ```text
//! interval:s:getopt("interval", 0), END { print(@) }    END { print(@) }, or with `--interval=5` also interval:s:5
//! ```

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use crate::ast::{Expr, ExprKind, Item, Script, SpecPart, UnaryOp};
use crate::diagnostic::Diagnostics;
use crate::forms::{macros, walk};
use crate::parse::word_as_number;
use crate::printer::print_expr;
use crate::resolve::probes::did_you_mean;
use crate::similar::similar;
use crate::span::{Span, Spanned};

/// An option as the command line gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// `top`
    pub name: String,
    /// `20` of `--top=20`; none for `--flag`.
    pub value: Option<String>,
}

/// An option that a script knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// `top`
    pub name: String,
    /// A literal; none for a switch.
    pub default: Option<Expr>,
    /// For `--help`.
    pub help: Option<String>,
    /// Where the script asks for it.
    pub span: Span,
}

impl Known {
    /// How it is written: `--top=N`, `--name=TEXT`, `--flag`.
    pub fn form(&self) -> String {
        let value = match self.default.as_ref().map(|default| &default.kind) {
            None | Some(ExprKind::Bool(false)) => "",
            Some(ExprKind::Bool(true)) => "=false",
            Some(ExprKind::Str(_)) => "=TEXT",
            Some(_) => "=N",
        };
        format!("--{}{value}", self.name)
    }

    /// The default as text, if there is one that says anything.
    pub fn default_text(&self) -> Option<String> {
        let says = |e: &&Expr| !matches!(&e.kind, ExprKind::Bool(_)) && e.kind != ExprKind::Str(Vec::new());
        self.default.as_ref().filter(says).map(print_expr)
    }
}

/// The options of a script, those in macros that it uses too, in the order of their first use.
pub fn known(script: &Script) -> Vec<Known> {
    let mut script = script.clone();
    // What is wrong with its macros is said when it is compiled.
    macros::expand(&mut script, &mut Diagnostics::default());
    let mut found: FxHashMap<String, Known> = FxHashMap::default();
    let see = |e: &mut Expr| {
        let Some(Ok(mut option)) = read(e) else { return };
        let help = option.help.take();
        let known = found.entry(option.name.clone()).or_insert(option);
        known.help = known.help.take().or(help);
    };
    walk::script(&mut script, &mut walk::Exprs(see));
    let mut found: Vec<Known> = found.into_values().collect();
    found.sort_by_key(|option| option.span.start);
    found
}

/// What is wrong with an option that the script does not know, or none of several.
pub fn unknown(given: &[Given], known: &[Known], scripts: usize) -> Option<String> {
    let wrong = given.iter().find(|given| known.iter().all(|option| option.name != given.name))?;
    let near = similar(&wrong.name, known.iter().map(|option| option.name.as_str()));
    let near: Vec<String> = near.iter().map(|name| format!("--{name}")).collect();
    let (whose, have) =
        if scripts == 1 { ("the script has", "it has") } else { ("the scripts have", "they have") };
    let help = match did_you_mean(&near).pop() {
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

/// Replaces each `getopt` by its value.
pub fn expand(script: &mut Script, given: &[Given], diags: &mut Diagnostics) {
    let (mut seen, mut texts) = (FxHashMap::default(), Vec::new());
    walk::script(
        script,
        &mut walk::Exprs(|e: &mut Expr| {
            let Some(read) = read(e) else { return };
            let value = read.and_then(|option| value(option, given, &mut seen));
            match value {
                Ok(kind) => {
                    texts.extend(matches!(kind, ExprKind::Str(_)).then_some(e.span));
                    e.kind = kind;
                }
                Err(Wrong { span, message, help }) => {
                    diags.error("E0031", span, message).help(help);
                    e.kind = ExprKind::Int { value: 0, unsigned: false };
                }
            }
        }),
    );
    script.given = texts;
    for item in &mut script.items {
        if let Item::Clause(clause) = item {
            clause.probes.retain_mut(|probe| probe.parts.iter_mut().all(is_wanted));
        }
    }
}

/// Puts the option's value in as the text of a probe's part; not if it is 0.
fn is_wanted(part: &mut Spanned<SpecPart>) -> bool {
    let SpecPart::Option(value) = &part.node else { return true };
    let text = match &value.kind {
        ExprKind::Int { value: 0, .. } | ExprKind::Bool(false) => return false,
        ExprKind::Str(text) => String::from_utf8_lossy(text).into_owned(),
        _ => print_expr(value),
    };
    part.node = SpecPart::Text(text);
    true
}

struct Wrong {
    span: Span,
    message: String,
    help: String,
}

fn wrong(span: Span, message: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong { span, message: message.into(), help: help.into() }
}

/// The option that an expression asks for; `None` if it is no `getopt`.
fn read(e: &Expr) -> Option<Result<Known, Wrong>> {
    let ExprKind::Call { name, args } = &e.kind else { return None };
    (name.node == "getopt").then(|| option(args, e.span))
}

fn option(args: &[Expr], span: Span) -> Result<Known, Wrong> {
    const FORM: &str =
        "write `getopt(\"name\")`, `getopt(\"name\", default)` or `getopt(\"name\", default, \"help\")`";
    let text = |e: &Expr, what: &str| match &e.kind {
        ExprKind::Str(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(wrong(e.span, format!("{what} of an option must be a string in quotes"), FORM)),
    };
    let (name, rest) = match args {
        [name, rest @ ..] if rest.len() <= 2 => (name, rest),
        _ => {
            return Err(wrong(
                span,
                format!("`getopt` takes from 1 to 3 arguments, found {}", args.len()),
                FORM,
            ));
        }
    };
    let spelled = text(name, "the name")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if spelled.is_empty() || spelled.starts_with('-') || !spelled.chars().all(plain) {
        let help = "use letters, digits, `-` and `_`: `getopt(\"top\", 10)` is `--top=10`";
        return Err(wrong(name.span, format!("`{spelled}` is no name of an option"), help));
    }
    let default = rest.first().cloned();
    if let Some(default) = default.as_ref().filter(|default| !is_literal(default)) {
        let help = "write a number, a string, `true` or `false`";
        return Err(wrong(default.span, "the default of an option must be a literal", help));
    }
    let help = rest.get(1).map(|help| text(help, "the help")).transpose()?;
    Ok(Known { name: spelled, default, help, span })
}

fn is_literal(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int { .. } | ExprKind::Str(_) | ExprKind::Bool(_) => true,
        ExprKind::Unary { op: UnaryOp::Neg, expr } => matches!(expr.kind, ExprKind::Int { .. }),
        _ => false,
    }
}

/// What an option is in this run. The last of several wins, as with other commands.
fn value(option: Known, given: &[Given], seen: &mut FxHashMap<String, Known>) -> Result<ExprKind, Wrong> {
    let literal = |known: &Known| known.default.as_ref().map(print_expr);
    if let Some(other) = seen.get(&option.name).filter(|other| literal(other) != literal(&option)) {
        let said = literal(other).map_or("none".to_string(), |default| format!("`{default}`"));
        let message = format!("option `{}` has two defaults: here, and {said} before", option.name);
        return Err(wrong(
            option.span,
            message,
            "give it the same default everywhere, or keep it in a variable",
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

/// The value that the command line gives, in the type of the default.
fn taken(option: &Known, given: Option<&str>) -> Result<ExprKind, Wrong> {
    let refuse = |expected: &str| {
        let got =
            given.map_or_else(|| format!("--{}", option.name), |text| format!("--{}={text}", option.name));
        wrong(option.span, format!("`{got}`: expected {expected}"), format!("write `{}`", option.form()))
    };
    match option.default.as_ref().map(|default| &default.kind) {
        None | Some(ExprKind::Bool(_)) => match given {
            None | Some("true" | "1") => Ok(ExprKind::Bool(true)),
            Some("false" | "0") => Ok(ExprKind::Bool(false)),
            Some(_) => Err(refuse("true or false")),
        },
        Some(ExprKind::Str(_)) => {
            let text = given.ok_or_else(|| refuse("a text"))?;
            Ok(ExprKind::Str(text.as_bytes().to_vec()))
        }
        Some(_) => given.and_then(|text| word_as_number(text, option.span)).ok_or_else(|| refuse("a number")),
    }
}
