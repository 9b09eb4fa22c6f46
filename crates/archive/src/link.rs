//! When a symbolic link stays inside.

/// Whether a link with this target, lying in a directory `depth` levels below the root, can never lead out of the root.
///
/// `..` is permitted only at the beginning, and at most `depth` times. A `..` after a name is refused even where it
/// looks harmless, since that name may itself be a link to a less deep directory. By induction over links, whatever
/// they point at, resolution then never leaves the root.
pub(crate) fn stays_inside(depth: usize, target: &[u8]) -> bool {
    if target.is_empty() || target.len() > 4_095 || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    let mut up = 0_usize;
    let mut named = false;
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named => return false,
            b".." => up = up.saturating_add(1),
            _ => named = true,
        }
    }
    up <= depth
}

#[cfg(test)]
mod tests {
    use super::stays_inside;

    #[test]
    fn only_leading_dots_that_stay_below_the_root_are_permitted() {
        for (depth, good) in
            [(0, "a"), (0, "a/b"), (1, "../a"), (2, "../../a"), (0, "./a"), (1, ".."), (0, ".")]
        {
            assert!(stays_inside(depth, good.as_bytes()), "{good}");
        }
        for (depth, bad) in
            [(0, ".."), (0, "../a"), (1, "../../a"), (3, "a/../../b"), (0, "/a"), (0, ""), (2, "a/..")]
        {
            assert!(!stays_inside(depth, bad.as_bytes()), "{bad}");
        }
        assert!(!stays_inside(0, b"a\0b"));
    }
}
