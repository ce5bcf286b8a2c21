//! Gives a release build the name of its commit. Links libgcc statically, so that the binary needs only libc: the standard library passes `-lgcc_s` to the linker, and
//! a linker script of that name, found first, answers with the static archives.

use std::{env, fs, path::PathBuf};

fn main() {
    commit();
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}

/// Sets the commit of a release build; a debug build would be rebuilt after each commit.
fn commit() {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["log", "-1", "--format=%h %cs"]) {
        println!("cargo:rustc-env=CUDATRACE_COMMIT={commit}");
    }
}
