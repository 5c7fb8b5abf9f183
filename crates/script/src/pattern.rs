//! Lua's patterns, matched in steps that count as instructions.
//!
//! Lua's own matcher is one call of C: no limit and no SCRIPT KILL ends it while it backtracks, and
//! it takes the thread's stack for each item that repeats. This one looks at both.

use crate::control::{Control, STEP, Stop};

/// Maximum depth of items that repeat and of captures, as in Lua 5.4.
const DEPTH_MOST: usize = 200;
/// Maximum number of captures.
const CAPTURES_MOST: usize = 32;
/// Bytes of a search without a pattern, or of a set, that count as an instruction.
const BYTES_PER_STEP: usize = 16;

/// What ends a match without a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pattern is wrong.
    Pattern(&'static str),
    Stopped(Stop),
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Fault {
        Fault::Stopped(stop)
    }
}

const UNFINISHED: Fault = Fault::Pattern("unfinished capture");

/// A part of the text, by where it begins and ends; or only a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Part(usize, usize),
    Place(usize),
    /// Begun at this place.
    Open(usize),
}

/// Whether a pattern is a text without special bytes, up to a zero as in C.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !up_to_zero(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

fn up_to_zero(pattern: &[u8]) -> &[u8] {
    pattern.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Where `wanted` begins in `text`, from `from` on.
pub(crate) fn find_plain(
    control: &Control,
    text: &[u8],
    wanted: &[u8],
    from: usize,
) -> Result<Option<usize>, Stop> {
    let Some((&first, more)) = wanted.split_first() else { return Ok(Some(from)) };
    let (mut at, mut steps) = (from, 0);
    loop {
        let rest = &text[at..];
        let Some(skipped) = rest.iter().position(|byte| *byte == first) else { break };
        if rest.len() - skipped < wanted.len() {
            break;
        }
        steps += 1 + skipped / BYTES_PER_STEP;
        let same = rest[skipped + 1..].iter().zip(more).take_while(|(a, b)| a == b).count();
        if same == more.len() {
            return Ok(Some(at + skipped));
        }
        steps += same / BYTES_PER_STEP;
        if steps >= STEP as usize {
            control.work(std::mem::take(&mut steps) as u64)?;
        }
        at += skipped + 1;
    }
    control.work(((text.len() - at) / BYTES_PER_STEP + steps) as u64)?;
    Ok(None)
}

/// A pattern on a text.
pub(crate) struct Matcher<'a> {
    control: &'a Control,
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MOST],
    level: usize,
    depth: usize,
    steps: u64,
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(control: &'a Control, text: &'a [u8], pattern: &'a [u8]) -> Matcher<'a> {
        let captures = [Capture::Place(0); CAPTURES_MOST];
        let pattern = up_to_zero(pattern);
        Matcher { control, text, pattern, captures, level: 0, depth: 0, steps: 0 }
    }

    /// The first match from `from` on, or only there: where it begins and ends.
    pub(crate) fn search(&mut self, from: usize, is_anchored: bool) -> Result<Option<(usize, usize)>, Fault> {
        let most = if is_anchored { from } else { self.text.len() };
        let mut found = None;
        for at in from..=most {
            (self.level, self.depth) = (0, 0);
            if let Some(end) = self.go(at, 0)? {
                found = Some((at, end));
                break;
            }
        }
        self.control.work(std::mem::take(&mut self.steps))?;
        Ok(found)
    }

    /// What the last match has captured. Fails if a capture was not closed.
    pub(crate) fn captures(&self) -> Result<&[Capture], Fault> {
        let captures = &self.captures[..self.level];
        match captures.iter().any(|capture| matches!(capture, Capture::Open(_))) {
            true => Err(UNFINISHED),
            false => Ok(captures),
        }
    }

    /// One of these captures, from 0. Fails if it was not closed.
    pub(crate) fn capture(&self, nth: usize) -> Result<Option<Capture>, Fault> {
        match self.captures[..self.level].get(nth) {
            Some(Capture::Open(_)) => Err(UNFINISHED),
            capture => Ok(capture.copied()),
        }
    }

    fn count(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps += steps as u64;
        if self.steps >= u64::from(STEP) {
            self.control.work(std::mem::take(&mut self.steps))?;
        }
        Ok(())
    }

    /// The end of a match of the pattern from `p` on with the text from `at` on.
    fn go(&mut self, at: usize, p: usize) -> Result<Option<usize>, Fault> {
        if self.depth == DEPTH_MOST {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let end = self.items(at, p);
        self.depth -= 1;
        end
    }

    fn items(&mut self, mut at: usize, mut p: usize) -> Result<Option<usize>, Fault> {
        loop {
            self.count(1)?;
            let Some(&first) = self.pattern.get(p) else { return Ok(Some(at)) };
            match (first, self.pattern.get(p + 1)) {
                (b'(', Some(b')')) => return self.open(at, p + 2, Capture::Place(at)),
                (b'(', _) => return self.open(at, p + 1, Capture::Open(at)),
                (b')', _) => return self.close(at, p + 1),
                (b'$', None) => return Ok((at == self.text.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, p + 2)? {
                    Some(end) => (at, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.again(at, *digit)? {
                    Some(end) => (at, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.item_end(p)?;
                    let is_one = self.is_one(at, p, end)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_one && let Some(found) = self.go(at + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.longest(at, p, end),
                        Some(b'+') if is_one => return self.longest(at + 1, p, end),
                        Some(b'-') => return self.shortest(at, p, end),
                        Some(b'+') => return Ok(None),
                        _ if is_one => (at, p) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, at: usize, p: usize, end: usize) -> Result<Option<usize>, Fault> {
        let mut last = at;
        while self.is_one(last, p, end)? {
            self.count(1)?;
            last += 1;
        }
        for at in (at..=last).rev() {
            if let Some(found) = self.go(at, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut at: usize, p: usize, end: usize) -> Result<Option<usize>, Fault> {
        loop {
            if let Some(found) = self.go(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_one(at, p, end)? {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, p: usize, capture: Capture) -> Result<Option<usize>, Fault> {
        if self.level == CAPTURES_MOST {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures[self.level] = capture;
        self.level += 1;
        let found = self.go(at, p)?;
        self.level -= usize::from(found.is_none());
        Ok(found)
    }

    fn close(&mut self, at: usize, p: usize) -> Result<Option<usize>, Fault> {
        let open = |capture: &Capture| matches!(capture, Capture::Open(_));
        let nth = self.captures[..self.level].iter().rposition(open);
        let nth = nth.ok_or(Fault::Pattern("invalid pattern capture"))?;
        let Capture::Open(from) = self.captures[nth] else { return Ok(None) };
        self.captures[nth] = Capture::Part(from, at);
        let found = self.go(at, p)?;
        if found.is_none() {
            self.captures[nth] = Capture::Open(from);
        }
        Ok(found)
    }

    /// A pair of different bytes with all between them: `%b()`.
    fn balanced(&mut self, at: usize, p: usize) -> Result<Option<usize>, Fault> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(Fault::Pattern("unbalanced pattern"));
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (nth, &byte) in self.text.iter().enumerate().skip(at + 1) {
            self.count(1)?;
            match byte {
                byte if byte == close && depth == 1 => return Ok(Some(nth + 1)),
                byte if byte == close => depth -= 1,
                byte if byte == open => depth += 1,
                _ => {}
            }
        }
        Ok(None)
    }

    /// A place between a byte outside a set and one in it: `%f[set]`.
    fn frontier(&mut self, at: usize, p: usize) -> Result<Option<usize>, Fault> {
        if self.pattern.get(p) != Some(&b'[') {
            return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(p)?;
        let byte = |at: Option<usize>| at.and_then(|at| self.text.get(at)).copied().unwrap_or(0);
        let is_here =
            !self.is_in(byte(at.checked_sub(1)), p, end - 1) && self.is_in(byte(Some(at)), p, end - 1);
        Ok(is_here.then_some(end))
    }

    /// What was captured before, once more: `%1`.
    fn again(&mut self, at: usize, digit: u8) -> Result<Option<usize>, Fault> {
        let nth = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = nth.filter(|nth| *nth < self.level).map(|nth| self.captures[nth]);
        let len = match capture {
            Some(Capture::Part(from, to)) => {
                self.count((to - from) / BYTES_PER_STEP)?;
                self.text[at..].starts_with(&self.text[from..to]).then_some(to - from)
            }
            // As in C, where the length of a place is a number that no text has.
            Some(Capture::Place(_)) => None,
            _ => return Err(Fault::Pattern("invalid capture index")),
        };
        Ok(len.map(|len| at + len))
    }

    /// Where the item at `p` ends, without what repeats it.
    fn item_end(&mut self, p: usize) -> Result<usize, Fault> {
        const NO_END: Fault = Fault::Pattern("malformed pattern (missing ']')");
        match self.pattern[p] {
            b'%' if p + 1 == self.pattern.len() => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut end = p + 1 + usize::from(self.pattern.get(p + 1) == Some(&b'^'));
                loop {
                    let byte = *self.pattern.get(end).ok_or(NO_END)?;
                    end += 1 + usize::from(byte == b'%' && end + 1 < self.pattern.len());
                    if *self.pattern.get(end).ok_or(NO_END)? == b']' {
                        break;
                    }
                }
                self.count((end - p) / BYTES_PER_STEP)?;
                Ok(end + 1)
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `at` is of the item from `p` to `end`.
    fn is_one(&mut self, at: usize, p: usize, end: usize) -> Result<bool, Stop> {
        let Some(&byte) = self.text.get(at) else { return Ok(false) };
        Ok(match self.pattern[p] {
            b'.' => true,
            b'%' => is_of_class(byte, self.pattern[p + 1]),
            b'[' => {
                self.count((end - p) / BYTES_PER_STEP)?;
                self.is_in(byte, p, end - 1)
            }
            first => first == byte,
        })
    }

    /// Whether a byte is in the set from `p` to its last byte.
    fn is_in(&self, byte: u8, p: usize, last: usize) -> bool {
        let pattern = self.pattern;
        let is_negated = pattern[p + 1] == b'^';
        let mut p = p + 1 + usize::from(is_negated);
        while p < last {
            let (is_in, next) = match pattern[p] {
                b'%' => (is_of_class(byte, pattern[p + 1]), p + 2),
                low if pattern[p + 1] == b'-' && p + 2 < last => {
                    ((low..=pattern[p + 2]).contains(&byte), p + 3)
                }
                same => (same == byte, p + 1),
            };
            if is_in {
                return !is_negated;
            }
            p = next;
        }
        is_negated
    }
}

/// Whether a byte is of a class, as `%a`; of none, it is the letter itself.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}
