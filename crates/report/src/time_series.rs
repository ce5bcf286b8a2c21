//! Time series: one line per interval, the value as a position between the minimum and the maximum, as bpftrace draws it.
//!
//! ```text
//!              -5                                                  5
//! hh:mm:ss.ms  |___________________________________________________|
//! 10:39:49.300 *                         .                         | -5
//! 10:39:49.400 |                         .                         * 5
//!              v___________________________________________________v
//!              -5                                                  5
//! ```

use crate::map_order::wide;
use crate::{Names, Point};

/// Width of the plot in columns.
const WIDTH: usize = 53;
/// Width of a time in columns, including the blank after it.
const TIME: usize = 13;

/// Draws the series, one line per interval; values are divided by `div`. Intervals without a value between two
/// others also have a line.
pub fn draw(points: &[Point], interval_ns: u64, div: u32, names: &dyn Names) -> String {
    let values: Vec<i128> =
        points.iter().map(|point| wide(point.bits, point.signed) / i128::from(div)).collect();
    let (Some(&low), Some(&high)) = (values.iter().min(), values.iter().max()) else { return String::new() };
    // A constant series is drawn in the middle.
    let (low, high) = if low == high { (low - 1, high + 1) } else { (low, high) };
    let ends =
        format!("{:TIME$}{low}{high:>rest$}\n", "", rest = WIDTH.saturating_sub(low.to_string().len()));
    let line = "_".repeat(WIDTH - 2);
    let mut out = format!("{ends}{:<TIME$}|{line}|\n", "hh:mm:ss.ms");
    let mut next_ns = points[0].start_ns;
    for (point, value) in points.iter().zip(values) {
        while next_ns < point.start_ns {
            out += &format!("{} {} -\n", time(next_ns, names), row(None, low, high));
            next_ns = next_ns.saturating_add(interval_ns.max(1));
        }
        out += &format!("{} {} {value}\n", time(point.start_ns, names), row(Some(value), low, high));
        next_ns = point.start_ns.saturating_add(interval_ns.max(1));
    }
    out + &format!("{:TIME$}v{line}v\n{ends}", "")
}

/// `10:39:49.300`
fn time(start_ns: u64, names: &dyn Names) -> String {
    let text = names.strftime("%H:%M:%S.%f", names.wall_clock_ns(start_ns));
    // The microseconds are truncated to milliseconds.
    format!("{:<width$}", text.get(..TIME - 1).unwrap_or(&text), width = TIME - 1)
}

fn row(value: Option<i128>, low: i128, high: i128) -> String {
    let column = |value: i128| ((WIDTH as i128 - 1) * (value - low) / (high - low).max(1)) as usize;
    let mut cells = vec![' '; WIDTH];
    if low < 0 && 0 < high {
        cells[column(0)] = '.';
    }
    (cells[0], cells[WIDTH - 1]) = ('|', '|');
    if let Some(value) = value {
        cells[column(value)] = '*';
    }
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{draw, row};
    use crate::Point;
    use crate::testing::Fake;

    #[test]
    fn values_lie_between_the_smallest_and_the_largest() {
        let row = |value, low, high| row(Some(value), low, high);
        assert_eq!(row(-5, -5, 5), format!("*{}.{}|", " ".repeat(25), " ".repeat(25)));
        assert_eq!(row(-4, -5, 5), format!("|{}*{}.{}|", " ".repeat(4), " ".repeat(20), " ".repeat(25)));
        assert_eq!(row(0, -5, 5), format!("|{}*{}|", " ".repeat(25), " ".repeat(25)));
        assert_eq!(row(2, 0, 2), format!("|{}*", " ".repeat(51)));
    }

    #[test]
    fn a_constant_series_lies_in_the_middle_and_an_empty_interval_has_a_line() {
        let point = |start_ns| Point { start_ns, bits: 7, signed: true };
        let text = draw(&[point(100), point(400)], 100, 1, &Fake);
        let lines: Vec<&str> = text.lines().map(|line| line.get(13..).unwrap_or("").trim_end()).collect();
        let (blank, half) = (" ".repeat(51), " ".repeat(25));
        let value = format!("|{half}*{half}| 7");
        let empty = format!("|{blank}| -");
        assert_eq!(lines[0], format!("6{}8", " ".repeat(51)));
        assert_eq!(lines[2..6], [value.clone(), empty.clone(), empty, value]);
    }
}
