//! Reads, clears and zeroes the maps of a script. Cells are merged over CPUs and read in batches.
//!
//! The words of a cell are those of `wire::map`. Cells that were never written are omitted, except that of a scalar `count()`,
//! which prints 0 as in bpftrace. Not here: order and `top` (`report`), when a map is printed (`event_loop`), how counts survive
//! the emptying of a map (`cleared_counts`).

use crate::handles::{MapHandle, ignore_missing};
use crate::kernel::sys;
use crate::read::cleared_counts::{Since, Starts, Total};
use libbpf_sys as bpf;
use report::{Cell, Point, Snapshot};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::decode::{self, DecodeError, Header, Value};
use wire::map::{Agg, Keeps, Map, MapValue, SERIES_CLAIMED, SERIES_WORDS};
use wire::types::{Member, Type};

/// Size in bytes of the values in one batch.
const BATCH_BYTES: usize = 1 << 20;
/// Two records of the same thread and CPU within this time are of the same run of a program.
const ONE_RUN: Duration = Duration::from_millis(100);

/// A map to print, with the options of `print`.
#[derive(Copy, Clone, Debug)]
pub struct MapPrint {
    /// Index of the map in the manifest.
    pub map: u32,
    /// Number of rows, those with the largest values; 0: all.
    pub top: u32,
    /// Divisor of the values; 0: none.
    pub div: u32,
}

impl MapPrint {
    /// All rows of a map.
    pub fn all(map: u32) -> MapPrint {
        MapPrint { map, top: 0, div: 0 }
    }
}

/// A script's map in the kernel.
#[derive(Debug)]
pub struct ScriptMap {
    handle: MapHandle,
    map: Map,
    cpus: usize,
    /// Largest number of keys of the BPF map, which may be larger than declared.
    max_entries: u32,
    /// True if the last change by the reader was a `clear`.
    cleared: AtomicBool,
    /// True if the last change by the reader was a `zero` of a map with values.
    zeroed: AtomicBool,
    /// True if programs read it: the cells must contain the current values.
    read_by_programs: AtomicBool,
    sums: Mutex<SumState>,
}

/// State of a map whose samples are added up.
#[derive(Debug, Default)]
struct SumState {
    starts: Starts,
    /// The totals that were printed last, and the record that printed them.
    printed: Option<(Header, Totals)>,
}

/// Totals by key.
type Totals = Vec<(Vec<u8>, Total)>;

/// Raw keys and cells: `keys[n * key_size..]` belongs to `cells[n * row..]`. A row has the cells of all CPUs.
#[derive(Default)]
struct RawRows {
    keys: Vec<u8>,
    cells: Vec<u8>,
}

impl ScriptMap {
    /// `map`: the declaration; `cpus`: the number of possible CPUs.
    pub fn new(handle: MapHandle, map: Map, cpus: usize, max_entries: u32) -> ScriptMap {
        let [cleared, zeroed, read_by_programs] = std::array::from_fn(|_| AtomicBool::new(false));
        let sums = Mutex::default();
        ScriptMap { handle, map, cpus, max_entries, cleared, zeroed, read_by_programs, sums }
    }

    /// Records that programs read it.
    pub fn set_read_by_programs(&self) {
        self.read_by_programs.store(true, Ordering::Relaxed);
    }

    fn key_size(&self) -> usize {
        self.map.key_size() as usize
    }

    fn cell_size(&self) -> usize {
        self.map.value_size() as usize
    }

    /// Size in bytes of a lookup. The kernel rounds the size of a per-CPU cell up to 8, and cells are multiples of 8.
    fn row_size(&self) -> usize {
        self.cell_size() * if self.map.storage.is_per_cpu() { self.cpus } else { 1 }
    }

    /// Merged contents, in the order of the kernel.
    pub fn snapshot(&self, print: MapPrint) -> io::Result<Snapshot> {
        match self.additive() {
            Some(agg) => self.snapshot_of(agg, &self.totals()?, print),
            None => self.snapshot_of_cells(print),
        }
    }

    /// Like [`ScriptMap::snapshot`], for `print(@m)` in this record. A `clear(@m)` or `zero(@m)` in the same run removes only
    /// what is printed now.
    pub fn print(&self, print: MapPrint, record: Header) -> io::Result<Snapshot> {
        let Some(agg) = self.additive() else { return self.snapshot(print) };
        let totals = self.totals()?;
        let snapshot = self.snapshot_of(agg, &totals, print);
        self.sums().printed = Some((record, totals));
        snapshot
    }

    fn snapshot_of(&self, agg: &Agg, totals: &Totals, print: MapPrint) -> io::Result<Snapshot> {
        let MapPrint { map, top, div } = print;
        let sums = self.sums();
        let mut entries = Vec::new();
        for (key, total) in totals {
            if let Some(cell) = self.cell_since(agg, sums.starts.since(key, total)) {
                entries.push((self.decode_key(key).map_err(io::Error::other)?, cell));
            }
        }
        Ok(Snapshot { map, entries, top, div })
    }

