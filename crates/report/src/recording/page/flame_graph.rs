//! The tree of the recorded stacks, with what weighs on each frame: time of calls, time on the GPU, allocated bytes.
//!
//! A call is a node below the innermost frame of its stack, and a kernel is one below the call that launched it. So records of the GPU
//! have the stack of their launch.

use super::texts::Texts;
use crate::Frame;
use crate::export::recent::{LAUNCHES, Recent};
use crate::export::{Data, Record, Span, json};
use crate::recording::summary::operation;
use foldhash::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Largest number of nodes; what needs more is added to one node.
const NODES: usize = 1 << 16;
/// Stacks that are found again by their address in memory.
const STACKS: usize = 1 << 14;
/// The root, which is below no other node.
const ROOT: u32 = 0;
/// Frame of the stacks that have no room.
const OTHERS: &str = "[other stacks]";

/// Weights of a node without those below it.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    host_ns: u64,
    gpu_ns: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Node {
    parent: u32,
    frame: u32,
    own: Weights,
}

/// The tree.
#[derive(Debug, Default)]
pub(super) struct FlameGraph {
    frames: Texts,
    /// A node comes after its parent.
    nodes: Vec<Node>,
    /// Nodes by parent and frame.
    places: HashMap<(u32, u32), u32>,
    /// Nodes of the innermost frames of stacks. Each stack is kept, so that its address is not that of another one.
    stacks: HashMap<usize, (Arc<[Frame]>, u32)>,
    /// Nodes of calls that launched work, by their ids; `None` for those without a stack.
    launches: Recent<u64, Option<u32>, LAUNCHES>,
    /// Time of work by the id of its launch, which has not come yet, and its name: a call returns after its work has begun. At most
    /// [`LAUNCHES`].
    waiting: HashMap<u64, HashMap<Arc<str>, u64>>,
}

impl FlameGraph {
    /// Adds a span.
    pub(super) fn add(&mut self, record: &Record) {
        match (record.gpu_kind(), record.launch()) {
            (Some("kernel" | "memcpy" | "memset"), Some(launch)) => {
                self.work(launch, &record.name, record.duration_ns());
            }
            (Some(_), _) => {}
            (None, launch) => self.call(record, launch),
        }
    }

    fn call(&mut self, record: &Record, launch: Option<u64>) {
        let stack = record.fields.values().iter().find_map(|value| match value {
            Data::Stack(frames) => Some(frames),
            _ => None,
        });
        let node = stack.map(|stack| {
            let innermost = self.innermost(stack);
            self.below(innermost, &record.name)
        });
        if let Some(launch) = launch {
            self.launches.insert(launch, node);
            let work = self.waiting.remove(&launch).unwrap_or_default();
            work.iter().for_each(|(name, ns)| self.work(launch, name, *ns));
        }
        let Some(node) = node else { return };
        let own = &mut self.nodes[node as usize].own;
        own.host_ns = own.host_ns.saturating_add(record.duration_ns());
        if record.span().is_some_and(Span::works) && operation(&record.site.api) == Some("alloc") {
            let bytes =
                record.field("bytes").and_then(Data::number).and_then(|bytes| u64::try_from(bytes).ok());
            own.bytes = own.bytes.saturating_add(bytes.unwrap_or(0));
        }
    }

    fn work(&mut self, launch: u64, name: &Arc<str>, ns: u64) {
        let Some(call) = self.launches.get(&launch) else {
            if self.waiting.len() >= LAUNCHES {
                self.waiting.clear();
            }
            let ns_of = self.waiting.entry(launch).or_default().entry(name.clone()).or_default();
            *ns_of = ns_of.saturating_add(ns);
            return;
        };
        let Some(call) = call else { return };
        let node = self.below(call, name);
        let own = &mut self.nodes[node as usize].own;
        own.gpu_ns = own.gpu_ns.saturating_add(ns);
    }

    /// The node of the innermost frame of a stack.
    fn innermost(&mut self, stack: &Arc<[Frame]>) -> u32 {
        let address = stack.as_ptr().addr();
        if let Some((_, node)) = self.stacks.get(&address) {
            return *node;
        }
        if self.nodes.is_empty() {
            let frame = self.frames.number_of("all");
            self.nodes.push(Node { parent: ROOT, frame, own: Weights::default() });
        }
        let node = stack.iter().rev().fold(ROOT, |node, frame| self.below(node, &frame.label()));
        if self.stacks.len() >= STACKS {
            self.stacks.clear();
        }
        self.stacks.insert(address, (stack.clone(), node));
        node
    }

