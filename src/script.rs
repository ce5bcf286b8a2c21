//! The source of the script: `-e`, a file, standard input, or a bundled script.

use crate::arguments::definition;
use crate::bundled;
use crate::cli::{Cli, Word};
use crate::console::Messages;
use crate::imports::{self, Disk};
use anyhow::{Context, Result, bail};
use lang::check::config::{self, BadVariable};
use lang::expand::{import, options};
use lang::hir::Config;
use lang::resolve::{cuda_libraries, providers};
use lang::source::span::KernelVersion;
use lang::syntax::ast::Item;
use lang::{Diagnostics, Source};
use std::io::Read;

/// Name of the source of a script of `-e`, as bpftrace has it, and of standard input.
pub const NO_FILE: &str = "stdin";

/// A script and its parameters.
#[derive(Clone)]
pub struct Script {
    /// Name and text.
    pub source: Source,
    /// `$1`, `$2`, ...
    pub params: Vec<String>,
    /// Prefix of its maps in the presence of other scripts.
    pub scope: Option<String>,
    /// Name of the script in the output among several scripts; empty for a single script.
    pub heading: String,
}

impl Script {
    /// Whether it is an embedded script, whose text is not the user's.
    pub fn is_embedded(&self) -> bool {
        let name = self.source.name.strip_suffix(".ct").and_then(bundled::find);
        name.is_some_and(|script| self.source.text.starts_with(script.text))
    }

    /// Whether it may have `gpu:` probes: comments count.
    pub fn may_probe_gpus(&self) -> bool {
        let text = self.source.text.to_lowercase();
        // `corr` in `cuda:launch`, and operators of PyTorch, come from the library that `gpu:` probes need.
        ["gpu:", "corr", "torch_", "forward"].iter().any(|word| text.contains(word))
    }

    /// Name on the command line.
    fn word(&self) -> &str {
        match self.source.name.as_str() {
            NO_FILE => "-e PROGRAM",
            name => name.strip_suffix(".ct").filter(|name| bundled::find(name).is_some()).unwrap_or(name),
        }
    }

    pub fn empty(name: &str) -> Script {
        Script::alone(Source::new(name, ""), &[])
    }

    /// A single script.
    pub fn alone(source: Source, params: &[String]) -> Script {
        Script { source, params: params.to_vec(), scope: None, heading: String::new() }
    }
}

/// Assigns words after a blank to options as their values: `--top 3`. The scripts define which options have
/// values.
pub fn attach_values(cli: &mut Cli) {
    let first = cli.words.first().filter(|_| cli.execute.is_none());
    if cli.loose.is_empty() || first.is_some_and(|word| cli.classify(word) == Word::Subcommand) {
        return;
    }
    let known = options(cli);
    for (option, word) in std::mem::take(&mut cli.loose).into_iter().rev() {
        let name = &cli.given[option].name;
        if known.iter().any(|known| known.name == *name && known.takes_value()) {
            cli.given[option].value = Some(cli.words.remove(word));
        }
    }
}

/// Makes `summary` the script of a command line that has a target alone: `cudatrace -- python3 train.py`.
pub fn choose_summary(cli: &mut Cli) {
    if cli.has_target() && !cli.has_script() && !cli.interactive {
        cli.words.push("summary".into());
    }
}

/// `-e PROGRAM -- --help`: help on the options of the scripts, unless one of these is `help`.
pub fn take_help(cli: &mut Cli) {
    let is_help = |option: &options::OptionValue| option.name == "help" && option.value.is_none();
    if cli.has_script()
        && cli.given.iter().any(is_help)
        && options(cli).iter().all(|known| known.name != "help")
    {
        cli.script_help = true;
    }
}

/// Options of the scripts on the command line, as far as they can be read; errors are reported when they run.
pub fn options(cli: &Cli) -> Vec<options::ScriptOption> {
    let is_read = |word: &&String| match cli.classify(word) {
        Word::Embedded(_) => true,
        Word::File(path) => path != "-" && std::path::Path::new(path).is_file(),
        Word::Subcommand => false,
    };
    let named = cli.words.iter().filter(is_read).filter_map(|word| read(cli, word, &[]).ok());
    let typed = cli.execute.iter().map(|text| Source::new(NO_FILE, text.as_str()));
    let options = |mut source: Source| {
        let mut diags = Diagnostics::default();
        import::load(&mut source, &Disk, &mut diags);
        lang::parse(&source, &[], &mut diags).map_or(Vec::new(), |ast| options::known(&ast))
    };
    named.chain(typed).flat_map(options).collect()
}