    fn snapshot_of_cells(&self, MapPrint { map, top, div }: MapPrint) -> io::Result<Snapshot> {
        let rows = self.rows()?;
        let keys = rows.keys.chunks_exact(self.key_size());
        let mut entries = Vec::new();
        for (key, row) in keys.zip(rows.cells.chunks_exact(self.row_size())) {
            if let Some(cell) = self.written(row).map_err(io::Error::other)? {
                entries.push((self.decode_key(key).map_err(io::Error::other)?, cell));
            }
        }
        if entries.is_empty() && self.zeroed.load(Ordering::Relaxed) {
            entries.extend(self.unset().map(|cell| (Vec::new(), cell)));
        }
        Ok(Snapshot { map, entries, top, div })
    }

    /// The aggregation, if samples only add to the words of its cells.
    fn additive(&self) -> Option<&Agg> {
        match &self.map.value {
            MapValue::Agg(
                agg @ (Agg::Count
                | Agg::Sum { .. }
                | Agg::Avg { .. }
                | Agg::Stats { .. }
                | Agg::Hist { .. }
                | Agg::LHist { .. }),
            ) => Some(agg),
            MapValue::Agg(Agg::Min { .. } | Agg::Max { .. } | Agg::TSeries { .. }) | MapValue::Plain(_) => {
                None
            }
        }
    }

    /// Whether it is emptied by subtraction: only the reader reads it, and the kernel evicts no keys.
    fn is_emptied_by_subtraction(&self) -> bool {
        self.additive().is_some()
            && !self.map.storage.evicts()
            && !self.read_by_programs.load(Ordering::Relaxed)
    }

    fn sums(&self) -> MutexGuard<'_, SumState> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cells summed over CPUs. Includes keys that were deleted but have a start.
    fn totals(&self) -> io::Result<Totals> {
        let rows = self.rows()?;
        let cells = rows.cells.chunks_exact(self.row_size()).map(|row| self.total(row));
        let mut totals: Totals =
            rows.keys.chunks_exact(self.key_size()).map(<[u8]>::to_vec).zip(cells).collect();
        if !self.map.storage.is_array() {
            let sums = self.sums();
            let existing: HashSet<&[u8]> = totals.iter().map(|(key, _)| key.as_slice()).collect();
            let gone = sums.starts.keys().filter(|key| !existing.contains(key.as_slice()));
            let gone: Totals = gone.map(|key| (key.clone(), vec![0; self.cell_size() / 8])).collect();
            totals.extend(gone);
        }
        Ok(totals)
    }

    fn total(&self, row: &[u8]) -> Total {
        let width = self.cell_size() / 8;
        words(row).chunks_exact(width).fold(vec![0u64; width], |mut total, cell| {
            total.iter_mut().zip(cell).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            total
        })
    }

    /// The cell, unless it is omitted.
    fn cell_since(&self, agg: &Agg, since: Since) -> Option<Cell> {
        let keyless_count = self.map.key.is_empty() && *agg == Agg::Count;
        let shown = keyless_count
            || since.is_shown.unwrap_or(!self.map.storage.is_array())
            || since.words.iter().any(|word| *word != 0);
        shown.then(|| merge(agg, &since.words, since.words.len()))
    }

    /// The value of a map without keys before it is written; `None` if its type has no zero.
    pub fn unset(&self) -> Option<Cell> {
        let zeros = vec![0; self.row_size()];
        match &self.map.value {
            _ if !self.map.key.is_empty() => None,
            MapValue::Plain(ty) if has_zero(ty) => {
                decode::value(&zeros, self.map.value_offset() as usize, ty).ok().map(Cell::Plain)
            }
            MapValue::Plain(_) | MapValue::Agg(Agg::TSeries { .. }) => None,
            MapValue::Agg(agg) => Some(merge(agg, &words(&zeros), self.cell_size() / 8)),
        }
    }

