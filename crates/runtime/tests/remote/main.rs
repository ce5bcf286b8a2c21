//! Control of programs that are compiled here: memory, patched functions, and what happens at the worst moment.
#![cfg(target_arch = "x86_64")]

mod target;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runtime::remote::{
    Patch, PatchOutcome, Patches, Region, RegionSize, RemoteCalls, RemoteError, SeizedThread, SkipReason,
    StoppedProcess, Tracer,
};
use target::{FUNCTIONS, Target};

const LIMIT: Duration = Duration::from_secs(5);
const SIZE: RegionSize = RegionSize { data: 2 * PAGE, code: PAGE, own: PAGE };
const PAGE: u64 = 4096;
/// Start of the counts in the data.
const COUNTS: u64 = PAGE;

fn region(stopped: &StoppedProcess<'_>, target: &Target) -> Result<Region, RemoteError> {
    Region::create(stopped, target.text(), SIZE, 0)
}

/// Patches of all functions with detours that count the calls, or with `count` = false only execute the moved instructions.
fn patches(
    stopped: &StoppedProcess<'_>,
    target: &Target,
    region: &Region,
    counts: bool,
) -> Result<Patches, RemoteError> {
    let mut at = region.size().data;
    let mut list = Vec::new();
    for (number, function) in (0..).zip(&FUNCTIONS) {
        let address = target.address(function.name) + function.place;
        let mut code = Vec::new();
        if counts {
            // lock incq count(%rip)
            let next = region.base() + at + 8;
            let count = (region.base() + COUNTS + 8 * number).wrapping_sub(next) as u32;
            code = [&[0xf0, 0x48, 0xff, 0x05][..], &count.to_le_bytes()].concat();
        }
        let copy = region.base() + at + code.len() as u64;
        let moved = native::site::moved(target.moved(function.name), address, copy).expect("within reach");
        code.extend(&moved.code);
        region.write(stopped, at, &code)?;
        let jump = native::site::jump(address, region.base() + at).expect("within reach");
        let moved = moved.starts.iter().map(|(from, to)| (*from, copy + u64::from(*to))).collect();
        list.push(Patch { address, original: target.moved(function.name).to_vec(), jump, moved });
        at = (at + code.len() as u64).next_multiple_of(16);
    }
    Ok(Patches::new(list))
}

/// A target with all functions patched.
fn patched(target: &Target) -> (Region, Patches, PatchOutcome) {
    Tracer::run(|tracer| {
        let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped");
        let region = region(&stopped, target).expect("a region");
        let mut patches = patches(&stopped, target, &region, true).expect("written");
        let outcome = patches.write(&stopped).expect("patched");
        (region, patches, outcome)
    })
}

fn change(target: &Target, patches: &mut Patches, on: bool) -> Result<PatchOutcome, RemoteError> {
    timed_change(target, patches, on).map(|(outcome, _)| outcome)
}

/// Also returns the time for which the threads were held.
fn timed_change(
    target: &Target,
    patches: &mut Patches,
    on: bool,
) -> Result<(PatchOutcome, Duration), RemoteError> {
    Tracer::run(|tracer| {
        let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT)?;
        let outcome = if on { patches.write(&stopped)? } else { patches.restore(&stopped)? };
        Ok((outcome, stopped.resume()))
    })
}

fn counts(region: &Region) -> Vec<u64> {
    (0..FUNCTIONS.len() as u64).map(|at| region.word(COUNTS + 8 * at).load(Ordering::SeqCst)).collect()
}

#[test]
fn calls_of_all_threads_are_counted_exactly() {
    for (threads, calls) in [(1, 20_000), (8, 5_000), (64, 500)] {
        let mut target = Target::start(&[threads, calls, 0], "");
        let (region, mut patches, outcome) = patched(&target);
        assert_eq!((outcome.changed, patches.written(), outcome.skipped.len()), (6, 6, 0));
        target.line("go");
        // The calls of `frame` and the others.
        let report = target.end();
        assert_eq!(report, format!("calls {} errors 0 interrupted 0 handled 0 trap 0", threads * calls));
        assert_eq!(counts(&region), [threads * calls; 6]);
        assert!(matches!(change(&target, &mut patches, false), Err(RemoteError::Gone)));
    }
}

