//! The agents in the traced processes: loads them, asks for records, and reports what they say.
//!
//! A started command loads the agent itself: the driver opens the file that a variable of the environment names. Others are found
//! (`candidates.rs`) and made to load it (`loading.rs`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use runtime::Session;
use runtime::gpu_agent::{AgentFile, AgentSocket, GRAPH, IDLE, KERNEL, Received, Wanted};
use runtime::in_process::RemoteError;
use runtime::read::event_loop::{Next, Watch};
use rustix::event::epoll;
use wire::manifest::{GPU_LAUNCHES, GPU_RANGES};

use super::candidates::{Candidates, Found, INJECTION, RANGES};
use super::cupti;
use super::loading::{Loaded, Loading};
use super::reports::{Asked, Reports};
use crate::console::Messages;
use crate::timer::PacedTimer;

/// Time between two flushes of CUPTI's buffers.
const FLUSH_MS: u32 = 100;
/// Pause between two searches for processes that have loaded the driver.
const PAUSE: Duration = Duration::from_millis(200);
/// The agents of all traced processes.
pub struct Agents<'a> {
    file: &'a AgentFile,
    messages: &'a Messages,
    /// Kinds of records, a bit per kind, with [`GPU_LAUNCHES`] and [`GPU_RANGES`].
    kinds: u32,
    in_process: bool,
    events: OwnedFd,
    sockets: BTreeMap<u32, AgentSocket>,
    reports: &'a Reports,
    candidates: Candidates<'a>,
    /// When candidates are looked for.
    search: PacedTimer,
    loading: Loading,
    /// Agents are asked for records as soon as they are there.
    has_begun: bool,
    /// An agent has come too late for NVTX.
    misses_ranges: bool,
}

/// Marks of descriptors in the set; agents have their process.
const LISTENER: u64 = u64::MAX;
const SEARCH: u64 = u64::MAX - 1;
const LOADED: u64 = u64::MAX - 2;

