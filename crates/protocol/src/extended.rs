//! INCRBYFLOAT's numbers: the 80-bit extended format of x86-64, in integers, correctly rounded.
//!
//! Redis computes in C's `long double`, which on x86-64 is that format: 64 bits of mantissa where
//! `f64` has 53. The difference is visible: 10.5 + 0.1 is `10.6` in it and `10.59999999999999964`
//! in `f64`, both written with Redis's 17 decimal places.
//!
//! A finite number is `mantissa * 2^exponent`. The mantissa's top bit is set, unless the number is
//! zero or subnormal.

use crate::big::Natural;

/// A number of the 80-bit extended format, not NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Finite { mantissa: u64, exponent: i32 },
    Infinite,
}

/// The exponent of the smallest subnormal number.
const LEAST_EXPONENT: i32 = -16445;
/// The exponent of the largest finite number.
const GREATEST_EXPONENT: i32 = 16384 - 64;
/// The longest text that Redis reads as a number (`MAX_LONG_DOUBLE_CHARS`).
const LONGEST_TEXT: usize = 5 * 1024 - 1;

impl Extended {
    /// Parses a number as Redis does: the whole text must be what C's `strtold` takes, without
    /// leading space, NaN, overflow or underflow.
    pub fn parse(text: &[u8]) -> Option<Extended> {
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.len() > LONGEST_TEXT {
            return None;
        }
        let magnitude = if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            Magnitude::Infinite
        } else if let [b'0', b'x' | b'X', digits @ ..] = rest {
            Number::read(digits, 16)?.hexadecimal()?
        } else {
            Number::read(rest, 10)?.decimal()?
        };
        Some(Extended { negative, magnitude })
    }

    /// Whether it is finite.
    pub fn is_finite(self) -> bool {
        self.magnitude != Magnitude::Infinite
    }

    /// The sum, rounded to nearest, ties to even; `None` for infinity minus infinity.
    pub fn checked_add(self, other: Extended) -> Option<Extended> {
        match (self.magnitude, other.magnitude) {
            (Magnitude::Infinite, Magnitude::Infinite) => (self.negative == other.negative).then_some(self),
            (Magnitude::Infinite, _) => Some(self),
            (_, Magnitude::Infinite) => Some(other),
            (
                Magnitude::Finite { mantissa: a, exponent: ea },
                Magnitude::Finite { mantissa: b, exponent: eb },
            ) => Some(add_finite((self.negative, a, ea), (other.negative, b, eb))),
        }
    }

    /// The number as Redis writes it: up to 17 decimal places without trailing zeros, and never an
    /// exponent.
    pub fn format(self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let Magnitude::Finite { mantissa, exponent } = self.magnitude else { return format!("{sign}inf") };
        let text = format_finite(mantissa, exponent);
        if text == "0" { text } else { format!("{sign}{text}") }
    }
}

/// Adds two finite numbers given as sign, mantissa, exponent.
fn add_finite(a: (bool, u64, i32), b: (bool, u64, i32)) -> Extended {
    let top = |(_, mantissa, exponent): (bool, u64, i32)| exponent + 64 - mantissa.leading_zeros() as i32;
    if a.1 == 0 || b.1 == 0 {
        let (negative, mantissa, exponent) = if a.1 == 0 && b.1 == 0 {
            (a.0 && b.0, 0, 0)
        } else if a.1 == 0 {
            b
        } else {
            a
        };
        return Extended { negative, magnitude: Magnitude::Finite { mantissa, exponent } };
    }
    let (a, b) = if top(a) >= top(b) { (a, b) } else { (b, a) };
    // The larger number at the top of 126 bits. Bits of the smaller one that fall off the end
    // matter only as "there is more".
    let lift = a.1.leading_zeros() as i32 + 62;
    let exponent = a.2 - lift;
    let large = u128::from(a.1) << lift;
    let (small, sticky) = shifted(u128::from(b.1), b.2 - exponent);
    let (sum, sticky) = match (a.0 == b.0, sticky) {
        (true, sticky) => (large + small, sticky),
        (false, false) => (large.abs_diff(small), false),
        (false, true) => (large - small - 1, true),
    };
    let negative = if sum == 0 && !sticky {
        false
    } else if a.0 != b.0 && small > large {
        b.0
    } else {
        a.0
    };
    Extended { negative, magnitude: round(sum, exponent, sticky) }
}

/// `value * 2^by`, and whether low bits were lost.
fn shifted(value: u128, by: i32) -> (u128, bool) {
    match by {
        0.. => (value << by, false),
        -127..0 => (value >> -by, value & ((1 << -by) - 1) != 0),
        _ => (0, value != 0),
    }
}

