//! Source files with a switch for each of their faults.
//!
//! ```text
//!   fn f() { body }
//!   fn f() { if on(3) { body with fault 3 } else if on(7) { body with fault 7 } else { body } }
//! ```
//! The body of a function is repeated for each fault, so an edit may change anything in it. Edits
//! of a `const fn` are refused, because it cannot read a switch, and edits of a function that
//! returns `impl Trait`, because each branch would have another type.

use super::list::Edit;
use crate::rewrite::Lines;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::visit::{self, Visit};

/// The function that an edit changes, and the byte range that it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    body: Range<usize>,
    range: Range<usize>,
}

/// The edits of one function, by the numbers of their faults.
type Faults<'e> = BTreeMap<usize, Vec<(Range<usize>, &'e Edit)>>;

/// Returns the text of a file with a switch for each fault. Fails if an edit does not match exactly
/// once.
pub(crate) fn with_switches(text: &str, edits: &[(usize, &Edit)]) -> Result<String, String> {
    let functions = Function::all(text).map_err(|error| error.to_string())?;
    // Ordered by position. Bodies are replaced from the last one on, so earlier positions stay
    // valid.
    let mut bodies: BTreeMap<(usize, usize), Faults<'_>> = BTreeMap::new();
    for &(number, edit) in edits {
        let Place { body, range } = find_place(text, &functions, edit)?;
        bodies.entry((body.start, body.end)).or_default().entry(number).or_default().push((range, edit));
    }
    let mut out = text.to_string();
    for (&(start, end), faults) in bodies.iter().rev() {
        let mut switch = String::from("{ ");
        for (number, edits) in faults {
            let faulty = apply_edits(text, start..end, edits)?;
            switch += &format!(
                "if crate::__mutant::on({number}) /*~[{number}*/ /*~<{number}*/{faulty}/*~>{number}*/ /*~]{number}*/ else "
            );
        }
        switch += &format!("{} }}", &text[start..end]);
        if end > bodies.range((start + 1, 0)..).next().map_or(usize::MAX, |(next, _)| next.0) {
            return Err("a function with a fault is nested in another one".into());
        }
        out.replace_range(start..end, &switch);
    }
    Ok(out)
}

/// Applies the edits of one fault to a piece of the text.
fn apply_edits(text: &str, piece: Range<usize>, edits: &[(Range<usize>, &Edit)]) -> Result<String, String> {
    let mut edits = edits.to_vec();
    edits.sort_by_key(|(range, _)| range.start);
    let (mut out, mut at) = (String::new(), piece.start);
    for (range, edit) in edits {
        out += text.get(at..range.start).ok_or("two edits of a fault overlap")?;
        out += &edit.replacement;
        at = range.end;
    }
    Ok(out + &text[at..piece.end])
}

/// Finds the only place that an edit matches.
fn find_place(text: &str, functions: &[Function], edit: &Edit) -> Result<Place, String> {
    let Edit { file, function, text: wanted, .. } = edit;
    let is_named = |it: &&Function| function.as_ref().is_none_or(|name| *name == it.name);
    let mut places = find_text(text, wanted).filter_map(|range| {
        let around = functions.iter().filter(|it| it.body.start < range.start && range.end < it.body.end);
        let innermost = around.min_by_key(|it| it.body.len()).filter(is_named)?;
        Some((innermost, range))
    });
    let within = function.as_ref().map_or(String::new(), |name| format!(" within fn {name}"));
    match (places.next(), places.next()) {
        (None, _) => Err(format!("{file}{within}: no function contains `{wanted}`")),
        (Some(_), Some(_)) => Err(format!("{file}{within}: `{wanted}` occurs more than once")),
        (Some((at, _)), None) if !at.can_switch => {
            Err(format!("{file}: fn {} cannot have a switch: it is const or returns `impl Trait`", at.name))
        }
        (Some((at, range)), None) => Ok(Place { body: at.body.clone(), range }),
    }
}

/// Finds `wanted` in `text`. Any white space matches any other.
fn find_text<'t>(text: &'t str, wanted: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    let words: Vec<&str> = wanted.split_whitespace().collect();
    let first = words.first().copied().unwrap_or("\0");
    text.match_indices(first).filter_map(move |(start, _)| {
        let mut end = start;
        for word in &words {
            end += text[end..].len() - text[end..].trim_start().len();
            end += text[end..].strip_prefix(word).map(|_| word.len())?;
        }
        Some(start..end)
    })
}

