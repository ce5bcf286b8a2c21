//! Libraries that are mapped while a script runs. A program that we started is held until they are attached; mappings of other
//! processes are reported after the fact.

use super::extender::Extender;
use host::{Identity, untrusted_file};
use linux::proc;
use runtime::Session;
use runtime::kernel::clock::{Clock, SystemClock};
use runtime::remote::RemoteError;
use runtime::session::event_loop::{Next, Watch};
use runtime::started::{MappedInode, Mapping, MappingEvent, MappingWatch, Mappings, Query};
use std::collections::{BTreeSet, HashSet};
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Handles queries of the seccomp server of a started program: the thread that maps a file waits.
pub struct HeldMappings<'a> {
    mappings: Mappings,
    extender: &'a Extender<'a>,
    /// Number of mappings that continued unexamined, as far as reported.
    late: u64,
    /// True if the warning about the program's own use of seccomp was printed.
    warned: bool,
    /// Boot-clock time of the last release.
    released_ns: u64,
}

impl<'a> HeldMappings<'a> {
    /// Creates the handler of requests from `mappings`.
    pub fn new(mappings: Mappings, extender: &'a Extender<'a>) -> HeldMappings<'a> {
        HeldMappings { mappings, extender, late: 0, warned: false, released_ns: 0 }
    }

    /// Reports mappings that continued before they were examined.
    fn report_late(&mut self) {
        let late = self.mappings.late();
        let before = std::mem::replace(&mut self.late, late);
        if late > before {
            self.extender.miss_mappings();
            let threads = self.mappings.late_threads(before);
            let pids: BTreeSet<u32> = threads.into_iter().map(|tid| proc::tgid(tid).unwrap_or(tid)).collect();
            for pid in pids {
                self.extender.messages.lost(&format!(
                    "process {pid} waited for seconds until a library was attached, and continued: its calls may be missing"
                ));
            }
        }
    }

    /// Explains an error that the program gets because it is traced.
    fn warn_of_seccomp(&mut self, tid: u32, what: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            self.extender.messages.warning(&format!(
                "thread {tid} requests {what}, which the kernel refuses to a program that is started with `--`; start it \
                 without cudatrace, and trace it with `-p`"
            ));
        }
    }

    fn consider(&self, mapping: &Mapping, session: &mut Session) {
        let when = format!("about to be mapped by thread {}", mapping.tid);
        let (start, before) = (SystemClock.boot_ns(), session.attached());
        self.extender.record_mapping(mapping.identity());
        self.extender.detach_overwritten(session, &mapping.open, &mapping.shown);
        self.extender.scripts.extend(session, &mapping.open, &mapping.shown, &when);
        let more = session.attached().saturating_sub(before);
        if more > 0 {
            self.extender.add_probed(&mapping.shown);
            let end = SystemClock.boot_ns();
            self.extender.names.waited(mapping.tid, start..end);
            let took = report::recording::summary::time(end - start);
            self.extender.note_attached(more, &mapping.shown, &format!("paused the program for {took}"));
        }
    }

    /// Examines a program that is about to run: it may have the CUDA runtime linked in, whatever its name is.
    fn consider_program(&self, program: &Mapping, session: &mut Session) {
        let when = format!("about to be executed by thread {}", program.tid);
        self.extender.record_mapping(program.identity());
        self.extender.detach_overwritten(session, &program.open, &program.shown);
        self.extender.scripts.extend_program(session, &program.open, &program.shown, &when);
    }

    /// Reads the mappings of a process before it ends, so that its stacks still have symbols.
    fn keep_symbols(&self, tid: u32) {
        let pid = proc::tgid(tid).unwrap_or(tid);
        self.extender.names.outdate(pid);
        self.extender.names.remember(pid);
        if let Some(unwinder) = self.extender.unwinder() {
            unwinder.forget(pid);
        }
    }

    /// Loads the unwind table of a file before it is mapped, if stacks are walked.
    fn prepare_stacks(&self, mapping: &Mapping) {
        if let Some(unwinder) = self.extender.unwinder() {
            let pid = proc::tgid(mapping.tid).unwrap_or(mapping.tid);
            unwinder.prepare(pid, mapping);
            let names = self.extender.names;
            match mapping.range {
                Some(range) => names.expect(pid, mapping, range),
                None => names.outdate(pid),
            }
        }
    }

    /// Patches the process of a thread and lets the thread go on; `None` if the process needs not be patched.
    fn patch_if_concerned(&mut self, mapping: &Mapping, session: &mut Session) -> Option<Next> {
        let pid = proc::tgid(mapping.tid).unwrap_or(mapping.tid);
        session.meet(pid);
        self.extender.new_drivers.maps(pid, &mapping.shown, Duration::ZERO);
        if !session.must_patch(pid, mapping.identity().1, &mapping.shown) {
            return None;
        }
        let patched = self.patch(pid, mapping, session);
        self.report_late();
        Some(if patched.is_ok() { Next::Continue } else { Next::Remove })
    }

    /// Lets the thread map the file and patches its process before the file's first call, if the programs run there.
    fn patch(&mut self, pid: u32, mapping: &Mapping, session: &mut Session) -> std::io::Result<()> {
        let mut answered = Ok(());
        let mappings = &mut self.mappings;
        let patched = session.patch_held(pid, mapping.tid, || answered = mappings.answer());
        match patched {
            Ok(report) => {
                self.extender.messages.detail(|| format!("process {pid} maps {}", mapping.shown.display()));
                self.extender.messages.patched(pid, &report);
            }
            Err(RemoteError::Gone) => {}
            Err(error) => self.extender.report_untraced(pid, "is not traced", &error),
        }
        answered
    }

    /// Lets the thread install a seccomp filter. Its process is left alone from then on if the programs in it could be killed.
    fn install_filter(&mut self, tid: u32, session: &mut Session) -> std::io::Result<()> {
        let mut answered = Ok(());
        let mappings = &mut self.mappings;
        let pid = proc::tgid(tid).unwrap_or(tid);
        let messages = self.extender.messages;
        match session.install_filter(pid, tid, || answered = mappings.answer()) {
            Ok(None) | Err(RemoteError::Gone) => {}
            Ok(Some(reason)) => messages.lost(&format!(
                "process {pid} is not traced any more, since it has installed a seccomp filter: {reason}"
            )),
            Err(error) => messages.lost(&format!(
                "process {pid} installs a seccomp filter, and its probes could not be taken off: {error}"
            )),
        }
        answered
    }

    /// Lets the thread change the rights of its process, which loses the memory that it shares if they are others then.
    fn change_rights(&mut self, tid: u32, session: &mut Session) -> std::io::Result<()> {
        let mut answered = Ok(());
        let mappings = &mut self.mappings;
        let pid = proc::tgid(tid).unwrap_or(tid);
        match session.change_rights(pid, tid, || answered = mappings.answer()) {
            Ok(()) | Err(RemoteError::Gone) => {}
            Err(error) => self.extender.messages.lost(&format!(
                "process {pid} changes its rights, and may still share memory with the processes that are traced: {error}"
            )),
        }
        answered
    }

    /// Releases the thread. `elapsed` excludes the time for which it was held. If several threads were held at the
    /// same time, each delay counts from the previous release.
    fn release(&mut self, session: &Session) -> std::io::Result<()> {
        if let Some(since_ns) = self.mappings.held_since_ns() {
            session.pause_clock(since_ns.max(self.released_ns));
            self.released_ns = SystemClock.boot_ns();
        }
        self.mappings.answer()
    }
}

