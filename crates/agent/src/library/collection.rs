//! The collection of records, from the tracer's request to its end: one thread of the agent.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use crate::activity::{Activity, SOURCES, kind};
use crate::api_exit::Departure;
use crate::batch::Batches;
use crate::clock::Clock;
use crate::cupti::{CallbackData, Cupti, DRIVER_API, ENTER, SUCCESS, Subscriber};
use crate::devices::Devices;
use crate::driver::Driver;
use crate::forks::NoForks;
use crate::idle::Idle;
use crate::kind_set::KindSet;
use crate::launches::CallFilter;
use crate::message::{Hello, MULTIPLE_SUBSCRIBERS, Operators, Report, Request, State};
use crate::operators::ProbedEvents;
use crate::record::{Kind, Record};
use crate::sys::{self, Descriptor};
use crate::waiting::{HOLD, ReorderBuffer};
use crate::waits::Waits;
use crate::{
    api_exit, batch, buffers, counts, graphs, launches, leaving, operators, presence, ranges, waiting,
};

/// Milliseconds that the driver's `cuInit` waits for the tracer's request.
const PATIENCE: c_int = 2000;
/// Oldest CUPTI that can be ended while graphs exist that it has not recorded: that of CUDA 12.4.
const CAN_FINALIZE: u32 = 22;
/// Nanoseconds that the end waits for graphs that were launched before, and for those that were launched meanwhile.
const LAST_GRAPHS: u64 = 600_000_000;
const LATER_GRAPHS: u64 = 400_000_000;
/// Milliseconds between two looks for their records.
const STEP: i64 = 2;
const EBUSY: c_int = 16;
const ENOMEM: c_int = 12;

/// Milliseconds after which the calls have returned whose work has been done.
const RETURNS: i64 = 2;

/// Rounds between two looks for PyTorch, which takes a lock of the loader.
const ROUNDS_OF_A_LOOK: u32 = 8;

struct CollectionCell(UnsafeCell<Option<Collection>>);
// SAFETY: the thread that starts the collection writes it before the agent's thread exists, which has it afterwards.
unsafe impl Sync for CollectionCell {}
static COLLECTION: CollectionCell = CollectionCell(UnsafeCell::new(None));

/// A running collection.
struct Collection {
    socket: Descriptor,
    cupti: Option<(Cupti, Subscriber)>,
    kinds: KindSet,
    /// Which calls are noted, if any.
    noted: Option<CallFilter>,
    /// Which events of operators are passed on, if any.
    operators: Option<ProbedEvents>,
    flush_ms: c_int,
    /// Nanoseconds of CLOCK_MONOTONIC, where an earlier collection has not ended CUPTI: work that has begun before was that one's.
    begun: u64,
    end: Option<End>,
    report: Report,
}

/// The end of a collection. Where graphs are used, it waits for those that were launched before, up to a limit.
///
/// CUPTI records meanwhile, until it has returned all records from before: the records of a graph's last launch are not copied before all of its
/// work is done, and a launch of the graph that is not recorded changes the times in them. Then it records no more, and returns its buffers. No
/// flush is forced where graphs are in flight: CUPTI 13.0.1 leaves their records without times, and takes longer for each flush of all later
/// collections, up to seconds. What has not come in time is counted as records without times.
struct End {
    /// Work that was launched later is not passed on. In nanoseconds of CLOCK_MONOTONIC, as the next one.
    cut: u64,
    /// Until when the records are waited for, those of before and then all.
    until: u64,
    /// CUPTI records nothing any more.
    is_disabled: bool,
}

impl End {
    /// Whether graphs are waited for.
    fn waits_for_graphs(&self) -> bool {
        self.cut != u64::MAX
    }

    /// Whether the record is passed on after all.
    fn takes(&self, record: &Record) -> bool {
        let launch = if record.launch == 0 { record.start } else { record.launch };
        launch <= self.cut
    }

    /// Whether the times in a record may be those of another launch of its graph.
    fn doubts(&self, record: &Record) -> bool {
        record.node != 0 && self.is_disabled && self.waits_for_graphs()
    }
}

/// Kinds of records of single nodes of a graph.
const OF_GRAPHS: [Kind; 4] = [Kind::Kernel, Kind::Memcpy, Kind::Memset, Kind::Idle];

