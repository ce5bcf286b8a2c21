use super::*;
use crate::metrics::Number;

fn family(kind: Kind, unit: &str, points: Vec<Point>) -> Family {
    Family { name: "gpu.cuda.x".into(), unit: unit.into(), help: "What \"it\"\nis".into(), kind, points }
}

fn point(labels: &[(&str, &str)], value: Reading) -> Point {
    let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Point { labels, value }
}

fn number(whole: i128) -> Number {
    Number { whole, divisor: 1 }
}

#[test]
fn a_counter_in_both_forms() {
    let hostile = point(&[("cuda.kind", "a\"b\\c\nd")], Reading::Number(number(7)));
    let families = [family(Kind::Counter, "By", vec![hostile])];
    assert_eq!(
        render(&families, Form::OpenMetrics),
        "# TYPE gpu_cuda_x_bytes counter\n# UNIT gpu_cuda_x_bytes bytes\n\
         # HELP gpu_cuda_x_bytes What \\\"it\\\"\\nis\n\
         gpu_cuda_x_bytes_total{cuda_kind=\"a\\\"b\\\\c\\nd\"} 7\n# EOF\n"
    );
    assert_eq!(
        render(&families, Form::Prometheus),
        "# HELP gpu_cuda_x_bytes_total What \"it\"\\nis\n# TYPE gpu_cuda_x_bytes_total counter\n\
         gpu_cuda_x_bytes_total{cuda_kind=\"a\\\"b\\\\c\\nd\"} 7\n"
    );
}

#[test]
fn a_histogram_is_cumulative_and_has_a_sum_where_one_is_kept() {
    let seconds = |whole| Number { whole, divisor: 1_000_000_000 };
    let buckets = vec![(seconds(1023), 1), (seconds(2047), 3)];
    let with_sum = Reading::Histogram { buckets: buckets.clone(), count: 4, sum: Some(seconds(9_500)) };
    let without = Reading::Histogram { buckets, count: 4, sum: None };
    let text = |reading, form| {
        let text = render(&[family(Kind::Histogram, "s", vec![point(&[], reading)])], form);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    let bounds = [
        "gpu_cuda_x_seconds_bucket{le=\"0.000001023\"} 1",
        "gpu_cuda_x_seconds_bucket{le=\"0.000002047\"} 3",
        "gpu_cuda_x_seconds_bucket{le=\"+Inf\"} 4",
    ];
    let count = "gpu_cuda_x_seconds_count 4";
    assert_eq!(text(without.clone(), Form::OpenMetrics), bounds);
    assert_eq!(text(without, Form::Prometheus), [&bounds[..], &[count]].concat());
    let sum = "gpu_cuda_x_seconds_sum 0.0000095";
    assert_eq!(text(with_sum, Form::OpenMetrics), [&bounds[..], &[count, sum]].concat());
}

#[test]
fn labels_of_one_name_become_two() {
    let labels = [("le", "1"), ("a.b", "2"), ("a_b", "3")];
    let text = render(
        &[family(Kind::Gauge, "", vec![point(&labels, Reading::Number(number(-1)))])],
        Form::Prometheus,
    );
    assert!(text.ends_with("gpu_cuda_x{le_=\"1\",a_b=\"2\",a_b_=\"3\"} -1\n"), "{text}");
}

#[test]
fn the_accept_header_decides() {
    let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                      application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                      text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
    for accept in
        ["", "*/*", "text/plain", "text/html,application/xhtml+xml", "application/openmetrics-text;q=0"]
    {
        assert_eq!(Form::accepted(accept), Form::Prometheus, "{accept}");
    }
    assert_eq!(Form::accepted("application/openmetrics-text; version=1.0.0"), Form::OpenMetrics);
    assert_eq!(Form::accepted("application/openmetrics-text; version=2.0.0, text/plain"), Form::Prometheus);
    assert_eq!(Form::accepted("text/plain;q=0.9, application/openmetrics-text;q=0.1"), Form::Prometheus);
}
