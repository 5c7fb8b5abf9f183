//! A source file with a switch for each of its faults.
//!
//! ```text
//!   fn f() { body }     fn f() { if on(3) { body with fault 3 } else if on(7) { body with fault 7 } else { body } }
//! ```
//! The body of a function is repeated for each fault, so an edit may change anything in it. A `const fn` cannot ask for a switch, and a function that returns
//! `impl Trait` has a type of its own in each branch: an edit of one of these is refused.

use super::list::Edit;
use crate::rewrite::Lines;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::visit::{self, Visit};

/// The function that an edit changes, and the bytes of the file that it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    body: Range<usize>,
    range: Range<usize>,
}

/// The edits of a function by their faults' numbers.
type Faults<'e> = BTreeMap<usize, Vec<(Range<usize>, &'e Edit)>>;

/// The text of a file with a switch for each fault. Fails if an edit does not have exactly one place.
pub(crate) fn with_switches(text: &str, edits: &[(usize, &Edit)]) -> Result<String, String> {
    let functions = Function::all(text).map_err(|error| error.to_string())?;
    // By the end of the body, so that what is written behind a place leaves it where it is.
    let mut bodies: BTreeMap<(usize, usize), Faults<'_>> = BTreeMap::new();
    for &(number, edit) in edits {
        let Place { body, range } = place(text, &functions, edit)?;
        bodies.entry((body.start, body.end)).or_default().entry(number).or_default().push((range, edit));
    }
    let mut out = text.to_string();
    for (&(start, end), faults) in bodies.iter().rev() {
        let mut switch = String::from("{ ");
        for (number, edits) in faults {
            let faulty = replaced(text, start..end, edits)?;
            switch += &format!(
                "if crate::__mutant::on({number}) /*~[{number}*/ /*~<{number}*/{faulty}/*~>{number}*/ /*~]{number}*/ else "
            );
        }
        switch += &format!("{} }}", &text[start..end]);
        if end > bodies.range((start + 1, 0)..).next().map_or(usize::MAX, |(next, _)| next.0) {
            return Err("a function with a fault lies within another one".into());
        }
        out.replace_range(start..end, &switch);
    }
    Ok(out)
}

/// A piece of the text with the edits of one fault.
fn replaced(text: &str, piece: Range<usize>, edits: &[(Range<usize>, &Edit)]) -> Result<String, String> {
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

/// The one place of an edit.
fn place(text: &str, functions: &[Function], edit: &Edit) -> Result<Place, String> {
    let Edit { file, function, text: wanted, .. } = edit;
    let is_meant = |it: &&Function| function.as_ref().is_none_or(|name| *name == it.name);
    let mut places = matches(text, wanted).filter_map(|range| {
        let around = functions.iter().filter(|it| it.body.start < range.start && range.end < it.body.end);
        let innermost = around.min_by_key(|it| it.body.len()).filter(is_meant)?;
        Some((innermost, range))
    });
    let within = function.as_ref().map_or(String::new(), |name| format!(" within fn {name}"));
    match (places.next(), places.next()) {
        (None, _) => Err(format!("{file}{within}: there is no `{wanted}` in a function")),
        (Some(_), Some(_)) => Err(format!("{file}{within}: `{wanted}` is there more than once")),
        (Some((at, _)), None) if !at.takes_a_switch => {
            Err(format!("{file}: fn {} cannot have a switch: it is const or returns `impl Trait`", at.name))
        }
        (Some((at, range)), None) => Ok(Place { body: at.body.clone(), range }),
    }
}

/// Where `wanted` is in `text`, where any white space matches any other.
fn matches<'t>(text: &'t str, wanted: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
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
    /// From brace to brace.
    body: Range<usize>,
    takes_a_switch: bool,
}

impl Function {
    fn all(text: &str) -> syn::Result<Vec<Self>> {
        let lines = Lines::new(text);
        let mut found = Found { lines: &lines, functions: Vec::new() };
        found.visit_file(&syn::parse_file(text)?);
        Ok(found.functions)
    }
}

/// The functions that a walk through a file has met.
struct Found<'t> {
    lines: &'t Lines<'t>,
    functions: Vec<Function>,
}

impl Found<'_> {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let returns_impl = self.lines.text_of(&signature.output).contains("impl ");
        self.functions.push(Function {
            name: signature.ident.to_string(),
            body: self.lines.of(block),
            takes_a_switch: signature.constness.is_none() && !returns_impl,
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

    /// Without marks and white space.
    fn plain(text: &str) -> String {
        let mut parts = text.split("/*~");
        let first = parts.next().unwrap_or_default().to_string();
        let plain = parts.fold(first, |plain, part| plain + part.split_once("*/").unwrap().1);
        plain.split_whitespace().collect()
    }

    #[test]
    fn each_fault_of_a_function_gets_a_body() {
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
    fn any_white_space_matches_any_other() {
        let edit = edit(None, "one(); two();", "");
        assert_eq!(plain(&with_switches(TEXT, &[(0, &edit)]).unwrap()).matches("on(0){}").count(), 1);
        assert!(with_switches(TEXT, &[(0, &super::tests::edit(None, "one();two();", ""))]).is_err());
    }

    #[test]
    fn an_edit_without_exactly_one_place_is_refused() {
        for (function, text, wrong) in [
            (None, "five()", "there is no `five()`"),
            (Some("g"), "one()", "there is no `one()`"),
            (None, "fn f()", "there is no `fn f()`"),
            (None, "two();", "more than once"),
            (Some("g"), "two();", "more than once"),
            (None, "four()", "cannot have a switch"),
        ] {
            let refused = with_switches(TEXT, &[(0, &edit(function, text, ""))]).unwrap_err();
            assert!(refused.contains(wrong), "{refused}");
        }
    }

    #[test]
    fn every_fault_of_the_list_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let faults = load(&root).unwrap();
        assert!(faults.len() > 90, "{} faults", faults.len());
        for fault in &faults {
            assert!(!fault.found.is_empty() && !fault.edits.is_empty(), "{}", fault.name);
        }
        for (file, edits) in by_file(&faults) {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let text = with_switches(&text, &edits).unwrap_or_else(|wrong| panic!("{wrong}"));
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}, with its faults: {error}"));
        }
    }
}
