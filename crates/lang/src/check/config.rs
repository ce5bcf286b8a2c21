//! Settings: one table of keys, shared by the `config = { ... }` block and the environment.

use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::diagnostics::wording::listed;
use crate::hir::{Config, MissingProbes, StackMode};
use crate::limits;
use crate::syntax::ast::{ConfigEntry, Expr, ExprKind};

/// A value as written.
enum Value<'a> {
    Number(i64),
    Word(&'a str),
}

/// Sets a value; `Err` describes the expected value.
type Set = fn(&mut Config, &Value) -> Result<(), String>;

/// Returns the current value of a setting.
type Get = fn(&Config) -> Setting;

/// The value of a setting as a script reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `max_strlen`
    Number(u32),
    /// `print_maps_on_exit`
    Switch(bool),
    /// `stack_mode`
    Word(String),
}

use Setting::{Number, Switch, Word};

/// Keys with their setter and getter.
static KEYS: &[(&str, Set, Get)] = &[
    (
        "max_map_keys",
        |c, v| number(v, 1, limits::MAP_ENTRIES).map(|n| c.max_map_keys = n),
        |c| Number(c.max_map_keys),
    ),
    (
        "max_strlen",
        |c, v| number(v, 1, limits::STRING_BYTES).map(|n| c.max_strlen = n),
        |c| Number(c.max_strlen),
    ),
    (
        "str_trunc_trailer",
        |c, v| word(v).map(|w| c.str_trunc_trailer = w.into()),
        |c| Word(c.str_trunc_trailer.clone()),
    ),
    ("max_cat_bytes", |c, v| number(v, 1, 1 << 30).map(|n| c.max_cat_bytes = n), |c| Number(c.max_cat_bytes)),
    (
        "print_maps_on_exit",
        |c, v| switch(v).map(|on| c.print_maps_on_exit = on),
        |c| Switch(c.print_maps_on_exit),
    ),
    (
        "stack_mode",
        |c, v| named(v, STACK_MODES).map(|mode| c.stack_mode = mode),
        |c| Word(name_of(c.stack_mode, STACK_MODES)),
    ),
    (
        "max_loop_iterations",
        |c, v| number(v, 1, 1 << 23).map(|n| c.max_loop_iterations = n),
        |c| Number(c.max_loop_iterations),
    ),
    (
        "missing_probes",
        |c, v| named(v, MISSING_PROBES).map(|missing| c.missing_probes = missing),
        |c| Word(name_of(c.missing_probes, MISSING_PROBES)),
    ),
    (
        "kernel_events",
        |c, v| named(v, KERNEL_EVENTS).map(|all| c.events_of_all = all),
        |c| Word(name_of(c.events_of_all, KERNEL_EVENTS)),
    ),
    ("in_process", |c, v| switch(v).map(|on| c.in_process = on), |c| Switch(c.in_process)),
    (
        "max_probes",
        |c, v| number(v, 1, 1 << 30).map(|n| c.max_probes = Some(n)),
        |c| Number(c.max_probes.unwrap_or(u32::MAX)),
    ),
    ("cpp_demangle", |c, v| switch(v).map(|on| c.demangle = on), |c| Switch(c.demangle)),
    ("show_debug_info", |c, v| switch(v).map(|on| c.source_lines = on), |c| Switch(c.source_lines)),
    ("license", |c, v| named(v, LICENSES).map(|name| c.license = name), |c| Word(c.license.to_owned())),
    (
        "perf_rb_pages",
        |c, v| number(v, 1, 1 << 18).map(|pages| c.ring_bytes = pages.next_power_of_two() * PAGE_BYTES),
        |c| Number(c.ring_bytes / PAGE_BYTES),
    ),
];

/// Pages of `perf_rb_pages`.
const PAGE_BYTES: u32 = 4096;

/// Old names and current names. A value of a `no_` name is inverted.
static RENAMED: &[(&str, &str)] = &[
    ("strlen", "max_strlen"),
    ("map_keys_max", "max_map_keys"),
    ("cat_bytes_max", "max_cat_bytes"),
    ("no_cpp_demangle", "cpp_demangle"),
];

/// Keys of other tracers that have no effect here, with the reason.
static WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("cache_user_symbols", SYMBOLS),
    ("debug_output", ""),
    ("lazy_symbolication", SYMBOLS),
    ("log_size", "the end of the verifier log is always kept"),
    ("max_ast_nodes", ""),
    ("max_bpf_progs", "functions with the same argument layout share one program"),
    ("max_type_res_iterations", ""),
    ("on_stack_limit", "values that do not fit the stack are moved elsewhere automatically"),
    ("probe_inline", ""),
    ("symbol_source", SYMBOLS),
    ("use_blazesym", SYMBOLS),
];
const SYMBOLS: &str = "each symbol is resolved once, when it is printed, also for processes that have exited";

