//! Patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-z]`, `[^x]`, `\` before any byte.
//! Iterative, with a budget.
//!
//! Each element but `*` takes exactly one byte, so only the last `*` must be remembered: when the
//! rest does not match, that star takes one byte more. This is at most `pattern * text` steps; the
//! budget bounds even that.

/// Matching took more steps than the budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySteps;

/// A pattern.
#[derive(Clone, Copy, Debug)]
pub struct Glob<'a> {
    pattern: &'a [u8],
}

/// Steps that one match may take: enough for any pattern and key that a person writes.
const BUDGET: usize = 1 << 20;

impl<'a> Glob<'a> {
    /// A pattern. Every byte string is one: an unclosed class ends with the pattern.
    pub fn new(pattern: &'a [u8]) -> Glob<'a> {
        Glob { pattern }
    }

    /// Whether it matches everything.
    pub fn is_all(self) -> bool {
        self.pattern == b"*"
    }

    /// The bytes with which everything begins that it matches: those before the first `*`, `?` or
    /// class.
    pub fn prefix(self) -> Vec<u8> {
        let (mut prefix, mut rest) = (Vec::new(), self.pattern);
        loop {
            let (byte, taken) = match *rest {
                [] | [b'*' | b'?' | b'[', ..] => return prefix,
                [b'\\', escaped, ..] => (escaped, 2),
                [plain, ..] => (plain, 1),
            };
            prefix.push(byte);
            rest = &rest[taken..];
        }
    }

    /// Whether it matches the whole of `text`.
    pub fn matches(self, text: &[u8]) -> Result<bool, TooManySteps> {
        self.matches_within(text, BUDGET)
    }

    /// [`Glob::matches`] in at most `budget` steps.
    pub fn matches_within(self, text: &[u8], mut budget: usize) -> Result<bool, TooManySteps> {
        let (mut p, mut t) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            budget = budget.checked_sub(1).ok_or(TooManySteps)?;
            if self.pattern.get(p) == Some(&b'*') {
                p += 1;
                star = Some((p, t));
                continue;
            }
            match self.element(p, text[t], &mut budget)? {
                Some(next) => (p, t) = (next, t + 1),
                None => match star {
                    None => return Ok(false),
                    Some((after, taken)) => {
                        (p, t) = (after, taken + 1);
                        star = Some((after, taken + 1));
                    }
                },
            }
        }
        Ok(self.pattern[p..].iter().all(|&byte| byte == b'*'))
    }

    /// The start of the next element if the element at `p` matches `byte`.
    fn element(self, p: usize, byte: u8, budget: &mut usize) -> Result<Option<usize>, TooManySteps> {
        let (matched, next) = match self.pattern[p..] {
            [] => (false, p),
            [b'?', ..] => (true, p + 1),
            [b'[', ..] => {
                let (matched, next) = self.class(p + 1, byte);
                *budget = budget.checked_sub(next - p).ok_or(TooManySteps)?;
                (matched, next)
            }
            [b'\\', escaped, ..] => (escaped == byte, p + 2),
            [plain, ..] => (plain == byte, p + 1),
        };
        Ok(matched.then_some(next))
    }

    /// Whether the class that starts at `p` contains `byte`, and the start of the next element.
    fn class(self, mut p: usize, byte: u8) -> (bool, usize) {
        let negated = self.pattern.get(p) == Some(&b'^');
        p += usize::from(negated);
        let mut held = false;
        loop {
            let (low, high, taken) = match self.pattern[p..] {
                [] => return (held != negated, p),
                [b'\\', escaped, ..] => (escaped, escaped, 2),
                [b']', ..] => return (held != negated, p + 1),
                [low, b'-', high, ..] => (low.min(high), low.max(high), 3),
                [plain, ..] => (plain, plain, 1),
            };
            held |= (low..=high).contains(&byte);
            p += taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes()).matches(text.as_bytes()).unwrap()
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("*", "anything"),
            ("*", ""),
            ("**", "a"),
            ("a*", "a"),
            ("a*c", "abbc"),
            ("a*c*", "abcabc"),
            ("*a*b", "xaab"),
            ("a?c", "abc"),
            ("[abc]x", "bx"),
            ("[a-c]x", "bx"),
            ("[c-a]x", "bx"),
            ("[^a]x", "bx"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("[a", "a"),
            ("a\\", "a\\"),
            ("[a-]", "_"),
            ("[^]x", "qx"),
            ("h[^e]llo", "hallo"),
            ("*[0-9]*", "ab3c"),
            ("user:*:name", "user:17:name"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a*c", "abb"),
            ("a?c", "ac"),
            ("[abc]x", "dx"),
            ("[^a]x", "ax"),
            ("\\*", "x"),
            ("[]a]", "a"),
            ("[a-]", "-"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_pattern_runs_out_of_steps() {
        let pattern = [b"*".to_vec(), b"a".repeat(500), b"b".to_vec()].concat();
        let text = b"a".repeat(60_000);
        assert_eq!(Glob::new(&pattern).matches(&text), Err(TooManySteps));
        assert_eq!(Glob::new(&b"*a".repeat(500)).matches(&text), Ok(true));
    }

    #[test]
    fn prefix_ends_before_the_first_special_byte() {
        for (pattern, prefix) in [
            ("", ""),
            ("*", ""),
            ("user:*:name", "user:"),
            ("key", "key"),
            ("a?b", "a"),
            ("a[b]", "a"),
            ("a]b", "a]b"),
            ("\\*\\a\\\\b*", "*a\\b"),
            ("a\\", "a\\"),
        ] {
            assert_eq!(Glob::new(pattern.as_bytes()).prefix(), prefix.as_bytes(), "{pattern}");
        }
    }

    /// Redis's own recursive definition, for short texts.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|taken| reference(rest, &text[taken..])),
            _ => match text {
                [] => false,
                [byte, rest @ ..] => match Glob::new(pattern).element(0, *byte, &mut 1000) {
                    Ok(Some(next)) => reference(&pattern[next..], rest),
                    _ => false,
                },
            },
        }
    }

    proptest! {
        #[test]
        fn matches_equals_recursive_definition(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab-]{0,8}") {
            let matched = matches(&pattern, &text);
            prop_assert_eq!(matched, reference(pattern.as_bytes(), text.as_bytes()));
            let begins = text.as_bytes().starts_with(&Glob::new(pattern.as_bytes()).prefix());
            prop_assert!(begins || !matched);
        }
    }
}
