//! The agents in the traced processes: loads them, asks for records, and reports what they say.
//!
//! Any local process can connect to the agents' socket. A connection of a process that is not traced is closed unread; others have to prove that they
//! are those of agents, with the secret in the agent's file; and all reports are checked. A process can falsify its own records, and nothing else.
//!
//! A started command loads the agent itself: the driver opens the file that a variable of the environment names. Others are found
//! (`candidates.rs`) and asked to load it at their next call of the driver (`loading.rs`). Such a process has a connection from the start.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use host::Machine;
use linux::proc::Program;
use runtime::Session;
use runtime::gpu::{AgentFile, AgentSocket, Connection, Kind, KindSet, Proof, ReceiveOutcome, RecordRequest};
use runtime::remote::RemoteError;
use runtime::session::event_loop::{Next, Watch};
use rustix::event::epoll;

use super::candidates::{Candidate, Candidates, INJECTION, Look, RANGES};
use super::cupti;
use super::loading::LoadRequest;
use super::new_drivers::NewDrivers;
use super::newcomers::Newcomers;
use super::reports::{AgentEnd, Refusal, Reports};
use crate::console::Messages;
use crate::pacing::PacedTimer;
use linux::timer::Timer;

/// Time between two flushes of CUPTI's buffers.
const FLUSH_MS: u32 = 100;
/// Shortest pause between two searches for processes that have loaded the driver, which is initialised within 100 ms at best.
const PAUSE: Duration = Duration::from_millis(20);
/// Time with the driver in which a process cannot have initialised it: one that ends before launches nothing.
const IDLE_TIME: Duration = PAUSE;
/// Pause between two attempts to stop a process.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Connections that are accepted, and reports of a process that are read, before the rest of the tracer has its turn.
const AT_ONCE: usize = 64;

/// The agents of all traced processes.
pub struct Agents<'a> {
    file: &'a AgentFile,
    machine: &'a Machine,
    messages: &'a Messages,
    /// Kinds of records, and what these need besides.
    kinds: KindSet,
    in_process: bool,
    events: OwnedFd,
    sockets: BTreeMap<u32, Agent>,
    newcomers: Newcomers,
    /// Programs that have sent what no agent sends.
    distrusted: BTreeSet<Program>,
    reports: &'a Reports,
    /// The files of CUPTI that the user has named.
    named_cupti: Vec<PathBuf>,
    candidates: Candidates<'a>,
    /// When candidates are looked for.
    search: PacedTimer,
    new_drivers: &'a NewDrivers,
    /// Processes that were asked to load an agent.
    requests: BTreeMap<u32, Request>,
    /// Processes whose agent was loaded by a request and has not reported yet.
    loaded: BTreeMap<u32, Candidate>,
    /// Processes whose threads could not all be stopped, and when that is tried again.
    not_stopped: Vec<LoadRequest>,
    retry: Option<Timer>,
    /// Agents are asked for records as soon as they are there.
    has_begun: bool,
    /// An agent has come too late for NVTX.
    misses_ranges: bool,
}

/// The agent of a process.
struct Agent {
    socket: AgentSocket,
    /// The program of the process that has the agent; `None` if the process has ended.
    program: Option<Program>,
}

impl Agent {
    /// Whether the process still executes the program that has the agent.
    fn has_program(&self) -> bool {
        let now = self.program.and_then(|program| Program::of(program.pid));
        now.is_some_and(|now| now.has_memory() && Some(now) == self.program)
    }
}

/// Why a process has no agent that has begun to load it.
const ENDED: &str = "the trace has ended while the process loaded the library";

/// A request to a process to load an agent, which it may have begun with.
struct Request {
    connection: Connection,
    found: Candidate,
    /// The program of the process that was asked.
    program: Program,
    /// The process is traced no more.
    is_unwanted: bool,
    /// A call of the driver has claimed it.
    is_claimed: bool,
}

impl Request {
    /// Whether the process has called the driver while it was traced, after the request or before. Without a call it has no records.
    fn has_called(&self) -> bool {
        self.is_claimed || self.found.is_new && self.found.uses_cuda
    }
}