/// The state of the driver when a collection starts.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum DriverState {
    /// `cuInit` is loading the library. The driver refuses calls, and those who trace failures would see them.
    Initializes,
    Runs,
}

/// Starts a collection with its thread, after `hello`. The calling thread sets CUPTI up, so that it sees all that the program does afterwards. Returns
/// 0, or an error number.
pub(crate) fn start(socket: Descriptor, hello: &Hello, driver: DriverState) -> c_int {
    // SAFETY: no arguments.
    let pid = unsafe { sys::getpid() } as u32;
    if !presence::begin(pid, socket) {
        socket.close();
        return EBUSY;
    }
    socket.send(hello);
    let mut collection = Collection {
        socket,
        cupti: None,
        kinds: KindSet::EMPTY,
        noted: None,
        operators: None,
        flush_ms: 0,
        begun: 0,
        end: None,
        report: Report::default(),
    };
    collection.set_up(driver);
    // SAFETY: no other thread has it, see `CollectionCell`.
    unsafe { *COLLECTION.0.get() = Some(collection) };
    if !start_thread() {
        socket.close();
        presence::end();
        return ENOMEM;
    }
    0
}

/// CUPTI calls this at the begin and at the exit of calls of the driver: of launches, of those that make graphs, and of all calls when CUPTI is
/// to end.
extern "C" fn called_back(_: *mut c_void, domain: u32, number: u32, call: *const CallbackData) {
    if domain != DRIVER_API || call.is_null() {
        return;
    }
    // SAFETY: CUPTI's, in this domain.
    let call = unsafe { &*call };
    match call.site {
        ENTER => launches::entered(number, call),
        _ => {
            launches::returned(number, call);
            api_exit::exited();
        }
    }
}

/// Registers a handler for the end of the process. Handlers are called in the reverse order, and after its own CUPTI must not be called. So
/// one is registered whenever CUPTI may have registered its own; and one before, by which a thread that sets CUPTI up learns of an end in
/// the middle of that.
fn handle_exit() {
    // SAFETY: a function that lives as long as the process: this library is never unloaded.
    unsafe { sys::__cxa_atexit(at_exit, null_mut(), null_mut()) };
}

/// An error if the process exits: nothing more is set up then.
fn go_on() -> Result<(), State> {
    if presence::exits() { Err(State::Ended) } else { Ok(()) }
}

extern "C" fn at_exit(_: *mut c_void) {
    presence::pass_on_last();
}

/// Signals 32 to 34, by which musl reaches all threads, as for setuid(2); glibc leaves its own out of a mask by itself.
const OF_THE_C_LIBRARY: u64 = 0b111 << 31;

/// Keeps forks waiting, which an exit does not wait for.
fn no_forks() -> Option<NoForks> {
    if presence::exits() { None } else { NoForks::begin() }
}

