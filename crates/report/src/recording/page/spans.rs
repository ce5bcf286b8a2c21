//! Spans of the page: columns in the order of the recording, and the order in which the page has them.
//!
//! A row is divided into tracks, whose spans follow one another: a call is on the track below the call around it, and work of a stream
//! is on the first track that is free. The page has the spans by track and start, so that the position of a span gives its track.

use super::arguments::{self, Arguments};
use super::columns::{self, Column, zigzag};
use super::rows::Rows;
use super::texts::Texts;
use crate::export::{Data, Record, Status, json};
use crate::recording::summary::{Class, class_of};
use foldhash::{HashMap, HashMapExt};
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Largest number of tracks of a row. Deeper spans are on the last one, where they overlap.
const TRACKS: usize = 100;

/// Properties that many spans share.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct SpanKind {
    name: u32,
    /// Number of the launched kernel's name, otherwise of the span's name.
    label: u32,
    /// Position in [`classes`].
    class: u8,
    failed: bool,
    /// Number of the result of a failed call; that of the empty text for others.
    result: u32,
    /// Number of the shape of its arguments.
    shape: u32,
}

/// Spans; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Spans {
    starts: Column,
    durations: Column,
    rows: Column,
    kinds: Column,
    /// Position of the arguments among those of the shape.
    arguments: Column,
    names: Texts,
    known_kinds: HashMap<SpanKind, u32>,
    all_kinds: Vec<SpanKind>,
    /// Ids of calls that have a correlation id, with their spans.
    calls: Vec<(u64, u32)>,
    /// Ids of the launching calls of work, with its spans.
    works: Vec<(u64, u32)>,
}

/// Consecutive spans of a row in the order of the page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Track {
    row: u32,
    depth: u32,
    count: u32,
}

/// The names of the classes of spans in the page, each of which has a colour: those of all records, and the causes of idle times.
pub(super) fn classes() -> Vec<String> {
    let causes = causes().map(|cause| format!("{}: {cause}", Class::Idle.name()));
    Class::ALL.iter().map(|class| class.name().to_owned()).chain(causes).collect()
}

fn causes() -> impl Iterator<Item = &'static str> {
    cuda::gpu::words("gpu_idle").into_iter().flatten().map(|(cause, _)| *cause)
}

/// The number of a span's class in the page.
fn page_class(record: &Record) -> u8 {
    let class = class_of(record);
    let cause = record.field("cause").filter(|_| class == Class::Idle).map(Data::label);
    let cause = cause.and_then(|cause| causes().position(|known| known == cause));
    let number = match cause {
        Some(cause) => Class::ALL.len() + cause,
        None => Class::ALL.iter().position(|known| *known == class).unwrap_or(0),
    };
    number as u8
}

/// Order of the page: the spans' positions in the recording, by track.
#[derive(Debug, Default)]
pub(super) struct Order {
    spans: Vec<u32>,
    tracks: Vec<Track>,
}

impl Spans {
    /// Number of spans.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Adds a span of a row.
    pub(super) fn add(&mut self, record: &Record, row: u32, arguments: &mut Arguments) {
        let Some(span) = record.span() else { return };
        let number = self.len() as u32;
        let (shape, argument) = arguments.add(record);
        let failed = span.result.as_ref().filter(|_| span.status != Status::Ok);
        let kind = SpanKind {
            name: self.names.number(&record.name),
            label: self.names.number(arguments::label(record)),
            class: page_class(record),
            failed: span.status == Status::Error,
            result: self.names.number_of(&failed.map_or(String::new(), Data::label)),
            shape,
        };
        let kind = self.kind(kind);
        for (column, value) in [
            (&mut self.starts, record.time_ns),
            (&mut self.durations, span.duration_ns),
            (&mut self.rows, row.into()),
            (&mut self.kinds, kind.into()),
            (&mut self.arguments, argument.into()),
        ] {
            column.push(value);
        }
        if let Some(id) = record.launch() {
            let list = if record.gpu_kind().is_some() { &mut self.works } else { &mut self.calls };
            list.push((id, number));
        }
    }

