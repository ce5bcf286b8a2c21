//! The target of the session: the whole machine, running processes, or a program that it starts itself.

use super::session::{Program, Repl};
use crate::run::command::start_held;
use crate::run::compiler::{Compiler, CompilerInputs};
use crate::run::late_files::HeldMappings;
use crate::run::unwinder::walks_stacks;
use crate::run::{exit_status, setup};
use crate::script::Script;
use anyhow::{Context, Result, anyhow, bail};
use host::Scope;
use linux::proc;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use runtime::started::{Child, Command, MappingScope};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use wire::manifest::PIDS_MAP;

/// Number of the script that follows forks, when processes are selected.
const FOLLOWER: u32 = u32::MAX;

impl Program {
    /// The program of `-c`, not started yet.
    pub fn named(argv: Option<Vec<OsString>>) -> Program {
        Program { argv: RefCell::new(argv), ..Program::default() }
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&self) -> bool {
        self.child.borrow().is_some()
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.borrow().as_ref().map(Child::pid)
    }

    /// Whether there is a program that was never started.
    pub fn is_due(&self) -> bool {
        self.argv.borrow().is_some() && !self.started.get()
    }

    /// Description of what is traced.
    pub fn target(&self, repl: &Repl) -> String {
        let scope = repl.machine.scope();
        match (&scope.command, self.child.borrow().as_ref()) {
            (Some(argv), Some(child)) => format!("`{}`, process {}", shown(argv), child.pid()),
            (Some(argv), None) => format!("`{}`, which is not running", shown(argv)),
            (None, _) if scope.pids.is_empty() => "all processes".into(),
            (None, _) => {
                let name = |pid: &u32| match proc::comm(*pid) {
                    Some(comm) => format!("{pid} ({})", comm.escape_debug()),
                    None => pid.to_string(),
                };
                let pids: Vec<String> = scope.pids.iter().map(name).collect();
                format!("process {}", pids.join(", "))
            }
        }
    }

    /// Starts a program, or the last one again, and traces only that one.
    pub fn start<'a>(&self, repl: &Rc<Repl<'a>>, session: &mut Session, argv: Vec<OsString>) -> Result<()> {
        if let Some(child) = self.child.borrow().as_ref() {
            bail!("process {} is still running: `:stop` ends it, `:wait` waits for it", child.pid());
        }
        let last = self.argv.borrow().clone();
        let argv = if argv.is_empty() {
            last.ok_or_else(|| anyhow!("which program? `:run COMMAND`"))?
        } else {
            argv
        };
        self.retarget(repl, session, Vec::new(), Some(argv.clone()))?;
        let command = Command {
            argv: argv.clone(),
            environment: [repl.cli.environment.clone(), repl.gpu.environment(repl.messages)].concat(),
            user: repl.cli.user.clone(),
            watch_ends: true,
            reported: if walks_stacks(session.manifest()) { MappingScope::Fixed } else { MappingScope::New },
            captured: true,
            ..Command::default()
        };
        let mut child = start_held(repl.machine, command, repl.messages)?;
        session.trace_child(child.pid())?;
        repl.gpu.started(child.pid());
        let mappings = child.mappings.take();
        if let Some(output) = child.output.take() {
            let output = Rc::new(output);
            *self.output.borrow_mut() = Some(Rc::clone(&output));
            self.join(repl, Box::new(OutputWatch { repl: Rc::clone(repl), output }));
        }
        if let Some(mappings) = mappings {
            self.join(repl, Box::new(HeldMappings::new(mappings, repl.extender)));
        }
        child.release()?;
        repl.extender.unwinder().inspect(|unwinder| unwinder.read_mappings(child.pid()));
        let ended = EndWatch {
            repl: Rc::clone(repl),
            process: child.pidfd().try_clone_to_owned()?,
            pid: child.pid(),
        };
        self.join(repl, Box::new(ended));
        *self.child.borrow_mut() = Some(child);
        *self.argv.borrow_mut() = Some(argv);
        self.started.set(true);
        Ok(())
    }

    fn join<'a>(&self, repl: &Repl<'a>, watch: Box<dyn Watch + 'a>) {
        repl.joining.borrow_mut().push(watch);
    }

    /// Traces only these processes and their children.
    pub fn trace_pids(&self, repl: &Rc<Repl>, session: &mut Session, pids: Vec<u32>) -> Result<()> {
        pids.iter().try_for_each(|&pid| setup::check_process(pid))?;
        let all = setup::family(repl.cli, &pids);
        self.retarget(repl, session, all.clone(), None)?;
        all.iter().try_for_each(|pid| session.trace_pid(*pid))?;
        repl.extender.unwinder().inspect(|unwinder| unwinder.start_with(&all));
        repl.gpu.retarget(session, &pids)?;
        self.watch_pids(repl, &pids)
    }

    /// Reports the end of these processes.
    pub fn watch_pids(&self, repl: &Rc<Repl>, pids: &[u32]) -> Result<()> {
        for &pid in pids {
            let process = linux::pidfd::open(pid).with_context(|| format!("process {pid}"))?;
            self.join(repl, Box::new(EndWatch { repl: Rc::clone(repl), process, pid }));
        }
        Ok(())
    }

    /// Traces all processes.
    pub fn trace_all(&self, repl: &Rc<Repl>, session: &mut Session) -> Result<()> {
        self.retarget(repl, session, Vec::new(), None)
    }

    /// Changes the traced processes. Clauses depend on them, so all are attached again.
    fn retarget(
        &self,
        repl: &Repl,
        session: &mut Session,
        pids: Vec<u32>,
        command: Option<Vec<OsString>>,
    ) -> Result<()> {
        let before = repl.machine.scope();
        session.untrace_all()?;
        if before.pids == pids && before.command == command {
            return Ok(());
        }
        repl.machine.set_scope(Scope { pids, command, ..Scope::clone(&before) });
        repl.follow_forks(session)?;
        repl.clauses.again(repl, session);
        Ok(())
    }

    /// Sends the program a signal to end.
    pub fn stop(&self) -> Result<()> {
        match self.child.borrow().as_ref() {
            Some(child) => child.terminate(),
            None => bail!("no program is running; `:run COMMAND` starts one"),
        }
        Ok(())
    }

    /// Reports how the process ended, and continues commands that wait for it.
    fn ended(&self, repl: &Repl, pid: u32, process: &OwnedFd) -> Next {
        let ours = self.child.borrow_mut().take_if(|child| child.pid() == pid);
        let Some(mut child) = ours else {
            let how = linux::exit_status::of(pid, process).map_or(String::new(), exit_status::in_words);
            repl.messages.note(&format!("process {pid} has ended{how}"));
            return Next::Remove;
        };
        if let Some(output) = self.output.take() {
            while is_readable(&output) && copy(repl, &output).is_ok_and(|length| length > 0) {}
        }
        let how = match child.wait() {
            Ok(status) => exit_status::in_words(status),
            Err(error) => format!("; its status is lost: {error}"),
        };
        repl.messages.note(&format!("process {pid} has ended{how}"));
        repl.program_ended()
    }
}

