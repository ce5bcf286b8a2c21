//! Separates a script's own options from ours on the command line.
//!
//! ```text
//! cudatrace latency --top=5 -p 42        top=5 for the script, -p for us
//! cudatrace latency --top 5              the same: `script::attach_values` finds the value of the script's option
//! cudatrace -e '...' -- --top=5 ./prog   options after `--` are the script's; then the command
//! cudatrace -e '... $1' -- --top=5 7      words after `--` are parameters that the script lacks, as in bpftrace
//! cudatrace latency --help               help of the script
//! ```
//!
//! A long option after the script that is none of ours belongs to the script. Before the script it is an error of clap.

pub mod definition;
mod refuse;

use crate::bundled;
use crate::cli::{BpftraceMode, Cli, Stage, Word};
use crate::subcommand::{Listing, Subcommand, Subcommands};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use definition::{WITHOUT_EFFECT, command, is_without_effect, with_subcommands};
use lang::expand::options::{INSTEAD_OF_AOT, OptionValue, instead_of_limit};
use std::ffi::OsString;
use std::path::Path;

/// A parsed command line.
pub struct CommandLine {
    /// The options that all command lines have.
    pub cli: Cli,
    /// The options as clap has parsed them, with those of the subcommand.
    pub matches: ArgMatches,
    /// The subcommand, if the first word is one.
    pub subcommand: Option<&'static Subcommand>,
}

/// Parses the command line, including the program name.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    subcommands: Subcommands,
    listings: &[Listing],
) -> Result<CommandLine, clap::Error> {
    let args: Vec<OsString> = args.collect();
    let mut split = Split::of(&command(None), args.iter().cloned());
    let subcommand = split.first.as_deref().and_then(|word| subcommands.find(word));
    let command = command(subcommand);
    if subcommand.is_some() {
        split = Split::of(&command, args.into_iter());
    }
    let matches = with_subcommands(command.clone(), subcommands).try_get_matches_from(split.ours);
    let matches = matches.map_err(with_alternative)?;
    if let Some(subcommand) = subcommand.filter(|_| !split.help) {
        refuse::of_subcommand(subcommand, &split.given, &matches, &command)?;
    }
    if split.lacks_command {
        let message = "nothing follows `--`: write the command to trace, `-- COMMAND`, or leave out `--`";
        return Err(plain(ErrorKind::MissingRequiredArgument, message));
    }
    let mut cli = common_options(&matches)?;
    cli.subcommands = subcommands.names();
    (cli.given, cli.loose, cli.script_help) = (split.given, split.loose, split.help);
    if subcommand.is_none() && !cli.script_help {
        refuse::of_listing(&cli, &matches, listings)?;
        refuse::idle(&cli)?;
    }
    if lacks_params(&cli) && (split.options_after_dashes || !starts_program(&cli)) {
        take_params(&mut cli);
    }
    let subcommand = subcommand.filter(|_| cli.execute.is_none());
    Ok(CommandLine { cli, matches, subcommand })
}

/// The options that all command lines have, with those of bpftrace as ours.
fn common_options(matches: &ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    cli.without_effect = WITHOUT_EFFECT.iter().filter_map(|option| option.note(matches)).collect();
    cli.missing_files = missing_paths(&cli);
    cli.choose_program();
    if cli.debug.contains(&Stage::Verifier) {
        cli.without_effect.push(
            "`-d verifier` has no effect: the verifier's log is shown when it refuses a program".into(),
        );
    }
    match cli.mode {
        Some(BpftraceMode::Test) => cli.test = Some("*".into()),
        Some(BpftraceMode::Bench) => cli.bench = Some("*".into()),
        Some(BpftraceMode::Format) => cli.print_formatted = true,
        None => {}
    }
    Ok(cli)
}

/// Folders and files of options that do not exist. With `-p` they may exist in the root of the process.
fn missing_paths(cli: &Cli) -> Vec<String> {
    let folders = cli.debuginfo.iter().filter(|folder| !folder.is_dir());
    let folders =
        folders.map(|folder| format!("`--debuginfo {}`: there is no such folder", folder.display()));
    let files = cli.libs.iter().filter(|(_, path)| cli.pids.is_empty() && !path.exists());
    let files = files.map(|(name, path)| format!("`--lib {name}={}`: there is no such file", path.display()));
    folders.chain(files).collect()
}

