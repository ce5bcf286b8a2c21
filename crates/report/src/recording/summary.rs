//! Statistics of a recording: calls, launches, memory, copies, errors and ioctls, accumulated as records are read.
//!
//! A call of the runtime and the calls of the driver in it are separate calls. Operations are counted at the driver's functions
//! only, by the tables of CUDA, so that nothing counts twice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use foldhash::HashMap;

use crate::export::{Data, Kind, Record, Span, Status, Text};
use crate::recording::gpu_use::{self, GpuUse};
use crate::units;
use crate::value::escape;

/// Statistics of calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Number of calls.
    pub count: u64,
    /// Total duration in ns.
    pub total_ns: u64,
    /// Total duration without nested calls, in ns.
    pub self_ns: u64,
    /// Shortest duration in ns.
    pub min_ns: u64,
    /// Longest duration in ns.
    pub max_ns: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// Sum of the squares of the durations.
    squares: u128,
    /// Number of calls by duration: [`PARTS`] buckets for each power of two.
    buckets: Vec<u32>,
}

/// Name of the event in `record` for the end of a process.
pub const PROCESS_END: &str = "process end";

/// Name of the event with versions of the libraries that a process uses.
pub const ENVIRONMENT: &str = "environment";

/// Largest number of kinds of errors in the report at the end.
const ERRORS: usize = 10;
/// Kernels of the GPU in the report at the end.
const KERNELS: usize = 5;

/// Names of kernels of the GPU and of ranges that are told apart, which processes write as they like, and the name of further ones.
const NAMES: usize = 1 << 16;
const OTHERS: &str = "(others)";
/// Devices that are told apart.
const DEVICES: usize = 1024;
/// Calls of a thread that have not returned but contain calls.
const OPEN: usize = 256;

/// Number of buckets for each power of two: a percentile is at most a sixteenth too large.
const PARTS: u64 = 16;

/// The bucket of a duration. Below [`PARTS`] each ns has its own.
fn bucket(ns: u64) -> usize {
    let power = ns.max(PARTS).ilog2() - PARTS.ilog2();
    (u64::from(power) * PARTS + (ns >> power)) as usize
}

/// The longest duration of a bucket, in ns.
fn bucket_end(at: usize) -> u64 {
    let at = at as u64;
    let power = (at / PARTS).saturating_sub(1);
    ((u128::from(at - power * PARTS + 1) << power) - 1) as u64
}

impl Default for Stat {
    fn default() -> Stat {
        Stat {
            count: 0,
            total_ns: 0,
            self_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            errors: 0,
            squares: 0,
            buckets: Vec::new(),
        }
    }
}

impl Stat {
    fn add(&mut self, Took { ns, self_ns, failed }: Took) {
        add_to(&mut self.count, 1);
        add_to(&mut self.total_ns, ns);
        add_to(&mut self.self_ns, self_ns);
        self.squares = self.squares.saturating_add(u128::from(ns).pow(2));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.errors += u64::from(failed);
        let at = bucket(ns);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(1);
    }

    /// A percentile in ns, rounded up to the end of its bucket.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let wanted = self.count.saturating_mul(percent).div_ceil(100);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return bucket_end(at).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// The mean in ns.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.count.max(1)
    }

    /// The sample standard deviation in ns; 0 for fewer than two calls.
    pub fn deviation_ns(&self) -> u64 {
        let n = u128::from(self.count);
        if n < 2 {
            return 0;
        }
        let around = self.squares.saturating_sub(u128::from(self.total_ns).pow(2) / n);
        (around / (n - 1)).isqrt() as u64
    }

    /// Number of calls by power of two of their ns; the last element is not 0.
    pub fn powers(&self) -> Vec<u64> {
        let mut powers = vec![0; self.max_ns.max(1).ilog2() as usize + 1];
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            powers[bucket_end(at).max(1).ilog2() as usize] += u64::from(*count);
        }
        powers
    }
}

/// Duration and status of a call.
#[derive(Copy, Clone, Debug)]
struct Took {
    ns: u64,
    /// Duration without nested calls, in ns.
    self_ns: u64,
    failed: bool,
}

