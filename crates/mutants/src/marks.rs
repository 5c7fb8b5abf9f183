//! Marks around the code of each fault, so that a compiler error names its fault.

use std::fmt::Display;

/// Marks code as that of a fault.
pub(crate) fn marked(number: usize, code: impl Display) -> String {
    format!("/*~<{number}*/{code}/*~>{number}*/")
}

/// The fault whose code contains this byte of a marked text.
pub(crate) fn fault_at(text: &str, at: usize) -> Option<usize> {
    let mut inside = Vec::new();
    let before = &text[..at.min(text.len())];
    for (mark, _) in before.match_indices("/*~") {
        let body = &before[mark + 3..];
        let Some(end) = body.find("*/") else { continue };
        let (kind, number) = body[..end].split_at(1);
        let Ok(number) = number.parse::<usize>() else { continue };
        match kind {
            "<" => inside.push(number),
            ">" => _ = inside.pop(),
            _ => {}
        }
    }
    inside.last().copied()
}