    /// The cell of a key, if the key exists.
    pub fn lookup(&self, key: &[Value]) -> io::Result<Option<Cell>> {
        let key = self.encode_key(key);
        let mut row = vec![0; self.row_size()];
        let found = match self.handle.lookup(&key, &mut row) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => false,
            result => result.map(|()| true)?,
        };
        let Some(agg) = self.additive() else {
            return if found { self.written(&row).map_err(io::Error::other) } else { Ok(None) };
        };
        let since = self.sums().starts.since(&key, &self.total(&row));
        Ok(if found || since.is_shown.is_some() { self.cell_since(agg, since) } else { None })
    }

    /// `clear(@m)`: removes all keys. `record`: that of the `clear`; if the same run has printed the map, later counts are kept.
    pub fn clear(&self, record: Option<Header>) -> io::Result<()> {
        self.cleared.store(true, Ordering::Relaxed);
        if !self.is_emptied_by_subtraction() {
            self.clear_cells()?;
            self.sums().starts.remove_all();
            return Ok(());
        }
        let totals = self.totals_to_remove(record)?;
        let is_crowded = |keys: usize| 2 * keys > self.max_entries as usize;
        let crowded = !self.map.storage.is_array() && is_crowded(totals.len());
        let mut sums = self.sums();
        let mut busy = Vec::new();
        for (key, total) in totals {
            let may_delete = crowded || !self.map.storage.is_array() && sums.starts.is_idle(&key, &total);
            if may_delete && self.read_total(&key)? == total {
                self.clear_and_delete(&mut sums, key, &total)?;
                continue;
            }
            if crowded {
                busy.push((key.clone(), total.clone()));
            }
            sums.starts.clear(key, total);
        }
        if is_crowded(busy.len()) {
            for (key, total) in busy {
                self.clear_and_delete(&mut sums, key, &total)?;
            }
        }
        Ok(())
    }

    fn clear_and_delete(&self, sums: &mut SumState, key: Vec<u8>, total: &[u64]) -> io::Result<()> {
        let last = self.take(&key)?;
        sums.starts.clear_deleted(key, total, &last);
        Ok(())
    }

    /// The total of a key, 0 if it does not exist.
    fn read_total(&self, key: &[u8]) -> io::Result<Total> {
        let mut row = vec![0; self.row_size()];
        ignore_missing(self.handle.lookup(key, &mut row))?;
        Ok(self.total(&row))
    }

    /// The totals that a run removes: those that it has printed, otherwise the current ones.
    fn totals_to_remove(&self, record: Option<Header>) -> io::Result<Totals> {
        let printed = self.sums().printed.take();
        match (printed, record) {
            (Some((printed, totals)), Some(record)) if is_one_run(&printed, &record) => Ok(totals),
            _ => self.totals(),
        }
    }

    /// Deletes a key; returns its total, 0 if it does not exist.
    fn take(&self, key: &[u8]) -> io::Result<Total> {
        let mut row = vec![0; self.row_size()];
        match self.handle.lookup_and_delete(key, &mut row) {
            Err(error) if is_unsupported(&error) => {
                let total = self.read_total(key)?;
                ignore_missing(self.handle.delete(key))?;
                Ok(total)
            }
            result => ignore_missing(result).map(|()| self.total(&row)),
        }
    }

    fn clear_cells(&self) -> io::Result<()> {
        let rows = self.rows()?;
        let zero = vec![0; self.row_size()];
        for key in rows.keys.chunks_exact(self.key_size()) {
            let done = if self.map.storage.is_array() {
                self.handle.update(key, &zero)
            } else {
                self.handle.delete(key)
            };
            ignore_missing(done)?;
        }
        self.zeroed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes keys. Missing keys are no error.
    pub fn delete(&self, keys: &[Vec<Value>]) -> io::Result<()> {
        keys.iter().try_for_each(|key| self.remove(&self.encode_key(key)))
    }

    /// Deletes the keys of ended processes. A key begins with the process id.
    pub fn delete_ended(&self, ended: &mut dyn FnMut(u32) -> bool) -> io::Result<()> {
        let rows = self.rows()?;
        let gone = rows.keys.chunks_exact(self.key_size()).filter(|key| {
            let id = key.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
            ended(id)
        });
        gone.into_iter().try_for_each(|key| self.remove(key))
    }

    /// Deletes a key and its start.
    fn remove(&self, key: &[u8]) -> io::Result<()> {
        ignore_missing(self.handle.delete(key))?;
        self.sums().starts.remove(key);
        Ok(())
    }

    /// Whether the last change by the reader was `clear(@m)`.
    pub fn is_cleared(&self) -> bool {
        self.cleared.load(Ordering::Relaxed)
    }

    /// `zero(@m)`: the keys stay, their values become 0. `record` as in [`ScriptMap::clear`].
    pub fn zero(&self, record: Option<Header>) -> io::Result<()> {
        self.cleared.store(false, Ordering::Relaxed);
        if !self.is_emptied_by_subtraction() {
            self.zero_cells()?;
            self.sums().starts.remove_all();
            return Ok(());
        }
        // In an array only the cells of a sum have a word that tells whether they were written.
        let is_sum = matches!(self.map.value, MapValue::Agg(Agg::Sum { .. }));
        let stays = !self.map.storage.is_array() || self.map.key.is_empty() || is_sum;
        let totals = self.totals_to_remove(record)?;
        let mut sums = self.sums();
        for (key, total) in totals {
            let is_untouched = total.iter().all(|word| *word == 0);
            match stays && !(self.map.storage.is_array() && is_untouched) {
                true => sums.starts.zero(key, total),
                false => sums.starts.clear(key, total),
            }
        }
        Ok(())
    }

    fn zero_cells(&self) -> io::Result<()> {
        let mut rows = self.rows()?;
        let row_size = self.row_size();
        // The cell of an array always exists: whether it was written must be recorded now.
        if self.map.storage.is_array() && rows.cells.iter().any(|byte| *byte != 0) {
            self.zeroed.store(true, Ordering::Relaxed);
        }
        let keys = rows.keys.chunks_exact(self.key_size());
        for (key, row) in keys.zip(rows.cells.chunks_exact_mut(row_size)) {
            row.chunks_exact_mut(self.cell_size()).for_each(|cell| self.zero_cell(cell));
            ignore_missing(self.handle.update(key, row))?;
        }
        Ok(())
    }

    /// Zeroes a cell, except the word that marks it as written, if later results do not depend on that word.
    fn zero_cell(&self, cell: &mut [u8]) {
        let kept = match (&self.map.value, self.map.storage.is_array()) {
            (MapValue::Plain(_), true) | (MapValue::Agg(Agg::Sum { .. }), _) => 8,
            _ => 0,
        };
        cell[kept..].fill(0);
    }

    fn decode_key(&self, key: &[u8]) -> Result<Vec<Value>, DecodeError> {
        decode::key(key, &self.map.key)
    }

    /// The bytes of a key; that of a scalar map is a u32 0.
    fn encode_key(&self, key: &[Value]) -> Vec<u8> {
        let mut bytes = vec![0; self.key_size()];
        let offsets = wire::layout::key(&self.map.key).offsets;
        for ((value, ty), offset) in key.iter().zip(&self.map.key).zip(offsets) {
            encode(value, ty, &mut bytes[offset as usize..]);
        }
        bytes
    }

    /// The merged cell, if it was written.
    fn written(&self, row: &[u8]) -> Result<Option<Cell>, DecodeError> {
        let cell = match &self.map.value {
            MapValue::Plain(ty) => return self.plain(row, ty),
            MapValue::Agg(agg) => merge(agg, &words(row), self.cell_size() / 8),
        };
        let shown = !self.map.storage.is_array() || row.iter().any(|byte| *byte != 0);
        Ok(shown.then_some(cell))
    }

    /// The value, which is in one cell even of per-CPU maps.
    fn plain(&self, row: &[u8], ty: &Type) -> Result<Option<Cell>, DecodeError> {
        let mut cells = row.chunks_exact(self.cell_size());
        let is_set = |cell: &&[u8]| !self.map.storage.is_array() || cell[..8].iter().any(|byte| *byte != 0);
        let value = |cell| decode::value(cell, self.map.value_offset() as usize, ty).map(Cell::Plain);
        cells.find(is_set).map(value).transpose()
    }

    fn rows(&self) -> io::Result<RawRows> {
        let MapHandle::Kernel(fd) = &self.handle else { return self.rows_one_by_one() };
        if self.max_entries == 1 {
            return self.rows_one_by_one();
        }
        match self.rows_in_batches(fd) {
            Err(error) if is_unsupported(&error) => self.rows_one_by_one(),
            rows => rows,
        }
    }

    fn rows_in_batches(&self, fd: &OwnedFd) -> io::Result<RawRows> {
        let mut count = (BATCH_BYTES / self.row_size()).clamp(16, self.max_entries.max(16) as usize);
        let mut rows = RawRows::default();
        // The position in the map: a u32 for a hash, a key for an array.
        let (mut from, mut to) = (vec![0u8; self.key_size().max(8)], vec![0u8; self.key_size().max(8)]);
        let mut first = true;
        loop {
            match self.batch(fd, (!first).then_some(&mut from), &mut to, count, &mut rows) {
                Ok(true) => return Ok(rows),
                Ok(false) => first = false,
                // A bucket of the hash has more keys than fit.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    count *= 2;
                    continue;
                }
                Err(error) => return Err(error),
            }
            std::mem::swap(&mut from, &mut to);
        }
    }

    /// Appends one batch; returns true if it was the last.
    fn batch(
        &self,
        fd: &OwnedFd,
        from: Option<&mut Vec<u8>>,
        to: &mut [u8],
        count: usize,
        rows: &mut RawRows,
    ) -> io::Result<bool> {
        let (keys_before, cells_before) = (rows.keys.len(), rows.cells.len());
        rows.keys.resize(keys_before + count * self.key_size(), 0);
        rows.cells.resize(cells_before + count * self.row_size(), 0);
        let mut found = count as u32;
        // SAFETY: the buffers have room for `count` keys and rows, the positions for a key or a u32.
        let result = sys::check_libbpf(unsafe {
            bpf::bpf_map_lookup_batch(
                fd.as_raw_fd(),
                from.map_or(std::ptr::null_mut(), |from| from.as_mut_ptr().cast()),
                to.as_mut_ptr().cast(),
                rows.keys[keys_before..].as_mut_ptr().cast(),
                rows.cells[cells_before..].as_mut_ptr().cast(),
                &mut found,
                std::ptr::null(),
            )
        });
        let (last, found) = match result {
            Ok(_) => (false, found),
            Err(ref error) if error.raw_os_error() == Some(libc::ENOENT) => (true, found),
            Err(_) => (true, 0),
        };
        rows.keys.truncate(keys_before + found as usize * self.key_size());
        rows.cells.truncate(cells_before + found as usize * self.row_size());
        match result {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(last),
        }
    }

    fn rows_one_by_one(&self) -> io::Result<RawRows> {
        let mut rows = RawRows::default();
        let mut row = vec![0; self.row_size()];
        for key in self.handle.keys(self.key_size())? {
            // A key that was deleted in the meantime is no entry.
            if self.handle.lookup(&key, &mut row).is_ok() {
                rows.keys.extend_from_slice(&key);
                rows.cells.extend_from_slice(&row);
            }
        }
        Ok(rows)
    }
}