    fn kind(&mut self, kind: SpanKind) -> u32 {
        let next = self.all_kinds.len() as u32;
        let number = *self.known_kinds.entry(kind).or_insert(next);
        if number == next {
            self.all_kinds.push(kind);
        }
        number
    }

    /// Puts the spans in the order of the page.
    pub(super) fn order(&self, rows: &Rows) -> Order {
        let mut by_row = vec![0usize; rows.len() + 1];
        (0..self.len()).for_each(|span| by_row[self.rows.get(span) as usize + 1] += 1);
        (0..rows.len()).for_each(|row| by_row[row + 1] += by_row[row]);
        let mut next = by_row.clone();
        let mut order = Order { spans: vec![0; self.len()], tracks: Vec::new() };
        for span in 0..self.len() {
            let at = &mut next[self.rows.get(span) as usize];
            order.spans[*at] = span as u32;
            *at += 1;
        }
        for row in 0..rows.len() {
            let spans = &mut order.spans[by_row[row]..by_row[row + 1]];
            spans.sort_by_cached_key(|span| {
                (self.starts.get(*span as usize), Reverse(self.durations.get(*span as usize)))
            });
            let depths = match rows.is_stream(row) {
                true => self.free_tracks(spans),
                false => self.nesting(spans),
            };
            order.tracks.extend(by_depth(row as u32, spans, &depths));
        }
        order
    }

    fn start_and_end(&self, span: u32) -> (u64, u64) {
        let start = self.starts.get(span as usize);
        (start, start + self.durations.get(span as usize).max(1))
    }

    /// Depth of each span below those that it begins in.
    fn nesting(&self, spans: &[u32]) -> Vec<u8> {
        let mut open: Vec<u64> = Vec::new();
        let mut depth = |span: &u32| {
            let (start, end) = self.start_and_end(*span);
            while open.last().is_some_and(|end| *end <= start) {
                open.pop();
            }
            open.truncate(TRACKS - 1);
            open.push(end);
            open.len() as u8 - 1
        };
        spans.iter().map(&mut depth).collect()
    }

    /// The first track that is free when each span begins.
    fn free_tracks(&self, spans: &[u32]) -> Vec<u8> {
        let mut ends: Vec<u64> = Vec::new();
        let mut depth = |span: &u32| {
            let (start, end) = self.start_and_end(*span);
            let free = ends.iter().position(|end| *end <= start);
            let at = free.unwrap_or_else(|| ends.len().min(TRACKS - 1));
            ends.resize(ends.len().max(at + 1), 0);
            ends[at] = end;
            at as u8
        };
        spans.iter().map(&mut depth).collect()
    }

    /// Members of the page's data: the number of spans, their names and kinds, and the tracks as row, depth and number of spans.
    pub(super) fn header(&self, out: &mut String, order: &Order) {
        let (count, names, kinds) = (self.len(), self.names.len(), self.all_kinds.len());
        let longest = (0..count).map(|span| self.durations.get(span)).max().unwrap_or(0);
        let _ = write!(
            out,
            ",\"spans\":{count},\"longest\":{longest},\"names\":{names},\"span_kinds\":{kinds},\"tracks\":"
        );
        json::list(out, order.tracks.iter(), |out, Track { row, depth, count }| {
            let _ = write!(out, "[{row},{depth},{count}]");
        });
    }

    /// Passes each column with its name to `each`; times are relative to `first`.
    pub(super) fn columns(&self, order: &Order, first: u64, mut each: impl FnMut(&str, &[u8])) {
        let spans = || order.spans.iter().map(|span| *span as usize);
        each("names", &self.names.bytes());
        let kinds = &self.all_kinds;
        let mut kind_column = |name: &str, value: fn(&SpanKind) -> u64| {
            each(name, &columns::bytes(kinds.iter().map(value)));
        };
        kind_column("kind-name", |kind| kind.name.into());
        kind_column("kind-label", |kind| kind.label.into());
        kind_column("kind-class", |kind| kind.class.into());
        kind_column("kind-failed", |kind| kind.failed.into());
        kind_column("kind-result", |kind| kind.result.into());
        kind_column("kind-shape", |kind| kind.shape.into());
        each("gap", &columns::bytes(self.gaps(order, first).into_iter()));
        each("duration", &columns::bytes(spans().map(|span| self.durations.get(span))));
        each("kind", &columns::bytes(spans().map(|span| self.kinds.get(span))));
    }

