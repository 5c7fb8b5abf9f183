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
use crate::marks::marked;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
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
            let faulty = marked(*number, faulty);
            switch += &format!("if crate::__mutant::on({number}) {faulty} else ");
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
        let mut found = Found { text, functions: Vec::new() };
        found.visit_file(&syn::parse_file(text)?);
        Ok(found.functions)
    }
}

/// Collects the functions of a file.
struct Found<'t> {
    text: &'t str,
    functions: Vec<Function>,
}

impl Found<'_> {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let output = &self.text[signature.output.span().byte_range()];
        self.functions.push(Function {
            name: signature.ident.to_string(),
            body: block.span().byte_range(),
            can_switch: signature.constness.is_none() && !output.contains("impl "),
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