/// `value * 2^exponent`, plus a little if `sticky`, rounded to the nearest number of the format,
/// ties to even.
fn round(value: u128, exponent: i32, sticky: bool) -> Magnitude {
    let bits = 128 - value.leading_zeros() as i32;
    let drop = (bits - 64).max(LEAST_EXPONENT - exponent);
    if drop <= 0 {
        return normal(value as u64, exponent);
    }
    let (kept, _) = shifted(value, -drop);
    let (half, below) = shifted(value, -(drop - 1));
    let up = half & 1 == 1 && (below || sticky || kept & 1 == 1);
    let rounded = kept + u128::from(up);
    match u64::try_from(rounded) {
        Ok(mantissa) => normal(mantissa, exponent + drop),
        Err(_) => normal(1 << 63, exponent + drop + 1),
    }
}

/// Shifts the mantissa's top bit up, as far as the exponent allows.
fn normal(mantissa: u64, exponent: i32) -> Magnitude {
    if mantissa == 0 {
        return Magnitude::Finite { mantissa, exponent: 0 };
    }
    let lift = (mantissa.leading_zeros() as i32).min(exponent - LEAST_EXPONENT).max(0);
    let (mantissa, exponent) = (mantissa << lift, exponent - lift);
    if exponent > GREATEST_EXPONENT { Magnitude::Infinite } else { Magnitude::Finite { mantissa, exponent } }
}

/// A number as written: its digits, `places` of them after the point, times the power of the
/// exponent.
struct Number<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Number<'a> {
    /// Splits `12.5e-3` or, to base 16, `1.8p4`. There must be a digit, and nothing else.
    fn read(text: &'a [u8], base: u32) -> Option<Number<'a>> {
        let is_digit = |byte: &u8| char::from(*byte).is_digit(base);
        let whole_len = text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len());
        let (whole, rest) = text.split_at(whole_len);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => {
                rest.split_at(rest.iter().position(|byte| !is_digit(byte)).unwrap_or(rest.len()))
            }
            rest => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let marker = if base == 16 { b'p' } else { b'e' };
        let exponent = match rest {
            [] => 0,
            [byte, rest @ ..] if *byte | 0x20 == marker => read_exponent(rest)?,
            _ => return None,
        };
        Some(Number { whole, fraction, exponent })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).copied().skip_while(|&digit| digit == b'0')
    }

    fn decimal(&self) -> Option<Magnitude> {
        let value = Natural::from_decimal(self.digits());
        let exponent = self.exponent - self.fraction.len() as i64;
        // The decimal exponent of the highest digit rejects numbers far outside the range early.
        let top = exponent + self.digits().count() as i64;
        if value.is_zero() {
            return Some(Magnitude::Finite { mantissa: 0, exponent: 0 });
        }
        if !(-5000..5000).contains(&top) {
            return None;
        }
        in_range(if exponent >= 0 {
            times_power_of_ten(value, exponent as usize)
        } else {
            over_power_of_ten(value, -exponent as usize)
        })
    }

    fn hexadecimal(&self) -> Option<Magnitude> {
        let mut value = Natural::default();
        for digit in self.digits() {
            value.multiply_add(16, u64::from(char::from(digit).to_digit(16)?));
        }
        if value.is_zero() {
            return Some(Magnitude::Finite { mantissa: 0, exponent: 0 });
        }
        let exponent = i32::try_from(self.exponent.checked_sub(4 * self.fraction.len() as i64)?).ok()?;
        let drop = value.bits().saturating_sub(127);
        let (top, sticky) = value.bits_from(drop);
        in_range(round(top, exponent.checked_add(drop as i32)?, sticky))
    }
}

fn read_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Far outside the range, the exact value does not matter.
    let value =
        digits.iter().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1_000_000_000));
    Some(if negative { -value } else { value })
}

/// Overflow, and rounding to zero, are errors in Redis.
fn in_range(magnitude: Magnitude) -> Option<Magnitude> {
    match magnitude {
        Magnitude::Infinite | Magnitude::Finite { mantissa: 0, .. } => None,
        finite => Some(finite),
    }
}

fn times_power_of_ten(mut value: Natural, exponent: usize) -> Magnitude {
    value.multiply_power_of_ten(exponent);
    let drop = value.bits().saturating_sub(127);
    let (top, sticky) = value.bits_from(drop);
    round(top, drop as i32, sticky)
}

fn over_power_of_ten(mut value: Natural, exponent: usize) -> Magnitude {
    let mut divisor = Natural::from_u64(1);
    divisor.multiply_power_of_ten(exponent);
    // Enough places for a quotient of 67 to 126 bits, so that rounding sees the half and what is
    // below.
    let places = (divisor.bits() + 67).saturating_sub(value.bits());
    let extra = value.bits().saturating_sub(divisor.bits() + 125);
    value.shift_left(places);
    divisor.shift_left(extra);
    let (quotient, sticky) = value.divide(&divisor);
    round(quotient, extra as i32 - places as i32, sticky)
}