/// Totals of the completed calls nested in a call that has not completed.
#[derive(Clone, Debug, Default)]
struct Inside {
    /// Id of the enclosing call.
    id: u64,
    /// Duration of the nested calls in ns.
    ns: u64,
    /// The last nested call that failed: name and result.
    failure: Option<(Arc<str>, Arc<str>)>,
}

/// Statistics of copies in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyStat {
    /// Number of copies.
    pub count: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Duration of the calls in ns.
    pub ns: u64,
}

/// Statistics of the ranges of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeStat {
    /// The ranges on the host; marks have no length.
    pub host: Stat,
    /// Number of kernels that were launched in these ranges, but not in one within.
    pub kernels: u64,
    /// Time of these kernels on the GPU, ns.
    pub gpu_ns: u64,
}

/// Adds to a total. Traced processes write the numbers, so that their sum may not fit.
fn add_to(total: &mut u64, number: u64) {
    *total = total.saturating_add(number);
}

/// The sum of numbers of traced processes.
pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The number of a record's GPU in all processes; that in its process in recordings that do not have it.
fn number_of_gpu(record: &Record, ordinal: u32) -> u64 {
    match record.field("gpu") {
        Some(Data::Uint(number)) if *number != 0 => *number,
        _ => ordinal.into(),
    }
}

/// A field that is a number of bytes, or an address.
fn bytes_of(record: &Record, field: &str) -> u64 {
    record.field(field).and_then(Data::number).map_or(0, |number| number.clamp(0, u64::MAX.into()) as u64)
}

/// Adds a copy, or the call that makes it, which took this many ns.
fn add_copy(copies: &mut BTreeMap<Arc<str>, CopyStat>, record: &Record, ns: u64) {
    let direction = match record.field("direction") {
        Some(Data::Text(direction)) => direction.clone(),
        _ => "any".into(),
    };
    let moved = copies.entry(direction).or_default();
    moved.count += 1;
    add_to(&mut moved.bytes, bytes_of(record, "bytes"));
    add_to(&mut moved.ns, ns);
}

/// Statistics of one kind of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Number of successful allocations.
    pub count: u64,
    /// Number of allocated bytes.
    pub bytes: u64,
    /// Duration of the calls in ns.
    pub ns: u64,
    /// Bytes that are currently allocated, by processes that have not ended.
    pub live: u64,
    /// Largest number of bytes that were allocated at a time.
    pub peak: u64,
    /// Bytes that were never freed, including those of ended processes.
    pub left: u64,
}

/// Summary of a recording; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Calls by function, and other spans by name.
    pub functions: HashMap<Arc<str>, Stat>,
    /// Launches by GPU kernel.
    pub kernels: HashMap<Arc<str>, Stat>,
    /// Launches of graphs, which are not of a single kernel.
    pub graph_launches: Stat,
    /// Copies by direction.
    pub copies: BTreeMap<Arc<str>, CopyStat>,
    /// Failures by function and result. If a call fails because of a nested call, only the outer call's failure
    /// counts.
    pub errors: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Number of calls after the driver had shut down, at the end of a process; they are not failures.
    pub after_shutdown: u64,
    /// Spans of the kernel driver by name.
    pub ioctls: BTreeMap<Arc<str>, Stat>,
    /// Spans of functions of the kernel driver by name: scheduled work, interrupts, faults.
    pub driver_functions: BTreeMap<Arc<str>, Stat>,
    /// Names of threads by process and thread.
    pub threads: HashMap<(u32, u32), Arc<str>>,
    /// Number of calls of the runtime and of the driver.
    pub calls: (u64, u64),
    /// Memory by kind: device, pinned, managed ...
    pub memory: BTreeMap<Arc<str>, Memory>,
    /// Number of successful frees.
    pub frees: u64,
    /// Allocated blocks by process and address: bytes and kind.
    blocks: HashMap<(u32, u64), (u64, Arc<str>)>,
    /// Number of blocks that were allocated when their process ended.
    ended_with: u64,
    /// Number of records.
    pub records: u64,
    /// Number of spans.
    pub spans: u64,
    /// First start and last end, boot-clock ns.
    pub window: Option<(u64, u64)>,
    /// Reports of failures and losses.
    pub losses: Vec<String>,
    /// Versions of the libraries that processes use.
    pub versions: BTreeMap<Arc<str>, Arc<str>>,
    /// By process and thread: the calls that have nested calls but have not completed.
    inside: HashMap<(u32, u32), Vec<Inside>>,
    /// Boot-clock ranges in which the tracer delayed a thread.
    waits: Vec<(u64, u64)>,
    /// Kernels on the GPU by name, and graphs that ran as a whole.
    pub gpu_kernels: HashMap<Arc<str>, Stat>,
    /// Copies on the GPU by direction; their time is that of the copy.
    pub gpu_copies: BTreeMap<Arc<str>, CopyStat>,
    /// Ranges of NVTX by name: their time on the host, and their work on the GPU.
    pub ranges: HashMap<Arc<str>, RangeStat>,
    /// Times in which devices had no kernel, by the number of the device as in `gpus`, or its ordinal, and cause, as each process saw them.
    pub idle: BTreeMap<(u64, Arc<str>), CopyStat>,
    /// Use of devices by their kernels, by the devices' numbers of all processes; by ordinal in recordings that do not have these.
    pub gpus: BTreeMap<u64, GpuUse>,
}

