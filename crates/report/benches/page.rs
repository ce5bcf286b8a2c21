//! Time, memory and size of a page with many spans, which is written to a file for measurements in a browser.
//!
//! ```text
//! cargo bench -p cudatrace-report --bench page -- 10000000 /tmp/page.html
//! ```
//!
//! The spans are those of a training job: threads whose runtime calls have driver calls in them, kernels and copies on streams with
//! the launches that they belong to, allocations, a counter, and now and then a failure. The numbers are the same in each run.

use report::export::{Data, Fields, GpuStream, Kind, Record, Run, Site, Span, Status, Thread};
use report::recording::page::Page;
use report::recording::summary::Summary;
use report::recording::{Recording, RecordingEnd};
use std::sync::Arc;
use std::time::Instant;

const THREADS: u32 = 8;
const STREAMS: u32 = 4;
const KERNELS: u64 = 60;

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let spans: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(100_000);
    let path = words.next();
    let (mut page, mut summary, mut job) = (Page::default(), Summary::default(), Job::new());
    let begin = Instant::now();
    while summary.spans < spans {
        job.iteration(&mut |record| {
            summary.add(&record);
            page.add(&record);
        });
    }
    let added = begin.elapsed();
    let recording = Recording {
        run: job.run(),
        ended: RecordingEnd::Whole { dropped: 0, goes_on: false },
        ..Recording::default()
    };
    let html = page.html("job.arrows", &recording, &summary);
    let total = begin.elapsed();
    println!("{} spans: {added:.2?} to add, {:.2?} to write", summary.spans, total - added);
    println!("{} bytes, {:.2} of a span", html.len(), html.len() as f64 / summary.spans as f64);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    if let Some(path) = path {
        std::fs::write(&path, html).expect("the page can be written");
    }
}

/// A job that runs, one iteration of a thread after the other.
struct Job {
    random: u64,
    /// Time of each thread, and end of the work of each stream.
    threads: Vec<u64>,
    streams: Vec<u64>,
    corr: u64,
    iterations: u64,
    live: Vec<u64>,
    texts: Vec<Arc<str>>,
}

const START: u64 = 1_000_000_000_000;

impl Job {
    fn new() -> Job {
        let kernel = |at: u64| {
            Arc::from(format!(
                "void at::native::vectorized_elementwise_kernel<{at}, float>(int, Functor{at})"
            ))
        };
        Job {
            random: 1,
            threads: (0..THREADS).map(|at| START + u64::from(at) * 10_000).collect(),
            streams: vec![START; STREAMS as usize],
            corr: 0,
            iterations: 0,
            live: Vec::new(),
            texts: (0..KERNELS).map(kernel).collect(),
        }
    }

