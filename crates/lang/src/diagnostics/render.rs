//! Prints diagnostics: message, location, source line, carets, notes, help.
//!
//! ```text
//! error[E0005]: `12kb` is not a number
//!  --> leak.ct:1:15
//!   |
//! 1 | BEGIN { print(12kb) }
//!   |               ^^^^
//!   = help: units are those of time: `ns us ms s m h d`
//! ```
//!
//! The text of the script is untrusted data: control characters are printed as symbols, never sent to a terminal.

use std::borrow::Cow;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::diagnostics::{DRAWN, Diagnostic, Severity};
use crate::source::span::{Source, Span};

/// Largest number of other positions that a diagnostic shows.
const MOST_POSITIONS: usize = 4;

/// All diagnostics as text, separated by blank lines, with a newline at the end; empty for none. Beyond the limit
/// only their number is shown.
pub fn render(diags: &[Diagnostic], src: &Source, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut texts: Vec<String> = diags.iter().take(DRAWN).map(|diag| draw(diag, src, &renderer)).collect();
    if let Some(more @ 1..) = diags.len().checked_sub(DRAWN) {
        texts.push(format!("and {more} more findings\n"));
    }
    texts.join("\n")
}

fn draw(diag: &Diagnostic, src: &Source, renderer: &Renderer) -> String {
    let level = match diag.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let excerpt = Excerpt::new(diag, src);
    let mut mark = AnnotationKind::Primary.span(excerpt.mark);
    if !diag.label.is_empty() {
        mark = mark.label(visible(&diag.label));
    }
    let snippet = Snippet::source(excerpt.text)
        .line_start(excerpt.line)
        .path(visible(&src.file_at(diag.span.start).name))
        .annotation(mark);
    let mut group: Group = level.primary_title(visible(&diag.message)).id(diag.code).element(snippet);
    if !diag.also.is_empty() {
        group = group.element(Level::NOTE.message(visible(&other_positions(diag, src)).into_owned()));
    }
    if let Some(text) = calls(diag, src) {
        group = group.element(Level::NOTE.message(visible(&text).into_owned()));
    }
    for note in &diag.notes {
        group = group.element(Level::NOTE.message(visible(note)));
    }
    for help in &diag.help {
        group = group.element(Level::HELP.message(visible(help)));
    }
    renderer.render(&[group]) + "\n"
}

/// `also at leak.ct:3:1, leak.ct:9:1 and 2 more`
fn other_positions(diag: &Diagnostic, src: &Source) -> String {
    let shown: Vec<String> = diag.also.iter().take(MOST_POSITIONS).map(|span| position(src, *span)).collect();
    let more = match diag.also.len().saturating_sub(MOST_POSITIONS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("also at {}{more}", shown.join(", "))
}

/// `in the macro that is called at leak.ct:3:1`
fn calls(diag: &Diagnostic, src: &Source) -> Option<String> {
    let shown: Vec<String> =
        diag.calls.iter().take(MOST_POSITIONS).map(|span| position(src, *span)).collect();
    let more = match diag.calls.len().saturating_sub(MOST_POSITIONS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let called = shown.join(", in a macro that is called at ");
    (!shown.is_empty()).then(|| format!("in the macro that is called at {called}{more}"))
}

/// `leak.ct:3:1`
fn position(src: &Source, span: Span) -> String {
    let (line, column) = src.line_column(span.start);
    format!("{}:{line}:{column}", src.file_at(span.start).name)
}

/// The lines around a diagnostic, so that only a part of a long script is rendered.
struct Excerpt {
    text: String,
    line: usize,
    mark: Range<usize>,
}

impl Excerpt {
    fn new(diag: &Diagnostic, src: &Source) -> Excerpt {
        let text = &src.text;
        let start = floor(text, diag.span.start as usize);
        let end = floor(text, diag.span.end as usize).max(start);
        let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let to = text[end..].find('\n').map_or(text.len(), |at| end + at);
        let (line, _) = src.line_column(start as u32);
        let before = visible(&text[from..start]).len();
        let inside = visible(&text[start..end]).len();
        let mark = before..before + inside;
        Excerpt { text: visible(&text[from..to]).into_owned(), line: line as usize, mark }
    }
}

/// The nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Replaces control characters by symbols (`␛` for escape), so that the rendered text has the computed width.
/// Direction marks are also replaced, since they disguise text.
fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| symbol(c).is_some();
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| symbol(c).unwrap_or(c)).collect())
}

fn symbol(c: char) -> Option<char> {
    match c {
        '\t' | '\n' => None,
        // The block U+2400 has a symbol for each ASCII control character.
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {
            Some('\u{fffd}')
        }
        '\u{feff}' => Some('\u{fffd}'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;

    fn drawn(text: &str, span: Range<usize>) -> String {
        let mut diags = Diagnostics::default();
        diags
            .error("E0001", Span::new(span.start, span.end), "what is wrong")
            .label("here")
            .note("a fact")
            .help("a way out");
        render(&diags.list, &Source::new("t.ct", text), false)
    }

    #[test]
    fn shape() {
        let expected = "error[E0001]: what is wrong
 --> t.ct:2:5
  |
2 |     pid = 3
  |     ^^^ here
  |
  = note: a fact
  = help: a way out
";
        assert_eq!(drawn("BEGIN {\n    pid = 3\n}", 12..15), expected);
    }

    #[test]
    fn tabs_and_wide_characters_keep_the_carets_in_place() {
        let text = drawn("\t\"漢字\" pid", 10..13);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].ends_with("    \"漢字\" pid"), "{text}");
        // Four columns of tab, six of the string, one blank.
        assert!(lines[4].ends_with(&format!("| {}^^^ here", " ".repeat(4 + 6 + 1))), "{text}");
    }

    #[test]
    fn odd_sources_do_not_panic() {
        for text in ["", "\n", "é", "a\r\nb", "\u{1b}[31m", "x"] {
            for start in 0..=text.len() + 1 {
                for end in start..=text.len() + 2 {
                    let drawn = drawn(text, start..end);
                    assert!(drawn.starts_with("error[E0001]: what is wrong\n --> t.ct:"), "{drawn}");
                    assert!(!drawn.contains('\u{1b}'), "{drawn:?}");
                }
            }
        }
    }

    #[test]
    fn several_lines_and_far_down() {
        let script = format!("{}BEGIN {{\n  print(1)\n}}\n", "// filler\n".repeat(999));
        let start = script.find("BEGIN").unwrap();
        let text = drawn(&script, start..script.len() - 1);
        assert!(text.contains("t.ct:1000:1"), "{text}");
        assert!(text.contains("1002 |"), "{text}");
        assert!(!text.contains("filler"), "{text}");
    }

    #[test]
    fn the_first_of_very_many_findings_are_drawn() {
        let mut diags = Diagnostics::default();
        for at in 0..DRAWN + 3 {
            diags.error("E0001", Span::new(at, at), "wrong");
        }
        let text = render(&diags.list, &Source::new("t.ct", "x"), false);
        assert_eq!(text.matches("error[E0001]").count(), DRAWN);
        assert!(text.ends_with("\nand 3 more findings\n"), "{text}");
    }

    #[test]
    fn colour_only_when_asked() {
        let mut diags = Diagnostics::default();
        diags.warning("W0051", Span::new(0, 1), "odd");
        let src = Source::new("t.ct", "x");
        assert!(render(&diags.list, &src, true).contains('\u{1b}'));
        assert!(render(&diags.list, &src, false).starts_with("warning[W0051]: odd\n"));
        assert_eq!(render(&[], &src, true), "");
    }
}