/// Class of a call of the driver, which determines its colour and its share of time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A kernel or graph launch.
    Launch,
    /// Memory is allocated or freed.
    Memory,
    /// A copy or fill.
    Copy,
    /// The program waits for the device.
    Wait,
    /// A call of the kernel driver.
    Kernel,
    /// A call of the runtime.
    Runtime,
    /// A kernel or graph on the GPU.
    Gpu,
    /// A range of NVTX.
    Range,
    /// A time in which a device had no kernel.
    Idle,
    /// Anything else.
    #[default]
    Other,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 10] = [
        Class::Launch,
        Class::Copy,
        Class::Memory,
        Class::Wait,
        Class::Kernel,
        Class::Runtime,
        Class::Other,
        Class::Gpu,
        Class::Range,
        Class::Idle,
    ];

    /// One letter.
    pub fn letter(self) -> char {
        match self {
            Class::Launch => 'L',
            Class::Memory => 'M',
            Class::Copy => 'C',
            Class::Wait => 'W',
            Class::Kernel => 'K',
            Class::Runtime => 'R',
            Class::Gpu => 'G',
            Class::Range => 'N',
            Class::Idle => '-',
            Class::Other => 'o',
        }
    }

    /// Name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Class::Launch => "launch",
            Class::Memory => "memory",
            Class::Copy => "copy, fill",
            Class::Wait => "wait",
            Class::Kernel => "ioctl",
            Class::Runtime => "runtime call",
            Class::Gpu => "kernel on the GPU",
            Class::Range => "NVTX range",
            Class::Idle => "no kernel",
            Class::Other => "other",
        }
    }
}

/// The operation that a function of the driver belongs to.
pub(super) fn operation(api: &str) -> Option<&'static str> {
    thread_local! {
        static BY_API: HashMap<&'static str, &'static str> = cuda::operations::Api::of_library(cuda::Library::Driver)
            .into_iter()
            .flat_map(|api| api.operations)
            .filter(|operation| !matches!(operation.name, "error" | "call" | "graph" | "node"))
            .flat_map(|operation| {
                operation.variants.iter().flat_map(|variant| variant.functions).map(|function| (*function, operation.name))
            })
            .collect();
    }
    BY_API.with(|known| known.get(api).copied())
}

/// Whether a launch is a graph launch.
pub fn is_graph(record: &Record) -> bool {
    record.site.api.contains("GraphLaunch")
}

/// Whether a field is meaningful for its record: a graph launch has no kernel, grid and block.
pub fn is_informative(record: &Record, field: &str) -> bool {
    !(is_graph(record) && matches!(field, "kernel" | "grid" | "block" | "shared"))
}

/// The class of a span.
pub fn class_of(record: &Record) -> Class {
    if matches!(record.field("category"), Some(Data::Text(category)) if category.starts_with("nvidia")) {
        return Class::Kernel;
    }
    if record.is_range() {
        return Class::Range;
    }
    match record.gpu_kind() {
        Some("memcpy" | "memset") => return Class::Copy,
        Some("sync") => return Class::Wait,
        Some("idle") => return Class::Idle,
        Some(_) => return Class::Gpu,
        None => {}
    }
    match operation(&record.site.api) {
        Some("launch") => Class::Launch,
        Some("alloc" | "free") => Class::Memory,
        Some("memcpy" | "memset") => Class::Copy,
        Some("sync") => Class::Wait,
        _ if record.site.func.starts_with("cuda") => Class::Runtime,
        _ => Class::Other,
    }
}