pub(crate) fn words(row: &[u8]) -> Vec<u64> {
    row.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// Merges the cells of all CPUs, of `width` words each.
fn merge(agg: &Agg, words: &[u64], width: usize) -> Cell {
    let cells = || words.chunks_exact(width);
    let sum = |at: usize| cells().fold(0u64, |sum, cell| sum.wrapping_add(cell[at]));
    let number = |bits: u64, signed: bool| Cell::Number { bits: bits as i64, signed };
    match *agg {
        Agg::Count => number(sum(0), false),
        Agg::Sum { signed } => number(sum(1), signed),
        Agg::Min { signed } => number(extreme(cells(), signed, |new, old| new < old), signed),
        Agg::Max { signed } => number(extreme(cells(), signed, |new, old| new > old), signed),
        Agg::Avg { signed } => number(mean(sum(0), sum(1), signed), signed),
        Agg::Stats { signed } => Cell::Stats { count: sum(0), total: sum(1) as i64, signed },
        Agg::Hist { .. } | Agg::LHist { .. } => Cell::Buckets {
            counts: (0..agg.buckets() as usize).map(sum).collect(),
            sum: agg.sum_word().map(|word| sum(word as usize) as i64),
        },
        Agg::TSeries { interval, count, keeps, signed } => {
            Cell::Series(series(words, interval, u64::from(count), keeps, signed))
        }
    }
}

/// The last intervals with a sample, in order, merged over CPUs.
fn series(words: &[u64], interval: u64, count: u64, keeps: Keeps, signed: bool) -> Vec<Point> {
    let mut intervals: BTreeMap<u64, Vec<&[u64]>> = BTreeMap::new();
    for one in words.chunks_exact(SERIES_WORDS as usize).filter(|one| !matches!(one[0], 0 | SERIES_CLAIMED)) {
        intervals.entry(one[0] - 1).or_default().push(&one[1..]);
    }
    let last = intervals.keys().next_back().copied().unwrap_or(0);
    let shown = intervals.into_iter().filter(|(number, _)| number.saturating_add(count) > last);
    let value = |parts: Vec<&[u64]>| {
        let sum = |at: usize| parts.iter().fold(0u64, |sum, part| sum.wrapping_add(part[at]));
        match keeps {
            Keeps::Last => parts.iter().max_by_key(|part| part[2]).map_or(0, |part| part[1]),
            Keeps::Sum => sum(1),
            Keeps::Avg => mean(sum(0), sum(1), signed),
            Keeps::Min => extreme(parts.into_iter(), signed, |new, old| new < old),
            Keeps::Max => extreme(parts.into_iter(), signed, |new, old| new > old),
        }
    };
    shown
        .map(|(number, parts)| Point {
            start_ns: number.wrapping_mul(interval),
            bits: value(parts) as i64,
            signed,
        })
        .collect()
}

/// The best value of the cells with a sample.
fn extreme<'a>(
    cells: impl Iterator<Item = &'a [u64]>,
    signed: bool,
    better: impl Fn(i128, i128) -> bool,
) -> u64 {
    let rank = |bits: u64| if signed { i128::from(bits as i64) } else { i128::from(bits) };
    let sampled = cells.filter(|cell| cell[0] != 0).map(|cell| cell[1]);
    sampled.reduce(|old, new| if better(rank(new), rank(old)) { new } else { old }).unwrap_or(0)
}

