//! Completion at the prompt. In: the text before the cursor. Out: the start of the word, and what it can become: commands, probes,
//! functions of libraries, variables, constants, the session's maps.

use super::commands::{self, ArgumentKind};
use crate::bundled::SCRIPTS;
use cuda::Library;
use lang::builtins::{posix, table};
use lang::catalog::Catalog;
use lang::resolve::completion;
use lang::resolve::providers::{self, PROVIDERS, Provider, ProviderMatch};
use lang::syntax::parse::tokens;
use lang::syntax::parse::tokens::{Kind, Token};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Attach points that consist of one word.
pub const HOOKS: [&str; 2] = ["BEGIN", "END"];
/// Keywords of statements.
const KEYWORDS: [&str; 12] = [
    "if", "else", "while", "for", "unroll", "break", "continue", "return", "let", "sizeof", "typeinfo",
    "comptime",
];

/// Sources of candidates.
#[derive(Clone)]
pub struct Facts {
    /// Libraries and their functions.
    pub catalog: Arc<dyn Catalog + Send + Sync>,
    /// Names of the session's maps, without the sigil.
    pub maps: Arc<Mutex<Vec<String>>>,
}

/// Whether a file name is expected at the cursor.
pub fn wants_file(before: &str) -> bool {
    command_argument(before).is_some_and(|(takes, _)| takes == ArgumentKind::File)
}

/// The start of the word at the end of `before`, and its candidates.
pub fn complete(before: &str, facts: &Facts) -> (usize, Vec<String>) {
    if let Some((takes, word)) = command_argument(before) {
        return candidates(before, word, argument(takes, word, facts));
    }
    let start = before.len() - before.trim_start().len();
    if before[start..].starts_with(':') {
        let names = commands::COMMANDS.iter().map(|command| format!(":{} ", command.name));
        return candidates(before, &before[start..], names);
    }
    let place = CursorContext::of(before);
    match place {
        CursorContext::Nothing => (before.len(), Vec::new()),
        CursorContext::Probe(word) => probe(before, word, facts),
        CursorContext::Body { probe, word } => body(before, probe, word, facts),
    }
}

/// Candidates that begin with the word at the end of `before`.
fn candidates(
    before: &str,
    word: &str,
    all: impl IntoIterator<Item = impl Into<String>>,
) -> (usize, Vec<String>) {
    let fitting: BTreeSet<String> =
        all.into_iter().map(Into::into).filter(|text: &String| text.starts_with(word)).collect();
    (before.len() - word.len(), fitting.into_iter().collect())
}

/// The kind of the argument of the command in `before`, and its last word so far.
fn command_argument(before: &str) -> Option<(ArgumentKind, &str)> {
    let (name, rest) = commands::split(before)?;
    let is_argument = before.trim_start().len() > before.trim_start().find(name)? + name.len();
    let command = commands::find(name)?;
    is_argument.then(|| (command.takes, rest.rsplit(' ').next().unwrap_or("")))
}

fn argument(takes: ArgumentKind, word: &str, facts: &Facts) -> Vec<String> {
    let catalog = facts.catalog.as_ref();
    match takes {
        ArgumentKind::Nothing | ArgumentKind::Text | ArgumentKind::File => Vec::new(),
        ArgumentKind::Map => maps("", facts),
        ArgumentKind::Topic => topics(word, facts),
        ArgumentKind::Function => match word.split_once(':') {
            None => [completion::targets(catalog), completion::functions(catalog, "libcuda", word)].concat(),
            Some((target, start)) => {
                let functions = completion::functions(catalog, target, start).into_iter();
                functions.map(|name| format!("{target}:{name}")).collect()
            }
        },
    }
}

fn topics(start: &str, facts: &Facts) -> Vec<String> {
    let commands = commands::COMMANDS.iter().map(|command| format!(":{}", command.name));
    let builtins = table::all().map(|builtin| builtin.name.to_owned());
    let providers = PROVIDERS.iter().map(|provider| provider.names[0].to_owned());
    let known = Library::all().flat_map(|library| cuda::signatures(library, 0));
    let calls = known.map(|signature| signature.name.to_owned());
    let found = ["libcuda", "libcudart"]
        .into_iter()
        .flat_map(|library| completion::functions(facts.catalog.as_ref(), library, start));
    let scripts = SCRIPTS.iter().map(|script| script.name.to_owned());
    let commands = commands.chain(scripts);
    commands.chain(builtins).chain(providers).chain(calls).chain(found).collect()
}