impl Watch for HeldMappings<'_> {
    fn fd(&self) -> RawFd {
        self.mappings.as_fd().as_raw_fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        match self.mappings.next() {
            Ok(Some(Query::Maps(mapping))) => {
                self.consider(&mapping, session);
                self.prepare_stacks(&mapping);
                if let Some(next) = self.patch_if_concerned(&mapping, session) {
                    return next;
                }
            }
            Ok(Some(Query::Begins(program))) => {
                if let Some(next) = self.patch_if_concerned(&program, session) {
                    return next;
                }
            }
            Ok(Some(Query::Executes(program))) => {
                session.meet(proc::tgid(program.tid).unwrap_or(program.tid));
                self.consider_program(&program, session);
            }
            Ok(Some(Query::InstallsListener(tid))) => {
                self.warn_of_seccomp(tid, "a seccomp listener of its own");
            }
            Ok(Some(Query::InstallsFilter(tid))) => {
                let answered = self.install_filter(tid, session);
                self.report_late();
                return if answered.is_ok() { Next::Continue } else { Next::Remove };
            }
            Ok(Some(Query::ChangesRights(tid))) => {
                let answered = self.change_rights(tid, session);
                self.report_late();
                return if answered.is_ok() { Next::Continue } else { Next::Remove };
            }
            Ok(Some(Query::EntersStrictMode(tid))) => self.warn_of_seccomp(tid, "seccomp's strict mode"),
            Ok(Some(Query::Ends(tid))) => self.keep_symbols(tid),
            Ok(None) | Err(_) => return Next::Remove,
        }
        let answered = self.release(session);
        self.report_late();
        if answered.is_ok() { Next::Continue } else { Next::Remove }
    }
}