#[test]
fn patches_come_and_go_under_load() {
    let mut moved = 0;
    for (threads, period_us, rounds) in [(1, 300, 200), (8, 250, 200), (64, 2000, 40)] {
        let mut target = Target::start(&[threads, 0, period_us], "s");
        target.expect("running");
        let (region, mut patches, mut sum) = patched(&target);
        let (mut held, mut searched) = (Duration::ZERO, 0);
        for round in 0..rounds {
            let (outcome, time) = timed_change(&target, &mut patches, round % 2 == 1).expect("alive");
            held = held.max(time);
            sum.moved_threads += outcome.moved_threads;
            sum.changed += outcome.changed;
            sum.skipped.extend(outcome.skipped);
            searched = searched.max(outcome.searched);
            // The program goes on meanwhile.
            let (start, before) = (Instant::now(), counts(&region)[0]);
            while patches.written() > 0 && counts(&region)[0] < before + 50 && start.elapsed() < LIMIT / 100 {
                std::thread::yield_now();
            }
        }
        // With many threads, one is always in a handler that returns to the middle of `slow`.
        let called = counts(&region).iter().filter(|count| **count > 0).count();
        assert!(called >= FUNCTIONS.len() - 1, "{:?}", counts(&region));
        assert!(sum.skipped.iter().all(|(_, why)| *why == SkipReason::InUse), "{:?}", sum.skipped);
        while patches.written() > 0 {
            change(&target, &mut patches, false).expect("alive");
        }
        target.check_original();
        let report = target.end();
        assert!(report.contains(" errors 0 "), "{report}");
        println!(
            "{threads} threads, {rounds} rounds: {} changes, {} threads moved, {} functions put off, at most {held:?} and {searched} \
             bytes of stacks; {report}",
            sum.changed,
            sum.moved_threads,
            sum.skipped.len(),
        );
        moved += sum.moved_threads;
    }
    assert!(moved > 0, "a thread was in the middle of the instructions");
}

#[test]
fn memory_is_shared_and_the_process_is_otherwise_as_before() {
    let mut target = Target::start(&[2, 0, 500], "si");
    target.expect("running");
    let region = Tracer::run(|tracer| {
        let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped");
        let region = region(&stopped, &target).expect("a region");
        let base = region.base();
        // Both see the data; the first page belongs to the process alone.
        region.word(COUNTS).store(0x1234, Ordering::SeqCst);
        let mut word = [0; 8];
        stopped.read(base + COUNTS, &mut word).expect("mapped");
        assert_eq!(u64::from_le_bytes(word), 0x1234);
        stopped.write(base + COUNTS + 8, &7u64.to_le_bytes()).expect("mapped");
        assert_eq!(region.word(COUNTS + 8).load(Ordering::SeqCst), 7);
        region.write(&stopped, 0, &[1]).expect("mapped");
        assert_eq!(region.word(0).load(Ordering::SeqCst), 0);
        // No trace of the registers.
        let mut code = vec![1; region.size().code as usize - PAGE as usize];
        stopped.read(region.code().start, &mut code).expect("mapped");
        assert!(code.iter().all(|byte| *byte == 0));
        assert!(region.code().end - target.text().start.min(base) < 1 << 31);
        region
    });
    assert!(target.opened().iter().all(|file| !file.contains("memfd")), "{:?}", target.opened());
    let maps: Vec<String> = target.maps().lines().map(str::to_owned).collect();
    let access = |at: u64| {
        let line = maps.iter().find(|line| line.starts_with(&format!("{at:x}-"))).expect("mapped");
        line.split(' ').nth(1).expect("access").to_owned()
    };
    let base = region.base();
    assert_eq!([access(base), access(base + PAGE), access(region.code().start)], ["rw-p", "rw-s", "r-xp"]);
    assert!(maps.iter().all(|line| !line.contains("rwx")));
    // A child does not see the page, and runs without.
    target.line(&format!("f {base:x}"));
    target.expect("child 0");
    let report = target.end();
    assert!(report.contains(" errors 0 ") && report.ends_with("trap 1"), "SIGTRAP stays ignored: {report}");
}