/// Context of the cursor in a script.
#[derive(Debug, PartialEq, Eq)]
enum CursorContext<'a> {
    /// In a string or a comment.
    Nothing,
    /// In an attach point, with its text so far.
    Probe(&'a str),
    /// In a predicate or a body, with the clause's attach points and the current word.
    Body { probe: &'a str, word: &'a str },
}

impl CursorContext<'_> {
    fn of(before: &str) -> CursorContext<'_> {
        let tokens: Vec<Token> = tokens::tokens(before, 0).collect();
        let text = |token: &Token| &before[token.start..token.end];
        let open = tokens.last().is_some_and(|t| matches!(t.kind, Kind::OpenStr | Kind::OpenComment));
        if open {
            return CursorContext::Nothing;
        }
        let clause = clause_start(before, &tokens);
        let of_clause: Vec<&Token> = tokens.iter().filter(|token| token.start >= clause).collect();
        let inside =
            of_clause.iter().find(|token| token.kind == Kind::Punct && ![",", ":"].contains(&text(token)));
        match inside {
            Some(first) => {
                CursorContext::Body { probe: before[clause..first.start].trim(), word: last_word(before) }
            }
            None => {
                CursorContext::Probe(before[clause..].rsplit([' ', '\t', '\n', ',']).next().unwrap_or(""))
            }
        }
    }
}

/// Position after the last body that is closed.
fn clause_start(before: &str, tokens: &[Token]) -> usize {
    let (mut depth, mut start) = (0usize, 0);
    for token in tokens {
        match &before[token.start..token.end] {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                start = if depth == 0 { token.end } else { start };
            }
            _ => {}
        }
    }
    start
}

/// The word at the end: a name, possibly with `args.` or a sigil.
fn last_word(before: &str) -> &str {
    let is_part = |c: char| c.is_alphanumeric() || ['_', '@', '$', '.'].contains(&c);
    &before[before.trim_end_matches(is_part).len()..]
}

fn probe(before: &str, word: &str, facts: &Facts) -> (usize, Vec<String>) {
    let Some((provider, rest)) = word.split_once(':') else {
        return candidates(before, word, PROVIDERS.iter().map(|row| opening(row.names[0])));
    };
    let parts: Vec<&str> = rest.splitn(2, ':').collect();
    let words = |row: &Provider| (row.properties.words)(facts.catalog.as_ref(), row, &parts);
    let last = parts.last().copied().unwrap_or(rest);
    candidates(before, last, row(provider).map(words).unwrap_or_default())
}

fn row(provider: &str) -> Option<&'static Provider> {
    match providers::find(provider) {
        ProviderMatch::Known(row) => Some(row),
        ProviderMatch::Absent(_) | ProviderMatch::Unknown => None,
    }
}

fn opening(provider: &str) -> String {
    if HOOKS.contains(&provider) { format!("{provider} {{ ") } else { format!("{provider}:") }
}

fn body(before: &str, probe: &str, word: &str, facts: &Facts) -> (usize, Vec<String>) {
    if let Some(start) = word.strip_prefix("args.") {
        return candidates(before, start, arguments(probe, facts));
    }
    if word.starts_with('@') {
        return candidates(before, word, maps(before, facts));
    }
    if word.is_empty() || word.contains('.') {
        return (before.len(), Vec::new());
    }
    let builtins = table::all().filter(|builtin| builtin.name != "argN").map(written);
    let constants =
        cuda::constants().chain(cuda::driver_constants()).map(|constant| constant.name.to_owned());
    let macros = cuda::macro_constants().map(|(name, _)| name.to_owned());
    let macros =
        macros.chain(posix::constant_names().chain(lang::builtins::constants::names()).map(str::to_owned));
    let keywords = KEYWORDS.iter().map(|word| format!("{word} "));
    candidates(before, word, builtins.chain(keywords).chain(constants).chain(macros))
}