    fn run(&self) -> Run {
        let command = vec!["python3".into(), "train.py".into()];
        Run { start_ns: START, tool: "cudatrace".into(), host: "node1".into(), command, ..Run::default() }
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn iteration(&mut self, each: &mut dyn FnMut(Record)) {
        self.iterations += 1;
        let thread = self.below(THREADS.into()) as u32;
        match self.below(20) {
            0 => self.allocate(thread, each),
            1 => self.wait(thread, each),
            2 => self.launch(thread, true, each),
            _ => self.launch(thread, false, each),
        }
        // Phases without work, as between the steps of a training.
        if self.iterations.is_multiple_of(4000) {
            let latest = self.threads.iter().chain(&self.streams).copied().max().unwrap_or(0) + 30_000_000;
            self.threads.iter_mut().for_each(|time| *time = latest);
        }
    }

    /// A runtime call with the driver's call in it, and the work.
    fn launch(&mut self, thread: u32, is_copy: bool, each: &mut dyn FnMut(Record)) {
        self.corr += 1;
        let (gap, inner, outer) = (self.below(6000), 2000 + self.below(3000), 500 + self.below(800));
        let start = self.threads[thread as usize] + gap;
        let (one, other) = (self.below(STREAMS.into()), self.below(STREAMS.into()));
        let stream = one.min(other);
        let corr = ("corr", Data::Uint(self.corr));
        let (name, func) = if is_copy {
            (Arc::from("Memcpy HtoD"), "cuMemcpyHtoDAsync_v2")
        } else {
            let (one, other) = (self.below(KERNELS), self.below(KERNELS));
            (self.texts[one.min(other) as usize].clone(), "cuLaunchKernel")
        };
        let bytes = 4096 << self.below(12);
        let grid = ["x", "y", "z"]
            .map(|name| (Arc::from(name), Data::Uint(if name == "x" { 1 << self.below(8) } else { 1 })));
        let stream_field = ("stream", Data::Handle(0x5500_0000_0000 + stream * 0x1000));
        let fields = match is_copy {
            true => vec![
                ("bytes", Data::Uint(bytes)),
                ("direction", Data::Text("HtoD".into())),
                stream_field,
                corr.clone(),
            ],
            false => vec![
                ("kernel", Data::Text(name.clone())),
                ("grid", Data::Map(grid.to_vec())),
                ("block", Data::Text("(256,1,1)".into())),
                ("shared", Data::Uint(0)),
                stream_field,
                corr.clone(),
            ],
        };
        // Launches into a stream that is captured have no work.
        let is_captured = self.below(500) == 0;
        let parent = span_id(thread, start);
        let (within, failed) = ((start + outer / 2, inner), self.below(5000) == 0);
        let id = call(each, thread, func, within, &fields, failed, parent);
        let runtime = if is_copy { "cudaMemcpyAsync" } else { "cudaLaunchKernel" };
        call(each, thread, runtime, (start, inner + outer), &[], false, 0);
        self.threads[thread as usize] = start + inner + outer;
        if is_captured {
            return;
        }
        let most = 1 << self.below(14);
        let duration = if is_copy { 1000 + bytes / 20 } else { 1500 + self.below(most) * 4 };
        let begin = self.streams[stream as usize].max(start + inner + 1000 + self.below(2000));
        self.streams[stream as usize] = begin + duration;
        // Launches wait if the queue of the stream is full.
        if begin > self.threads[thread as usize] + 2_000_000 {
            self.threads[thread as usize] = begin - 1_000_000;
        }
        let mut fields = vec![
            ("device", Data::Uint(0)),
            ("stream", Data::Uint(stream + 7)),
            corr,
            ("context", Data::Uint(1)),
        ];
        match is_copy {
            true => fields.push(("bytes", Data::Uint(bytes))),
            false => fields.extend([
                ("gpu", Data::Uint(0xabcd_1234)),
                ("registers", Data::Uint(32)),
                ("graph", Data::Uint(0)),
            ]),
        }
        work(each, stream as u32 + 7, &name, is_copy, (begin, duration), id, &fields);
    }

    fn allocate(&mut self, thread: u32, each: &mut dyn FnMut(Record)) {
        let start = self.threads[thread as usize] + self.below(2000);
        let duration = 3000 + self.below(100_000);
        self.threads[thread as usize] = start + duration;
        if self.live.len() > 50 && self.below(2) == 0 {
            let at = self.below(self.live.len() as u64) as usize;
            let ptr = self.live.swap_remove(at);
            _ = call(
                each,
                thread,
                "cuMemFree_v2",
                (start, duration),
                &[("ptr", Data::Handle(ptr))],
                false,
                0,
            );
            return;
        }
        let ptr = 0x7f00_0000_0000 + self.below(1 << 24) * 512;
        self.live.push(ptr);
        let bytes = 512 << self.below(16);
        let fields =
            [("bytes", Data::Uint(bytes)), ("ptr", Data::Handle(ptr)), ("kind", Data::Text("device".into()))];
        call(each, thread, "cuMemAlloc_v2", (start, duration), &fields, false, 0);
        let value = Data::Uint(self.live.len() as u64);
        each(Record { kind: Kind::Counter { value }, ..record(thread, "live blocks", start + duration) });
    }

    fn wait(&mut self, thread: u32, each: &mut dyn FnMut(Record)) {
        let start = self.threads[thread as usize] + 500;
        let until = self.streams[0].max(start + 1000);
        call(each, thread, "cuStreamSynchronize", (start, until - start), &[], false, 0);
        self.threads[thread as usize] = until;
    }
}

fn record(thread: u32, name: &str, time_ns: u64) -> Record {
    let site = Site { func: name.into(), api: name.trim_end_matches("_v2").into(), probe: "".into() };
    let (comm, program) = (Arc::from("python3"), Arc::from("python3"));
    Record {
        kind: Kind::Instant { parent_id: 0 },
        time_ns,
        thread: Some(Arc::new(Thread { pid: 4242, tid: 4242 + thread, comm, program })),
        site: Arc::new(site),
        name: name.into(),
        fields: Fields::default(),
    }
}

fn fields_of(fields: &[(&str, Data)]) -> Fields {
    fields.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect()
}

fn span_id(thread: u32, start: u64) -> u64 {
    start * 8 + u64::from(thread)
}

fn call(
    each: &mut dyn FnMut(Record),
    thread: u32,
    name: &str,
    (start, duration_ns): (u64, u64),
    fields: &[(&str, Data)],
    failed: bool,
    parent_id: u64,
) -> u64 {
    let span_id = span_id(thread, start);
    let status = if failed { Status::Error } else { Status::Ok };
    let result = failed.then(|| Data::Text("CUDA_ERROR_LAUNCH_FAILED".into()));
    let kind = Kind::Span(Span { duration_ns, span_id, parent_id, status, result, launch_id: 0 });
    each(Record { kind, fields: fields_of(fields), ..record(thread, name, start) });
    span_id
}

fn work(
    each: &mut dyn FnMut(Record),
    stream: u32,
    name: &Arc<str>,
    is_copy: bool,
    (start, duration_ns): (u64, u64),
    launch_id: u64,
    fields: &[(&str, Data)],
) {
    let stream = GpuStream { device: 0, stream };
    let span =
        Span { duration_ns, span_id: start, parent_id: 0, status: Status::Unset, result: None, launch_id };
    let site = Site { probe: if is_copy { "gpu:memcpy" } else { "gpu:kernel" }.into(), ..Site::default() };
    let thread =
        Thread { pid: 4242, tid: stream.tid(), comm: stream.to_string().into(), program: "python3".into() };
    each(Record {
        kind: Kind::Span(span),
        time_ns: start,
        thread: Some(Arc::new(thread)),
        site: Arc::new(site),
        name: name.clone(),
        fields: fields_of(fields),
    });
}
