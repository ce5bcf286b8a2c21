//! Formats one value as text.
//!
//! ```text
//! 5   true   CUDA_SUCCESS   0x7f00   bash   (1, x)   cuMemAlloc_v2   main+17
//! ```
//!
//! Strings come from a traced process: control characters are escaped as `\n` or `\x1b`, so that a program cannot control the
//! terminal. Literals of `printf` come from the script and are not escaped.

use std::net::{Ipv4Addr, Ipv6Addr};
use wire::types::StackMode;
use wire::unwind::Stop;
use wire::{Manifest, Value};

use crate::call_site::{self, CallSite};
use crate::{Frame, Names};

/// Context for resolving ids to text.
#[derive(Copy, Clone)]
pub struct Context<'a> {
    /// Names, enums and stacks of the script.
    pub manifest: &'a Manifest,
    /// Symbols and clocks of the machine.
    pub names: &'a dyn Names,
    /// True if text of the traced process is not escaped, because the caller escapes the whole output.
    pub verbatim: bool,
}

/// Indentation of a frame with a name; addresses are not indented.
const INDENT: &str = "        ";
/// Before a frame that the one above it calls.
const CALLED: &str = "  -> ";

impl Context<'_> {
    /// The text of a value.
    pub fn text(&self, value: &Value) -> String {
        match value {
            Value::Bool(value) => value.to_string(),
            Value::Int(value, _) => value.to_string(),
            Value::Uint(value, _) => value.to_string(),
            Value::Enum(id, value) => {
                self.enum_name(*id, *value).map_or_else(|| value.to_string(), str::to_owned)
            }
            Value::Pointer(address) => format!("{address:#x}"),
            Value::Str(bytes, cut) => self.string(bytes, *cut),
            Value::Tuple(parts) => self.tuple(parts),
            Value::Record(members) => self.record(members),
            Value::Array(elements) => self.array(elements),
            Value::Name(kind, id) => match self.manifest.names.get(*kind, *id) {
                Some(name) => self.escape(name.as_bytes()),
                None => format!("{id:#x}"),
            },
            Value::Usym { address, tgid } => self.escape(self.names.user_symbol(*tgid, *address).as_bytes()),
            Value::Stack { map, id, tgid, mode } => self.stack(*map, *id, *tgid, *mode),
            Value::Lookup(what, number) => self.escape(self.names.lookup(*what, *number).as_bytes()),
            Value::Buf(bytes) => visible(bytes),
            Value::Inet(family, bytes) => host(*family, bytes),
            Value::Either(_, value, _) => self.text(value),
            Value::Timestamp(ns, format) => self.names.strftime(format, self.names.wall_clock_ns(*ns)),
        }
    }

    /// Text of the traced process, escaped if required.
    pub fn escape(&self, bytes: &[u8]) -> String {
        if self.verbatim { String::from_utf8_lossy(bytes).into_owned() } else { escape(bytes) }
    }

    /// The name of an enum value.
    pub fn enum_name(&self, id: u32, value: i64) -> Option<&str> {
        self.manifest.enums.get(id as usize)?.name_of(value)
    }

    fn string(&self, bytes: &[u8], cut: bool) -> String {
        let mut text = self.escape(bytes);
        if cut {
            text.push_str(&self.manifest.truncation_trailer);
        }
        text
    }

    /// `(1, x)`, `(1,)`
    fn tuple(&self, parts: &[Value]) -> String {
        let texts: Vec<String> = parts.iter().map(|part| self.text(part)).collect();
        format!("({}{})", texts.join(", "), if texts.len() == 1 { "," } else { "" })
    }

    /// `{ .a = 1, .b = x }`
    fn record(&self, members: &[(String, Value)]) -> String {
        let text = |(name, value): &(String, Value)| format!(".{name} = {}", self.text(value));
        format!("{{ {} }}", members.iter().map(text).collect::<Vec<_>>().join(", "))
    }

    /// `[4,3,2,1]`
    fn array(&self, elements: &[Value]) -> String {
        let texts: Vec<String> = elements.iter().map(|element| self.text(element)).collect();
        format!("[{}]", texts.join(","))
    }

    /// `@x`, `@x[k, 2]`
    pub fn entry_name(&self, map: &str, key: &[Value]) -> String {
        if key.is_empty() {
            return format!("@{map}");
        }
        let texts: Vec<String> = key_parts(key).iter().map(|part| self.text(part)).collect();
        format!("@{map}[{}]", texts.join(", "))
    }

    /// A stack in the format for flame graphs, outermost frame first: `main;f;cuInit`. `None` if the value is not
    /// a stack.
    pub fn folded(&self, value: &Value) -> Option<String> {
        let Value::Stack { map, id, tgid, .. } = value else { return None };
        Some(folded(&self.frames(*map, *id, *tgid)))
    }

    /// Frames with their names, innermost first.
    fn frames(&self, map: u32, id: u32, tgid: u32) -> Vec<Frame> {
        let addresses = if id == u32::MAX { Vec::new() } else { self.names.stack_addresses(map, id) };
        let user = self.manifest.stacks.get(map as usize).is_none_or(|stack| stack.user);
        self.names.stack(user, tgid, &addresses)
    }

    /// A newline, then one line per frame.
    fn stack(&self, map: u32, id: u32, tgid: u32, mode: StackMode) -> String {
        let mut addresses = if id == u32::MAX { Vec::new() } else { self.names.stack_addresses(map, id) };
        if mode != StackMode::Folded {
            // Readers treat each line as a frame. The end of the run reports that stacks were truncated.
            addresses.retain(|&address| Stop::of(address).is_none());
        }
        let user = self.manifest.stacks.get(map as usize).is_none_or(|stack| stack.user);
        if mode.is_one_frame() {
            return self.one_frame(tgid, self.names.stack(user, tgid, &addresses).first(), mode);
        }
        let frames = match mode {
            StackMode::Raw | StackMode::BuildId => {
                addresses.iter().map(|&address| Frame { address, ..Frame::default() }).collect()
            }
            _ => self.names.stack(user, tgid, &addresses),
        };
        if mode == StackMode::Folded {
            return folded(&frames);
        }
        let lines: Vec<String> = match mode {
            StackMode::BuildId => frames.iter().map(|frame| self.place_line(tgid, frame)).collect(),
            StackMode::Site => site_lines(frames),
            _ => frames.iter().map(|frame| frame_line(frame, mode)).collect(),
        };
        lines.iter().fold("\n".into(), |text, line| text + line + "\n")
    }

    /// `/a/train.py:42`, `Trainer.step`, `Linear` or `loss.backward()`, of a frame of Python.
    fn one_frame(&self, tgid: u32, frame: Option<&Frame>, mode: StackMode) -> String {
        match frame {
            Some(Frame { source: Some((file, line)), .. }) if mode.is_line() => {
                format!("{}:{line}", escape(file.as_bytes()))
            }
            Some(Frame { source: Some((file, line)), .. }) if mode == StackMode::Source => {
                let text = self.names.source_line(tgid, file, *line).unwrap_or_default();
                escape(text.as_bytes())
            }
            Some(frame) if mode == StackMode::Module => module_name(frame),
            None if mode == StackMode::Module => "(no module)".into(),
            _ if mode == StackMode::Source => String::new(),
            Some(frame) => frame_name(&Frame { source: None, ..frame.clone() }),
            None => "(no Python)".into(),
        }
    }

    /// Build id and offset in the file, as far as known.
    fn place_line(&self, tgid: u32, frame: &Frame) -> String {
        match self.names.file_place(tgid, frame.address) {
            Some((build_id, offset)) => format!("{build_id} {offset:#x}"),
            None => frame_line(frame, StackMode::BuildId),
        }
    }
}

