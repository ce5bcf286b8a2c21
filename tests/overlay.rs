//! Two overlay mounts of one lower directory, as in two containers of one image: for the kernel the file is the same, so it is
//! probed once and each call is counted once.

mod common;

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
    if !common::can_trace() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-c", SCRIPT]);
    command.env("EXAMPLES", common::examples()).env("CUDATRACE", env!("CARGO_BIN_EXE_cudatrace"));
    let output = command.output().expect("unshare is part of util-linux");
    let text = common::stdout(&output);
    assert!(text.lines().any(|line| line == "@: 2000"), "{text}{}", common::stderr(&output));
}