/// `%.17Lf` without trailing zeros.
fn format_finite(mantissa: u64, exponent: i32) -> String {
    if exponent >= 0 {
        let mut value = Natural::from_u64(mantissa);
        value.shift_left(exponent as usize);
        return value.into_decimal();
    }
    // mantissa * 10^17 < 2^64 * 2^57, so this is exact.
    const UNIT: u128 = 10u128.pow(17);
    let scaled = u128::from(mantissa) * UNIT;
    let (kept, _) = shifted(scaled, exponent);
    let (half, below) = shifted(scaled, exponent + 1);
    let rounded = kept + u128::from(half & 1 == 1 && (below || kept & 1 == 1));
    let (whole, fraction) = (rounded / UNIT, rounded % UNIT);
    if fraction == 0 {
        return whole.to_string();
    }
    format!("{whole}.{}", format!("{fraction:017}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> String {
        let parse =
            |text: &str| Extended::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"));
        parse(a).checked_add(parse(b)).unwrap().format()
    }

    #[test]
    fn checked_add_equals_redis() {
        // Each result comes from a Redis on x86-64.
        for (a, b, expected) in [
            ("10.5", "0.1", "10.6"),
            ("3.0e3", "200", "3200"),
            ("5.0e3", "2.0e2", "5200"),
            ("10.6", "-5", "5.6"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1", "0"),
            ("-0", "-0", "0"),
            ("3", "0", "3"),
            ("1e17", "0.5", "100000000000000000.5"),
            ("0x10", "0x1.8p1", "19"),
            (".5", "5.", "5.5"),
            ("1e-20", "0", "0"),
            ("-1e-20", "0", "0"),
            ("12345678901234567890", "1", "12345678901234567891"),
            ("123456789012345678901234567890", "0", "123456789012345678899921813504"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn parse_refuses_what_strtold_does_not_take() {
        for text in [
            "", " 1", "1 ", "+", "-", ".", "e5", "1e", "1e+", "1.5.5", "nan", "0x", "0xg", "1_000", "1e5000",
            "1e-5000", "inf1", "abc", "0x1p",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
        assert!(!Extended::parse(b"-Infinity").unwrap().is_finite());
        assert_eq!(Extended::parse(&b"1".repeat(6000)), None);
    }

    #[test]
    fn range_is_that_of_the_format() {
        let largest = Extended::parse(b"1.18973149535723176502e4932").unwrap();
        assert!(largest.is_finite());
        assert!(!largest.checked_add(largest).unwrap().is_finite());
        assert_eq!(Extended::parse(b"1.2e4932"), None);
        assert!(Extended::parse(b"3.7e-4951").is_some());
        assert_eq!(Extended::parse(b"1e-4951"), None);
        let infinite = Extended::parse(b"inf").unwrap();
        assert_eq!(infinite.checked_add(Extended::parse(b"-inf").unwrap()), None);
    }

    proptest! {
        #[test]
        fn sums_of_64_bit_integers_are_exact(a: i64, b: i64) {
            let exact = i128::from(a) + i128::from(b);
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), exact.to_string());
        }

        #[test]
        fn seventeen_places_of_small_decimals_are_exact(a in -999_999_999i64..999_999_999, b in -999_999_999i64..999_999_999) {
            let text = |n: i64| format!("{}{}.{:03}", if n < 0 { "-" } else { "" }, n.abs() / 1000, n.abs() % 1000);
            // An f64 holds such sums to 15 digits.
            let sum: f64 = sum(&text(a), &text(b)).parse().unwrap();
            prop_assert!((sum - (a + b) as f64 / 1000.0).abs() < 1e-9);
        }

        #[test]
        fn parse_takes_any_text(text in "[-+0-9.eExXpinfa]{0,12}") {
            if let Some(number) = Extended::parse(text.as_bytes()) {
                number.format();
            }
        }

        #[test]
        fn parse_of_f64_is_within_one_unit(value: f64) {
            prop_assume!(value.is_finite() && value.abs() > 1e-300);
            let text = format!("{value:?}");
            let read = Extended::parse(text.as_bytes()).unwrap();
            let Magnitude::Finite { mantissa, exponent } = read.magnitude else { panic!("finite") };
            // Rounding the 64 bits again, to 53, may go the other way at a tie: one unit.
            let back = mantissa as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
            prop_assert!(back.to_bits().abs_diff(value.abs().to_bits()) <= 1);
        }
    }
}