/// Rounds towards zero; 0 without samples.
fn mean(count: u64, total: u64, signed: bool) -> u64 {
    match (count, signed) {
        (0, _) => 0,
        (_, false) => total / count,
        // The count fits into i64: more calls would take centuries.
        (_, true) => (total as i64).wrapping_div(count as i64) as u64,
    }
}

/// Writes a value in its form in memory. A value of another type, which decoding cannot produce, stays zero.
fn encode(value: &Value, ty: &Type, out: &mut [u8]) {
    let mut put = |bytes: &[u8], len: u32| out[..len as usize].copy_from_slice(&bytes[..len as usize]);
    match (value, ty) {
        (Value::Bool(value), _) => put(&[u8::from(*value)], 1),
        (Value::Int(value, bytes), _) => put(&value.to_le_bytes(), u32::from(*bytes)),
        (Value::Uint(value, bytes), _) => put(&value.to_le_bytes(), u32::from(*bytes)),
        (Value::Enum(_, value), _) => put(&value.to_le_bytes(), 4),
        (Value::Pointer(value) | Value::Timestamp(value, _), _) => put(&value.to_le_bytes(), 8),
        (Value::Lookup(_, value), _) => put(&value.to_le_bytes(), 8),
        (Value::Buf(bytes), _) => {
            put(&[&(bytes.len() as u32).to_le_bytes(), bytes.as_slice()].concat(), 4 + bytes.len() as u32)
        }
        (Value::Name(_, id), _) => put(&id.to_le_bytes(), 4),
        (Value::Inet(family, bytes), _) => put(&[&family.to_le_bytes(), bytes.as_slice()].concat(), 20),
        (Value::Str(text, _), Type::Str(capacity)) => {
            let len = text.len().min(*capacity as usize);
            put(text, len as u32);
        }
        (Value::Usym { address, tgid }, _) => {
            put(&[address.to_le_bytes(), u64::from(*tgid).to_le_bytes()].concat(), 16)
        }
        (Value::Stack { id, tgid, .. }, _) => put(&[id.to_le_bytes(), tgid.to_le_bytes()].concat(), 8),
        (Value::Str(text, _), Type::Chars(_)) => put(text, text.len() as u32),
        (Value::Tuple(values), Type::Tuple(types)) => encode_all(values, types, out),
        (Value::Record(members), Type::Record(_, types)) => {
            let values: Vec<Value> = members.iter().map(|(_, value)| value.clone()).collect();
            encode_all(&values, types, out);
        }
        (Value::Record(members), Type::Struct(def)) => {
            for ((_, value), member) in members.iter().zip(&def.members) {
                encode_member(value, member, &mut out[member.offset as usize..]);
            }
        }
        (Value::Array(elements), Type::Array(ty, _)) => {
            for (at, element) in elements.iter().enumerate() {
                encode(element, ty, &mut out[at * ty.size() as usize..]);
            }
        }
        (Value::Either(which, value, _), Type::Either(parts)) => {
            put(&(*which as u32).to_le_bytes(), 4);
            encode(value, &parts[*which], &mut out[wire::layout::tuple(parts).offsets[*which] as usize..]);
        }
        (Value::Str(..) | Value::Tuple(_) | Value::Record(_) | Value::Array(_) | Value::Either(..), _) => {}
    }
}