/// Whether the script has a parameter such as `$1` without an argument before `--`.
fn lacks_params(cli: &Cli) -> bool {
    let named = cli.words.first().filter(|_| cli.execute.is_none());
    let text = match (&cli.execute, named.map(|word| cli.classify(word))) {
        (Some(text), _) => text.clone(),
        (None, Some(Word::File(path))) => std::fs::read_to_string(path).unwrap_or_default(),
        _ => return false,
    };
    let digits =
        |after: &str| after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let most: usize = text.split('$').skip(1).filter_map(digits).max().unwrap_or(0);
    most > cli.words.len() - usize::from(named.is_some())
}

/// Whether the first word after `--` is a program.
fn starts_program(cli: &Cli) -> bool {
    let Some(first) = cli.argv.first().map(Path::new) else { return true };
    let path = std::env::var_os("PATH").unwrap_or_default();
    match first.components().count() {
        1 if !first.starts_with(".") => {
            std::env::split_paths(&path).any(|folder| folder.join(first).is_file())
        }
        _ => first.is_file(),
    }
}

/// Makes the words after `--` arguments of the script, as in bpftrace.
fn take_params(cli: &mut Cli) {
    for word in std::mem::take(&mut cli.argv) {
        let word = word.to_string_lossy().into_owned();
        match word.strip_prefix("--").filter(|name| !name.is_empty()) {
            Some(name) => cli.given.push(option(name)),
            None => cli.words.push(word),
        }
    }
}

/// Options of other tools that do not exist here, with the alternative.
const ABSENT: &[(&str, &str)] = &[
    ("--aot", INSTEAD_OF_AOT),
    ("--trace", "a script says what is traced, and `cudatrace record` records all calls"),
];

/// An error message without the usage of the command line.
fn plain(kind: ErrorKind, message: &str) -> clap::Error {
    clap::Error::raw(kind, format!("{message}\n"))
}

/// An error of clap, in our words if they show what to write instead.
fn with_alternative(error: clap::Error) -> clap::Error {
    let ours = [help_on_values, missing_value, conflict, wrong_value, instead];
    ours.into_iter().find_map(|ours| ours(&error)).unwrap_or(error)
}

/// The error for two options that exclude each other.
fn conflict(error: &clap::Error) -> Option<clap::Error> {
    let first = |text: &str| match text.split([' ', '=', '[']).next() {
        Some("") | None => "-- COMMAND".to_owned(),
        Some(option) => option.to_owned(),
    };
    let name = |kind| match error.get(kind)? {
        ContextValue::String(option) => Some(first(option)),
        ContextValue::Strings(options) => options.first().map(|option| first(option)),
        _ => None,
    };
    let (given, other) = (name(ContextKind::InvalidArg)?, name(ContextKind::PriorArg)?);
    let message = format!("`{given}` does not go with `{other}`: leave one of them out");
    (error.kind() == ErrorKind::ArgumentConflict && given != other).then(|| plain(error.kind(), &message))
}

/// The error for a value that is none of an option's words.
fn wrong_value(error: &clap::Error) -> Option<clap::Error> {
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue) else { return None };
    let option = option.split([' ', '=', '[']).next()?;
    let near = lang::diagnostics::suggest::similar(value, words.iter().map(String::as_str));
    let near = near.first().map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
    let message = format!("`{value}` is no value of `{option}`{near}; it is one of {}", words.join(", "));
    Some(plain(error.kind(), &message))
}

