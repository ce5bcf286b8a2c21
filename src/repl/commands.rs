//! Commands of the prompt: one table for execution, help and completion. Any other input is a script.

use super::help;
use super::session::Repl;
use crate::cli::Cli;
use crate::console::Messages;
use crate::{bundled, terminal};
use anyhow::{Result, anyhow, bail};
use cuda::operations::{APIS, Api};
use lang::builtins::table;
use lang::diagnostics::suggest::similar;
use lang::resolve::function_list::{self, FunctionName};
use lang::resolve::providers::PROVIDERS;
use runtime::Session;
use runtime::session::event_loop::Next;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;

/// Kind of a command's argument, for completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// `:list`
    Nothing,
    /// `:drop 3`
    Text,
    /// `:load FILE`
    File,
    /// `:show @m`
    Map,
    /// `:find PATTERN`
    Function,
    /// `:help NAME`
    Topic,
}

type Run = for<'a> fn(&Rc<Repl<'a>>, &mut Session, &str) -> Result<Next>;

/// A row of the table.
pub struct PromptCommand {
    /// Name without the colon.
    pub name: &'static str,
    /// Notation of the arguments in help.
    pub args: &'static str,
    /// Kind of the argument, for completion.
    pub takes: ArgumentKind,
    /// Description.
    pub doc: &'static str,
    run: Run,
}

const fn row(
    name: &'static str,
    args: &'static str,
    takes: ArgumentKind,
    run: Run,
    doc: &'static str,
) -> PromptCommand {
    PromptCommand { name, args, takes, doc, run }
}

use ArgumentKind::{File, Function, Map, Nothing, Text, Topic};

/// All commands, in the order of help.
pub static COMMANDS: &[PromptCommand] = &[
    row(
        "help",
        "[NAME]",
        Topic,
        help_on,
        "this list, or help on a command, script, built-in, probe, function, constant or message code",
    ),
    row("list", "", Nothing, list, "the clauses"),
    row(
        "drop",
        "N...",
        Text,
        drop_clauses,
        "remove clauses (`:drop 1 3-5`), or all (`:drop all`); their END runs, maps stay",
    ),
    row("resume", "[N...]", Text, resume, "attach clauses again that Ctrl-C stopped"),
    row("maps", "", Nothing, maps, "the maps, with their size"),
    row(
        "show",
        "@MAP [TOP]",
        Map,
        show,
        "the values of a map, or its largest ones; `@MAP` alone does the same",
    ),
    row("watch", "@MAP [SECONDS]", Map, watch, "a map every second, or every SECONDS, until Ctrl-C"),
    row("clear", "[@MAP]", Map, clear, "remove the keys of a map; without a map clear the screen"),
    row("find", "[LIBRARY:]PATTERN", Function, find_functions, "functions that match, with their parameters"),
    row("save", "FILE", File, save, "write the clauses to a script"),
    row("load", "FILE", File, load, "attach the clauses of a script: a file, or one of `cudatrace scripts`"),
    row(
        "pid",
        "[PID...|all]",
        Text,
        pid,
        "trace these processes and their children, or all; without arguments print the traced processes",
    ),
    row(
        "run",
        "[COMMAND]",
        File,
        run_program,
        "start a program and trace it; without arguments that of -c, or the last one",
    ),
    row("stop", "", Nothing, stop_program, "end the program"),
    row("wait", "", Nothing, wait, "continue when the program has ended"),
    row("quit", "", Nothing, quit, "end; END runs and maps are printed (also Ctrl-D)"),
];

/// The name and arguments of a command: `:list`, and also `list` and `help cuInit`.
pub fn split(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (colon, text) = (line.starts_with(':'), line.trim_start_matches(':'));
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (name, rest) = (&text[..end], text[end..].trim_start());
    let is_named = name == "exit" || COMMANDS.iter().any(|command| command.name == name);
    // `clear (@m)` is a statement, and `list = uprobe:...` a clause with a name.
    let is_argument = !rest.starts_with(['(', '{', '=', ',', ':']);
    (colon || is_named && is_argument).then_some((name, rest))
}

/// The command with a name or unique prefix: `:q` is `:quit`.
pub fn find(name: &str) -> Option<&'static PromptCommand> {
    let name = if name == "exit" { "quit" } else { name };
    let begins = || COMMANDS.iter().filter(|command| !name.is_empty() && command.name.starts_with(name));
    let only = || begins().next().filter(|_| begins().count() == 1);
    COMMANDS.iter().find(|command| command.name == name).or_else(only)
}

