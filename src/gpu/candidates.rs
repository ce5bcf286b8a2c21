//! The processes that are made to load the agent: those of `-p` and their children, and children of the command that do not load it themselves.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;

use linux::proc::{self, Program, seccomp};
use report::value::escape;
use runtime::gpu::AgentFile;

use super::cupti::{self, DRIVER};
use super::reports::Reports;
use crate::console::Messages;

/// The driver loads this file.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Libraries with NVTX load this file at their first call.
pub const RANGES: &str = "NVTX_INJECTION64_PATH";

/// Largest number of programs that are kept because they are not expected.
const STRANGERS: usize = 1024;

/// The processes in question.
pub struct Candidates<'a> {
    file: &'a AgentFile,
    in_process: bool,
    /// Processes of `-p`, and the started command.
    pids: Vec<u32>,
    command: Option<u32>,
    /// Programs that have loaded the agent, or cannot.
    tried: BTreeSet<Program>,
    /// Programs that had not loaded the driver, with the size of what they had mapped then.
    without_driver: HashMap<Program, u64>,
    /// Processes whose agent was asked to end, and is loaded again then.
    again: BTreeSet<u32>,
    /// Pid and start time of processes that were in the tree of the traced ones: daemons leave it.
    family: BTreeSet<(u32, u64)>,
    /// Programs whose agents are not expected: they may connect again and again.
    strangers: BTreeSet<Program>,
    /// The next search is the first one in these processes.
    is_first: bool,
}

/// A process that is to be made to load the agent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub pid: u32,
    /// True for a child of the command that has lost the variables.
    pub is_started: bool,
    /// True if it has loaded the driver since the trace began.
    pub is_new: bool,
    /// True if it had initialised CUDA by then, as far as that is seen from outside.
    pub uses_cuda: bool,
}

/// Result of a look at a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The process has not loaded the driver.
    NoDriver,
    /// The process has ended.
    Ended,
    /// There is nothing to do, any more or at all.
    Nothing,
    /// The process is to be made to load the agent.
    Load(Candidate),
}

impl Look {
    /// The process that is to load the agent.
    pub fn found(self) -> Option<Candidate> {
        match self {
            Look::Load(found) => Some(found),
            Look::NoDriver | Look::Ended | Look::Nothing => None,
        }
    }
}

/// How a process gets the agent.
#[derive(PartialEq, Eq)]
enum InjectionPlan {
    /// Not needed yet: the process has not loaded the driver.
    NotNeeded,
    /// The driver loads the agent; or it needs none.
    ByDriver,
    /// The process is made to load the agent.
    ByTracer,
    /// Not at all, for this reason.
    Refused(String),
}

