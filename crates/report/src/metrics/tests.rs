use super::*;
use crate::testing::{Fake, manifest, map};
use wire::map::{hist_bucket, hist_buckets};

const HIST: MapValue = MapValue::Agg(Agg::Hist { bits: 0, summed: true });

fn metric(name: &str, labels: &[&str]) -> Metric {
    let labels = labels.iter().map(|&label| label.into()).collect();
    Metric { name: name.into(), labels, declared: !name.is_empty(), ..Metric::default() }
}

fn with(maps: Vec<Map>, metrics: Vec<Metric>) -> Manifest {
    Manifest { maps, metrics, ..manifest() }
}

fn counts(map: u32, counts: &[(&str, i64)]) -> Snapshot {
    let entry = |(key, bits): &(&str, i64)| {
        (vec![Value::Str(key.as_bytes().to_vec(), false)], Cell::Number { bits: *bits, signed: false })
    };
    Snapshot { map, entries: counts.iter().map(entry).collect(), top: 0, div: 0 }
}

fn histogram(map: u32, bits: u8, samples: &[i64]) -> Snapshot {
    let mut counts = vec![0; hist_buckets(bits) as usize];
    samples.iter().for_each(|&sample| counts[hist_bucket(sample, bits) as usize] += 1);
    let sum = samples.iter().copied().reduce(i64::wrapping_add);
    Snapshot { map, entries: vec![(vec![], Cell::Buckets { counts, sum })], top: 0, div: 0 }
}

fn numbers(family: &Family) -> Vec<(String, i128)> {
    let value = |point: &Point| match point.value {
        Reading::Number(number) => number.whole,
        _ => unreachable!("a counter or gauge"),
    };
    family.points.iter().map(|point| (point.labels[0].1.clone(), value(point))).collect()
}

#[test]
fn names_come_from_the_map_unless_the_script_has_some() {
    let count = || MapValue::Agg(Agg::Count);
    let maps = vec![map("launches", count()), map("", count())];
    let manifest = with(maps, vec![metric("", &["func"]), metric("", &[])]);
    let families =
        Metrics::default().families(&manifest, &Fake, &[counts(0, &[("a", 1)]), counts(1, &[("b", 2)])]);
    let names: Vec<_> = families.iter().map(prometheus::name).collect();
    assert_eq!(names, ["cudatrace_launches", "cudatrace_map"]);
    assert_eq!(families[0].points[0].labels, [("func".to_owned(), "a".to_owned())]);
    assert_eq!(families[1].points[0].labels, [("key0".to_owned(), "b".to_owned())]);

    let manifest = with(manifest.maps, vec![metric("gpu.cuda.kernel.launch.calls", &["k"]), metric("", &[])]);
    assert_eq!(exported(&manifest), [0], "what a script declares is all");
    let maps = vec![map("__kernel_ids", count()), map("n", count())];
    assert_eq!(exported(&with(maps, vec![])), [1], "the compiler's own maps are nobody's");
}

#[test]
fn units_end_names_once() {
    let name = |name: &str, unit: &str, kind| {
        prometheus::name(&Family {
            name: name.into(),
            unit: unit.into(),
            help: String::new(),
            kind,
            points: vec![],
        })
    };
    assert_eq!(name("gpu.cuda.memory.copies", "By", Kind::Histogram), "gpu_cuda_memory_copies_bytes");
    assert_eq!(name("gpu.cuda.memory.free.bytes", "By", Kind::Counter), "gpu_cuda_memory_free_bytes");
    assert_eq!(name("gpu.copy.rate", "By/s", Kind::Gauge), "gpu_copy_rate_bytes_per_second");
    assert_eq!(name("calls_total", "{call}", Kind::Counter), "calls");
    assert_eq!(name("9 lives", "", Kind::Gauge), "_9_lives");
}

#[test]
fn beyond_the_limit_series_are_one_and_no_counter_falls() {
    let manifest = with(vec![map("n", MapValue::Agg(Agg::Count))], vec![metric("", &["k"])]);
    let mut exporter = Metrics::new(2);
    let mut families =
        |now: &[(&str, i64)]| numbers(&exporter.families(&manifest, &Fake, &[counts(0, now)])[0]);
    let is = |pairs: &[(&str, i128)]| pairs.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect::<Vec<_>>();
    assert_eq!(families(&[("a", 1), ("b", 1)]), is(&[("a", 1), ("b", 1)]));
    assert_eq!(families(&[("c", 9), ("d", 1), ("a", 2), ("b", 1)]), is(&[("a", 2), ("b", 1), ("other", 10)]));
    // `a` has ended, so `e` gets its series. `c` is already in the sum of the others, and stays there.
    assert_eq!(families(&[("b", 2), ("c", 9), ("e", 5)]), is(&[("b", 2), ("e", 5), ("other", 9)]));
    assert_eq!(families(&[("b", 2), ("c", 9), ("f", 1)]), is(&[("b", 2), ("f", 1), ("other", 9)]));
}

