//! A thread that writes random words into the shared memory, at all positions, while the tracer does what it does with maps and the ring buffer.
//! Whatever the words are: nothing is read beyond the memory, which ends the process at a guard page, and everything returns.

use crate::kernel::sys::MemoryMapping;
use crate::read::ring::Ring;
use crate::shared::SharedMap;
use crate::shared::memory::{DescribedMap, PlacedModule, SessionMemory};
use crate::tests::numbers::Numbers;
use native::layout;
use native::object::{Insn, MapDef, MapKind, Object};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kinds of maps that scripts have.
const KINDS: [MapKind; 6] = [
    MapKind::Hash,
    MapKind::Array,
    MapKind::PerCpuHash,
    MapKind::PerCpuArray,
    MapKind::LruHash,
    MapKind::PerCpuLruHash,
];
const CPUS: u32 = 4;
const ENTRIES: u32 = 200;
/// Words that are written while one memory exists.
const WORDS: u64 = 2_000_000;
/// Longest time for that: each wait for a lock that nobody gives back takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

fn insn(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    Insn { opcode, dst, src, offset, imm }
}

/// `*(u64 *)(r10 - 8) = *(u64 *)(r10 - 16) = bpf_ktime_get_ns() & 255`; then with each map: update, add 1 to the value, delete; and a record.
fn program() -> Vec<Insn> {
    let key_and_map = |map: usize| {
        [
            insn(0xbf, 2, 10, 0, 0),
            insn(0x07, 2, 0, 0, -8),
            insn(0x18, 1, 1, 0, map as i32),
            insn(0, 0, 0, 0, 0),
        ]
    };
    let call = |helper: i32| insn(0x85, 0, 0, 0, helper);
    let mut code = vec![call(5), insn(0x57, 0, 0, 0, 255)];
    code.extend([insn(0x7b, 10, 0, -8, 0), insn(0x7b, 10, 0, -16, 0)]);
    for map in 0..KINDS.len() {
        code.extend(key_and_map(map));
        code.extend([insn(0xbf, 3, 10, 0, 0), insn(0x07, 3, 0, 0, -16), insn(0xb7, 4, 0, 0, 0), call(2)]);
        code.extend(key_and_map(map));
        code.extend([call(1), insn(0x15, 0, 0, 2, 0), insn(0xb7, 1, 0, 0, 1), insn(0xdb, 0, 1, 0, 0)]);
        code.extend(key_and_map(map));
        code.push(call(3));
    }
    code.extend(key_and_map(KINDS.len()));
    code.extend([insn(0xb7, 3, 0, 0, 8), insn(0xb7, 4, 0, 0, 0), call(130), insn(0x95, 0, 0, 0, 0)]);
    code
}

/// A session with a map of each kind and a ring buffer.
fn session() -> (Arc<SessionMemory>, PlacedModule) {
    let map = |(number, kind): (usize, &MapKind)| MapDef {
        name: format!("map{number}"),
        kind: *kind,
        key_size: if kind.is_array() { 4 } else { 8 },
        value_size: 16,
        max_entries: ENTRIES,
    };
    let mut maps: Vec<MapDef> = KINDS.iter().enumerate().map(map).collect();
    let (name, kind) = ("ring".into(), MapKind::Ring);
    maps.push(MapDef { name, kind, key_size: 0, value_size: 0, max_entries: 1 << 14 });
    let (memory, module) = SessionMemory::new(Object::of_code(&program(), maps), &[], CPUS).expect("memory");
    (Arc::new(memory), module)
}

/// Writes words through a mapping of its own, as another process does, until it is told to stop; returns their number.
fn scribble(memory: &SessionMemory, seed: u64, stop: &AtomicBool) -> u64 {
    let size = memory.data_size() as usize;
    let mapping = MemoryMapping::shared(memory.file(), 0, size, true).expect("the same memory");
    let used = memory.layout().data_end() / 8;
    let (first, mut random, mut written) = (layout::PAGE / 8, Numbers(seed | 1), 0);
    while written < WORDS && !stop.load(Ordering::Relaxed) {
        // All positions, and mostly those in use.
        let end = if random.next().is_multiple_of(8) { size as u64 / 8 } else { used };
        let at = first + random.below(end - first);
        // SAFETY: a word of the mapping.
        let word = unsafe { AtomicU64::from_ptr(mapping.bytes().cast::<u64>().add(at as usize)) };
        word.store(value(&mut random, word.load(Ordering::Relaxed)), Ordering::Relaxed);
        written += 1;
    }
    written
}

fn value(random: &mut Numbers, before: u64) -> u64 {
    match random.below(7) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => before.wrapping_add(random.below(129)).wrapping_sub(64),
        4 => random.below(u64::from(ENTRIES + 100)),
        5 => before & !0xffff_ffff | random.next() & 0xffff_ffff,
        _ => random.next(),
    }
}

/// Everything that a tracer does with the memory.
fn use_all(memory: &Arc<SessionMemory>, module: &PlacedModule, stop: &AtomicBool) {
    let layout = memory.layout();
    let described = layout.maps.iter().zip(&module.image.descriptions);
    let described = described.map(|(place, at)| DescribedMap { place: place.clone(), description: *at });
    let maps: Vec<SharedMap> = described.map(|map| SharedMap::new(Arc::clone(memory), map)).collect();
    let mut ring = Ring::in_memory(Arc::clone(memory), layout.maps[KINDS.len()].clone());
    let entry = module.image.function("program").expect("the only one");
    let mut key = 0u64;
    while !stop.load(Ordering::Relaxed) {
        key = (key + 1) % 300;
        memory.run(entry);
        for (map, kind) in maps.iter().zip(KINDS) {
            let (bytes, cpus) = (key.to_le_bytes(), if kind.is_per_cpu() { CPUS as usize } else { 1 });
            let key = &bytes[..if kind.is_array() { 4 } else { 8 }];
            let mut value = vec![0; 16 * cpus];
            let _ = (map.lookup(key, &mut value), map.update(key, &value));
            let _ = map.delete(key);
            assert!(map.keys().len() <= (ENTRIES + layout::SPARE) as usize);
        }
        let mut most = 0;
        ring.read(usize::MAX, |record| {
            most = most.max(record.len());
            ControlFlow::Continue(())
        });
        assert!(most <= 1 << 14, "{most} bytes in a record");
        ring.give_up_next();
        ring.release(false);
        memory.take_unknown();
    }
    maps.iter().take(KINDS.len()).for_each(SharedMap::check);
}

/// For `CUDATRACE_FUZZ_SECONDS`, by default for a second. The first seed: `CUDATRACE_FUZZ_SEED`.
#[test]
fn random_words_end_no_operation_of_the_tracer() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(number("CUDATRACE_FUZZ_SECONDS").unwrap_or(1));
    let (start, mut seed, mut written) = (Instant::now(), number("CUDATRACE_FUZZ_SEED").unwrap_or(1), 0);
    let mut damaged = 0;
    while start.elapsed() < seconds || damaged == 0 {
        let (memory, module) = session();
        let (stop, began) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            let scribbler = scope.spawn(|| {
                let written = scribble(&memory, seed, &stop);
                stop.store(true, Ordering::Relaxed);
                written
            });
            use_all(&memory, &module, &stop);
            written += scribbler.join().expect("it only writes");
        });
        assert!(began.elapsed() < LIMIT, "seed {seed}: {:?}", began.elapsed());
        damaged += u32::from(memory.damage().is_some());
        seed += 1;
    }
    eprintln!("{written} words, {damaged} of {} memories were damaged", seed - 1);
}
