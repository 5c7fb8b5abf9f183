//! Takes the server's replies apart, as far as telling errors from others.

/// Calls `each` for every whole reply at the front of `bytes`, with the text of an error; returns how many bytes they were.
pub(super) fn each_reply(bytes: &[u8], each: &mut dyn FnMut(Option<&[u8]>)) -> usize {
    let mut at = 0;
    while let Some(end) = skip(bytes, at) {
        let error = (bytes[at] == b'-').then(|| &bytes[at + 1..end - 2]);
        each(error);
        at = end;
    }
    at
}

/// Where the reply that begins at `at` ends; `None`: it is not there wholly. Only arrays nest, and ours not deeply.
fn skip(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    let mut missing = 1_i64;
    while missing > 0 {
        let kind = *bytes.get(at)?;
        let line = bytes[at + 1..].iter().position(|&byte| byte == b'\n')? + at + 1;
        let text = bytes.get(at + 1..line - 1)?;
        let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
        missing -= 1;
        at = line + 1;
        match kind {
            b'$' | b'=' => {
                if let Ok(length) = usize::try_from(number()?) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => missing += number()?.max(0),
            b'%' => missing += 2 * number()?.max(0),
            _ => {}
        }
    }
    (at <= bytes.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::each_reply;

    #[test]
    fn whole_replies_are_counted_and_errors_told() {
        let bytes =
            b"+OK\r\n-ERR no\r\n$3\r\na\nb\r\n$-1\r\n*2\r\n:1\r\n*1\r\n-x\r\n%1\r\n+a\r\n_\r\n$5\r\nab";
        let mut seen = Vec::new();
        let taken = each_reply(bytes, &mut |error| seen.push(error.map(<[u8]>::to_vec)));
        assert_eq!(seen, [None, Some(b"ERR no".to_vec()), None, None, None, None]);
        assert_eq!(&bytes[taken..], b"$5\r\nab");
    }
}
