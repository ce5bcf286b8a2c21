//! Prefixes of lines if there are several scripts, and blank lines between sections.

use std::io::{self, Write};

/// Lines to a writer, each with what it begins with.
pub struct Lines<W> {
    out: W,
    before: String,
    /// The last line has its end.
    complete: bool,
    /// Something has been written.
    begun: bool,
    /// An empty line comes before the next text.
    apart: bool,
}

impl<W: Write> Lines<W> {
    /// Lines as they are.
    pub fn new(out: W) -> Lines<W> {
        Lines { out, before: String::new(), complete: true, begun: false, apart: false }
    }

    /// An empty line separates what was written from what comes; there is none at the beginning or at the end.
    pub fn separate(&mut self) {
        self.apart = self.begun;
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

    /// Lines begin so from now on; one that has no end yet ends here.
    pub fn begin_with(&mut self, before: String) -> io::Result<()> {
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
            // Nothing stands behind on an empty line.
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
