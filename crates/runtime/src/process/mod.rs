//! Programs that we start, and the libraries that they map later.
//!
//! [`Child`] starts a program that waits until it is released, so that probes are in place before its first instruction. With
//! `watch_mappings`, a seccomp filter reports each executable mapping of a file before it happens, and each program to be
//! executed, which the kernel maps by itself: the thread waits inside its system call, sees no signal and no changed result,
//! and neither does its parent. The `doorman`, a process of ours (`seccomp_server`), answers at once for files that were seen before,
//! asks us about new ones, and lets all pass when we are gone or do not answer for some seconds.
//!
//! [`MappingWatch`] reports mappings of processes that were running before the tracer.

mod child;
mod exec_target;
mod mapping_events;
mod mprotect;
mod seccomp_filter;
mod seccomp_server;
mod server_handle;
mod shared_memory;

pub use child::{Child, Command, SpawnError};
pub use mapping_events::{MappedInode, MappingEvent, MappingWatch};
pub use server_handle::{Mapping, Mappings, Place, Question, serve_if_doorman};
pub use shared_memory::{FileState, Identity};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::clock::{Clock, SystemClock};
    use std::collections::HashSet;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    fn command(argv: &[&str]) -> Command {
        let argv = argv.iter().map(Into::into).collect();
        Command { argv, watch_mappings: true, watch_ends: true, ..Command::default() }
    }

    #[test]
    fn a_program_is_asked_about_each_file_once_and_keeps_its_exit_status() {
        // Two programs after each other map libc; the second time nobody asks.
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 3"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        let mut seen = Vec::new();
        let mut executed = Vec::new();
        let mut ends = 0;
        while let Some(question) = mappings.next().unwrap() {
            match question {
                Question::Maps(mapping) => seen.push(mapping.identity()),
                Question::Executes(program) => executed.push(program.shown),
                Question::Ends(tid) => ends += u32::from(tid != 0),
                other => panic!("{other:?}"),
            }
            mappings.answer().unwrap();
        }
        assert_eq!(mappings.late(), 0, "every question was answered");
        assert_eq!(ends, 2, "the shell and ls");
        assert_eq!(executed, [std::fs::canonicalize("/bin/ls").unwrap()], "the shell was held, and is known");
        assert!(!seen.is_empty());
        assert_eq!(seen.len(), seen.iter().collect::<HashSet<_>>().len());
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn known_files_are_marked_without_a_question() {
        let state = |path: &str| FileState::of(Path::new(path)).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = |part: &str| {
            let line = maps.lines().find(|line| line.contains(part)).expect("we have it, too");
            state(line.split_whitespace().last().unwrap())
        };
        let mapped = [state("/bin/sh"), state("/bin/ls"), loaded("/libc.so"), loaded("/ld-linux")];
        let other = state("/bin/cat");
        let known = mapped.into_iter().chain([other]).collect();
        let argv = ["sh", "-c", "ls / >/dev/null; exit 0"];
        let mut child = Child::spawn(&Command { known, ..command(&argv) }).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        assert!(mapped.iter().all(|file| !child.has_mapped(&file.identity)), "it has not begun");
        child.release().unwrap();
        while let Some(question) = mappings.next().unwrap() {
            if let Question::Maps(mapping) | Question::Executes(mapping) = question {
                assert!(!mapped.contains(&mapping.state), "{}", mapping.shown.display());
            }
            mappings.answer().unwrap();
        }
        let marks: Vec<_> =
            mapped.iter().chain([&other]).map(|file| child.has_mapped(&file.identity)).collect();
        assert_eq!(marks, [true, true, true, true, false]);
    }

    #[test]
    fn a_program_goes_on_when_its_tracer_stops_answering() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 4"])).unwrap();
        drop(child.mappings.take());
        child.release().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }

    #[test]
    fn a_program_goes_on_when_its_tracer_is_stuck() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 6"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(6));
        while let Ok(Some(_)) = mappings.next() {}
        assert_eq!(mappings.late(), 1, "it waits once, not for every file");
    }

    #[test]
    fn a_question_has_the_time_since_which_its_thread_waits() {
        let mut child = Child::spawn(&command(&["true"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        let released_ns = SystemClock.boot_ns();
        child.release().unwrap();
        // The question waits for us, not we for the question.
        crate::kernel::sys::poll(&mut [crate::kernel::sys::readable(mappings.as_fd().as_raw_fd())], -1)
            .unwrap();
        let read_ns = SystemClock.boot_ns();
        mappings.next().unwrap().expect("it maps libc");
        let since_ns = mappings.held_since_ns().expect("it waits");
        assert!((released_ns..=read_ns).contains(&since_ns), "{released_ns} {since_ns} {read_ns}");
        mappings.answer().unwrap();
        while mappings.next().unwrap().is_some() {
            mappings.answer().unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_doorman_that_is_killed_has_a_successor() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 7"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        let mut executed = 0;
        // Each question is left unanswered once: the thread that waits is in the middle of its system call.
        while let Some(question) = mappings.next().unwrap() {
            executed += u32::from(matches!(question, Question::Executes(_)));
            mappings.kill_doorman();
        }
        assert_eq!((executed, child.wait().unwrap().code()), (1, Some(7)));
    }

    #[test]
    fn a_doorman_ignores_the_signals_that_can_be_ignored() {
        let mut child = Child::spawn(&command(&["sh", "-c", "read line; ls / >/dev/null; exit 8"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        let doorman = mappings.doorman();
        child.release().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{doorman}/status")).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
        {
            // A fault of its own ends it.
            let is_fault = [4, 5, 6, 7, 8, 11, 31].contains(&signal);
            // The C library keeps two for itself.
            let is_kept = [32, 33].contains(&signal);
            assert!(is_fault || is_kept || ignored >> (signal - 1) & 1 == 1, "{signal}");
        }
        while let Some(question) = mappings.next().unwrap() {
            drop(question);
            mappings.answer().unwrap();
        }
        child.wait().unwrap();
    }

    /// Not a test: what the tests start as the doorman.
    #[test]
    #[ignore = "started by other tests"]
    fn doorman() {
        serve_if_doorman();
    }

    #[test]
    fn a_program_that_is_never_released_ends() {
        let child = Child::spawn(&command(&["true"])).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}/exe")).exists());
    }

    #[test]
    fn a_program_apart_has_no_input_and_hands_us_its_output() {
        let script = "cat; echo out; echo err >&2";
        let mut child = Child::spawn(&Command { apart: true, ..command(&["sh", "-c", script]) }).unwrap();
        child.mappings = None;
        let mut output = child.output.take().unwrap();
        child.release().unwrap();
        assert_eq!(std::io::read_to_string(&mut output).unwrap(), "out\nerr\n");
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let mut child = Child::spawn(&command(&["no-such-program"])).unwrap();
        let error = child.release().unwrap_err().to_string();
        assert!(error.starts_with("cannot start `no-such-program`"), "{error}");
    }
}
