//! A page of two recordings: what changed, and the page of each in a frame, which show the same part of the time.

use super::copy_until;
use crate::export::json;
use crate::value::escape;

const PAIR: &str = include_str!("pair.html");

/// The page of two recordings, from their titles and pages, the verdict of their comparison, and its text.
pub fn pair(pages: [(&str, &str); 2], verdict: &str, changes: &str) -> String {
    let mut framed = String::new();
    json::list(&mut framed, pages.iter(), |out, (title, page)| {
        json::list(out, [title, page].into_iter(), |out, text| json::string(out, text));
    });
    // Inside a script element no text may look like a tag.
    let framed = framed.replace('<', "\\u003c");
    let lines: Vec<String> = changes.lines().map(|line| text(&escape(line.as_bytes()))).collect();
    let (mut out, mut rest) = (String::new(), PAIR);
    for (marker, part) in [
        ("<!--VERDICT-->", &text(&escape(verdict.as_bytes()))),
        ("<!--CHANGES-->", &lines.join("\n")),
        ("/*PAGES*/", &framed),
    ] {
        rest = copy_until(&mut out, rest, marker);
        out.push_str(part);
    }
    out + rest
}

/// A text in HTML.
fn text(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_framed_and_texts_are_no_tags() {
        let pages = [("a<b", "<p>one</p></script>"), ("two", "<p>2</p>")];
        let html = pair(pages, "longer <b>", "x & y\n\x1b[1m");
        let (_, rest) = html.split_once("const PAGES = ").expect("it has the pages");
        let (framed, _) = rest.split_once(";\n").expect("they end");
        let framed: [[String; 2]; 2] = serde_json::from_str(framed).expect("JSON");
        assert_eq!(framed, pages.map(|(title, page)| [title, page].map(str::to_owned)));
        assert!(html.contains("<h1>longer &lt;b></h1>") && html.contains("<pre>x &amp; y\n\\x1b[1m</pre>"));
        assert_eq!(html.matches("</script>").count(), 1);
    }
}
