//! The agents in the traced processes: loads them, asks for records, and reports what they say.
//!
//! A started command loads the agent itself: the driver opens the file that a variable of the environment names. A process of `-p` is made
//! to load it as soon as it has the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use anyhow::anyhow;
use host::ElfFile;
use host::process;
use runtime::Session;
use runtime::gpu_agent::{AgentFile, AgentSocket, GRAPH, IDLE, KERNEL, Received, Wanted};
use runtime::in_process::RemoteError;
use runtime::read::event_loop::{Next, Watch};
use rustix::event::epoll;
use wire::manifest::{GPU_LAUNCHES, GPU_RANGES};

use super::cupti;
use super::reports::{Asked, Reports};
use crate::console::Messages;
use crate::timer::PacedTimer;

/// The driver loads this file.
const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Libraries with NVTX load this file at their first call.
const RANGES: &str = "NVTX_INJECTION64_PATH";
/// Time between two flushes of CUPTI's buffers.
const FLUSH_MS: u32 = 100;
/// Pause between two searches for processes that have loaded the driver.
const PAUSE: Duration = Duration::from_millis(200);
/// Files of C libraries with `dlopen`.
const LOADERS: [&str; 3] = ["libc.so.6", "libdl.so.2", "ld-musl-"];

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
    /// Processes of `-p`, and the search for what they load.
    pids: Vec<u32>,
    search: Option<PacedTimer>,
    /// Processes that were made to load the agent, or cannot.
    tried: BTreeSet<u32>,
    /// Processes whose agent was asked to end, and is loaded again then.
    again: BTreeSet<u32>,
    /// Agents are asked for records as soon as they are there.
    has_begun: bool,
    is_ending: bool,
}

/// Marks of descriptors in the set; agents have their process.
const LISTENER: u64 = u64::MAX;
const SEARCH: u64 = u64::MAX - 1;