/// `127.0.0.1`, `::1`
fn host(family: u32, bytes: &[u8; 16]) -> String {
    // linux/socket.h
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    match family {
        AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string(),
        AF_INET6 => Ipv6Addr::from(*bytes).to_string(),
        other => format!("address of family {other}"),
    }
}

/// Bytes as text; bytes that are not printable ASCII in hex: `a\x0a`.
pub fn visible(bytes: &[u8]) -> String {
    let show = |&byte: &u8| match byte {
        b' '..=b'~' => (byte as char).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(show).collect()
}

/// The parts of a key for display: a key that is a single tuple has no parentheses.
pub fn key_parts(key: &[Value]) -> &[Value] {
    match key {
        [Value::Tuple(parts)] => parts,
        parts => parts,
    }
}

/// `main;work`: names without offsets, so that calls from several places in a function are merged. A `;` in a name
/// is replaced.
fn folded(frames: &[Frame]) -> String {
    let name = |frame: &Frame| escape(frame.label().as_bytes()).replace(';', ":");
    let names: Vec<String> = frames.iter().rev().map(name).collect();
    names.join(";")
}

/// The class of a method `forward`: `Linear`. Before Python 3.11 names are not qualified: then its file and line.
fn module_name(frame: &Frame) -> String {
    let name = frame.symbol.as_deref().and_then(|symbol| symbol.strip_suffix(".forward"));
    let class = name.map(|name| name.rsplit("<locals>.").next().unwrap_or(name));
    let place = || frame.source.as_ref().map(|(file, line)| format!("{file}:{line}"));
    let text = class.map(str::to_owned).or_else(place).unwrap_or_default();
    escape(text.as_bytes())
}

/// The line that asked for a call, its callers, and what it calls.
fn site_lines(frames: Vec<Frame>) -> Vec<String> {
    let CallSite { callers, calls } = call_site::of(frames);
    let callers = callers.iter().map(|frame| format!("{INDENT}{}", frame_name(frame)));
    callers.chain(calls.iter().map(|frame| format!("{INDENT}{CALLED}{}", frame_name(frame)))).collect()
}

fn frame_line(frame: &Frame, mode: StackMode) -> String {
    match mode {
        StackMode::Raw | StackMode::BuildId => format!("{:x}", frame.address),
        StackMode::Perf if frame.is_python() => format!("\t0 {}", frame_name(frame)),
        StackMode::Perf => format!("\t{:x} {}", frame.address, perf_name(frame)),
        _ => format!("{INDENT}{}", frame_name(frame)),
    }
}

/// As `perf script` prints it, without source lines: `main+16 (/bin/a)`, `f (inlined)`.
fn perf_name(frame: &Frame) -> String {
    let module = escape(frame.module.as_deref().unwrap_or("[unknown]").as_bytes());
    match &frame.symbol {
        Some(symbol) if frame.inlined => format!("{} (inlined)", escape(symbol.as_bytes())),
        Some(symbol) => format!("{}+{} ({module})", escape(symbol.as_bytes()), frame.offset),
        None => format!("{} ({module})", frame_name(frame)),
    }
}

/// `symbol+17@file.c:3`, `[inlined] f@file.c:9`, `Trainer.step (/a/train.py:42)`, `libc.so.6+0x2724a`, or the address.
fn frame_name(frame: &Frame) -> String {
    let Some(symbol) = &frame.symbol else {
        return frame.place().unwrap_or_else(|| format!("{:#x}", frame.address));
    };
    let symbol = escape(symbol.as_bytes());
    if frame.is_python() {
        let place =
            frame.source.as_ref().map(|(file, line)| format!(" ({}:{line})", escape(file.as_bytes())));
        return symbol + &place.unwrap_or_default();
    }
    let source = frame
        .source
        .as_ref()
        .map_or(String::new(), |(file, line)| format!("@{}:{line}", escape(file.as_bytes())));
    match frame.inlined {
        true => format!("[inlined] {symbol}{source}"),
        false => format!("{symbol}+{}{source}", frame.offset),
    }
}

/// Bytes of a traced process as text: control characters and invalid UTF-8 are escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| escape_char(&mut out, c));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

fn escape_char(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
        // C1 controls move the cursor, and direction marks disguise text.
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            out.push_str(&format!("\\u{:04x}", c as u32));
        }
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, manifest};

    fn text(value: Value) -> String {
        Context { manifest: &manifest(), names: &Fake, verbatim: false }.text(&value)
    }

    #[test]
    fn scalars() {
        for (value, expected) in [
            (Value::Bool(true), "true"),
            (Value::Int(-3, 4), "-3"),
            (Value::Uint(u64::MAX, 8), "18446744073709551615"),
            (Value::Pointer(0x10), "0x10"),
            (Value::Enum(0, 2), "CUDA_ERROR_OUT_OF_MEMORY"),
            (Value::Enum(0, 77), "77"),
            (Value::Enum(9, 2), "2"),
            (Value::Name(wire::NameKind::Func, 1), "cuMemFree_v2"),
            (Value::Name(wire::NameKind::Api, 9), "0x9"),
            (Value::Usym { address: 0x1234, tgid: 7 }, "sym_1234+7"),
            (Value::Timestamp(5, "%H".into()), "[%H 1005]"),
            (Value::Lookup(wire::types::Lookup::Error, 2), "Error 2"),
            (Value::Buf(b"a\n\xff".to_vec()), "a\\x0a\\xff"),
        ] {
            assert_eq!(text(value.clone()), expected, "{value:?}");
        }
    }

    #[test]
    fn strings_of_the_process_are_escaped_and_show_that_they_were_cut() {
        assert_eq!(text(Value::Str(b"\x1b[2Ja\n\xff\xc2\x9b".to_vec(), false)), "\\x1b[2Ja\\n\\xff\\u009b");
        assert_eq!(text(Value::Str("漢".into(), true)), "漢..");
    }

    #[test]
    fn tuples_and_keys() {
        let pair = Value::Tuple(vec![Value::Int(2, 8), Value::Int(3, 8)]);
        assert_eq!(text(Value::Tuple(vec![Value::Int(1, 8), pair.clone()])), "(1, (2, 3))");
        assert_eq!(text(Value::Tuple(vec![Value::Int(1, 8)])), "(1,)");
        let manifest = manifest();
        let context = Context { manifest: &manifest, names: &Fake, verbatim: false };
        assert_eq!(context.entry_name("x", &[]), "@x");
        assert_eq!(context.entry_name("", &[Value::Str("k".into(), false), Value::Int(2, 8)]), "@[k, 2]");
        assert_eq!(context.entry_name("d", &[Value::Int(1, 8), pair.clone()]), "@d[1, (2, 3)]");
        assert_eq!(context.entry_name("d", &[pair]), "@d[2, 3]");
    }

    #[test]
    fn records_and_arrays() {
        let array = Value::Array(vec![Value::Uint(4, 1), Value::Uint(3, 1)]);
        let record = Value::Record(vec![("a".into(), Value::Int(1, 8)), ("b".into(), array)]);
        assert_eq!(text(record), "{ .a = 1, .b = [4,3] }");
    }

    #[test]
    fn a_frame_without_a_name_has_a_place_in_its_file() {
        let module = Some("/lib/libc.so.6".to_owned());
        let frame = Frame { address: 0x7f00_0002_724a, offset: 0x2724a, module, ..Frame::default() };
        assert_eq!(frame_line(&frame, StackMode::Bpftrace), "        libc.so.6+0x2724a");
        assert_eq!(folded(&[frame]), "[libc.so.6]");
        let vdso = Frame { module: Some("[vdso]".into()), ..Frame::default() };
        assert_eq!(folded(&[vdso, Frame { address: 5, ..Frame::default() }]), "0x5;[vdso]");
    }

    #[test]
    fn stacks() {
        let stack = |mode| Value::Stack { map: 0, id: 1, tgid: 7, mode };
        assert_eq!(
            text(stack(StackMode::Bpftrace)),
            "\n        main+16@a.c:3\n        [inlined] f\n        0xff\n"
        );
        assert_eq!(
            text(stack(StackMode::Perf)),
            "\n\t10 main+16 (/bin/a)\n\t20 f (inlined)\n\tff 0xff ([unknown])\n"
        );
        assert_eq!(text(stack(StackMode::Folded)), "0xff;f;main");
        assert_eq!(text(stack(StackMode::Raw)), "\n10\n20\nff\n");
        assert_eq!(text(stack(StackMode::BuildId)), "\nabcd 0x1010\nabcd 0x1020\nff\n");
        let none = Value::Stack { map: 0, id: u32::MAX, tgid: 7, mode: StackMode::Raw };
        assert_eq!(text(none), "\n");
        let manifest = manifest();
        let context = Context { manifest: &manifest, names: &Fake, verbatim: false };
        let key = [stack(StackMode::Bpftrace), Value::Str("sh".into(), false)];
        assert_eq!(
            context.entry_name("", &key),
            "@[\n        main+16@a.c:3\n        [inlined] f\n        0xff\n, sh]"
        );
    }
}
