//! Maps and the ring buffer under threads, signals and full memory: machine code that a process would run, in the test's process.

use native::layout::{
    self, BUCKET, BUCKET_OWNER, ENTRY_KEY, HASH_REFUSED, Layout, RING_CONSUMED, RING_PRODUCED,
};
use native::object::{Insn, MapDef, MapKind, Object};
use native::{CpuNumber, Environment, Image, Process, ThreadId, TimeSource};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const END: u32 = 0x8000_0000;

/// A region in this process with a program.
struct Region {
    image: Image,
    layout: Layout,
    start: *mut u8,
}

// SAFETY: the region is shared memory; tests use atomics while threads run.
unsafe impl Sync for Region {}

impl Region {
    fn new(code: &[Insn], maps: Vec<MapDef>) -> Region {
        let process = Process {
            cpus: 4,
            cpu: CpuNumber::Segment,
            thread: ThreadId::Asked { expected_at: 0x2d0 },
            time: TimeSource::Counter,
            unwind: None,
        };
        let object = Object::of_code(code, maps);
        let (layout, placement) = Layout::new(&object, process.cpus);
        let environment = Environment::Process(process);
        let image = native::translate(&object, &layout, &placement, &environment, layout.code)
            .expect("a program that can run");
        let size = image.end() as usize;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, anywhere; what is copied lies inside.
        let start = unsafe {
            let start = libc::mmap(ptr::null_mut(), size, access, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let start: *mut u8 = start.cast();
            for (at, bytes) in &placement.contents {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(*at as usize), bytes.len());
            }
            let code = start.add(image.start as usize);
            ptr::copy_nonoverlapping(image.code.as_ptr(), code, image.code.len());
            *start.add(layout::TGID as usize).cast::<u32>() = std::process::id();
            start
        };
        Region { image, layout, start }
    }

    /// Runs the program with these words as its context.
    fn run(&self, words: &mut [u64]) -> i64 {
        let entry = self.image.function("program").expect("the only function");
        // SAFETY: code that was translated from a program of this test.
        unsafe {
            let program: extern "sysv64" fn(*mut u64) -> i64 =
                std::mem::transmute(self.start.add(entry as usize));
            program(words.as_mut_ptr())
        }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: an aligned word of the region.
        unsafe { &*self.start.add(offset as usize).cast() }
    }

    fn half(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: an aligned word of the region.
        unsafe { &*self.start.add(offset as usize).cast() }
    }

    /// Key and first value of each entry of the first map.
    fn entries(&self) -> Vec<(u64, u64)> {
        let map = &self.layout.maps[0];
        let mut entries = vec![];
        for bucket in 0..map.bucket_count {
            let mut index = self.half(map.buckets + BUCKET * u64::from(bucket)).load(Ordering::Acquire);
            while index & END == 0 {
                let entry = map.cells + u64::from(index) * map.stride;
                let read = |at| self.word(entry + at).load(Ordering::Relaxed);
                entries.push((read(ENTRY_KEY), read(ENTRY_KEY + 8)));
                index = self.half(entry).load(Ordering::Acquire);
            }
            assert_eq!(index, END | bucket);
        }
        entries
    }
}

fn insn(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    Insn { opcode, dst, src, offset, imm }
}

/// `r2 = r1; r3 = r1 + 8; r1 = map 0; r4 = flags; call helper; exit`: key and value are in the context.
fn keyed(helper: i32, flags: i32) -> Vec<Insn> {
    vec![
        insn(0xbf, 2, 1, 0, 0),
        insn(0xbf, 3, 1, 0, 0),
        insn(0x07, 3, 0, 0, 8),
        insn(0x18, 1, 1, 0, 0),
        insn(0, 0, 0, 0, 0),
        insn(0xb7, 4, 0, 0, flags),
        insn(0x85, 0, 0, 0, helper),
        insn(0x95, 0, 0, 0, 0),
    ]
}

