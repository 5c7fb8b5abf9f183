//! Password comparison in constant time.

use subtle::ConstantTimeEq;

/// The longest password of Redis, in bytes.
const LONGEST: usize = 512;

/// Whether `given` equals `secret`, in a time that does not depend on where they differ. A secret
/// of more than 512 bytes never matches.
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
    fn same_secret_matches_only_the_secret() {
        assert!(same_secret(b"open sesame", b"open sesame"));
        assert!(same_secret(b"", b""));
        for wrong in [&b"open sesam"[..], b"open sesame\0", b"Open sesame", b""] {
            assert!(!same_secret(wrong, b"open sesame"));
        }
        assert!(same_secret(&[7; 512], &[7; 512]));
        assert!(!same_secret(&[7; 513], &[7; 513]));
    }
}