#[test]
fn threads_of_a_process_are_one_series_by_its_program() {
    let labels = ["process", "process.executable.name"];
    let manifest = with(vec![map("n", MapValue::Agg(Agg::Count))], vec![metric("", &labels)]);
    let entry = |pid: u64, comm: &str, bits| {
        let key = vec![Value::Uint(pid, 4), Value::Str(comm.into(), false)];
        (key, Cell::Number { bits, signed: false })
    };
    let entries = vec![entry(77, "python3", 1), entry(77, "pt_autograd_0", 2), entry(78, "gone", 4)];
    let snapshot = Snapshot { map: 0, entries, top: 0, div: 0 };
    let family = &Metrics::default().families(&manifest, &Fake, &[snapshot])[0];
    assert_eq!(numbers(family), [("gone".to_owned(), 4), ("python3".to_owned(), 3)]);
}

/// Processes 1 and 2 run the program `train`; from 3 on each is in a container of its own. Processes in the set
/// have ended.
struct Machine(std::cell::RefCell<HashSet<u32>>);

impl Machine {
    fn end(&self, pid: u32) {
        self.0.borrow_mut().insert(pid);
    }
}

impl Names for Machine {
    fn user_symbol(&self, _: u32, _: u64) -> String {
        String::new()
    }
    fn stack(&self, _: bool, _: u32, _: &[u64]) -> Vec<crate::Frame> {
        Vec::new()
    }
    fn stack_addresses(&self, _: u32, _: u32) -> Vec<u64> {
        Vec::new()
    }
    fn wall_clock_ns(&self, _: u64) -> i128 {
        0
    }
    fn strftime(&self, _: &str, _: i128) -> String {
        String::new()
    }
    fn lookup(&self, _: wire::types::Lookup, _: i64) -> String {
        String::new()
    }
    fn process(&self, pid: u32) -> Process {
        let life = if self.0.borrow().contains(&pid) { Life::Settled } else { Life::Alive };
        let container = (pid > 2).then(|| ("container.id".to_owned(), format!("c{pid}")));
        Process { program: Some("train".into()), place: container.into_iter().collect(), life }
    }
}

/// A map by process, as in the kernel, and its families.
struct ByProcess {
    manifest: Manifest,
    machine: Machine,
    metrics: Metrics,
    rows: Vec<(u32, i64)>,
}

impl ByProcess {
    fn new(label: &str, value: MapValue, limit: usize) -> ByProcess {
        let manifest = with(vec![map("n", value)], vec![metric("n", &[label])]);
        let machine = Machine(Default::default());
        ByProcess { manifest, machine, metrics: Metrics::new(limit), rows: Vec::new() }
    }

    /// Deletes keys of ended processes and reads the map; returns the last label of each series and its value.
    fn read(&mut self) -> Vec<(String, i128)> {
        let cell = |bits| Cell::Number { bits, signed: false };
        let entry = |&(pid, bits): &(u32, i64)| (vec![Value::Uint(pid.into(), 4)], cell(bits));
        let entries = self.rows.iter().map(entry).collect();
        let mut snapshot = Snapshot { map: 0, entries, top: 0, div: 0 };
        let gone = self.metrics.settle(&self.manifest, &self.machine, &mut snapshot);
        self.rows.retain(|(pid, _)| !gone.contains(&vec![Value::Uint((*pid).into(), 4)]));
        let families = self.metrics.families(&self.manifest, &self.machine, &[snapshot]);
        let Some(family) = families.first() else { return Vec::new() };
        let last = |labels: &Labels| labels.last().map_or_else(String::new, |(_, value)| value.clone());
        numbers(family)
            .into_iter()
            .zip(&family.points)
            .map(|((_, n), point)| (last(&point.labels), n))
            .collect()
    }
}

fn is(pairs: &[(&str, i128)]) -> Vec<(String, i128)> {
    pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
}