/// Loads the script on the command line.
pub fn load(cli: &Cli, messages: &Messages) -> Result<Script> {
    import(find(cli)?, messages)
}

/// Reads the imports of a script.
pub fn import(mut script: Script, messages: &Messages) -> Result<Script> {
    let mut diags = Diagnostics::default();
    if let Some(version) = kernel_version() {
        script.source.set_kernel(version);
    }
    if runtime::kernel::features::is_root() && !script.is_embedded() {
        let warning = imports::warning_of_script(script.source.name.as_ref());
        warning.iter().for_each(|warning| messages.warning(warning));
    }
    import::load(&mut script.source, &Disk, &mut diags);
    messages.diagnostics(&diags, &script.source);
    match diags.has_errors() {
        true => bail!("the script cannot be read"),
        false => Ok(script),
    }
}

/// The version of the running kernel.
fn kernel_version() -> Option<KernelVersion> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(u8::MAX));
    Some(KernelVersion { major: numbers.next()?, minor: numbers.next()?, patch: numbers.next()? })
}

/// All scripts on the command line. After the first one, and before `-e`, there may be other embedded scripts and
/// files; the words after them are parameters of the last one. If a program of `-e` has parameters, files are its
/// arguments.
pub fn load_all(cli: &Cli, messages: &Messages) -> Result<Vec<Script>> {
    let files_are_scripts = !cli.execute.as_deref().is_some_and(takes_params);
    let is_script = |word: &&String| match cli.classify(word) {
        Word::Embedded(_) => true,
        Word::File(path) => files_are_scripts && (path.ends_with(".ct") || path.ends_with(".bt")),
        Word::Subcommand => false,
    };
    let least = usize::from(cli.execute.is_none());
    let named = cli.words.iter().skip(least).take_while(is_script).count() + least;
    if cli.words.is_empty() || named + usize::from(cli.execute.is_some()) < 2 {
        return Ok(vec![load(cli, messages)?]);
    }
    let (names, params) = cli.words.split_at(named);
    let mut scripts: Vec<Script> = Vec::new();
    for word in names {
        let scope = scope(word, &scripts, cli.execute.as_deref().unwrap_or_default());
        scripts.push(Script { heading: scope.clone(), scope: Some(scope), ..open(cli, word, &[])? });
    }
    if let Some(text) = &cli.execute {
        let script = Script::alone(Source::new(NO_FILE, text.as_str()), &[]);
        scripts.push(Script { heading: "-e".into(), ..script });
    }
    if let Some(last) = scripts.last_mut() {
        last.params = params.to_vec();
    }
    scripts.into_iter().map(|script| import(script, messages)).collect()
}