#[test]
fn a_thread_that_sleeps_in_a_system_call_goes_on_sleeping_after_calls() {
    let mut target = Target::start(&[1, 0, 0], "s");
    target.expect("running");
    let threads = target.threads();
    let mut calls = 0;
    for round in 0..80 {
        let tid = threads[round % threads.len()];
        Tracer::run(|tracer| {
            let seized = SeizedThread::thread(tracer, target.pid(), tid).expect("alive");
            let stopped = seized.stop(LIMIT).expect("stopped");
            let mut remote = RemoteCalls::new(&stopped, 0).expect("prepared");
            assert_eq!(
                remote.call("getpid", libc::SYS_getpid, [0; 6]).expect("done"),
                u64::from(target.pid())
            );
            assert_eq!(remote.call("gettid", libc::SYS_gettid, [0; 6]).expect("done"), u64::from(tid));
            let error =
                remote.call("close", libc::SYS_close, [9999, 0, 0, 0, 0, 0]).expect_err("no such file");
            assert_eq!(error.to_string(), "`close` in the process: Bad file descriptor (os error 9)");
            if round % 2 == 0 {
                remote.finish().expect("alive");
            }
            calls += 3;
        });
    }
    let report = target.end();
    assert!(report.contains(" errors 0 "), "{report}");
    println!("{calls} calls by {} threads; {report}", threads.len());
}

#[test]
fn nothing_is_written_below_the_stack_of_a_coroutine() {
    let mut target = Target::start(&[1, 0, 0], "c");
    target.expect("running");
    for _ in 0..10 {
        for tid in target.threads() {
            Tracer::run(|tracer| {
                let seized = SeizedThread::thread(tracer, target.pid(), tid).expect("alive");
                region(&seized.stop(LIMIT).expect("stopped"), &target).expect("a region");
            });
        }
    }
    assert!(target.end().contains(" errors 0 "));
}

#[test]
fn a_restartable_sequence_is_aborted_by_calls() {
    let mut target = Target::start(&[1, 0, 0], "r");
    target.expect("running");
    let label = |name: &str| target.label(name);
    let (Some(start), Some(end), Some(abort)) =
        (label("sequence"), label("sequence_end"), label("sequence_abort"))
    else {
        eprintln!("skipped: the C library does not use rseq(2)");
        return;
    };
    let mut aborted = 0;
    let deadline = Instant::now() + LIMIT;
    while aborted < 20 {
        assert!(Instant::now() < deadline, "{aborted} times");
        for tid in target.threads() {
            Tracer::run(|tracer| {
                let seized = SeizedThread::thread(tracer, target.pid(), tid).expect("alive");
                let stopped = seized.stop(LIMIT).expect("stopped");
                let before = stopped.registers(tid).expect("stopped").rip;
                let mut remote = RemoteCalls::new(&stopped, 0).expect("prepared");
                remote.call("gettid", libc::SYS_gettid, [0; 6]).expect("done");
                remote.finish().expect("alive");
                let after = stopped.registers(tid).expect("stopped").rip;
                let is_inside = (start..end).contains(&before);
                assert_eq!(after, if is_inside { abort } else { before });
                aborted += u32::from(is_inside);
            });
        }
    }
    assert!(target.end().contains(" errors 0 "));
}

#[test]
fn a_process_that_is_killed_is_an_error_and_keeps_its_exit_status() {
    let mut ends = std::collections::BTreeMap::new();
    for round in 0..60u64 {
        let mut target = Target::start(&[1 + round % 8, 0, 200], "");
        target.expect("running");
        let pid = target.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 37 % 2500));
            // SAFETY: no pointers.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        });
        let start = Instant::now();
        let result = Tracer::run(|tracer| -> Result<(), RemoteError> {
            let stopped = StoppedProcess::all(tracer, pid, LIMIT)?;
            let region = region(&stopped, &target)?;
            let mut patches = patches(&stopped, &target, &region, true)?;
            loop {
                patches.write(&stopped)?;
                patches.restore(&stopped)?;
            }
        });
        assert!(start.elapsed() < LIMIT, "no wait for a process that has ended");
        *ends.entry(format!("{:?}", result.expect_err("killed"))).or_insert(0) += 1;
        killer.join().expect("killed");
        assert_eq!(target.wait().signal(), Some(libc::SIGKILL));
    }
    println!("{ends:?}");
    let gone: u32 = ends.iter().filter(|(end, _)| end.starts_with("Gone")).map(|(_, count)| count).sum();
    assert_eq!(gone, 60, "{ends:?}");
}

