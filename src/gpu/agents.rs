//! The agents in the traced processes: loads them, asks for records, and reports what they say.
//!
//! A started command loads the agent itself: the driver opens the file that a variable of the environment names. Processes of `-p`, and those
//! of the command without the variable, are made to load it as soon as they have the driver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, anyhow};
use host::ElfFile;
use host::process::{self, Program};
use runtime::Session;
use runtime::gpu_agent::{AgentFile, AgentSocket, GRAPH, IDLE, Injector, KERNEL, Received, Wanted};
use runtime::in_process::{RemoteError, seccomp};
use runtime::read::event_loop::{Next, Watch};
use rustix::event::{EventfdFlags, epoll, eventfd};
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
    /// Processes of `-p`, and the started command.
    pids: Vec<u32>,
    command: Option<u32>,
    /// When what they and their children load is looked for.
    search: PacedTimer,
    loaded: Loading,
    /// Programs that have loaded the agent, or cannot.
    tried: BTreeSet<Program>,
    /// Processes whose agent was asked to end, and is loaded again then.
    again: BTreeSet<u32>,
    /// Agents are asked for records as soon as they are there.
    has_begun: bool,
    /// An agent has come too late for NVTX.
    misses_ranges: bool,
}

/// How a process gets the agent.
#[derive(PartialEq, Eq)]
enum Way {
    /// It has not loaded the driver.
    NoneYet,
    /// The driver loads the agent; or it needs none.
    ByItself,
    /// It is made to load the agent.
    ByUs,
    /// Not at all, for this reason.
    Not(String),
}

/// A process that is to be made to load the agent.
#[derive(Copy, Clone)]
struct Found {
    pid: u32,
    /// It is a child of the command, and has lost the variables.
    is_started: bool,
}

/// A process that has loaded the agent, or could not.
struct Loaded {
    found: Found,
    socket: anyhow::Result<AgentSocket>,
}

/// The threads that load agents, and what they have done.
struct Loading {
    sender: Sender,
    receiver: mpsc::Receiver<Loaded>,
    /// Number of processes that are being loaded into.
    expected: usize,
    /// No process is loaded into any more.
    is_over: Arc<AtomicBool>,
}

/// Passes on what a thread has done.
#[derive(Clone)]
struct Sender {
    loaded: mpsc::Sender<Loaded>,
    /// Readable when something was sent.
    event: Arc<OwnedFd>,
}

impl Sender {
    fn send(&self, loaded: Loaded) {
        // Without a receiver the tracer ends, and so does the agent.
        let _ = self.loaded.send(loaded);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl Loading {
    fn new() -> io::Result<Loading> {
        let (loaded, receiver) = mpsc::channel();
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Loading { sender: Sender { loaded, event }, receiver, expected: 0, is_over: Arc::default() })
    }

    fn next(&mut self) -> Option<Loaded> {
        let _ = rustix::io::read(&self.sender.event, &mut [0u8; 8]);
        let loaded = self.receiver.try_recv().ok()?;
        self.expected -= 1;
        Some(loaded)
    }
}

/// Makes a process load the agent.
fn load(injector: &Injector, found: Found, is_over: &AtomicBool) -> Loaded {
    let socket = dlopen_in(found.pid).and_then(|dlopen| {
        injector.inject(found.pid, dlopen, is_over).context("cannot load the library that reads GPU records")
    });
    Loaded { found, socket }
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
        let loaded = Loading::new()?;
        watch(&events, loaded.sender.event.as_fd(), LOADED)?;
        messages.note("The GPU's records need a library of cudatrace in the traced process: it is loaded beside CUDA's driver");
        if kinds & 1 << GRAPH != 0 && kinds & 1 << KERNEL != 0 {
            messages.warning("kernels of graphs have no records of their own while graphs are traced as a whole (`gpu:graph`)");
        }
        let (pids, sockets, tried, again) = Default::default();
        Ok(Agents {
            file,
            messages,
            kinds,
            in_process,
            events,
            sockets,
            reports,
            pids,
            command: None,
            search,
            loaded,
            tried,
            again,
            has_begun: false,
            misses_ranges: false,
        })
    }

