//! Helpers of the tests: a compiler, processes that load a library and wait, random numbers.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Compiles C source to a file.
pub(crate) fn gcc(source: &str, output: &Path, flags: &[&str]) {
    let file = output.with_extension("c");
    std::fs::create_dir_all(output.parent().expect("a directory")).expect("made");
    std::fs::write(&file, source).expect("written");
    let status = Command::new("gcc").arg(&file).arg("-o").arg(output).args(flags).status().expect("gcc runs");
    assert!(status.success(), "gcc failed on {}", output.display());
}

/// Compiles C source to a shared library with a soname.
pub(crate) fn library(source: &str, output: &Path, soname: &str) {
    gcc(source, output, &["-shared", "-fPIC", &format!("-Wl,-soname,{soname}")]);
}

/// Builds a program that loads the libraries in its arguments, prints a line, and waits.
pub(crate) fn loader(directory: &Path) -> PathBuf {
    let program = directory.join("loader");
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            for (int i = 1; i < argc; i++)
                if (!dlopen(argv[i], RTLD_NOW)) { fprintf(stderr, "%s\n", dlerror()); return 1; }
            puts("ready");
            fflush(stdout);
            for (;;) pause();
        }"#;
    gcc(source, &program, &["-ldl"]);
    program
}

/// A running process that ends with the test.
pub(crate) struct Running(pub Child);

impl Running {
    /// Starts a command and waits for its first line of output.
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Running(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Deterministic pseudo-random numbers.
pub(crate) struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