/// `r4 = *(ctx + 24)` selects: 0 updates, 1 deletes, else looks up and adds 1 to the value.
fn by_choice() -> Vec<Insn> {
    vec![
        insn(0x79, 4, 1, 24, 0),
        insn(0xbf, 2, 1, 0, 0),
        insn(0xbf, 3, 1, 0, 0),
        insn(0x07, 3, 0, 0, 8),
        insn(0x18, 1, 1, 0, 0),
        insn(0, 0, 0, 0, 0),
        insn(0x15, 4, 0, 4, 1),
        insn(0x15, 4, 0, 5, 2),
        insn(0xb7, 4, 0, 0, 0),
        insn(0x85, 0, 0, 0, 2),
        insn(0x95, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, 3),
        insn(0x95, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, 1),
        insn(0x15, 0, 0, 2, 0),
        insn(0xb7, 1, 0, 0, 1),
        insn(0xdb, 0, 1, 0, 0),
        insn(0x95, 0, 0, 0, 0),
    ]
}

fn hash(kind: MapKind, value_size: u32, max_entries: u32) -> MapDef {
    MapDef { name: "m".into(), kind, key_size: 8, value_size, max_entries }
}

/// A cheap sequence of numbers.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn each_thread_finds_its_own_keys_while_others_come_and_go() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 30_000;
    let region = Region::new(&by_choice(), vec![hash(MapKind::Hash, 24, 300)]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                let mut state = thread;
                let mut present = [false; 32];
                for _ in 0..ROUNDS {
                    let own = next(&mut state) % 32;
                    let mut words = [own * THREADS + thread, thread, 2, 0];
                    let is_there = &mut present[own as usize];
                    words[3] = u64::from(*is_there);
                    assert_eq!(region.run(&mut words), 0, "key {}", words[0]);
                    *is_there = !*is_there;
                }
                for (own, is_there) in present.into_iter().enumerate() {
                    let mut words = [own as u64 * THREADS + thread, 0, 0, 1];
                    assert_eq!(region.run(&mut words), if is_there { 0 } else { -2 });
                }
            });
        }
    });
    assert_eq!(region.entries(), []);
}

#[test]
fn counts_are_exact_while_keys_are_added() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 40_000;
    let region = Region::new(&by_choice(), vec![hash(MapKind::Hash, 8, 64)]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = round * (thread + 1) % 64;
                    while region.run(&mut [key, 0, 0, 2]) == 0 {
                        // The first to come adds the key; a value of 0 that replaces a count would be seen.
                        let mut words = [key, 0, 0, 0];
                        add_once(region, &mut words);
                    }
                }
            });
        }
    });
    let total: u64 = region.entries().iter().map(|(_, count)| count).sum();
    assert_eq!(total, THREADS * ROUNDS);
    assert_eq!(region.entries().len(), 64);
}

/// Adds a key with the value 0, unless it is there.
fn add_once(region: &Region, words: &mut [u64; 4]) {
    static ADDING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ADDING.lock().expect("no other thread panics");
    if !region.entries().iter().any(|(key, _)| *key == words[0]) {
        assert_eq!(region.run(words), 0);
    }
}

#[test]
fn one_of_many_threads_adds_a_key() {
    const NO_EXIST: i32 = 1;
    let region = Region::new(&keyed(2, NO_EXIST), vec![hash(MapKind::Hash, 8, 1000)]);
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (region, added) = (&region, &added);
            scope.spawn(move || {
                for key in 0..1000 {
                    match region.run(&mut [key, thread]) {
                        0 => drop(added.fetch_add(1, Ordering::Relaxed)),
                        error => assert_eq!(error, -17),
                    }
                }
            });
        }
    });
    assert_eq!(added.into_inner(), 1000);
    assert_eq!(region.run(&mut [1000, 0]), -7, "the map is full");
}

#[test]
fn a_map_that_evicts_keeps_its_size() {
    let region = Region::new(&keyed(2, 0), vec![hash(MapKind::LruHash, 8, 100)]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let region = &region;
            scope.spawn(move || {
                for key in 0..20_000 {
                    let result = region.run(&mut [key * 4 + thread, key]);
                    assert!(result == 0 || result == -7, "{result}");
                }
            });
        }
    });
    let entries = region.entries();
    assert!((96..=100).contains(&entries.len()), "{} keys", entries.len());
    // A single thread always finds a place.
    assert!((0..1000).all(|key| region.run(&mut [1 << 40 | key, key]) == 0));
}

