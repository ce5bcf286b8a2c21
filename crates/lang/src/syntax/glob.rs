//! Patterns of names with `*`.

/// Whether a text matches a pattern in which `*` matches any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // The first occurrence of each part leaves the longest rest for the following parts.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn stars_match_any_text() {
        let many = "*a".repeat(1000);
        for (pattern, text) in [
            ("*", ""),
            ("sched_*", "sched_switch"),
            ("*_e*t", "sys_exit"),
            ("a", "a"),
            ("a**a*", "aba"),
            (&many, &"a".repeat(1000)),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*b", "a"), ("*x", "xy"), ("ab*ba", "aba"), (&many, &"ab".repeat(1000))]
        {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }
}