fn without_effect(key: &str) -> Option<&'static str> {
    let known = WITHOUT_EFFECT.iter().find(|(name, _)| *name == key).map(|(_, why)| *why);
    known.or(key.starts_with("unstable_").then_some(""))
}

/// Names of all settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|(name, ..)| *name)
}

/// The value of a setting, by its current or an old name.
pub fn setting(key: &str, config: &Config) -> Option<Setting> {
    let key = current_name(key);
    KEYS.iter().find(|(name, ..)| *name == key).map(|(.., get)| get(config))
}

/// An error in a variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadVariable {
    /// Its value is not valid.
    Value(String),
    /// Its name is similar to that of a setting.
    Name(String),
}

/// Applies `CUDATRACE_MAX_STRLEN=64`, or with bpftrace's prefix. Names that are not similar to a setting are ignored.
///
/// # Errors
/// The setting does not take the value, or the name is misspelled.
pub fn variable(name: &str, value: &str, config: &mut Config) -> Result<(), BadVariable> {
    let Some(key) = name.strip_prefix("CUDATRACE_").or(name.strip_prefix("BPFTRACE_")) else { return Ok(()) };
    let key = key.to_lowercase();
    let (written, key) = (key.as_str(), current_name(&key));
    if let Some((_, set, _)) = KEYS.iter().find(|(known, ..)| *known == key) {
        let value = convert_renamed(written, value.parse().map_or(Value::Word(value), Value::Number));
        return set(config, &value).map_err(|takes| BadVariable::Value(format!("`{name}` takes {takes}")));
    }
    let near = similar(key, names());
    match near.first().filter(|_| without_effect(key).is_none()) {
        Some(near) => {
            let near = format!("{}{}", &name[..name.len() - key.len()], near.to_uppercase());
            Err(BadVariable::Name(format!("`{name}` is not a setting: did you mean `{near}`?")))
        }
        None => Ok(()),
    }
}

/// Applies one entry.
pub fn apply(entry: &ConfigEntry, config: &mut Config, diags: &mut Diagnostics) {
    let lower = entry.key.node.to_lowercase();
    let written = lower.strip_prefix("bpftrace_").or(lower.strip_prefix("cudatrace_")).unwrap_or(&lower);
    let key = current_name(written);
    if key != written {
        let opposite = if written.starts_with("no_") { " with the opposite value" } else { "" };
        let message = format!("`{written}` has been renamed: write `{key}`{opposite}");
        diags.warning("W0153", entry.key.span, message);
    }
    if let Some(why) = without_effect(key) {
        let warning = diags.warning("W0153", entry.key.span, format!("`{key}` has no effect here"));
        warning.notes.extend((!why.is_empty()).then(|| why.to_owned()));
        return;
    }
    let Some((_, set, _)) = KEYS.iter().find(|(name, ..)| *name == key) else {
        let near = similar(key, names());
        let error = diags.error("E0108", entry.key.span, format!("unknown setting `{}`", entry.key.node));
        error.help.extend(did_you_mean(&near));
        if near.is_empty() {
            let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
            error.help(format!("settings are {}", all.join(", ")));
        }
        return;
    };
    let value = value(&entry.value).map(|value| convert_renamed(written, value));
    let result = value.ok_or_else(|| "a number or a word".to_string()).and_then(|v| set(config, &v));
    if let Err(expected) = result {
        diags.error("E0109", entry.value.span, format!("`{key}` takes {expected}"));
    }
}

/// The current name of a setting.
fn current_name(key: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
}

/// The value of the current setting for a value of the old one.
fn convert_renamed<'a>(written: &str, value: Value<'a>) -> Value<'a> {
    match switch(&value) {
        Ok(on) if written.starts_with("no_") => Value::Number(i64::from(!on)),
        _ => value,
    }
}

fn value(expr: &Expr) -> Option<Value<'_>> {
    Some(match &expr.kind {
        ExprKind::Int { value, unsigned: false } => Value::Number(*value as i64),
        ExprKind::Bool(on) => Value::Number(i64::from(*on)),
        ExprKind::Str(bytes) => Value::Word(std::str::from_utf8(bytes).ok()?),
        ExprKind::Ident(word) => Value::Word(word),
        _ => return None,
    })
}

fn number(value: &Value, least: i64, most: i64) -> Result<u32, String> {
    match *value {
        Value::Number(n) if (least..=most).contains(&n) => Ok(n as u32),
        _ => Err(format!("a number from {least} to {most}")),
    }
}

fn word<'a>(value: &Value<'a>) -> Result<&'a str, String> {
    match value {
        Value::Word(word) => Ok(word),
        Value::Number(_) => Err("a string".into()),
    }
}

fn switch(value: &Value) -> Result<bool, String> {
    match value {
        Value::Number(0) | Value::Word("false") => Ok(false),
        Value::Number(1) | Value::Word("true") => Ok(true),
        _ => Err("`true` or `false`".into()),
    }
}

