//! Runs the programs of an object as machine code in the test's own process, with helpers that answer for a simulated world.

use native::layout::{
    self, ENTRY_KEY, ENTRY_USED, HASH_FRESH, Layout, MapPlace, RING_CONSUMED, RING_PRODUCED, SPARE,
};
use native::object::MapKind;
use native::{Environment, Image, TranslateError, context};
use sim::World;
use sim::machine::{BOOT_AHEAD_NS, Fault, Hit, Trap};
use sim::outcome::Signal;
use sim::rng::Rng;
use sim::session::{Engine, Failure};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use wire::manifest::CompiledScript;

const EFAULT: u64 = -14i64 as u64;

/// Code and maps in memory of this process.
pub(crate) struct NativeEngine {
    image: Image,
    layout: Layout,
    /// Contents at the start.
    contents: Vec<(u64, Vec<u8>)>,
    region: *mut u8,
    size: usize,
    /// Each has an address of its own, which does not change.
    #[allow(clippy::vec_box, reason = "programs keep the addresses")]
    cookies: Vec<Box<u64>>,
    rng: Rng,
    signals: Vec<Signal>,
}

/// State of the run in progress that helpers need.
struct Running<'a> {
    hit: &'a Hit<'a>,
    rng: &'a mut Rng,
    signals: &'a mut Vec<Signal>,
    layout: &'a Layout,
    /// Offsets of the descriptions of the maps.
    descriptions: &'a [u64],
    region: *mut u8,
    size: usize,
}

impl Running<'_> {
    /// Memory of the engine, which is the process's, too: programs have addresses of their variables.
    fn own_memory(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        let offset = usize::try_from(address.checked_sub(self.region as u64)?).ok()?;
        let is_inside = offset.checked_add(size as usize)? <= self.size;
        // SAFETY: the range is inside of the region, which one thread uses.
        is_inside
            .then(|| unsafe { std::slice::from_raw_parts(self.region.add(offset), size as usize) }.to_vec())
    }
}

thread_local! {
    static RUNNING: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Runs a script over a world as machine code. The inner error says what has no translation.
pub(crate) fn run(
    compiled: &CompiledScript,
    world: &World,
) -> Result<Result<sim::session::Run, Failure>, TranslateError> {
    let object = sim::session::parse(compiled).expect("an object that was just written");
    let (layout, placement) = Layout::new(&object, world.cpus);
    let environment = Environment::Replaced { cpus: world.cpus };
    let image = native::translate(&object, &layout, &placement, &environment, layout.code)?;
    let engine = NativeEngine::new(image, layout, placement.contents, world.rand);
    Ok(sim::session::run_on(engine, &compiled.manifest, world))
}

impl NativeEngine {
    fn new(image: Image, layout: Layout, contents: Vec<(u64, Vec<u8>)>, rand: u64) -> NativeEngine {
        let size = image.end().next_multiple_of(layout::PAGE) as usize;
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, anywhere.
        let region = unsafe { libc::mmap(ptr::null_mut(), size, access, kind | libc::MAP_NORESERVE, -1, 0) };
        assert_ne!(region, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let (cookies, signals, region, rng) = (vec![], vec![], region.cast(), Rng::new(rand));
        let mut engine = NativeEngine { image, layout, contents, region, size, cookies, rng, signals };
        for (offset, bytes) in engine.contents.clone() {
            engine.write(offset, &bytes);
        }
        engine.write(engine.image.start, &engine.image.code.clone());
        for (number, function) in replaced() {
            engine.write(layout::REPLACED + 8 * number, &(function as u64).to_le_bytes());
        }
        engine
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset as usize + bytes.len() <= self.size);
        // SAFETY: the range is inside of the region, see above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.region.add(offset as usize), bytes.len()) }
    }

    fn read(&self, offset: u64, len: u64) -> &[u8] {
        assert!(offset + len <= self.size as u64);
        // SAFETY: the range is inside of the region; nothing runs in it meanwhile.
        unsafe { std::slice::from_raw_parts(self.region.add(offset as usize), len as usize) }
    }

    fn word(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().expect("8 bytes"))
    }

    fn half(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(offset, 4).try_into().expect("4 bytes"))
    }

    fn place(&self, map: &str) -> Option<MapPlace> {
        self.layout.map(map).cloned()
    }

    /// Offsets of the entries of a hash.
    fn entries(&self, map: &MapPlace) -> Vec<u64> {
        let taken = self.half(map.state + HASH_FRESH).min(map.def.max_entries + SPARE);
        let all = (0..u64::from(taken)).map(|index| map.cells + index * map.stride);
        all.filter(|entry| self.word(entry + ENTRY_USED) != 0).collect()
    }

    /// Offsets of the cells of a key.
    fn offsets(&self, map: &MapPlace, key: &[u8]) -> Vec<u64> {
        let cpus = 0..u64::from(map.cpus);
        if map.def.kind.is_array() {
            let index = u64::from(u32::from_le_bytes(key.try_into().expect("an index")));
            return cpus.map(|cpu| map.cells + index * map.stride + cpu * map.cpu_size).collect();
        }
        let size = u64::from(map.def.key_size);
        let is_key = |entry: &u64| self.read(entry + ENTRY_KEY, size) == key;
        let Some(entry) = self.entries(map).into_iter().find(is_key) else { return vec![] };
        let values = entry + ENTRY_KEY + size.next_multiple_of(8);
        let step = u64::from(map.def.value_size).next_multiple_of(8);
        cpus.map(|cpu| values + cpu * step).collect()
    }
}

