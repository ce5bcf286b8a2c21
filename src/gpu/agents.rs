//! The agents in the traced processes: loads them, asks for records, and reports what they say.
//!
//! A started command loads the agent itself: the driver opens the file that a variable of the environment names. Others are found
//! (`candidates.rs`) and asked to load it at their next call of the driver (`loading.rs`). An agent that is there says so, and gets its
//! request then.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use anyhow::Context;
use host::Machine;
use host::process::Program;
use runtime::Session;
use runtime::gpu_agent::{AgentFile, AgentSocket, GRAPH, IDLE, KERNEL, Received, Wanted};
use runtime::in_process::RemoteError;
use runtime::read::event_loop::{Next, Watch};
use rustix::event::epoll;
use wire::manifest::{GPU_LAUNCHES, GPU_RANGES};

use super::candidates::{Candidates, Found, INJECTION, RANGES};
use super::cupti;
use super::loading::Prepared;
use super::reports::{Asked, Reports};
use crate::console::Messages;
use crate::timer::{PacedTimer, Timer};

/// Time between two flushes of CUPTI's buffers.
const FLUSH_MS: u32 = 100;
/// Pause between two searches for processes that have loaded the driver.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause between two attempts to stop a process.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A process with a socket to its agent.
struct Agent {
    socket: AgentSocket,
    state: AgentState,
}

/// Where an agent is.
enum AgentState {
    /// The process was asked to load it, and may have begun with that.
    Requested { found: Found, program: Option<Program> },
    /// The driver has loaded it, and it has not said so yet.
    Connected,
    /// It waits for its request, or has it.
    Loaded,
}

/// The agents of all traced processes.
pub struct Agents<'a> {
    file: &'a AgentFile,
    machine: &'a Machine,
    messages: &'a Messages,
    /// Kinds of records, a bit per kind, with [`GPU_LAUNCHES`] and [`GPU_RANGES`].
    kinds: u32,
    in_process: bool,
    events: OwnedFd,
    agents: BTreeMap<u32, Agent>,
    reports: &'a Reports,
    candidates: Candidates<'a>,
    /// When candidates are looked for.
    search: PacedTimer,
    /// Processes whose threads could not all be stopped, and when that is tried again.
    not_stopped: Vec<Prepared>,
    retry: Option<Timer>,
    /// Processes that are not traced any more, and were asked to load an agent.
    unwanted: Vec<u32>,
    /// Agents are asked for records as soon as they are there.
    has_begun: bool,
    /// An agent has come too late for NVTX.
    misses_ranges: bool,
}

/// Marks of descriptors in the set; agents have their process.
const LISTENER: u64 = u64::MAX;
const SEARCH: u64 = u64::MAX - 1;
const RETRY: u64 = u64::MAX - 2;