impl Summary {
    /// Adds a record. Returns the duration of a call without nested calls in ns, and 0 for other records.
    pub fn add(&mut self, record: &Record) -> u64 {
        self.records += 1;
        match &record.kind {
            Kind::Span(span) => return self.span(record, span),
            Kind::Instant { .. } if &*record.name == PROCESS_END => self.end_process(record),
            Kind::Instant { .. } if &*record.name == ENVIRONMENT => {
                let texts = record.fields.iter().filter_map(|(name, value)| match value {
                    Data::Text(text) => Some((name.clone(), text.clone())),
                    _ => None,
                });
                self.versions.extend(texts);
            }
            Kind::Text(Text::Loss(_), text) => self.losses.push(text.clone()),
            _ => {}
        }
        0
    }

    fn span(&mut self, record: &Record, span: &Span) -> u64 {
        self.spans += 1;
        let (first, last) = self.window.unwrap_or((u64::MAX, 0));
        let end = record.time_ns + span.duration_ns;
        self.window = Some((first.min(record.time_ns), last.max(end)));
        if record.is_range() {
            let took = Took { ns: span.duration_ns, self_ns: span.duration_ns, failed: false };
            self.range(&record.name).host.add(took);
            return 0;
        }
        if let Some(kind) = record.gpu_kind() {
            self.gpu_work(record, span, kind);
            return if record.is_idle() { 0 } else { span.duration_ns };
        }
        if let Some(thread) = &record.thread {
            let known = self.threads.entry((thread.pid, thread.tid)).or_insert_with(|| thread.comm.clone());
            if !thread.comm.is_empty() && !Arc::ptr_eq(known, &thread.comm) {
                *known = thread.comm.clone();
            }
        }
        if let Some(waited) = record.waited_ns() {
            self.waits.push((record.time_ns - waited.min(record.time_ns), record.time_ns));
        }
        let is_kernel = class_of(record) == Class::Kernel;
        let took = self.nest(record, span, !is_kernel);
        if is_kernel {
            let is_function = matches!(record.field("category"), Some(Data::Text(category)) if &**category == "nvidia_driver");
            let of_kind = if is_function { &mut self.driver_functions } else { &mut self.ioctls };
            of_kind.entry(record.name.clone()).or_default().add(took);
            return took.self_ns;
        }
        match self.functions.get_mut(&record.name) {
            Some(known) => known.add(took),
            None => self.functions.entry(record.name.clone()).or_default().add(took),
        }
        self.after_shutdown += u64::from(span.is_after_shutdown());
        let is_runtime = record.site.func.starts_with("cuda");
        let is_driver = !is_runtime && record.site.func.starts_with("cu");
        self.calls = (self.calls.0 + u64::from(is_runtime), self.calls.1 + u64::from(is_driver));
        self.operation(record, span, took);
        took.self_ns
    }

    /// The range of a name, of which there may be as many as of kernels.
    fn range(&mut self, name: &Arc<str>) -> &mut RangeStat {
        let is_full = self.ranges.len() >= NAMES && !self.ranges.contains_key(name);
        self.ranges.entry(if is_full { OTHERS.into() } else { name.clone() }).or_default()
    }

    /// Idle times with the names of their devices, and the causes. In a recording that has the numbers of devices for kernels alone, those of a
    /// process stand for them.
    pub(super) fn named_idle(&self) -> Vec<(String, &str, &CopyStat)> {
        let names: BTreeMap<&u64, String> = self.gpus.keys().zip(gpu_use::names(&self.gpus)).collect();
        let name = |number: &u64| names.get(number).cloned().unwrap_or_else(|| format!("GPU {number}"));
        self.idle.iter().map(|((number, cause), idle)| (name(number), &**cause, idle)).collect()
    }