/// Writes a member; a bit-field shares its bytes with others.
fn encode_member(value: &Value, member: &Member, out: &mut [u8]) {
    let Some((first, count)) = member.bits else { return encode(value, &member.ty, out) };
    let mut unit = [0; 8];
    encode(value, &member.ty, &mut unit);
    let bits = u64::from_le_bytes(unit) & (u64::MAX >> (64 - u32::from(count).clamp(1, 64)));
    let bits = bits.wrapping_shl(first.into()).to_le_bytes();
    out.iter_mut().zip(&bits[..member.ty.size() as usize]).for_each(|(byte, bits)| *byte |= bits);
}

fn encode_all(values: &[Value], types: &[Type], out: &mut [u8]) {
    let offsets = wire::layout::tuple(types).offsets;
    for ((value, ty), offset) in values.iter().zip(types).zip(offsets) {
        encode(value, ty, &mut out[offset as usize..]);
    }
}

/// Whether both records are of the same run of a program.
fn is_one_run(one: &Header, other: &Header) -> bool {
    let apart = Duration::from_nanos(one.time_ns.abs_diff(other.time_ns));
    one.place() == other.place() && apart < ONE_RUN
}

fn is_unsupported(error: &io::Error) -> bool {
    // ENOTSUPP (524): a map type without batches; EINVAL: a kernel without batches.
    matches!(error.raw_os_error(), Some(524 | libc::EINVAL | libc::EOPNOTSUPP))
}