impl Drop for HeldMappings<'_> {
    fn drop(&mut self) {
        self.report_late();
    }
}

/// Handles reports of mapped files. Calls before the probes are attached are missed; a note prints the delay.
pub struct MappingReports<'a> {
    watch: MappingWatch,
    extender: &'a Extender<'a>,
    /// True if the traced program is held at new files, so that only other kinds of mappings matter.
    is_held: bool,
    seen: HashSet<MappedInode>,
    /// Number of overwritten files at the last report: such files must be examined again.
    seen_before: usize,
}

impl<'a> MappingReports<'a> {
    /// Creates the handler of reports from `watch`.
    pub fn new(watch: MappingWatch, extender: &'a Extender<'a>) -> MappingReports<'a> {
        MappingReports { watch, extender, is_held: false, seen: HashSet::new(), seen_before: 0 }
    }

    /// Like [`MappingReports::new`], in addition to [`HeldMappings`] for the only traced program.
    pub fn beside(watch: MappingWatch, extender: &'a Extender<'a>) -> MappingReports<'a> {
        MappingReports { is_held: true, ..MappingReports::new(watch, extender) }
    }

    fn consider(&mut self, mapped: &MappingEvent, session: &mut Session) {
        // Programs in traced processes get their probes while these are held. Stacks need the address that the kernel has chosen.
        if session.is_in_process() {
            return if session.is_traced(mapped.pid) {
                self.add_code(mapped, session, false)
            };
        }
        let any = self.sees_all_processes();
        // A held program is handled when it is held, and other programs are not traced then.
        if self.is_held && !any && !session.is_traced(mapped.pid) {
            return;
        }
        self.extender.record_mapping((mapped.inode.device, mapped.inode.number));
        if self.extender.scripts.may_probe(&mapped.path) {
            self.extender.names.processes.add(mapped.pid);
        }
        if any || session.is_traced(mapped.pid) {
            self.extender.names.add_mapping(mapped);
        }
        self.add_code(mapped, session, any);
        let overwritten = self.extender.overwritten.get();
        if std::mem::replace(&mut self.seen_before, overwritten) != overwritten {
            self.seen.clear();
        }
        if !any && !session.is_traced(mapped.pid) || self.seen.contains(&mapped.inode) {
            return;
        }
        let file = match open(mapped) {
            Ok(file) => file,
            Err(error) => return self.leave_unopened(mapped, &error),
        };
        self.seen.insert(mapped.inode);
        let age = mapped.age();
        let when = format!("mapped by process {} {} us before", mapped.pid, age.as_micros());
        let before = session.attached();
        self.extender.scripts.extend(session, &file.path, &mapped.path, &when);
        let more = session.attached().saturating_sub(before);
        if more > 0 && !self.is_held {
            let took = report::recording::summary::time(mapped.age().as_nanos() as u64);
            let how = format!("{took} after process {} loaded it; earlier calls are not traced", mapped.pid);
            self.extender.note_attached(more, &mapped.path, &how);
        }
        if more > 0 {
            self.extender.add_probed(&mapped.path);
        }
        if more > 0 && self.is_held {
            self.extender.miss_mappings();
            self.extender.messages.lost(&format!(
                "{}: mapped first and made executable later, which does not hold the program: calls may be missing",
                mapped.path.display()
            ));
        }
        self.extender.names.outdate(mapped.pid);
    }
}

