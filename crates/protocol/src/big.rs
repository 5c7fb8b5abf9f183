//! Natural numbers of any length, with the operations that exact decimal conversion needs.

use std::cmp::Ordering;

/// Digits to base 2^64, the least significant first; no zero at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Natural {
    digits: Vec<u64>,
}

/// The largest power of ten that fits a digit, and its exponent.
const TENS: u64 = 10_000_000_000_000_000_000;
const TENS_EXPONENT: usize = 19;

impl Natural {
    pub(crate) fn from_u64(value: u64) -> Natural {
        Natural { digits: if value == 0 { Vec::new() } else { vec![value] } }
    }

    /// Reads ASCII decimal digits, which the caller has checked.
    pub(crate) fn from_decimal(text: impl Iterator<Item = u8>) -> Natural {
        let mut value = Natural::default();
        for digit in text {
            value.multiply_add(10, u64::from(digit - b'0'));
        }
        value
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Number of bits up to the highest set bit.
    pub(crate) fn bits(&self) -> usize {
        self.digits.last().map_or(0, |top| self.digits.len() * 64 - top.leading_zeros() as usize)
    }

    pub(crate) fn multiply_add(&mut self, by: u64, add: u64) {
        let mut carry = u128::from(add);
        for digit in &mut self.digits {
            let product = u128::from(*digit) * u128::from(by) + carry;
            *digit = product as u64;
            carry = product >> 64;
        }
        if carry > 0 {
            self.digits.push(carry as u64);
        }
    }

    pub(crate) fn multiply_power_of_ten(&mut self, exponent: usize) {
        for _ in 0..exponent / TENS_EXPONENT {
            self.multiply_add(TENS, 0);
        }
        self.multiply_add(10u64.pow((exponent % TENS_EXPONENT) as u32), 0);
    }

    pub(crate) fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        let small = bits % 64;
        if small > 0 {
            self.multiply_add(1 << small, 0);
        }
        self.digits.splice(0..0, std::iter::repeat_n(0, bits / 64));
    }

    /// The bits from `lowest` on, at most 128 of them, and whether a lower bit is set.
    pub(crate) fn bits_from(&self, lowest: usize) -> (u128, bool) {
        let (skip, small) = (lowest / 64, lowest % 64);
        let digit = |nth: usize| u128::from(self.digits.get(skip + nth).copied().unwrap_or(0));
        let low = digit(0) | digit(1) << 64;
        let value = if small == 0 { low } else { low >> small | digit(2) << (128 - small) };
        let below =
            self.digits.iter().take(skip).any(|&digit| digit != 0) || digit(0) & ((1 << small) - 1) != 0;
        (value, below)
    }

    /// Subtracts `other` if the result is not negative. Returns whether it did.
    fn subtract_if_less(&mut self, other: &Natural) -> bool {
        if self.compare(other) == Ordering::Less {
            return false;
        }
        let mut borrow = false;
        for (nth, digit) in self.digits.iter_mut().enumerate() {
            let less = other.digits.get(nth).copied().unwrap_or(0);
            let (once, first) = digit.overflowing_sub(less);
            let (twice, second) = once.overflowing_sub(u64::from(borrow));
            *digit = twice;
            borrow = first || second;
        }
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        true
    }

    fn compare(&self, other: &Natural) -> Ordering {
        let by_length = self.digits.len().cmp(&other.digits.len());
        by_length.then_with(|| self.digits.iter().rev().cmp(other.digits.iter().rev()))
    }

    /// The quotient, of at most 127 bits, and whether there is a remainder.
    pub(crate) fn divide(mut self, divisor: &Natural) -> (u128, bool) {
        let places = (self.bits() + 1).saturating_sub(divisor.bits());
        let mut quotient = 0;
        for place in (0..places).rev() {
            let mut shifted = divisor.clone();
            shifted.shift_left(place);
            quotient = quotient << 1 | u128::from(self.subtract_if_less(&shifted));
        }
        (quotient, !self.is_zero())
    }

    /// Its decimal digits; `0` for zero.
    pub(crate) fn into_decimal(mut self) -> String {
        let mut parts = Vec::new();
        while !self.is_zero() {
            parts.push(self.divide_by_tens());
        }
        let mut text = parts.pop().unwrap_or(0).to_string();
        for part in parts.iter().rev() {
            text.push_str(&format!("{part:019}"));
        }
        text
    }

    /// Divides by 10^19 and returns the remainder.
    fn divide_by_tens(&mut self) -> u64 {
        let mut remainder = 0u128;
        for digit in self.digits.iter_mut().rev() {
            let dividend = remainder << 64 | u128::from(*digit);
            *digit = (dividend / u128::from(TENS)) as u64;
            remainder = dividend % u128::from(TENS);
        }
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        remainder as u64
    }
}