/// The BPF map type of a storage.
/// Whether a value of zero bytes is one that a script may assign: not a stack, a name or a time.
fn has_zero(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Int { .. } | Type::Enum { .. } | Type::Pointer | Type::Str(_) => true,
        Type::Tuple(values) | Type::Record(_, values) => values.iter().all(has_zero),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) fn map_type(storage: wire::map::Storage) -> bpf::bpf_map_type {
    match storage {
        wire::map::Storage::Hash => bpf::BPF_MAP_TYPE_HASH,
        wire::map::Storage::PerCpuHash => bpf::BPF_MAP_TYPE_PERCPU_HASH,
        wire::map::Storage::LruHash => bpf::BPF_MAP_TYPE_LRU_HASH,
        wire::map::Storage::PerCpuLruHash => bpf::BPF_MAP_TYPE_LRU_PERCPU_HASH,
        wire::map::Storage::Array => bpf::BPF_MAP_TYPE_ARRAY,
        wire::map::Storage::PerCpuArray => bpf::BPF_MAP_TYPE_PERCPU_ARRAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::features::is_root;
    use wire::NameKind;
    use wire::map::Storage;

    fn number(bits: i64, signed: bool) -> Cell {
        Cell::Number { bits, signed }
    }

    #[test]
    fn cells_of_all_cpus_are_merged_by_their_aggregation() {
        let two = |a: [i64; 2], b: [i64; 2]| [a[0] as u64, a[1] as u64, b[0] as u64, b[1] as u64];
        let signed = true;
        assert_eq!(merge(&Agg::Count, &[3, 4], 1), number(7, false));
        assert_eq!(merge(&Agg::Sum { signed }, &two([1, -5], [1, 3]), 2), number(-2, true));
        assert_eq!(
            merge(&Agg::Min { signed }, &two([0, 0], [2, 7]), 2),
            number(7, true),
            "no sample on CPU 0"
        );
        assert_eq!(merge(&Agg::Min { signed }, &two([1, -1], [2, 7]), 2), number(-1, true));
        assert_eq!(merge(&Agg::Max { signed: false }, &two([1, -1], [2, 7]), 2), number(-1, false));
        assert_eq!(merge(&Agg::Max { signed }, &two([1, -9], [0, 0]), 2), number(-9, true));
        assert_eq!(
            merge(&Agg::Avg { signed }, &two([1, -5], [1, -2]), 2),
            number(-3, true),
            "rounded to zero"
        );
        assert_eq!(merge(&Agg::Avg { signed }, &two([0, 0], [0, 0]), 2), number(0, true));
        let stats = Cell::Stats { count: 3, total: 12, signed: true };
        assert_eq!(merge(&Agg::Stats { signed }, &two([1, 5], [2, 7]), 2), stats);
        let bits = 0;
        let cells: Vec<u64> = (0..2 * 65).collect();
        let counts: Vec<u64> = (0..65).map(|n| 65 + 2 * n).collect();
        let found = merge(&Agg::Hist { bits, summed: false }, &cells, 65);
        assert_eq!(found, Cell::Buckets { counts: counts.clone(), sum: None });
        let cell = |sum: i64| (0..65).chain([sum as u64]);
        let cells: Vec<u64> = cell(-7).chain(cell(3)).collect();
        let counts = (0..65).map(|n| 2 * n).collect();
        let found = merge(&Agg::Hist { bits, summed: true }, &cells, 66);
        assert_eq!(found, Cell::Buckets { counts, sum: Some(-4) });
    }

    #[test]
    fn series_of_all_cpus_are_merged_by_interval() {
        let series = |keeps| Agg::TSeries { interval: 10, count: 2, keeps, signed: true };
        // Two CPUs with two intervals each: number plus one, samples, value, time of the last sample.
        let words = [5, 2, 7, 41, 6, 1, 3, 55, 5, 1, -9i64 as u64, 45, 2, 4, 100, 12];
        let shown = |keeps| match merge(&series(keeps), &words, 8) {
            Cell::Series(points) => points.iter().map(|p| (p.start_ns, p.bits)).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(Keeps::Last), [(40, -9), (50, 3)], "older intervals are omitted");
        assert_eq!(shown(Keeps::Sum), [(40, -2), (50, 3)]);
        assert_eq!(shown(Keeps::Min), [(40, -9), (50, 3)]);
        assert_eq!(shown(Keeps::Max), [(40, 7), (50, 3)]);
        assert_eq!(shown(Keeps::Avg), [(40, 0), (50, 3)]);
        let empty = [0, 0, 0, 0, SERIES_CLAIMED, 1, 1, 1];
        assert_eq!(merge(&series(Keeps::Sum), &empty, 8), Cell::Series(vec![]));
    }

    fn create(key: Vec<Type>, value: MapValue, storage: Storage, max_entries: u32) -> ScriptMap {
        let map = Map { name: "m".into(), symbol: "m".into(), key, value, storage, max_entries };
        // SAFETY: plain numbers and a C string.
        let fd = sys::owned_libbpf(unsafe {
            bpf::bpf_map_create(
                map_type(storage),
                c"ct_test".as_ptr(),
                map.key_size(),
                map.value_size(),
                max_entries,
                std::ptr::null(),
            )
        });
        ScriptMap::new(
            MapHandle::Kernel(fd.expect("map")),
            map,
            sys::possible_cpus().expect("sysfs"),
            max_entries,
        )
    }

    const U32: Type = Type::Int { bytes: 4, signed: false };

    fn put(map: &ScriptMap, key: &[Value], words: impl Fn(usize) -> Vec<u64>) {
        let cpus = map.row_size() / map.cell_size();
        let row: Vec<u8> = (0..cpus).flat_map(words).flat_map(u64::to_le_bytes).collect();
        map.handle.update(&map.encode_key(key), &row).expect("update");
    }

    #[test]
    fn a_large_hash_is_read_zeroed_and_cleared() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let key = vec![Type::Str(16), U32];
        let map = create(key, MapValue::Agg(Agg::Sum { signed: true }), Storage::PerCpuHash, 5000);
        let key = |n: u64| [Value::Str(format!("k{n}").into_bytes(), false), Value::Uint(n, 4)];
        (0..5000).for_each(|n| put(&map, &key(n), |cpu| vec![1, n * (cpu as u64 + 1)]));
        let factor: i64 = (1..=map.cpus as i64).sum();

        let mut entries = map.snapshot(MapPrint::all(0)).expect("snapshot").entries;
        entries.sort_by_key(|(key, _)| match key[1] {
            Value::Uint(n, _) => n,
            _ => unreachable!("the second part is a number"),
        });
        assert_eq!(entries.len(), 5000);
        for (n, (found, cell)) in entries.iter().enumerate() {
            assert_eq!((found.as_slice(), cell), (&key(n as u64)[..], &number(n as i64 * factor, true)));
        }
        assert_eq!(map.lookup(&key(7)).expect("lookup"), Some(number(7 * factor, true)));
        assert_eq!(map.lookup(&key(70_000)).expect("lookup"), None);

        map.zero(None).expect("zero");
        let zeroed = map.snapshot(MapPrint::all(0)).expect("snapshot").entries;
        assert!(zeroed.len() == 5000 && zeroed.iter().all(|(_, cell)| *cell == number(0, true)));
        map.clear(None).expect("clear");
        assert_eq!(map.snapshot(MapPrint::all(0)).expect("snapshot").entries, []);
    }

    #[test]
    fn batches_and_single_lookups_agree() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        for storage in [Storage::Hash, Storage::PerCpuHash, Storage::PerCpuLruHash, Storage::PerCpuArray] {
            // An LRU map evicts before it is full.
            let room = if storage.evicts() { 8192 } else { 600 };
            let map = create(vec![U32], MapValue::Agg(Agg::Count), storage, room);
            (0..600).for_each(|n| put(&map, &[Value::Uint(n, 4)], |_| vec![n + 1]));
            let fd = map.handle.fd().expect("a map in the kernel");
            let (batch, single) =
                (map.rows_in_batches(fd).expect("batch"), map.rows_one_by_one().expect("single"));
            let pairs = |rows: &RawRows| -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
                let keys = rows.keys.chunks_exact(4).map(<[u8]>::to_vec);
                keys.zip(rows.cells.chunks_exact(map.row_size()).map(<[u8]>::to_vec)).collect()
            };
            assert_eq!(pairs(&batch).len(), 600);
            assert_eq!(pairs(&batch), pairs(&single), "{storage:?}");
        }
    }

    #[test]
    fn unwritten_cells_of_arrays_are_omitted_but_a_scalar_count_is_0() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let named =
            create(vec![Type::Name(NameKind::Func)], MapValue::Agg(Agg::Count), Storage::PerCpuArray, 300);
        put(&named, &[Value::Name(NameKind::Func, 250)], |_| vec![2]);
        let expected = vec![(vec![Value::Name(NameKind::Func, 250)], number(2 * named.cpus as i64, false))];
        assert_eq!(named.snapshot(MapPrint::all(0)).expect("snapshot").entries, expected);

        let count = create(vec![], MapValue::Agg(Agg::Count), Storage::PerCpuArray, 1);
        assert_eq!(count.snapshot(MapPrint::all(0)).expect("snapshot").entries, [(vec![], number(0, false))]);
        let sum = create(vec![], MapValue::Agg(Agg::Sum { signed: true }), Storage::PerCpuArray, 1);
        assert_eq!(sum.snapshot(MapPrint::all(0)).expect("snapshot").entries, []);

        let plain = create(vec![], MapValue::Plain(Type::Int { bytes: 8, signed: true }), Storage::Array, 1);
        assert_eq!(plain.snapshot(MapPrint::all(0)).expect("snapshot").entries, []);
        put(&plain, &[], |_| vec![1, 0]);
        let zero = Cell::Plain(Value::Int(0, 8));
        assert_eq!(plain.snapshot(MapPrint::all(0)).expect("snapshot").entries, [(vec![], zero.clone())]);
        put(&plain, &[], |_| vec![1, 5]);
        plain.zero(None).expect("zero");
        assert_eq!(plain.lookup(&[]).expect("lookup"), Some(zero));
        plain.clear(None).expect("clear");
        assert_eq!(plain.lookup(&[]).expect("lookup"), None);
    }

    #[test]
    fn a_key_decodes_to_what_was_encoded() {
        let parts = vec![
            Type::Tuple(vec![Type::Bool, Type::Int { bytes: 8, signed: true }]),
            Type::Str(8),
            Type::Usym,
            Type::Enum { id: 3, signed: true },
        ];
        let values = vec![
            Value::Tuple(vec![Value::Bool(true), Value::Int(-7, 8)]),
            Value::Str(b"abc".to_vec(), false),
            Value::Usym { address: 0x1234_5678_9abc, tgid: 42 },
            Value::Enum(3, -2),
        ];
        let mut bytes = vec![0; wire::layout::key(&parts).size as usize];
        for ((value, ty), offset) in values.iter().zip(&parts).zip(wire::layout::key(&parts).offsets) {
            encode(value, ty, &mut bytes[offset as usize..]);
        }
        assert_eq!(decode::key(&bytes, &parts).expect("whole"), values);
    }
}
