//! Two overlay mounts of one lower directory, as two containers of one image have them: the file is one to the kernel, so
//! it is probed once and each call is counted once.

use std::path::Path;
use std::process::Command;

const SCRIPT: &str = r#"
set -e
mount -t tmpfs none /mnt && cd /mnt && mkdir low a b ua ub wa wb
cp "$EXAMPLES/libhammer.so" "$EXAMPLES/hammer" low/
mount -t overlay one -o lowerdir=low,upperdir=ua,workdir=wa a
mount -t overlay two -o lowerdir=low,upperdir=ub,workdir=wb b
call() { echo "$1/hammer --function push --threads 1 --calls 1000"; }
exec timeout -k 1 30 "$CUDATRACE" -q -e 'uprobe:/mnt/*/libhammer.so:hammer_push { @ = count() }' \
    -c "sh -c '$(call a); $(call b)'"
"#;

#[test]
fn two_overlay_mounts_of_one_directory_count_a_call_once() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/build");
    let required = std::env::var_os("CUDATRACE_LIVE").is_some_and(|value| value == "required");
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 || !examples.join("hammer").exists() {
        assert!(!required, "needs root and the examples (`make examples`)");
        return eprintln!("skipped: needs root and the examples (`make examples`)");
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-c", SCRIPT]);
    command.env("EXAMPLES", &examples).env("CUDATRACE", env!("CARGO_BIN_EXE_cudatrace"));
    let output = command.output().expect("unshare is part of util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line == "@: 2000"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