/// How stacks print, by name.
pub static STACK_MODES: &[(&str, StackMode)] = &[
    ("bpftrace", StackMode::Bpftrace),
    ("perf", StackMode::Perf),
    ("raw", StackMode::Raw),
    ("folded", StackMode::Folded),
    ("build_id", StackMode::BuildId),
    ("native", StackMode::Native),
    ("python", StackMode::Python),
    ("site", StackMode::Site),
];

/// Built-ins that are one frame of a stack: its mode, and that of the frame that is of no library, if it has one.
pub static ONE_FRAME: &[(&str, StackMode, Option<StackMode>)] = &[
    ("pyline", StackMode::Line, Some(StackMode::OwnLine)),
    ("pyfunc", StackMode::Function, Some(StackMode::OwnFunction)),
    ("torch_module", StackMode::Module, None),
];

/// Stacks that only programs have, with why the kernel has none, and the way out.
pub static ONLY_OF_PROGRAMS: &[(StackMode, &str, &str)] = &[
    (StackMode::BuildId, "kernel code has no file with a build id", "use `kstack(raw)`"),
    (StackMode::Python, "the kernel has no frames of Python", "use `ustack(python)`"),
    (StackMode::Site, "the kernel has no frames of Python", "use `ustack(site)`"),
];

/// The modes of stacks, for a message.
pub fn stack_modes() -> String {
    let others = STACK_MODES.len() - 1;
    let names = STACK_MODES.iter().map(|(name, _)| *name);
    format!("modes are {} and `{}`", listed(names.take(others), others), STACK_MODES[others].0)
}

/// The mode of a stack by its name.
pub fn stack_mode(name: &str) -> Option<StackMode> {
    STACK_MODES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
}

/// Licenses that the kernel takes as compatible with its own, as the helpers of tracing programs require.
static LICENSES: &[(&str, &str)] = &[
    ("GPL", "GPL"),
    ("GPL v2", "GPL v2"),
    ("GPL and additional rights", "GPL and additional rights"),
    ("Dual BSD/GPL", "Dual BSD/GPL"),
    ("Dual MIT/GPL", "Dual MIT/GPL"),
    ("Dual MPL/GPL", "Dual MPL/GPL"),
];

/// Behaviours for missing attach points, by name.
static MISSING_PROBES: &[(&str, MissingProbes)] =
    &[("error", MissingProbes::Error), ("warn", MissingProbes::Warn), ("ignore", MissingProbes::Ignore)];

/// Whether events of all processes count, by name.
static KERNEL_EVENTS: &[(&str, bool)] = &[("traced", false), ("all", true)];

/// The variant that a word names; `Err` lists the words.
fn named<T: Copy>(value: &Value, names: &[(&str, T)]) -> Result<T, String> {
    let found = word(value).ok().and_then(|word| names.iter().find(|(known, _)| *known == word));
    found.map(|(_, variant)| *variant).ok_or_else(|| {
        let quoted: Vec<String> = names.iter().map(|(name, _)| format!("`{name}`")).collect();
        let (last, others) = quoted.split_last().expect("a setting has values");
        format!("{} or {last}", others.join(", "))
    })
}

fn name_of<T: PartialEq>(variant: T, names: &[(&str, T)]) -> String {
    names.iter().find(|(_, known)| *known == variant).map_or("", |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> (Result<(), BadVariable>, Config) {
        let mut config = Config::default();
        (variable(name, value, &mut config), config)
    }

    #[test]
    fn the_environment_sets_what_the_block_sets() {
        assert_eq!(set("CUDATRACE_MAX_STRLEN", "64").1.max_strlen, 64);
        assert_eq!(set("BPFTRACE_STRLEN", "64").1.max_strlen, 64);
        assert!(!set("BPFTRACE_PRINT_MAPS_ON_EXIT", "0").1.print_maps_on_exit);
        assert!(!set("BPFTRACE_NO_CPP_DEMANGLE", "1").1.demangle);
        assert_eq!(set("CUDATRACE_STACK_MODE", "perf").1.stack_mode, StackMode::Perf);
        assert_eq!(set("MAX_STRLEN", "64"), (Ok(()), Config::default()));
    }

    #[test]
    fn wrong_variables_are_reported_and_foreign_ones_ignored() {
        let message = |name, value| match set(name, value).0 {
            Err(BadVariable::Name(message) | BadVariable::Value(message)) => message,
            Ok(()) => String::new(),
        };
        assert_eq!(
            message("CUDATRACE_MAX_STRLN", "64"),
            "`CUDATRACE_MAX_STRLN` is not a setting: did you mean `CUDATRACE_MAX_STRLEN`?"
        );
        assert_eq!(
            message("CUDATRACE_MAX_MAP_KEYS", "none"),
            "`CUDATRACE_MAX_MAP_KEYS` takes a number from 1 to 67108864"
        );
        assert_eq!(message("BPFTRACE_VMLINUX", "/boot/vmlinux"), "");
    }
}