impl<'a> Agents<'a> {
    /// Waits for agents. `in_process`: programs run in the processes of the agents.
    pub fn new(
        file: &'a AgentFile,
        machine: &'a Machine,
        (kinds, in_process): (u32, bool),
        (reports, messages): (&'a Reports, &'a Messages),
    ) -> io::Result<Agents<'a>> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let search = PacedTimer::new(PAUSE)?;
        watch(&events, file.as_fd(), LISTENER)?;
        watch(&events, search.as_fd(), SEARCH)?;
        messages.note("The GPU's records need a library of cudatrace in the traced process: it is loaded beside CUDA's driver");
        if kinds & 1 << GRAPH != 0 && kinds & 1 << KERNEL != 0 {
            messages.warning("kernels of graphs have no records of their own while graphs are traced as a whole (`gpu:graph`)");
        }
        Ok(Agents {
            file,
            machine,
            messages,
            kinds,
            in_process,
            events,
            agents: BTreeMap::new(),
            reports,
            candidates: Candidates::new(file, in_process),
            search,
            not_stopped: vec![],
            retry: None,
            unwanted: vec![],
            has_begun: false,
            misses_ranges: false,
        })
    }

    /// Looks for the driver in these processes of `-p`, in the command, and in their children. Agents of others end.
    pub fn search_in(&mut self, pids: &[u32], command: Option<u32>) {
        let all = self.candidates.choose(pids, command);
        for (pid, agent) in self.agents.iter().filter(|(pid, _)| !all.contains(pid)) {
            match agent.state {
                AgentState::Requested { .. } => self.unwanted.push(*pid),
                AgentState::Connected | AgentState::Loaded => agent.socket.end(),
            }
        }
    }

    /// Asks for further kinds of records: the agents end, and are loaded again.
    pub fn want(&mut self, kinds: u32) {
        self.kinds |= kinds;
        // The others have no request yet.
        let loaded = self.agents.iter().filter(|(_, agent)| matches!(agent.state, AgentState::Loaded));
        let loaded: Vec<u32> = loaded.inspect(|(_, agent)| agent.socket.end()).map(|(pid, _)| *pid).collect();
        self.candidates.load_again(loaded.iter());
    }

    /// Variables of the environment by which a started command loads the agent.
    pub fn environment(file: &AgentFile, kinds: u32, messages: &Messages) -> Vec<(OsString, OsString)> {
        let path = file.path().into_os_string();
        let mut variables = vec![(INJECTION.into(), path.clone())];
        // The agent loads then what the user had asked for.
        variables.extend(std::env::var_os(INJECTION).map(|path| (file.next_variable().into(), path)));
        match std::env::var_os(RANGES) {
            _ if kinds & GPU_RANGES == 0 => {}
            None => variables.push((RANGES.into(), path)),
            Some(other) => messages.warning(&format!(
                "`nvtx` stays empty: {RANGES} names another tool, `{}`",
                other.to_string_lossy()
            )),
        }
        variables
    }

    /// Asks the processes to load the agent that have the driver, unless they load it themselves.
    ///
    /// # Errors
    /// A process of `-p` cannot load it.
    pub fn load_into_running(&mut self, session: &mut Session) -> anyhow::Result<()> {
        for found in self.candidates.find(self.reports, self.messages) {
            self.request_from(found, session)?;
        }
        Ok(())
    }

    /// Looks for processes that have loaded the driver meanwhile.
    fn search(&mut self, session: &mut Session) {
        let Some(start) = self.search.due() else { return };
        self.forget_gone(session);
        let found = self.candidates.find(self.reports, self.messages);
        self.search.rest(start, start.elapsed());
        if let Err(error) = found.into_iter().try_for_each(|found| self.request_from(found, session)) {
            self.messages.lost(&format!("no GPU records: {error:#}"));
        }
    }

    /// Forgets processes that were asked to load an agent and have ended, or execute another program: a child of theirs may have the
    /// socket. Takes the requests to those back that are not traced any more.
    fn forget_gone(&mut self, session: &mut Session) {
        for pid in std::mem::take(&mut self.unwanted) {
            if let Some(Agent { state: AgentState::Requested { found, .. }, .. }) = self.agents.get(&pid) {
                // An agent that comes nevertheless ends when it finds no tracer.
                let _ = session.withdraw_agent(pid, found.is_started);
                self.agents.remove(&pid);
                self.candidates.try_again(pid);
            }
        }
        self.agents.retain(|pid, agent| match &agent.state {
            AgentState::Requested { program, .. } => Program::of(*pid) == *program,
            AgentState::Connected | AgentState::Loaded => true,
        });
    }

    /// Asks a process to load the agent. Only processes that the user has named must be able to.
    fn request_from(&mut self, found: Found, session: &mut Session) -> anyhow::Result<()> {
        let pid = found.pid;
        let prepared = Prepared::new(self.machine, found);
        match prepared.and_then(|prepared| self.request(prepared, session)) {
            // It has ended.
            Err(error) if matches!(error.downcast_ref(), Some(RemoteError::Gone)) => Ok(()),
            Err(error) if self.candidates.must_have(pid) => Err(error.context(format!("process {pid}"))),
            requested => {
                self.explain(pid, requested);
                Ok(())
            }
        }
    }

    fn explain(&self, pid: u32, requested: anyhow::Result<()>) {
        match requested {
            Err(error) if !matches!(error.downcast_ref(), Some(RemoteError::Gone)) => {
                self.reports.explain(pid, &format!("{error:#}"), self.messages);
            }
            _ => {}
        }
    }

    fn request(&mut self, prepared: Prepared, session: &mut Session) -> anyhow::Result<()> {
        let found = prepared.found;
        let pid = found.pid;
        match prepared.request(self.file, session) {
            Ok(socket) => {
                let state = AgentState::Requested { found, program: Program::of(pid) };
                self.messages.detail(|| {
                    format!("process {pid} loads the agent for GPU records at its next call of the driver")
                });
                self.keep(socket, state)?;
            }
            // It is still busy with an agent before.
            Err(RemoteError::LoadsAlready) => self.candidates.try_again(pid),
            // A thread waits for the tracer.
            Err(RemoteError::DidNotStop { .. }) if found.is_started => {
                if self.retry.is_none() {
                    let timer = Timer::new(RETRY_PAUSE, RETRY_PAUSE)?;
                    watch(&self.events, timer.as_fd(), RETRY)?;
                    self.retry = Some(timer);
                }
                self.not_stopped.push(prepared);
            }
            Err(error) => {
                return Err(error).context("cannot load the library that reads GPU records");
            }
        }
        Ok(())
    }

    /// Looks again at processes one of whose threads has not stopped.
    fn retry(&mut self, session: &mut Session) {
        self.retry.iter().for_each(Timer::take);
        for prepared in std::mem::take(&mut self.not_stopped) {
            let Found { pid, .. } = prepared.found;
            let requested = self.request(prepared, session);
            self.explain(pid, requested);
        }
        if self.not_stopped.is_empty() {
            self.retry = None;
        }
    }

    /// NVTX looks for a tool at the first call of a process.
    fn miss_ranges(&mut self, pid: u32) {
        if self.kinds & GPU_RANGES != 0 && !std::mem::replace(&mut self.misses_ranges, true) {
            self.messages.warning(&format!(
                "`nvtx` stays empty in processes such as {pid}: NVTX looks for a tool at its first call, in {RANGES}, which only programs \
                 have that cudatrace starts"
            ));
        }
    }

    /// Waits for messages of an agent.
    fn keep(&mut self, socket: AgentSocket, state: AgentState) -> io::Result<()> {
        let pid = socket.pid();
        watch(&self.events, socket.as_fd(), pid.into())?;
        self.agents.insert(pid, Agent { socket, state });
        Ok(())
    }

    /// An agent is there: asks it for records unless [`Agents::begin`] will. Its own functions have their probes before.
    fn meet(&mut self, pid: u32, session: Option<&mut Session>) {
        let Some(agent) = self.agents.get_mut(&pid) else { return };
        let before = std::mem::replace(&mut agent.state, AgentState::Loaded);
        self.candidates.has_agent(pid);
        self.messages.detail(|| format!("process {pid}: loaded the agent for GPU records"));
        if let AgentState::Requested { found, .. } = before {
            self.miss_ranges(pid);
            if found.is_started {
                self.messages.warning(&format!(
                    "the first GPU records of process {pid} may be missing: it was started without {INJECTION}, or could not open its file"
                ));
            }
        }
        let Some(session) = session else { return };
        if let AgentState::Requested { found, .. } = before {
            match session.meet_agent(pid, found.is_started) {
                Ok(report) if self.in_process => self.messages.patched(pid, &report),
                Ok(_) | Err(RemoteError::Gone) => {}
                Err(error) => {
                    self.messages
                        .lost(&format!("the functions of process {pid} are not patched again: {error}"));
                }
            }
        }
        if self.has_begun
            && let Some(agent) = self.agents.get(&pid)
            && let Err(error) = self.ask(&agent.socket, session)
        {
            self.messages.detail(|| format!("process {pid}: {error}"));
        }
    }

    /// Asks the agents for records that were loaded so far, whose functions are probed now.
    ///
    /// # Errors
    /// An agent cannot be asked.
    pub fn begin(&mut self, session: &Session) -> io::Result<()> {
        self.has_begun = true;
        for agent in self.agents.values().filter(|agent| matches!(agent.state, AgentState::Loaded)) {
            self.ask(&agent.socket, session)?;
        }
        Ok(())
    }

    /// Kinds of records, a bit per kind.
    fn records(&self) -> u32 {
        self.kinds & !(GPU_LAUNCHES | GPU_RANGES)
    }

    /// Asks an agent for records. That of a process that has ended needs not be asked.
    fn ask(&self, socket: &AgentSocket, session: &Session) -> io::Result<()> {
        // The cause of idle time depends on the launch after it.
        let launches = self.kinds & (GPU_LAUNCHES | 1 << IDLE) != 0;
        let wanted = Wanted {
            kinds: self.records(),
            flush_ms: FLUSH_MS,
            launches,
            replaced: session.launches(socket.pid()),
        };
        match socket.request(wanted, &cupti::paths(socket.pid())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            asked => asked,
        }
    }

    fn give_places(&self, pid: u32, words: u64, session: &Session) {
        match session.give_places(pid, words) {
            Err(RemoteError::Gone) | Ok(()) => {}
            Err(error) => self.messages.lost(&format!("kernels of process {pid} are not sampled: {error}")),
        }
    }

    fn accept(&mut self) {
        while let Ok(Some(socket)) = self.file.accept() {
            let pid = socket.pid();
            // One that ends meanwhile needs no message.
            if let Err(error) = self.keep(socket, AgentState::Connected) {
                self.messages.detail(|| format!("process {pid}: {error}"));
            }
        }
    }

    /// Reads the messages of a process. With a session an agent that can take the place of functions does so from its first report on.
    fn receive(&mut self, pid: u32, mut session: Option<&mut Session>) {
        let asked = Asked { kinds: self.records(), in_process: self.in_process };
        while let Some(agent) = self.agents.get(&pid) {
            let report = match agent.socket.receive() {
                Received::Nothing => return,
                Received::Begins => {
                    match (&mut session, &agent.state) {
                        (Some(session), AgentState::Requested { found, .. }) => {
                            session.load_agent(&agent.socket, found.is_started);
                        }
                        // Without a tracer it does not load the agent.
                        _ => return self.end(pid),
                    }
                    continue;
                }
                Received::Hello => {
                    self.meet(pid, session.as_deref_mut());
                    continue;
                }
                Received::Report(report) => report,
                Received::End => return self.end(pid),
            };
            let is_first = self.reports.take(pid, report, asked, self.messages);
            if is_first && let Some(session) = session.as_deref().filter(|_| report.words != 0) {
                self.give_places(pid, report.words, session);
                agent.socket.acknowledge();
            }
        }
    }

    /// A process has closed its socket.
    fn end(&mut self, pid: u32) {
        // The descriptor leaves the set when it is closed.
        match self.agents.remove(&pid).map(|agent| agent.state) {
            Some(AgentState::Requested { program, .. }) => {
                if program.is_some() && Program::of(pid) == program {
                    let why = "it could not load the library that reads them, or has closed descriptors that it does not know";
                    self.reports.explain(pid, why, self.messages);
                }
            }
            Some(AgentState::Loaded) => {
                self.reports.end(pid);
                self.candidates.has_lost_agent(pid);
            }
            Some(AgentState::Connected) | None => {}
        }
    }

    /// Takes requests back. A thread that is about to load an agent does not find the tracer, and an agent that is there ends.
    fn withdraw(&mut self, session: &mut Session) {
        let requested = self.agents.iter().filter_map(|(pid, agent)| match agent.state {
            AgentState::Requested { found, .. } => Some((*pid, found)),
            AgentState::Connected | AgentState::Loaded => None,
        });
        for (pid, found) in requested.collect::<Vec<(u32, Found)>>() {
            match session.withdraw_agent(pid, found.is_started) {
                Ok(true) => self.reports.explain_no_call(pid, self.messages),
                Ok(false) => self.reports.explain(
                    pid,
                    "the trace has ended while the process loaded the library",
                    self.messages,
                ),
                // It has ended, or its region is taken away later.
                Err(_) => {}
            }
            self.agents.remove(&pid);
        }
    }
}

/// Adds a descriptor to a set.
fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, mark: u64) -> io::Result<()> {
    Ok(epoll::add(events, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)?)
}

impl Watch for Agents<'_> {
    fn fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let mut ready = Vec::with_capacity(64);
        let now = rustix::event::Timespec::default();
        let room = rustix::buffer::spare_capacity(&mut ready);
        if epoll::wait(&self.events, room, Some(&now)).is_err() {
            return Next::Continue;
        }
        for event in ready {
            let event: epoll::Event = event;
            match event.data.u64() {
                LISTENER => self.accept(),
                SEARCH => self.search(session),
                RETRY => self.retry(session),
                pid => self.receive(pid as u32, Some(session)),
            }
        }
        Next::Continue
    }

    fn finish(&mut self, session: &mut Session) -> bool {
        self.accept();
        let pids: Vec<u32> = self.agents.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.receive(pid, None));
        self.withdraw(session);
        let loaded =
            self.agents.values().filter(|agent| !matches!(agent.state, AgentState::Requested { .. }));
        loaded.for_each(|agent| agent.socket.end());
        self.agents.is_empty()
    }
}
