//! Loads hand-written modules with libbpf, and runs some of them.
//!
//! Without root the tests only open the object with libbpf, and report that.

mod build;

use build::*;
use codegen::bpf::helper::Helper;
use codegen::bpf::{link, object};
use codegen::ir::*;
use lang::{Source, Span};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput};
use std::sync::{Mutex, Once};

const SCRIPT: &str = "uprobe:libc:malloc {\n  @ = count();\n  @x = *(uint64*)0\n}\n";

/// Messages of libbpf.
static LOG: Mutex<String> = Mutex::new(String::new());

fn log(_: PrintLevel, text: String) {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push_str(&text);
}

fn open(module: &Module) -> OpenObject {
    static HEARD: Once = Once::new();
    HEARD.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, log)));
    });
    let src = Source::new("t.ct", SCRIPT);
    let assembly = link::assemble(module).unwrap();
    let elf = object::write(&assembly, object::ObjectNotes { license: "GPL", manifest: None }, &src);
    ObjectBuilder::default().open_memory(&elf).unwrap()
}

/// Loads the module; without the rights prints a line with the reason and returns `None`.
fn load(module: &Module) -> Option<Object> {
    let object = open(module);
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: loading needs root");
        return None;
    }
    let loaded = object.load();
    let log = LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    Some(loaded.unwrap_or_else(|error| panic!("{error}\n{log}")))
}

/// Runs the only program (`raw_tp`) and returns the u64 at this key of the only map.
fn run(module: &Module, key: u32) -> Option<u64> {
    let object = load(module)?;
    object.progs_mut().next().unwrap().test_run(ProgramInput::default()).unwrap();
    let map = object.maps().next().unwrap();
    let value = map.lookup(&key.to_le_bytes(), MapFlags::ANY).unwrap().unwrap();
    Some(u64::from_le_bytes(value.try_into().unwrap()))
}

#[test]
fn a_count_loads_as_a_multi_uprobe() {
    load(&count("uprobe.multi", 4));
    load(&count_by_func("uprobe.multi"));
    load(&count("uprobe", 4));
}

/// `store.64 [slot], value; update_elem(@0, key 0, value)`
fn set(b: &mut Build, key: u32, value: impl Into<Operand>) {
    let (map, k, v) = (b.map(0), b.slot(4), b.slot(8));
    b.store(k, 0, Width::B32, i64::from(key));
    b.store(v, 0, Width::B64, value);
    b.call(Helper::MapUpdateElem, &[map.into(), k.into(), v.into(), 0.into()]);
}

#[test]
fn a_session_asks_kernel_functions_for_its_side_and_its_cookie() {
    let mut b = Build::new("probe0", program("uprobe.session"));
    let side = b.kfunc("bpf_session_is_return");
    let side = b.def(|dst| Op::Extend { dst, src: side, width: Width::B8, signed: false });
    b.if_zero(side, 1, 2);
    b.block();
    let now = b.call(Helper::KtimeGetNs, &[]);
    let cell = b.kfunc("bpf_session_cookie");
    b.store(cell, 0, Width::B64, now);
    b.block();
    let cell = b.kfunc("bpf_session_cookie");
    let start = b.load(cell, 0, Width::B64);
    let now = b.call(Helper::KtimeGetNs, &[]);
    let took = b.bin(Bin::Sub, now, start);
    set(&mut b, 0, took);
    load(&Module {
        funcs: vec![b.0],
        maps: vec![map("at_", ARRAY, 4, 8, 1)],
        data: vec![],
        ..Module::default()
    });
}

#[test]
fn a_timer_writes_constant_data_to_a_ring_buffer() {
    let mut b = Build::new("probe0", program("perf_event"));
    let (record, ring) = (b.slot(24), b.map(0));
    let data = b.def(|dst| Op::DataAddr { dst, offset: 8 });
    let word = b.load(data, 0, Width::B64);
    b.store(record, 0, Width::B64, word);
    b.store(record, 8, Width::B64, 0x1234_5678_9abc_i64);
    b.store(record, 16, Width::B64, -1);
    b.call(Helper::RingbufOutput, &[ring.into(), record.into(), 24.into(), 0.into()]);
    let maps = vec![map("ct_ring", RINGBUF, 0, 0, 4096)];
    load(&Module { funcs: vec![b.0], maps, data: b"01234567abcdefgh".to_vec(), ..Module::default() });
}

