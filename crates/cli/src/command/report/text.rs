//! Text and numbers in the form that the page shows.

use std::time::Duration;

use crate::text::duration;

/// Text with its markup characters escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML does not allow these characters even when escaped.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A number with three significant digits: `1.23 M`, `45.6 k`, `0.71`.
pub(super) fn figure(number: f64) -> String {
    let size = number.abs();
    let (scaled, unit) = match size {
        size if size >= 1e9 => (number / 1e9, " G"),
        size if size >= 1e6 => (number / 1e6, " M"),
        size if size >= 1e4 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let decimals = match scaled.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{unit}")
}

/// A label of an axis, without trailing zeros.
pub(super) fn tick(number: f64) -> String {
    let text = figure(number);
    let (digits, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(digits, unit)| (digits, unit));
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{}{unit}", if unit.is_empty() { "" } else { " " })
}

/// `850 ns`, `3.4 ms`.
pub(super) fn nanoseconds(ns: f64) -> String {
    duration(Duration::from_nanos(ns.max(0.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_characters_are_escaped() {
        assert_eq!(escaped("<b a='1'>&\"\u{7}"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn figures_have_three_digits() {
        let all = [(0.0, "0"), (0.714, "0.71"), (12.34, "12.3"), (456.7, "457"), (1_234_567.0, "1.23 M")];
        for (number, text) in all {
            assert_eq!(figure(number), text);
        }
        assert_eq!(
            (tick(2_000_000.0).as_str(), tick(0.5).as_str(), tick(100.0).as_str()),
            ("2 M", "0.5", "100")
        );
    }
}
