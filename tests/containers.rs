//! Files that are reachable only through the root of a process, as in containers: they stay attached after the end of that process,
//! even if it was short.

mod common;

use common::Running;
use std::process::Command;

/// A process in its own mount namespace; only there the library exists.
const IN_CONTAINER: &str = r#"
set -e
mount -t tmpfs none /mnt && mount --bind "$STORE" /mnt
exec /mnt/late_dlopen "/mnt/$LIBRARY.so" cuDriverGetVersion "$1"
"#;

fn in_container(store: &std::path::Path, library: &str, calls: u32) {
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", IN_CONTAINER, "sh", &calls.to_string()])
        .env("STORE", store)
        .env("LIBRARY", library);
    let output = command.output().expect("unshare is part of util-linux");
    assert!(output.status.success(), "{}", common::stderr(&output));
}

#[test]
fn a_library_of_processes_that_have_ended_is_attached() {
    if !common::can_trace() {
        return;
    }
    // A directory that the tracer does not search by default.
    let store = tempfile::tempdir_in(common::examples()).expect("a directory");
    // A unique name: any process of the machine may have mapped libcuda.
    let library = format!("libheld{}", std::process::id());
    for (from, to) in [("late_dlopen", "late_dlopen"), ("libcuda.so.1", &format!("{library}.so"))] {
        std::fs::copy(common::example(from), store.path().join(to)).expect("copied");
    }
    let script = format!(
        "uprobe:{library}:cu* {{ @all = count() }} uprobe:{library}:cuDriverGetVersion {{ @ = count() }} \
         self:signal:SIGUSR1 {{ print(@); clear(@) }}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.env_remove("LD_LIBRARY_PATH").args(["--wait", "-v", "-e", &script]);
    let mut tracer = Running::start(&mut command);
    tracer.wait_for_line("Attached 1 probe");
    let mut tries = 0;
    while !tracer.has_printed("probes attached in") {
        in_container(store.path(), &library, 1);
        tries += 1;
        assert!(tries < 200, "never attached");
    }
    tracer.signal(libc::SIGUSR1);
    tracer.wait_for_line("@:");
    in_container(store.path(), &library, 1000);
    tracer.signal(libc::SIGINT);
    tracer.wait_for_line("@: 1000");
}
