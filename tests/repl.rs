//! The prompt, on a pseudo-terminal and on a pipe.

mod common;

use common::{Running, can_trace, example, stderr, stdout};
use rexpect::session::{PtySession, spawn_command};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};

const ALLOCATED: &str = "uprobe:libcuda:cuMemAlloc { @calls = count(); @bytes = sum(args.bytesize) }";

/// A prompt in a terminal; its history is in a separate folder.
struct Terminal {
    session: PtySession,
    _state: tempfile::TempDir,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Terminal {
        let state = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
        command.args(arguments).env("LD_LIBRARY_PATH", common::examples()).env("CUDASIM_FAST", "1");
        command.env("XDG_STATE_HOME", state.path()).env("NO_COLOR", "1").env("TERM", "xterm");
        command.env_remove("XTERM_VERSION");
        let patience = common::PATIENCE.as_millis() as u64;
        let session = spawn_command(command, Some(patience)).expect("a pseudo-terminal");
        let mut terminal = Terminal { session, _state: state };
        terminal.sees("cudatrace> ");
        terminal
    }

    fn types(&mut self, text: &str) {
        self.session.send(text).expect("it listens");
        self.session.flush().expect("it listens");
    }

    /// Sends Ctrl-C, also while there is no prompt: the kernel makes a signal of it then.
    fn interrupts(&mut self) {
        self.types("\x03");
        self.sees("stopped clauses that print");
        self.sees("cudatrace> ");
    }

    fn enters(&mut self, line: &str) {
        self.types(&format!("{line}\r"));
    }

    /// Waits until this text is shown, after the text of the previous wait.
    fn sees(&mut self, text: &str) {
        self.session.exp_string(text).unwrap_or_else(|error| panic!("waited for `{text}`: {error}"));
    }

    /// Changes the width of the window, which the kernel signals to the program.
    fn is_resized(&self, columns: u16) {
        let terminal = self.session.process().get_file_handle().expect("its terminal");
        let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the ioctl reads a `winsize`, which is valid during the call.
        let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits for the end; returns the status.
    fn ends(self) -> i32 {
        // The type of a status cannot be named here: `Exited(Pid(42), 0)`.
        let ended = format!("{:?}", self.session.process().wait().expect("it ends"));
        let status =
            ended.strip_prefix("Exited").and_then(|rest| rest.trim_end_matches(')').rsplit(' ').next());
        status.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{ended}"))
    }
}

fn workload() -> String {
    format!("{} --threads 1 --no-errors", example("workload_driver"))
}

#[test]
fn clauses_are_attached_beside_each_other_and_print_at_the_end() {
    if !can_trace() {
        return;
    }
    // A command selects its own program, so that those of other tests are not traced.
    let mut terminal = Terminal::start(&["repl", "-c", "true"]);
    terminal.enters(ALLOCATED);
    terminal.sees("clause 1: 1 attach point");
    terminal.enters("uprobe:libcuda:cuMemFree { @frees = count() }");
    terminal.sees("clause 2: 1 attach point");
    terminal.enters(&format!(":run {}", workload()));
    terminal.sees("has ended");
    terminal.enters(":show @calls");
    terminal.sees("@calls: 16");
    terminal.enters(":drop 1");
    terminal.enters(":list");
    terminal.sees("2  uprobe:libcuda:cuMemFree { @frees = count() }  // 1 attach point");
    terminal.enters(":run");
    terminal.sees("has ended");
    terminal.types("\x04");
    terminal.sees("@calls: 16");
    terminal.sees("@frees: 32");
    assert_eq!(terminal.ends(), 0);
}

/// One line is one clause, whatever it expands to: for layouts of arguments, or for recording names of GPU
/// kernels.
#[test]
fn a_clause_that_expands_is_one() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved.ct");
    let typed = [
        "cuda:memcpy / args.result == CUDA_SUCCESS / { @copies[args.direction] = count() }",
        "cuda:launch { @launches[kernel_name(args.kernel)] = count() }",
    ];
    let commands = format!(
        "{}\n:list\n:run\n:wait\n:maps\n:save {}\n:drop 1-2\n:list\n",
        typed.join("\n"),
        path.display()
    );
    let output = piped(&["-c", &workload()], &commands);
    let shown = stdout(&output);
    assert_eq!(shown.lines().filter(|line| line.contains("  // ")).count(), 2, "{shown}");
    assert!(shown.contains("  1  cuda:memcpy") && shown.contains("  2  cuda:launch"), "{shown}");
    assert!(shown.contains("@copies: ") && !shown.contains("@__"), "{shown}");
    assert!(shown.contains("no clauses yet"), "{shown}");
    assert_eq!(std::fs::read_to_string(&path).expect("it was saved"), typed.join("\n") + "\n");
    let mut saved = common::cudatrace();
    saved.arg(&path).arg("--").args(workload().split(' '));
    let again = stdout(&saved.output().expect("it runs"));
    for line in shown.lines().filter(|line| line.starts_with("@copies[") || line.starts_with("@launches[")) {
        assert!(again.contains(line), "{line}: {again}");
    }
}

