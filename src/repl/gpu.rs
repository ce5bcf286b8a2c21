//! GPU records at the prompt. The agent, the library that collects them in a traced process, is loaded when the first clause needs records.
//! If a later clause needs other kinds, it is ended and loaded again.

use crate::console::Messages;
use crate::gpu::{AgentOptions, Agents, NewDrivers, Reports};
use anyhow::{Context, Result};
use host::Machine;
use runtime::gpu::{AgentFile, KindSet};
use runtime::session::event_loop::{Next, Watch};
use runtime::{Joining, Session};
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::rc::Rc;

/// The agents of the session.
pub struct Gpu<'a> {
    file: Option<&'a AgentFile>,
    reports: &'a Reports,
    /// Kinds of records that clauses have needed so far, as in [`Agents`].
    kinds: Cell<KindSet>,
    agents: RefCell<Option<Rc<RefCell<Agents<'a>>>>>,
}

/// Parts of the session that agents need.
pub struct Surroundings<'r, 'a> {
    /// The source of files and processes.
    pub machine: &'a Machine,
    /// The printer of notes and warnings.
    pub messages: &'a Messages,
    /// Processes that map the driver.
    pub new_drivers: &'a NewDrivers,
    /// The program that runs.
    pub program: Option<u32>,
    /// Where the watch of the agents joins.
    pub joining: &'r Joining<'a>,
}

impl<'a> Gpu<'a> {
    /// No agents yet. Without the file there never are.
    pub fn new(file: Option<&'a AgentFile>, reports: &'a Reports) -> Gpu<'a> {
        Gpu { file, reports, kinds: Cell::new(KindSet::EMPTY), agents: RefCell::default() }
    }

    /// Variables of the environment by which a program loads the agent, if records are needed.
    pub fn environment(&self, messages: &Messages) -> Vec<(OsString, OsString)> {
        let file = self.file.filter(|_| !self.kinds.get().is_empty());
        file.map_or_else(Vec::new, |file| Agents::environment(file, self.kinds.get(), messages))
    }

    /// Loads agents into these processes, if records are needed; those of others end.
    pub fn retarget(&self, session: &mut Session, pids: &[u32]) -> Result<()> {
        let Some(agents) = &*self.agents.borrow() else { return Ok(()) };
        let mut agents = agents.borrow_mut();
        agents.search_in(pids, None);
        agents.load_into_running(session)
    }

    /// Takes the records that clauses need now. The session's last module is that of the last clause.
    pub fn take_records(&self, around: &Surroundings<'_, 'a>, session: &mut Session) -> Result<()> {
        let kinds = KindSet::from_bits(session.manifest().gpu_kinds);
        let Some(file) = self.file.filter(|_| !self.kinds.get().includes(kinds)) else { return Ok(()) };
        self.kinds.set(self.kinds.get().union(kinds));
        if let Some(agents) = &*self.agents.borrow() {
            agents.borrow_mut().want(kinds);
            return Ok(());
        }
        let Surroundings { machine, messages, new_drivers, program, joining } = *around;
        let pids = machine.scope().pids.clone();
        let reports = self.reports;
        let options =
            AgentOptions { file, machine, messages, reports, new_drivers, kinds, in_process: false };
        let mut agents = Agents::new(options).context("cannot wait for the agents of processes")?;
        agents.search_in(&pids, program);
        if pids.is_empty() && program.is_none() {
            messages.note("records come of a program that `:run COMMAND` starts, or of processes that `:pid PID` selects");
        }
        agents.begin()?;
        let loaded = agents.load_into_running(session);
        let agents = Rc::new(RefCell::new(agents));
        joining.borrow_mut().push(Box::new(AgentsWatch(Rc::clone(&agents))));
        *self.agents.borrow_mut() = Some(agents);
        loaded
    }

    /// Lets the processes of a program that was started be found which do not load the agent themselves, or load it again.
    pub fn started(&self, pid: u32) {
        if let Some(agents) = &*self.agents.borrow() {
            agents.borrow_mut().search_in(&[], Some(pid));
        }
    }

    /// Reports what was collected.
    pub fn print(&self, messages: &Messages) {
        if self.agents.borrow().is_some() {
            self.reports.print(messages);
        }
    }
}

/// Watches the agents.
struct AgentsWatch<'a>(Rc<RefCell<Agents<'a>>>);

impl Watch for AgentsWatch<'_> {
    fn fd(&self) -> RawFd {
        self.0.borrow().fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.0.borrow_mut().ready(session)
    }

    fn finish(&mut self, session: &mut Session) -> bool {
        self.0.borrow_mut().finish(session)
    }
}
