//! `span(...)`, `event(...)` and `counter(...)` as text, for runs without an exporter.

use wire::Value;
use wire::manifest::{Export, Hidden};

use crate::value::Context;

/// What is said of one.
pub struct Exported<'a> {
    /// `span`
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// ns.
    pub duration: Option<&'a Value>,
    /// The call's.
    pub result: Option<&'a Value>,
    /// A counter's.
    pub number: Option<&'a Value>,
    /// What the script added.
    pub fields: Vec<(&'a str, &'a Value)>,
}

impl<'a> Exported<'a> {
    /// Takes a record's values apart.
    pub fn of(
        context: Context,
        (what, name): (Export, Option<&str>),
        (hidden, keys): (&[Hidden], &'a [String]),
        values: &'a [Value],
    ) -> Exported<'a> {
        let find = |which: Hidden| values.get(hidden.iter().position(|hidden| *hidden == which)?);
        let kind = match what {
            Export::Span => "span",
            Export::Instant => "event",
            Export::Counter => "counter",
        };
        let said = find(Hidden::Name).or(find(Hidden::Func)).map(|value| context.text(value));
        Exported {
            kind,
            name: name.map(str::to_owned).or(said).unwrap_or_default(),
            duration: find(Hidden::Duration),
            result: find(Hidden::Result),
            number: find(Hidden::Number),
            fields: keys.iter().map(String::as_str).zip(&values[hidden.len().min(values.len())..]).collect(),
        }
    }
}