/// The error for an unknown option that has an alternative.
fn instead(error: &clap::Error) -> Option<clap::Error> {
    let ContextValue::String(written) = error.get(ContextKind::InvalidArg)? else { return None };
    if bundled::has_option(written.trim_start_matches('-')) {
        let message = format!("`{written}` is an option of scripts: write it after the script's name");
        return Some(plain(error.kind(), &message));
    }
    let absent = ABSENT.iter().find(|(name, _)| name == written).map(|(_, instead)| *instead);
    if let Some(instead) = absent.or_else(|| instead_of_limit(written.trim_start_matches('-'))) {
        return Some(plain(error.kind(), &format!("`{written}` is not supported: {instead}")));
    }
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let near = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(near)) => format!(": did you mean `{near}`?"),
        _ => "; options of the traced program follow `--` and its name: `-- PROGRAM --option`".into(),
    };
    let message = format!("unknown option `{written}`{near}; `cudatrace -h` shows ours");
    is_unknown.then(|| plain(error.kind(), &message))
}

/// The error for an option at the end without its value, with what to write.
fn missing_value(error: &clap::Error) -> Option<clap::Error> {
    let ContextValue::String(option) = error.get(ContextKind::InvalidArg)? else { return None };
    let lacks =
        matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    let message = match option.split([' ', '=']).next()? {
        "--pid" => "`-p` takes the number of a process: `pgrep python3` prints it",
        "--execute" => "`-e` takes a script: `-e 'cuda:launch { @launches = count() }'`",
        "--user" => "`--user` takes the name of a user: `--user \"$USER\"`",
        "--lib" => "`--lib` takes a library and its file: `--lib libcuda=/opt/driver/libcuda.so.1`",
        _ => return None,
    };
    lacks.then(|| plain(error.kind(), message))
}

/// `--format help`: lists the values of an option.
fn help_on_values(error: &clap::Error) -> Option<clap::Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if text(ContextKind::InvalidValue) != Some("help") {
        return None;
    }
    let values = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => values.join("\n"),
        _ if text(ContextKind::InvalidArg)?.starts_with("--export ") => crate::export::kinds::list(),
        _ => return None,
    };
    Command::new("values").override_help(values).try_get_matches_from(["values", "--help"]).err()
}

/// The words of the command line, assigned to cudatrace or to the script.
#[derive(Debug, Default)]
struct Split {
    ours: Vec<OsString>,
    given: Vec<OptionValue>,
    /// Options of the script without a value, each with the index of the word that follows it.
    loose: Vec<(usize, usize)>,
    /// The option of the script that the next word would follow.
    last: Option<usize>,
    /// Number of words without a dash so far.
    words: usize,
    /// True if the first words after `--` are options of the script.
    options_after_dashes: bool,
    /// True if nothing follows `--`.
    lacks_command: bool,
    /// True if the help of the script is requested.
    help: bool,
    /// True if a script was named.
    script: bool,
    /// The first word, unless `-e` precedes it.
    first: Option<String>,
}

impl Split {
    fn of(command: &Command, mut args: impl Iterator<Item = OsString>) -> Split {
        let mut split = Split::default();
        split.ours.extend(args.next());
        while let Some(word) = args.next() {
            if word == "--" {
                split.after_dashes(args);
                break;
            }
            if split.word(command, word) {
                split.ours.extend(args.next());
            }
        }
        split
    }

    /// Assigns a word; returns whether the next word is its value.
    fn word(&mut self, command: &Command, word: OsString) -> bool {
        let text = word.to_string_lossy().into_owned();
        let known = match text.strip_prefix("--") {
            Some(long) => named(command, long.split('=').next().unwrap_or(long)),
            None => return self.short(command, word),
        };
        if self.script && text == "--help" {
            self.help = true;
            return false;
        }
        self.last = None;
        // An option of an embedded script takes precedence over an option of bpftrace without effect.
        let known =
            known.filter(|arg| !(self.script && is_without_effect(arg.get_id()) && is_of_script(&text)));
        match known {
            None if self.script => {
                self.last = Some(self.given.len()).filter(|_| !text.contains('='));
                self.given.push(option(&text[2..]));
            }
            _ => self.ours.push(word),
        }
        self.script |= known.is_some_and(is_script);
        known.is_some_and(takes_value) && !text.contains('=')
    }