/// Owner of a lock: a thread of a process.
fn owner(pid: u32) -> u64 {
    u64::from(pid) << 32 | 5
}

/// Updates the only key of a map while an ended process holds the lock: it was about to remove the value that it had replaced.
fn update_after_the_end_of(pid: u32, region: &Region) {
    let map = &region.layout.maps[0];
    let lock = region.word(map.buckets + BUCKET_OWNER);
    let (first, second) = (map.cells, map.cells + map.stride);
    for offset in (4..map.stride).step_by(4) {
        region
            .half(second + offset)
            .store(region.half(first + offset).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    region.half(second).store(END, Ordering::Relaxed);
    region.half(first).store(1, Ordering::Relaxed);
    region.half(map.buckets).store(0, Ordering::Relaxed);
    lock.store(owner(pid), Ordering::Relaxed);
    assert_eq!(region.run(&mut [7, 2, 0, 0]), 0);
    assert_eq!((region.entries(), lock.load(Ordering::Relaxed)), (vec![(7, 2)], 0));
    assert_eq!(region.word(map.state + HASH_REFUSED).load(Ordering::Relaxed), 0);
}

#[test]
fn the_lock_of_a_process_that_was_killed_is_taken_over() {
    let region = Region::new(&by_choice(), vec![hash(MapKind::Hash, 8, 1)]);
    assert_eq!(region.run(&mut [7, 1, 0, 0]), 0);
    let mut killed = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    killed.kill().expect("it runs");
    let pid = killed.id();
    // SAFETY: all zero is valid for a struct of numbers; the kernel fills it in. The process stays.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        assert_eq!(libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT), 0);
    }
    update_after_the_end_of(pid, &region);
    killed.wait().expect("a child");
    update_after_the_end_of(pid, &region);
}

#[test]
fn an_update_that_does_not_end_is_waited_for_once() {
    let region = Region::new(&by_choice(), vec![hash(MapKind::Hash, 8, 1)]);
    let map = &region.layout.maps[0];
    let lock = region.word(map.buckets + BUCKET_OWNER);
    lock.store(owner(std::process::id()), Ordering::Relaxed);
    for refused in 1..100 {
        assert_eq!(region.run(&mut [7, 1, 0, 0]), -16);
        assert_eq!(region.word(map.state + HASH_REFUSED).load(Ordering::Relaxed), refused);
    }
}

/// Takes the record, checks that it is whole, and gives its place back.
fn consume(region: &Region, place: &native::layout::MapPlace) -> Option<(u64, u64)> {
    let consumed = region.word(place.state + RING_CONSUMED);
    let position = consumed.load(Ordering::Relaxed);
    if region.word(place.state + RING_PRODUCED).load(Ordering::Acquire) == position {
        return None;
    }
    let at = place.cells + position % u64::from(place.def.max_entries);
    let header = region.half(at).load(Ordering::Acquire);
    if header == 0 || header & 0x8000_0000 != 0 {
        return None;
    }
    let length = u64::from(header & 0x3fff_ffff);
    let record = (header & 0x4000_0000 == 0).then(|| {
        assert_eq!(length, 24);
        let words: Vec<u64> =
            (0..3).map(|word| region.word(at + 8 + 8 * word).load(Ordering::Relaxed)).collect();
        assert_eq!(words[2], words[0] ^ words[1] ^ 0x5555, "a record that is not whole");
        (words[0], words[1])
    });
    let taken = 8 + length.next_multiple_of(8);
    for word in 0..taken / 8 {
        region.word(at + 8 * word).store(0, Ordering::Relaxed);
    }
    consumed.store(position + taken, Ordering::Release);
    record.or(Some((u64::MAX, 0)))
}

#[test]
fn each_record_arrives_once_and_in_the_order_of_its_thread() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 50_000;
    // ringbuf_output(map 0, ctx, 24, 0)
    let code = [
        insn(0xbf, 2, 1, 0, 0),
        insn(0x18, 1, 1, 0, 0),
        insn(0, 0, 0, 0, 0),
        insn(0xb7, 3, 0, 0, 24),
        insn(0xb7, 4, 0, 0, 0),
        insn(0x85, 0, 0, 0, 130),
        insn(0x95, 0, 0, 0, 0),
    ];
    let ring =
        MapDef { name: "r".into(), kind: MapKind::Ring, key_size: 0, value_size: 0, max_entries: 1 << 12 };
    let region = Region::new(&code, vec![ring]);
    let place = region.layout.maps[0].clone();
    let (lost, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (region, lost) = (&region, &lost);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        match region.run(&mut [thread, round, thread ^ round ^ 0x5555]) {
                            0 => {}
                            _ => drop(lost.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut last = [None; THREADS as usize];
            let mut seen = 0;
            loop {
                let end = done.load(Ordering::Acquire);
                match consume(&region, &place) {
                    Some((u64::MAX, _)) => {}
                    Some((thread, round)) => {
                        let last = &mut last[thread as usize];
                        assert!(
                            last.is_none_or(|last| round > last),
                            "thread {thread}: {round} after {last:?}"
                        );
                        *last = Some(round);
                        seen += 1;
                    }
                    None if end => return seen,
                    None => std::thread::yield_now(),
                }
            }
        });
        for writer in writers {
            writer.join().expect("writers do not panic");
        }
        done.store(true, Ordering::Release);
        reader.join().expect("each record is whole")
    });
    assert_eq!(seen + lost.into_inner(), THREADS * ROUNDS);
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    // probe_read_user(ctx + 8, 8, *(ctx + 0)), or the string
    let code = |helper, size| {
        [
            insn(0x79, 3, 1, 0, 0),
            insn(0x07, 1, 0, 0, 8),
            insn(0xb7, 2, 0, 0, size),
            insn(0x85, 0, 0, 0, helper),
            insn(0x95, 0, 0, 0, 0),
        ]
    };
    let word = Region::new(&code(112, 8), vec![]);
    let number = 0x1234_5678u64;
    let mut words = [&raw const number as u64, 0];
    assert_eq!((word.run(&mut words), words[1]), (0, number));
    for bad in [0, 8, u64::MAX - 4, 1 << 47, 1 << 63] {
        let mut words = [bad, 77];
        assert_eq!((word.run(&mut words), words[1]), (-14, 0), "{bad:#x}");
    }
    let text = Region::new(&code(114, 16), vec![]);
    let mut words = [c"hi".as_ptr() as u64, u64::MAX, u64::MAX];
    assert_eq!(text.run(&mut words), 3);
    assert_eq!(
        words[1..],
        [u64::from_le_bytes(*b"hi\0\xff\xff\xff\xff\xff"), u64::MAX],
        "what follows stays"
    );
    let mut words = [c"hello".as_ptr() as u64, 0, 0];
    assert_eq!(text.run(&mut words), 6);
    assert_eq!(&words[1].to_le_bytes()[..6], b"hello\0");
    let mut words = [c"a text of twenty-one bytes".as_ptr() as u64, 0, 0];
    assert_eq!(text.run(&mut words), 16);
    assert_eq!([words[1], words[2]].map(u64::to_le_bytes).concat(), b"a text of twent\0");
}

#[test]
fn a_text_at_the_end_of_a_mapping_is_read() {
    // SAFETY: two new pages, of which the second is taken away.
    let end = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages: *mut u8 = libc::mmap(ptr::null_mut(), 8192, access, kind, -1, 0).cast();
        libc::munmap(pages.add(4096).cast(), 4096);
        let end = pages.add(4096 - 6);
        ptr::copy_nonoverlapping(c"hello".as_ptr().cast(), end, 6);
        end
    };
    let code = [
        insn(0x79, 3, 1, 0, 0),
        insn(0x07, 1, 0, 0, 8),
        insn(0xb7, 2, 0, 0, 64),
        insn(0x85, 0, 0, 0, 114),
        insn(0x95, 0, 0, 0, 0),
    ];
    let region = Region::new(&code, vec![]);
    let mut words = [0; 9];
    words[0] = end as u64;
    assert_eq!(region.run(&mut words), 6);
    words = [0; 9];
    words[0] = end as u64 + 1;
    assert_eq!(region.run(&mut words), 5);
    // Without the NUL the text runs into what is not there.
    // SAFETY: the byte is mapped.
    unsafe { *end.add(5) = b'!' };
    assert_eq!(region.run(&mut words), -14);
}
