//! What `cat` and `system` bring from outside of the script, at the moment when their line is printed.

use crate::kernel::{signals, sys};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The first bytes of a file; else words for why not.
pub(crate) fn file(path: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let path = Path::new(OsStr::from_bytes(path));
    let head = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?.take(most).read_to_end(&mut text)?;
        Ok(text)
    };
    head().map_err(|error| format!("`cat` cannot read `{}`: {error}", path.display()))
}

/// What a shell command says on its standard output. We wait for its end; Ctrl-C ends it, too.
pub(crate) fn command(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(OsStr::from_bytes(text)).stdin(Stdio::null()).stderr(Stdio::inherit());
    // SAFETY: async-signal-safe, as its comment says.
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
    fn files_are_cut_and_commands_heard() {
        assert_eq!(file(b"/proc/self/comm", 0).unwrap(), b"");
        assert!(file(b"/none", 9).unwrap_err().starts_with("`cat` cannot read `/none`: "));
        assert_eq!(command(b"echo a; false").unwrap(), b"a\n");
    }
}
