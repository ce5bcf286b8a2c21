//! Reads a long script in two halves at once, where it has a place between two items and nothing is wrong with it. Pest takes
//! as long as all that follows takes to check it.

use std::thread;

use super::build::Builder;
use super::{nesting, read_items, tokens};
use crate::ast::Item;
use crate::diagnostic::Diagnostics;

/// Bytes that are worth a thread: starting one takes as long as reading a few hundred.
const WORTH: usize = 4096;

/// The items from `start` to the end of the text. `None` if there is anything to say of them: then they are read one after the
/// other.
pub(super) fn read(text: &str, start: usize, params: &[String]) -> Option<Vec<Item>> {
    let cut = cut(text, start)?;
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| faultless(text, cut, params));
        (faultless(&text[..cut], start, params), second.join())
    });
    let second = second.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let mut items = first?;
    items.extend(second?);
    Some(items)
}

/// The place nearest to the middle of the work where an item seems to begin, behind the brace that ends the one before it. If it lies
/// in a comment or in a body, neither half is right.
fn cut(text: &str, start: usize) -> Option<usize> {
    const END: &str = "}\n";
    if text.len() - start <= WORTH {
        return None;
    }
    // Work goes with the marks, not with the words in comments and texts.
    let (mut at, mut done, mut ends) = (start, 0, Vec::new());
    for line in text[start..].split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or("");
        done += code.bytes().filter(|byte| byte.is_ascii_punctuation() && *byte != b'_').count();
        at += line.len();
        if line == END {
            ends.push((at, done));
        }
    }
    ends.sort_by_key(|(_, work)| work.abs_diff(done / 2));
    let begins = |cut: &usize| tokens::next(text, *cut).is_some_and(|token| tokens::begins_item(text, token));
    ends.into_iter().map(|(at, _)| at).find(begins)
}

fn faultless(text: &str, start: usize, params: &[String]) -> Option<Vec<Item>> {
    let mut diags = Diagnostics::default();
    let mut items = Vec::new();
    if nesting::is_too_deep(text, tokens::skip_space(text, start), &mut diags) {
        return None;
    }
    let end = read_items(text, start, &mut Builder::new(params, &mut diags), &mut items);
    (end == text.len() && diags.list.is_empty()).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(clauses: usize) -> String {
        let clause = |n| format!("// The {n}th.\nuprobe:libcuda:f{n} {{\n    @[{n}] = count();\n}}\n\n");
        (0..clauses).map(clause).collect()
    }

    #[test]
    fn halves_are_the_whole() {
        let text = script(200);
        let whole = faultless(&text, 0, &[]).expect("nothing is wrong");
        assert_eq!(whole.len(), 200);
        assert_eq!(read(&text, 0, &[]), Some(whole));
    }

    #[test]
    fn a_place_in_a_comment_is_no_end_of_an_item() {
        let text = script(100) + "/*\n" + &script(200) + "*/\n" + &script(100);
        assert!(cut(&text, 0).is_some());
        assert_eq!(read(&text, 0, &[]), None);
    }

    #[test]
    fn short_and_wrong_scripts_are_read_in_one() {
        assert_eq!(read(&script(3), 0, &[]), None);
        assert_eq!(read(&(script(200) + "BEGIN { $x = }"), 0, &[]), None);
    }
}