    fn gpu_work(&mut self, record: &Record, span: &Span, kind: &str) {
        let took = Took { ns: span.duration_ns, self_ns: span.duration_ns, failed: false };
        match kind {
            "kernel" | "graph" => {
                let is_full = self.gpu_kernels.len() >= NAMES && !self.gpu_kernels.contains_key(&record.name);
                let name = if is_full { OTHERS.into() } else { record.name.clone() };
                self.gpu_kernels.entry(name).or_default().add(took);
                if let Some(Data::Text(range)) = record.field("range")
                    && !range.is_empty()
                {
                    let range = self.range(range);
                    range.kernels += 1;
                    add_to(&mut range.gpu_ns, span.duration_ns);
                }
                if let Some(stream) = record.gpu_stream() {
                    let end = record.time_ns + span.duration_ns;
                    self.use_gpu(record, stream.device, record.time_ns, end);
                }
            }
            "memcpy" => add_copy(&mut self.gpu_copies, record, span.duration_ns),
            "idle" => self.idle(record, span.duration_ns),
            _ => {}
        }
    }

    fn idle(&mut self, record: &Record, ns: u64) {
        let Some(stream) = record.gpu_stream() else { return };
        let cause = record.field("cause").map_or(String::new(), Data::label);
        if self.idle.len() < NAMES {
            let number = number_of_gpu(record, stream.device);
            let idle = self.idle.entry((number, cause.into())).or_default();
            idle.count += 1;
            add_to(&mut idle.ns, ns);
        }
    }

    fn use_gpu(&mut self, record: &Record, ordinal: u32, start: u64, end: u64) {
        let number = number_of_gpu(record, ordinal);
        if self.gpus.len() < DEVICES || self.gpus.contains_key(&number) {
            self.gpus.entry(number).or_insert_with(|| GpuUse::of(ordinal)).add(start, end);
        }
    }

    /// Frees the memory of a process that has ended.
    fn end_process(&mut self, record: &Record) {
        let Some(thread) = &record.thread else { return };
        let memory = &mut self.memory;
        self.blocks.retain(|(pid, _), (bytes, kind)| {
            if *pid == thread.pid {
                self.ended_with += 1;
                let memory = memory.entry(kind.clone()).or_default();
                memory.live = memory.live.saturating_sub(*bytes);
            }
            *pid != thread.pid
        });
    }

    /// Removes the nested calls of a completed call, and adds the call to its enclosing call. Calls are recorded
    /// when they return, so nested calls come first.
    fn nest(&mut self, record: &Record, span: &Span, is_call: bool) -> Took {
        let thread = record.thread.as_ref().map_or((0, 0), |thread| (thread.pid, thread.tid));
        let open = self.inside.entry(thread).or_default();
        let own = open.iter().position(|inside| inside.id == span.span_id).map(|at| open.remove(at));
        let own = own.unwrap_or_default();
        let failed = span.status == Status::Error;
        let mut failure = None;
        if failed && is_call {
            let result = span.result.as_ref().map_or(String::new(), Data::label);
            let key = (record.name.clone(), Arc::from(result));
            // The nested call failed for the same reason, so it is not counted separately.
            if let Some(count) = own.failure.and_then(|inner| self.errors.get_mut(&inner)) {
                *count -= 1;
            }
            *self.errors.entry(key.clone()).or_default() += 1;
            failure = Some(key);
        }
        if span.parent_id == 0 {
            // The remaining entries belong to calls whose records were lost.
            open.clear();
        } else {
            let around = match open.iter().position(|inside| inside.id == span.parent_id) {
                Some(at) => &mut open[at],
                None => {
                    // The first ones belong to calls whose records were lost.
                    if open.len() >= OPEN {
                        open.remove(0);
                    }
                    open.push(Inside { id: span.parent_id, ..Inside::default() });
                    open.last_mut().expect("it was pushed")
                }
            };
            add_to(&mut around.ns, span.duration_ns);
            around.failure = failure.or(around.failure.take());
        }
        Took { ns: span.duration_ns, self_ns: span.duration_ns.saturating_sub(own.ns), failed }
    }