/// Prefix of a script's maps: its name without folder and extension, with a number if another script, or a map in
/// the text of `-e`, has this name.
fn scope(word: &str, others: &[Script], typed: &str) -> String {
    let stem = std::path::Path::new(word).file_stem().map_or(word.into(), |stem| stem.to_string_lossy());
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = stem.chars().map(plain).collect();
    let goes_on = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_map =
        |name: &str| typed.split('@').any(|map| map.strip_prefix(name).is_some_and(|rest| !goes_on(rest)));
    let is_free =
        |name: &String| !is_map(name) && others.iter().all(|other| other.scope.as_ref() != Some(name));
    let numbered = (2..).map(|number| format!("{name}{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).expect("some number is free")
}

fn find(cli: &Cli) -> Result<Script> {
    if let Some(text) = &cli.execute {
        let stem = text.strip_suffix(".ct").unwrap_or(text);
        if bundled::find(stem).is_some() {
            bail!(
                "-e expects the text of a script, and `{text}` is the name of one: `cudatrace {stem}` runs it"
            );
        }
        if std::path::Path::new(text).is_file() || is_name_of_file(text) {
            bail!("-e expects the text of a script, and `{text}` is the name of one: leave out -e");
        }
        return Ok(Script::alone(Source::new(NO_FILE, text.as_str()), &cli.words));
    }
    let Some((word, params)) = cli.words.split_first() else {
        bail!("no script: give -e 'PROGRAM', a file, or one of `cudatrace scripts`; --help shows examples");
    };
    open(cli, word, params)
}

/// Reads a script by its name, as for the first word of the command line.
pub fn open(cli: &Cli, word: &str, params: &[String]) -> Result<Script> {
    Ok(Script::alone(read(cli, word, params)?, params))
}

fn read(cli: &Cli, word: &str, rest: &[String]) -> Result<Source> {
    match cli.classify(word) {
        Word::File("-") => {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text).context("standard input")?;
            Ok(Source::new(NO_FILE, utf8(text, "standard input")?))
        }
        Word::Embedded(name) => {
            let script = bundled::find(name).expect("classified as embedded");
            if std::path::Path::new(name).exists() {
                eprintln!(
                    "note: `{name}` is an embedded script and a file here; for the file, type `./{name}`"
                );
            }
            Ok(Source::new(format!("{name}.ct"), script.text))
        }
        Word::File(path) => {
            let text = std::fs::read(path).map_err(|error| unreadable(cli, path, rest, error))?;
            if text.starts_with(b"\x7fELF") || interpreter(path).is_some() {
                bail!("`{path}` is a program, not a script: {}", after_dashes_help("summary", path, rest));
            }
            if let Some(instead) = other_file(path, &text) {
                bail!("`{path}` is {instead}");
            }
            let text = utf8(text, path)?;
            if !has_body(&text) {
                bail!(
                    "`{path}` is not a script: it has no clause such as `uprobe:libcuda:cuInit {{ @ = count() }}`"
                );
            }
            Ok(Source::new(path, text))
        }
        Word::Subcommand => {
            bail!("`{word}` is a subcommand and takes no script; for a file, type `./{word}`")
        }
    }
}

/// Another kind of file, and what to do with it.
fn other_file(path: &str, text: &[u8]) -> Option<String> {
    if report::recording::is_in_columns(text) {
        return Some(format!("a recording: `cudatrace report {path}` shows it"));
    }
    let is_source = [".cu", ".c", ".cc", ".cpp", ".h"].iter().any(|ending| path.ends_with(ending));
    is_source
        .then(|| "the source of a program: trace the program itself, `cudatrace -- ./PROGRAM`".to_owned())
}

/// Whether a text may be a script: it has a body, or is empty. Other kinds of documents begin with a bracket.
fn has_body(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || !text.starts_with(['{', '<', '[']) && text.contains(['{', '<'])
}

/// The error for a process or command where the script's parameters are expected.
fn after_dashes_help(script: &str, command: &str, rest: &[String]) -> String {
    if command.parse::<u32>().is_ok() {
        return format!("the script takes no parameters; a process to trace follows `-p`: `-p {command}`");
    }
    // A command without a slash is searched on PATH only.
    let is_here = !command.contains('/') && !is_on_path(command) && interpreter(command).is_none();
    let command = if is_here { &format!("./{command}") } else { command };
    let words = interpreter(command).into_iter().chain([command]).chain(rest.iter().map(String::as_str));
    format!("a command to trace follows `--`: `cudatrace {script} -- {}`", shell_words::join(words))
}

/// The interpreter of a file in another language, which may be neither executable nor on PATH.
fn interpreter(path: &str) -> Option<&'static str> {
    let interpreters = [(".py", "python3"), (".sh", "bash")];
    interpreters.iter().find(|(ending, _)| path.ends_with(ending)).map(|(_, interpreter)| *interpreter)
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Words that users try, with the equivalent.
const HABITS: &[(&str, &str)] = &[
    ("alloc", "`cudatrace memory` shows allocations"),
    ("leak", "`cudatrace memleak` shows blocks that were not freed"),
    ("leaks", "`cudatrace memleak` shows blocks that were not freed"),
    ("list", "`cudatrace -l PATTERN` lists probes, `cudatrace scripts` the scripts"),
    ("ls", "`cudatrace -l PATTERN` lists probes, `cudatrace scripts` the scripts"),
    ("version", "`cudatrace -V` prints the version"),
    ("explain", "`cudatrace --explain E0105` explains the code of a message"),
    ("run", "a command to trace follows `--`: `cudatrace summary -- COMMAND`"),
    ("exec", "a command to trace follows `--`: `cudatrace summary -- COMMAND`"),
    ("trace", "`cudatrace calls` prints each call, `cudatrace record` records them"),
    ("profile", "`cudatrace summary` counts and times, `cudatrace record` records each call"),
    ("memory-leak", "`cudatrace memleak` shows blocks that were not freed"),
    ("memleaks", "`cudatrace memleak` shows blocks that were not freed"),
    ("show", "`cudatrace -l PATTERN` lists probes, `cudatrace scripts` the scripts"),
    ("start", "a command to trace follows `--`: `cudatrace summary -- COMMAND`"),
    ("attach", "a process to trace follows `-p`: `cudatrace summary -p PID`"),
    ("monitor", "`cudatrace top` shows a table every second"),
    ("watch", "`cudatrace top` shows a table every second"),
    ("nsys", "`cudatrace record -- COMMAND` records each call, `cudatrace report` shows what it recorded"),
    ("nvprof", "`cudatrace summary -- COMMAND` counts and times"),
    ("stat", "`cudatrace summary` counts and times, `cudatrace report FILE` shows a recording"),
    ("stats", "`cudatrace summary` counts and times, `cudatrace report FILE` shows a recording"),
];

/// The equivalent of a word that users try.
pub fn habit(word: &str) -> Option<&'static str> {
    HABITS.iter().find(|(habit, _)| *habit == word).map(|(_, instead)| *instead)
}

