//! Scripts that run in the traced process (`--in-process`): without rights, exactly, and without harm, whatever happens to the tracer.

mod common;

use common::{
    Running, can_trace, cudatrace, example, examples, has_installed, program, skip, stderr, stdout, text,
    wait_for,
};
use native::Layout;
use native::object::Object;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// User and group without any rights.
const NOBODY: u32 = 65534;

/// A folder that everybody can read, with cudatrace and the examples.
fn public() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let open =
        |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    open(folder.path());
    let binary = folder.path().join("cudatrace");
    fs::copy(env!("CARGO_BIN_EXE_cudatrace"), &binary).expect("copied");
    open(&binary);
    for entry in fs::read_dir(examples()).expect("the examples are built").flatten() {
        if entry.path().is_file() {
            let copy = folder.path().join(entry.file_name());
            fs::copy(entry.path(), &copy).expect("copied");
            open(&copy);
        }
    }
    (folder, binary)
}

/// Runs cudatrace as a user without rights, with the filter of a container: no BPF, no perf events.
fn as_nobody(folder: &Path, binary: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(binary);
    command.args(args).current_dir(folder).env("LD_LIBRARY_PATH", folder).env("CUDASIM_FAST", "1");
    command.stdin(Stdio::null()).gid(NOBODY).uid(NOBODY);
    // SAFETY: only system calls.
    unsafe { command.pre_exec(refuse_the_kernel) };
    command.output().expect("cudatrace starts")
}

/// Makes bpf and perf_event_open fail with EPERM for this process and its children.
fn refuse_the_kernel() -> std::io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is = |number: libc::c_long, jt: u8, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k: number as u32,
    };
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is(libc::SYS_bpf, 1, 0),
        is(libc::SYS_perf_event_open, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: a filter that outlives the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The lines `count NAME N` of a workload.
fn truth(output: &str) -> Vec<(String, String)> {
    let words = output.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    words.map(|(name, count)| (name.to_owned(), count.to_owned())).collect()
}

#[test]
fn a_user_without_rights_counts_every_call() {
    if !can_trace() {
        return;
    }
    let (folder, binary) = public();
    let script = "uprobe:libcuda:cu* { @entry[func] = count() } uretprobe:libcuda:cu* { @return[func] = count(); @spent = max(duration) }";
    let output = as_nobody(
        folder.path(),
        &binary,
        &["--in-process", "-e", script, "--", "./workload_driver", "--threads", "4"],
    );
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    let truth = truth(&said);
    assert!(truth.len() > 20, "{said}{}", stderr(&output));
    for (name, count) in truth {
        for side in ["entry", "return"] {
            let line = format!("@{side}[{name}]: {count}");
            assert!(said.lines().any(|said| said == line), "{line}: {said}{}", stderr(&output));
        }
    }
}

#[test]
fn bundled_scripts_need_no_rights() {
    if !can_trace() {
        return;
    }
    let (folder, binary) = public();
    // `memleak` walks stacks, asks for names and waits for the end of processes.
    for (script, program, shown) in
        [("kernels", "./workload_driver", "vector_add"), ("memleak", "./workload_habits", "Never freed: ")]
    {
        let output = as_nobody(folder.path(), &binary, &["--in-process", script, "--", program]);
        let said = stdout(&output);
        assert!(output.status.success() && said.contains(shown), "{script}: {said}{}", stderr(&output));
    }
}

#[test]
fn without_rights_a_target_is_traced_in_its_process_and_a_line_says_so() {
    if !can_trace() {
        return;
    }
    let (folder, binary) = public();
    let run = |args: &[&str]| {
        let output = as_nobody(folder.path(), &binary, args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let (said, messages) = run(&["--", "./workload_driver"]);
    assert!(said.contains("MOST TIME IN") && said.contains("launches"), "{said}");
    assert!(messages.contains("without root: probes run in the traced processes"), "{messages}");
    let (said, messages) = run(&["-q", "kernels", "-c", "./workload_driver"]);
    assert!(said.contains("vector_add"), "{said}");
    assert_eq!(messages, "");
    let (_, messages) = run(&["record", "--export", "jsonl=/dev/null", "--", "./workload_driver"]);
    assert!(messages.contains("without root: probes run in the traced processes"), "{messages}");
}

#[test]
fn a_refusal_without_rights_names_the_way_that_needs_none() {
    if !can_trace() {
        return;
    }
    let (folder, binary) = public();
    let refusal = |args: &[&str]| {
        let output = as_nobody(folder.path(), &binary, args);
        assert!(!output.status.success(), "{args:?}");
        stderr(&output)
    };
    let kernel = ["--in-kernel", "kernels", "--", "./workload_driver"];
    for args in [&kernel[..], &["-e", "cuda:launch { @ = count() }"], &[]] {
        let said = refusal(args);
        assert!(said.contains("needs root, or CAP_BPF and CAP_PERFMON"), "{args:?}: {said}");
        assert!(said.contains("help: `--in-process` needs no rights"), "{args:?}: {said}");
    }
    for args in [&["--in-process"][..], &["repl", "--", "./workload_driver"]] {
        let said = refusal(args);
        assert!(said.contains("the prompt needs root, or CAP_BPF and CAP_PERFMON"), "{args:?}: {said}");
    }
    let said = refusal(&["--in-process"]);
    assert!(said.contains("`cudatrace --in-process -e 'CLAUSES' -- COMMAND` needs no rights"), "{said}");
    let said = stdout(&as_nobody(folder.path(), &binary, &["doctor"]));
    assert!(said.contains("programs of your own are traced in the process"), "{said}");
    let said = stdout(&as_nobody(folder.path(), &binary, &["-h"]));
    assert!(said.contains("--in-process"), "{said}");
}

#[test]
fn without_rights_the_kernel_cannot_help() {
    if !can_trace() {
        return;
    }
    let (folder, binary) = public();
    let script = "uprobe:libcuda:cuInit { @[kstack] = count() }";
    let output =
        as_nobody(folder.path(), &binary, &["--in-process", "-e", script, "--", "./workload_driver"]);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("only the kernel has"), "{said}");
}

/// A folder with a driver of its own. The kernel writes the breakpoints of other tests into all processes that have mapped the driver
/// of the examples; and its return probes kill programs whose signal handlers run on a stack of their own.
fn own_driver() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(examples().join("libcuda.so.1"), folder.path().join("libcuda.so.1")).expect("copied");
    folder
}

/// The workload that calls a function of the driver in this folder for a long time.
fn busy(driver: &Path) -> Running {
    let mut command = Command::new(example("workload_driver"));
    command.args(["--threads", "4", "--calls", "2000000000", "--call", "device"]);
    command.env("LD_LIBRARY_PATH", driver);
    Running::start(&mut command)
}

/// The text of libcuda in a process.
fn text_of_libcuda(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let line = maps.lines().find(|line| line.contains("r-xp") && line.contains("libcuda")).expect("mapped");
    let (start, end) =
        line.split_whitespace().next().and_then(|range| range.split_once('-')).expect("a range");
    let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).expect("an address"));
    let mut bytes = vec![0; (end - start) as usize];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("it runs");
    memory.read_exact_at(&mut bytes, start).expect("readable");
    bytes
}

fn has_libcuda(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("libcuda")
        && fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 4)
}

#[test]
fn detaching_restores_every_byte() {
    if !can_trace() {
        return;
    }
    let driver = own_driver();
    let busy = busy(driver.path());
    wait_for("its threads", || has_libcuda(busy.pid()));
    let before = text_of_libcuda(busy.pid());
    for _ in 0..5 {
        // On a busy machine the threads may not run at all for a while.
        let script = "uretprobe:libcuda:cu* { @ = count() } interval:ms:200 { if (@ > 10000) { exit() } }";
        let output = cudatrace()
            .args(["--in-process", "-e", script, "-p", &busy.pid().to_string()])
            .output()
            .expect("cudatrace starts");
        let said = stdout(&output);
        let count = said.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 10_000), "{said}{}", stderr(&output));
        assert!(text_of_libcuda(busy.pid()) == before, "the text differs: {}", stderr(&output));
    }
}

