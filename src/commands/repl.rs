//! `cudatrace repl`: the prompt, also with a target. `cudatrace` alone opens it, too.

use crate::repl;
use crate::subcommand::Subcommand;

/// `cudatrace repl`
pub const SUBCOMMAND: Subcommand = Subcommand {
    summary: Some(("repl [-p PID | -- COMMAND]", "a prompt: clauses are attached as they are typed")),
    examples: "Examples:\n  cudatrace repl -p 4242\n  cudatrace repl -- python3 train.py\n\
               `:help` lists the commands of the prompt, Ctrl-D ends it.",
    options: &[
        "pids",
        "no_children",
        "command",
        "wait",
        "export",
        "rotate",
        "trace_per",
        "fail_on_loss",
        "quiet",
        "verbose",
        "user",
        "libs",
        "debuginfo",
        "argv",
    ],
    hidden_options: &["in_process", "in_kernel", "no_feature", "output", "format"],
    ..Subcommand::new("repl", "Opens a prompt", "cudatrace repl [-p PID | -- COMMAND]", |invocation| {
        repl::run(invocation.cli, invocation.messages)
    })
};