impl<'a> Agents<'a> {
    /// Waits for agents. `in_process`: programs run in the processes of the agents.
    pub fn new(
        file: &'a AgentFile,
        (kinds, in_process): (u32, bool),
        (reports, messages): (&'a Reports, &'a Messages),
    ) -> io::Result<Agents<'a>> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let search = PacedTimer::new(PAUSE)?;
        watch(&events, file.as_fd(), LISTENER)?;
        watch(&events, search.as_fd(), SEARCH)?;
        let loading = Loading::new()?;
        watch(&events, loading.as_fd(), LOADED)?;
        messages.note("The GPU's records need a library of cudatrace in the traced process: it is loaded beside CUDA's driver");
        if kinds & 1 << GRAPH != 0 && kinds & 1 << KERNEL != 0 {
            messages.warning("kernels of graphs have no records of their own while graphs are traced as a whole (`gpu:graph`)");
        }
        Ok(Agents {
            file,
            messages,
            kinds,
            in_process,
            events,
            sockets: BTreeMap::new(),
            reports,
            candidates: Candidates::new(file, in_process),
            search,
            loading,
            has_begun: false,
            misses_ranges: false,
        })
    }

    /// Looks for the driver in these processes of `-p`, in the command, and in their children. Agents of others end.
    pub fn search_in(&mut self, pids: &[u32], command: Option<u32>) {
        let all = self.candidates.choose(pids, command);
        self.sockets.iter().filter(|(pid, _)| !all.contains(pid)).for_each(|(_, socket)| socket.end());
    }

    /// Asks for further kinds of records: the agents end, and are loaded again.
    pub fn want(&mut self, kinds: u32) {
        self.kinds |= kinds;
        self.sockets.values().for_each(AgentSocket::end);
        self.candidates.load_again(self.sockets.keys());
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

    /// Makes the processes load the agent that have the driver, unless they load it themselves.
    ///
    /// # Errors
    /// A process of `-p` cannot load it.
    pub fn load_into_running(&mut self, session: Option<&Session>) -> anyhow::Result<()> {
        for found in self.candidates.find(self.reports, self.messages) {
            match found.is_started {
                true => self.loading.start(self.file, found)?,
                false => {
                    let loaded = self.loading.load(self.file, found)?;
                    self.take_loaded(loaded, session)?;
                }
            }
        }
        Ok(())
    }

    /// Looks for processes that have loaded the driver meanwhile.
    fn search(&mut self) {
        let Some(start) = self.search.due() else { return };
        let found = self.candidates.find(self.reports, self.messages);
        self.search.rest(start, start.elapsed());
        if let Err(error) = found.into_iter().try_for_each(|found| self.loading.start(self.file, found)) {
            self.messages.lost(&format!("no GPU records: {error}"));
        }
    }

    /// Takes the agents that were loaded meanwhile.
    fn take_all_loaded(&mut self, session: Option<&Session>) {
        while let Some(loaded) = self.loading.next() {
            if let Err(error) = self.take_loaded(loaded, session) {
                self.messages.lost(&format!("no GPU records: {error:#}"));
            }
        }
    }

    /// Takes an agent that was loaded. Only processes that the user has named must have one.
    fn take_loaded(&mut self, loaded: Loaded, session: Option<&Session>) -> anyhow::Result<()> {
        let Found { pid, is_started } = loaded.found;
        match loaded.socket {
            // It has ended.
            Err(error) if matches!(error.downcast_ref(), Some(RemoteError::Gone)) => {}
            Err(error) if self.candidates.must_have(pid) => {
                return Err(error.context(format!("process {pid}")));
            }
            Err(error) => self.reports.explain(pid, &format!("{error:#}"), self.messages),
            Ok(socket) => {
                self.miss_ranges(pid);
                self.meet(socket, session)?;
                if is_started {
                    self.messages.warning(&format!(
                        "the first GPU records of process {pid} may be missing: it was started without {INJECTION}, or could not open its file"
                    ));
                }
            }
        }
        Ok(())
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

    /// Keeps a new agent, and asks it for records unless [`Agents::begin`] will.
    fn meet(&mut self, socket: AgentSocket, session: Option<&Session>) -> io::Result<()> {
        let pid = socket.pid();
        self.candidates.has_agent(pid);
        if let Some(session) = session.filter(|_| self.has_begun) {
            self.ask(&socket, session)?;
        }
        watch(&self.events, socket.as_fd(), pid.into())?;
        self.messages.detail(|| format!("process {pid}: loaded the agent for GPU records"));
        self.sockets.insert(pid, socket);
        Ok(())
    }

    /// Asks the agents for records that were loaded so far, whose functions are probed now.
    ///
    /// # Errors
    /// An agent cannot be asked.
    pub fn begin(&mut self, session: &Session) -> io::Result<()> {
        self.has_begun = true;
        for socket in self.sockets.values() {
            self.ask(socket, session)?;
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

    fn accept(&mut self, session: Option<&Session>) {
        while let Ok(Some(socket)) = self.file.accept() {
            let pid = socket.pid();
            // One that ends meanwhile needs no message.
            if let Err(error) = self.meet(socket, session) {
                self.messages.detail(|| format!("process {pid}: {error}"));
            }
        }
    }

    /// Reads the reports of a process. With a session an agent that can take the place of functions does so from its first report on.
    fn receive(&mut self, pid: u32, session: Option<&Session>) {
        let Some(socket) = self.sockets.get(&pid) else { return };
        let asked = Asked { kinds: self.records(), in_process: self.in_process };
        loop {
            let report = match socket.receive() {
                Received::Nothing => return,
                Received::Hello => continue,
                Received::Report(report) => report,
                Received::End => break,
            };
            let is_first = self.reports.take(pid, report, asked, self.messages);
            if is_first && let Some(session) = session.filter(|_| report.words != 0) {
                self.give_places(pid, report.words, session);
                socket.acknowledge();
            }
        }
        self.reports.end(pid);
        self.candidates.has_lost_agent(pid);
        // Its descriptor leaves the set when it is closed.
        self.sockets.remove(&pid);
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
                LISTENER => self.accept(Some(session)),
                SEARCH => self.search(),
                LOADED => self.take_all_loaded(Some(session)),
                pid => self.receive(pid as u32, Some(session)),
            }
        }
        Next::Continue
    }

    fn finish(&mut self) -> bool {
        self.accept(None);
        self.loading.stop();
        self.take_all_loaded(None);
        self.sockets.values().for_each(AgentSocket::end);
        let pids: Vec<u32> = self.sockets.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.receive(pid, None));
        self.sockets.is_empty() && self.loading.is_idle()
    }
}