    fn operation(&mut self, record: &Record, span: &Span, took: Took) {
        let number = |name: &str| bytes_of(record, name);
        let pid = record.thread.as_ref().map_or(0, |thread| thread.pid);
        let works = span.works();
        match operation(&record.site.api) {
            Some("launch") if is_graph(record) => self.graph_launches.add(took),
            Some("launch") => {
                let kernel = match record.field("kernel") {
                    Some(Data::Text(kernel)) => kernel.clone(),
                    _ => record.name.clone(),
                };
                self.kernels.entry(kernel).or_default().add(took);
            }
            Some("alloc") if works => {
                let (bytes, kind) = (number("bytes"), memory_kind(record));
                // The free of the previous block at this address was not recorded.
                self.free(pid, number("ptr"));
                self.blocks.insert((pid, number("ptr")), (bytes, kind.clone()));
                let memory = self.memory.entry(kind).or_default();
                memory.count += 1;
                let all = [&mut memory.bytes, &mut memory.live, &mut memory.left];
                all.into_iter().for_each(|total| add_to(total, bytes));
                add_to(&mut memory.ns, took.ns);
                memory.peak = memory.peak.max(memory.live);
            }
            Some("free") if works => {
                self.frees += 1;
                self.free(pid, number("ptr"));
            }
            Some("memcpy") if works => add_copy(&mut self.copies, record, took.ns),
            _ => {}
        }
    }

    fn free(&mut self, pid: u32, ptr: u64) {
        if let Some((bytes, kind)) = self.blocks.remove(&(pid, ptr)) {
            let memory = self.memory.entry(kind).or_default();
            memory.live = memory.live.saturating_sub(bytes);
            memory.left = memory.left.saturating_sub(bytes);
        }
    }

    /// Number of blocks that were never freed.
    pub fn leaked(&self) -> u64 {
        self.blocks.len() as u64 + self.ended_with
    }

    /// Number of successful kernel launches.
    pub fn launches(&self) -> u64 {
        sum(self.kernels.values().map(|stat| stat.count.saturating_sub(stat.errors)))
    }

    /// Number of failed kernel launches.
    pub fn failed_launches(&self) -> u64 {
        self.kernels.values().map(|stat| stat.errors).sum()
    }

    /// Number of failures, without duplicates for nested calls.
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Time from the first start to the last end in ns, without delays by the tracer.
    pub fn length_ns(&self) -> u64 {
        self.window.map_or(0, |(first, last)| (last - first).saturating_sub(self.waited_ns()))
    }

    /// Delays by the tracer between the first start and the last end, in ns.
    fn waited_ns(&self) -> u64 {
        let Some((first, _)) = self.window else { return 0 };
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let (mut waited, mut until) = (0, first);
        for (from, to) in waits {
            add_to(&mut waited, to.saturating_sub(from.max(until)));
            until = until.max(to);
        }
        waited
    }

    /// A few lines for the end of a run.
    pub fn short(&self) -> String {
        let mut lines = Lines::default();
        let threads = many(self.threads.len() as u64, "thread");
        let waited = match self.waited_ns() {
            0 => String::new(),
            ns => format!(" (without {} in which a thread waited for its probes)", time(ns)),
        };
        lines.add("time", format!("{}, {threads}{waited}", time(self.length_ns())));
        lines.add("API calls", format!("{} driver, {} runtime", self.calls.1, self.calls.0));
        let kernels = many(self.kernels.len() as u64, "kernel");
        let graphs = match self.graph_launches.count - self.graph_launches.errors {
            0 => String::new(),
            1 => "; 1 of a graph".into(),
            count => format!("; {count} of graphs"),
        };
        let failed = match self.failed_launches() {
            0 => String::new(),
            count => format!("; {count} failed"),
        };
        lines.add("launches", format!("{} of {kernels}{graphs}{failed}", self.launches()));
        lines.add("allocations", self.short_of_memory());
        lines.add("transfers", self.short_of_copies());
        self.short_of_gpus(&mut lines);
        self.short_of_errors(&mut lines);
        self.short_of_kernel(&mut lines);
        lines.0
    }

    fn short_of_memory(&self) -> String {
        let kind = |(kind, memory): (&Arc<str>, &Memory)| {
            let (kind, peak) = (escape(kind.as_bytes()), size(memory.peak));
            format!("{kind} {} in {} (at most {peak} at a time)", size(memory.bytes), memory.count)
        };
        let kinds: Vec<String> = self.memory.iter().map(kind).collect();
        let count: u64 = self.memory.values().map(|memory| memory.count).sum();
        let left = sum(self.memory.values().map(|memory| memory.left));
        let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        format!(
            "{count}{kinds}; {}, {} left ({})",
            many(self.frees, "free"),
            many(self.leaked(), "block"),
            size(left)
        )
    }