    /// Looks for the driver in these processes of `-p`, in the command, and in their children. Agents of others end.
    pub fn search_in(&mut self, pids: &[u32], command: Option<u32>) {
        self.pids = pids.to_vec();
        self.command = command;
        let roots: Vec<u32> = pids.iter().copied().chain(command).collect();
        let all = process::with_descendants(&roots);
        self.sockets.iter().filter(|(pid, _)| !all.contains(pid)).for_each(|(_, socket)| socket.end());
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

    /// Makes the processes load the agent that have the driver, unless they load it themselves.
    ///
    /// # Errors
    /// A process of `-p` cannot load it.
    pub fn load_into_running(&mut self, session: Option<&Session>) -> anyhow::Result<()> {
        for found in self.find() {
            match found.is_started {
                true => self.start_to_load(found)?,
                false => {
                    let loaded = load(&self.file.injector()?, found, &self.loaded.is_over);
                    self.take_loaded(loaded, session)?;
                }
            }
        }
        Ok(())
    }

    /// Programs that are to be loaded into.
    fn find(&mut self) -> Vec<Found> {
        let started = process::with_descendants(self.command.as_slice());
        let others = process::with_descendants(&self.pids).into_iter().filter(|pid| !started.contains(pid));
        let all: Vec<u32> = started.iter().copied().chain(others).collect();
        self.tried.retain(|program| all.contains(&program.pid));
        let mut found = Vec::new();
        for program in all.into_iter().filter_map(Program::of) {
            let pid = program.pid;
            let is_started = started.contains(&pid) && !self.again.contains(&pid);
            if self.tried.contains(&program) {
                continue;
            }
            let way = self.way_into(program, is_started);
            if way != Way::NoneYet {
                self.tried.insert(program);
            }
            match way {
                Way::NoneYet | Way::ByItself => {}
                Way::ByUs => found.push(Found { pid, is_started }),
                Way::Not(why) => self.reports.explain(pid, &why, self.messages),
            }
        }
        found
    }

    /// How a process gets the agent. `is_started`: it is the command or a child of it, whose environment has the variables, unless they
    /// were removed.
    fn way_into(&self, program: Program, is_started: bool) -> Way {
        let pid = program.pid;
        let environment = if is_started { process::environment(pid) } else { HashMap::new() };
        let is_named = self.is_named_in(&environment);
        match environment.get(OsStr::new(INJECTION)).filter(|path| !path.is_empty()) {
            Some(_) if is_named && can_open(pid, self.file) => Way::ByItself,
            _ if !has_driver(pid) => Way::NoneYet,
            _ if !self.pids.contains(&pid) && shares_memory(program) => Way::NoneYet,
            _ if !self.pids.contains(&pid) && self.is_useless_fork(program) => Way::ByItself,
            Some(other) if !is_named => Way::Not(format!(
                "its {INJECTION} names another tool, `{}`; `-p {pid}` reads them beside it",
                other.to_string_lossy()
            )),
            _ if is_started && self.in_process => {
                Way::Not(format!("it was started without {INJECTION}, which `--in-process` needs"))
            }
            _ if is_started && seccomp::filters(pid) > seccomp::own_filters() + 1 => Way::Not(format!(
                "it was started without {INJECTION}, and its seccomp filter could stop the library that reads them"
            )),
            _ => Way::ByUs,
        }
    }

    /// Whether a process was forked from one that uses CUDA, which does not work in it.
    fn is_useless_fork(&self, program: Program) -> bool {
        let Some(parent) = program.forked_from().filter(|parent| uses_cuda(*parent)) else { return false };
        self.messages.detail(|| {
            format!("process {} is a fork of {parent}, which uses CUDA, and gets no agent", program.pid)
        });
        true
    }

    /// Whether the driver finds the agent's path in an environment, or the agent of another tracer, which was named in its place.
    fn is_named_in(&self, environment: &HashMap<OsString, OsString>) -> bool {
        let path = self.file.path();
        environment.iter().any(|(name, value)| name != RANGES && *value == *path)
    }

    /// Looks for processes that have loaded the driver meanwhile.
    fn search(&mut self) {
        let Some(start) = self.search.due() else { return };
        let found = self.find();
        self.search.rest(start, start.elapsed());
        if let Err(error) = found.into_iter().try_for_each(|found| self.start_to_load(found)) {
            self.messages.lost(&format!("no GPU records: {error}"));
        }
    }

    /// Makes a process load the agent, in a thread: that takes a while, and its threads may wait for the tracer meanwhile, with the loader's
    /// lock.
    fn start_to_load(&mut self, found: Found) -> io::Result<()> {
        let (injector, sender) = (self.file.injector()?, self.loaded.sender.clone());
        let is_over = Arc::clone(&self.loaded.is_over);
        std::thread::Builder::new().spawn(move || sender.send(load(&injector, found, &is_over)))?;
        self.loaded.expected += 1;
        Ok(())
    }

    /// Takes the agents that were loaded meanwhile.
    fn take_all_loaded(&mut self, session: Option<&Session>) {
        while let Some(loaded) = self.loaded.next() {
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
            Err(error) if self.pids.contains(&pid) => return Err(error.context(format!("process {pid}"))),
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
        self.tried.extend(Program::of(pid));
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
        if self.again.contains(&pid) {
            self.tried.retain(|program| program.pid != pid);
        }
        // Its descriptor leaves the set when it is closed.
        self.sockets.remove(&pid);
    }
}

/// Adds a descriptor to a set.
fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, mark: u64) -> io::Result<()> {
    Ok(epoll::add(events, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)?)
}

/// Whether a process can open the agent's file by its path: it sees it, and may open what is only in memory.
fn can_open(pid: u32, file: &AgentFile) -> bool {
    let seen = fs::metadata(process::open_path(pid, &file.path()));
    let owner = fs::metadata(format!("/proc/{pid}")).map(|its| its.uid());
    let may = !file.is_in_memory()
        || owner.is_ok_and(|uid| [0, rustix::process::geteuid().as_raw()].contains(&uid));
    may && seen.is_ok_and(|seen| file.is(&seen))
}

/// Whether a process has the memory of its parent, until it executes a program.
fn shares_memory(program: Program) -> bool {
    program.forked_from().is_some_and(|parent| process::share_memory(program.pid, parent))
}

/// Whether a process has initialised CUDA, which opens this device, as NVML does not.
fn uses_cuda(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    files.any(|file| file == Path::new("/dev/nvidia-uvm"))
}

/// Whether a process has loaded CUDA's driver, and not just reads the file, as the tracer does.
fn has_driver(pid: u32) -> bool {
    let mappings = process::mappings(pid);
    mappings.iter().any(|mapping| mapping.executable && cupti::is_of_file(mapping, "libcuda.so"))
}

/// Address of `dlopen` in a process.
fn dlopen_in(pid: u32) -> anyhow::Result<u64> {
    let mappings = process::mappings(pid);
    if mappings.is_empty() {
        return Err(RemoteError::Gone.into());
    }
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
                SEARCH => self.search(),
                LOADED => self.take_all_loaded(Some(session)),
                pid => self.receive(pid as u32, Some(session)),
            }
        }
        Next::Continue
    }

    fn finish(&mut self) -> bool {
        self.accept(None);
        self.loaded.is_over.store(true, Ordering::Relaxed);
        self.take_all_loaded(None);
        self.sockets.values().for_each(AgentSocket::end);
        let pids: Vec<u32> = self.sockets.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.receive(pid, None));
        self.sockets.is_empty() && self.loaded.expected == 0
    }
}
