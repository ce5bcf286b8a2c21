//! Reads the files of `cat` and runs the commands of `system`, when their record is read.

use crate::kernel::{signals, sys};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads at most `limit` bytes of a file; the error is a message.
pub(crate) fn file(path: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let path = Path::new(OsStr::from_bytes(path));
    let head = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?.take(limit).read_to_end(&mut text)?;
        Ok(text)
    };
    head().map_err(|error| format!("`cat` cannot read `{}`: {error}", path.display()))
}

/// Runs a shell command and returns its standard output. Waits for its end; Ctrl-C ends it too.
pub(crate) fn command(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(OsStr::from_bytes(text)).stdin(Stdio::null()).stderr(Stdio::inherit());
    // SAFETY: both calls are async-signal-safe.
    unsafe {
        shell.pre_exec(|| {
            signals::unblock();
            sys::restore_file_limit();
            Ok(())
        })
    };
    match shell.output() {
        Ok(output) => Ok(output.stdout),
        Err(error) => Err(format!("`system` cannot run `{}`: {error}", String::from_utf8_lossy(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::{command, file};

    #[test]
    fn files_are_truncated_and_the_output_of_commands_is_read() {
        assert_eq!(file(b"/proc/self/comm", 0).unwrap(), b"");
        assert!(file(b"/none", 9).unwrap_err().starts_with("`cat` cannot read `/none`: "));
        assert_eq!(command(b"echo a; false").unwrap(), b"a\n");
    }
}