    fn short_of_copies(&self) -> String {
        let transfers: u64 = self.copies.values().map(|moved| moved.count).sum();
        let bytes = sum(self.copies.values().map(|moved| moved.bytes));
        let way = |(way, moved): (&Arc<str>, &CopyStat)| {
            format!("{} {} in {}", escape(way.as_bytes()), size(moved.bytes), moved.count)
        };
        let ways: Vec<String> = self.copies.iter().map(way).collect();
        let ways = if ways.is_empty() { String::new() } else { format!(": {}", ways.join(", ")) };
        format!("{transfers}, {}{ways}", size(bytes))
    }

    /// Lines on GPUs: their use, the kernels with the most time, the rates of copies.
    fn short_of_gpus(&self, lines: &mut Lines) {
        if self.gpu_kernels.is_empty() && self.gpu_copies.is_empty() {
            return;
        }
        let count = sum(self.gpu_kernels.values().map(|stat| stat.count));
        let ns = sum(self.gpu_kernels.values().map(|stat| stat.total_ns));
        let names = gpu_use::names(&self.gpus).into_iter();
        let used = names
            .zip(self.gpus.values())
            .map(|(name, used)| format!("; {name} busy for {} %", used.percent()));
        let used: String = used.collect();
        lines.add("on the GPU", format!("{} in {}{used}", many(count, "kernel"), time(ns)));
        let longest: Vec<_> = by_time(&self.gpu_kernels).into_iter().take(KERNELS).collect();
        let shares = units::shares_of(longest.iter().map(|(_, stat)| stat.total_ns), ns);
        for ((name, stat), percent) in longest.into_iter().zip(shares) {
            lines.row(name, format!("{:>8} {:>10} {percent:>4} %", stat.count, time(stat.total_ns)));
        }
        let mut idle = self.named_idle();
        idle.sort_by(|(one, _, most), (other, _, least)| one.cmp(other).then(least.ns.cmp(&most.ns)));
        for (device, cause, idle) in idle {
            let name = format!("{device} idle: {cause}");
            lines.row(&name, format!("{:>8} {:>10}", idle.count, time(idle.ns)));
        }
        for (way, moved) in &self.gpu_copies {
            let rate = u128::from(moved.bytes) * 1_000_000_000 / u128::from(moved.ns.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            lines.row(
                way,
                format!("{:>8} {:>10} {}, {}/s", moved.count, time(moved.ns), size(moved.bytes), size(rate)),
            );
        }
    }

    /// Errors, the most frequent first.
    fn short_of_errors(&self, lines: &mut Lines) {
        let apart = match self.after_shutdown {
            0 => String::new(),
            1 => "; 1 call came at exit, after the driver had shut down".into(),
            calls => format!("; {calls} calls came at exit, after the driver had shut down"),
        };
        lines.add("errors", format!("{}{apart}", self.failures()));
        let mut errors: Vec<_> = self.errors.iter().filter(|(_, count)| **count > 0).collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for ((func, result), count) in errors.iter().take(ERRORS) {
            lines.row(func, format!("{count:>8}  {}", escape(result.as_bytes())));
        }
        if errors.len() > ERRORS {
            lines.add("", format!("... and {} more", errors.len() - ERRORS));
        }
    }

    fn short_of_kernel(&self, lines: &mut Lines) {
        for (word, of_kind) in [("ioctls", &self.ioctls), ("kernel driver", &self.driver_functions)] {
            if of_kind.is_empty() {
                continue;
            }
            let count = sum(of_kind.values().map(|stat| stat.count));
            let ns = sum(of_kind.values().map(|stat| stat.total_ns));
            lines.add(word, format!("{count}, {}", time(ns)));
            for (name, stat) in by_time(of_kind) {
                lines.row(name, format!("{:>8} {:>10}", stat.count, time(stat.total_ns)));
            }
        }
    }
}

/// Lines with a label in front.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, word: &str, text: String) {
        let _ = writeln!(self.0, "{word:<13} {text}");
    }

    /// A line that continues the previous one, with a name from the traced program.
    fn row(&mut self, name: &str, text: String) {
        self.add("", format!("{:<34} {text}", escape(cut(name, 34).as_bytes())));
    }
}