/// The attach point, if the word is one: `uprobe:libcuda:cuInit`
fn as_probe(word: &str) -> Option<String> {
    match word.split_once(':') {
        Some((provider, _)) if matches!(providers::find(provider), providers::ProviderMatch::Known(_)) => {
            Some(word.to_owned())
        }
        Some((library, function)) => {
            let is_target = library.starts_with("lib") || library.starts_with('/');
            (is_target && !function.contains(':')).then(|| format!("uprobe:{word}"))
        }
        None => cuda_libraries::cuda_library(word).map(|library| format!("uprobe:{library}:{word}")),
    }
}

/// Whether the text of -e is the name of a file, which may not exist.
fn is_name_of_file(text: &str) -> bool {
    let is_script = text.ends_with(".ct") || text.ends_with(".bt");
    is_script && !text.contains(['{', ' ', '\n'])
}

/// Whether the word is the text of a script, not a file name.
fn is_script_text(word: &str) -> bool {
    word.contains('{') || word.contains(char::is_whitespace) && word.contains(':')
}

fn unreadable(cli: &Cli, path: &str, rest: &[String], error: std::io::Error) -> anyhow::Error {
    if is_script_text(path) {
        let mut text = path.to_owned();
        // The shell has split the script at its blanks.
        if path.matches('{').count() > path.matches('}').count() {
            text = [&[text], rest].concat().join(" ");
        }
        if let Some((cut, _)) = text.char_indices().nth(60) {
            text.truncate(cut);
            text += "...";
        }
        return anyhow::anyhow!("this looks like a script: pass it with -e: cudatrace -e '{text}'");
    }
    if let Some(probe) = as_probe(path) {
        let is = if probe == path { "is a probe" } else { "looks like a function to probe" };
        return anyhow::anyhow!(
            "`{path}` {is}: `-e '{probe} {{ @ = count() }}'` counts how often it is hit, `-l '{probe}'` lists the matching functions"
        );
    }
    if let Some(instead) = habit(path) {
        return anyhow::anyhow!("no script `{path}`: {instead}");
    }
    if path.parse::<u32>().is_ok() {
        return anyhow::anyhow!("no script `{path}`: a process to trace follows `-p`: `cudatrace -p {path}`");
    }
    let stem = path.trim_end_matches(".ct").trim_end_matches(".bt");
    if error.kind() == std::io::ErrorKind::NotFound && bundled::find(stem).is_some() {
        return anyhow::anyhow!(
            "no file `{path}`: the bundled script is called `{stem}`: `cudatrace {stem}`"
        );
    }
    let looks_like_word = !path.contains(['/', '.']);
    let words = bundled::SCRIPTS.iter().map(|s| s.name).chain(cli.subcommands.iter().copied());
    let hint = if looks_like_word { lang::diagnostics::suggest::similar(path, words) } else { vec![] };
    match (hint.first(), looks_like_word) {
        (Some(name), _) => anyhow::anyhow!("no script `{path}`: did you mean `{name}`?"),
        (None, true) if is_on_path(path) => {
            anyhow::anyhow!(
                "`{path}` is a program, not a script: {}",
                after_dashes_help("summary", path, rest)
            )
        }
        (None, true) => anyhow::anyhow!(
            "no script and no file `{path}`: `cudatrace scripts` lists the scripts, `--help` shows the usage"
        ),
        (None, false) => anyhow::anyhow!("cannot read script `{path}`: {error}"),
    }
}

