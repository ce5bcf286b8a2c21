//! Sessions on the running kernel. The programs are assembled here and write one record each, which depends on the attach
//! point. The probed functions are those of this test.

mod elf;
pub(crate) mod numbers;

use crate::error::AttachError;
use crate::handles::LoadedProgram;
use crate::kernel::signals::StopSignals;
use crate::kernel::{features, sys};
use crate::options::{AttachOptions, Files};
use crate::session::Session;
use crate::session::event_loop::{Control, Next, Reason, Watch};
use libbpf_sys as bpf;
use report::{Frame, Names, Output, Sink};
use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use wire::decode::Value;
use wire::layout::Record;
use wire::manifest::{Attach, Event, EventKind, Manifest, Place, Program, Side, Site};
use wire::trigger::{PerfCounter, Trigger};
use wire::types::MissingProbes;
use wire::types::Type;

/// Index of the event whose record is printed.
const PRINT: u32 = 0;
/// Index of the event that ends the run.
const EXIT: u32 = 1;

#[inline(never)]
extern "C" fn probed_one(x: u64) -> u64 {
    black_box(x) + 1
}

#[inline(never)]
extern "C" fn probed_two(x: u64) -> u64 {
    black_box(x) * 3
}

/// Offset of a function in this program's file.
fn offset_of(function: extern "C" fn(u64) -> u64) -> u64 {
    let address = function as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
    let inside = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + offset)
    };
    maps.lines().find_map(inside).expect("code is mapped")
}

pub(crate) fn insn(code: u32, dst: u8, src: u8, off: i16, imm: i32) -> bpf::bpf_insn {
    let regs = bpf::__BindgenBitfieldUnit::new([src << 4 | dst]);
    bpf::bpf_insn { code: code as u8, _bitfield_align_1: [], _bitfield_1: regs, off, imm }
}

/// Source of the event id and value of a program's record.
#[derive(Copy, Clone)]
enum RecordSource {
    /// Both halves of the attach cookie: `event << 32 | value`.
    Cookie,
    /// Constants.
    Constant(u32, u32),
}

/// Writes one record with a u64 value.
fn writes(ring: RawFd, source: RecordSource) -> Vec<bpf::bpf_insn> {
    let mut code = vec![insn(0xbf, 8, 1, 0, 0)];
    code.extend(one_record(ring, source));
    code.extend([insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)]);
    code
}

/// Instructions for one record; r8 is the context.
fn one_record(ring: RawFd, source: RecordSource) -> Vec<bpf::bpf_insn> {
    let mov_imm = |dst, imm| insn(0xb7, dst, 0, 0, imm);
    let mov = |dst, src| insn(0xbf, dst, src, 0, 0);
    let call = |helper: u32| insn(0x85, 0, 0, 0, helper as i32);
    let store = |off, src| insn(0x7b, 10, src, off, 0);
    let mut code = match source {
        RecordSource::Cookie => vec![mov(1, 8), call(bpf::BPF_FUNC_get_attach_cookie), mov(6, 0), mov(7, 0)],
        RecordSource::Constant(event, value) => {
            vec![mov_imm(6, event as i32), insn(0x67, 6, 0, 0, 32), mov_imm(7, value as i32)]
        }
    };
    code.extend([
        insn(0x77, 6, 0, 0, 32), // r6 >>= 32: the event
        insn(0x67, 7, 0, 0, 32), // r7: the low half
        insn(0x77, 7, 0, 0, 32),
        store(-32, 6), // event and CPU 0
        call(bpf::BPF_FUNC_ktime_get_boot_ns),
        store(-24, 0),
        call(bpf::BPF_FUNC_get_current_pid_tgid),
        store(-16, 0),
        store(-8, 7),
        insn(0x18, 1, 1, 0, ring), // the map, by descriptor
        insn(0, 0, 0, 0, 0),
        mov(2, 10),
        insn(0x07, 2, 0, 0, -32),
        mov_imm(3, 32),
        mov_imm(4, 0),
        call(bpf::BPF_FUNC_ringbuf_output),
    ]);
    code
}

