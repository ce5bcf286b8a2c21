//! Starts programs, and reports the libraries that processes map.
//!
//! [`Child`] starts a program and holds it until it is released, so that probes are attached before its first instruction. With
//! `watch_mappings`, a seccomp filter reports each executable mapping of a file before it happens, and each executed program.
//! Meanwhile the calling thread waits in its system call; the program and its parent see no signal and no changed result. The seccomp
//! server is a separate process. It answers at once for known files and queries the tracer about new ones. If the tracer has ended
//! or does not answer for some seconds, the server lets all system calls continue.
//!
//! [`MappingWatch`] reports mappings of processes that were running before the tracer.

mod child;
mod exec_target;
mod mapping_events;
mod mprotect;
mod query;
mod seccomp_filter;
mod seccomp_server;
mod server_handle;
mod shared_memory;

pub use child::{Child, Command, SpawnError, user_id};
pub use mapping_events::{Fork, MappedInode, MappingEvent, MappingWatch};
pub use query::{MappedRange, Mapping, Query};
pub use seccomp_server::serve_if_seccomp_server;
pub use server_handle::Mappings;
pub use shared_memory::{FileState, Identity, MappingScope};

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
    fn each_file_is_queried_once_and_the_exit_status_is_kept() {
        // Two programs after each other map libc; the second mapping causes no query.
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 3"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        let mut seen = Vec::new();
        let mut executed = Vec::new();
        let mut ends = 0;
        while let Some(query) = mappings.next().unwrap() {
            match query {
                Query::Maps(mapping) => seen.push(mapping.identity()),
                Query::Executes(program) => executed.push(program.shown),
                Query::Ends(tid) => ends += u32::from(tid != 0),
                other => panic!("{other:?}"),
            }
            mappings.answer().unwrap();
        }
        assert_eq!(mappings.late(), 0, "every query was answered");
        assert_eq!(ends, 2, "the shell and ls");
        assert_eq!(executed, [std::fs::canonicalize("/bin/ls").unwrap()], "the shell was held, and is known");
        assert!(!seen.is_empty());
        assert_eq!(seen.len(), seen.iter().collect::<HashSet<_>>().len());
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn known_files_are_marked_without_a_query() {
        let state = |path: &str| FileState::of(Path::new(path)).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = |part: &str| {
            let line = maps.lines().find(|line| line.contains(part)).expect("this process maps it, too");
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
        while let Some(query) = mappings.next().unwrap() {
            if let Query::Maps(mapping) | Query::Executes(mapping) = query {
                assert!(!mapped.contains(&mapping.state), "{}", mapping.shown.display());
            }
            mappings.answer().unwrap();
        }
        let marks: Vec<_> =
            mapped.iter().chain([&other]).map(|file| child.has_mapped(&file.identity)).collect();
        assert_eq!(marks, [true, true, true, true, false]);
    }

    #[test]
    fn a_program_continues_when_its_tracer_stops_answering() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 4"])).unwrap();
        drop(child.mappings.take());
        child.release().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }

    #[test]
    fn a_program_continues_when_its_tracer_is_blocked() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 6"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(6));
        while let Ok(Some(_)) = mappings.next() {}
        assert_eq!(mappings.late(), 1, "it is held once, not for every file");
    }

    #[test]
    fn a_query_has_the_time_since_which_its_thread_is_held() {
        let mut child = Child::spawn(&command(&["true"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        let released_ns = SystemClock.boot_ns();
        child.release().unwrap();
        // The query is sent before it is read.
        crate::kernel::sys::poll(&mut [crate::kernel::sys::readable(mappings.as_fd().as_raw_fd())], -1)
            .unwrap();
        let read_ns = SystemClock.boot_ns();
        mappings.next().unwrap().expect("it maps libc");
        let since_ns = mappings.held_since_ns().expect("it is held");
        assert!((released_ns..=read_ns).contains(&since_ns), "{released_ns} {since_ns} {read_ns}");
        mappings.answer().unwrap();
        while mappings.next().unwrap().is_some() {
            mappings.answer().unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_killed_seccomp_server_is_replaced() {
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 7"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        let mut executed = 0;
        // Each query is left unanswered once, while its thread is held.
        while let Some(query) = mappings.next().unwrap() {
            executed += u32::from(matches!(query, Query::Executes(_)));
            mappings.kill_server();
        }
        assert_eq!((executed, child.wait().unwrap().code()), (1, Some(7)));
    }

    #[test]
    fn a_seccomp_server_ignores_the_signals_that_can_be_ignored() {
        let mut child = Child::spawn(&command(&["sh", "-c", "read line; ls / >/dev/null; exit 8"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        let server = mappings.server();
        child.release().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
        {
            // Faults end it.
            let is_fault = [4, 5, 6, 7, 8, 11, 31].contains(&signal);
            // The C library reserves two.
            let is_reserved = [32, 33].contains(&signal);
            assert!(is_fault || is_reserved || ignored >> (signal - 1) & 1 == 1, "{signal}");
        }
        while let Some(query) = mappings.next().unwrap() {
            drop(query);
            mappings.answer().unwrap();
        }
        child.wait().unwrap();
    }

    /// Not a test: the tests start it as the seccomp server.
    #[test]
    #[ignore = "started by other tests"]
    fn seccomp_server() {
        serve_if_seccomp_server();
    }

    #[test]
    fn a_program_that_is_never_released_ends() {
        let child = Child::spawn(&command(&["true"])).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}/exe")).exists());
    }

    /// Before any code of the library runs, there is memory near it. Nobody asks about that memory: the filter is ours.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_program_is_stopped_as_soon_as_it_has_mapped_a_library() {
        use crate::remote::{Region, RegionSize, RemoteError, SeizedThread, Tracer};
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(4);
        let mut child = Child::spawn(&command(&["sh", "-c", "ls / >/dev/null; exit 5"])).unwrap();
        let Some(mut mappings) = child.mappings.take() else {
            eprintln!("skipped: {:?}", child.unwatched);
            return;
        };
        child.release().unwrap();
        let mut held = 0;
        while let Some(query) = mappings.next().unwrap() {
            let Query::Maps(mapping) = query else {
                mappings.answer().unwrap();
                continue;
            };
            let size = RegionSize { data: 8192, code: 8192, own: 0 };
            Tracer::run(|tracer| -> Result<(), RemoteError> {
                let seized = SeizedThread::thread(tracer, mapping.tid, mapping.tid)?;
                mappings.answer()?;
                let stopped = seized.stop(LIMIT)?;
                let mapped = stopped.registers(mapping.tid)?.rax;
                let maps = stopped.maps()?;
                let library = maps.iter().find(|map| map.start == mapped).expect("mapped");
                assert!(
                    library.is_private_code() && Some(mapping.shown.as_ref()) == library.name.path(),
                    "{library:?}"
                );
                Region::create(&stopped, library.range(), size, 1).map(drop)
            })
            .unwrap();
            held += 1;
        }
        assert!(held > 0);
        assert_eq!((mappings.late(), child.wait().unwrap().code()), (0, Some(5)));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_program_that_is_stopped_by_ptrace_has_not_ended() {
        use crate::remote::{StoppedProcess, Tracer};
        let mut child =
            Child::spawn(&Command { watch_mappings: false, ..command(&["sleep", "60"]) }).unwrap();
        child.release().unwrap();
        Tracer::run(|tracer| {
            let stopped =
                StoppedProcess::all(tracer, child.pid(), std::time::Duration::from_secs(5)).unwrap();
            assert_eq!(child.try_wait(), None);
            assert_eq!(stopped.threads(), [child.pid()]);
        });
        child.terminate();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(libc::SIGTERM)
        );
    }

    #[test]
    fn a_captured_program_has_no_input_and_its_output_is_received() {
        let script = "cat; echo out; echo err >&2";
        let mut child = Child::spawn(&Command { captured: true, ..command(&["sh", "-c", script]) }).unwrap();
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