/// The kind of memory that a call allocates.
pub fn memory_kind(record: &Record) -> Arc<str> {
    match record.field("kind") {
        Some(Data::Text(kind)) => kind.clone(),
        Some(kind) => kind.label().into(),
        None => "memory".into(),
    }
}

/// `1 block`, `2 blocks`
fn many(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Sorts by total time, largest first, then by name.
pub fn by_time<'m>(stats: impl IntoIterator<Item = (&'m Arc<str>, &'m Stat)>) -> Vec<(&'m str, &'m Stat)> {
    let mut all: Vec<_> = stats.into_iter().map(|(name, stat)| (&**name, stat)).collect();
    all.sort_by(|a, b| b.1.total_ns.cmp(&a.1.total_ns).then(a.0.cmp(b.0)));
    all
}

/// Shortens a text to `most` characters, with `…` in its middle.
pub fn cut(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return text.to_owned();
    }
    let head = (most - 1) * 2 / 3;
    let tail = most - 1 - head;
    let end: String = chars[chars.len() - tail..].iter().collect();
    chars[..head].iter().collect::<String>() + "…" + &end
}

/// `950 ns`, `12.3 ms`
pub fn time(ns: u64) -> String {
    units::time(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// `512 B`, `4.7 MiB`
pub fn size(bytes: u64) -> String {
    units::size(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Site;

    #[test]
    fn buckets_tile_all_durations() {
        let ends: Vec<u64> = (0..=bucket(u64::MAX)).map(bucket_end).collect();
        assert_eq!(ends.last(), Some(&u64::MAX));
        for (at, end) in ends.iter().enumerate() {
            assert_eq!(bucket(*end), at, "{end}");
            assert_eq!(bucket(end.saturating_add(1)), (at + 1).min(ends.len() - 1), "{end}");
        }
    }

    #[test]
    fn percentiles_are_off_by_a_sixteenth_at_most() {
        let mut stat = Stat::default();
        (1..=10_000).for_each(|ns| stat.add(Took { ns: ns * 1000, self_ns: 0, failed: false }));
        for (percent, exact) in [(50, 5_000_000), (99, 9_900_000), (100, 10_000_000)] {
            let found = stat.percentile_ns(percent);
            assert!((exact..=exact + exact / 16).contains(&found), "{percent} %: {found}");
        }
        assert_eq!(stat.powers().iter().sum::<u64>(), 10_000);
    }

    /// Work of a device 0 with these values.
    fn work(probe: &str, values: &[(&str, Data)]) -> Record {
        let mut record = crate::testing::gpu_kernel("add", 100, 50);
        record.site = Site { probe: probe.into(), ..Site::default() }.into();
        record.fields = values.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        record
    }

    fn summary_of(records: &[Record]) -> Summary {
        let mut summary = Summary::default();
        for record in records {
            summary.add(record);
        }
        summary
    }

    fn names_of_idle(summary: &Summary) -> Vec<String> {
        summary.named_idle().into_iter().map(|(device, cause, _)| format!("{device}: {cause}")).collect()
    }

    #[test]
    fn idle_times_are_those_of_a_device_as_it_is_known() {
        let of = |gpu: u64| ("gpu", Data::Uint(gpu));
        let cause = || ("cause", Data::Text("host_late".into()));
        let both =
            [0xa, 0xb].map(|gpu| [work("gpu:kernel", &[of(gpu)]), work("gpu:idle", &[of(gpu), cause()])]);
        assert_eq!(
            names_of_idle(&summary_of(&both.concat())),
            ["GPU 0 (00000000000a): host_late", "GPU 0 (00000000000b): host_late"]
        );
        // Recordings of earlier versions have the numbers of kernels alone.
        let earlier = [work("gpu:kernel", &[of(0xa)]), work("gpu:idle", &[cause()])];
        let summary = summary_of(&earlier);
        assert_eq!(names_of_idle(&summary), ["GPU 0: host_late"]);
        assert_eq!(summary.gpus.len(), 1, "no device without kernels");
    }
}
