//! Time series: a line for each interval, its value as a place between the smallest and the largest, as bpftrace draws it.
//!
//! ```text
//!              -5                                                  5
//! hh:mm:ss.ms  |___________________________________________________|
//! 10:39:49.300 *                         .                         | -5
//! 10:39:49.400 |                         .                         * 5
//!              v___________________________________________________v
//!              -5                                                  5
//! ```

use crate::order::wide;
use crate::{Names, Point};

/// Columns from the smallest value to the largest.
const WIDTH: usize = 53;
/// Columns of a time, with the blank behind it.
const TIME: usize = 13;

/// The lines, each with its newline; values are divided by `div`.
pub fn draw(points: &[Point], div: u32, names: &dyn Names) -> String {
    let values: Vec<i128> =
        points.iter().map(|point| wide(point.bits, point.signed) / i128::from(div)).collect();
    let (Some(&low), Some(&high)) = (values.iter().min(), values.iter().max()) else { return String::new() };
    let ends =
        format!("{:TIME$}{low}{high:>rest$}\n", "", rest = WIDTH.saturating_sub(low.to_string().len()));
    let line = "_".repeat(WIDTH - 2);
    let mut out = format!("{ends}{:<TIME$}|{line}|\n", "hh:mm:ss.ms");
    for (point, value) in points.iter().zip(values) {
        let time = names.strftime("%H:%M:%S.%f", names.wall_clock_ns(point.start_ns));
        // Milliseconds of the microseconds.
        let time = time.get(..TIME - 1).unwrap_or(&time);
        out += &format!("{time:<width$} {} {value}\n", row(value, low, high), width = TIME - 1);
    }
    out + &format!("{:TIME$}v{line}v\n{ends}", "")
}

fn row(value: i128, low: i128, high: i128) -> String {
    let column = |value: i128| ((WIDTH as i128 - 1) * (value - low) / (high - low).max(1)) as usize;
    let mut cells = vec![' '; WIDTH];
    if low < 0 && 0 < high {
        cells[column(0)] = '.';
    }
    (cells[0], cells[WIDTH - 1]) = ('|', '|');
    cells[column(value)] = '*';
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::row;

    #[test]
    fn values_lie_between_the_smallest_and_the_largest() {
        assert_eq!(row(-5, -5, 5), format!("*{}.{}|", " ".repeat(25), " ".repeat(25)));
        assert_eq!(row(-4, -5, 5), format!("|{}*{}.{}|", " ".repeat(4), " ".repeat(20), " ".repeat(25)));
        assert_eq!(row(0, -5, 5), format!("|{}*{}|", " ".repeat(25), " ".repeat(25)));
        assert_eq!(row(2, 0, 2), format!("|{}*", " ".repeat(51)));
        assert_eq!(row(7, 7, 7), format!("*{}|", " ".repeat(51)));
    }
}