#[test]
fn a_tracer_that_is_killed_leaves_a_process_that_goes_on() {
    // A thread that restores itself cannot continue a sleep: nanosleep(2) returns EINTR then.
    let mut target = Target::start(&[4, 0, 400], "se");
    target.expect("running");
    let mut patched = 0;
    for round in 0..100u64 {
        let mut tracer = Command::new(std::env::current_exe().expect("this program"));
        tracer.args(["--exact", "tracer", "--ignored", "--nocapture"]).env("TRACED", target.described());
        let mut tracer =
            tracer.process_group(0).stdout(std::process::Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let output = tracer.stdout.take().expect("a pipe");
        let mut output = std::io::BufReader::new(output);
        while !line.contains("begins") {
            line.clear();
            std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        }
        std::thread::sleep(Duration::from_micros(round * 397 % 12_000));
        tracer.kill().expect("killed");
        tracer.wait().expect("killed");
        // Patched functions are restored as a new tracer would restore them.
        let result = Tracer::run(|tracer| {
            let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT)?;
            for function in &FUNCTIONS {
                let at = target.address(function.name) + function.place;
                let mut now = [0; 5];
                stopped.read(at, &mut now).expect("mapped");
                patched += u32::from(now[0] == 0xe9);
                stopped.write(at, &target.moved(function.name)[..5]).expect("mapped");
            }
            Ok(())
        });
        if let Err(error) = result {
            let _: RemoteError = error;
            panic!("{error} in round {round}: {}", target.wait());
        }
    }
    let left = target.opened().into_iter().filter(|file| file.contains("cudatrace")).count();
    assert_eq!(left, 0, "open files of tracers");
    let report = target.end();
    assert!(report.contains(" errors 0 "), "{report}");
    println!("{patched} functions were patched when the tracer was killed; {report}");
}

/// Not a test: a test starts it as a program of its own, and kills it.
#[test]
#[ignore = "started by another test"]
fn tracer() {
    let target = Target::of_description(&std::env::var("TRACED").expect("set by the test that starts this"));
    println!("begins");
    for tid in target.threads().into_iter().cycle() {
        // Each thread makes the system calls once: it sleeps, or it computes.
        Tracer::run(|tracer| {
            let stopped = SeizedThread::thread(tracer, target.pid(), tid)
                .and_then(|seized| seized.stop(LIMIT))
                .expect("alive");
            region(&stopped, &target).expect("a region");
            let stopped = stopped.with_others(LIMIT).expect("alive");
            assert_eq!(stopped.threads().len(), target.threads().len());
            assert_eq!(stopped.threads()[0], tid);
        });
        let (_region, mut patches, _) = patched(&target);
        std::thread::sleep(Duration::from_millis(1));
        change(&target, &mut patches, false).expect("alive");
    }
}

#[test]
fn a_process_that_another_tracer_has_is_left_alone() {
    let mut target = Target::start(&[2, 0, 0], "");
    target.expect("running");
    let pid = target.pid();
    let error = Tracer::run(|first| {
        let held = StoppedProcess::all(first, pid, LIMIT).expect("stopped");
        let error = Tracer::run(|second| StoppedProcess::all(second, pid, LIMIT).expect_err("traced"));
        assert!(held.threads().len() >= 2);
        error
    });
    assert!(error.to_string().ends_with("traces it already, such as a debugger or strace"), "{error}");
    assert!(target.end().contains(" errors 0 "));
}

/// Attaches to threads of a process as debuggers do: to its first one as soon as that is possible, then to the others.
fn attach_as_debugger(first: u32, others: &[u32]) {
    // SAFETY: no pointers.
    let seize = |tid: u32| unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid as libc::pid_t, 0, 0) };
    while seize(first) != 0 {}
    for tid in others {
        assert_eq!(seize(*tid), 0, "{tid}: {}", std::io::Error::last_os_error());
    }
}

