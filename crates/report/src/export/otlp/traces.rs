//! The trace of each span, and whether the trace is sampled.
//!
//! A process that runs for days must not be one trace: backends accept a few megabytes per trace, and samplers decide per trace. A
//! process therefore starts a new trace at intervals. Each trace has a root span, which links to the previous root.
//!
//! ```text
//! python3 (root)  10 s        python3 (root)  10 s
//!   cudaMalloc                  cudaLaunchKernel   -> links to the first root
//!     cuMemAlloc_v2               cuLaunchKernel
//! ```
//!
//! Records arrive when calls return, inner calls first. A thread stays in its trace until its outermost call has returned, so that
//! a call and its nested calls are in one trace.

use std::collections::HashMap;
use std::sync::Arc;

use crate::export::{Kind, Record, Run};

/// Number of spans after which the next trace begins: 512 spans of `record` are 120 KB, and Tempo accepts 5 MB per
/// trace.
const SPANS: u64 = 10_000;
/// Largest number of processes whose last root is kept.
const PROCESSES: usize = 4096;

/// Condition for starting another trace of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Per {
    /// After this number of ns, or [`SPANS`] spans.
    Interval(u64),
    /// At an event with this name, or after [`SPANS`] spans.
    Event(Arc<str>),
    /// Never.
    Process,
}

impl Default for Per {
    fn default() -> Per {
        Per::Interval(10_000_000_000)
    }
}

/// Selection of the traces that are sent: the samplers of OpenTelemetry's `OTEL_TRACES_SAMPLER`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sampler {
    /// Fraction of traces that are sent.
    pub ratio: f64,
    /// True if the decision of the parent trace applies, if there is one.
    pub parent_based: bool,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { ratio: 1.0, parent_based: true }
    }
}

impl Sampler {
    /// The sampler with a name and its argument.
    ///
    /// # Errors
    /// There is no such sampler, or the argument is not a fraction.
    pub fn named(name: &str, argument: Option<&str>) -> Result<Sampler, String> {
        let (parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => match argument.map_or(Ok(1.0), str::parse::<f64>) {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
                _ => {
                    return Err(format!(
                        "OTEL_TRACES_SAMPLER_ARG={}: expected 0 to 1",
                        argument.unwrap_or_default()
                    ));
                }
            },
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER={name}: expected always_on, always_off, traceidratio, parentbased_always_on, \
                     parentbased_always_off or parentbased_traceidratio"
                ));
            }
        };
        Ok(Sampler { ratio, parent_based })
    }

    /// Decides as OpenTelemetry's samplers do, by the lower half of the id, so that all senders select the same
    /// traces.
    fn takes(self, trace_id: u128, parent: Option<Parent>) -> bool {
        match parent {
            Some(parent) if self.parent_based => parent.sampled,
            _ => ((trace_id as u64 >> 1) as f64) < self.ratio * (1u64 << 63) as f64,
        }
    }
}

/// The parent span of the run: `TRACEPARENT`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

impl Parent {
    /// Parses `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`, as defined by W3C Trace Context.
    pub fn parse(traceparent: &str) -> Option<Parent> {
        let mut parts = traceparent.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 != 0;
        Some(Parent { trace_id, span_id, sampled })
    }
}

/// A span of another trace: ids of the trace and of the span.
pub type Link = (u128, u64);

/// The trace of a span.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Id of the trace.
    pub id: u128,
    /// Id of its root span.
    pub root: u64,
    /// True if it is sent.
    pub sampled: bool,
    /// Wall-clock time of the boot in ns since 1970. All spans of a trace have one, so that calls in a call lie within it.
    pub boot_at_wall_ns: i128,
}

impl Trace {
    /// Wall-clock time of a boot-clock time, in ns since 1970.
    pub fn wall_ns(&self, boot_ns: u64) -> u64 {
        (self.boot_at_wall_ns + i128::from(boot_ns)).max(0) as u64
    }
}

/// A completed root span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Process id.
    pub pid: u32,
    /// File name of the process's program.
    pub program: Arc<str>,
    /// Trace.
    pub trace: Trace,
    /// Id of the parent; 0 if there is none.
    pub parent_id: u64,
    /// Spans of other traces that it is linked to.
    pub links: Vec<Link>,
    /// Start, boot-clock ns.
    pub start_ns: u64,
    /// End, boot-clock ns.
    pub end_ns: u64,
    /// Number of spans below it.
    pub spans: u64,
}

/// Assignment of spans to traces; see the module documentation.
pub struct Traces {
    run: Arc<Run>,
    per: Per,
    sampler: Sampler,
    parent: Option<Parent>,
    /// Wall-clock time of the boot for traces that begin now.
    boot_at_wall_ns: i128,
    /// Current trace of each process.
    current: HashMap<u32, Root>,
    /// Last root of processes whose trace has ended.
    last: HashMap<u32, Link>,
    /// For threads inside a call: the trace of the nested spans, and their number.
    inside: HashMap<(u32, u32), (Trace, u64)>,
}

