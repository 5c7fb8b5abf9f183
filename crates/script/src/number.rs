//! Numbers as C prints and converts them.

/// `printf("%.*g", precision, x)`
pub(crate) fn general(x: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if !x.is_finite() {
        let sign = if x.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if x.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{:.*e}", precision - 1, x);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let wide = i64::try_from(precision).unwrap_or(i64::MAX);
    if exponent < -4 || exponent >= wide {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.abs());
    }
    let decimals = usize::try_from(wide - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{x:.decimals$}")).into()
}

/// Without zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// The integer that a C compiler for x86-64 makes of `x`: the smallest one if it has no other.
pub(crate) fn truncated(x: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&x) { x as i64 } else { i64::MIN }
}

/// The text by which a command gets a number: an integer in full, another one in 17 digits.
pub(crate) fn argument(x: f64) -> String {
    let integer = truncated(x);
    let is_exact = integer.unsigned_abs() <= 1 << 62 && integer as f64 == x;
    if is_exact { integer.to_string() } else { general(x, 17) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_prints_as_c_does() {
        let cases: [(f64, usize, &str); 16] = [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 14, "1"),
            (100.0, 14, "100"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (3.3, 17, "3.2999999999999998"),
            (1e14, 14, "1e+14"),
            (123456789012345.0, 14, "1.2345678901234e+14"),
            (1e-4, 14, "0.0001"),
            (1e-5, 14, "1e-05"),
            (1.5e300, 14, "1.5e+300"),
            (1e23, 3, "1e+23"),
            (999.9, 3, "1e+03"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ];
        for (x, precision, text) in cases {
            assert_eq!(general(x, precision), text, "{x:e} {precision}");
        }
    }

    #[test]
    fn truncated_is_the_smallest_integer_out_of_range() {
        assert_eq!(truncated(3.9), 3);
        assert_eq!(truncated(-3.9), -3);
        for x in [1e20, -1e20, f64::NAN, f64::INFINITY, 9_223_372_036_854_775_808.0] {
            assert_eq!(truncated(x), i64::MIN, "{x}");
        }
        assert_eq!(truncated(-9_223_372_036_854_775_808.0), i64::MIN);
    }

    #[test]
    fn argument_is_an_integer_where_it_can_be() {
        let cases = [
            (1.0, "1"),
            (-7.0, "-7"),
            (0.5, "0.5"),
            (1e15, "1000000000000000"),
            (1e18, "1000000000000000000"),
        ];
        for (x, text) in cases {
            assert_eq!(argument(x), text);
        }
        assert_eq!(argument(1e20), "1e+20");
        assert_eq!(argument(0.1), "0.10000000000000001");
    }
}