#[test]
fn constant_data_and_wide_numbers_arrive() {
    let mut b = Build::new("probe0", program("raw_tp"));
    let data = b.def(|dst| Op::DataAddr { dst, offset: 8 });
    let word = b.load(data, 0, Width::B64);
    let wide = b.bin(Bin::Xor, word, 0x0102_0304_0506_0708_i64);
    set(&mut b, 0, wide);
    let maps = vec![map("at_", ARRAY, 4, 8, 1)];
    let module = Module { funcs: vec![b.0], maps, data: b"01234567abcdefgh".to_vec(), ..Module::default() };
    if let Some(found) = run(&module, 0) {
        assert_eq!(found, u64::from_le_bytes(*b"abcdefgh") ^ 0x0102_0304_0506_0708);
    }
}

/// A callback `sum += index` over a context on the caller's stack.
fn add_index() -> Func {
    let mut b = Build::new("each", FuncKind::Callback { args: 2 });
    let (index, sum) = (b.param(0), b.param(1));
    let old = b.load(sum, 0, Width::B64);
    let new = b.bin(Bin::Add, old, index);
    b.store(sum, 0, Width::B64, new);
    b.0
}

#[test]
fn a_loop_runs_its_callback() {
    let mut b = Build::new("probe0", program("raw_tp"));
    let (sum, callback) = (b.slot(8), b.def(|dst| Op::FuncAddr { dst, func: FuncRef(2) }));
    b.store(sum, 0, Width::B64, 1000);
    b.call(Helper::Loop, &[10.into(), callback.into(), sum.into(), 0.into()]);
    let total = b.load(sum, 0, Width::B64);
    set(&mut b, 0, total);
    // Another callback comes first, so that the address is not the start of the section.
    let other = Func { name: "other".into(), ..add_index() };
    let maps = vec![map("at_", ARRAY, 4, 8, 1)];
    let module = Module { funcs: vec![b.0, other, add_index()], maps, ..Module::default() };
    if let Some(found) = run(&module, 0) {
        assert_eq!(found, 1045);
    }
}

#[test]
fn a_walk_over_a_map_sees_each_entry() {
    let mut each = Build::new("each", FuncKind::Callback { args: 4 });
    let (value, sum) = (each.param(2), each.param(3));
    let (value, old) = (each.load(value, 0, Width::B64), each.load(sum, 0, Width::B64));
    let new = each.bin(Bin::Add, old, value);
    each.store(sum, 0, Width::B64, new);
    let mut b = Build::new("probe0", program("raw_tp"));
    (1..4).for_each(|key| set(&mut b, key, i64::from(key) * 7));
    let (sum, callback) = (b.slot(8), b.def(|dst| Op::FuncAddr { dst, func: FuncRef(1) }));
    b.store(sum, 0, Width::B64, 0);
    let map_addr = b.map(0);
    b.call(Helper::ForEachMapElem, &[map_addr.into(), callback.into(), sum.into(), 0.into()]);
    let total = b.load(sum, 0, Width::B64);
    set(&mut b, 0, total);
    let maps = vec![map("at_", ARRAY, 4, 8, 4)];
    if let Some(found) = run(&Module { funcs: vec![b.0, each.0], maps, ..Module::default() }, 0) {
        assert_eq!(found, 42);
    }
}

#[test]
fn programs_of_one_kind_share_a_section() {
    let mut module = count("uprobe.multi", 4);
    let second = Func { name: "probe1".into(), ..module.funcs[0].clone() };
    module
        .funcs
        .extend([second, Func { name: "probe2".into(), ..count_by_func("uprobe.multi").funcs.remove(0) }]);
    let names: Vec<_> = open(&module).progs().map(|prog| prog.name().to_owned()).collect();
    assert_eq!(names, ["probe0", "probe1", "probe2"]);
    load(&module);
}

#[test]
fn the_verifier_quotes_the_script() {
    let mut b = Build::new("probe0", program("uprobe"));
    b.1 = Span::new(23, 34);
    let cell = {
        let (map_addr, key) = (b.map(0), b.slot(4));
        b.store(key, 0, Width::B32, 0);
        b.call(Helper::MapLookupElem, &[map_addr.into(), key.into()])
    };
    b.1 = Span::new(38, 55);
    // The cell is not checked for null.
    b.store(cell, 0, Width::B64, 1);
    let module = Module { funcs: vec![b.0], maps: vec![map("at_", HASH, 4, 8, 1)], ..Module::default() };
    let object = open(&module);
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: loading needs root");
    }
    assert!(object.load().is_err());
    let log = LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    assert!(log.contains("; @ = count(); @ t.ct:2"), "{log}");
    assert!(log.contains("; @x = *(uint64*)0 @ t.ct:3"), "{log}");
    assert!(log.contains("map_value_or_null"), "{log}");
}