impl<'a> Candidates<'a> {
    /// No processes yet. `in_process`: programs run in them.
    pub fn new(file: &'a AgentFile, in_process: bool) -> Candidates<'a> {
        let (pids, tried, without_driver, again, family, strangers) = Default::default();
        Candidates {
            file,
            in_process,
            pids,
            command: None,
            tried,
            without_driver,
            again,
            family,
            strangers,
            is_first: true,
        }
    }

    /// Looks in these processes of `-p`, the command, and their children from now on; returns all of them.
    pub fn choose(&mut self, pids: &[u32], command: Option<u32>) -> Vec<u32> {
        self.pids = pids.to_vec();
        self.command = command;
        self.is_first = true;
        self.family.clear();
        self.strangers.clear();
        proc::with_descendants(&self.roots())
    }

    fn roots(&self) -> Vec<u32> {
        self.pids.iter().copied().chain(self.command).collect()
    }

    /// Whether the agent of a process is expected to connect: it is in the tree of the traced ones, or was, or it was started with the
    /// variable that names the agent. A process can claim the latter, but has to prove it.
    pub fn expects(&mut self, program: Program) -> bool {
        if self.strangers.contains(&program) {
            return false;
        }
        let is_expected = proc::descends_from(program.pid, &self.roots())
            || self.family.contains(&(program.pid, program.started()))
            || self.is_named_in(&proc::environment(program.pid));
        if !is_expected && self.strangers.len() < STRANGERS {
            self.strangers.insert(program);
        }
        is_expected
    }

    /// Whether the user has named a process, which must have an agent.
    pub fn must_have(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    /// A process has loaded the agent.
    pub fn has_agent(&mut self, pid: u32) {
        self.tried.extend(Program::of(pid));
    }

    /// A process is looked at again at the next search.
    pub fn try_again(&mut self, pid: u32) {
        self.tried.retain(|program| program.pid != pid);
    }

    /// The agents of these processes were asked to end, and are loaded again then.
    pub fn load_again<'p>(&mut self, pids: impl Iterator<Item = &'p u32>) {
        self.again.extend(pids);
    }

    /// The agent of a process has ended.
    pub fn has_lost_agent(&mut self, pid: u32) {
        if self.again.contains(&pid) {
            self.try_again(pid);
        }
    }

    /// Programs that are to be loaded into.
    pub fn find(&mut self, reports: &Reports, messages: &Messages) -> Vec<Candidate> {
        let started = proc::with_descendants(self.command.as_slice());
        let others = proc::with_descendants(&self.pids).into_iter().filter(|pid| !started.contains(pid));
        let all: Vec<u32> = started.iter().copied().chain(others).collect();
        self.tried.retain(|program| all.contains(&program.pid));
        self.without_driver.retain(|program, _| all.contains(&program.pid));
        self.family.retain(|(pid, started)| proc::started(*pid) == Some(*started));
        let programs = all.into_iter().filter_map(Program::of);
        let looked = programs
            .map(|program| self.look_into(program, started.contains(&program.pid), reports, messages));
        let found = looked.filter_map(Look::found).collect();
        self.is_first = false;
        found
    }

    /// Looks at one process of the tree of the traced ones.
    pub fn look_at(&mut self, pid: u32, reports: &Reports, messages: &Messages) -> Look {
        let Some(program) = Program::of(pid) else { return Look::Ended };
        // A process that nobody has waited for yet. One whose first thread alone has ended still has others.
        if !program.has_memory() && proc::threads(pid).map_or(0, |threads| threads.len()) < 2 {
            return Look::Ended;
        }
        let is_started = proc::descends_from(pid, self.command.as_slice());
        if !is_started && !proc::descends_from(pid, &self.pids) {
            return Look::Nothing;
        }
        self.look_into(program, is_started, reports, messages)
    }

    fn look_into(
        &mut self,
        program: Program,
        is_started: bool,
        reports: &Reports,
        messages: &Messages,
    ) -> Look {
        let pid = program.pid;
        self.family.insert((pid, program.started()));
        if self.tried.contains(&program) {
            return Look::Nothing;
        }
        let pages = proc::mapped_pages(pid);
        if pages.is_some() && self.without_driver.get(&program).copied() == pages {
            return Look::NoDriver;
        }
        let is_again = self.again.contains(&pid);
        let is_started = is_started && !is_again;
        let way = self.way_into(program, is_started, messages);
        if way == InjectionPlan::NotNeeded {
            self.without_driver.extend(pages.map(|pages| (program, pages)));
            return Look::NoDriver;
        }
        self.tried.insert(program);
        match way {
            InjectionPlan::NotNeeded | InjectionPlan::ByDriver => Look::Nothing,
            InjectionPlan::ByTracer => {
                let is_new = !self.is_first && !is_again;
                Look::Load(Candidate { pid, is_started, is_new, uses_cuda: uses_cuda(pid) })
            }
            InjectionPlan::Refused(why) => {
                reports.explain(pid, &why, messages);
                Look::Nothing
            }
        }
    }

    /// How a process gets the agent. `is_started`: it is the command or a child of it, whose environment has the variables, unless they
    /// were removed.
    fn way_into(&self, program: Program, is_started: bool, messages: &Messages) -> InjectionPlan {
        let pid = program.pid;
        let environment = if is_started { proc::environment(pid) } else { HashMap::new() };
        let injected = environment.get(OsStr::new(INJECTION)).filter(|path| !path.is_empty());
        let is_named = self.is_named_in(&environment);
        let is_alone = is_named && !(proc::shares_network_and_pids(pid) && can_open(pid, self.file));
        if injected.is_some() && is_named && !is_alone {
            return InjectionPlan::ByDriver;
        }
        if !has_driver(pid) {
            return InjectionPlan::NotNeeded;
        }
        if let Some(parent) = program.forked_from().filter(|_| !self.must_have(pid)) {
            // The process has the memory of its parent until it executes a program. The tracer itself has the driver where NVML uses it.
            if parent == std::process::id() || proc::share_memory(pid, parent) {
                return InjectionPlan::NotNeeded;
            }
            if uses_cuda(parent) {
                messages.detail(|| {
                    format!("process {pid} is a fork of {parent}, which uses CUDA, and gets no agent")
                });
                return InjectionPlan::ByDriver;
            }
        }
        match injected.filter(|_| !is_named) {
            Some(other) => InjectionPlan::Refused(format!(
                "its {INJECTION} names another tool, `{}`; `-p {pid}` reads them beside it",
                escape(other.as_encoded_bytes())
            )),
            None if is_alone && self.in_process => {
                InjectionPlan::Refused("it has other namespaces, fewer rights or another user than cudatrace, and cannot open the library that reads them; without `--in-process` cudatrace passes it on".to_owned())
            }
            None if is_started && self.in_process => {
                InjectionPlan::Refused(format!("it was started without {INJECTION}, which `--in-process` needs"))
            }
            None if is_started && is_filtered(pid) => InjectionPlan::Refused(format!(
                "it was started without {INJECTION}, and its seccomp filter could stop the library that reads them"
            )),
            None => InjectionPlan::ByTracer,
        }
    }

    /// Whether the driver finds the agent's path in an environment, or the agent of another tracer, which was named in its place.
    fn is_named_in(&self, environment: &HashMap<OsString, OsString>) -> bool {
        let path = self.file.path();
        environment.iter().any(|(name, value)| name != RANGES && *value == *path)
    }
}

/// Whether a process can open the agent's file by its path: it sees it, and is one of the user who may.
fn can_open(pid: u32, file: &AgentFile) -> bool {
    let seen = fs::metadata(proc::open_path(pid, &file.path()));
    let may = proc::file_user(pid).is_some_and(|user| file.is_for(user));
    let may = may && (file.is_on_disk() || proc::may_inspect_this_one(pid));
    may && seen.is_ok_and(|seen| file.is(&seen))
}

/// Whether a process has initialised CUDA. Driver 580 maps registers of the GPU then, which NVML does not do, though it opens the same devices.
fn uses_cuda(pid: u32) -> bool {
    proc::mappings(pid).iter().filter_map(|mapping| mapping.name.path()?.to_str()).any(is_gpu)
}

/// Whether a file is the device of one GPU: `/dev/nvidia0`.
fn is_gpu(path: &str) -> bool {
    path.strip_prefix("/dev/nvidia")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a process has further seccomp filters than that of the tracer for what it starts.
fn is_filtered(pid: u32) -> bool {
    seccomp::is_filtered(pid, pid, seccomp::own_filters() + 1).unwrap_or(false)
}

/// Whether a process has loaded CUDA's driver, and not just reads the file, as the tracer does.
fn has_driver(pid: u32) -> bool {
    let mappings = proc::mappings(pid);
    mappings.iter().any(|mapping| mapping.executable && cupti::is_of_file(mapping, DRIVER))
}
