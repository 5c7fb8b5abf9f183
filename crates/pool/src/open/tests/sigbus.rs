//! Tests of `sigbus`.

use super::*;

#[test]
fn lines_hold_text_and_numbers() {
    let mut line = LineBuffer::new();
    line.push(b"at ");
    for number in [0, 7, 1234, u64::MAX] {
        line.push_number(number);
        line.push(b" ");
    }
    assert_eq!(&line.bytes[..line.len], b"at 0 7 1234 18446744073709551615 ");
    line.push(&[b'x'; 2 * NAME + 800]);
    assert_eq!(line.len, line.bytes.len());
}