/// Marks of descriptors in the set; agents have their process, which is smaller than the first newcomer.
const NEWCOMERS: u64 = 1 << 32;
/// Requests have this and their process.
const REQUESTS: u64 = 1 << 63;
const LISTENER: u64 = u64::MAX;
const SEARCH: u64 = u64::MAX - 1;
const RETRY: u64 = u64::MAX - 2;
const NEW_DRIVERS: u64 = u64::MAX - 3;

/// Purpose and owner of agents.
pub struct AgentOptions<'a> {
    pub file: &'a AgentFile,
    pub machine: &'a Machine,
    pub messages: &'a Messages,
    pub reports: &'a Reports,
    pub new_drivers: &'a NewDrivers,
    /// Kinds of records, and what these need besides.
    pub kinds: KindSet,
    /// True if programs run in the processes of the agents.
    pub in_process: bool,
}

impl<'a> Agents<'a> {
    /// Waits for agents.
    pub fn new(options: AgentOptions<'a>) -> io::Result<Agents<'a>> {
        let AgentOptions { file, machine, messages, reports, new_drivers, kinds, in_process } = options;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let search = PacedTimer::new(PAUSE)?;
        watch(&events, file.as_fd(), LISTENER)?;
        watch(&events, search.as_fd(), SEARCH)?;
        new_drivers.watch(|timer| watch(&events, timer, NEW_DRIVERS))?;
        messages.note("Records of the GPU: a library is loaded into the traced process");
        if kinds.contains(Kind::Graph) && kinds.contains(Kind::Kernel) {
            messages.warning("kernels of graphs have no records of their own while graphs are traced as a whole (`gpu:graph`)");
        }
        Ok(Agents {
            file,
            machine,
            messages,
            kinds,
            in_process,
            events,
            sockets: BTreeMap::new(),
            newcomers: Newcomers::new(NEWCOMERS),
            distrusted: BTreeSet::new(),
            reports,
            named_cupti: cupti::named(machine),
            candidates: Candidates::new(file, in_process),
            search,
            new_drivers,
            requests: BTreeMap::new(),
            loaded: BTreeMap::new(),
            not_stopped: vec![],
            retry: None,
            has_begun: false,
            misses_ranges: false,
        })
    }

    /// Looks for the driver in these processes of `-p`, in the command, and in their children. Agents of others end.
    pub fn search_in(&mut self, pids: &[u32], command: Option<u32>) {
        let all = self.candidates.choose(pids, command);
        self.new_drivers.choose(pids.iter().copied().chain(command).collect());
        self.sockets.iter().filter(|(pid, _)| !all.contains(pid)).for_each(|(_, agent)| agent.socket.end());
        self.requests.iter_mut().for_each(|(pid, request)| request.is_unwanted = !all.contains(pid));
    }

    /// Asks for further kinds of records: the agents end, and are loaded again.
    pub fn want(&mut self, kinds: KindSet) {
        self.kinds = self.kinds.union(kinds);
        self.sockets.values().for_each(|agent| agent.socket.end());
        self.candidates.load_again(self.sockets.keys());
    }

    /// Variables of the environment by which a started command loads the agent.
    pub fn environment(file: &AgentFile, kinds: KindSet, messages: &Messages) -> Vec<(OsString, OsString)> {
        let path = file.path().into_os_string();
        let mut variables = vec![(INJECTION.into(), path.clone())];
        // The agent loads then what the user had asked for.
        variables.extend(std::env::var_os(INJECTION).map(|path| (file.next_variable().into(), path)));
        match std::env::var_os(RANGES) {
            _ if !kinds.includes(KindSet::RANGES) => {}
            None => variables.push((RANGES.into(), path)),
            Some(other) => messages.warning(&format!(
                "there are no ranges of NVTX: {RANGES} names another tool, `{}`",
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

    /// Looks for processes that have loaded the driver meanwhile, and closes connections that have sent nothing.
    fn search(&mut self, session: &mut Session) {
        for late in self.newcomers.late() {
            self.reports.refuse(late.pid(), Refusal::NoProof, self.messages);
        }
        let Some(start) = self.search.due() else { return };
        self.forget_requests(session);
        let found = self.candidates.find(self.reports, self.messages);
        self.search.rest(start.elapsed());
        self.request_from_all(found, session);
    }

    /// Looks at processes that map the driver.
    fn look_at_new(&mut self, session: &mut Session) {
        // An agent that is there needs no look.
        self.accept(Some(session));
        let found = self.look_at_drivers();
        self.request_from_all(found, session);
    }

    /// Looks at the same processes; returns those that are to load the agent, and tells which have ended before.
    fn look_at_drivers(&mut self) -> Vec<Candidate> {
        let mut found = vec![];
        self.new_drivers.look(|pid, age| {
            let look = self.candidates.look_at(pid, self.reports, self.messages);
            found.extend(look.found());
            let is_known = self.requests.contains_key(&pid) || self.new_drivers.was_met(pid);
            if look == Look::Ended && age > IDLE_TIME && !is_known {
                self.reports.miss(pid, self.messages);
            }
            look != Look::NoDriver
        });
        found
    }

    fn request_from_all(&mut self, found: Vec<Candidate>, session: &mut Session) {
        if let Err(error) = found.into_iter().try_for_each(|found| self.request_from(found, session)) {
            self.messages.lost(&format!("no GPU records: {error:#}"));
        }
    }

    /// Takes the requests to processes back that are not traced any more, and forgets those to processes that have ended, or execute another
    /// program: a child of theirs may have the socket.
    fn forget_requests(&mut self, session: &mut Session) {
        for (pid, request) in self.requests.iter().filter(|(_, request)| request.is_unwanted) {
            // Else the thread that loads the agent finds no tracer.
            let _ = session.withdraw_agent(*pid, request.found.is_started);
            self.candidates.try_again(*pid);
        }
        let (reports, messages, new_drivers) = (self.reports, self.messages, self.new_drivers);
        self.requests.retain(|pid, request| {
            let runs = Program::of(*pid) == Some(request.program);
            if !runs {
                new_drivers.settle(Some(request.program));
            }
            if !runs && !request.is_unwanted && request.has_called() {
                reports.miss(*pid, messages);
            }
            runs && !request.is_unwanted
        });
    }

    /// Asks a process to load the agent. Only processes that the user has named must be able to.
    fn request_from(&mut self, found: Candidate, session: &mut Session) -> anyhow::Result<()> {
        let pid = found.pid;
        let prepared = LoadRequest::new(self.machine, found);
        match prepared.and_then(|prepared| self.request(prepared, session)) {
            Err(error) if matches!(error.downcast_ref(), Some(RemoteError::Executed)) => {
                self.look_again(pid);
                Ok(())
            }
            Err(error) if matches!(error.downcast_ref(), Some(RemoteError::Gone)) => {
                self.reports.miss(pid, self.messages);
                Ok(())
            }
            Err(error) if self.candidates.must_have(pid) => Err(error.context(format!("process {pid}"))),
            requested => {
                self.explain(pid, requested);
                Ok(())
            }
        }
    }

    /// Looks again at a process, which executes another program now, or one that is still being loaded.
    fn look_again(&mut self, pid: u32) {
        self.candidates.try_again(pid);
        self.new_drivers.look_again(pid);
    }

    fn explain(&self, pid: u32, requested: anyhow::Result<()>) {
        match requested {
            Err(error) if !matches!(error.downcast_ref(), Some(RemoteError::Gone)) => {
                self.reports.explain(pid, &format!("{error:#}"), self.messages);
            }
            _ => {}
        }
    }

    fn request(&mut self, prepared: LoadRequest, session: &mut Session) -> anyhow::Result<()> {
        let found = prepared.found;
        let pid = found.pid;
        match prepared.request(self.file, session) {
            Ok(connection) => {
                watch(&self.events, connection.as_fd(), REQUESTS | u64::from(pid))?;
                self.messages.detail(|| {
                    format!("process {pid} loads the agent for GPU records at its next call of the driver")
                });
                let program = prepared.program;
                self.requests.insert(
                    pid,
                    Request { connection, found, program, is_unwanted: false, is_claimed: false },
                );
            }
            Err(RemoteError::Executed) => self.look_again(pid),
            // The process is still busy with an earlier agent.
            Err(RemoteError::LoadsAlready) => self.candidates.try_again(pid),
            // A thread waits for the tracer, or another one has stopped it.
            Err(error) if prepared.may_be_retried(&error) => {
                if self.retry.is_none() {
                    let timer = Timer::new(RETRY_PAUSE, RETRY_PAUSE)?;
                    watch(&self.events, timer.as_fd(), RETRY)?;
                    self.retry = Some(timer);
                }
                self.not_stopped.push(prepared);
            }
            Err(error) => return Err(error).context("cannot load the library that reads GPU records"),
        }
        Ok(())
    }

    /// Looks again at processes one of whose threads has not stopped.
    fn retry(&mut self, session: &mut Session) {
        if let Some(timer) = &self.retry {
            timer.take();
        }
        for prepared in std::mem::take(&mut self.not_stopped) {
            let Candidate { pid, .. } = prepared.found;
            let requested = self.request(prepared, session);
            self.explain(pid, requested);
        }
        if self.not_stopped.is_empty() {
            self.retry = None;
        }
    }

    /// Reads the packets of a process that was asked to load the agent. Without a session it does not begin with that any more.
    fn answer(&mut self, pid: u32, mut session: Option<&mut Session>) {
        while let Some(request) = self.requests.remove(&pid) {
            let has_called = request.has_called();
            let Request { connection, found, program, .. } = request;
            match self.file.prove(connection) {
                Proof::Missing(connection) => {
                    self.requests.insert(pid, Request { connection, ..request });
                    return;
                }
                Proof::Begins(connection) => match &mut session {
                    Some(session) => {
                        session.load_agent(pid, &connection, found.is_started);
                        self.requests.insert(pid, Request { connection, is_claimed: true, ..request });
                    }
                    None => self.reports.explain(pid, ENDED, self.messages),
                },
                Proof::Agent(socket) => self.meet_requested(found, *socket, session.as_deref_mut()),
                Proof::Wrong | Proof::Closed if Program::of(pid) == Some(program) => {
                    let why = "it could not load the library that reads them, or has closed descriptors that it does not know";
                    self.reports.explain(pid, why, self.messages);
                }
                Proof::Wrong | Proof::Closed if has_called => self.reports.miss(pid, self.messages),
                Proof::Wrong | Proof::Closed => {}
            }
        }
    }

    /// A process that was asked to has loaded the agent. Its functions have their probes before it gets its request.
    fn meet_requested(&mut self, found: Candidate, socket: AgentSocket, mut session: Option<&mut Session>) {
        let pid = found.pid;
        self.miss_ranges(pid);
        if let Some(session) = &mut session {
            match session.meet_agent(pid) {
                Ok(report) if self.in_process => self.messages.patched(pid, &report),
                Ok(_) | Err(RemoteError::Gone) => {}
                Err(error) => {
                    self.messages
                        .lost(&format!("the functions of process {pid} are not patched again: {error}"));
                }
            }
        }
        let met = self.meet(socket, session);
        self.loaded.insert(pid, found);
        if let Err(error) = met {
            self.messages.detail(|| format!("process {pid}: {error}"));
        }
    }

    /// Takes requests back at the end. A thread that is about to load an agent does not find the tracer, and an agent that is there ends.
    fn withdraw(&mut self, session: &mut Session) {
        for (pid, request) in std::mem::take(&mut self.requests) {
            match session.withdraw_agent(pid, request.found.is_started) {
                Ok(true) => self.reports.explain_no_call(pid, self.messages),
                Ok(false) => self.reports.explain(pid, ENDED, self.messages),
                // The process has ended, or its region is taken away later.
                Err(_) => {}
            }
        }
    }

    /// NVTX looks for a tool at the first call of a process.
    fn miss_ranges(&mut self, pid: u32) {
        if self.kinds.includes(KindSet::RANGES) && !std::mem::replace(&mut self.misses_ranges, true) {
            self.messages.warning(&format!(
                "there are no ranges of NVTX of processes such as {pid}: NVTX looks for a tool at its first call, in {RANGES}, which only programs \
                 have that cudatrace starts"
            ));
        }
    }

    /// Reads the first packet of a connection. `mark`: that of its descriptor, if that is in the set. Without the packet the connection waits.
    fn prove(
        &mut self,
        connection: Connection,
        mark: Option<u64>,
        session: Option<&mut Session>,
    ) -> io::Result<()> {
        let pid = connection.pid();
        match (self.file.prove(connection), mark) {
            (Proof::Agent(socket), _) => return self.meet(*socket, session),
            (Proof::Wrong | Proof::Begins(_), _) => {
                self.reports.refuse(pid, Refusal::NoProof, self.messages);
            }
            // An agent does so that does not see the tracer's process, from another pid namespace: it is requested then.
            (Proof::Closed, _) => {}
            (Proof::Missing(connection), Some(mark)) => self.newcomers.put_back(mark, connection),
            (Proof::Missing(connection), None) => {
                let replaced = self.newcomers.add(connection, |fd, mark| watch(&self.events, fd, mark))?;
                if let Some(replaced) = replaced {
                    self.reports.refuse(replaced.pid(), Refusal::NoProof, self.messages);
                }
            }
        }
        Ok(())
    }

    /// Keeps a new agent, and asks it for records unless [`Agents::begin`] will.
    fn meet(&mut self, mut socket: AgentSocket, mut session: Option<&mut Session>) -> io::Result<()> {
        let pid = socket.pid();
        let program = Program::of(pid);
        // The end of the agent that the process had before an execve(2).
        self.receive(pid, session.as_deref_mut());
        let is_same = self.sockets.get(&pid).is_some_and(|earlier| earlier.program == program);
        if is_same || program.is_some_and(|program| self.distrusted.contains(&program)) {
            self.reports.refuse(Some(pid), Refusal::NotAgain, self.messages);
            return Ok(());
        }
        // A child may have kept the socket of the earlier program open.
        if self.sockets.contains_key(&pid) {
            self.end(pid);
        }
        self.candidates.has_agent(pid);
        self.new_drivers.meet(pid, program);
        if session.is_some() && self.has_begun {
            self.ask(&mut socket)?;
        }
        watch(&self.events, socket.as_fd(), pid.into())?;
        self.messages.detail(|| format!("process {pid}: loaded the agent for GPU records"));
        self.sockets.insert(pid, Agent { socket, program });
        Ok(())
    }

    /// Asks the agents for records that were loaded so far, whose functions are probed now.
    ///
    /// # Errors
    /// An agent cannot be asked.
    pub fn begin(&mut self) -> io::Result<()> {
        self.has_begun = true;
        let mut agents = std::mem::take(&mut self.sockets);
        let asked = agents.values_mut().try_for_each(|agent| self.ask(&mut agent.socket));
        self.sockets = agents;
        asked
    }

    /// Asks an agent for records. That of a process that has ended needs not be asked.
    fn ask(&self, socket: &mut AgentSocket) -> io::Result<()> {
        // The cause of idle time depends on the launch after it.
        let launches = if self.kinds.contains(Kind::Idle) { KindSet::LAUNCHES } else { KindSet::EMPTY };
        let wanted = RecordRequest { kinds: self.kinds.union(launches), flush_ms: FLUSH_MS };
        match socket.request(wanted, &cupti::paths(socket.pid(), &self.named_cupti)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            asked => asked,
        }
    }

    /// Accepts connections of traced processes, and closes others.
    fn accept(&mut self, mut session: Option<&mut Session>) {
        for _ in 0..AT_ONCE {
            let Ok(Some(connection)) = self.file.accept() else { return };
            let program = match connection.pid() {
                None => None,
                Some(pid) => match Program::of(pid) {
                    // The process has ended meanwhile.
                    None => continue,
                    program => program,
                },
            };
            if !program.is_some_and(|program| self.candidates.expects(program)) {
                self.reports.refuse(connection.pid(), Refusal::NotTraced, self.messages);
                continue;
            }
            self.prove_newcomer(connection, None, session.as_deref_mut());
        }
    }

    /// Reads the first packet of a connection that was accepted.
    fn prove_newcomer(&mut self, connection: Connection, mark: Option<u64>, session: Option<&mut Session>) {
        let pid = connection.pid();
        // A process that ends meanwhile needs no message.
        if let Err(error) = self.prove(connection, mark, session) {
            self.messages.detail(|| format!("process {}: {error}", pid.unwrap_or_default()));
        }
    }

    /// Reads the reports of a process. With a session the gates of the process are restored after the first one.
    fn receive(&mut self, pid: u32, mut session: Option<&mut Session>) {
        for _ in 0..AT_ONCE {
            let Some(agent) = self.sockets.get_mut(&pid) else { return };
            let report = match agent.socket.receive() {
                ReceiveOutcome::Nothing => return,
                ReceiveOutcome::Report(report) => report,
                ReceiveOutcome::Wrong(error) => {
                    self.distrusted.extend(agent.program);
                    self.reports.distrust(pid, error, self.messages);
                    return self.lose(pid);
                }
                ReceiveOutcome::End => return self.end(pid),
            };
            let is_first = self.reports.take(pid, report, &self.named_cupti, self.messages);
            let Some(session) = session.as_deref_mut().filter(|_| is_first) else { continue };
            if !session.hears_agent(pid, self.file) {
                self.reports.explain(
                    pid,
                    "the agent's functions, which pass them to the script, could not be patched",
                    self.messages,
                );
            }
            if let Some(found) = self.loaded.remove(&pid) {
                // Else its functions are restored at the end.
                let _ = session.leave_gates(pid, found.is_started);
                if found.is_new && report.had_context != 0 {
                    self.reports.miss_first(pid, self.messages);
                }
            }
        }
    }

    /// The agent of a process has ended.
    fn end(&mut self, pid: u32) {
        if let Some(agent) = self.sockets.get(&pid) {
            let is_other = agent.program.is_some_and(|before| {
                Program::of(pid)
                    .is_some_and(|now| now.has_memory() && now.started() == before.started() && now != before)
            });
            let way = if is_other { AgentEnd::Executed } else { AgentEnd::Killed };
            self.reports.end(pid, way, agent.socket.launches(), self.messages);
        }
        self.lose(pid);
    }

    /// Closes the connection to the agent of a process.
    fn lose(&mut self, pid: u32) {
        self.candidates.has_lost_agent(pid);
        self.loaded.remove(&pid);
        // Its descriptor leaves the set when it is closed.
        self.sockets.remove(&pid);
    }
}

/// Adds a descriptor to a set, or changes its mark there.
fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, mark: u64) -> io::Result<()> {
    let (mark, flags) = (epoll::EventData::new_u64(mark), epoll::EventFlags::IN);
    Ok(match epoll::add(events, fd, mark, flags) {
        Err(rustix::io::Errno::EXIST) => epoll::modify(events, fd, mark, flags),
        added => added,
    }?)
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
                LISTENER => self.accept(Some(session)),
                SEARCH => self.search(session),
                RETRY => self.retry(session),
                NEW_DRIVERS => self.look_at_new(session),
                mark @ REQUESTS.. => self.answer(mark as u32, Some(session)),
                mark @ NEWCOMERS.. => {
                    if let Some(connection) = self.newcomers.take(mark) {
                        self.prove_newcomer(connection, Some(mark), Some(session));
                    }
                }
                pid => self.receive(pid as u32, Some(session)),
            }
        }
        Next::Continue
    }

    fn finish(&mut self, session: &mut Session) -> bool {
        self.accept(None);
        for late in self.look_at_drivers().into_iter().filter(|found| found.is_new && found.uses_cuda) {
            self.reports.explain(late.pid, ENDED, self.messages);
        }
        let requested: Vec<u32> = self.requests.keys().copied().collect();
        requested.into_iter().for_each(|pid| self.answer(pid, None));
        self.withdraw(session);
        self.sockets.values().for_each(|agent| agent.socket.end());
        let agents: Vec<(u32, bool)> =
            self.sockets.iter().map(|(&pid, agent)| (pid, agent.has_program())).collect();
        for (pid, has_program) in agents {
            self.receive(pid, None);
            // Its socket may be open for ever in a child that it has forked.
            if !has_program && self.sockets.contains_key(&pid) {
                self.end(pid);
            }
        }
        self.sockets.is_empty()
    }
}
