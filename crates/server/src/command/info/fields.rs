//! What sections of INFO are made of.

use std::fmt::{Display, Write};

use crate::{command::Context, state::databases::Count};

/// Writes a section.
pub(super) type Section = fn(&mut String, &Context<'_>, &Figures) -> std::fmt::Result;

/// Data that several sections use.
pub(super) struct Figures {
    /// The counts of each database.
    pub(super) keyspace: Vec<Count>,
    pub(super) store: terrace::Stats,
}

/// Writes fields, one line each.
pub(super) fn fields(out: &mut String, fields: &[(&str, &dyn Display)]) -> std::fmt::Result {
    fields.iter().try_for_each(|(name, value)| write!(out, "{name}:{value}\r\n"))
}

/// Formats bytes as Redis does for people: `1.50M`.
pub(super) fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let power = (0..units.len() - 1).take_while(|power| bytes >> (10 * (power + 1)) > 0).count();
    if power == 0 {
        return format!("{bytes}B");
    }
    format!("{:.2}{}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power])
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_formatted_for_people() {
        let texts = [0, 1023, 1024, 1536, 3 << 20, 5 << 30].map(super::human);
        assert_eq!(texts, ["0B", "1023B", "1.00K", "1.50K", "3.00M", "5.00G"]);
    }
}