impl Drop for NativeEngine {
    fn drop(&mut self) {
        // SAFETY: the region is this engine's own.
        unsafe { libc::munmap(self.region.cast(), self.size) };
    }
}

impl Engine for NativeEngine {
    fn run(&mut self, symbol: &str, hit: &Hit) -> Result<u64, Fault> {
        let missing = Fault { function: symbol.into(), at: 0, trap: Trap::Jump(0) };
        let entry = self.image.function(symbol).ok_or(missing)?;
        self.write(layout::CPU, &hit.moment.cpu.to_le_bytes());
        let mut context = [0u64; context::SIZE as usize / 8];
        for (word, bytes) in context.iter_mut().zip(hit.context.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        context[context::COOKIE as usize / 8] = hit.cookie;
        if let Some((cookie, is_return)) = hit.session {
            context[context::IS_RETURN as usize / 8] = u64::from(is_return);
            context[context::SESSION as usize / 8] = cookie;
        }
        let (region, layout, descriptions) = (self.region, &self.layout, &self.image.descriptions);
        let (rng, signals) = (&mut self.rng, &mut self.signals);
        let size = self.size;
        let mut running = Running { hit, rng, signals, layout, descriptions, region, size };
        RUNNING.set((&raw mut running).cast());
        // SAFETY: generated code that reads the context, and memory of the region.
        let result = unsafe {
            let function: extern "sysv64" fn(*mut u64) -> u64 =
                std::mem::transmute(region.add(entry as usize));
            function(context.as_mut_ptr())
        };
        RUNNING.set(ptr::null_mut());
        Ok(result)
    }

    fn has_map(&self, map: &str) -> bool {
        self.layout.map(map).is_some()
    }

    fn keys(&mut self, map: &str) -> Vec<Vec<u8>> {
        let Some(map) = self.place(map) else { return vec![] };
        if map.def.kind.is_array() {
            return (0..map.def.max_entries).map(|index| index.to_le_bytes().to_vec()).collect();
        }
        let size = u64::from(map.def.key_size);
        self.entries(&map).iter().map(|entry| self.read(entry + ENTRY_KEY, size).to_vec()).collect()
    }

    fn cells(&mut self, map: &str, key: &[u8]) -> Vec<Vec<u8>> {
        let Some(map) = self.place(map) else { return vec![] };
        let size = u64::from(map.def.value_size);
        self.offsets(&map, key).iter().map(|cell| self.read(*cell, size).to_vec()).collect()
    }

    fn set(&mut self, map: &str, key: &[u8], value: &[u8]) {
        let Some(map) = self.place(map) else { return };
        assert!(map.def.kind.is_array(), "only cells of arrays are set");
        for cell in self.offsets(&map, key) {
            self.write(cell, value);
        }
    }

    /// As at the start.
    fn clear(&mut self, map: &str) {
        let Some(map) = self.place(map) else { return };
        if map.def.kind.is_array() {
            return self.zero(&map.def.name, 0);
        }
        let start = self.contents.clone();
        for (offset, bytes) in start.iter().filter(|(at, _)| *at == map.buckets) {
            self.write(*offset, bytes);
        }
        self.write(map.state, &[0; layout::HASH_STATE as usize]);
    }

    fn zero(&mut self, map: &str, from: usize) {
        let Some(place) = self.place(map) else { return };
        let zeros = vec![0; place.def.value_size as usize - from];
        for key in self.keys(map) {
            for cell in self.offsets(&place, &key) {
                self.write(cell + from as u64, &zeros);
            }
        }
    }

    fn records(&mut self, ring: &str) -> Vec<Vec<u8>> {
        const DISCARD: u32 = 0x4000_0000;
        let Some(ring) = self.place(ring) else { return vec![] };
        let (consumed, size) = (ring.state + RING_CONSUMED, u64::from(ring.def.max_entries));
        let mut records = vec![];
        while self.word(consumed) != self.word(ring.state + RING_PRODUCED) {
            let position = self.word(consumed);
            let at = ring.cells + position % size;
            let header = self.half(at);
            let length = u64::from(header & !DISCARD);
            assert!(length < size, "a record that nobody submitted");
            if header & DISCARD == 0 {
                records.push(self.read(at + 8, length).to_vec());
            }
            let taken = 8 + length.next_multiple_of(8);
            self.write(at, &vec![0; taken as usize]);
            self.write(consumed, &(position + taken).to_le_bytes());
        }
        records
    }

    fn stacks(&mut self, _: &str) -> Vec<Vec<u64>> {
        vec![]
    }

    fn session_cookie(&mut self) -> u64 {
        self.cookies.push(Box::new(0));
        &raw mut **self.cookies.last_mut().expect("just added") as u64
    }

    fn forget(&mut self, map: &str, from: usize) {
        let Some(place) = self.place(map) else { return };
        let noise = vec![0xa5; place.def.value_size as usize - from];
        for key in self.keys(map) {
            for cell in self.offsets(&place, &key) {
                self.write(cell + from as u64, &noise);
            }
        }
    }

    fn executed(&self) -> u64 {
        0
    }

    fn signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }
}