/// Environment variables that are settings of the script.
pub fn settings() -> impl Iterator<Item = (String, String)> {
    let ours = |name: &str| name.starts_with("CUDATRACE_") || name.starts_with("BPFTRACE_");
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(move |(name, _)| ours(name))
}

/// Reports errors in the settings of the environment and in the options of the script.
pub fn check_given(scripts: &[Script], cli: &Cli, messages: &Messages) -> Result<()> {
    for (name, value) in settings() {
        match config::variable(&name, &value, &mut Config::default()) {
            Ok(()) => {}
            Err(BadVariable::Name(message)) => messages.warning(&message),
            Err(BadVariable::Value(message)) => bail!("environment: {message}"),
        }
    }
    let (mut known, mut clauses) = (Vec::new(), 0);
    for script in scripts {
        let parsed = lang::parse(&script.source, &script.params, &mut Diagnostics::default());
        let Some(ast) = parsed else { return Ok(()) };
        known.extend(options::known(&ast));
        clauses += ast.items.iter().filter(|item| matches!(item, Item::Clause(_))).count();
    }
    if clauses == 0 {
        bail!(
            "the script has no clause, so nothing would run: `uprobe:libcuda:cuInit {{ @ = count() }}` is one"
        );
    }
    let without_params = scripts.iter().filter(|script| !takes_params(&script.source.text));
    let superfluous = without_params.filter_map(|script| Some((script, script.params.split_first()?))).next();
    // An option after a program most likely belongs to the program.
    if let Some((script, (word, rest))) = superfluous.filter(|(_, (word, _))| is_program(word)) {
        // The position of options among the words is no longer known.
        let more = ["...".to_owned()];
        let rest = if cli.given.is_empty() { rest } else { &more };
        bail!("unexpected argument `{word}`: {}", after_dashes_help(script.word(), word, rest));
    }
    if let Some(message) = unknown_option(cli, &known, scripts.len()) {
        bail!(message);
    }
    if let Some(message) = options::invalid(&cli.given, &known) {
        bail!(message);
    }
    match superfluous {
        Some((script, (word, rest))) => {
            bail!("unexpected argument `{word}`: {}", instead(script, word, rest))
        }
        None => Ok(()),
    }
}

/// The message for an option that no script has, if there is one.
fn unknown_option(cli: &Cli, known: &[options::ScriptOption], scripts: usize) -> Option<String> {
    if cli.given.is_empty() {
        return None;
    }
    let command = definition::command(None);
    let ours = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long());
    options::unknown(&cli.given, known, ours, scripts)
}

/// An alternative for a word that the script does not accept.
fn instead(script: &Script, word: &str, rest: &[String]) -> String {
    const UNITS: [&str; 8] = ["s", "sec", "seconds", "ms", "m", "min", "minutes", "h"];
    if UNITS.contains(&word) {
        return "a time is written without a blank: `--interval=10s`, `500ms`, `2m`, `1h`".into();
    }
    let scripts = bundled::SCRIPTS.iter().map(|script| script.name);
    match (habit(word), lang::diagnostics::suggest::similar(word, scripts).first()) {
        (Some(instead), _) => instead.to_owned(),
        (None, Some(near)) => format!("did you mean the script `{near}`?"),
        (None, None) => after_dashes_help(script.word(), word, rest),
    }
}

/// Whether the word is a file, or a program on PATH with an unambiguous name.
fn is_program(word: &str) -> bool {
    habit(word).is_none() && (std::path::Path::new(word).is_file() || is_on_path(word))
}

/// Whether a script may use `$1`, `$#` and so on.
fn takes_params(text: &str) -> bool {
    text.split('$').skip(1).any(|behind| behind.starts_with(|c: char| c.is_ascii_digit() || c == '#'))
}

fn utf8(text: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(text).map_err(|error| {
        anyhow::anyhow!("{name} is not a script: byte {} is not UTF-8 text", error.utf8_error().valid_up_to())
    })
}