/// Runs a command.
pub fn run(repl: &Rc<Repl>, session: &mut Session, name: &str, rest: &str) -> Result<Next> {
    let command = find(name).ok_or_else(|| unknown(name))?;
    (command.run)(repl, session, rest.trim())
}

/// The error for an unknown command, with an alternative.
pub fn unknown(name: &str) -> anyhow::Error {
    if bundled::find(name).is_some() {
        return anyhow!("no command `:{name}`: `:load {name}` attaches the clauses of this script");
    }
    match similar(name, COMMANDS.iter().map(|command| command.name)).first() {
        Some(near) => anyhow!("no command `:{name}`: did you mean `:{near}`?"),
        None => anyhow!("no command `:{name}`; `:help` lists them"),
    }
}

/// The help on a topic; without one, the commands.
pub fn help_text(topic: &str, cli: &Cli, messages: &Messages) -> Result<String> {
    if topic.is_empty() {
        return Ok(overview());
    }
    let names = || COMMANDS.iter().map(|command| command.name).chain(cli.subcommands.iter().copied());
    command_help(topic).map_or_else(|| help::on(topic, names(), messages), Ok)
}

fn overview() -> String {
    let mut text = String::from(
        "A clause is attached as it is typed: uprobe:libcuda:cuMemAlloc { @[comm] = count() }\n\n",
    );
    for command in COMMANDS {
        let usage = format!(":{} {}", command.name, command.args);
        text += &terminal::entry(&usage, 28, command.doc);
    }
    let probes: Vec<&str> = PROVIDERS.iter().map(|provider| provider.names[0]).collect();
    let probes = format!("probes: {}", probes.join(" "));
    let _ = writeln!(text, "\n{}", terminal::wrap(&probes, terminal::columns(), 4));
    let _ = writeln!(text, "Tab completes; Ctrl-C stops clauses that print; Ctrl-D ends.");
    text
}

fn command_help(topic: &str) -> Option<String> {
    let colon = topic.starts_with(':');
    let name = topic.trim_start_matches(':');
    // `print` and `clear` are functions of the language first; `:clear` is the command.
    let command = find(name).filter(|_| colon || table::find(name).is_none())?;
    Some(format!(":{} {}\n    {}\n", command.name, command.args, command.doc))
}

fn help_on(repl: &Rc<Repl>, _: &mut Session, topic: &str) -> Result<Next> {
    repl.print(&help_text(topic, repl.cli, repl.messages)?);
    Ok(Next::Continue)
}

fn list(repl: &Rc<Repl>, _: &mut Session, _: &str) -> Result<Next> {
    repl.print(&repl.clauses.list());
    Ok(Next::Continue)
}

fn drop_clauses(repl: &Rc<Repl>, session: &mut Session, numbers: &str) -> Result<Next> {
    let numbers = repl.clauses.numbers(numbers)?;
    numbers.into_iter().try_for_each(|number| repl.clauses.drop(repl, session, number))?;
    Ok(Next::Continue)
}

fn resume(repl: &Rc<Repl>, session: &mut Session, numbers: &str) -> Result<Next> {
    let numbers = if numbers.is_empty() { repl.clauses.stopped() } else { repl.clauses.numbers(numbers)? };
    if numbers.is_empty() {
        bail!("no clause is stopped");
    }
    numbers.into_iter().try_for_each(|number| repl.clauses.resume(repl, session, number))?;
    Ok(Next::Continue)
}

fn maps(repl: &Rc<Repl>, session: &mut Session, _: &str) -> Result<Next> {
    let mut text = String::new();
    let maps = session.manifest().maps.iter().enumerate();
    for (at, map) in maps.filter(|(_, map)| !map.is_hidden()) {
        let keys = session.snapshot(at as u32, 0, 0)?.entries.len();
        writeln!(text, "@{}: {keys} key{}", map.name, if keys == 1 { "" } else { "s" })?;
    }
    repl.print(if text.is_empty() { "no maps yet\n" } else { &text });
    Ok(Next::Continue)
}

fn show(repl: &Rc<Repl>, session: &mut Session, args: &str) -> Result<Next> {
    let (map, top) = map_and_number(session, args)?;
    repl.show_map(session, map, top.unwrap_or(0))?;
    Ok(Next::Continue)
}

fn watch(repl: &Rc<Repl>, session: &mut Session, args: &str) -> Result<Next> {
    let (map, seconds) = map_and_number(session, args)?;
    super::watch::start(repl, map, seconds.unwrap_or(1))?;
    Ok(Next::Continue)
}