impl Repl<'_> {
    /// Follows the children of traced processes, if processes are selected.
    fn follow_forks(&self, session: &mut Session) -> Result<()> {
        let follows = session.manifest().internal_maps.iter().any(|map| map == PIDS_MAP);
        if follows || self.machine.scope().is_system_wide() {
            return Ok(());
        }
        let mut follower = Compiler::new(
            Script::empty("repl"),
            CompilerInputs { machine: self.machine, cli: self.cli, messages: self.messages },
        );
        follower.front(self.scripts.session_state())?;
        self.scripts.add(session, FOLLOWER, follower).map(drop)
    }

    fn program_ended(&self) -> Next {
        if self.ending.get() {
            return Next::Stop;
        }
        if self.waiting.replace(false) {
            self.inputs.done();
        }
        Next::Remove
    }
}

fn shown(argv: &[OsString]) -> String {
    let words = argv.iter().map(|word| word.to_string_lossy());
    shell_words::join(words)
}

/// Watches for the end of a process.
struct EndWatch<'a> {
    repl: Rc<Repl<'a>>,
    process: OwnedFd,
    pid: u32,
}

impl Watch for EndWatch<'_> {
    fn fd(&self) -> RawFd {
        self.process.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        self.repl.program.ended(&self.repl, self.pid, &self.process)
    }
}

/// Copies the output of the program to the session's output.
struct OutputWatch<'a> {
    repl: Rc<Repl<'a>>,
    output: Rc<PipeReader>,
}

impl Watch for OutputWatch<'_> {
    fn fd(&self) -> RawFd {
        self.output.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        match copy(&self.repl, &self.output) {
            Ok(0) => Next::Remove,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Next::Remove,
            _ => Next::Continue,
        }
    }
}

/// Copies the available output; returns its size.
fn copy(repl: &Repl, mut output: &PipeReader) -> io::Result<usize> {
    let mut text = [0; 16 * 1024];
    let length = output.read(&mut text)?;
    repl.write(&text[..length]);
    Ok(length)
}

/// Whether there is output to read. Children of the program may keep its pipe open, so there may be neither output
/// nor an end.
fn is_readable(output: &PipeReader) -> bool {
    let mut fd = libc::pollfd { fd: output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which lives.
    unsafe { libc::poll(&mut fd, 1, 0) > 0 }
}