/// The functions that replace helpers, by the helper's number.
fn replaced() -> [(u64, *const c_void); 16] {
    [
        (5, monotonic_time as *const c_void),
        (7, random as *const c_void),
        (14, pid_tgid as *const c_void),
        (15, uid_gid as *const c_void),
        (16, comm as *const c_void),
        (42, numa_node as *const c_void),
        (67, get_stack as *const c_void),
        (80, cgroup as *const c_void),
        (109, signal_process as *const c_void),
        (112, read_user as *const c_void),
        (114, read_user_string as *const c_void),
        (117, signal_thread as *const c_void),
        (118, jiffies as *const c_void),
        (120, namespace_pid as *const c_void),
        (125, boot_time as *const c_void),
        (164, for_each as *const c_void),
    ]
}

/// The run in progress.
fn running() -> &'static mut Running<'static> {
    // SAFETY: only called by generated code, within `run`, which has set it.
    unsafe { &mut *RUNNING.get().cast() }
}

fn put(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the program passes a buffer of the size that it names.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

extern "sysv64" fn monotonic_time() -> u64 {
    boot_time().wrapping_sub(BOOT_AHEAD_NS)
}

extern "sysv64" fn boot_time() -> u64 {
    running().hit.moment.time_ns
}

extern "sysv64" fn random() -> u64 {
    u64::from(running().rng.bits() as u32)
}

extern "sysv64" fn pid_tgid() -> u64 {
    let moment = running().hit.moment;
    pair(moment.tgid, moment.tid)
}

extern "sysv64" fn uid_gid() -> u64 {
    let moment = running().hit.moment;
    pair(moment.gid, moment.uid)
}

extern "sysv64" fn comm(to: *mut u8, size: u64) -> u64 {
    let comm = running().hit.moment.comm.as_bytes();
    let mut bytes = vec![0; size as usize];
    let len = comm.len().min(15).min(bytes.len().saturating_sub(1));
    bytes[..len].copy_from_slice(&comm[..len]);
    put(to, &bytes);
    0
}

extern "sysv64" fn numa_node() -> u64 {
    u64::from(running().hit.moment.numa_node())
}

extern "sysv64" fn cgroup() -> u64 {
    running().hit.moment.cgroup
}

extern "sysv64" fn jiffies() -> u64 {
    running().hit.moment.jiffies()
}

fn signal(number: u64, thread: bool) -> u64 {
    let running = running();
    let (moment, number) = (running.hit.moment, number as u32);
    running.signals.push(Signal { tgid: moment.tgid, tid: moment.tid, number, thread });
    0
}

extern "sysv64" fn signal_process(number: u64) -> u64 {
    signal(number, false)
}

extern "sysv64" fn signal_thread(number: u64) -> u64 {
    signal(number, true)
}

extern "sysv64" fn namespace_pid(_device: u64, _inode: u64, to: *mut u8, _size: u64) -> u64 {
    let moment = running().hit.moment;
    put(to, &pair(moment.tgid, moment.tid).to_le_bytes());
    0
}

extern "sysv64" fn get_stack(_context: u64, to: *mut u8, size: u64, flags: u64) -> u64 {
    let moment = running().hit.moment;
    let frames = if flags & 1 << 8 != 0 { &moment.user_stack } else { &moment.kernel_stack };
    let mut bytes: Vec<u8> =
        frames.iter().take(size as usize / 8).flat_map(|frame| frame.to_le_bytes()).collect();
    let found = bytes.len() as u64;
    bytes.resize(size as usize, 0);
    put(to, &bytes);
    if found == 0 { EFAULT } else { found }
}

extern "sysv64" fn read_user(to: *mut u8, size: u64, from: u64) -> u64 {
    let running = running();
    let bytes = running.hit.user.read(from, size).or_else(|| running.own_memory(from, size));
    let result = if bytes.is_some() { 0 } else { EFAULT };
    put(to, &bytes.unwrap_or_else(|| vec![0; size as usize]));
    result
}

extern "sysv64" fn read_user_string(to: *mut u8, size: u64, from: u64) -> u64 {
    if size == 0 {
        return 0;
    }
    let Some(mut text) = running().hit.user.read_str(from, size) else {
        put(to, &vec![0; size as usize]);
        return EFAULT;
    };
    text.push(0);
    put(to, &text);
    text.len() as u64
}

type Visitor = extern "sysv64" fn(u64, *const u8, *mut u8, u64) -> u64;

/// In the order of the keys, as the reference interpreter's.
extern "sysv64" fn for_each(map: u64, visit: Visitor, data: u64, _flags: u64) -> u64 {
    let running = running();
    let description = map - running.region as u64;
    let number = running.descriptions.iter().position(|at| *at == description).expect("a map");
    let place = running.layout.maps[number].clone();
    let (hit, region, layout) = (running.hit, running.region, running.layout);
    // A second view of the same memory; nothing else uses it while the loop looks for its next key.
    let (functions, vector_readers) = (vec![], vec![]);
    let image =
        Image { start: 0, code: vec![], functions, vector_readers, helpers: vec![], descriptions: vec![] };
    let view = std::mem::ManuallyDrop::new(NativeEngine {
        image,
        layout: layout.clone(),
        contents: vec![],
        region,
        size: usize::MAX >> 1,
        cookies: vec![],
        rng: Rng::new(0),
        signals: vec![],
    });
    let mut view = view;
    let mut keys = view.keys(&place.def.name);
    if place.def.kind != MapKind::Array && place.def.kind != MapKind::PerCpuArray {
        keys.sort();
    }
    let mut visited = 0;
    for key in keys {
        let cells = view.offsets(&place, &key);
        let Some(cell) = cells.get(hit.moment.cpu as usize % cells.len().max(1)) else { continue };
        visited += 1;
        // SAFETY: a callback of the program, with a key and a cell of the map.
        let stop = visit(map, key.as_ptr(), unsafe { region.add(*cell as usize) }, data);
        if stop != 0 {
            break;
        }
    }
    visited
}