fn clear(repl: &Rc<Repl>, session: &mut Session, args: &str) -> Result<Next> {
    if args.is_empty() {
        repl.clear_screen();
        return Ok(Next::Continue);
    }
    let (map, _) = map_and_number(session, args)?;
    session.clear(map)?;
    Ok(Next::Continue)
}

/// Parses `@m 10`.
pub fn map_and_number(session: &Session, args: &str) -> Result<(u32, Option<u32>)> {
    let mut words = args.split_whitespace();
    let name = words.next().ok_or_else(|| anyhow!("which map? `:maps` lists them"))?;
    let maps = &session.manifest().maps;
    let wanted = name.trim_start_matches('@');
    let Some(at) = maps.iter().position(|map| map.name == wanted) else {
        let known = || maps.iter().filter(|map| !map.is_hidden()).map(|map| map.name.as_str());
        let near = help::did_you_mean(wanted, known(), "@");
        let help = match known().next() {
            _ if !near.is_empty() => near,
            Some(_) => "; `:maps` lists the maps".to_owned(),
            None => {
                format!(": a clause creates one, such as `uprobe:libcuda:cuInit {{ @{wanted} = count() }}`")
            }
        };
        bail!("no map `@{wanted}`{help}");
    };
    let number = words.next().map(|word| match word.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(anyhow!("`{word}` after `@{wanted}` is to be a positive number, such as 10")),
    });
    Ok((at as u32, number.transpose()?))
}

fn find_functions(repl: &Rc<Repl>, _: &mut Session, pattern: &str) -> Result<Next> {
    if pattern.is_empty() {
        bail!("which functions? `:find cuMem*`, `:find libcudart:cudaMalloc*`");
    }
    let found = match pattern.contains(':') {
        true => {
            let FunctionName { target, function, .. } = function_list::split(pattern);
            function_list::find(repl.machine, target, function).map_err(anyhow::Error::msg)?
        }
        false => match function_list::named(repl.machine, pattern) {
            named if named.is_empty() => function_list::alike(repl.machine, pattern),
            named => named,
        },
    };
    let mut text = operations_like(pattern);
    if found.is_empty() && text.is_empty() {
        bail!(
            "no function of CUDA's libraries matches `{pattern}`; those of others: `:find LIBRARY:PATTERN`"
        );
    }
    let paths: BTreeSet<(&str, &str)> = found
        .iter()
        .filter_map(|found| Some((found.file.library?.0.alias(), found.file.path.as_str())))
        .collect();
    for found in &found {
        // A library of which there are several files is named by its path.
        let alias = found.file.library.map(|(library, _)| library.alias());
        let is_only = |alias: &&str| paths.iter().filter(|(other, _)| other == alias).count() == 1;
        let library = alias.filter(is_only).unwrap_or(found.file.path.as_str());
        writeln!(text, "{library}:{}", found.name)?;
        if let Ok(signature) = found.declared(repl.machine) {
            writeln!(text, "    {signature}")?;
        }
    }
    repl.print(&text);
    Ok(Next::Continue)
}

/// The operations of CUDA whose name contains the pattern, one per line: `cuda:alloc`.
fn operations_like(pattern: &str) -> String {
    let named =
        |api: &'static Api| api.operations.iter().map(|o| (format!("{}:{}", api.provider, o.name), o));
    let all = APIS.iter().flat_map(named);
    let like = all.filter(|(name, operation)| {
        let within = if pattern.contains(':') { name.as_str() } else { operation.name };
        function_list::is_like(pattern, within)
    });
    like.map(|(name, operation)| format!("{name}\n    {}\n", operation.doc)).collect()
}

fn save(repl: &Rc<Repl>, _: &mut Session, path: &str) -> Result<Next> {
    if path.is_empty() {
        bail!("to which file? `:save FILE`");
    }
    let text = repl.clauses.script();
    std::fs::write(path, text).map_err(|error| anyhow!("cannot write `{path}`: {error}"))?;
    Ok(Next::Continue)
}

fn load(repl: &Rc<Repl>, session: &mut Session, path: &str) -> Result<Next> {
    let words = words(path)?;
    let Some((path, params)) = words.split_first() else { bail!("which script? `:load FILE`") };
    repl.load(session, path, params)?;
    Ok(Next::Continue)
}

fn pid(repl: &Rc<Repl>, session: &mut Session, args: &str) -> Result<Next> {
    match args {
        "" => repl.print(&(repl.program.target(repl) + "\n")),
        "all" => repl.program.trace_all(repl, session)?,
        _ => {
            let pids = args.split([' ', ',']).filter(|word| !word.is_empty());
            let pids: Result<Vec<u32>> =
                pids.map(|word| word.parse().map_err(|_| anyhow!("`{word}` is no process id"))).collect();
            repl.program.trace_pids(repl, session, pids?)?;
        }
    }
    Ok(Next::Continue)
}