    /// Assigns `-v`, `-lv`, `-p42`, or a word without dash.
    fn short(&mut self, command: &Command, word: OsString) -> bool {
        let text = word.to_string_lossy().into_owned();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            if !self.script {
                self.first = Some(text);
            }
            self.script = true;
            self.loose.extend(self.last.take().map(|option| (option, self.words)));
            self.words += 1;
            self.ours.push(word);
            return false;
        };
        self.last = None;
        if self.script && letters == "h" {
            self.help = true;
            return false;
        }
        self.ours.push(word);
        let named = |letter: char| command.get_arguments().find(|arg| arg.get_short() == Some(letter));
        let valued = letters
            .char_indices()
            .find_map(|(at, letter)| Some((at, named(letter).filter(|arg| takes_value(arg))?)));
        self.script |= valued.is_some_and(|(_, arg)| is_script(arg));
        valued.is_some_and(|(at, _)| letters[at..].chars().count() == 1)
    }

    /// Assigns the words after `--`. A command does not begin with dashes, so words that do are options of the
    /// script.
    fn after_dashes(&mut self, args: impl Iterator<Item = OsString>) {
        let mut args = args.peekable();
        let is_option =
            |word: &OsString| word.to_string_lossy().strip_prefix("--").is_some_and(|name| !name.is_empty());
        while let Some(word) = args.next_if(is_option) {
            self.options_after_dashes = true;
            self.given.push(option(&word.to_string_lossy()[2..]));
        }
        if args.peek().is_some_and(|word| word == "--") {
            args.next();
        }
        self.lacks_command = args.peek().is_none() && !self.options_after_dashes;
        if args.peek().is_some() || self.given.is_empty() {
            self.ours.push("--".into());
            self.ours.extend(args);
        }
    }
}

/// The option of cudatrace with a long name.
fn named<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let is_named = |arg: &&Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    command.get_arguments().find(is_named)
}

/// Whether `--top=5` may be an option of an embedded script.
fn is_of_script(written: &str) -> bool {
    bundled::has_option(written.trim_start_matches('-').split('=').next().unwrap_or_default())
}

/// Whether its value may be the next word.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Whether the option `-e` names a script.
fn is_script(arg: &Arg) -> bool {
    arg.get_short() == Some('e')
}