impl<'a> Agents<'a> {
    /// Waits for agents, and finds processes of `pids` and their children that have loaded the driver. `in_process`: programs run there.
    pub fn new(
        file: &'a AgentFile,
        (kinds, in_process): (u32, bool),
        pids: &[u32],
        (reports, messages): (&'a Reports, &'a Messages),
    ) -> io::Result<Agents<'a>> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&events, file.as_fd(), LISTENER)?;
        messages.note("The GPU's records need a library of cudatrace in the traced process: it is loaded beside CUDA's driver");
        if kinds & 1 << GRAPH != 0 && kinds & 1 << KERNEL != 0 {
            messages.warning("kernels of graphs have no records of their own while graphs are traced as a whole (`gpu:graph`)");
        }
        if kinds & GPU_RANGES != 0 && !pids.is_empty() {
            messages.warning(
                "`nvtx` stays empty in processes of -p: NVTX looks for a tool at its first call; start the program with cudatrace",
            );
        }
        let (sockets, tried, again) = Default::default();
        let mut agents = Agents {
            file,
            messages,
            kinds,
            in_process,
            events,
            sockets,
            reports,
            pids: vec![],
            search: None,
            tried,
            again,
            has_begun: false,
            is_ending: false,
        };
        agents.search_in(pids)?;
        Ok(agents)
    }

    /// Looks for these processes and their children, which have not loaded the agent by themselves. Agents of others end.
    ///
    /// # Errors
    /// The errors of timerfd_create(2).
    pub fn search_in(&mut self, pids: &[u32]) -> io::Result<()> {
        self.pids = pids.to_vec();
        if self.search.is_none() && !pids.is_empty() {
            let timer = PacedTimer::new(PAUSE)?;
            watch(&self.events, timer.as_fd(), SEARCH)?;
            self.search = Some(timer);
        }
        let all = process::with_descendants(pids);
        self.sockets.iter().filter(|(pid, _)| !all.contains(pid)).for_each(|(_, socket)| socket.end());
        Ok(())
    }

    /// Asks for further kinds of records: the agents end, and are loaded again.
    pub fn want(&mut self, kinds: u32) {
        self.kinds |= kinds;
        self.sockets.values().for_each(AgentSocket::end);
        self.again.extend(self.sockets.keys());
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

    /// Makes the processes of `-p` load the agent that have the driver.
    pub fn load_into_running(&mut self, session: Option<&Session>) -> anyhow::Result<()> {
        for pid in process::with_descendants(&self.pids) {
            if self.tried.contains(&pid) || !has_driver(pid) {
                continue;
            }
            self.tried.insert(pid);
            match self.load_into(pid, session) {
                Err(error) if self.pids.contains(&pid) => {
                    return Err(error.context(format!("process {pid}")));
                }
                Err(error) => self.messages.warning(&format!("no GPU records of process {pid}: {error}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Looks for processes that have loaded the driver meanwhile.
    fn search(&mut self, session: &Session) {
        let Some(start) = self.search.as_ref().and_then(PacedTimer::due) else { return };
        if let Err(error) = self.load_into_running(Some(session)) {
            self.messages.lost(&format!("no GPU records: {error:#}"));
        }
        if let Some(timer) = &mut self.search {
            timer.rest(start, start.elapsed());
        }
    }

    fn load_into(&mut self, pid: u32, session: Option<&Session>) -> anyhow::Result<()> {
        let dlopen = dlopen_in(pid)?;
        match self.file.inject(pid, dlopen) {
            // It has ended.
            Err(RemoteError::Gone) => Ok(()),
            Err(error) => Err(anyhow!("cannot load the library that reads GPU records: {error}")),
            Ok(socket) => Ok(self.meet(socket, session)?),
        }
    }

    /// Keeps a new agent, and asks it for records unless [`Agents::begin`] will.
    fn meet(&mut self, socket: AgentSocket, session: Option<&Session>) -> io::Result<()> {
        let pid = socket.pid();
        self.tried.insert(pid);
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
    /// An agent cannot be asked. That of a process that has ended needs not be.
    pub fn begin(&mut self, session: &Session) -> io::Result<()> {
        self.has_begun = true;
        for socket in self.sockets.values() {
            match self.ask(socket, session) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                asked => asked?,
            }
        }
        Ok(())
    }

    /// Kinds of records, a bit per kind.
    fn records(&self) -> u32 {
        self.kinds & !(GPU_LAUNCHES | GPU_RANGES)
    }

    fn ask(&self, socket: &AgentSocket, session: &Session) -> io::Result<()> {
        // The cause of idle time depends on the launch after it.
        let launches = self.kinds & (GPU_LAUNCHES | 1 << IDLE) != 0;
        let wanted = Wanted {
            kinds: self.records(),
            flush_ms: FLUSH_MS,
            launches,
            replaced: session.launches(socket.pid()),
        };
        socket.request(wanted, &cupti::paths(socket.pid()))
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
        if self.again.remove(&pid) {
            self.tried.remove(&pid);
        }
        // Its descriptor leaves the set when it is closed.
        self.sockets.remove(&pid);
    }
}

/// Adds a descriptor to a set.
fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, mark: u64) -> io::Result<()> {
    Ok(epoll::add(events, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)?)
}

/// Whether a process has loaded CUDA's driver.
fn has_driver(pid: u32) -> bool {
    cupti::file_with(&process::mappings(pid), "libcuda.so").is_some()
}

/// Address of `dlopen` in a process.
fn dlopen_in(pid: u32) -> anyhow::Result<u64> {
    let mappings = process::mappings(pid);
    let address = |loader: &&str| {
        let mapping = cupti::file_with(&mappings, loader).filter(|mapping| mapping.offset == 0)?;
        let path = process::open_path(pid, mapping.name.path()?);
        let elf = ElfFile::open(&mapping.link(pid)).or_else(|_| ElfFile::open(&path)).ok()?;
        let (address, _) = elf.symbol_of("dlopen")?;
        Some(mapping.start + address)
    };
    LOADERS.iter().find_map(address).ok_or_else(|| {
        anyhow!(
            "the program has no `dlopen`, since it is linked statically: no library can be loaded into it"
        )
    })
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
                pid => self.receive(pid as u32, Some(session)),
            }
        }
        Next::Continue
    }

    fn finish(&mut self) -> bool {
        self.accept(None);
        if !std::mem::replace(&mut self.is_ending, true) {
            self.sockets.values().for_each(AgentSocket::end);
        }
        let pids: Vec<u32> = self.sockets.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.receive(pid, None));
        self.sockets.is_empty()
    }
}