#[test]
fn a_debugger_gets_all_threads_or_none() {
    let mut target = Target::start(&[100, 0, 0], "");
    target.expect("running");
    // The debugger and the tracer need the CPUs.
    target.signal(libc::SIGSTOP);
    target.wait_for_state('T');
    let pid = target.pid();
    let mut others = target.threads();
    others.retain(|tid| *tid != pid);
    // Threads that were stopped last come first.
    others.sort_unstable_by_key(|tid| std::cmp::Reverse(*tid));
    let (mut attached, deadline) = (0, Instant::now() + 6 * LIMIT);
    while attached < 60 {
        assert!(Instant::now() < deadline, "attached {attached} times");
        std::thread::scope(|scope| {
            let tracer = scope.spawn(|| {
                Tracer::run(|tracer| StoppedProcess::all(tracer, pid, LIMIT).map(StoppedProcess::resume))
            });
            // Its end detaches it.
            let debugger = scope.spawn(|| attach_as_debugger(pid, &others));
            let is_stopped = tracer.join().expect("no panic").is_ok();
            debugger.join().expect("no thread was traced");
            attached += u32::from(is_stopped);
        });
    }
    target.signal(libc::SIGCONT);
    assert!(target.end().contains(" errors 0 "));
}

/// Takes CAP_SYS_ADMIN from the calling thread.
fn drop_sys_admin() {
    let header = [0x2008_0522u32, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: a header and the two sets of version 3.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0][0] &= !(1 << 21);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
fn a_seccomp_filter_is_suspended_or_the_process_is_left_alone() {
    let mut target = Target::start(&[2, 0, 300], "f");
    target.expect("running");
    let create = |own_filters, without_rights: bool| {
        Tracer::run(|tracer| {
            if without_rights {
                drop_sys_admin();
            }
            let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT)?;
            Region::create(&stopped, target.text(), SIZE, own_filters).map(drop)
        })
    };
    assert!(matches!(create(0, true), Err(RemoteError::Filtered)));
    create(0, false).expect("suspended");
    // The filter is in force again: without the right to suspend it, memfd_create(2) kills.
    assert!(matches!(create(1, true), Err(RemoteError::Gone)));
    assert_eq!(target.wait().signal(), Some(libc::SIGSYS));
}

#[test]
fn a_process_without_its_first_thread_can_be_patched() {
    let mut target = Target::start(&[3, 0, 0], "l");
    target.expect("running");
    target.wait_for_state('Z');
    let deadline = Instant::now() + LIMIT;
    let (region, mut patches, outcome) = patched(&target);
    assert_eq!(outcome.changed + outcome.skipped.len(), 6);
    while counts(&region).iter().any(|count| *count < 10) {
        change(&target, &mut patches, true).expect("alive");
        assert!(Instant::now() < deadline, "{:?}", counts(&region));
    }
    assert!(target.end().contains(" errors 0 "));
}

#[test]
fn a_process_that_is_stopped_by_a_signal_stays_stopped() {
    let mut target = Target::start(&[2, 0, 0], "");
    target.expect("running");
    target.signal(libc::SIGSTOP);
    target.wait_for_state('T');
    let (region, _patches, outcome) = patched(&target);
    assert_eq!(outcome.changed + outcome.skipped.len(), 6);
    target.wait_for_state('T');
    let before = counts(&region);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(counts(&region), before);
    target.signal(libc::SIGCONT);
    let deadline = Instant::now() + LIMIT;
    while counts(&region).iter().sum::<u64>() < 100 {
        assert!(Instant::now() < deadline, "it continues");
        std::thread::yield_now();
    }
    assert!(target.end().contains(" errors 0 "));
}