    /// The bytes of a column that the page needs only after it has opened: for each work the call that launched it.
    pub(super) fn launch_column(&self, order: &Order) -> Vec<u8> {
        columns::bytes(self.launches(order).into_iter().map(u64::from))
    }

    /// Time from the end of the previous span to the start of each, as [`zigzag`]: shorter than starts and their differences.
    fn gaps(&self, order: &Order, first: u64) -> Vec<u64> {
        let mut end = first;
        let gap = |span: &u32| {
            let start = self.starts.get(*span as usize);
            let gap = zigzag(start.wrapping_sub(end) as i64);
            end = start + self.durations.get(*span as usize);
            gap
        };
        order.spans.iter().map(gap).collect()
    }

    /// For each work the position of the call that launched it in the order of the page, from 1; 0 for other spans.
    fn launches(&self, order: &Order) -> Vec<u32> {
        let mut position = vec![0u32; self.len()];
        order.spans.iter().enumerate().for_each(|(at, span)| position[*span as usize] = at as u32);
        let mut calls: HashMap<u64, u32> = HashMap::with_capacity(self.calls.len());
        self.calls.iter().for_each(|(id, span)| _ = calls.insert(*id, *span));
        let mut launches = vec![0; self.len()];
        for (id, work) in &self.works {
            if let Some(call) = calls.get(id) {
                launches[position[*work as usize] as usize] = position[*call as usize] + 1;
            }
        }
        launches
    }

    /// For each shape of arguments the positions of its spans' arguments, in the order of the page.
    pub(super) fn arguments(&self, order: &Order, shapes: usize) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new(); shapes];
        for span in order.spans.iter().map(|span| *span as usize) {
            let kind = self.all_kinds[self.kinds.get(span) as usize];
            all[kind.shape as usize].push(self.arguments.get(span) as u32);
        }
        all
    }
}

/// Sorts the spans of a row by depth, and returns its tracks. Spans of one depth stay in their order.
fn by_depth(row: u32, spans: &mut [u32], depths: &[u8]) -> Vec<Track> {
    let deepest = depths.iter().copied().max().map_or(0, |depth| usize::from(depth) + 1);
    let mut lists = vec![Vec::new(); deepest];
    depths.iter().zip(spans.iter()).for_each(|(depth, span)| lists[usize::from(*depth)].push(*span));
    let mut at = 0;
    for list in &lists {
        spans[at..at + list.len()].copy_from_slice(list);
        at += list.len();
    }
    let track =
        |(depth, list): (usize, &Vec<u32>)| Track { row, depth: depth as u32, count: list.len() as u32 };
    lists.iter().enumerate().map(track).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(times: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        for (start, duration) in times {
            spans.starts.push(*start);
            spans.durations.push(*duration);
        }
        spans
    }

    #[test]
    fn a_call_is_below_the_call_around_it() {
        let spans = spans(&[(0, 100), (10, 20), (12, 3), (30, 5), (40, 0), (100, 1)]);
        assert_eq!(spans.nesting(&[0, 1, 2, 3, 4, 5]), [0, 1, 2, 1, 1, 0]);
    }

    #[test]
    fn work_of_a_stream_is_on_the_first_free_track() {
        let spans = spans(&[(0, 10), (5, 10), (12, 3), (14, 1), (15, 1)]);
        assert_eq!(spans.free_tracks(&[0, 1, 2, 3, 4]), [0, 1, 0, 2, 0]);
    }

    #[test]
    fn tracks_are_bounded() {
        let times: Vec<(u64, u64)> = (0..1000).map(|at| (at, 10_000)).collect();
        let (spans, order) = (spans(&times), Vec::from_iter(0..1000));
        for depths in [spans.nesting(&order), spans.free_tracks(&order)] {
            assert_eq!(depths.iter().max(), Some(&(TRACKS as u8 - 1)));
        }
    }
}