impl MappingReports<'_> {
    /// Reports a file that cannot be opened. If its process has ended and had a root of its own, this is not a
    /// failure: the next process that maps the file provides it.
    fn leave_unopened(&self, mapped: &MappingEvent, error: &std::io::Error) {
        let is_exhausted = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM));
        if is_exhausted && self.extender.scripts.may_probe(&mapped.path) {
            self.extender.miss_mappings();
            self.extender.messages.lost(&format!("{}: not traced: {error}", mapped.path.display()));
        }
    }
}

/// A mapped file, with a path that stays valid.
struct MappedFile {
    path: PathBuf,
    /// Keeps the file open while the path, which refers to this descriptor, is used.
    _held: Option<File>,
}

/// Opens a mapped file. If the process has already ended, its path is tried in the root of this process.
fn open(mapped: &MappingEvent) -> std::io::Result<MappedFile> {
    let is_it = |file: &Metadata| (file.dev(), file.ino()) == (mapped.inode.device, mapped.inode.number);
    if mapped.path.metadata().is_ok_and(|file| is_it(&file)) {
        return Ok(MappedFile { path: mapped.path.clone(), _held: None });
    }
    let inside = mapped.path.strip_prefix("/").unwrap_or(&mapped.path);
    let file = untrusted_file::open(&PathBuf::from(format!("/proc/{}/root", mapped.pid)).join(inside))?;
    // The path may refer to another file by now.
    if !Identity::of_file(&file)?.may_be(mapped.inode.device, mapped.inode.number) {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok(MappedFile { path, _held: Some(file) })
}

impl MappingReports<'_> {
    /// Whether mappings of any process matter: all are traced, or the traced ones cannot be distinguished.
    fn sees_all_processes(&self) -> bool {
        self.extender.machine.scope().is_system_wide() || !proc::sees_all_pids()
    }

    /// Loads the unwind table of newly mapped code, if stacks are walked.
    fn add_code(&self, mapped: &MappingEvent, session: &Session, any: bool) {
        let Some(unwinder) = self.extender.unwinder() else { return };
        if unwinder.has_process(mapped.pid) || !any && session.is_traced(mapped.pid) {
            unwinder.add_mapping(mapped);
            self.extender.names.outdate(mapped.pid);
        }
    }
}

impl MappingReports<'_> {
    /// Mappings since the last call.
    fn read(&mut self) -> Vec<MappingEvent> {
        let mapped = self.watch.read();
        self.extender.new_drivers.add_forks(&self.watch.take_forks());
        for mapped in &mapped {
            // A held program is asked about the first mapping of a file only.
            self.extender.new_drivers.maps(mapped.pid, &mapped.path, mapped.time_in_use());
        }
        if self.watch.lost() > 0 && !self.is_held {
            self.extender.lose_reports();
        }
        mapped
    }
}

impl Watch for MappingReports<'_> {
    fn fd(&self) -> RawFd {
        self.watch.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        for mapped in self.read() {
            self.consider(&mapped, session);
        }
        Next::Continue
    }

    fn finish(&mut self, _: &mut Session) -> bool {
        self.read();
        true
    }
}