impl Traces {
    /// Creates the state for a run.
    pub fn new(run: Arc<Run>, per: Per, sampler: Sampler, parent: Option<Parent>) -> Traces {
        let (current, last, inside) = Default::default();
        let boot_at_wall_ns = run.boot_at_wall_ns;
        Traces { run, per, sampler, parent, boot_at_wall_ns, current, last, inside }
    }

    /// Sets the wall-clock time of the boot after a step of the wall clock. The traces end, and their roots are returned.
    pub fn set_boot_at_wall(&mut self, boot_at_wall_ns: i128) -> Vec<Root> {
        if boot_at_wall_ns == self.boot_at_wall_ns {
            return Vec::new();
        }
        self.boot_at_wall_ns = boot_at_wall_ns;
        let mut all: Vec<u32> = self.current.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().filter_map(|pid| self.end(pid)).collect()
    }

    /// The trace of a span or an instant, and the root of the previous trace if this record ends it.
    pub fn assign(&mut self, record: &Record, parent_id: u64) -> (Trace, Option<Root>) {
        let (pid, tid) = record.thread.as_ref().map_or((0, 0), |thread| (thread.pid, thread.tid));
        let ended = self.is_over(pid, record).then(|| self.end(pid)).flatten();
        let current = match self.current.get_mut(&pid) {
            Some(current) => current,
            None => {
                let root = self.begin(pid, record);
                self.current.entry(pid).or_insert(root)
            }
        };
        let trace = match self.inside.get_mut(&(pid, tid)) {
            Some((trace, spans)) => {
                *spans += 1;
                *trace
            }
            None => current.trace,
        };
        if parent_id == 0 {
            self.inside.remove(&(pid, tid));
        } else {
            let (_, spans) = self.inside.entry((pid, tid)).or_insert((trace, 1));
            // The outermost call of these spans is never recorded.
            if *spans >= SPANS {
                self.inside.remove(&(pid, tid));
            }
        }
        if trace == current.trace {
            current.spans += 1;
            current.start_ns = current.start_ns.min(record.time_ns);
            current.end_ns = current.end_ns.max(record.time_ns + record.duration_ns());
        }
        (trace, ended)
    }

    fn is_over(&self, pid: u32, record: &Record) -> bool {
        let Some(current) = self.current.get(&pid) else { return false };
        let is_full = current.spans >= SPANS;
        match &self.per {
            Per::Interval(ns) => is_full || record.time_ns >= current.start_ns.saturating_add(*ns),
            Per::Event(name) => {
                is_full || matches!(record.kind, Kind::Instant { .. }) && *record.name == **name
            }
            Per::Process => false,
        }
    }

    fn begin(&self, pid: u32, record: &Record) -> Root {
        let (start_ns, before) = (record.time_ns, self.last.get(&pid).copied());
        let around = self.parent.filter(|_| before.is_none());
        let part = |which: u32| self.run.span_id(pid, which, start_ns);
        let id = around.map_or(u128::from(part(0)) << 64 | u128::from(part(1)), |parent| parent.trace_id);
        let above = self.parent.filter(|_| before.is_some()).map(|parent| (parent.trace_id, parent.span_id));
        Root {
            pid,
            program: record.thread.as_ref().map_or_else(|| "".into(), |thread| thread.program.clone()),
            trace: Trace {
                id,
                root: part(u32::MAX),
                sampled: self.sampler.takes(id, self.parent),
                boot_at_wall_ns: self.boot_at_wall_ns,
            },
            parent_id: around.map_or(0, |parent| parent.span_id),
            links: above.into_iter().chain(before).collect(),
            start_ns,
            end_ns: start_ns,
            spans: 0,
        }
    }

    fn end(&mut self, pid: u32) -> Option<Root> {
        let root = self.current.remove(&pid)?;
        if self.last.len() >= PROCESSES {
            self.last.clear();
        }
        self.last.insert(pid, (root.trace.id, root.trace.root));
        Some(root)
    }

