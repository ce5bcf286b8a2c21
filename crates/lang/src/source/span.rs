//! Positions in a script. A span is a pair of byte offsets; a source converts it to lines and columns.

/// Half-open range of bytes in one source.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range `start..end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// Whether the other span is a part of this one.
    pub(crate) fn contains(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The smallest span that contains both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A value with its position in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithSpan<T> {
    /// Value.
    pub node: T,
    /// Position.
    pub span: Span,
}

/// The text of a script and its name in messages (`leak.ct`, `stdin` for `-e` and `-`), followed by the texts of
/// the scripts that it imports.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name in messages.
    pub name: String,
    /// The whole text.
    pub text: String,
    line_starts: Vec<u32>,
    /// Offsets of bytes that continue a multi-byte character.
    continued: Vec<u32>,
    files: Vec<SourceFile>,
    kernel: Option<KernelVersion>,
}

/// The version of a kernel, as in its headers: `6.8.12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelVersion {
    /// 6 of `6.8.12`.
    pub major: u8,
    /// 8 of `6.8.12`.
    pub minor: u8,
    /// 12 of `6.8.12`.
    pub patch: u8,
}

impl KernelVersion {
    /// `LINUX_VERSION_CODE` of this kernel.
    pub fn code(self) -> u32 {
        u32::from_be_bytes([0, self.major, self.minor, self.patch])
    }
}

/// One file of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Name in messages.
    pub name: String,
    /// Offset of the start of its text.
    pub start: usize,
    /// Offset of the end of its text.
    pub end: usize,
}

fn line_starts(text: &str) -> Vec<u32> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at as u32 + 1)).collect()
}

fn continued(text: &str) -> Vec<u32> {
    let bytes = text.bytes().enumerate();
    bytes.filter(|(_, byte)| byte & 0xc0 == 0x80).map(|(at, _)| at as u32).collect()
}

impl Source {
    /// A source with a name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let (name, text) = (name.into(), text.into());
        let (line_starts, continued) = (line_starts(&text), continued(&text));
        let files = vec![SourceFile { name: name.clone(), start: 0, end: text.len() }];
        Source { name, text, line_starts, continued, files, kernel: None }
    }

    /// Sets the version of the kernel for which the script is compiled: `LINUX_VERSION_CODE` in its conditions.
    pub fn set_kernel(&mut self, version: KernelVersion) {
        self.kernel = Some(version);
    }

    /// The version of the kernel for which the script is compiled, if known.
    pub fn kernel(&self) -> Option<KernelVersion> {
        self.kernel
    }

    /// The script itself, then its imports.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Adds the text of an imported script.
    pub fn add_file(&mut self, name: impl Into<String>, text: &str) {
        self.text.push('\n');
        let start = self.text.len();
        self.text.push_str(text);
        self.files.push(SourceFile { name: name.into(), start, end: self.text.len() });
        self.line_starts = line_starts(&self.text);
        self.continued = continued(&self.text);
    }

    /// The file that contains a byte offset.
    pub fn file_at(&self, offset: u32) -> &SourceFile {
        let following = self.files.partition_point(|file| file.start <= offset as usize);
        &self.files[following.max(1) - 1]
    }

    /// Line and column of a byte offset in its file, both from 1; columns count characters.
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.lines_to(offset);
        let before = self.lines_to(self.file_at(offset).start as u32) - 1;
        let start = self.line_starts[line - 1];
        let end = offset.min(self.text.len() as u32);
        let continued = |to: u32| self.continued.partition_point(|&at| at < to);
        let column = (end - start) as usize - (continued(end) - continued(start)) + 1;
        ((line - before) as u32, column as u32)
    }

    /// Bytes between the start of the line and an offset.
    pub fn in_line(&self, offset: u32) -> usize {
        (offset - self.line_starts[self.lines_to(offset) - 1]) as usize
    }

    /// Number of lines of the whole text up to an offset, including its own.
    fn lines_to(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// The text of the line that contains a byte offset, without its newline.
    pub fn line_at(&self, offset: u32) -> &str {
        let line = self.lines_to(offset);
        let start = self.line_starts[line - 1] as usize;
        let end = self.line_starts.get(line).map_or(self.text.len(), |&next| next as usize);
        self.text[start..end].lines().next().unwrap_or("")
    }

    /// The text of a span.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}
