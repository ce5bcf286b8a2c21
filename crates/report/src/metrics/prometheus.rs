//! Prometheus' form of metric names, by OpenTelemetry's rule.

use super::{Family, Kind};

/// Units with another name in Prometheus.
const UNITS: &[(&str, &str)] = &[
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("%", "percent"),
    ("1", "ratio"),
];

/// Name of the unit, empty if there is none: `{call}` is only an annotation.
pub fn unit(family: &Family) -> String {
    match family.unit.as_str() {
        "" => String::new(),
        "1" if !matches!(family.kind, Kind::Gauge | Kind::UpDownCounter) => String::new(),
        unit if unit.starts_with('{') => String::new(),
        unit => match unit.split_once('/') {
            // `By/s` is `bytes_per_second`.
            Some((of, per)) => format!("{}_per_{}", word(of), word(per).trim_end_matches('s')),
            None => word(unit),
        },
    }
}

/// Prometheus' word for a unit.
fn word(unit: &str) -> String {
    let known = UNITS.iter().find(|(ucum, _)| *ucum == unit);
    known.map_or_else(|| clean(unit), |(_, word)| (*word).to_owned())
}

/// Name of the family, with its unit and without `_total`.
pub fn name(family: &Family) -> String {
    let mut name = clean(&family.name);
    if family.kind == Kind::Counter {
        name.truncate(name.strip_suffix("_total").unwrap_or(&name).len());
    }
    let unit = unit(family);
    if !unit.is_empty() && name != unit && !name.ends_with(&format!("_{unit}")) {
        name = format!("{name}_{unit}");
    }
    name
}

/// Name of a label.
pub fn label(name: &str) -> String {
    clean(name).replace(':', "_")
}

/// The sample names that a family uses.
pub fn sample_names(family: &Family) -> Vec<String> {
    let name = name(family);
    let suffixes: &[&str] = match family.kind {
        Kind::Counter => &["", "_total"],
        Kind::Gauge | Kind::UpDownCounter => &[""],
        Kind::Histogram => &["", "_bucket", "_count", "_sum"],
        Kind::Summary => &["", "_count", "_sum"],
    };
    suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect()
}

/// Replaces characters other than letters, digits, `_` and `:`, and a digit at the start.
fn clean(name: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == ':' { c } else { '_' };
    let name: String = name.chars().map(good).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