fn load(
    kind: bpf::bpf_prog_type,
    attach_type: bpf::bpf_attach_type,
    code: &[bpf::bpf_insn],
) -> LoadedProgram {
    let mut log = vec![0u8; 65536];
    let mut opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as u64,
        expected_attach_type: attach_type,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: all pointers are to values that outlive the call.
    let fd = sys::owned_libbpf(unsafe {
        let name = c"ct_test".as_ptr();
        bpf::bpf_prog_load(kind, name, c"GPL".as_ptr(), code.as_ptr(), code.len() as u64, &mut opts)
    });
    let fd = fd.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&log)));
    LoadedProgram { handle: crate::handles::ProgramHandle::Kernel(fd), attach_type }
}

const KPROBE: bpf::bpf_prog_type = bpf::BPF_PROG_TYPE_KPROBE;
const MULTI: bpf::bpf_attach_type = bpf::BPF_TRACE_UPROBE_MULTI;

fn event(kind: EventKind) -> Event {
    let record = Record::new([Type::Int { bytes: 8, signed: false }]);
    Event { kind, record, place: Place { source: 0, line: 1, column: 1 } }
}

fn program(attach: Attach) -> Program {
    Program {
        symbol: "p".into(),
        clause: 0,
        place: Place { line: 3, ..Place::default() },
        text: "the clause".into(),
        attach,
        auxiliary: false,
    }
}

fn manifest(programs: Vec<Attach>) -> Manifest {
    let mut manifest = Manifest {
        version: wire::manifest::VERSION,
        programs: programs.into_iter().map(program).collect(),
        events: vec![event(EventKind::Print), event(EventKind::Exit)],
        ..Manifest::default()
    };
    manifest.names.probes = vec!["uprobe:self:one".into(), "uprobe:self:two".into()];
    manifest
}

fn site(function: extern "C" fn(u64) -> u64, event: u32, value: u32, probe: u32) -> Site {
    let cookie = u64::from(event) << 32 | u64::from(value);
    Site { file: 0, offset: offset_of(function), cookie, probe, semaphore: 0 }
}

fn uprobes(side: Side, sites: Vec<Site>) -> Attach {
    Attach::Functions { hook: wire::Hook::Uprobe, side, sites }
}

fn own_file(_: u32) -> PathBuf {
    "/proc/self/exe".into()
}

fn only_us() -> AttachOptions<'static> {
    let files: &'static Files<'static> = &own_file;
    AttachOptions { files, link_pid: Some(std::process::id()), stop: None, patch: None }
}

/// Sink that keeps a short form of the output.
#[derive(Default)]
struct OutputLog {
    lines: Vec<String>,
    fails: bool,
}

impl Sink for OutputLog {
    fn output(&mut self, _: &Manifest, _: &dyn Names, output: &Output) -> io::Result<()> {
        if self.fails {
            return Err(io::Error::from_raw_os_error(libc::EPIPE));
        }
        self.lines.push(match output {
            Output::Attached { probes } => format!("attached {probes}"),
            Output::Event { header, values, .. } => {
                assert_eq!(header.tgid, std::process::id());
                match values.as_slice() {
                    [Value::Uint(value, 8)] => value.to_string(),
                    other => format!("{other:?}"),
                }
            }
            Output::Map(snapshot) => format!("map {}", snapshot.map),
            Output::Table(_, table) => format!("{table:?}"),
            Output::Fetched { text, .. } => format!("{text:?}"),
            Output::Script(script) => format!("script {script}"),
            Output::Tests(step) => format!("{step:?}"),
            Output::End => "end".into(),
            Output::Losses(list) => format!("loss {}", list.len()),
        });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct NoNames;

impl Names for NoNames {
    fn lookup(&self, what: wire::types::Lookup, number: i64) -> String {
        format!("{what:?} {number}")
    }

    fn user_symbol(&self, _: u32, _: u64) -> String {
        String::new()
    }
    fn stack(&self, _: bool, _: u32, _: &[u64]) -> Vec<Frame> {
        Vec::new()
    }
    fn stack_addresses(&self, _: u32, _: u32) -> Vec<u64> {
        Vec::new()
    }
    fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
        boot_ns.into()
    }
    fn strftime(&self, _: &str, _: i128) -> String {
        String::new()
    }
}

/// Ends the run at the first poll.
struct StopNow(io::PipeReader);

impl Watch for StopNow {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
    fn ready(&mut self, _: &mut Session) -> Next {
        Next::Stop
    }
}

fn stop_now() -> Control<'static> {
    // The writing end is closed at once: readable.
    let (reader, _) = io::pipe().expect("pipe");
    Control { watches: vec![Box::new(StopNow(reader))], ..Control::default() }
}