/// Starts the agent's thread, which gets no signals of the program.
fn start_thread() -> bool {
    let (mut all, mut before, mut thread) = ([u64::MAX; 16], [0u64; 16], 0);
    all[0] &= !OF_THE_C_LIBRARY;
    // SAFETY: valid pointers, and a function that lives as long as the library.
    unsafe {
        sys::pthread_sigmask(sys::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let result = sys::pthread_create(&raw mut thread, core::ptr::null(), run, null_mut());
        sys::pthread_sigmask(sys::SIG_SETMASK, before.as_ptr(), null_mut());
        result == 0 && sys::pthread_detach(thread) == 0
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    take_name_of_process();
    // SAFETY: see `CollectionCell`.
    if let Some(mut collection) = unsafe { (*COLLECTION.0.get()).take() } {
        if collection.flush_ms == 0 {
            collection.set_up(DriverState::Runs);
        }
        collection.collect();
        // The tracer counts what other threads launch until the process has ended.
        if !presence::exits() {
            collection.socket.close();
        }
    }
    presence::end();
    null_mut()
}

/// Gives this thread the name of the process, which probes see as that of the record's process.
fn take_name_of_process() {
    let mut name = [0u8; 16];
    // SAFETY: texts that end with zero, and room for as many bytes.
    unsafe {
        let fd = sys::open(c"/proc/self/comm".as_ptr(), sys::O_CLOEXEC);
        let length = sys::read(fd, name.as_mut_ptr(), name.len() - 1);
        sys::close(fd);
        if let Ok(length @ 1..) = usize::try_from(length) {
            // The line end.
            name[length - 1] = 0;
            sys::prctl(sys::PR_SET_NAME, name.as_ptr().cast(), 0, 0, 0);
        }
    }
}

impl Collection {
    /// Waits for the request and enables its kinds.
    fn set_up(&mut self, driver: DriverState) {
        let request = match self.socket.wait(PATIENCE) {
            true => self.socket.receive(),
            false => None,
        };
        let Some((request, memory)) = request else { return };
        memory.into_iter().for_each(counts::map);
        self.flush_ms = request.flush_ms.clamp(1, 10_000) as c_int;
        let has_context = || Driver::loaded().is_some_and(|driver| driver.has_context());
        self.report.had_context = (driver == DriverState::Runs && has_context()).into();
        let no_forks = NoForks::begin();
        handle_exit();
        match self.enable(&request) {
            Ok(()) => {
                self.report.state = State::Collects as u32;
                handle_exit();
                leaving::watch();
            }
            // CUPTI must not be called any more.
            Err(_) if presence::exits() => {
                self.cupti = None;
                return;
            }
            Err(state) => {
                self.report.state = state as u32;
                self.give_up();
            }
        }
        drop(no_forks);
        self.socket.send(&self.report);
    }

    fn enable(&mut self, request: &Request) -> Result<(), State> {
        let cupti = Cupti::load(&request.paths).map_err(|version| {
            self.report.version = version;
            State::NoCupti
        })?;
        self.report.version = cupti.version();
        go_on()?;
        let subscriber = self.subscribe(cupti)?;
        self.cupti = Some((cupti, subscriber));
        handle_exit();
        if !buffers::create() || !waiting::create() || !batch::create() {
            return Err(self.refused(0, 0));
        }
        go_on()?;
        let status = cupti.register(buffers::request, buffers::completed);
        if status != SUCCESS {
            return Err(self.refused(0, status));
        }
        // The first question takes a lock of the loader, which a callback should not.
        if graphs::were_used() {
            self.begun = sys::now(sys::CLOCK_MONOTONIC);
        }
        cupti.call_back_at_functions(subscriber, launches::is_of_graphs, true);
        let requested = KindSet::from_bits(request.kinds);
        for (ours, theirs) in SOURCES {
            if !requested.contains(ours) {
                continue;
            }
            for kind in theirs {
                go_on()?;
                match cupti.enable(*kind) {
                    SUCCESS => {}
                    // Copies between devices are not to be had on all machines.
                    _ if *kind == kind::MEMCPY2 => {}
                    status => return Err(self.refused(*kind, status)),
                }
            }
            self.kinds.insert(ours);
            if ours == Kind::Graph {
                graphs::are_recorded_as_a_whole();
            }
        }
        if !self.collects(Kind::Graph) && OF_GRAPHS.into_iter().any(|kind| self.collects(kind)) {
            self.report.graphs_lack_records = graphs::are_a_whole().into();
        }
        go_on()?;
        let counts = self.collects(Kind::Kernel) || self.collects(Kind::Idle);
        let (others, syncs) = (requested.includes(KindSet::LAUNCHES), self.collects(Kind::Sync));
        let noted =
            CallFilter { others, waits: others && syncs, causes: self.collects(Kind::Idle) && !syncs };
        if (others || counts) && launches::create(self.collects(Kind::Launch), noted) {
            cupti.call_back_at_functions(subscriber, |number, name| noted.has(number, name), true);
            self.noted = Some(noted);
        }
        if counts && self.noted.is_some() {
            counts::begin();
        }
        if self.collects(Kind::Range) {
            ranges::record(true);
        }
        let probed = ProbedEvents {
            all: requested.includes(KindSet::OPERATORS),
            records: self.collects(Kind::Operator),
            forward: self.collects(Kind::Forward),
            annotations: self.collects(Kind::Annotation),
        };
        if probed.all || probed.annotations {
            self.operators = Some(probed);
            self.look_for_operators();
        }
        Ok(())
    }

    /// Lets PyTorch call back, if the process has loaded it meanwhile.
    fn look_for_operators(&mut self) {
        if presence::exits() {
            return;
        }
        if let Some(probed) = self.operators {
            self.report.operators = operators::hook(probed) as u32;
        }
    }

    /// Subscribes to CUPTI. A collection before this one may not have ended yet.
    fn subscribe(&mut self, cupti: Cupti) -> Result<Subscriber, State> {
        let mut subscribed = cupti.subscribe(called_back, &mut self.report.holder);
        if subscribed.is_err_and(|status| status == MULTIPLE_SUBSCRIBERS) && api_exit::take_over(cupti) {
            subscribed = cupti.subscribe(called_back, &mut self.report.holder);
        }
        let subscriber = subscribed.map_err(|status| self.refused(0, status))?;
        api_exit::has_subscribed(subscriber);
        Ok(subscriber)
    }

    /// Whether records of this kind are enabled.
    fn collects(&self, kind: Kind) -> bool {
        self.kinds.contains(kind)
    }

    fn refused(&mut self, kind: u32, status: u32) -> State {
        (self.report.kind, self.report.status) = (kind, status);
        State::Refused
    }

    /// Passes records on until the tracer ends, or asks for the end by a message.
    fn collect(&mut self) {
        if let Some((cupti, _)) = self.cupti {
            self.collect_all(cupti);
        }
    }

    fn collect_all(&mut self, cupti: Cupti) {
        let (mut clock, mut batches) = (Clock::new(), Batches::new(self.kinds));
        let devices = Devices::new();
        let passes_launches = self.collects(Kind::Launch);
        let mut idle = self.collects(Kind::Idle).then(Idle::new);
        let mut waits = Waits::new();
        // SAFETY: created before, and one collection runs at a time.
        let mut waiting = unsafe { ReorderBuffer::new() };
        let mut is_over = false;
        let mut rounds = 0u32;
        while !is_over {
            match self.end {
                Some(_) => sys::sleep(STEP),
                None if self.socket.wait(self.flush_ms) => self.begin_end(),
                None => {}
            }
            is_over = self.has_ended(cupti);
            rounds = rounds.wrapping_add(1);
            let is_due = self.report.operators == Operators::NoPyTorch as u32
                && rounds.is_multiple_of(ROUNDS_OF_A_LOOK)
                && self.end.is_none();
            // Locks are taken: the loader's, and that of PyTorch's callbacks.
            if is_due && let Some(_no_forks) = NoForks::try_begin() {
                self.look_for_operators();
            }
            let asked = leaving::asked();
            presence::stay_if_late();
            cupti.flush(is_over && (presence::exits() || !graphs::were_used()));
            clock.update();
            let mut pass_on = |kind, record| {
                if let Some(idle) = &mut idle {
                    idle.take(kind, &record, &mut |gap| batches.add(Kind::Idle, gap));
                }
                batches.add(kind, record);
            };
            self.drain(cupti, &clock, &devices, &mut |kind, record| waiting.add(kind, record, &mut pass_on));
            // Waits are taken after the buffers: so no kernel is there without the wait that returned before its launch.
            waits.take(|start, end| {
                waiting.add(Kind::Sync, Record { start, end, ..Record::default() }, &mut pass_on);
            });
            if passes_launches {
                // Scripts keep values of a call when it returns, which may be after its work.
                sys::sleep(RETURNS);
            }
            let now = sys::now(sys::CLOCK_MONOTONIC);
            let until = buffers::first_asked().max(now.saturating_sub(HOLD));
            let all = is_over || leaving::is_asked(asked);
            // No work begins in the future: the wall clock was set, and CUPTI's times are wrong.
            waiting.take(|start| all || start < until || start > now, &mut pass_on);
            batches.flush();
            leaving::answer(asked);
            self.report.passed = batches.passed;
            self.report.clock_steps = clock.steps;
            self.report.missed = idle.as_ref().map_or(0, |idle| idle.missed);
            self.report.refused = buffers::REFUSED.load(Relaxed);
            if self.end.is_none() {
                self.socket.send(&self.report);
            }
        }
        drop(waiting);
        ranges::record(false);
        let no_forks = no_forks();
        leaving::unwatch();
        // Locks of the loader are taken, for which an exit must not wait.
        if !presence::exits() {
            ranges::unhook();
            operators::unhook();
        }
        drop(no_forks);
        presence::stay_if_late();
        let departure = self.end();
        self.report.state = match departure {
            Departure::NotYet => State::EndsLater,
            Departure::Finalized | Departure::Unsubscribed => State::Ended,
        } as u32;
        if departure != Departure::NotYet {
            launches::release();
            batch::release();
        }
        match departure {
            Departure::Finalized => buffers::release(),
            Departure::Unsubscribed => buffers::release_if_free(),
            Departure::NotYet => {}
        }
        self.socket.send_last(&self.report);
    }

    /// The tracer has ended.
    fn begin_end(&mut self) {
        if !presence::exits() {
            counts::end();
        }
        let now = sys::now(sys::CLOCK_MONOTONIC);
        let end = match graphs::were_used() && !presence::exits() {
            true => End { cut: now, until: now + LAST_GRAPHS, is_disabled: false },
            false => End { cut: u64::MAX, until: now, is_disabled: false },
        };
        if end.waits_for_graphs() {
            launches::pass_on_no_more();
        }
        self.end = Some(end);
    }

    /// Goes on with the end, if it has begun. True if nothing more is waited for.
    fn has_ended(&mut self, cupti: Cupti) -> bool {
        let Some(end) = &mut self.end else { return false };
        let is_late = presence::exits() || sys::now(sys::CLOCK_MONOTONIC) >= end.until;
        if end.is_disabled {
            if is_late && !presence::exits() {
                // At least one record in each.
                self.report.without_time += buffers::asked_until(end.cut);
            }
            return is_late || buffers::are_returned();
        }
        if !is_late && buffers::first_asked() <= end.cut {
            return false;
        }
        end.until += LATER_GRAPHS;
        end.is_disabled = true;
        let is_over = !end.waits_for_graphs() || presence::exits();
        let _no_forks = no_forks();
        presence::stay_if_late();
        self.disable(cupti);
        is_over
    }

    /// Reads all buffers that CUPTI has returned.
    fn drain(&mut self, cupti: Cupti, clock: &Clock, devices: &Devices, see: &mut impl FnMut(Kind, Record)) {
        while let Some(buffer) = buffers::returned() {
            presence::stay_if_late();
            let mut at = core::ptr::null();
            while let Some(next) = cupti.next(buffer.bytes, buffer.used, at) {
                at = next;
                // SAFETY: CUPTI's record, in a buffer that stays until the end of this loop.
                match unsafe { Activity::new(at) }.record(clock) {
                    Some((_, Record { start: 0, .. } | Record { end: 0, .. })) => {
                        self.report.without_time += 1;
                    }
                    Some((_, record)) if record.start < self.begun => {}
                    Some((_, record))
                        if let Some(end) = self.end.as_ref().filter(|end| end.doubts(&record)) =>
                    {
                        self.report.without_time += u64::from(record.start <= end.cut);
                    }
                    Some((kind, mut record)) => {
                        if self.noted.is_some() {
                            launches::add(kind, &mut record);
                        }
                        if self.end.as_ref().is_none_or(|end| end.takes(&record)) {
                            devices.name(&mut record);
                            see(kind, record);
                        }
                    }
                    None => {}
                }
            }
            self.report.dropped += cupti.dropped(buffer.context, buffer.stream);
        }
        self.report.dropped += cupti.dropped(null_mut(), 0);
    }

    /// Ends the records, but for those of what was launched before.
    fn disable(&mut self, cupti: Cupti) {
        for (ours, theirs) in SOURCES {
            if self.kinds.contains(ours) {
                theirs.iter().for_each(|kind| {
                    cupti.disable(*kind);
                });
            }
        }
        self.kinds = KindSet::EMPTY;
    }

    /// Leaves CUPTI, which has refused something. There is nothing to end: so the program, whose `cuInit` this may be, does not wait for a call
    /// at whose exit it could be ended.
    fn give_up(&mut self) {
        if let Some((cupti, subscriber)) = self.cupti.take() {
            self.disable(cupti);
            api_exit::unsubscribe(cupti, subscriber);
        }
    }

    /// Leaves CUPTI, and ends it where that is possible.
    fn end(&mut self) -> Departure {
        let Some((cupti, subscriber)) = self.cupti.take() else { return Departure::Finalized };
        self.disable(cupti);
        if presence::exits() {
            return Departure::Finalized;
        }
        counts::release();
        if let Some(noted) = self.noted.take() {
            cupti.call_back_at_functions(
                subscriber,
                |number, name| noted.has(number, name) && !launches::is_of_graphs(number, name),
                false,
            );
        }
        if self.report.version < CAN_FINALIZE {
            return api_exit::unsubscribe(cupti, subscriber);
        }
        api_exit::finalize(cupti, subscriber)
    }
}