#[test]
fn counts_of_ended_processes_stay_in_the_series_of_their_program() {
    let mut map = ByProcess::new("process", MapValue::Agg(Agg::Count), 9);
    map.rows = vec![(1, 5), (2, 7)];
    assert_eq!(map.read(), is(&[("train", 12)]));
    map.machine.end(1);
    assert_eq!((map.read(), map.rows.len()), (is(&[("train", 12)]), 1), "and its key is deleted");
    map.rows[0].1 = 8;
    assert_eq!(map.read(), is(&[("train", 13)]));
    map.machine.end(2);
    for _ in 0..100 {
        assert_eq!(map.read(), is(&[("train", 13)]), "the program may run again");
    }
}

#[test]
fn series_of_containers_end_after_their_last_process() {
    let mut map = ByProcess::new("process", MapValue::Agg(Agg::Count), 9);
    map.rows = vec![(3, 5)];
    map.read();
    map.machine.end(3);
    let last = (0..100).take_while(|_| map.read() == is(&[("c3", 5)])).count();
    assert_eq!((last, map.read()), (10, vec![]));
}

#[test]
fn series_by_process_id_show_their_last_value_and_end() {
    let mut map = ByProcess::new("process.pid", MapValue::Agg(Agg::Count), 9);
    map.rows = vec![(1, 5), (2, 7)];
    map.read();
    map.rows[0].1 = 6;
    map.machine.end(1);
    assert_eq!(map.read(), is(&[("train", 6), ("train", 7)]));
    assert_eq!(map.read(), is(&[("train", 6), ("train", 7)]));
    assert_eq!(map.read(), is(&[("train", 7)]));
}

#[test]
fn gauges_end_with_their_process() {
    let plain = MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    let mut map = ByProcess::new("process.pid", plain, 9);
    map.rows = vec![(1, 5), (2, 7)];
    assert_eq!(map.read(), is(&[("train", 5), ("train", 7)]));
    map.machine.end(1);
    assert_eq!((map.read(), map.rows.len()), (is(&[("train", 7)]), 1));
}

#[test]
fn sums_that_may_fall_are_0_before_they_end_with_their_process() {
    let plain = MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    let mut map = ByProcess::new("process.pid", plain, 9);
    map.manifest.metrics[0].kind = Some(MetricKind::UpDownCounter);
    map.rows = vec![(3, 5), (4, 7)];
    assert_eq!(map.read(), is(&[("c3", 5), ("c4", 7)]));
    map.machine.end(3);
    map.machine.end(5);
    map.rows.push((5, 9));
    assert_eq!(map.read(), is(&[("c3", 0), ("c4", 7)]), "what was never shown does not appear");
    assert_eq!(map.read(), is(&[("c3", 0), ("c4", 7)]));
    assert_eq!(map.read(), is(&[("c4", 7)]));
}

#[test]
fn series_of_ended_processes_make_room_for_live_ones() {
    let mut map = ByProcess::new("process", MapValue::Agg(Agg::Count), 2);
    map.rows = vec![(3, 1), (4, 2)];
    map.read();
    map.rows.extend([(5, 3), (6, 9)]);
    map.machine.end(3);
    assert_eq!(map.read(), is(&[("c4", 2), ("c6", 9), ("other", 3)]), "the largest gets the room");
    map.machine.end(5);
    map.rows.push((7, 1));
    assert_eq!(map.read(), is(&[("c4", 2), ("c6", 9), ("other", 4)]), "what is in the others stays there");
    assert_eq!(map.read(), is(&[("c4", 2), ("c6", 9), ("other", 4)]));
}

#[test]
fn the_largest_gauges_are_shown() {
    let plain = MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    let mut map = ByProcess::new("process.pid", plain, 2);
    map.rows = vec![(3, 1), (4, 2), (5, 9)];
    assert_eq!(map.read(), is(&[("c4", 2), ("c5", 9), ("other", 1)]));
    map.rows = vec![(3, 7), (4, 2), (5, 1)];
    assert_eq!(map.read(), is(&[("c3", 7), ("c4", 2), ("other", 1)]));
}

#[test]
fn counters_begin_at_0_for_scrapers() {
    let manifest = with(vec![map("n", MapValue::Agg(Agg::Count))], vec![metric("", &["k"])]);
    let families = |now: &[(&str, i64)]| Metrics::default().families(&manifest, &Fake, &[counts(0, now)]);
    let mut births = Births::default();
    let mut shown = |now: &[(&str, i64)], recent| numbers(&births.shown(&families(now), recent)[0]);
    assert_eq!(shown(&[("a", 3)], true), is(&[("a", 0)]));
    assert_eq!(shown(&[("a", 3), ("b", 1)], true), is(&[("a", 3), ("b", 0)]));
    assert_eq!(shown(&[("a", 4), ("b", 1)], true), is(&[("a", 4), ("b", 1)]));
    assert_eq!(shown(&[("b", 1), ("c", 99)], false), is(&[("b", 1), ("c", 99)]), "nobody scraped for long");
    assert_eq!(shown(&[("a", 2), ("b", 1), ("c", 99)], true), is(&[("a", 0), ("b", 1), ("c", 99)]));
}