/// One test at a time: all of them probe and call the same functions of this process.
fn alone() -> Option<std::sync::MutexGuard<'static, ()>> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if !features::is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    Some(LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[test]
fn begin_comes_first_then_calls_then_end_and_an_invalid_attach_point_is_named() {
    let Some(_alone) = alone() else { return };
    let sites = vec![
        site(probed_one, PRINT, 11, 0),
        Site { file: 0, offset: u64::MAX >> 1, cookie: 0, probe: 1, semaphore: 0 },
        site(probed_two, PRINT, 22, 1),
    ];
    let attach =
        vec![Attach::Event(Trigger::End), uprobes(Side::Entry, sites), Attach::Event(Trigger::Begin)];
    let programs = |ring| {
        vec![
            load(bpf::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, &writes(ring, RecordSource::Constant(PRINT, 9))),
            load(KPROBE, MULTI, &writes(ring, RecordSource::Cookie)),
            load(bpf::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, &writes(ring, RecordSource::Constant(PRINT, 1))),
        ]
    };
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    let failures: Vec<String> = session.failures().iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(
        failures[0].contains("`uprobe:self:two`") && failures[0].contains("nvalid argument"),
        "{failures:?}"
    );
    for _ in 0..2 {
        probed_one(1);
        probed_two(1);
    }
    let mut log = OutputLog::default();
    let ending = session.run(&mut log, &NoNames, stop_now());
    assert!(matches!(ending.reason, Reason::Watch), "{ending:?}");
    assert_eq!(log.lines, ["attached 4", "1", "11", "22", "11", "22", "9", "end", "loss 0"]);
    // The run does not wait for the process that closes the links.
    let start = std::time::Instant::now();
    let mut is_recorded = || {
        probed_one(1);
        session.core.rings.read(10, |_| std::ops::ControlFlow::Continue(())).records > 0
    };
    while is_recorded() {
        assert!(start.elapsed().as_secs() < 30, "detached");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn return_probes_and_single_perf_uprobes_carry_their_cookies() {
    let Some(_alone) = alone() else { return };
    for attach_type in [MULTI, 0] {
        let sites = |at: u32| vec![site(probed_one, PRINT, at + 1, 0), site(probed_two, PRINT, at + 2, 1)];
        let attach = vec![uprobes(Side::Entry, sites(10)), uprobes(Side::Return, sites(20))];
        let programs =
            |ring| (0..2).map(|_| load(KPROBE, attach_type, &writes(ring, RecordSource::Cookie))).collect();
        let mut session =
            Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
        probed_one(1);
        probed_two(1);
        let mut log = OutputLog::default();
        session.run(&mut log, &NoNames, stop_now());
        assert_eq!(log.lines, ["attached 4", "11", "21", "12", "22", "end", "loss 0"], "{attach_type}");
    }
}

#[test]
fn exit_ends_the_run_and_later_records_are_not_printed() {
    let Some(_alone) = alone() else { return };
    let sites = vec![site(probed_one, PRINT, 5, 0), site(probed_two, EXIT, 42, 1)];
    let attach = vec![uprobes(Side::Entry, sites), Attach::Event(Trigger::End)];
    let programs = |ring| {
        vec![
            load(KPROBE, MULTI, &writes(ring, RecordSource::Cookie)),
            load(bpf::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, &writes(ring, RecordSource::Constant(PRINT, 6))),
        ]
    };
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    probed_one(1);
    probed_two(1);
    probed_one(1);
    let mut log = OutputLog::default();
    let ending = session.run(&mut log, &NoNames, Control::default());
    assert!(matches!(ending.reason, Reason::Exit(42)), "{ending:?}");
    assert_eq!(ending.after_exit, 1);
    assert_eq!(log.lines, ["attached 3", "5", "6", "end", "loss 0"]);
}

#[test]
fn nothing_attached_is_an_error_that_names_the_clause() {
    let Some(_alone) = alone() else { return };
    let attach = vec![uprobes(Side::Entry, vec![site(probed_one, PRINT, 1, 0)])];
    let programs = |ring| vec![load(KPROBE, MULTI, &writes(ring, RecordSource::Cookie))];
    let nowhere =
        AttachOptions { files: &|_| "/nowhere/libcuda.so.1".into(), link_pid: None, stop: None, patch: None };
    let error =
        Session::for_test(manifest(attach), HashMap::new(), programs, &nowhere).err().expect("no file");
    let text = error.to_string();
    for part in ["line 3", "the clause", "/nowhere/libcuda.so.1", "No such file"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn timers_fire_and_a_sink_that_fails_ends_the_run() {
    let Some(_alone) = alone() else { return };
    let attach = vec![Attach::Event(Trigger::Interval { period_ns: 5_000_000 })];
    let programs =
        |ring| vec![load(bpf::BPF_PROG_TYPE_PERF_EVENT, 0, &writes(ring, RecordSource::Constant(EXIT, 3)))];
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    let ending = session.run(&mut OutputLog::default(), &NoNames, Control::default());
    assert!(matches!(ending.reason, Reason::Exit(3)), "{ending:?}");

    let attach = vec![Attach::Event(Trigger::Profile { counter: PerfCounter::CPU_CLOCK, period: 5_000_000 })];
    let programs =
        |ring| vec![load(bpf::BPF_PROG_TYPE_PERF_EVENT, 0, &writes(ring, RecordSource::Constant(PRINT, 3)))];
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    let mut sink = OutputLog { fails: true, ..OutputLog::default() };
    let ending = session.run(&mut sink, &NoNames, Control::default());
    assert!(matches!(&ending.reason, Reason::Sink(error) if error.raw_os_error() == Some(libc::EPIPE)));
}

#[test]
fn forks_are_followed_through_a_tracepoint() {
    let Some(_alone) = alone() else { return };
    let attach = vec![Attach::Follow { tracepoint: "sched:sched_process_fork".into() }];
    let programs =
        |ring| vec![load(bpf::BPF_PROG_TYPE_TRACEPOINT, 0, &writes(ring, RecordSource::Constant(EXIT, 8)))];
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    let mut child = std::process::Command::new("true").spawn().expect("true");
    let ending = session.run(&mut OutputLog::default(), &NoNames, Control::default());
    assert!(matches!(ending.reason, Reason::Exit(8)), "{ending:?}");
    child.wait().expect("ended");
}

#[test]
fn the_run_ends_with_its_last_target() {
    let Some(_alone) = alone() else { return };
    let mut session =
        Session::for_test(manifest(vec![]), HashMap::new(), |_| vec![], &only_us()).expect("session");
    let mut children = [(); 2].map(|()| {
        std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat")
    });
    let targets = children.iter().map(|child| linux::pidfd::open(child.id()).expect("pidfd")).collect();
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    let ending = session.run(&mut OutputLog::default(), &NoNames, Control { targets, ..Control::default() });
    assert!(matches!(ending.reason, Reason::TargetsEnded), "{ending:?}");
    for child in &mut children {
        assert!(child.try_wait().expect("ours").is_some(), "both have ended");
    }
}

#[test]
fn records_that_wrap_around_the_ring_arrive_whole_and_in_order() {
    let Some(_alone) = alone() else { return };
    let attach = vec![uprobes(Side::Entry, vec![site(probed_one, PRINT, 7, 0)])];
    let programs = |ring| vec![load(KPROBE, MULTI, &writes(ring, RecordSource::Cookie))];
    let mut session =
        Session::for_test(manifest(attach), HashMap::new(), programs, &only_us()).expect("session");
    // Records of 32 + 8 bytes do not divide the ring's size, so the second round has one across the end.
    let calls = crate::read::ring::DEFAULT_BYTES / 40 + 1000;
    let mut seen = 0u32;
    let mut last = 0;
    for round in 0..calls / 100 {
        for _ in 0..100 {
            black_box(probed_one(1));
        }
        session.core.rings.read(usize::MAX, |record| {
            let header = wire::decode::header(record).expect("whole");
            assert!(record.len() == 32 && record[24..] == [7, 0, 0, 0, 0, 0, 0, 0] && header.time_ns >= last);
            (last, seen) = (header.time_ns, seen + 1);
            std::ops::ControlFlow::Continue(())
        });
        session.core.rings.release(round % 2 == 0);
    }
    assert_eq!(seen, calls / 100 * 100);
}

#[test]
fn many_single_uprobes_are_silenced_and_closed_in_the_background() {
    let Some(_alone) = alone() else { return };
    let sites = vec![site(probed_one, PRINT, 7, 0); 20];
    let programs = |ring| vec![load(KPROBE, 0, &writes(ring, RecordSource::Cookie))];
    // SAFETY: numbers and a C string.
    let control = sys::owned_libbpf(unsafe {
        let size = wire::manifest::CONTROL_SIZE;
        bpf::bpf_map_create(bpf::BPF_MAP_TYPE_ARRAY, c"ct_control".as_ptr(), 4, size, 1, std::ptr::null())
    });
    let control = control.expect("map");
    let ours = control.try_clone().expect("descriptor");
    let maps = HashMap::from([(
        wire::manifest::CONTROL_MAP.to_owned(),
        crate::handles::LoadedMap {
            handle: crate::handles::MapHandle::Kernel(control),
            max_entries: 1,
            value_size: wire::manifest::CONTROL_SIZE,
        },
    )]);
    let attach = manifest(vec![uprobes(Side::Entry, sites)]);
    let mut session = Session::for_test(attach, maps, programs, &only_us()).expect("session");
    probed_one(1);
    let mut log = OutputLog::default();
    let ending = session.run(&mut log, &NoNames, stop_now());
    assert_eq!(log.lines.iter().filter(|line| *line == "7").count(), 20);
    // Closing them in sequence would take two seconds.
    assert!(ending.detached.after.as_millis() < 500, "{ending:?}");
    let mut cell = [0; wire::manifest::CONTROL_SIZE as usize];
    crate::handles::lookup(&ours, &[0; 4], &mut cell).expect("cell");
    assert_eq!(cell[wire::manifest::CONTROL_EXITED as usize], 1);
}

#[test]
fn refused_functions_are_an_error_a_warning_or_ignored() {
    let Some(_alone) = alone() else { return };
    let bad = Site { file: 0, offset: u64::MAX >> 1, cookie: 0, probe: 1, semaphore: 0 };
    // `None`: the clause could not be attached. Otherwise the numbers of attached and of reported functions.
    let attach = |sides: [&Site; 2], missing| {
        let [entry, at_return] = sides.map(|site| vec![site.clone()]);
        let mut manifest = manifest(vec![uprobes(Side::Entry, entry), uprobes(Side::Return, at_return)]);
        manifest.programs[0].auxiliary = true;
        manifest.missing_probes = missing;
        let programs = |ring| {
            vec![
                load(KPROBE, 0, &writes(ring, RecordSource::Cookie)),
                load(KPROBE, 0, &writes(ring, RecordSource::Cookie)),
            ]
        };
        match Session::for_test(manifest, HashMap::new(), programs, &only_us()) {
            Ok(session) => Some((session.attached(), session.failures().len())),
            Err(AttachError::Nothing { count: 1, .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let good = site(probed_one, PRINT, 7, 0);
    assert_eq!(attach([&bad, &bad], MissingProbes::Error), None);
    assert_eq!(attach([&bad, &bad], MissingProbes::Warn), Some((0, 1)), "both sides fail alike");
    assert_eq!(attach([&bad, &bad], MissingProbes::Ignore), Some((0, 0)));
    assert_eq!(attach([&good, &bad], MissingProbes::Error), None, "the body never runs");
    assert_eq!(attach([&good, &good], MissingProbes::Error), Some((1, 0)));
}

#[test]
fn a_signal_interrupts_attaching() {
    let Some(_alone) = alone() else { return };
    let signals = StopSignals::install().expect("signalfd");
    let listener = || {
        let mut tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let comm = |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let found = tasks.find(|task| comm(task).is_ok_and(|name| name == "signals\n"))?;
        found.file_name().to_str()?.parse::<i32>().ok()
    };
    let listener = std::iter::repeat_with(listener).flatten().next();
    // SAFETY: sent to the thread that reads it; threads of other tests do not block it.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), listener.expect("the thread runs"), libc::SIGTERM)
    };
    while !signals.is_waiting() {
        std::thread::yield_now();
    }
    let attach = manifest(vec![uprobes(Side::Entry, vec![site(probed_one, PRINT, 7, 0); 20])]);
    let programs = |ring| vec![load(KPROBE, 0, &writes(ring, RecordSource::Cookie))];
    let options = AttachOptions { stop: Some(&signals), ..only_us() };
    let error = Session::for_test(attach, HashMap::new(), programs, &options).err();
    assert!(matches!(error, Some(AttachError::Stopped { attached: 0 })), "{error:?}");
    assert_eq!(signals.take(), Some(libc::SIGTERM));
}
