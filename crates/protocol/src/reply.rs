//! Encodes replies in RESP2 or RESP3. Types that RESP2 lacks take the form that Redis gives them.

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
}

impl<'a> Reply<'a> {
    /// Appends to `out`, in RESP3 or else RESP2.
    pub fn new(out: &'a mut Vec<u8>, resp3: bool) -> Reply<'a> {
        Reply { out, resp3 }
    }

    /// Whether replies are in RESP3.
    pub fn resp3(&self) -> bool {
        self.resp3
    }

    /// Changes the protocol from the next reply on (HELLO).
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// The position of the next reply; for [`Reply::rewind`].
    pub fn mark(&self) -> usize {
        self.out.len()
    }

    /// What was written since this mark.
    pub fn since(&self, mark: usize) -> &[u8] {
        self.out.get(mark..).unwrap_or_default()
    }

    /// Removes everything since `mark`.
    pub fn rewind(&mut self, mark: usize) {
        assert!(mark <= self.out.len(), "a mark behind the reply");
        self.out.truncate(mark);
    }

    /// Puts what `head` writes in front of everything since `mark`: for an array whose length is
    /// known only once its elements are written.
    pub fn in_front(&mut self, mark: usize, head: impl FnOnce(&mut Reply<'_>)) {
        let end = self.out.len();
        assert!(mark <= end, "a mark behind the reply");
        head(self);
        let len = self.out.len() - end;
        self.out[mark..].rotate_right(len);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    /// A short text, whose line ends become spaces.
    pub fn status(&mut self, text: &[u8]) {
        self.out.push(b'+');
        self.line(text);
    }

    /// An error: its code, a space, the text. Line ends in it become spaces; trailing ones are
    /// removed.
    pub fn error(&mut self, message: &[u8]) {
        self.out.push(b'-');
        let len = message.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        self.line(&message[..len]);
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        if let (0..=9, Ok(small)) = (value, u8::try_from(value)) {
            self.out.extend_from_slice(&[b':', b'0' + small, b'\r', b'\n']);
        } else {
            self.number(b':', value);
        }
    }

    /// A count of something.
    pub fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A byte string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 16);
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A byte string that holds an integer.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// No value: the null bulk string of RESP2.
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No array: the null array of RESP2.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The head of an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// The head of a map of `len` pairs; in RESP2 an array of twice that many replies.
    pub fn map(&mut self, len: usize) {
        if self.resp3 { self.length(b'%', len) } else { self.length(b'*', 2 * len) }
    }

    /// The head of a set of `len` replies; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.length(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// The head of an out-of-band message of `len` replies; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.length(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// A boolean; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match (self.resp3, value) {
            (true, true) => self.out.extend_from_slice(b"#t\r\n"),
            (true, false) => self.out.extend_from_slice(b"#f\r\n"),
            (false, value) => self.integer(i64::from(value)),
        }
    }

    /// A floating-point number, in the fewest digits that parse to the same value; a bulk string in
    /// RESP2.
    pub fn double(&mut self, value: f64) {
        let text = double_text(value);
        if self.resp3 {
            self.out.push(b',');
            self.line(text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// An integer of any length, in decimal digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 {
            self.out.push(b'(');
            self.line(digits.as_bytes());
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    /// Text for people. `kind` is its three-letter type (`txt`, `mkd`). A bulk string in RESP2.
    pub fn verbatim(&mut self, kind: &[u8; 3], text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        self.length(b'=', text.len() + 4);
        self.out.extend_from_slice(kind);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Bytes that are already an encoded reply.
    pub fn raw(&mut self, reply: &[u8]) {
        self.out.extend_from_slice(reply);
    }

    fn length(&mut self, kind: u8, len: usize) {
        if let (0..=9, Ok(small)) = (len, u8::try_from(len)) {
            return self.out.extend_from_slice(&[kind, b'0' + small, b'\r', b'\n']);
        }
        self.number(kind, len);
    }

    fn number(&mut self, kind: u8, value: impl itoa::Integer) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, text: &[u8]) {
        self.out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }
}

fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value == 0.0 || (1e-5..1e17).contains(&value.abs()) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Reply<'_>)) -> (String, String) {
        let reply = |resp3| {
            let mut out = Vec::new();
            write(&mut Reply::new(&mut out, resp3));
            String::from_utf8(out).unwrap()
        };
        (reply(false), reply(true))
    }

    #[test]
    fn each_type_is_encoded_in_both_protocols() {
        type Case = (fn(&mut Reply<'_>), &'static str, &'static str);
        let cases: [Case; 19] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error(b"ERR a\r\nb\n"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.integer(7), ":7\r\n", ":7\r\n"),
            (|r| r.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|r| r.bulk(b"0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.array(2), "*2\r\n", "*2\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(12), "*12\r\n", "~12\r\n"),
            (|r| r.push(3), "*3\r\n", ">3\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.double(3.25), "$4\r\n3.25\r\n", ",3.25\r\n"),
            (|r| r.double(1e300), "$6\r\n1e+300\r\n", ",1e+300\r\n"),
            (|r| r.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (|r| r.big_number("123"), "$3\r\n123\r\n", "(123\r\n"),
            (|r| r.verbatim(b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.bulk_integer(-12), "$3\r\n-12\r\n", "$3\r\n-12\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(both(write), (resp2.to_string(), resp3.to_string()));
        }
    }

    #[test]
    fn head_is_put_in_front_of_elements() {
        let write = |reply: &mut Reply<'_>| {
            reply.ok();
            let mark = reply.mark();
            reply.integer(1);
            reply.integer(2);
            reply.in_front(mark, |reply| reply.map(1));
            reply.in_front(reply.mark(), |reply| reply.array(0));
        };
        let expected = ["+OK\r\n*2\r\n:1\r\n:2\r\n*0\r\n", "+OK\r\n%1\r\n:1\r\n:2\r\n*0\r\n"];
        assert_eq!(both(write), (expected[0].into(), expected[1].into()));
    }
}