#[test]
fn problem_counters_are_0_before_a_problem_occurs() {
    let counter = |kind| wire::Counter { kind, place: wire::manifest::Place::default() };
    let full = |map| counter(wire::CounterKind::MapFull(map));
    let counters = vec![full(0), full(1), full(2), counter(wire::CounterKind::UserRead)];
    let maps = ["n", "__device_at", "__device_before"].map(|name| map(name, MapValue::Agg(Agg::Count)));
    let manifest = Manifest { counters, ..with(maps.to_vec(), vec![]) };
    let families = Health::default().families(&manifest);
    let problems = families.iter().find(|family| family.name == "cudatrace.problems").expect("zeros");
    let shown: Vec<_> = problems.points.iter().map(|point| (point.labels.clone(), &point.value)).collect();
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let zero = &Reading::Number(0.into());
    assert_eq!(
        shown,
        [
            (vec![label("kind", "map_full"), label("map", "@n")], zero),
            (vec![label("kind", "map_full"), label("map", "cudatrace itself")], zero),
            (vec![label("kind", "user_read")], zero)
        ]
    );
}

#[test]
fn histograms_have_the_bounds_of_their_buckets() {
    let manifest = with(vec![map("h", HIST)], vec![]);
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[0, 1, 2, 3, 4, 9])]);
    let Reading::Histogram { buckets, count, sum } = &families[0].points[0].value else { panic!() };
    let bounds: Vec<(i128, u64)> = buckets.iter().map(|(bound, up_to)| (bound.whole, *up_to)).collect();
    assert_eq!(bounds[..6], [(0, 1), (1, 2), (3, 4), (7, 5), (15, 6), (31, 6)]);
    assert_eq!((bounds.len(), bounds.last()), (41, Some(&((1 << 40) - 1, 6))));
    assert_eq!((*count, sum.map(|sum| sum.whole)), (6, Some(19)));
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[-3, i64::MAX])]);
    let Reading::Histogram { buckets, count, sum } = &families[0].points[0].value else { panic!() };
    assert_eq!(*sum, None, "it may fall");
    assert_eq!((buckets[0].0.whole, buckets[0].1, *count), (0, 1, 2));
    assert_eq!(buckets.last().map(|(bound, up_to)| (bound.whole, *up_to)), Some(((1 << 40) - 1, 1)));
}

#[test]
fn bounds_do_not_depend_on_samples() {
    let seconds = Metric { unit: "s".into(), divisor: 1_000_000_000, ..metric("t", &[]) };
    let lhist = MapValue::Agg(Agg::LHist { min: 100, max: 100_000, step: 100, summed: true });
    for (value, metric, len) in
        [(HIST, metric("", &[]), 41), (HIST, seconds, 28), (lhist, metric("", &[]), 126)]
    {
        let manifest = with(vec![map("h", value.clone())], vec![metric]);
        let MapValue::Agg(agg) = &value else { unreachable!("a histogram") };
        let bounds = |filled: usize| {
            let mut counts = vec![0; agg.buckets() as usize];
            counts[filled] = 1;
            let cell = Cell::Buckets { counts, sum: Some(1) };
            let snapshot = Snapshot { map: 0, entries: vec![(vec![], cell)], top: 0, div: 0 };
            let families = Metrics::default().families(&manifest, &Fake, &[snapshot]);
            let Reading::Histogram { buckets, .. } = &families[0].points[0].value else { panic!() };
            buckets.iter().map(|(bound, _)| bound.whole).collect::<Vec<_>>()
        };
        assert_eq!(bounds(3), bounds(40));
        assert_eq!(bounds(3).len(), len);
        assert!(bounds(3).is_sorted_by(|one, next| one < next));
    }
}