/// The name of a built-in, for a function with an opening parenthesis.
fn written(builtin: &table::BuiltinSpec) -> String {
    match builtin.kind {
        table::Kind::Variable => builtin.name.to_owned(),
        _ => format!("{}(", builtin.name),
    }
}

/// Maps of the session and of the text.
fn maps(before: &str, facts: &Facts) -> Vec<String> {
    let known = facts.maps.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.iter().map(|name| format!("@{name}"));
    let typed = tokens::tokens(before, 0).filter(|token| token.end < before.len());
    let typed = typed.map(|token| before[token.start..token.end].to_owned());
    known.chain(typed.filter(|word| word.starts_with('@'))).collect()
}

/// Names of the arguments of the attach points: parameters of functions and operations, fields of tracepoints.
fn arguments(probe: &str, facts: &Facts) -> Vec<String> {
    probe.split(',').flat_map(|spec| arguments_of(spec.trim(), facts)).collect()
}

fn arguments_of(spec: &str, facts: &Facts) -> Vec<String> {
    let mut parts = spec.splitn(3, ':');
    let row = parts.next().and_then(row);
    let parts: Vec<&str> = parts.collect();
    row.map(|row| (row.properties.args)(facts.catalog.as_ref(), row, &parts)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::catalog::{File, FileId, Function, Marker, Place as Site, TargetError};
    use std::sync::LazyLock;

    struct Driver(Vec<Function>);

    impl Catalog for Driver {
        lang::lacks!(later_files, indirect_functions, instructions, code_addresses, code_offsets, variables);
        lang::lacks!(
            debug_information,
            source_lines,
            kernel_types,
            kernel_symbols,
            iterators,
            kernel_fields,
            kernel_functions
        );
        lang::lacks!(cgroups, records, devices, agent);

        fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
            let library = Some((Library::Driver, 0));
            match target {
                "libcuda" => Ok(vec![File { id: FileId(0), path: "/libcuda.so.1".into(), library }]),
                _ => Err(TargetError::NotYet { looked_in: vec![] }),
            }
        }
        fn functions(&self, _: FileId) -> &[Function] {
            &self.0
        }
        fn markers(&self, _: FileId) -> &[Marker] {
            static MARKERS: LazyLock<Vec<Marker>> = LazyLock::new(|| {
                let (provider, name) = ("nv".to_owned(), "launch".to_owned());
                vec![Marker { provider, name, offset: 0, semaphore: 0, args: Vec::new() }]
            });
            &MARKERS
        }
        fn entry_place(&self, _: FileId, offset: u64) -> Site {
            Site { offset, stack_shift: 0 }
        }
        fn return_place(&self, _: FileId, offset: u64) -> Site {
            Site { offset, stack_shift: 0 }
        }
        fn tracepoints(&self) -> Vec<(String, String)> {
            let name = |category: &str, event: &str| (category.to_owned(), event.to_owned());
            vec![name("sched", "sched_switch"), name("sched", "sched_stat_wait"), name("task", "task_rename")]
        }
        fn raw_tracepoints(&self) -> Vec<String> {
            vec!["sched_switch".into(), "task_rename".into()]
        }
        fn known_targets(&self) -> Vec<String> {
            vec!["libcuda".into(), "libcudart".into()]
        }
    }

    fn completed(before: &str) -> Vec<String> {
        let names = ["cuInit", "cuMemAlloc_v2", "cuMemFree_v2"];
        let function =
            |name: &str| Function { names: vec![name.into()], version: None, offset: name.len() as u64 };
        let catalog = Arc::new(Driver(names.map(function).into()));
        let facts = Facts { catalog, maps: Arc::new(Mutex::new(vec!["bytes".into(), String::new()])) };
        let (start, found) = complete(before, &facts);
        found.into_iter().map(|text| before[..start].to_owned() + &text).collect()
    }

    #[test]
    fn attach_points_are_completed_piece_by_piece() {
        assert_eq!(completed("ur"), ["uretprobe:"]);
        assert_eq!(completed("BE"), ["BEGIN { "]);
        assert_eq!(completed("uprobe:li"), ["uprobe:libcuda:"], "libcudart is not there");
        assert_eq!(completed("u:libcuda:cuMemF"), ["u:libcuda:cuMemFree"], "families first");
        assert_eq!(completed("u:libcuda:cuMemFree_"), ["u:libcuda:cuMemFree_v2"]);
        assert_eq!(completed("BEGIN { } interval:m"), ["BEGIN { } interval:ms:"]);
        assert_eq!(completed("uprobe:libcuda:cuInit,uprobe:libc"), ["uprobe:libcuda:cuInit,uprobe:libcuda:"]);
    }

    #[test]
    fn each_kind_of_probe_has_its_own_words() {
        assert_eq!(completed("cuda:mems"), ["cuda:memset"]);
        assert!(
            completed("cuda:launch { @ = sum(args.res").contains(&"cuda:launch { @ = sum(args.result".into())
        );
        assert_eq!(completed("interval:").len(), 5);
        assert_eq!(completed("uprobe:"), ["uprobe:libcuda:"]);
        assert_eq!(completed("uprobe:libcuda:").len(), 3, "families");
        assert_eq!(completed("tracepoint:t"), ["tracepoint:task:"]);
        assert_eq!(completed("rt:s"), ["rt:sched_switch"]);
        assert_eq!(completed("ioctl:nvidia-"), ["ioctl:nvidia-uvm:"]);
        assert_eq!(completed("ioctl:nvidia-uvm:MIGRATE_"), ["ioctl:nvidia-uvm:MIGRATE_RANGE_GROUP"]);
        assert_eq!(completed("ioctl:nvidia:NV_ESC_RM_FR"), ["ioctl:nvidia:NV_ESC_RM_FREE"]);
        assert!(
            completed("ioctl:nvidia:RM_CONTROL { @[args.c")
                .contains(&"ioctl:nvidia:RM_CONTROL { @[args.cmd".into())
        );
        assert_eq!(completed("gpu:memc"), ["gpu:memcpy"]);
        assert_eq!(completed("gpu:graph { @ = sum(args.du"), ["gpu:graph { @ = sum(args.duration"]);
        assert_eq!(completed("self:signal:SIGUSR1"), ["self:signal:SIGUSR1"]);
        assert_eq!(completed("self:").len(), 2);
        assert_eq!(completed("usdt:li"), ["usdt:libcuda:"]);
        assert_eq!(completed("usdt:libcuda:n"), ["usdt:libcuda:nv:launch"]);
        assert_eq!(completed("t:sched:sched_sw"), ["t:sched:sched_switch"]);
        assert!(completed("uprobe:libcuda:cuInit:").is_empty());
    }

    #[test]
    fn bodies_know_arguments_maps_builtins_and_constants() {
        let clause = "uprobe:libcuda:cuMemAlloc { @x = ";
        let args = completed(&format!("{clause}args."));
        assert_eq!(args, [format!("{clause}args.bytesize"), format!("{clause}args.dptr")]);
        assert_eq!(completed("uprobe:libcuda:cuInit / args.F"), ["uprobe:libcuda:cuInit / args.Flags"]);
        assert_eq!(completed(&format!("{clause}sum(@b")), [format!("{clause}sum(@bytes")]);
        assert_eq!(completed("BEGIN { print(@x); @y = 1; print(@x"), ["BEGIN { print(@x); @y = 1; print(@x"]);
        assert_eq!(completed("BEGIN { printf(\"\"); lhi"), ["BEGIN { printf(\"\"); lhist("]);
        let error = completed("uretprobe:libcuda:cuInit /retval == CUDA_ERROR_OUT_OF");
        assert_eq!(error, ["uretprobe:libcuda:cuInit /retval == CUDA_ERROR_OUT_OF_MEMORY"]);
        assert!(completed("BEGIN { printf(\"pri").is_empty());
    }

    #[test]
    fn commands_and_what_they_take() {
        assert_eq!(completed(":sh"), [":show "]);
        assert_eq!(completed(":show @b"), [":show @bytes"]);
        assert_eq!(completed("help cuMemAlloc_"), ["help cuMemAlloc_v2"]);
        assert_eq!(completed(":find cuI"), [":find cuInit"]);
        assert_eq!(completed(":find libcuda:cuI"), [":find libcuda:cuInit"]);
        assert!(wants_file(":load /tm") && !wants_file(":lo") && !wants_file("BEGIN { "));
    }
}
