//! Wording that several stages share: suggestions and lists of names.

/// ``did you mean `a`, `b`?``, or an empty list.
pub fn did_you_mean<S: AsRef<str>>(near: &[S]) -> Vec<String> {
    match near {
        [] => Vec::new(),
        near => vec![format!(
            "did you mean {}?",
            listed(near.iter().map(|name| name.as_ref()), 5).replace(", ", " or ")
        )],
    }
}

/// `` `a`, `b` and 3 more``
pub fn listed<'s>(names: impl Iterator<Item = &'s str>, limit: usize) -> String {
    let names: Vec<&str> = names.collect();
    let shown: Vec<String> = names.iter().take(limit).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(limit) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