/// `top=5`, `flag`
fn option(text: &str) -> OptionValue {
    match text.split_once('=') {
        Some((name, value)) => OptionValue { name: name.into(), value: Some(value.into()) },
        None => OptionValue { name: text.into(), value: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{LISTINGS, SUBCOMMANDS};
    use std::path::PathBuf;

    fn parse(words: impl Iterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
        super::parse(words, SUBCOMMANDS, LISTINGS)
    }

    fn read(line: &str) -> Cli {
        let words = shell_words::split(line).unwrap();
        parse(words.into_iter().map(OsString::from)).unwrap().cli
    }

    fn given(line: &str) -> Vec<String> {
        let show =
            |given: &OptionValue| format!("{}={}", given.name, given.value.as_deref().unwrap_or("<none>"));
        read(line).given.iter().map(show).collect()
    }

    #[test]
    fn options_after_the_script_are_its_own() {
        assert_eq!(given("cudatrace x.ct --top=5 --all -p 42 7"), ["top=5", "all=<none>"]);
        assert_eq!(given("cudatrace -e 'BEGIN { }' --top=5"), ["top=5"]);
        assert_eq!(given("cudatrace -qe 'BEGIN { }' --top=5"), ["top=5"]);
        assert_eq!(read("cudatrace x.ct --top=5 -p 42 7").words, ["x.ct", "7"]);
        assert_eq!(read("cudatrace x.ct --top=5 -p 42 7").pids, [42]);
    }

    #[test]
    fn before_the_script_they_are_mistakes_of_ours() {
        let words = ["cudatrace", "--top=5", "x.ct"].map(OsString::from);
        assert!(parse(words.into_iter()).is_err());
        let words = ["cudatrace", "-p", "42", "--top=5", "x.ct"].map(OsString::from);
        assert!(parse(words.into_iter()).is_err());
    }

    #[test]
    fn unused_arguments_are_refused() {
        let message = |line: &str| {
            let words = shell_words::split(line).unwrap().into_iter().map(OsString::from);
            parse(words).map(|_| ()).map_err(|error| error.to_string())
        };
        for (line, part) in [
            ("cudatrace summary -p", "`-p` takes the number of a process: `pgrep"),
            ("cudatrace summary --user -- true", "`--user` takes the name of a user"),
            ("cudatrace fmt --dry-run x.ct", "`fmt` has no option `--dry-run`"),
            ("cudatrace fmt --chek x.ct", "did you mean `--check`?"),
            ("cudatrace fmt -e 'BEGIN { }'", "`fmt` has no option `-e`"),
            ("cudatrace record --foo -- true", "`record` has no option `--foo`: `cudatrace record --help`"),
            ("cudatrace record -f json", "`record` has no option `-f`"),
            ("cudatrace report -p 3 x.jsonl", "`report` has no option `-p`"),
            ("cudatrace scripts --verbos", "`scripts` has no option `--verbos`"),
            ("cudatrace doctor --foo=1", "`doctor` has no option `--foo`"),
            ("cudatrace doctor foo", "unexpected argument `foo` after `doctor`"),
            ("cudatrace scripts kernels", "`cudatrace help kernels` shows help on the script"),
            ("cudatrace completion bash zsh", "unexpected argument `zsh`"),
            ("cudatrace man -- foo", "`man` takes no `-- COMMAND`"),
            ("cudatrace fmt -- x.ct", "`fmt` takes no `-- COMMAND`"),
            ("cudatrace --info foo", "`--info` takes no further words"),
            ("cudatrace summary --", "nothing follows `--`: write the command"),
            ("cudatrace summary -p python3", "`pgrep python3` prints it"),
            ("cudatrace --explain 105 -p 1", "`--explain` traces nothing, and does not go with `-p`"),
            ("cudatrace -l alloc -- ls", "`-l` traces nothing, and does not go with `-- COMMAND`"),
            ("cudatrace --fmt x.ct y.ct", "unexpected argument `y.ct`"),
            ("cudatrace kernels --user root -p 1", "`--user` needs a command"),
            ("cudatrace kernels --no-children", "`--no-children` needs -p or a command"),
            ("cudatrace kernels --rotate 1MiB -p 1", "`--rotate` needs an export"),
            ("cudatrace kernels --fail-on-loss", "`--fail-on-loss` needs an export"),
            ("cudatrace --check", "`--check` needs a script"),
            ("cudatrace --mode bench", "`--bench` needs a script"),
        ] {
            let error = message(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
        for line in [
            "cudatrace fmt --check --diff x.ct",
            "cudatrace -q record --kernel -p 3 --export jsonl=x",
            "cudatrace doctor -f json",
            "cudatrace completion line -- cudatrace x y",
            "cudatrace -l x.bt 1 2 -v -p 3 -I /usr/include",
            "cudatrace --user root -p 1",
            "cudatrace record --fail-on-loss --rotate 1MiB -- true",
            "cudatrace kernels --help --user root",
        ] {
            message(line).expect(line);
        }
    }

    #[test]
    fn a_word_after_an_option_may_be_its_value() {
        assert_eq!(read("cudatrace x.ct --top 3 --all -v 4").loose, [(0, 1)]);
        assert_eq!(read("cudatrace x.ct --top=3 4").loose, []);
    }

    #[test]
    fn options_of_bpftrace_lead_to_ours() {
        let message = |line: &str| {
            let words = shell_words::split(line).unwrap().into_iter().map(OsString::from);
            parse(words).map(|_| ()).expect_err(line).to_string()
        };
        for (name, instead) in ABSENT {
            assert!(message(&format!("cudatrace {name} x a.ct")).contains(instead), "{name}");
        }
        for name in ["--duration", "--timeout"] {
            assert!(message(&format!("cudatrace {name} x a.ct")).contains("Ctrl-C ends the trace"), "{name}");
        }
    }

    #[test]
    fn command_lines_of_bpftrace_are_accepted() {
        let cli = read(
            "cudatrace -I /usr/include --include x.h --btf --debuginfo /d --dwarf-pid 3 --emit-llvm x \
             --traceable-functions f --usdt-file-activation --verify-llvm-ir -d verifier x.bt 7 --debuginfo /e",
        );
        assert_eq!((cli.without_effect.len(), cli.words), (9, vec!["x.bt".into(), "7".into()]));
        assert_eq!(cli.missing_files.len(), 2);
        assert_eq!(cli.debuginfo, ["/d", "/e"].map(std::path::PathBuf::from));
        assert!(cli.without_effect[0].starts_with("`-I` has no effect: headers are not read"));
        let cli = read(
            "cudatrace -vv -kk --warnings -q -q --cmd ./a --emit-elf x.o -d all,dis -e 1 -e 'BEGIN { }'",
        );
        assert_eq!((cli.execute.as_deref(), cli.command.as_deref()), (Some("BEGIN { }"), Some("./a")));
        assert_eq!((cli.emit, cli.debug), (Some("x.o".into()), vec![Stage::All, Stage::Bpf]));
        assert_eq!(cli.without_effect.len(), 1);
        assert!(cli.without_effect[0].starts_with("of several `-e` only the last one runs"));
        assert_eq!(read("cudatrace --mode test x.bt").test.as_deref(), Some("*"));
        assert_eq!(given("cudatrace x.ct --mode=bench --include=a.h --own=3"), ["own=3"]);
    }

    #[test]
    fn after_dashes_options_come_before_the_command() {
        let cli = read("cudatrace x.ct -- --pid=3 --all ./prog --its=own");
        assert_eq!(cli.given.len(), 2);
        assert_eq!(cli.argv, ["./prog", "--its=own"]);
        let cli = read("cudatrace x.ct -- --pid=3");
        assert_eq!((cli.given.len(), cli.argv.len()), (1, 0));
        assert_eq!(read("cudatrace x.ct -- ./prog --its=own").argv, ["./prog", "--its=own"]);
    }

    #[test]
    fn words_after_dashes_are_parameters_where_the_script_lacks_one() {
        let cli = read("cudatrace -e 'BEGIN { print(($1, $2)) }' one -- --aa=3 two --bb");
        assert_eq!((cli.words, cli.given.len(), cli.argv.len()), (vec!["one".into(), "two".into()], 2, 0));
        let cli = read("cudatrace -e 'BEGIN { print($1) }' -- 5");
        assert_eq!((cli.words, cli.argv.len()), (vec!["5".into()], 0));
        assert_eq!(read("cudatrace -e 'BEGIN { print($1) }' -- sh -c 5").argv, ["sh", "-c", "5"]);
        assert_eq!(read("cudatrace -e 'BEGIN { print($1) }' 7 -- --aa=3 two").argv, ["two"]);
        assert_eq!(read("cudatrace -e 'BEGIN { }' -- --aa=3 no-such-program").argv, ["no-such-program"]);
    }

    #[test]
    fn options_of_report_are_options_of_scripts_elsewhere() {
        assert_eq!(given("cudatrace memleak --folded -o leaks.folded"), ["folded=<none>"]);
        let parsed =
            |line: &str| parse(shell_words::split(line).unwrap().into_iter().map(OsString::from)).unwrap();
        let CommandLine { cli, matches, .. } =
            parsed("cudatrace -q report --folded leaks.folded trace.jsonl --html=a.html");
        let folded = matches.get_one::<String>("folded").map(String::as_str);
        let html = matches.get_one::<PathBuf>("html");
        assert_eq!((folded, html), (Some("leaks.folded"), Some(&"a.html".into())));
        assert_eq!((cli.words, cli.given.len()), (vec!["report".into(), "trace.jsonl".into()], 0));
        let CommandLine { cli, matches, .. } =
            parsed("cudatrace record --kernel --out dir -- ./app --out other");
        assert_eq!((matches.get_flag("kernel"), matches.get_one("out")), (true, Some(&PathBuf::from("dir"))));
        assert_eq!(cli.argv, ["./app", "--out", "other"]);
    }

    #[test]
    fn help_after_a_script_is_that_of_the_script() {
        assert!(read("cudatrace x.ct --help").script_help);
        assert!(read("cudatrace x.ct -p 42 -h").script_help);
        assert!(!read("cudatrace x.ct --verbose").script_help);
        let words = ["cudatrace", "--help"].map(OsString::from);
        assert!(parse(words.into_iter()).is_err());
    }
}