fn run_program(repl: &Rc<Repl>, session: &mut Session, command: &str) -> Result<Next> {
    let argv = words(command)?.into_iter().map(Into::into).collect();
    repl.program.start(repl, session, argv)?;
    Ok(Next::Continue)
}

fn words(text: &str) -> Result<Vec<String>> {
    shell_words::split(text).map_err(|_| anyhow!("`{text}`: a quote is not closed"))
}

fn stop_program(repl: &Rc<Repl>, _: &mut Session, _: &str) -> Result<Next> {
    repl.program.stop()?;
    Ok(Next::Continue)
}

fn wait(repl: &Rc<Repl>, _: &mut Session, _: &str) -> Result<Next> {
    match repl.program.is_running() {
        true => repl.waiting.set(true),
        // The program ended before the command.
        false if repl.program.started.get() => {}
        false => bail!("no program is running; `:run COMMAND` starts one"),
    }
    Ok(Next::Continue)
}

fn quit(_: &Rc<Repl>, _: &mut Session, _: &str) -> Result<Next> {
    Ok(Next::Stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn lines_that_are_commands() {
        assert_eq!(split(" :show  @m 3 "), Some(("show", "@m 3 ")));
        assert_eq!(split("help cuInit"), Some(("help", "cuInit")));
        assert_eq!(split("quit"), Some(("quit", "")));
        assert_eq!(split("quit { }"), None);
        assert_eq!(split("drop 1-3"), Some(("drop", "1-3")));
        assert_eq!(split("clear"), Some(("clear", "")));
        assert_eq!(split("clear(@m)"), None);
        assert_eq!(split("list = uprobe:libcuda:cuInit { }"), None);
        assert_eq!(find("q").map(|command| command.name), Some("quit"));
        assert!(find("s").is_none(), "there are several");
        assert_eq!(split("uprobe:libcuda:cuInit { }"), None);
        assert_eq!(split(":"), Some(("", "")));
    }

    #[test]
    fn slips_get_a_suggestion() {
        assert_eq!(unknown("lsit").to_string(), "no command `:lsit`: did you mean `:list`?");
        assert_eq!(
            unknown("kernels").to_string(),
            "no command `:kernels`: `:load kernels` attaches the clauses of this script"
        );
        assert_eq!(unknown("xyzzy").to_string(), "no command `:xyzzy`; `:help` lists them");
    }

    fn help_text(topic: &str) -> Result<String> {
        let cli = Cli::parse_from(["cudatrace"]);
        super::help_text(topic, &cli, &cli.messages())
    }

    #[test]
    fn every_table_answers() {
        for (topic, part) in [
            ("", ":watch @MAP [SECONDS]"),
            (":clear", "remove the keys of a map"),
            ("clear", "clear(@map)"),
            ("list", ":list"),
            ("uretprobe", "when a function returns"),
            ("cuMemAlloc", "args.bytesize"),
            ("cuLaunchKernel", "gridDimX"),
            ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY = 2"),
            ("cudaMemcpyKind", "cudaMemcpyHostToDevice = 1"),
            ("cuda:alloc", "    uint64 bytes: requested size"),
            ("cudart:alloc", "    by cudaMalloc, "),
            ("kernels", "cudatrace kernels"),
            ("E0105", "error[E0105]: "),
            ("functions", "  kernel_name("),
            ("probes", "  cuda:alloc "),
            ("CUDA_ERROR_OUT_OF_MEMORY", "memory"),
            ("python", "cudatrace lines"),
            ("stack", "`ustack`"),
            ("step", "cudatrace nvtx"),
            ("getopt", "is an option of a script"),
            ("export", "  openmetrics="),
            ("prometheus", "--export openmetrics="),
            ("perfetto", "a native trace of Perfetto"),
            ("in-process", "Run the script in the traced processes"),
            ("--user", "as this user"),
            ("alerts", "alert: Cuda"),
            ("docker", "examples/observability"),
            ("sudo", "in the traced program"),
            ("slow", "`launchgap`"),
            ("json", "-f json"),
        ] {
            let text = help_text(topic).unwrap();
            assert!(text.contains(part), "{topic}: {text}");
        }
    }

    #[test]
    fn unknown_topics_get_a_suggestion() {
        assert_eq!(
            help_text("cuMemAlocc").unwrap_err().to_string(),
            "no help on `cuMemAlocc`: did you mean `cuMemAlloc`?"
        );
    }
}
