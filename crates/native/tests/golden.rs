//! Machine code of scripts: `golden/*.ct` and their listings, `golden/*.asm`. `BLESS=1` rewrites the listings.

use codegen::{Options, Passes};
use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, SymbolResolver, SymbolResult,
};
use lang::Source;
use native::{CpuNumber, Environment, Image, Layout, Process, ThreadId, TimeSource};
use sim::agree;
use sim::catalog::TestCatalog;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use wire::Features;

/// Start of the code. That of a session depends on the room for modules.
const CODE: u64 = 1 << 28;

fn image(script: &str) -> Image {
    let src = Source::new("golden.ct", script);
    let program = agree::check(&src, &TestCatalog::of_cuda()).expect("a valid script");
    let options = Options { optimise: Passes::All, ..Options::new(Features::IN_PROCESS, 4) };
    let compiled = codegen::compile(&program, &src, &options).expect("a script that compiles");
    let object = sim::session::parse(&compiled).expect("an object that was just written");
    let process = Process {
        cpus: 4,
        cpu: CpuNumber::Rseq(-160),
        thread: ThreadId::Stored(720),
        time: TimeSource::Counter,
        unwind: None,
    };
    let (layout, placement) = Layout::new(&object, 4);
    let environment = Environment::Process(process);
    native::translate(&object, &layout, &placement, &environment, CODE)
        .expect("a script that can run in a process")
}

/// The functions of the script; the helpers, which a C compiler has made, are left out.
fn listing(image: &Image) -> String {
    let mut text = String::new();
    let mut starts = image.functions.clone();
    let first_helper = image.helpers.iter().map(|(_, start)| *start).min().expect("there are helpers");
    starts.push((String::new(), first_helper));
    starts.sort_by_key(|(_, start)| *start);
    for pair in starts.windows(2) {
        list(&mut text, image, &pair[0].0, pair[0].1..pair[1].1);
    }
    text
}

fn list(text: &mut String, image: &Image, name: &str, range: Range<u64>) {
    let [start, end] = [range.start, range.end].map(|at| (at - image.start) as usize);
    let mut decoder = Decoder::with_ip(64, &image.code[start..end], range.start, DecoderOptions::NONE);
    let names = Names { helpers: image.helpers.clone(), end: image.end() };
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let instructions: Vec<_> = decoder.iter().take_while(|i| i.code() != Code::Int3).collect();
    writeln!(text, "{name}: {} instructions", instructions.len()).expect("strings take text");
    for instruction in &instructions {
        assert!(!instruction.is_invalid(), "{name} at {:#x}", instruction.ip());
        let mut line = String::new();
        formatter.format(instruction, &mut line);
        writeln!(text, "{:6x}  {line}", instruction.ip()).expect("strings take text");
    }
    text.push('\n');
}

/// Names of what lies behind the code of the script. The addresses depend on the C compiler.
struct Names {
    helpers: Vec<(&'static str, u64)>,
    /// Address of the byte behind the helpers.
    end: u64,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        if address == self.end {
            return Some(SymbolResult::with_str(address, "end"));
        }
        let name = self.helpers.iter().find(|(_, start)| *start == address)?.0;
        instruction.is_call_near().then(|| SymbolResult::with_str(address, name))
    }
}

#[test]
fn scripts_become_the_known_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let scripts = golden_files::files(&folder, "ct", 6);
    golden_files::compare(scripts.into_iter().map(|path| {
        let script = std::fs::read_to_string(&path).expect("a readable script");
        (path.with_extension("asm"), listing(&image(&script)))
    }));
}