#[test]
fn fine_histograms_are_joined_without_error() {
    let samples: Vec<i64> = (0..5000).collect();
    let of = |bits| {
        let value = MapValue::Agg(Agg::Hist { bits, summed: true });
        let manifest = with(vec![map("h", value)], vec![]);
        let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, bits, &samples)]);
        let Reading::Histogram { buckets, .. } = families[0].points[0].value.clone() else { panic!() };
        buckets
    };
    for (bound, up_to) in of(5) {
        let expected = samples.iter().filter(|&&sample| i128::from(sample) <= bound.whole).count();
        assert_eq!(up_to, expected as u64, "{bound}");
    }
    assert_eq!(of(5).last().map(|(_, up_to)| *up_to), Some(5000), "the last bound has all");
    let (fine, coarse): (Vec<_>, Vec<_>) = (of(5), of(2));
    let bounds = |buckets: &[(Number, u64)]| buckets.iter().map(|(b, _)| b.whole).collect::<Vec<_>>();
    assert_eq!(bounds(&fine), bounds(&coarse));
}

#[test]
fn equal_steps_end_where_the_next_begin() {
    let value = MapValue::Agg(Agg::LHist { min: 0, max: 25, step: 10, summed: true });
    let manifest = with(vec![map("h", value)], vec![]);
    let read = |counts: [u64; 5]| {
        let cell = Cell::Buckets { counts: counts.to_vec(), sum: Some(77) };
        let snapshot = Snapshot { map: 0, entries: vec![(vec![], cell)], top: 0, div: 0 };
        let families = Metrics::default().families(&manifest, &Fake, &[snapshot]);
        let Reading::Histogram { buckets, count, sum } = &families[0].points[0].value else { panic!() };
        let bounds: Vec<(i128, u64)> = buckets.iter().map(|(bound, up_to)| (bound.whole, *up_to)).collect();
        (bounds, *count, sum.map(|sum| sum.whole))
    };
    assert_eq!(read([1, 2, 0, 3, 4]), (vec![(9, 3), (19, 3), (24, 6)], 10, None));
    assert_eq!(read([0, 2, 0, 3, 4]), (vec![(9, 2), (19, 2), (24, 5)], 9, Some(77)));
    assert_eq!(read([0, 0, 1, 0, 0]), (vec![(9, 0), (19, 1), (24, 1)], 1, Some(77)));
    assert_eq!(read([0; 5]), (vec![(9, 0), (19, 0), (24, 0)], 0, Some(77)), "all were zeroed");
}

#[test]
fn sums_have_the_divisor_of_their_family() {
    let metric = Metric { unit: "s".into(), divisor: 1_000_000_000, ..metric("x.duration", &[]) };
    let manifest = with(vec![map("h", HIST)], vec![metric]);
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[1000, 1500])]);
    let Reading::Histogram { sum, buckets, .. } = &families[0].points[0].value else { panic!() };
    assert_eq!(sum.map(Number::as_f64), Some(2.5e-6));
    assert_eq!(buckets.get(1).map(|(bound, up_to)| (bound.as_f64(), *up_to)), Some((2.047e-6, 2)));
}

#[test]
fn families_of_one_name_become_two() {
    let count = || MapValue::Agg(Agg::Count);
    let maps = vec![map("x", HIST), map("x_count", count()), map("x_total", count())];
    let manifest = with(maps, vec![]);
    let snapshots = [histogram(0, 0, &[1]), counts(1, &[("a", 1)]), counts(2, &[("a", 1)])];
    let families = Metrics::default().families(&manifest, &Fake, &snapshots);
    let names: Vec<_> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, ["cudatrace_x", "cudatrace_x_count_2", "cudatrace_x_total_2"]);
}

#[test]
fn text_and_pointers_are_no_metrics() {
    let manifest = with(vec![map("s", MapValue::Plain(wire::Type::Str(8)))], vec![]);
    let entries = vec![(vec![], Cell::Plain(Value::Str(b"x".to_vec(), false)))];
    let snapshot = Snapshot { map: 0, entries, top: 0, div: 0 };
    assert_eq!(Metrics::default().families(&manifest, &Fake, &[snapshot]), []);
}

#[test]
fn runs_of_no_clause_have_a_name() {
    let runs = |probe: &str, hits| health::ClauseRuns { probe: probe.to_owned(), hits, ns: 1 };
    let runs = vec![runs("", 3), runs("cuda:launch", 4)];
    let families = health::Health { runs, ..health::Health::default() }.families(&manifest());
    let hits = families.iter().find(|family| family.name == "cudatrace.probe.hits").expect("it counts");
    assert_eq!(numbers(hits), [("cudatrace itself".to_owned(), 3), ("cuda:launch".to_owned(), 4)]);
}