    /// The node of a frame below another one.
    fn below(&mut self, parent: u32, frame: &str) -> u32 {
        let known = |parent, frame: &str| self.places.get(&(parent, self.frames.known(frame)?)).copied();
        if let Some(node) = known(parent, frame) {
            return node;
        }
        if self.nodes.len() >= NODES {
            return known(ROOT, OTHERS).unwrap_or(ROOT);
        }
        // The last node is for all that has no room.
        let (parent, frame) = if self.nodes.len() + 1 == NODES { (ROOT, OTHERS) } else { (parent, frame) };
        let frame = self.frames.number_of(frame);
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { parent, frame, own: Weights::default() });
        self.places.insert((parent, frame), node);
        node
    }

    /// Appends the number of frames, and the nodes: parent, frame and weights of each.
    pub(super) fn header(&self, out: &mut String) {
        let _ = write!(out, ",\"frames\":{},\"nodes\":", self.frames.len());
        json::list(out, self.nodes.iter(), |out, node| {
            let Weights { host_ns, gpu_ns, bytes } = node.own;
            let _ = write!(out, "[{},{},{host_ns},{gpu_ns},{bytes}]", node.parent, node.frame);
        });
    }

    /// The column of the frames' names.
    pub(super) fn columns(&self, mut write: impl FnMut(&str, &[u8])) {
        write("frames", &self.frames.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, with};
    use super::*;
    use crate::export::{Kind, Site};

    fn stack(frames: &[&str]) -> (&'static str, Data) {
        let frame = |name: &&str| Frame { symbol: Some((*name).into()), ..Frame::default() };
        ("stack", Data::Stack(frames.iter().map(frame).collect()))
    }

    /// Nodes as `parent/frame host gpu bytes`.
    fn nodes(graph: &FlameGraph) -> Vec<String> {
        let mut out = String::new();
        graph.header(&mut out);
        let (_, nodes) = out.split_once("\"nodes\":").expect("it is written");
        let nodes: Vec<[u64; 5]> = serde_json::from_str(nodes).expect("JSON");
        let bytes = graph.frames.bytes();
        let (lengths, text) = super::super::columns::tests::values(&bytes, graph.frames.len());
        let begin = |frame: u64| lengths[..frame as usize].iter().sum::<u64>() as usize;
        let name = |frame: u64| std::str::from_utf8(&text[begin(frame)..begin(frame + 1)]).expect("a text");
        let node = |[parent, frame, host, gpu, bytes]: &[u64; 5]| {
            format!("{parent}/{} {host} {gpu} {bytes}", name(*frame))
        };
        nodes.iter().map(node).collect()
    }

    fn site(mut record: Record, api: &str, probe: &str) -> Record {
        record.site = Arc::new(Site { api: api.into(), probe: probe.into(), ..Site::default() });
        record
    }

    #[test]
    fn equal_frames_are_one_node_and_work_is_below_its_launch() {
        let mut graph = FlameGraph::default();
        graph.add(&call("cuInit", 1, 5));
        assert_eq!(nodes(&graph), [""; 0]);
        let corr = ("corr", Data::Uint(1));
        let launch = with(call("cuLaunchKernel", 10, 5), &[stack(&["step", "main"]), corr]);
        let mut work = site(call("fill", 20, 100), "", "gpu:kernel");
        let Kind::Span(span) = &mut work.kind else { unreachable!() };
        span.launch_id = launch.span().expect("a call").span_id;
        // The work comes before its launch, and after it.
        [&work, &launch, &work].into_iter().for_each(|record| graph.add(record));
        let bytes = ("bytes", Data::Uint(4096));
        graph.add(&site(with(call("cuMemAlloc", 30, 2), &[stack(&["main"]), bytes]), "cuMemAlloc", ""));
        // Work of a call without a stack is in no node, and waits for nothing.
        graph.add(&with(call("cuLaunchKernel", 50, 5), &[("corr", Data::Uint(2))]));
        let Kind::Span(span) = &mut work.kind else { unreachable!() };
        span.launch_id = call("", 50, 0).span().expect("a call").span_id;
        graph.add(&work);
        assert!(graph.waiting.is_empty());
        let expected = [
            "0/all 0 0 0",
            "0/main 0 0 0",
            "1/step 0 0 0",
            "2/cuLaunchKernel 5 0 0",
            "3/fill 0 200 0",
            "1/cuMemAlloc 2 0 4096",
        ];
        assert_eq!(nodes(&graph), expected);
    }

    #[test]
    fn too_many_stacks_are_one_node() {
        let mut graph = FlameGraph::default();
        for at in 0..NODES + 10 {
            graph.add(&with(call("f", 0, 1), &[stack(&[&format!("frame {at}")])]));
        }
        assert_eq!(graph.nodes.len(), NODES);
        assert!(graph.frames.len() <= NODES, "{}", graph.frames.len());
        let last = graph.nodes.last().expect("it is full");
        let total: u64 = graph.nodes.iter().map(|node| node.own.host_ns).sum();
        assert_eq!((last.parent, total), (ROOT, NODES as u64 + 10));
        assert!(last.own.host_ns > NODES as u64 / 3);
    }
}
