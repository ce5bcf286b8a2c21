//! Columns of text: names to the left, numbers to the right.

use crate::recording::summary::cut;
use crate::value::escape;

/// A line of titles, then the rows. Names, which are in the first column, are cut to what `columns` columns leave for them, but not below
/// `SHORTEST`.
pub(super) fn draw(titles: &[&str], rows: &[Vec<String>], columns: usize) -> String {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([titles[at].chars().count()]).max().unwrap_or(0)
    };
    let numbers: Vec<usize> = (1..titles.len()).map(width).collect();
    let left = columns.saturating_sub(numbers.iter().map(|width| width + GAP).sum());
    let wide = width(0).min(left.max(SHORTEST));
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let name = cut(cells.next().unwrap_or_default(), wide);
        let mut line = format!("{name:<wide$}");
        cells.zip(&numbers).for_each(|(cell, width)| line += &format!("{cell:>0$}", width + GAP));
        escape(line.trim_end().as_bytes()) + "\n"
    };
    let head = line(&mut titles.iter().copied());
    rows.iter().fold(head, |text, row| text + &line(&mut row.iter().map(String::as_str)))
}

/// Columns between two columns.
const GAP: usize = 2;
/// Shortest width of a column of names that is cut.
const SHORTEST: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_numbers_are_not() {
        let name = "a_name_of_more_than_twenty_eight_letters_and_more";
        let rows = [vec![name.into(), "123456".into()], vec!["b".into(), "7".into()]];
        let text = draw(&["NAME", "CALLS"], &rows, 20);
        assert_eq!(
            text,
            "NAME                           CALLS\na_name_of_more_tha…_and_more  123456\nb                                  7\n"
        );
        assert!(draw(&["NAME", "CALLS"], &rows, 100).contains(name));
    }
}
