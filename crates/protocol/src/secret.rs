//! Passwords, compared without telling by the time it takes how much of one was right.

use subtle::ConstantTimeEq;

/// Redis's longest password, bytes.
const LONGEST: usize = 512;

/// Whether `given` is `secret`. Takes the same time wherever they differ; a secret over 512 bytes is never matched.
pub fn same_secret(given: &[u8], secret: &[u8]) -> bool {
    let same_bytes = padded(given).ct_eq(&padded(secret));
    let same_length = (given.len() as u64).ct_eq(&(secret.len() as u64));
    bool::from(same_bytes & same_length) && secret.len() <= LONGEST
}

fn padded(text: &[u8]) -> [u8; LONGEST] {
    let mut padded = [0; LONGEST];
    let len = text.len().min(LONGEST);
    padded[..len].copy_from_slice(&text[..len]);
    padded
}

#[cfg(test)]
mod tests {
    use super::same_secret;

    #[test]
    fn only_the_secret_matches() {
        assert!(same_secret(b"open sesame", b"open sesame"));
        assert!(same_secret(b"", b""));
        for wrong in [&b"open sesam"[..], b"open sesame\0", b"Open sesame", b""] {
            assert!(!same_secret(wrong, b"open sesame"));
        }
        assert!(same_secret(&[7; 512], &[7; 512]));
        assert!(!same_secret(&[7; 513], &[7; 513]));
    }
}
