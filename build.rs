//! Links libgcc statically, so that the binary needs libc alone: the standard library asks the linker for `-lgcc_s`, and
//! a linker script of that name, found first, answers with the static archives.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}