#[test]
fn a_breakpoint_of_a_debugger_is_neither_overwritten_nor_removed() {
    let mut target = Target::start(&[1, 10, 0], "");
    let at = target.address("frame") + 1;
    let read = |stopped: &StoppedProcess<'_>| {
        let mut bytes = [0; 1];
        stopped.read(at, &mut bytes).expect("mapped");
        bytes[0]
    };
    let stop = |work: &mut (dyn FnMut(&StoppedProcess<'_>) + Send)| {
        Tracer::run(|tracer| work(&StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped")));
    };
    let mut patches = None;
    stop(&mut |stopped| {
        let region = region(stopped, &target).expect("a region");
        let mut list = self::patches(stopped, &target, &region, true).expect("written");
        stopped.write(at, &[0xcc]).expect("a breakpoint");
        let outcome = list.write(stopped).expect("alive");
        assert_eq!((outcome.changed, outcome.skipped), (5, vec![(0, SkipReason::OtherBytes)]));
        assert_eq!(read(stopped), 0xcc);
        stopped.write(at, &[0x48]).expect("removed");
        assert_eq!(list.write(stopped).expect("alive").changed, 1, "the others are patched already");
        stopped.write(at, &[0xcc]).expect("a breakpoint on the jump");
        let outcome = list.restore(stopped).expect("alive");
        assert_eq!(
            (outcome.changed, outcome.skipped, list.written()),
            (5, vec![(0, SkipReason::OtherBytes)], 1)
        );
        stopped.write(at, &[0xe9]).expect("removed");
        assert_eq!(list.restore(stopped).expect("alive").changed, 1);
        patches = Some(list);
    });
    target.check_original();
    assert_eq!(patches.expect("set").written(), 0);
    target.line("go");
    assert!(target.end().contains("calls 10 errors 0 "));
}

#[test]
fn code_that_others_see_is_not_patched() {
    let target = Target::start(&[1, 10, 0], "");
    Tracer::run(|tracer| {
        let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped");
        let region = region(&stopped, &target).expect("a region");
        let patch =
            |address| Patch { address, original: vec![0; 5], jump: [0xe9, 0, 0, 0, 0], moved: Vec::new() };
        let data = patch(region.base() + PAGE);
        let nothing = patch(0x1000);
        let edge = patch(region.code().end - 4);
        let outcome = Patches::new(vec![data, nothing, edge]).write(&stopped).expect("alive");
        assert_eq!(outcome.skipped, [0, 1, 2].map(|at| (at, SkipReason::NoPrivateCode)));
    });
}

#[test]
fn there_must_be_room_near_the_code() {
    let target = Target::start(&[1, 10, 0], "");
    let text: Range<u64> = target.text();
    let create = |near: Range<u64>, data| {
        Tracer::run(|tracer| {
            let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped");
            Region::create(&stopped, near, RegionSize { data, code: PAGE, own: 0 }, 0).map(drop)
        })
    };
    assert!(matches!(create(text.clone(), 3 << 30), Err(RemoteError::NoRoom)));
    assert!(matches!(create(0x1000..text.end, PAGE), Err(RemoteError::NoRoom)), "no place is near to both");
    create(text, 64 << 20).expect("room");
}

#[test]
fn a_thread_that_does_not_stop_leaves_the_process_running() {
    let mut target = Target::start(&[3, 0, 0], "v");
    target.expect("running");
    let mut late = 0;
    let deadline = Instant::now() + LIMIT;
    while late < 5 {
        assert!(Instant::now() < deadline, "{late} times");
        let result = Tracer::run(|tracer| {
            StoppedProcess::all(tracer, target.pid(), Duration::from_millis(20))
                .map(|stopped| stopped.threads().len())
        });
        match result {
            Err(RemoteError::DidNotStop { tid }) => late += u32::from(target.threads().contains(&tid)),
            other => drop(other.expect("alive")),
        }
        assert!(target.status().contains("TracerPid:\t0"));
    }
    assert!(target.end().contains(" errors 0 "));
}

/// Makes the calling thread that of another user, without any capability.
fn become_user(user: u32) {
    // SAFETY: no pointers. Other than the C library's function, the system call concerns one thread.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setresgid, user, user, user), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
    }
}

#[test]
fn a_user_without_rights_controls_their_own_programs() {
    const NOBODY: u32 = 65534;
    let mut target = Target::start_as(NOBODY, &[4, 3000, 0], "s");
    let (region, mut patches) = Tracer::run(|tracer| {
        become_user(NOBODY);
        let stopped = StoppedProcess::all(tracer, target.pid(), LIMIT).expect("stopped");
        let region = region(&stopped, &target).expect("a region");
        let mut patches = patches(&stopped, &target, &region, true).expect("written");
        assert_eq!(patches.write(&stopped).expect("patched").changed, 6);
        (region, patches)
    });
    target.line("go");
    assert!(target.end().contains("calls 12000 errors 0 "));
    assert_eq!(counts(&region), [12_000; 6]);
    assert!(matches!(change(&target, &mut patches, false), Err(RemoteError::Gone)));
    // The programs of others are out of reach.
    let other = Target::start(&[1, 1, 0], "");
    let error = Tracer::run(|tracer| {
        become_user(NOBODY);
        StoppedProcess::all(tracer, other.pid(), LIMIT).expect_err("not permitted")
    });
    assert!(matches!(error, RemoteError::NotPermitted), "{error}");
}

/// A uprobe of the kernel that counts how often the first thread of the target reaches an address.
fn uprobe(target: &Target, address: u64) -> Option<File> {
    let kind =
        std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?.trim().parse().ok()?;
    let (file, offset) = target.place_in_file(address);
    let path = CString::new(file.to_str()?).ok()?;
    let mut attr = libbpf_sys::perf_event_attr { type_: kind, ..Default::default() };
    attr.size = size_of_val(&attr) as u32;
    attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    attr.__bindgen_anon_4.config2 = offset;
    // SAFETY: `attr` is complete and contains its size.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, target.pid(), -1, -1, 0) };
    // SAFETY: a new descriptor.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd as i32) })
}

#[test]
fn a_uprobe_and_a_patch_on_one_function_both_count() {
    for uprobe_first in [true, false] {
        let mut target = Target::start(&[1, 2000, 0], "");
        let probes = || ["frame", "slow"].map(|name| uprobe(&target, target.address(name)));
        let before = if uprobe_first { probes() } else { [None, None] };
        let (region, mut patches, outcome) = patched(&target);
        assert_eq!(outcome.changed, 6, "{:?}", outcome.skipped);
        let after = if uprobe_first { before } else { probes() };
        let [Some(mut first), Some(mut second)] = after else {
            eprintln!("skipped: no uprobes");
            return;
        };
        target.line("go");
        assert!(target.end().contains("calls 2000 errors 0 "));
        assert_eq!(counts(&region), [2000; 6]);
        let read = |probe: &mut File| {
            let mut count = [0; 8];
            probe.read_exact(&mut count).expect("a count");
            u64::from_ne_bytes(count)
        };
        assert_eq!([read(&mut first), read(&mut second)], [2000; 2]);
        assert!(matches!(change(&target, &mut patches, false), Err(RemoteError::Gone)));
    }
}

/// A debugger that comes later sees the jump as an instruction, and steps over it.
#[test]
fn breakpoints_of_a_debugger_on_patched_functions_are_reached() {
    let mut target = Target::start(&[2, 0, 0], "");
    target.expect("running");
    let (region, mut patches, _) = patched(&target);
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &target.pid().to_string()]);
    for name in ["frame", "pushes", "slow"] {
        for command in [&format!("break {name}"), "continue", "continue", "delete"] {
            gdb.args(["-ex", command]);
        }
    }
    let output = match gdb.args(["-ex", "detach"]).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            eprintln!("skipped: gdb: {error}");
            return;
        }
    };
    assert_eq!(output.matches("hit Breakpoint").count(), 6, "{output}");
    let before = counts(&region)[0];
    while counts(&region)[0] < before + 100 {
        std::thread::yield_now();
    }
    while patches.written() > 0 {
        change(&target, &mut patches, false).expect("alive");
    }
    target.check_original();
    assert!(target.end().contains(" errors 0 "));
}

#[test]
fn a_process_that_executes_programs_all_the_time_goes_on() {
    let mut target = Target::start(&[4, 0, 0], "x");
    target.expect("running");
    let mut results = std::collections::BTreeMap::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        let result = Tracer::run(|tracer| {
            let stopped = StoppedProcess::all(tracer, target.pid(), Duration::from_secs(1))?;
            // The new program has the functions elsewhere.
            let maps = stopped.maps()?;
            let code = maps.iter().find(|map| map.is_private_code()).expect("code").range();
            Region::create(&stopped, code, SIZE, 0).map(drop)
        });
        let result = result.map_err(|error: RemoteError| error.to_string());
        *results.entry(format!("{result:?}")).or_insert(0) += 1;
        assert_eq!(target.try_wait(), None);
    }
    println!("{results:?}");
    assert!(results["Ok(())"] > 20, "{results:?}");
    assert!(!results.keys().any(|result| result.contains("in time")), "{results:?}");
    // The first thread has ended while another one takes its place.
    let deadline = Instant::now() + LIMIT;
    while target.status().contains("State:\tZ") {
        assert!(Instant::now() < deadline, "{}", target.status());
    }
    assert!(target.status().contains("TracerPid:\t0"));
}