#[test]
fn a_tracer_that_is_killed_leaves_a_program_that_runs() {
    if !can_trace() {
        return;
    }
    for round in 0..12u64 {
        let mut command = Command::new(example("workload_driver"));
        command.args(["--threads", "4", "--calls", "1000000", "--call", "device"]);
        command.env("LD_LIBRARY_PATH", examples()).stdout(Stdio::piped());
        let workload = command.spawn().expect("it starts");
        wait_for("its threads", || has_libcuda(workload.id()) || is_over(workload.id()));
        let script = "uretprobe:libcuda:cu* { @[func] = hist(duration) }";
        let mut tracer = cudatrace()
            .args(["--in-process", "-e", script, "-p", &workload.id().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cudatrace starts");
        std::thread::sleep(std::time::Duration::from_millis(20 * round));
        tracer.kill().expect("it runs");
        tracer.wait().expect("killed");
        let output = workload.wait_with_output().expect("it ends");
        let said = stdout(&output);
        assert!(
            output.status.success() && said.contains("== end =="),
            "round {round}: {:?} {said}",
            output.status
        );
    }
}

fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn children_are_traced_and_have_their_own_ids() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libcuda:cuMemAlloc* { @[pid] = count(); @all = count() }";
    let traced = |in_process: &[&str]| {
        let output = cudatrace()
            .args(in_process)
            .args(["-e", script, "--", &example("fork_workload")])
            .output()
            .expect("cudatrace starts");
        let said = stdout(&output);
        assert!(output.status.success(), "{said}{}", stderr(&output));
        let all = said.lines().find(|line| line.starts_with("@all")).map(str::to_owned);
        (all, said.lines().filter(|line| line.starts_with("@[")).count())
    };
    let kernel = traced(&[]);
    assert!(kernel.0.is_some());
    assert_eq!(traced(&["--in-process"]), kernel);
}

/// A program that opens libraries, and a library whose function can be patched, with a script for it.
fn loader_and_patchable_library() -> Option<(PathBuf, PathBuf, String)> {
    let library = || program("work.c", &["-shared", "-fPIC", "-DPUSHES"]);
    let (loader, library) = can_trace().then(|| program("libraries.c", &[]).zip(library())).flatten()?;
    let script = format!("uprobe:{}:traced_work {{ @ = count() }}", text(&library));
    Some((loader, library, script))
}

#[test]
fn libraries_that_are_far_from_each_other_are_patched_once() {
    let Some((_, library, _)) = loader_and_patchable_library() else { return };
    let Some(far) = program("far_libraries.c", &["-ldl"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let copies: Vec<PathBuf> = (0..5).map(|copy| folder.path().join(format!("libfar{copy}.so"))).collect();
    copies.iter().for_each(|copy| _ = std::fs::copy(&library, copy).unwrap());
    let script = format!("uprobe:{}/libfar*.so:traced_work {{ @ = count() }}", text(folder.path()));
    let mut command = cudatrace();
    command.args(["--in-process", "-e", &script, "--", text(&far)]).args(&copies);
    let output = command.output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && !messages.contains("another tool"), "{messages}");
    assert!(said.contains("@: 500") && messages.contains("Traced 5 functions"), "{said}{messages}");
}

#[test]
fn children_that_end_before_they_are_patched_are_reported() {
    let Some((_, library, script)) = loader_and_patchable_library() else { return };
    let Some(opens) = program("opens.c", &["-ldl"]) else { return };
    let children =
        format!("for i in 1 2 3 4 5 6 7 8; do {} {} traced_work; done", text(&opens), text(&library));
    let (input, mut go) = std::io::pipe().expect("a pipe");
    let mut shell = Command::new("sh");
    let shell = Running::start(shell.args(["-c", &format!("read line; {children}")]).stdin(input));
    let mut tracer = cudatrace();
    tracer.args(["--in-process", "-e", &script, "-p", &shell.pid().to_string()]);
    let mut tracer = Running::start(tracer.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1"));
    tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
    std::io::Write::write_all(&mut go, b"\n").expect("it reads");
    shell.lines();
    let lines = tracer.lines();
    let is_whole = lines.iter().any(|line| line == "@: 8");
    let is_reported = lines.iter().any(|line| line.contains("ended before its functions were patched"));
    assert!(is_whole || is_reported, "{lines:#?}");
}

#[test]
fn a_library_in_a_small_hole_of_reserved_memory_is_patched_from_afar() {
    let Some((_, library, _)) = loader_and_patchable_library() else { return };
    let Some(crowded) = program("crowded.c", &["-ldl"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let copies = ["libnear.so", "libfar.so"].map(|name| folder.path().join(name));
    copies.iter().for_each(|copy| _ = std::fs::copy(&library, copy).expect("a copy"));
    let of_both = format!("{}/lib*.so:traced_work", text(folder.path()));
    let script = format!("uprobe:{of_both} {{ @in = count() }} uretprobe:{of_both} {{ @out = sum(retval) }}");
    let run = |engine: &[&str]| {
        let mut command = cudatrace();
        command.args(engine).args(["-e", &script, "--", text(&crowded)]).args(&copies);
        let output = command.output().expect("cudatrace starts");
        (stdout(&output), stderr(&output))
    };
    let (printed, said) = run(&["--in-process"]);
    assert_eq!((&printed, said.contains("error")), (&run(&[]).0, false), "{said}");
    assert!(printed.contains("far\n") && printed.contains("@in: 200"), "{printed}{said}");
    assert!(said.contains("Traced 2 functions in 1 process"), "{said}");
    // Alone it has no region near it, and none that another function needs.
    let alone = format!("uprobe:{}:traced_work {{ @in = count() }}", text(&copies[1]));
    let mut command = cudatrace();
    command.args(["--in-process", "-e", &alone, "--", text(&crowded)]).args(&copies);
    let output = command.output().expect("cudatrace starts");
    assert!(stdout(&output).contains("@in: 100"), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("Traced 1 function in 1 process"), "{}", stderr(&output));
    // When the tracer comes, both are there, and the far one is the first by its address.
    let (input, mut go) = std::io::pipe().expect("a pipe");
    let mut waiting = Command::new(&crowded);
    let mut waiting = Running::start(waiting.args(&copies).arg("wait").stdin(input));
    waiting.wait_for_line("far");
    let mut tracer = cudatrace();
    tracer.args(["--in-process", "-e", &script, "-p", &waiting.pid().to_string()]);
    let mut tracer = Running::start(tracer.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1"));
    tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
    std::io::Write::write_all(&mut go, b"\n").expect("it reads");
    let lines = tracer.lines();
    assert!(lines.iter().any(|line| line == "@in: 200"), "{lines:#?}");
}

#[test]
fn a_library_without_free_memory_near_it_is_patched_from_the_hole_between_its_segments() {
    // An address for which the loader asks, far from others.
    let address = "-Wl,-Ttext-segment=0x7a0000000000";
    let flags = ["-shared", "-fPIC", "-DPUSHES", "-Wl,-z,max-page-size=0x200000", address];
    let Some(library) = program("work.c", &flags).filter(|_| can_trace()) else { return };
    let Some(full) = program("full.c", &["-ldl"]) else { return };
    let (input, mut go) = std::io::pipe().expect("a pipe");
    let mut process = Command::new(full);
    let mut process = Running::start(process.arg(&library).stdin(input));
    process.wait_for_line("ready");
    // Bytes of memory without a file between the first and the last mapping of the library.
    let taken = |process: &Running| {
        let maps = linux::proc::mappings(process.pid());
        let is_library = |map: &linux::proc::Mapping| map.name.path() == Some(&library);
        let of_library = || (0..maps.len()).filter(|at| is_library(&maps[*at]));
        let within =
            &maps[of_library().next().expect("it is open")..of_library().next_back().expect("it is open")];
        within.iter().filter(|map| map.inode == 0).map(|map| map.end - map.start).sum::<u64>()
    };
    assert_eq!(taken(&process), 0);
    let script = format!(
        "uprobe:{0}:traced_work {{ @in = count() }} uretprobe:{0}:traced_work {{ @out = count() }}",
        text(&library)
    );
    let mut lines = 0;
    for (line, after) in [("work\n", Some(4096)), ("work\n", Some(4096)), ("\n", None), ("work\n", None)] {
        let mut tracer = cudatrace();
        tracer.args(["--in-process", "-e", &script, "-p", &process.pid().to_string()]);
        let mut tracer = Running::start(tracer.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1"));
        tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
        let mut send = |line: &str| {
            std::io::Write::write_all(&mut go, line.as_bytes()).expect("it reads");
            lines += 1;
            process.wait_for_line(&format!("line {lines} done"));
        };
        send("work\n");
        send(line);
        if line == "\n" {
            // A library that is opened again, at its old address, is patched some time later, with a new page.
            std::thread::sleep(Duration::from_secs(2));
            send("work\n");
            send("work\n");
        }
        tracer.signal(libc::SIGINT);
        let said = tracer.lines();
        let has = |wanted: &str| said.iter().any(|line| line == wanted);
        let calls = |map: &str| said.iter().find_map(|line| line.strip_prefix(map)?.parse::<u32>().ok());
        let is_again = line == "\n"
            && [calls("@in: "), calls("@out: ")].iter().all(|n| (300..=400).contains(&n.unwrap_or(0)));
        let is_whole = has("@in: 200") && has("@out: 200") || is_again;
        assert!(is_whole && !said.iter().any(|line| line.contains("not traced")), "{line:?}: {said:#?}");
        assert!(after.is_none_or(|after| taken(&process) == after), "each session uses the same page");
    }
    drop(go);
}

#[test]
fn a_static_program_without_a_c_library_is_traced() {
    let Some(program) =
        program("bare.c", &["-O0", "-static", "-nostdlib", "-fno-stack-protector"]).filter(|_| can_trace())
    else {
        return;
    };
    let script = "uprobe:PROGRAM:bare_work { @in = count() } uretprobe:PROGRAM:bare_work { @out = count() }";
    let script = script.replace("PROGRAM", text(&program));
    let output = cudatrace().args(["--in-process", "-e", &script, "--", text(&program)]).output();
    let output = output.expect("cudatrace starts");
    let (printed, said) = (stdout(&output), stderr(&output));
    for map in ["@in: 1000", "@out: 1000"] {
        assert!(printed.lines().any(|line| line == map), "{map}: {printed}{said}");
    }
    assert!(output.status.success() && said.contains("Traced 1 function in 1 process"), "{said}");
}

#[test]
fn a_few_functions_that_cannot_be_patched_send_no_return_probes_to_the_kernel() {
    if !can_trace() {
        return;
    }
    let Some(library) = program("odd.c", &["-O0", "-shared", "-fPIC"]) else { return };
    let linked = ["-DMAIN", text(&library)];
    let Some(main) = program("odd.c", &linked) else { return };
    let run = |script: &str| {
        let mut command = cudatrace();
        command.args(["--in-process", "-e", &script.replace("LIBRARY", text(&library)), "--", text(&main)]);
        let output = command.output().expect("cudatrace starts");
        (stdout(&output), stderr(&output))
    };
    // Two of seventeen are left out, and named.
    let (printed, said) = run("uretprobe:LIBRARY:odd_* { @ = count() }");
    assert!(printed.lines().any(|line| line == "@: 15"), "{printed}{said}");
    assert!(said.contains("Traced 15 functions in 1 process, without the kernel\n"), "{said}");
    let names =
        said.lines().find(|line| line.starts_with("warning: cannot attach 2 probes")).expect("a warning");
    assert!(names.contains("odd_branch_1") && names.contains("odd_branch_2"), "{said}");
    // Without returns the kernel is no risk, and nothing is left out.
    let (printed, said) = run("uprobe:LIBRARY:odd_* { @ = count() }");
    assert!(printed.lines().any(|line| line == "@: 17"), "{printed}{said}");
    // Named alone, they can be traced nowhere else.
    let (printed, said) =
        run("uretprobe:LIBRARY:odd_branch_* { @ = count() } uprobe:LIBRARY:odd_plain_1 { @one = count() }");
    assert!(printed.lines().any(|line| line == "@: 2"), "{printed}{said}");
    let risk = "a C++ exception that passes a call whose return the kernel probes ends the program";
    assert!(said.lines().any(|line| line.starts_with("warning: ") && line.contains(risk)), "{said}");
}

#[test]
fn kernel_clauses_of_an_in_process_run_see_all_children() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libcuda:cuInit { @s[kstack(1)] = count(); @kernel = count() }
                  uprobe:libcuda:cuInit { @process = count() }";
    let workload = example("workload_driver");
    let two = format!("{workload} & {workload}; wait");
    let mut command = cudatrace();
    let output = command.args(["--in-process", "-e", script, "--", "sh", "-c", &two]).output();
    let output = output.expect("cudatrace starts");
    let (printed, said) = (stdout(&output), stderr(&output));
    assert!(said.contains("a clause in the kernel: only the kernel has its stacks"), "{said}");
    for map in ["@kernel: 2", "@process: 2"] {
        assert!(printed.lines().any(|line| line == map), "{map}: {printed}{said}");
    }
}

#[test]
fn children_that_execute_nothing_are_traced_by_clauses_in_the_kernel_too() {
    let (true, Some(forks)) = (can_trace(), program("forks.c", &["-fno-omit-frame-pointer"])) else { return };
    let target = format!("uprobe:{}:work", text(&forks));
    let script = format!(
        "{target} {{ @s[kstack(1)] = count(); @kernel = count() }} {target} {{ @process = count() }}"
    );
    let output = cudatrace().args(["--in-process", "-e", &script, "--", text(&forks)]).output();
    let output = output.expect("cudatrace starts");
    let (printed, said) = (stdout(&output), stderr(&output));
    for map in ["@kernel: 16", "@process: 16"] {
        assert!(printed.lines().any(|line| line == map), "{map}: {printed}{said}");
    }
}

/// Bundled scripts with the largest maps.
const LARGE: [&str; 10] =
    ["memleak", "metrics", "oom", "calls", "churn", "doublefree", "errors", "pipeline", "streams", "summary"];

#[test]
fn bundled_scripts_have_room_when_the_driver_is_found_after_the_start() {
    if !can_trace() {
        return;
    }
    let workload = format!("LD_LIBRARY_PATH={} {}", examples().display(), example("workload_driver"));
    for script in LARGE {
        let mut command = cudatrace();
        command.env_remove("LD_LIBRARY_PATH").args(["--in-process", script, "--", "sh", "-c", &workload]);
        let output = command.output().expect("cudatrace starts");
        let said = stderr(&output);
        assert!(output.status.success() && !said.contains("not traced"), "{script}: {said}");
        let traced =
            said.lines().find_map(|line| line.strip_prefix("Traced ")?.split(' ').next()?.parse().ok());
        assert!(traced.is_some_and(|functions: u32| functions > 10), "{script}: {said}");
    }
}

#[test]
fn bundled_scripts_have_room_on_machines_with_many_processors() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let parse = |path: &Path| Object::parse(&fs::read(path).expect("it was written")).expect("an object");
    let emit = |script: &str, folder_of_driver: &Path| {
        let path = folder.path().join("object");
        let mut command = cudatrace();
        command.env("LD_LIBRARY_PATH", folder_of_driver);
        let output = command.args(["--in-process", "--emit", text(&path), script, "--", "true"]).output();
        let output = output.expect("cudatrace starts");
        assert!(output.status.success(), "{script}: {}", stderr(&output));
        parse(&path)
    };
    for script in LARGE {
        let (before, whole) = (emit(script, folder.path()), emit(script, &examples()));
        for processors in [1, 2, 64, 256, 1024] {
            let (mut layout, _) = Layout::new(&before, processors);
            let (needed, left) = layout.room_for(&whole);
            let room = format!("{script}, {processors} processors: {needed} bytes, {left} are left");
            assert!(layout.extend(&whole).is_some(), "{room}");
        }
    }
}

#[test]
fn a_library_whose_probes_do_not_fit_is_an_error() {
    if !can_trace() {
        return;
    }
    let workload = format!("LD_LIBRARY_PATH={} {}", examples().display(), example("workload_driver"));
    // Each keeps its argument until the return.
    let clause = |n| format!("uretprobe:libcuda:cuInit {{ @[{n}] = arg0 + {n} + (uint64)retval }} ");
    let script: String = (0..400).map(clause).collect();
    let mut command = cudatrace();
    command.env_remove("LD_LIBRARY_PATH").args(["--in-process", "-e", &script, "--", "sh", "-c", &workload]);
    let output = command.output().expect("cudatrace starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(255), "{said}");
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains("libcuda.so.580.159.04: not traced: no room for the counters"), "{said}");
}

#[test]
fn a_started_process_that_cannot_be_traced_is_an_error() {
    if !can_trace() || !has_installed("unshare") {
        return;
    }
    let script = "uprobe:libcuda:cuInit,uprobe:libcudart:cudaMalloc { @ = count() }";
    let mut command = cudatrace();
    command.args(["--in-process", "-q", "-e", script, "--"]);
    // In another pid namespace the program's ids mean other processes.
    let output = command.args(["unshare", "--pid", "--fork", &example("workload_runtime13")]).output();
    let output = output.expect("cudatrace starts");
    let said = stderr(&output);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(
        errors.len() == 1 && errors[0].contains("is not traced: the process is in another pid namespace"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn ignored_returns_are_an_error() {
    let (true, Some(deep)) = (can_trace(), program("deep.c", &[])) else { return };
    let script = format!("uretprobe:{}:traced_deep {{ @ = count() }}", text(&deep));
    let mut command = cudatrace();
    let output = command.args(["--in-process", "-q", "-e", &script, "--", text(&deep)]).output();
    let output = output.expect("cudatrace starts");
    let (printed, said) = (stdout(&output), stderr(&output));
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    let number = |text: &str| text.split(' ').find_map(|word| word.parse::<u64>().ok());
    let ignored = number(error.split(" calls").next().unwrap_or_default());
    let seen = printed.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
    assert!(error.ends_with("trace fewer functions, or without `--in-process`"), "{printed}{said}");
    assert_eq!(seen.zip(ignored).map(|(seen, ignored)| seen + ignored), Some(60000), "{printed}{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn a_library_that_is_opened_again_is_patched_again() {
    let Some((loader, library, script)) = loader_and_patchable_library() else { return };
    for (how, wanted) in [("again", "@: 1000"), ("all", "@: 100")] {
        let output = cudatrace()
            .args(["--in-process", "-e", &script, "--", text(&loader), how, text(&library)])
            .output()
            .expect("cudatrace starts");
        let (printed, said) = (stdout(&output), stderr(&output));
        assert!(printed.lines().any(|line| line == wanted), "{how}: {printed}{said}");
        assert!(said.contains("without the kernel"), "{how}: {said}");
    }
}

#[test]
fn a_running_process_opens_a_library_again_at_the_same_address() {
    let Some((loader, library, script)) = loader_and_patchable_library() else { return };
    let mut loading = PipedProcess::start(Command::new(&loader).args(["place", text(&library)]));
    let tracer = attached(&script, loading.pid());
    let places = [(); 3].map(|()| {
        loading.write("\n");
        loading.line()
    });
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    let lines = tracer.lines();
    assert!(lines.iter().any(|line| line == "@: 300"), "{lines:?}");
}

#[test]
fn all_copies_of_a_library_are_patched() {
    let Some((loader, library, script)) = loader_and_patchable_library() else { return };
    let mut loading = PipedProcess::start(Command::new(&loader).args(["copies", text(&library)]));
    assert_eq!(loading.line(), "ready");
    let tracer = attached(&script, loading.pid());
    loading.write("\n");
    let lines = tracer.lines();
    assert!(lines.iter().any(|line| line == "@: 300"), "{lines:?}");
}

#[test]
fn a_library_that_a_running_process_opens_later_is_patched() {
    if !can_trace() {
        return;
    }
    // As a user: the kernel tells nothing about mappings then.
    let (folder, binary) = public();
    let late = || {
        let mut command = Command::new(folder.path().join("late_dlopen"));
        command.args([text(&folder.path().join("libhammer.so")), "hammer_push", "40000000000", "3000"]);
        Running::start(command.gid(NOBODY).uid(NOBODY))
    };
    for script in
        ["uprobe:libhammer:hammer_push { @ = count() }", "uprobe:./libhammer.so:hammer_push { @ = count() }"]
    {
        let mut running = late();
        let pid = running.pid().to_string();
        let script = format!("{script} interval:ms:100 /@ > 0/ {{ exit() }}");
        let output = as_nobody(folder.path(), &binary, &["--in-process", "-e", &script, "-p", &pid]);
        running.signal(libc::SIGKILL);
        running.ended();
        let said = stdout(&output);
        assert!(
            said.lines().any(|line| line.starts_with("@: ") && line != "@: 0"),
            "{said}{}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains("was not traced"), "{}", stderr(&output));
    }
}

#[test]
fn exceptions_pass_probed_functions() {
    let (true, Some(throws)) = (can_trace(), program("throws.cpp", &[])) else { return };
    for probe in ["uprobe", "uretprobe"] {
        let script = format!("{probe}:{}:traced_call,{probe}:{0}:main {{ @ = count() }}", text(&throws));
        let output = cudatrace()
            .args(["--in-process", "-e", &script, "--", text(&throws)])
            .output()
            .expect("cudatrace starts");
        let said = stderr(&output);
        assert!(output.status.success() && !said.contains("instead"), "{said}");
        // Only `main` returns.
        let wanted = if probe == "uprobe" { "@: 101" } else { "@: 1" };
        assert!(stdout(&output).lines().any(|line| line == wanted), "{probe}: {}{said}", stdout(&output));
    }
}

/// Each function begins with an instruction that gives way to a jump.
const FRAME_POINTERS: &str = "-fno-omit-frame-pointer";

#[test]
fn stacks_follow_the_library_that_is_at_an_address_now() {
    let flags = ["-shared", "-fPIC", "-fomit-frame-pointer"];
    let library = |frame| program("replaces.c", &[&flags[..], &[frame]].concat());
    let (true, Some(replaces)) = (can_trace(), program("replaces.c", &["-fno-omit-frame-pointer"])) else {
        return;
    };
    let (Some(small), Some(large)) = (library("-DFRAME=400"), library("-DFRAME=800")) else { return };
    let script = format!("uprobe:{}:traced_call {{ @[ustack(3)] = count(); @n = count() }}", text(&replaces));
    let mut command = cudatrace();
    command.args(["--in-process", "-e", &script, "--", text(&replaces), text(&small), text(&large)]);
    let output = command.output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    assert!(said.contains("moved 0\n") && said.contains("@n: 2000\n"), "{said}{messages}");
    assert!(messages.contains("without the kernel\n"), "{messages}");
    // One stack: the addresses in both libraries are the same, and only the sizes of their frames differ.
    let frames = |name: &str| said.lines().filter(|line| line.trim_start().starts_with(name)).count();
    assert_eq!((frames("traced_call+"), frames("main+")), (1, 1), "{said}{messages}");
}

#[test]
fn a_program_that_maps_no_library_is_patched_before_it_runs() {
    if !can_trace() {
        return;
    }
    for way in ["-static", "-static-pie"] {
        let Some(throws) = program("throws.cpp", &[way]) else { continue };
        let script = format!(
            "uprobe:{0}:traced_call {{ @in = count(); @at[ustack(1)] = count() }} uretprobe:{0}:traced_call {{ @out = count() }}",
            text(&throws)
        );
        // A shell and a program that executes another one, too.
        for command in [&["sh", "-c", "$0; exec $0", text(&throws)][..], &["env", text(&throws)]] {
            let output =
                cudatrace().args(["--in-process", "-e", &script, "--"]).args(command).output().unwrap();
            let (said, messages) = (stdout(&output), stderr(&output));
            let runs = if command[0] == "sh" { 2 } else { 1 };
            assert!(output.status.success(), "{way}: {said}{messages}");
            assert!(said.contains(&format!("@in: {}\n", 100 * runs)), "{way}: {said}{messages}");
            let stacks = said.matches("traced_call+0\n]: 100\n").count();
            assert_eq!(stacks, runs, "{way}: {said}{messages}");
            assert!(messages.contains("without the kernel\n"), "{way}: {messages}");
        }
    }
}

#[test]
fn calls_may_end_in_any_way() {
    let (true, Some(returns)) = (can_trace(), program("returns.cpp", &[FRAME_POINTERS])) else { return };
    let script = format!(
        "uprobe:{0}:traced_* {{ @entry[func] = count() }}
        uretprobe:{0}:traced_* {{ @return[func] = count(); @spent = max(duration) }}",
        text(&returns)
    );
    let output = tempfile::NamedTempFile::new().expect("a file");
    let mut command = cudatrace();
    command.args(["--in-process", "-o", text(output.path()), "-e", &script, "--", text(&returns)]);
    let run = command.output().expect("cudatrace starts");
    let (truth, said) = (stdout(&run), stderr(&run));
    assert!(run.status.success() && !said.contains("instead") && !said.contains("lost"), "{said}");
    let printed = fs::read_to_string(output.path()).expect("written");
    let counts = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.starts_with("@entry") || line.starts_with("@return"));
        lines.map(str::to_owned).collect()
    };
    assert!(counts(&truth).len() > 20, "{truth}");
    assert_eq!(counts(&printed), counts(&truth));
}

#[test]
fn a_function_has_as_many_callers_as_a_program_of_cuda_has_kernels() {
    let Some(places) = program("call_sites.c", &["-O0"]).filter(|_| can_trace()) else { return };
    let script = format!("uretprobe:{}:registered {{ @ = count() }}", text(&places));
    let output = cudatrace().args(["--in-process", "-e", &script, "--", text(&places)]).output().unwrap();
    assert_eq!(
        (stdout(&output).trim(), stderr(&output).contains("warning")),
        ("@: 25000", false),
        "{}",
        stderr(&output)
    );
}

#[test]
fn tracing_may_end_while_calls_run() {
    let (true, Some(returns)) = (can_trace(), program("returns.cpp", &[FRAME_POINTERS])) else { return };
    let mut running = Running::start(Command::new(&returns).arg("1000000"));
    let script =
        format!("uretprobe:{}:traced_* {{ @[func] = count() }} interval:ms:100 {{ exit() }}", text(&returns));
    let pid = running.pid().to_string();
    let mut sessions = 0;
    for session in 0..10 {
        let run = cudatrace().args(["--in-process", "-e", &script, "-p", &pid]).output();
        // The program ends if anything goes wrong in it.
        if !running.runs() {
            panic!("session {session}: {} {:?}", running.ended().0, running.lines());
        }
        sessions += usize::from(stdout(&run.expect("cudatrace starts")).contains("@[traced_"));
    }
    // A session cannot begin while the program waits for a child of vfork.
    assert!(sessions > 3, "{sessions} sessions");
}

#[test]
fn returns_of_any_library_are_those_of_the_kernel() {
    if !can_trace() {
        return;
    }
    let names = ["malloc", "realloc", "fputs_unlocked", "fclose", "setlocale", "textdomain"];
    let probes = names.map(|name| format!("uretprobe:libc:{name}")).join(",");
    let script =
        format!("{probes} {{ @[func, retval != 0] = count(); @spent[func, duration > 0] = count() }}");
    let [in_process, kernel] = both_ways(&script, &["/usr/bin/seq", "--format=%.3g", "1", "300"]);
    assert!(kernel.len() >= 2 * names.len(), "{kernel:?}");
    assert_eq!(in_process, kernel);
}

#[test]
fn go_code_with_its_small_stacks_is_left_to_the_kernel() {
    let (true, Some(path)) = (can_trace(), program("go_text.c", &[])) else { return };
    for function in ["of_go", "of_c"] {
        let script = format!("uprobe:{}:{function} {{ @ = count() }}", text(&path));
        let mut command = cudatrace();
        let output =
            command.args(["--in-process", "-e", &script, "--", text(&path)]).output().expect("it starts");
        let (printed, said) = (stdout(&output), stderr(&output));
        assert!(printed.contains("@: 1"), "{printed}{said}");
        assert_eq!(said.contains("it is Go code, whose stacks are too small"), function == "of_go", "{said}");
    }
}

/// Runs a script on `wild.c` in this sandbox, for one round of calls. Returns the output of the script and of the program.
fn in_sandbox(wild: &Path, mode: &str, script: &str) -> (Vec<String>, String) {
    let mut program = PipedProcess::start(Command::new(wild).arg(mode));
    assert_eq!(program.line(), "ready");
    let script = format!("interval:ms:10 {{ printf(\"attached\\n\") }} {script}");
    let mut command = cudatrace();
    command.args(["--in-process", "-e", &script, "-p", &program.pid().to_string()]);
    let mut tracer = Running::start(&mut command);
    wait_for("the tracer", || tracer.has_printed("attached") || !tracer.runs());
    program.write("\n");
    drop(program.child.stdin.take());
    let end = program.line();
    (tracer.lines(), end)
}

#[test]
fn no_program_ends_by_a_bad_address_or_its_sandbox() {
    let (true, Some(wild)) = (can_trace(), program("wild.c", &[])) else { return };
    bad_addresses_and_stacks_are_no_faults(&wild);
    a_process_that_system_calls_would_kill_is_left_alone(&wild);
}

fn bad_addresses_and_stacks_are_no_faults(wild: &Path) {
    let script = format!(
        "uprobe:{}:wild {{ @word = sum(*(uint64*)arg0 & 1); @text[str(arg0)] = count(); @bytes[buf(arg0, 16)] = count();
            @stack[ustack] = count(); @calls = count() }}",
        text(wild)
    );
    // In the second sandbox the kernel refuses to read any address.
    for mode in ["plain", "errno"] {
        let (lines, end) = in_sandbox(wild, mode, &script);
        assert_eq!(end, "done 45", "{mode}: {lines:?}");
        assert!(lines.iter().any(|line| line == "@calls: 45"), "{mode}: {lines:?}");
        assert!(lines.iter().any(|line| line.contains("reads of the program's memory failed")), "{lines:?}");
        let has_text = lines.iter().any(|line| line == "@text[text]: 3");
        assert_eq!(has_text, mode == "plain", "{mode}: {lines:?}");
    }
}

fn a_process_that_system_calls_would_kill_is_left_alone(wild: &Path) {
    let script = format!("uprobe:{}:wild {{ @[str(arg0)] = count() }}", text(wild));
    for (mode, calls, reason) in [
        ("kill", "done 45", "a seccomp filter of the process may kill it"),
        ("thread", "done 45", "a seccomp filter of the process may kill it"),
        ("strict", "done 30", "a seccomp filter of the process may kill it"),
        ("dispatch", "done 45", "handles system calls itself"),
    ] {
        let (lines, end) = in_sandbox(wild, mode, &script);
        assert!(lines.iter().any(|line| line.contains(reason)), "{mode}: {lines:?}");
        assert_eq!(end, calls, "{mode}");
    }
}

/// The script for `sandbox.c`: its programs make all system calls that programs make.
fn sandbox_script(sandbox: &Path) -> String {
    format!(
        "uretprobe:{0}:work,uretprobe:{0}:around {{ @calls[func, str(retval)] = count(); @ids[pid == cpid, uid] = count() }}",
        text(sandbox)
    )
}

#[test]
fn a_program_that_enters_a_sandbox_goes_on() {
    let (true, Some(sandbox)) = (can_trace(), program("sandbox.c", &[])) else { return };
    let (folder, binary) = public();
    let copy = folder.path().join("sandbox");
    fs::copy(&sandbox, &copy).expect("copied");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = sandbox_script(&copy);
    for (mode, has_rights, reason) in [
        ("prctl", true, "may kill it for a system call of the probes (`process_vm_readv`)"),
        ("seccomp", true, "may kill it for a system call of the probes (`process_vm_readv`)"),
        ("tsync", true, "may kill it for a system call of the probes (`process_vm_readv`)"),
        ("harmless", true, ""),
        ("tsync", false, "needs CAP_SYS_ADMIN"),
        ("harmless", false, "needs CAP_SYS_ADMIN"),
    ] {
        let args = ["--in-process", "-e", &script, "--", text(&copy), mode];
        let output = match has_rights {
            true => cudatrace().args(args).output().expect("cudatrace starts"),
            false => as_nobody(folder.path(), &binary, &args),
        };
        let (printed, said) = (stdout(&output), stderr(&output));
        assert!(output.status.success() && printed.contains("done 30"), "{mode}: {printed}{said}");
        assert!(printed.contains("@calls[work, text]: "), "{mode}: {printed}{said}");
        assert_eq!(printed.contains("@calls[around, harmless]: 1"), reason.is_empty(), "{mode}: {printed}");
        let is_left = said.contains("is not traced any more") && said.contains(reason);
        assert_eq!(is_left, !reason.is_empty(), "{mode}: {said}");
    }
}

/// Mappings of ours in a process: files, and memory with code of no file.
fn traces(pid: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let is_ours = |line: &&str| {
        line.contains("cudatrace")
            || line.split_whitespace().nth(1) == Some("r-xp") && line.split_whitespace().count() == 5
    };
    maps.lines().filter(is_ours).map(str::to_owned).collect()
}

/// Addresses of the mappings of ours, in bytes.
fn size_of_traces(pid: u32) -> u64 {
    let size = |line: &String| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    traces(pid).iter().filter_map(size).sum()
}

/// A process whose input is ours.
struct PipedProcess {
    child: std::process::Child,
    output: std::io::BufReader<std::process::ChildStdout>,
}

impl PipedProcess {
    fn start(command: &mut Command) -> PipedProcess {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        PipedProcess { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.output, &mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn write(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        std::io::Write::write_all(input, line.as_bytes()).expect("it reads");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PipedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Attaches to a process until its probes are there.
fn attached(script: &str, pid: u32) -> Running {
    let script =
        format!("BEGIN {{ printf(\"begun\\n\") }} interval:ms:10 {{ printf(\"attached\\n\") }} {script}");
    let mut command = cudatrace();
    command.args(["--in-process", "-e", &script, "-p", &pid.to_string()]);
    let mut tracer = Running::start(&mut command);
    tracer.wait_for_line("attached");
    tracer
}

/// Attaches to a process and detaches.
fn attach_and_detach(script: &str, pid: u32) -> Output {
    let script = format!("{script} interval:ms:20 {{ exit() }}");
    let output = cudatrace()
        .args(["--in-process", "-q", "-e", &script, "-p", &pid.to_string()])
        .output()
        .expect("cudatrace starts");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    output
}

#[test]
fn a_call_that_outlives_the_session_returns() {
    let built = || program("waits.c", &[]).zip(program("waits.c", &["-shared", "-fPIC", "-DDRIVER"]));
    let (true, Some((waits, driver))) = (can_trace(), built()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libcuda.so.1");
    fs::copy(driver, &library).expect("copied");
    let script = format!("uretprobe:{}:cuCtxSynchronize {{ @ = max(duration) }}", text(&library));
    for how in ["plain", "own-handler", "handler", "coroutine"] {
        for killed in [false, true] {
            let mut waiting = PipedProcess::start(Command::new(&waits).args([text(&library), how]));
            assert_eq!(waiting.line(), "ready");
            let mut tracer = attached(&script, waiting.pid());
            waiting.write("\n");
            assert_eq!(waiting.line(), "inside", "{how}");
            tracer.signal(if killed { libc::SIGKILL } else { libc::SIGINT });
            tracer.ended();
            if killed {
                attach_and_detach(&script, waiting.pid());
            }
            assert!(!traces(waiting.pid()).is_empty(), "{how}: the call returns there");
            waiting.write("\n");
            assert_eq!(waiting.line(), "result 700", "{how}, killed: {killed}");
            attach_and_detach(&script, waiting.pid());
            assert_eq!(traces(waiting.pid()), [""; 0], "{how}, killed: {killed}");
        }
    }
}

#[test]
fn a_sandbox_does_not_end_a_program_that_was_left() {
    let (true, Some(sandbox)) = (can_trace(), program("sandbox.c", &[])) else { return };
    let script = sandbox_script(&sandbox);
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let mut program = PipedProcess::start(Command::new(&sandbox).args(["tsync", "waits"]));
        assert_eq!(program.line(), "ready");
        let mut tracer = attached(&script, program.pid());
        program.write("\n");
        assert_eq!(program.line(), "inside");
        tracer.signal(signal);
        tracer.ended();
        program.write("\n\n");
        assert_eq!([program.line(), program.line()], ["sandboxed", "done 30"], "signal {signal}");
    }
}

#[test]
fn detaching_does_not_end_a_program_in_a_sandbox() {
    let (true, Some(sandbox)) = (can_trace(), program("sandbox.c", &[])) else { return };
    let (folder, binary) = public();
    // Programs that make no system calls.
    let script = format!("uretprobe:{0}:work,uretprobe:{0}:around {{ @ = count() }}", text(&sandbox));
    for user in [0, NOBODY] {
        let mut command = Command::new(&sandbox);
        let mut program = PipedProcess::start(command.args(["tsync", "waits"]).uid(user).gid(user));
        assert_eq!(program.line(), "ready");
        let pid = program.pid().to_string();
        let script = format!("interval:ms:10 {{ printf(\"attached\\n\") }} {script}");
        let mut command = Command::new(&binary);
        command.args(["--in-process", "-e", &script, "-p", &pid]).current_dir(folder.path());
        let mut tracer = Running::start(command.uid(user).gid(user));
        tracer.wait_for_line("attached");
        program.write("\n\n");
        assert_eq!([program.line(), program.line()], ["inside", "sandboxed"]);
        tracer.signal(libc::SIGINT);
        tracer.ended();
        program.write("\n");
        assert_eq!(program.line(), "done 30", "user {user}");
    }
}

#[test]
fn a_child_has_the_patches_of_its_parent_and_no_others() {
    let (true, Some(children)) = (can_trace(), program("children.c", &[])) else { return };
    let script = format!("uprobe:{}:work {{ @[comm(process) == \"renamed\"] = count() }}", text(&children));
    for (how, line, count) in [("fork", "called", "@[true]: 30"), ("vfork", "ended", "@[false]: 30")] {
        let mut parent = PipedProcess::start(Command::new(&children).arg(how));
        assert_eq!(parent.line(), "ready");
        let mut tracer = attached(&script, parent.pid());
        let before = traces(parent.pid());
        parent.write("\n");
        assert_eq!(parent.line(), line);
        assert_eq!(traces(parent.pid()), before, "{how}");
        let list = format!("/proc/{0}/task/{0}/children", parent.pid());
        let child: Option<u32> = fs::read_to_string(list).ok().and_then(|pid| pid.trim().parse().ok());
        assert_eq!(child.is_some(), how == "fork");
        assert!(child.is_none_or(|child| traces(child) == before), "{how}");
        tracer.signal(libc::SIGINT);
        tracer.ended();
        let lines = tracer.lines();
        assert!(lines.iter().any(|line| line == count), "{how}: {lines:?}");
        assert!(!lines.iter().any(|line| line.contains("another tool")), "{how}: {lines:?}");
        for pid in child.into_iter().chain([parent.pid()]) {
            assert_eq!(traces(pid), [""; 0], "{how}");
        }
    }
}

#[test]
fn another_session_on_the_same_functions_is_refused() {
    if !can_trace() {
        return;
    }
    let driver = own_driver();
    let busy = busy(driver.path());
    wait_for("its threads", || has_libcuda(busy.pid()));
    let mut first = attached("uprobe:libcuda:cu* { @ = count() }", busy.pid());
    let script = "uretprobe:libcuda:cuCtxGetDevice { @ = count() } interval:ms:50 { exit() }";
    let second = cudatrace()
        .args(["--in-process", "-e", script, "-p", &busy.pid().to_string()])
        .output()
        .expect("cudatrace starts");
    let said = stderr(&second);
    assert!(
        !second.status.success() && said.contains("another cudatrace traces the same functions"),
        "{said}"
    );
    first.signal(libc::SIGINT);
    first.ended();
    let lines = first.lines();
    let count = lines.iter().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 10_000), "{lines:?}");
    attach_and_detach(script, busy.pid());
    assert_eq!(traces(busy.pid()), [""; 0]);
}

#[test]
fn a_process_that_a_debugger_holds_at_the_end_keeps_jumps_and_is_named() {
    if !can_trace() {
        return;
    }
    let driver = own_driver();
    let busy = busy(driver.path());
    wait_for("its threads", || has_libcuda(busy.pid()));
    let tracer = attached("uprobe:libcuda:cu* { @ = count() }", busy.pid());
    let pid = busy.pid() as i32;
    // SAFETY: numbers. The thread runs on; another tracer cannot seize it.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) }, 0);
    tracer.signal(libc::SIGINT);
    let said = tracer.lines().join("\n");
    let warning = format!("process {pid} keeps the jumps of the probes, which pass by now: process ");
    assert!(said.contains(&warning) && said.contains("traces it already"), "{said}");
    // SAFETY: numbers, and a place for the status. A thread must be stopped to be given up.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0);
        libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
    }
    attach_and_detach("uprobe:libcuda:cuInit { @ = count() }", busy.pid());
    assert_eq!(traces(busy.pid()), [""; 0]);
}

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// A program with many threads in all states that a tracer may meet, see `soak.c`.
struct Soak {
    program: PipedProcess,
    text: Vec<u8>,
    files: usize,
}

impl Soak {
    fn start(path: &Path, driver: &Path) -> Soak {
        let mut command = Command::new(path);
        command.arg("16").env("LD_LIBRARY_PATH", driver).env("CUDASIM_FAST", "1");
        let mut program = PipedProcess::start(&mut command);
        assert_eq!(program.line(), "running");
        let (text, files) = (text_of_libcuda(program.pid()), open_files(program.pid()));
        Soak { program, text, files }
    }

    /// Number of calls of `cuDeviceGetAttribute` so far, after which there are none before [`Soak::go_on`].
    fn rest(&mut self) -> u64 {
        self.program.write("rest\n");
        let line = self.program.line();
        line.strip_prefix("calls ").and_then(|count| count.parse().ok()).expect("a number")
    }

    fn go_on(&mut self) {
        self.program.write("go on\n");
    }

    fn assert_runs(&mut self, cycle: &str) {
        let ended = self.program.child.try_wait().expect("ours");
        assert_eq!(ended, None, "{cycle}: the program ended");
    }

    fn assert_has_its_text(&self, cycle: &str) {
        assert!(text_of_libcuda(self.program.pid()) == self.text, "{cycle}: the text differs");
    }

    /// Pages to which threads still return are all that is left of the sessions.
    fn assert_is_clean(&self, sessions: u64) {
        let pid = self.program.pid();
        let left = size_of_traces(pid);
        assert!(left <= sessions << 10 | 1 << 20, "{left} bytes left: {:?}", traces(pid));
        assert_eq!(open_files(pid), self.files);
        self.assert_has_its_text("at the end");
    }

    fn end(mut self) {
        drop(self.program.child.stdin.take());
        let end = self.program.line();
        assert!(end.starts_with("calls ") && end.ends_with(" errors 0"), "{end}");
        assert!(self.program.child.wait().expect("ours").success(), "{end}");
    }
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
}

const SOAK_SCRIPTS: [&str; 7] = [
    "uprobe:libcuda:cu* { @[func] = count() }",
    "uretprobe:libcuda:cu* { @[func] = hist(duration) }",
    "uprobe:libcuda:cu* { @[arg0 & 1023] = count() } uretprobe:libcuda:cu* /retval != 0/ { @failed = count() }",
    "uprobe:libcuda:cuMem*,uprobe:libcuda:cuDevice* { printf(\"%d %d\\n\", arg0, arg1) }",
    "uretprobe:libcuda:cuDriverGetVersion { @ = count() }",
    "uprobe:libcuda:cuMem* { @[ustack(8)] = count() }",
    "uretprobe:libcuda:cuMem* { @[ustack, func] = hist(duration) }",
];

/// `SOAK_CYCLES=1000 cargo test --test in_process soak` takes about ten minutes.
#[test]
fn soak_sessions_come_and_go() {
    let (true, Some(path)) = (can_trace(), program("soak.c", &[])) else { return };
    let cycles = common::number("SOAK_CYCLES").unwrap_or(24);
    let seed = common::number("SOAK_SEED").unwrap_or(1);
    let mut random = Random(seed);
    let driver = own_driver();
    let mut soak = Soak::start(&path, driver.path());
    for cycle in 0..cycles {
        let name = format!("SOAK_SEED={seed}, cycle {cycle}");
        match random.below(4) {
            0 => soak_killed(&mut soak, &mut random),
            1 => soak_exact(&mut soak, &mut random, &name),
            _ => soak_detached(&mut soak, &mut random, &name),
        }
        soak.assert_runs(&name);
    }
    attach_and_detach(SOAK_SCRIPTS[0], soak.program.pid());
    soak.assert_is_clean(cycles);
    soak.end();
}

fn soak_session(soak: &Soak, random: &mut Random) -> Command {
    let script = SOAK_SCRIPTS[random.below(SOAK_SCRIPTS.len() as u64) as usize];
    let script = format!("{script} interval:ms:{} {{ exit() }}", 5 + random.below(100));
    let mut command = cudatrace();
    command.args(["--in-process", "-q", "-e", &script, "-p", &soak.program.pid().to_string()]);
    command
}

fn soak_detached(soak: &mut Soak, random: &mut Random, cycle: &str) {
    let output = soak_session(soak, random).output().expect("cudatrace starts");
    assert!(output.status.success(), "{cycle}: {}", stderr(&output));
    soak.assert_runs(cycle);
    soak.assert_has_its_text(cycle);
}

/// A tracer that is killed at any moment from its start to its end.
fn soak_killed(soak: &mut Soak, random: &mut Random) {
    let mut command = soak_session(soak, random);
    let mut tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(std::time::Duration::from_micros(random.below(400_000)));
    let _ = tracer.kill();
    tracer.wait().expect("it ends");
}

/// The calls of a session at whose begin and end no thread is within a call.
fn soak_exact(soak: &mut Soak, random: &mut Random, cycle: &str) {
    let side = ["uprobe", "uretprobe"][random.below(2) as usize];
    let script = format!("{side}:libcuda:cuDeviceGetAttribute {{ @calls = count(); @[tid] = count() }}");
    let before = soak.rest();
    let tracer = attached(&script, soak.program.pid());
    soak.go_on();
    std::thread::sleep(std::time::Duration::from_millis(random.below(50)));
    let calls = soak.rest() - before;
    tracer.signal(libc::SIGINT);
    let lines = tracer.lines();
    let wanted = format!("@calls: {calls}");
    assert!(lines.contains(&wanted), "{cycle}: not {wanted}: {lines:?}");
    soak.go_on();
}

#[test]
fn clauses_that_need_the_kernel_run_there_and_the_others_in_the_process() {
    if !can_trace() {
        return;
    }
    let driver = own_driver();
    let path = format!("LD_LIBRARY_PATH={}", text(driver.path()));
    let workload = example("workload_driver");
    let program = ["env", &path, &workload, "--threads", "2", "--calls", "100", "--call", "device"];
    let exit = "tracepoint:syscalls:sys_enter_exit_group / comm == \"workload_driver\" /";
    let counts = "uprobe:libcuda:cu* { @[func] = count() }";
    let cases = [
        // Both print, both count failures of functions.
        format!("{counts} {exit} {{ @ends = count(); printf(\"ends\\n\") }} END {{ printf(\"end\\n\") }}"),
        format!("{counts} uprobe:libcuda:cuMemAlloc_v2 {{ @k[kstack(1)] = count() }}"),
        // Only one side walks user stacks.
        format!("uprobe:libcuda:cuMemFree_v2 {{ @u[ustack(2)] = count() }} {exit} {{ @ends = count() }}"),
        format!(
            "uprobe:libcuda:cuMemFree_v2 {{ @u[ustack(2)] = count() }} uprobe:libcuda:cuInit {{ @k[kstack(1), ustack(2)] = count() }} {counts}"
        ),
        // Calls and names of kernels, in maps that clauses share.
        format!(
            "uretprobe:libcuda:cuLaunchKernel {{ @n[kernel_name(args.f)] = count() }} {exit} {{ @ends = count() }} \
             uprobe:libcuda:cuMemFree_v2 {{ @k[kstack(1), args.dptr != 0] = count() }} {counts}"
        ),
        // The library is not found before the program maps it.
        format!("uprobe:libcuda:cuInit {{ @s = count() }} {counts} {exit} {{ @s = count() }}"),
        // Either side ends the run.
        format!("{counts} {exit} {{ exit() }}"),
    ];
    for script in &cases {
        let [here, kernel] = both_ways(script, &program);
        assert_eq!(here, kernel, "{script}");
    }
    let shared = "uprobe:libcuda:cuInit { @s = count() } uprobe:libcuda:cuMemFree_v2 { @f = count() }";
    let at_return = "uretprobe:libcuda:cuMemAlloc_v2 { @s = count() }";
    let script = format!("{shared} {at_return} {exit} {{ @s = count() }}");
    let run = cudatrace()
        .env("LD_LIBRARY_PATH", driver.path())
        .args(["--in-process", "-v", "-e", &script, "--"])
        .args(&program[2..])
        .output()
        .expect("cudatrace starts");
    let said = stderr(&run);
    let lines = [
        "`uprobe:libcuda:cuMemFree_v2` runs in the traced process, at 1 function",
        "`uprobe:libcuda:cuInit` runs in the kernel: it shares `@s` with `tracepoint:syscalls:sys_enter_exit_group`",
        "warning: `uretprobe:libcuda:cuMemAlloc_v2` runs in the kernel: it shares `@s` with `tracepoint:syscalls:sys_enter_exit_group`; a C++ exception \
         that passes a call whose return the kernel probes ends the program",
        "Traced 1 function in 1 process, without the kernel; 3 clauses in the kernel: \
         `tracepoint:syscalls:sys_enter_exit_group` is an event of the kernel",
    ];
    for line in lines {
        assert!(said.lines().any(|said| said == line), "not `{line}`: {said}");
    }
}

#[test]
fn parts_of_the_language_that_only_the_kernel_has_are_named() {
    if !can_trace() {
        return;
    }
    for (body, reason) in [
        ("signal(\"SIGCONT\")", "only the kernel sends signals in a probe"),
        ("@ = cgroup", "only the kernel knows control groups"),
        ("@ = curtask != 0", "only the kernel has its tasks"),
    ] {
        let script = format!("uprobe:libcuda:cuInit {{ {body} }}");
        let mut command = cudatrace();
        let args = ["--in-process", "-v", "--unsafe", "-e", &script, "--", &example("workload_driver")];
        let said = stderr(&command.args(args).output().expect("cudatrace starts"));
        assert!(said.contains(reason), "{body}: {said}");
    }
}

#[test]
fn code_that_is_never_reached_may_use_a_map_beside_clauses_in_the_kernel() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libcuda:cuInit { @k[kstack(1)] = count(); @kernel = count() }
                  uprobe:libcuda:cuInit { $never = arg0 * 0; @process = count(); if ($never) { @unused = count() } }";
    let mut command = cudatrace();
    let output = command.args(["--in-process", "-e", script, "--", &example("workload_driver")]).output();
    let output = output.expect("cudatrace starts");
    let (printed, said) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{printed}{said}");
    for map in ["@kernel: 1", "@process: 1"] {
        assert!(printed.lines().any(|line| line == map), "{map}: {printed}{said}");
    }
}

/// The output of a script for a program, in the traced process and by the kernel: maps without their order.
fn both_ways(script: &str, program: &[&str]) -> [Vec<String>; 2] {
    [&["--in-process"][..], &[]].map(|options| {
        let output = tempfile::NamedTempFile::new().expect("a file");
        let mut command = cudatrace();
        command.args(options).args(["-o", text(output.path()), "-e", script, "--"]).args(program);
        let run = command.output().expect("cudatrace starts");
        let said = stderr(&run);
        assert!(run.status.success() && !said.contains("instead"), "{said}");
        // Calls of addresses without symbols differ by the place of the program.
        let printed = fs::read_to_string(output.path()).expect("written");
        let mut entries: Vec<String> =
            printed.split("\n@").map(|entry| entry.trim().trim_start_matches('@').to_owned()).collect();
        entries.sort();
        entries
    })
}

#[test]
fn stacks_are_those_of_the_kernel() {
    if !can_trace() {
        return;
    }
    // Traced returns within calls whose returns are traced: the runtime calls the driver.
    let script = "uprobe:libcuda:cu*, uprobe:cudart:cuda* { @entry[func, ustack] = count() }
        uretprobe:libcuda:cu*, uretprobe:cudart:cuda* { @return[func, ustack(4)] = count() }";
    // The static runtime is far from the driver: each has a region near to it.
    for program in ["workload_runtime13", "workload_runtime_static"] {
        let [in_process, kernel] = both_ways(script, &[&example(program), "--threads", "2"]);
        assert!(kernel.iter().any(|entry| entry.contains("main")), "{kernel:?}");
        assert_eq!(in_process, kernel, "{program}");
    }
}

#[test]
fn stacks_begin_at_the_start_of_the_probed_function() {
    // The kernel's probe is after `endbr64`.
    let (true, Some(jit)) = (can_trace(), program("jit.c", &["-fcf-protection=full"])) else { return };
    let script = format!("uprobe:{}:traced_leaf {{ @[ustack(1)] = count() }}", text(&jit));
    for entries in both_ways(&script, &[text(&jit)]) {
        assert!(entries.len() == 1 && entries[0].ends_with("traced_leaf+0\n]: 2048"), "{entries:?}");
    }
}

#[test]
fn stacks_pass_code_of_jit_compilers_wherever_it_is() {
    let (true, Some(jit)) = (can_trace(), program("jit.c", &[])) else { return };
    let script = format!("uprobe:{}:traced_leaf {{ @[ustack(4)] = count() }}", text(&jit));
    for engine in [&[][..], &["--in-process"]] {
        let output = cudatrace().args(engine).args(["-e", &script, "--", text(&jit)]).output().unwrap();
        let (printed, said) = (stdout(&output), stderr(&output));
        let functions = printed.lines().find_map(|line| line.strip_prefix("count functions ")?.parse().ok());
        let frames = |name| printed.lines().filter(|line| line.trim_start().starts_with(name)).count();
        // The leaf, the code, and two functions of the program, with two return addresses in `main`.
        let stacks = [frames("traced_leaf+"), frames("call_all+"), frames("main+")];
        assert_eq!(Some(stacks), functions.map(|count: usize| [2 * count; 3]), "{engine:?}: {printed}{said}");
    }
}

/// A program with floating-point arguments and results, and a script for it.
fn with_floats(script: &str) -> Option<(PathBuf, String)> {
    let program = can_trace().then(|| program("floats.c", &["-g"])).flatten()?;
    let script = script.replace("PROGRAM", text(&program));
    Some((program, script))
}

#[test]
fn floating_point_arguments_and_results_are_read() {
    let script = r#"
        uprobe:PROGRAM:f_add { printf("add %.2f %.3f\n", args.a, args.b); @whole = sum((int64)args.a) }
        uretprobe:PROGRAM:f_add { printf("add of %.2f is %.2f\n", args.a, retval) }
        uprobe:PROGRAM:d_scale { printf("scale %d %.1f %d %.2f\n", args.n, args.x, args.m, args.y) }
        uretprobe:PROGRAM:d_scale { printf("scale of %.2f is %s\n", args.y, retval); @scaled[(int64)retval] = count() }
        uretprobe:PROGRAM:i_after { printf("after %.2f %d %d is %d\n", args.x, args.a, args.b, retval) }
        uretprobe:PROGRAM:d_many { printf("many %.1f %.2f %.3f is %.3f\n", args.h, args.i, args.j, retval) }
        uprobe:PROGRAM:d_scale { print(args) }"#;
    let Some((floats, script)) = with_floats(script) else { return };
    let mut command = cudatrace();
    let output = command.args(["--in-process", "-e", &script, "--", text(&floats)]).output().unwrap();
    let (printed, said) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.contains("without the kernel\n"), "{printed}{said}");
    for line in [
        "add -0.50 0.250",
        "add 1.50 0.250",
        "add of 0.50 is 0.75",
        "scale 3 1.5 40 1.25",
        "scale of 0.25 is 14.5",
        "@scaled[54]: 1",
        "after 9.75 5 4 is 18",
        "many 8.5 9.25 10.125 is 55.875",
        "{ .n = 3, .x = 1.5, .m = 40, .y = 2.25 }",
        "@whole: 1",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}{said}");
    }
}

#[test]
fn floating_point_arguments_that_only_the_kernel_could_read_are_an_error() {
    let script = "uprobe:PROGRAM:f_add { @[kstack(1)] = count(); printf(\"%f\", args.a) }";
    let Some((floats, script)) = with_floats(script) else { return };
    let run = |engine: &[&str]| {
        let output = cudatrace().args(engine).args(["-e", &script, "--", text(&floats)]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{engine:?}: {}{}", stdout(&output), stderr(&output));
        stderr(&output)
    };
    let said = run(&["--in-process"]);
    assert!(said.contains("only the kernel can run it: only the kernel has its stacks"), "{said}");
    assert!(!said.contains("with `--in-process`"), "{said}");
    let said = run(&[]);
    assert!(said.contains("help: with `--in-process` it is read"), "{said}");
}

#[test]
fn names_are_those_of_the_kernel() {
    let (true, Some(names)) = (can_trace(), program("names.c", &[])) else { return };
    let script = format!(
        "uprobe:{}:named {{ @[comm, comm(process), comm(program)] = count() }}
        tracepoint:sched:sched_process_exit / pid == tid && pid != cpid / {{ @ended = count() }}",
        text(&names)
    );
    let [in_process, kernel] = both_ways(&script, &[text(&names)]);
    assert_eq!(kernel.len(), 3, "{kernel:?}");
    assert_eq!(in_process, kernel);
}

#[test]
fn a_recording_is_that_of_the_kernel() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let recorded = |options: &[&str]| {
        let mut command = cudatrace();
        command.arg("record").args(options).args(["--out", text(folder.path()), "--"]);
        let run = command.args([&example("workload_habits"), "leaks"]).output().expect("cudatrace starts");
        let said = stderr(&run);
        assert!(run.status.success() && !said.contains("instead"), "{said}");
        let counts =
            |line: &&str| ["API calls", "allocations", "transfers"].iter().any(|word| line.starts_with(word));
        said.lines().filter(counts).map(str::to_owned).collect::<Vec<_>>()
    };
    let kernel = recorded(&[]);
    assert_eq!(kernel.len(), 3, "{kernel:?}");
    assert_eq!(recorded(&["--in-process"]), kernel);
}

#[test]
fn the_end_of_a_forked_child_is_noticed() {
    let (true, Some(forks)) = (can_trace(), program("forks.c", &["-O1"])) else { return };
    let script = format!(
        "uprobe:{}:work {{ @calls[pid == cpid] = count() }}
        tracepoint:sched:sched_process_exit / pid == tid / {{ @ended = count() }}",
        text(&forks)
    );
    let [in_process, kernel] = both_ways(&script, &[text(&forks)]);
    assert!(kernel.iter().any(|line| line.ends_with("ended: 4")), "{kernel:?}");
    assert_eq!(in_process, kernel);
}

/// A control group with a limit of memory, which is removed on drop. `None` where groups cannot be made.
struct MemoryLimit(PathBuf);

impl MemoryLimit {
    fn of(megabytes: u64) -> Option<MemoryLimit> {
        let name = format!("cudatrace-{}", std::process::id());
        for (root, file) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = MemoryLimit(Path::new(root).join(&name));
            let is_made = fs::create_dir(&group.0).is_ok();
            if is_made && fs::write(group.0.join(file), (megabytes << 20).to_string()).is_ok() {
                return Some(group);
            }
        }
        skip("no control group with a limit of memory can be made");
        None
    }

    /// A command for a program in the group.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The group is busy until its last process has been freed.
        wait_for("the end of its processes", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn maps_do_not_count_against_the_memory_limit_of_a_container() {
    let Some(limited) = can_trace().then(|| program("limited.c", &["-fno-omit-frame-pointer"])).flatten()
    else {
        return;
    };
    let Some(limit) = MemoryLimit::of(10) else { return };
    let mut process = Running::start(limit.command(&limited).args(["8", "4"]));
    process.wait_for_line("ready");
    let path = text(&limited);
    // With two CPUs the maps have 9 MB.
    let script = format!(
        "uprobe:{path}:limited {{ @entry[arg0] = hist(arg0) }} uretprobe:{path}:limited {{ @return[arg0] = hist(duration) }}"
    );
    let _tracer = attached(&script, process.pid());
    let lines = process.lines();
    assert!(lines.iter().any(|line| line == "fine"), "{lines:?}");
}
