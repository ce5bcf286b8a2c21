//! Prefixes of lines if there are several scripts, and blank lines between sections.

use std::io::{self, Write};

/// Writer of lines with a prefix.
pub(super) struct Lines<W> {
    out: W,
    before: String,
    /// True if the last line is complete.
    complete: bool,
    /// True if something has been written.
    begun: bool,
    /// True if an empty line precedes the next text.
    apart: bool,
}

impl<W: Write> Lines<W> {
    /// Creates a writer without a prefix.
    pub(super) fn new(out: W) -> Lines<W> {
        Lines { out, before: String::new(), complete: true, begun: false, apart: false }
    }

    /// Separates the previous output from the next, if there is one, by an empty line.
    pub(super) fn separate(&mut self) {
        self.apart = self.begun;
    }

    /// Writes an empty line after the output, if there was any.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.separate();
        if self.begun { self.begin() } else { Ok(()) }
    }

    fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        if !std::mem::take(&mut self.apart) {
            return Ok(());
        }
        if !std::mem::replace(&mut self.complete, true) {
            self.out.write_all(b"\n")?;
        }
        writeln!(self.out, "{}", self.before.trim_end())
    }

    /// Sets the prefix of later lines; completes the current line first.
    pub(super) fn begin_with(&mut self, before: String) -> io::Result<()> {
        if before == self.before {
            return Ok(());
        }
        if !self.complete {
            self.out.write_all(b"\n")?;
            self.complete = true;
        }
        self.before = before;
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.complete {
            // An empty line has no trailing blanks.
            let before = if line == b"\n" { self.before.trim_end() } else { &self.before };
            self.out.write_all(before.as_bytes())?;
        }
        self.complete = line.ends_with(b"\n");
        self.out.write_all(line)
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.write_all(text)?;
        Ok(text.len())
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.begin()?;
        if !self.before.is_empty() {
            return text.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| self.line(line));
        }
        self.complete = text.ends_with(b"\n");
        self.out.write_all(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
