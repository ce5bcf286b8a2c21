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
    // `a` has gone: its place is free, and `c`, which is in the sum of the others, stays there.
    assert_eq!(families(&[("b", 2), ("c", 9), ("e", 5)]), is(&[("b", 2), ("other", 14)]));
    assert_eq!(families(&[("b", 2), ("c", 9), ("f", 1)]), is(&[("b", 2), ("f", 1), ("other", 9)]));
}

#[test]
fn threads_of_a_process_are_one_series_by_its_program() {
    let labels = ["process.pid", "process.executable.name"];
    let manifest = with(vec![map("n", MapValue::Agg(Agg::Count))], vec![metric("", &labels)]);
    let entry = |pid: u64, comm: &str, bits| {
        let key = vec![Value::Uint(pid, 4), Value::Str(comm.into(), false)];
        (key, Cell::Number { bits, signed: false })
    };
    let entries = vec![entry(77, "python3", 1), entry(77, "pt_autograd_0", 2), entry(78, "gone", 4)];
    let snapshot = Snapshot { map: 0, entries, top: 0, div: 0 };
    let family = &Metrics::default().families(&manifest, &Fake, &[snapshot])[0];
    let found: Vec<_> = family.points.iter().map(|point| (&*point.labels[1].1, &point.value)).collect();
    let number = |whole: u64| Reading::Number(whole.into());
    assert_eq!(found, [("python3", &number(3)), ("gone", &number(4))]);
}

#[test]
fn histograms_have_the_bounds_of_their_buckets() {
    let manifest = with(vec![map("h", HIST)], vec![]);
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[0, 1, 2, 3, 4, 9])]);
    let Reading::Histogram { buckets, count, sum } = &families[0].points[0].value else { panic!() };
    let bounds: Vec<(i128, u64)> = buckets.iter().map(|(bound, up_to)| (bound.whole, *up_to)).collect();
    assert_eq!(bounds, [(0, 1), (1, 2), (3, 4), (7, 5), (15, 6)]);
    assert_eq!((*count, sum.map(|sum| sum.whole)), (6, Some(19)));
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[-3, i64::MAX])]);
    let Reading::Histogram { buckets, count, sum } = &families[0].points[0].value else { panic!() };
    assert_eq!(*sum, None, "it may fall");
    assert_eq!((buckets[0].0.whole, buckets[0].1, *count), (-1, 1, 2));
    assert_eq!(buckets.last().map(|(bound, up_to)| (bound.whole, *up_to)), Some(((1 << 62) - 1, 1)));
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
    let bounds = |buckets: &[(Number, u64)]| {
        buckets.iter().map(|(b, _)| b.whole).filter(|b| *b < 4095).collect::<Vec<_>>()
    };
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
    assert_eq!(read([1, 2, 0, 3, 4]), (vec![(-1, 1), (9, 3), (19, 3), (24, 6)], 10, None));
    assert_eq!(read([0, 2, 0, 3, 4]), (vec![(9, 2), (19, 2), (24, 5)], 9, Some(77)));
    assert_eq!(read([0, 0, 1, 0, 0]), (vec![(9, 0), (19, 1)], 1, Some(77)));
    assert_eq!(read([0; 5]), (vec![], 0, Some(77)), "all were zeroed");
}

#[test]
fn sums_have_the_divisor_of_their_family() {
    let metric = Metric { unit: "s".into(), divisor: 1_000_000_000, ..metric("x.duration", &[]) };
    let manifest = with(vec![map("h", HIST)], vec![metric]);
    let families = Metrics::default().families(&manifest, &Fake, &[histogram(0, 0, &[1000, 1500])]);
    let Reading::Histogram { sum, buckets, .. } = &families[0].points[0].value else { panic!() };
    assert_eq!(sum.map(Number::as_f64), Some(2.5e-6));
    assert_eq!(buckets.last().map(|(bound, _)| bound.as_f64()), Some(2.047e-6));
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
    let runs = vec![(String::new(), 3, 1), ("cuda:launch".to_owned(), 4, 1)];
    let families = health::Health { runs, ..health::Health::default() }.families(&manifest());
    let hits = families.iter().find(|family| family.name == "cudatrace.probe.hits").expect("it counts");
    assert_eq!(numbers(hits), [("cudatrace itself".to_owned(), 3), ("cuda:launch".to_owned(), 4)]);
}