    /// The roots of traces that are over at a boot-clock time without a further record; at the end the roots of
    /// all traces.
    pub fn over(&mut self, now_ns: u64) -> Vec<Root> {
        let is_over = |root: &Root| match &self.per {
            Per::Interval(ns) => now_ns >= root.start_ns.saturating_add(*ns),
            Per::Event(_) | Per::Process => now_ns == u64::MAX,
        };
        let mut over: Vec<u32> =
            self.current.iter().filter(|(_, root)| is_over(root)).map(|(pid, _)| *pid).collect();
        over.sort_unstable();
        over.into_iter().filter_map(|pid| self.end(pid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{Fields, Span, Status, Thread};

    fn call(time_ns: u64, duration_ns: u64, (span_id, parent_id): (u64, u64)) -> Record {
        let span = Span { duration_ns, span_id, parent_id, status: Status::Ok, result: None, launch_id: 0 };
        let thread = Thread { pid: 7, tid: 7, comm: "a".into(), program: "app".into() };
        Record {
            kind: Kind::Span(span),
            time_ns,
            thread: Some(thread.into()),
            site: Arc::default(),
            name: "f".into(),
            fields: Fields::default(),
        }
    }

    fn traces(per: Per, parent: Option<&str>) -> Traces {
        let parent = parent.map(|parent| Parent::parse(parent).unwrap());
        Traces::new(Arc::new(Run { id: 5, ..Run::default() }), per, Sampler::default(), parent)
    }

    #[test]
    fn a_call_and_the_calls_in_it_are_in_one_trace_and_the_next_one_links_back() {
        let mut traces = traces(Per::Interval(100), None);
        let (first, _) = traces.assign(&call(0, 1, (1, 0)), 0);
        let (inner, _) = traces.assign(&call(99, 1, (2, 3)), 3);
        // The interval is over, but the thread is inside a call.
        let (late, ended) = traces.assign(&call(101, 1, (4, 3)), 3);
        let (outer, _) = traces.assign(&call(98, 10, (3, 0)), 0);
        assert!(first == inner && inner == late && late == outer);
        let root = ended.unwrap();
        assert_eq!((root.trace, root.spans, root.start_ns, root.end_ns), (first, 2, 0, 100));
        let (next, _) = traces.assign(&call(110, 1, (5, 0)), 0);
        assert!(next.id != first.id);
        let roots = traces.over(u64::MAX);
        assert_eq!((roots.len(), &roots[0].links), (1, &vec![(first.id, first.root)]));
    }

    #[test]
    fn the_trace_around_the_run_has_the_first_one_and_links_go_to_it() {
        let around = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut traces = traces(Per::Interval(100), Some(around));
        let (first, _) = traces.assign(&call(0, 1, (1, 0)), 0);
        let (next, ended) = traces.assign(&call(200, 1, (2, 0)), 0);
        assert_eq!(first.id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(ended.unwrap().parent_id, 0xb7ad_6b71_6920_3331);
        assert_ne!(next.id, first.id);
        let links = &traces.over(u64::MAX)[0].links;
        assert_eq!(links, &[(first.id, 0xb7ad_6b71_6920_3331), (first.id, first.root)]);
    }

    #[test]
    fn a_trace_ends_by_its_time_though_nothing_more_comes() {
        let mut traces = traces(Per::Interval(100), None);
        let (first, _) = traces.assign(&call(10, 1, (1, 0)), 0);
        assert!(traces.over(109).is_empty());
        assert_eq!(traces.over(110)[0].trace, first);
        assert!(traces.over(u64::MAX).is_empty(), "it has ended once");
    }

    #[test]
    fn an_event_of_the_script_begins_a_trace() {
        let mut traces = traces(Per::Event("step".into()), None);
        let step = Record { kind: Kind::Instant { parent_id: 0 }, name: "step".into(), ..call(5, 0, (0, 0)) };
        let ids: Vec<u128> = [call(0, 1, (1, 0)), step, call(6, 1, (2, 0))]
            .iter()
            .map(|record| traces.assign(record, 0).0.id)
            .collect();
        assert!(ids[0] != ids[1] && ids[1] == ids[2]);
    }

    #[test]
    fn samplers_have_the_names_of_the_specification() {
        let around = |flags: &str| Parent::parse(&format!("00-{:032x}-{:016x}-{flags}", 1, 1));
        let named = |name: &str, argument| Sampler::named(name, argument).unwrap();
        let (low, high) = (1u128, u128::from(u64::MAX));
        assert!(
            named("always_on", None).takes(low, around("00")) && !named("always_off", None).takes(low, None)
        );
        let half = named("traceidratio", Some("0.5"));
        assert!(half.takes(low, None) && !half.takes(high, None));
        assert!(!Sampler::default().takes(low, around("00")) && Sampler::default().takes(high, around("01")));
        assert!(named("parentbased_traceidratio", Some("0.0")).takes(low, around("01")));
        assert!(!named("parentbased_always_off", None).takes(low, None));
        assert!(Sampler::named("jaeger_remote", None).unwrap_err().contains("expected always_on"));
        assert!(Sampler::named("traceidratio", Some("2")).is_err());
    }

    #[test]
    fn invalid_trace_contexts_are_refused() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(Parent::parse(good).is_some());
        let zero = good.replace("b7ad6b7169203331", "0000000000000000");
        for bad in ["", "00-0-1-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", &zero] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }
}