/// A function with a body.
struct Function {
    name: String,
    /// The byte range from brace to brace.
    body: Range<usize>,
    can_switch: bool,
}

impl Function {
    fn all(text: &str) -> syn::Result<Vec<Self>> {
        let lines = Lines::new(text);
        let mut found = Found { lines: &lines, functions: Vec::new() };
        found.visit_file(&syn::parse_file(text)?);
        Ok(found.functions)
    }
}

/// Collects the functions of a file.
struct Found<'t> {
    lines: &'t Lines<'t>,
    functions: Vec<Function>,
}

impl Found<'_> {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let returns_impl = self.lines.text_of(&signature.output).contains("impl ");
        self.functions.push(Function {
            name: signature.ident.to_string(),
            body: self.lines.range_of(block),
            can_switch: signature.constness.is_none() && !returns_impl,
        });
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{by_file, load};
    use super::*;
    use std::path::Path;

    const TEXT: &str =
        "fn f() { one();\n    two(); }\nfn g() { two(); three(); two(); }\nconst fn h() { four() }";

    fn edit(function: Option<&str>, text: &str, replacement: &str) -> Edit {
        let [text, replacement] = [text, replacement].map(String::from);
        Edit { file: "file.rs".into(), function: function.map(String::from), text, replacement }
    }

    /// The text without marks and white space.
    fn plain(text: &str) -> String {
        let mut parts = text.split("/*~");
        let first = parts.next().unwrap_or_default().to_string();
        let plain = parts.fold(first, |plain, part| plain + part.split_once("*/").unwrap().1);
        plain.split_whitespace().collect()
    }

    #[test]
    fn each_fault_gets_its_own_body() {
        let edits = [edit(None, "one();", ""), edit(Some("f"), "two();", "2;"), edit(None, "three()", "3")];
        let [a, b, c] = &edits;
        let text = with_switches(TEXT, &[(0, a), (7, b), (1, c), (1, a)]).unwrap();
        let on = |number| format!("if crate::__mutant::on({number})");
        let expected = format!(
            "fn f() {{ {} {{ two(); }} else {} {{ two(); }} else {} {{ one(); 2; }} else {{ one(); two(); }} }}
             fn g() {{ {} {{ two(); 3; two(); }} else {{ two(); three(); two(); }} }} const fn h() {{ four() }}",
            on(0),
            on(1),
            on(7),
            on(1)
        );
        assert_eq!(plain(&text), plain(&expected));
        syn::parse_file(&text).unwrap();
    }

    #[test]
    fn white_space_matches_any_white_space() {
        let edit = edit(None, "one(); two();", "");
        assert_eq!(plain(&with_switches(TEXT, &[(0, &edit)]).unwrap()).matches("on(0){}").count(), 1);
        assert!(with_switches(TEXT, &[(0, &super::tests::edit(None, "one();two();", ""))]).is_err());
    }

    #[test]
    fn ambiguous_or_missing_edit_is_refused() {
        for (function, text, wrong) in [
            (None, "five()", "no function contains `five()`"),
            (Some("g"), "one()", "no function contains `one()`"),
            (None, "fn f()", "no function contains `fn f()`"),
            (None, "two();", "more than once"),
            (Some("g"), "two();", "more than once"),
            (None, "four()", "cannot have a switch"),
        ] {
            let refused = with_switches(TEXT, &[(0, &edit(function, text, ""))]).unwrap_err();
            assert!(refused.contains(wrong), "{refused}");
        }
    }

    #[test]
    fn listed_edits_match_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let faults = load(&root).unwrap();
        assert!(faults.len() > 90, "{} faults", faults.len());
        for fault in &faults {
            assert!(!fault.found.is_empty() && !fault.edits.is_empty(), "{}", fault.name);
        }
        for (file, edits) in by_file(&faults) {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let text = with_switches(&text, &edits).unwrap_or_else(|error| panic!("{error}"));
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}, with its faults: {error}"));
        }
    }
}