#[test]
fn statements_run_at_once_and_a_map_is_shown_by_its_name() {
    if !can_trace() {
        return;
    }
    let typed = "BEGIN {\n    @a[3] = 4\n    }\n@a\n@a[3] + 1\n@b = 7\nprint(@b)\nclear(@a)\nnowhere + 1\nls\n:list\n";
    let output = piped(&[], typed);
    let shown = stdout(&output);
    let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
    let clause = ["  1  BEGIN {", "         @a[3] = 4;", "     }  // 1 attach point"];
    let expected = [&["@a[3]: 4", "5", "@b: 7"], &clause[..], &["@b: 7"]].concat();
    assert_eq!(lines, expected, "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(messages.contains(" | nowhere + 1\n") && !messages.contains("print(("), "{messages}");
    assert!(messages.contains("no command `:ls`; `:help` lists them"), "{messages}");
}

#[test]
fn a_line_is_typed_while_output_comes() {
    if !can_trace() {
        return;
    }
    let mut terminal = Terminal::start(&[]);
    terminal.enters("interval:ms:20 { @n++; printf(\"tick %d\\n\", @n) }");
    terminal.sees("tick 2\r\n");
    terminal.types("BEGIN { printf(\"half ");
    terminal.sees("tick 10\r\n");
    terminal.types("and half\\n\") }\r");
    terminal.sees("half and half\r\n");
    terminal.types("\x03");
    terminal.sees("stopped clauses that print: 1, 2");
    terminal.enters(":resume 1");
    terminal.sees("clause 1: 1 attach point");
    terminal.sees("tick");
    terminal.enters("BEGIN { exit(3) }");
    terminal.sees("@n: ");
    assert_eq!(terminal.ends(), 3);
}

#[test]
fn an_open_brace_continues_and_tab_completes() {
    if !can_trace() {
        return;
    }
    let mut terminal = Terminal::start(&["repl", "-c", "true"]);
    terminal.enters("uprobe:libcuda:cuMemAlloc_v\t {");
    terminal.sees("... (an empty line ends it)");
    terminal.enters("@bytes = sum(args.by\t)");
    terminal.enters("}");
    terminal.sees("clause 1: 1 attach point");
    terminal.types("BEGIN { print(1");
    terminal.types("\x03");
    terminal.enters(":show @by\t");
    terminal.sees("@bytes: ");
    terminal.enters(":lsit");
    terminal.sees("did you mean `:list`?");
    terminal.enters("uprobe:libcuda:cuMemAlocc { @x = count() }");
    terminal.sees("did you mean `cuMemAlloc`");
    terminal.enters("help cuLaunchKernel");
    terminal.sees("args.gridDimX");
    terminal.enters("quit");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_map_is_watched_and_a_dropped_clause_has_its_end() {
    if !can_trace() {
        return;
    }
    let mut terminal = Terminal::start(&["-i", "-q", "-e", "interval:ms:50 { @n = count() }"]);
    terminal.enters("END { printf(\"dropped\\n\") }");
    terminal.enters(":drop 2");
    terminal.sees("dropped\r\n");
    terminal.enters(":watch @n");
    terminal.sees("@n: ");
    terminal.enters(":maps");
    terminal.sees("@n: 1 key");
    terminal.types("\x04");
    terminal.sees("@n: ");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn the_process_is_chosen_while_it_runs() {
    if !can_trace() {
        return;
    }
    let endless = ["--function", "push", "--threads", "1", "--calls", "1000000000000"];
    let start = || Running::start(Command::new(example("hammer")).args(endless));
    let (mut one, mut other) = (start(), start());
    let mut terminal = Terminal::start(&["repl", "-p", &one.pid().to_string()]);
    let library = example("libhammer.so");
    terminal.enters(&format!("uprobe:{library}:hammer_push {{ @[pid] = count() }}"));
    terminal.sees("clause 1: 1 attach point");
    terminal.enters(":pid");
    terminal.sees(&format!("process {}", one.pid()));
    terminal.enters(&format!(":pid {}", other.pid()));
    terminal.enters(":clear @");
    terminal.enters(":watch @");
    terminal.sees(&format!("@[{}]: ", other.pid()));
    other.signal(libc::SIGKILL);
    terminal.sees(&format!("process {} has ended", other.pid()));
    assert!(one.runs() && !other.runs());
    // Ends `:watch`, which says nothing; the line editor reads the next key when it has begun again.
    terminal.types("\x03");
    terminal.sees("\x1b[?2004l");
    terminal.sees("cudatrace> ");
    terminal.types("\x04");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_signal_of_ctrl_c_stops_clauses_that_print() {
    if !can_trace() {
        return;
    }
    let mut terminal = Terminal::start(&[]);
    terminal.enters("interval:ms:50 { printf(\"%s!\\n\", \"tick\") }");
    terminal.sees("tick!");
    let master = terminal.session.process().get_file_handle().expect("its terminal");
    // SAFETY: the signal goes to the program that runs in the terminal.
    assert_eq!(unsafe { libc::kill(-libc::tcgetpgrp(master.as_raw_fd()), libc::SIGINT) }, 0);
    terminal.sees("stopped clauses that print: 1");
    terminal.enters("quit");
    assert_eq!(terminal.ends(), 0);
}

fn piped(arguments: &[&str], commands: &str) -> Output {
    let mut command = common::cudatrace();
    command.arg("repl").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cudatrace");
    child.stdin.take().expect("piped").write_all(commands.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_pipe_of_commands_runs_to_its_end() {
    if !can_trace() {
        return;
    }
    let commands = format!("{ALLOCATED}\n:run {}\n:wait\n:show @calls\n:clear @calls\n", workload());
    let output = piped(&["-c", "true"], &commands);
    let text = stdout(&output);
    assert!(text.contains("@calls: 16\n") && text.contains("@bytes: 184336\n"), "{text}");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn records_of_a_gpu_come_of_a_program_that_runs_already_and_of_one_that_is_started() {
    if !can_trace() {
        return;
    }
    let workload = example("workload_gpu");
    let mut terminal = Terminal::start(&[]);
    terminal.enters("gpu:kernel { @kernels = count() }");
    terminal.sees("`:run COMMAND` starts");
    let mut running = Running::start(Command::new(&workload).args(["--seconds", "60"]));
    terminal.enters(&format!(":pid {}", running.pid()));
    let sees_records = |terminal: &mut Terminal, script: &str| {
        terminal.enters(&format!("interval:ms:100 {script}"));
        terminal.sees("records!");
        terminal.interrupts();
    };
    sees_records(&mut terminal, "{ if ((uint64)@kernels > 100) { printf(\"%s!\\n\", \"records\") } }");
    // Another kind of records: the agent is loaded again.
    terminal.enters("gpu:memcpy { @copies[tid == pid] = count() }");
    sees_records(&mut terminal, "{ if (len(@copies) > 0) { printf(\"%s!\\n\", \"records\") } }");
    assert!(running.runs());
    drop(running);
    terminal.sees("has ended");
    terminal.enters(":clear @kernels");
    terminal.enters(&format!(":run {workload} --kernels 10 --graphs 0 --rounds 7"));
    terminal.enters(":wait");
    terminal.sees("has ended with status 0");
    terminal.enters("quit");
    // Ten of each round, and one of the graph.
    terminal.sees("@kernels: 71");
    terminal.sees("GPU times are exact");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn the_end_does_not_wait_for_single_uprobes_that_were_dropped() {
    if !can_trace() {
        return;
    }
    // The kernel takes 100 ms for each of 179 events.
    let start = std::time::Instant::now();
    let output =
        piped(&["--no-feature", "uprobe_multi"], "uprobe:libcuda:cuMem* { @ = count() }\n:drop 1\n:quit\n");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(start.elapsed() < std::time::Duration::from_secs(9), "{:?}", start.elapsed());
}

#[test]
fn a_program_on_the_command_line_is_run_when_the_pipe_has_ended() {
    if !can_trace() {
        return;
    }
    let output = piped(&["-c", &workload()], "#define ONE 1\nuprobe:libcuda:cuMemAlloc {\n  @n += ONE\n}\n");
    assert!(stdout(&output).ends_with("@n: 16\n"), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn output_of_clauses_is_exported() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spans.jsonl");
    let export = format!("jsonl={}", file.display());
    let commands = "uretprobe:libcuda:cuMemAlloc { span(bytes = args.bytesize) }\n:run\n:wait\n";
    // The command selects the program from the start, so that calls of other tests are not traced.
    let output = piped(&["--export", &export, "-c", &workload()], commands);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(text.lines().filter(|line| line.contains(r#""type":"span""#)).count(), 16, "{text}");
}

#[test]
fn mistakes_in_a_pipe_are_reported_and_the_rest_runs() {
    if !can_trace() {
        return;
    }
    let output = piped(&[], "BEGIN { @a = 1 }\nBEGIN { @a = \"text\" }\n:drop 7\nBEGIN { @b = @a + 1 }\n");
    let told = stderr(&output);
    assert!(told.contains("repl:2:14") && told.contains("no clause 7"), "{told}");
    assert!(stdout(&output).contains("@a: 1\n@b: 2\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn statements_see_what_was_imported() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("macros.ct");
    std::fs::write(&file, "macro twice(x) { x * 2 }\n").expect("written");
    let typed = format!("import \"{}\";\nprint(twice(4))\ntwice(5) + 0\n", file.display());
    let output = piped(&[], &typed);
    assert_eq!((stdout(&output).trim(), stderr(&output).trim()), ("8\n10", ""));
}

#[test]
fn a_session_is_saved_and_loaded() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("saved.ct");
    let path = file.to_str().expect("UTF-8");
    let typed =
        "#define TWO 2\nBEGIN { @a = TWO }\nBEGIN { @b = 1 }\nEND { printf(\"end %d\\n\", @a) }\n:drop 2\n";
    assert_eq!(piped(&[], &format!("{typed}:save {path}\n")).status.code(), Some(0));
    let saved = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(saved, "#define TWO 2\nBEGIN { @a = TWO }\nEND { printf(\"end %d\\n\", @a) }\n");
    let output = piped(&[], &format!(":load {path}\n:list\n"));
    assert!(stdout(&output).contains("  2  END {"), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("end 2\n") && stdout(&output).ends_with("@a: 2\n"),
        "{}",
        stdout(&output)
    );
}

/// The command, input and output of the session in the manual.
fn session_of_the_manual() -> (Vec<String>, String, Vec<String>) {
    let manual = include_str!("../docs/repl.md");
    let (_, rest) = manual.split_once("```console\n$ sudo cudatrace ").expect("a session");
    let (session, _) = rest.split_once("```").expect("its end");
    let (started, session) = session.split_once('\n').expect("lines");
    let (mut typed, mut shown, mut open) = (String::new(), Vec::new(), 0);
    // Text before the first prompt is only printed on a terminal.
    for line in session.lines().skip_while(|line| !line.starts_with("cudatrace> ")) {
        let entered = line.strip_prefix("cudatrace> ").or((open > 0).then_some(line));
        let Some(entered) = entered else {
            shown.push(line.to_owned());
            continue;
        };
        open += entered.matches('{').count() as i32 - entered.matches('}').count() as i32;
        typed += &format!("{entered}\n");
        if entered == ":run" {
            typed += ":wait\n";
        }
    }
    (shell_words::split(started).expect("quotes are closed"), typed, shown)
}

/// The lines without process ids and empty lines.
fn comparable<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let without_pid = |line: &str| match line.split_once(" has ended") {
        Some((_, how)) => format!("process has ended{how}"),
        None => line.to_owned(),
    };
    lines.filter(|line| !line.is_empty()).map(without_pid).collect()
}

#[test]
fn the_session_of_the_manual_is_shown_as_it_is() {
    if !can_trace() {
        return;
    }
    let (arguments, typed, shown) = session_of_the_manual();
    let folder = tempfile::tempdir().expect("a folder");
    let path = std::env::join_paths([common::examples(), "/usr/bin".into(), "/bin".into()]).expect("a path");
    let (mut output, to_output) = std::io::pipe().expect("a pipe");
    let mut command = common::cudatrace();
    command.args(arguments).current_dir(&folder).env("PATH", path).stdin(Stdio::piped());
    command.stderr(to_output.try_clone().expect("a descriptor")).stdout(to_output);
    let mut child = command.spawn().expect("cudatrace");
    // The command has copies of the output descriptors, which must be closed.
    drop(command);
    child.stdin.take().expect("piped").write_all(typed.as_bytes()).expect("it reads");
    let mut said = String::new();
    output.read_to_string(&mut said).expect("UTF-8");
    child.wait().expect("it ends");
    assert_eq!(comparable(said.lines()), comparable(shown.iter().map(String::as_str)), "{said}");
    let saved = std::fs::read_to_string(folder.path().join("launches.ct")).expect("it was saved");
    assert!(saved.starts_with("uretprobe:libcuda:cuLaunchKernel {") && saved.lines().count() == 5, "{saved}");
}

#[test]
fn a_shell_command_and_a_lost_bracket_are_answered_at_once() {
    if !can_trace() {
        return;
    }
    let output = piped(&[], "!ls -l\nBEGIN { printf(\"%d\", (1 + 2; }\n:find allo\n:quit\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("this is no shell; `:run ls -l` starts a program and traces it"), "{said}");
    assert!(
        said.contains("this `(` is not closed") && said.contains("the statement ends before it is closed"),
        "{said}"
    );
    let found = stdout(&output);
    assert!(found.contains("cuda:alloc\n    ") && found.contains("cudart:alloc\n    "), "{found}");
}

#[test]
fn the_manual_has_every_command() {
    let manual = include_str!("../docs/repl.md");
    if !can_trace() {
        return;
    }
    // Descriptions are wrapped beside the names.
    let help = stdout(&piped(&[], ":help\n")).replace(&format!("\n{}", " ".repeat(32)), " ");
    let commands: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  :")).collect();
    assert!(commands.len() > 10, "{help}");
    for (usage, doc) in commands.iter().filter_map(|line| line.split_once("  ")) {
        let entry = format!("\n:{}\n    {}\n", usage.trim_end(), doc.trim_start());
        assert!(manual.contains(&entry), "docs/repl.md lacks{entry}");
    }
}

#[test]
fn a_line_that_wraps_anew_when_the_window_changes_is_taken_away_as_a_whole() {
    if !can_trace() {
        return;
    }
    let mut terminal = Terminal::start(&[]);
    terminal.is_resized(100);
    let clause = format!("uprobe:libc:malloc {{ @{} = count() }}", "a".repeat(40));
    terminal.types(&clause);
    terminal.sees("count() }");
    // The text has 86 columns with the prompt: at 40 columns it ends in the third row, at 100 in the first.
    terminal.is_resized(40);
    terminal.sees("\x1b[2A\r\x1b[J");
    terminal.sees("count() }");
    terminal.is_resized(100);
    terminal.sees("\r\x1b[J\r\n\r\n");
    terminal.sees("count() }");
    // Ctrl-C clears a line that is not empty.
    terminal.types("\x03");
    terminal.sees("cudatrace> ");
    terminal.types("\x04");
    assert_eq!(terminal.ends(), 0);
}
