//! Patterns of names, the same for all kinds of attach points, for lists and completion.

/// Characters by which a name is a pattern.
const SPECIAL: [char; 3] = ['*', '?', '['];

/// Whether a name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(SPECIAL)
}

/// The common beginning of all names that match.
pub fn beginning(pattern: &str) -> &str {
    pattern.split(SPECIAL).next().unwrap_or(pattern)
}

/// Whether a name matches: `*` any text, `?` any byte, `[abc]` `[a-z]` `[!a]` one byte of a set. Linear but for the last `*`, which backtracks.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (glob, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() || g < glob.len() {
        if glob.get(g) == Some(&b'*') {
            retry = Some((g, t));
            g += 1;
            continue;
        }
        if let Some(width) = text.get(t).and_then(|&byte| one_matches(&glob[g..], byte)) {
            (g, t) = (g + width, t + 1);
            continue;
        }
        match retry {
            Some((star, at)) if at < text.len() => {
                retry = Some((star, at + 1));
                (g, t) = (star + 1, at + 1);
            }
            _ => return false,
        }
    }
    true
}

/// Length of the first element of `glob` if it matches `byte`.
fn one_matches(glob: &[u8], byte: u8) -> Option<usize> {
    match *glob.first()? {
        b'?' => Some(1),
        b'[' => match set(glob) {
            Some((members, width)) => set_has(members, byte).then_some(width),
            None => (byte == b'[').then_some(1),
        },
        literal => (literal == byte).then_some(1),
    }
}

/// The text between brackets, and the length with the brackets; `None` if they are not closed.
fn set(glob: &[u8]) -> Option<(&[u8], usize)> {
    let close = glob.iter().skip(2).position(|&b| b == b']')? + 2;
    Some((&glob[1..close], close + 1))
}

fn set_has(members: &[u8], byte: u8) -> bool {
    let (negated, mut rest) = match members {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, members),
    };
    let mut found = false;
    while let Some((&first, tail)) = rest.split_first() {
        match tail {
            [b'-', last, after @ ..] => {
                found |= (first..=*last).contains(&byte);
                rest = after;
            }
            _ => {
                found |= first == byte;
                rest = tail;
            }
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn globs() {
        let cases = [
            ("cuMem*", "cuMemAlloc_v2", true),
            ("cuMem*", "cuCtxCreate", false),
            ("*", "", true),
            ("*Alloc*", "cuMemAllocHost", true),
            ("cu*Alloc", "cuMemAllocHost", false),
            ("cu?nit", "cuInit", true),
            ("cu[A-MX]nit", "cuInit", true),
            ("cu[!I]nit", "cuInit", false),
            ("a*b*c", "aXbYbZc", true),
            ("a[", "a[", true),
            ("", "a", false),
            ("**", "a", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        assert!(!glob(&"*a".repeat(30), &"a".repeat(29)));
    }

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
