//! Rewrites a source text so that it contains all of its mutants, each after a switch.
//!
//! ```text
//!   a < b                match (&a, &b) { (l, r) => if on(7) { l <= r } else { l < r } }
//!   a && b               match a { l => if l == on(6) { l } else { b } }
//!   !a                   match a { x => if on(8) { x } else { !x } }
//!   fn f() -> u64 { .. } fn f() -> u64 { if on(9) { return 0; } .. }
//!   P => ..              P if !on(10) => ..
//!   P if g => ..         P if on(11) || !on(12) && g => ..
//! ```
//! Each operand occurs only once: repeated operands of nested expressions would make the text grow
//! exponentially.
//!
//! Where no switch is possible, a mutant is left out: code that the compiler runs (`const fn`),
//! conditions that bind (`let`), values of functions that return `impl Trait`, and fields.

use crate::list::{Genre, Mutant, Place, Span};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

/// A source text with switches, and the mutants without a switch.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) left_out: Vec<usize>,
}

/// Rewrites `text` with these mutants and their numbers.
pub(crate) fn rewrite(text: &str, mutants: &[(usize, &Mutant)]) -> syn::Result<Rewritten> {
    let lines = Lines::new(text);
    let mut code = Code::new(&lines);
    code.visit_file(&syn::parse_file(text)?);
    let mut edits: BTreeMap<(usize, bool, Reverse<usize>, bool), Edit> = BTreeMap::new();
    let mut left_out = Vec::new();
    for &(number, mutant) in mutants {
        match code.edit_for(mutant) {
            Some(edit) => {
                // Insertions come before other edits that begin at the same byte, outer edits
                // before inner ones, and a guard before the expression that it consists of.
                let is_guard = matches!(edit.kind, Kind::Guard);
                let key = (edit.range.start, !edit.range.is_empty(), Reverse(edit.range.end), !is_guard);
                edits.entry(key).or_insert(edit).mutants.push((number, mutant.clone()));
            }
            None => left_out.push(number),
        }
    }
    let edits: Vec<Edit> = edits.into_values().collect();
    let mut out = String::new();
    render(text, 0..text.len(), &edits, &mut out);
    Ok(Rewritten { text: out, left_out })
}

/// The mutant that a byte of a rewritten text belongs to: the innermost one whose code contains it,
/// or else the first one of the innermost switch.
pub(crate) fn mutant_at(text: &str, at: usize) -> Option<usize> {
    let (mut inside, mut switches) = (Vec::new(), Vec::new());
    let before = &text[..at.min(text.len())];
    for (mark, _) in before.match_indices("/*~") {
        let body = &before[mark + 3..];
        let Some(end) = body.find("*/") else { continue };
        let (kind, number) = body[..end].split_at(1);
        let Ok(number) = number.parse::<usize>() else { continue };
        match kind {
            "<" => inside.push(number),
            ">" => _ = inside.pop(),
            "[" => switches.push(number),
            "]" => _ = switches.pop(),
            _ => {}
        }
    }
    inside.last().or(switches.last()).copied()
}

/// The start of each line; maps lines and columns, in characters, to bytes.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The byte at a line, counted from 1, and a column, counted from 0.
    fn byte(&self, line: usize, column: usize) -> usize {
        let start = self.starts[line - 1];
        let mut characters = self.text[start..].char_indices();
        characters.nth(column).map_or(self.text.len(), |(at, _)| start + at)
    }

    fn place(&self, place: Place) -> usize {
        self.byte(place.line, place.column - 1)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.place(span.start)..self.place(span.end)
    }

    /// The byte range of a syntax node.
    pub(crate) fn range_of(&self, node: &impl Spanned) -> Range<usize> {
        let span = node.span();
        let [start, end] = [span.start(), span.end()].map(|at| self.byte(at.line, at.column));
        start..end
    }

    /// The text of a syntax node.
    pub(crate) fn text_of(&self, node: &impl Spanned) -> &'t str {
        &self.text[self.range_of(node)]
    }
}

/// The places where mutants are possible, by their start.
struct Code<'t> {
    lines: &'t Lines<'t>,
    /// By the start of the operator.
    operators: BTreeMap<usize, Edit>,
    /// The bodies of functions.
    bodies: Vec<Range<usize>>,
    /// By the start of the arm.
    arms: BTreeMap<usize, Edit>,
    /// By the start of the guard.
    guards: BTreeMap<usize, Edit>,
    /// Whether the visited code runs in the compiler.
    is_const: bool,
}

/// A place of the source, and the mutants to put there.
#[derive(Clone)]
struct Edit {
    range: Range<usize>,
    kind: Kind,
    mutants: Vec<(usize, Mutant)>,
}

#[derive(Clone)]
enum Kind {
    /// The range of the operator.
    Binary(Range<usize>),
    /// The range of the operator.
    Unary(Range<usize>),
    /// An empty range after the opening brace of a function's body.
    Body,
    /// An empty range after the pattern of an arm.
    Arm,
    Guard,
}

impl Edit {
    fn new(range: Range<usize>, kind: Kind) -> Self {
        Self { range, kind, mutants: Vec::new() }
    }
}

impl<'t> Code<'t> {
    fn new(lines: &'t Lines<'t>) -> Self {
        let (operators, arms, guards) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { lines, operators, bodies: Vec::new(), arms, guards, is_const: false }
    }

    fn edit_for(&self, mutant: &Mutant) -> Option<Edit> {
        let span = self.lines.range(mutant.span);
        match mutant.genre {
            Genre::BinaryOperator | Genre::UnaryOperator => {
                let edit = self.operators.get(&span.start)?;
                let is_lazy = |operator: &str| matches!(operator, "&&" | "||");
                let fits = is_lazy(&self.lines.text[span]) == is_lazy(&mutant.replacement);
                fits.then(|| edit.clone())
            }
            Genre::FnValue => {
                let around =
                    self.bodies.iter().filter(|body| body.start <= span.start && span.end <= body.end);
                let body = around.min_by_key(|body| body.len())?;
                Some(Edit::new(body.start + 1..body.start + 1, Kind::Body))
            }
            Genre::MatchArm => self.arms.get(&span.start).cloned(),
            Genre::MatchArmGuard => self.guards.get(&span.start).cloned(),
            Genre::Other => None,
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_const, signature.constness.is_some());
        // The body determines the hidden type after `impl Trait`; another value would not have
        // that type.
        let is_named = !self.lines.text_of(&signature.output).contains("impl ");
        if !self.is_const && is_named {
            self.bodies.push(self.lines.range_of(block));
        }
        visit(self);
        self.is_const = outer;
    }
}

fn has_binding(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_binding(&binary.left) || has_binding(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Code<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, |code| visit::visit_item_fn(code, item));
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, |code| visit::visit_impl_item_fn(code, item));
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        match &item.default {
            Some(block) => self.function(&item.sig, block, |code| visit::visit_trait_item_fn(code, item)),
            None => visit::visit_trait_item_fn(self, item),
        }
    }
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        visit::visit_expr_binary(self, binary);
        if !self.is_const && !has_binding(&binary.left) && !has_binding(&binary.right) {
            let operator = self.lines.range_of(&binary.op);
            let edit = Edit::new(self.lines.range_of(binary), Kind::Binary(operator.clone()));
            self.operators.insert(operator.start, edit);
        }
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        visit::visit_expr_unary(self, unary);
        if !self.is_const {
            let operator = self.lines.range_of(&unary.op);
            self.operators
                .insert(operator.start, Edit::new(self.lines.range_of(unary), Kind::Unary(operator.clone())));
        }
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        visit::visit_expr_match(self, expression);
        // For exhaustiveness, the compiler ignores an arm with a guard.
        let is_catch_all = |arm: &syn::Arm| match &arm.pat {
            _ if arm.guard.is_some() => false,
            syn::Pat::Wild(_) => true,
            // `None` parses as an identifier.
            syn::Pat::Ident(name) => {
                name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase)
            }
            _ => false,
        };
        let has_catch_all = expression.arms.iter().any(is_catch_all);
        for arm in expression.arms.iter().filter(|_| !self.is_const) {
            let start = self.lines.range_of(arm).start;
            match &arm.guard {
                Some((_, guard)) if has_binding(guard) => {}
                Some((_, guard)) => {
                    let edit = Edit::new(self.lines.range_of(guard), Kind::Guard);
                    self.guards.insert(edit.range.start, edit.clone());
                    self.arms.insert(start, edit);
                }
                None if has_catch_all && !is_catch_all(arm) => {
                    let after = self.lines.range_of(&arm.pat).end;
                    self.arms.insert(start, Edit::new(after..after, Kind::Arm));
                }
                None => {}
            }
        }
    }
}

/// Writes a piece of the text with the edits in it. Edits are in order, outer before inner.
fn render(text: &str, piece: Range<usize>, edits: &[Edit], out: &mut String) {
    let mut at = piece.start;
    let mut rest = edits;
    while let [edit, after @ ..] = rest {
        if edit.range.start >= piece.end && !edit.range.is_empty() || edit.range.start > piece.end {
            break;
        }
        let inner = after.iter().take_while(|inner| inner.range.start < edit.range.end).count();
        out.push_str(&text[at..edit.range.start]);
        render_edit(text, edit, &after[..inner], out);
        at = edit.range.end;
        rest = &after[inner..];
    }
    out.push_str(&text[at..piece.end]);
}

/// The edits within a piece.
fn edits_within<'e>(edits: &'e [Edit], piece: &Range<usize>) -> &'e [Edit] {
    let from = edits.partition_point(|edit| edit.range.start < piece.start);
    let to = edits.partition_point(|edit| edit.range.start < piece.end);
    &edits[from..to.max(from)]
}

fn render_edit(text: &str, edit: &Edit, inner: &[Edit], out: &mut String) {
    let part = |piece: Range<usize>, out: &mut String| {
        out.push('(');
        render(text, piece.clone(), edits_within(inner, &piece), out);
        out.push(')');
    };
    let switch = |number: usize| format!("crate::__mutant::on({number})");
    let first = edit.mutants[0].0;
    out.push_str(&format!("/*~[{first}*/"));
    match &edit.kind {
        Kind::Binary(operator) => {
            let (left, right) = (edit.range.start..operator.start, operator.end..edit.range.end);
            let symbol = &text[operator.clone()];
            let (one, other, end) = match symbol {
                "&&" | "||" => {
                    out.push_str("(match ");
                    part(left, out);
                    // Without the mutant, `&&` returns false at once, `||` returns true at once.
                    let equals = if symbol == "&&" { "==" } else { "!=" };
                    out.push_str(&format!(" {{ __l => if __l {equals} {} {{ __l }} else {{ ", switch(first)));
                    part(right, out);
                    out.push_str(" } })");
                    return out.push_str(&format!("/*~]{first}*/"));
                }
                _ if symbol.len() > 1 && symbol.ends_with('=') && !COMPARISONS.contains(&symbol) => {
                    out.push_str("(match ");
                    part(right, out);
                    let mut place = String::new();
                    part(left, &mut place);
                    out.push_str(" { __r => ");
                    (place, "__r", " })")
                }
                _ => {
                    let by = if COMPARISONS.contains(&symbol) { "&" } else { "" };
                    out.push_str(&format!("(match ({by}"));
                    part(left, out);
                    out.push_str(&format!(", {by}"));
                    part(right, out);
                    out.push_str(") { (__l, __r) => ");
                    ("__l".into(), "__r", " })")
                }
            };
            for (number, mutant) in &edit.mutants {
                let wrong = &mutant.replacement;
                let on = switch(*number);
                out.push_str(&format!(
                    "if {on} {{ /*~<{number}*/{one} {wrong} {other}/*~>{number}*/ }} else "
                ));
            }
            out.push_str(&format!("{{ {one} {symbol} {other} }}{end}"));
        }
        Kind::Unary(operator) => {
            out.push_str("(match ");
            part(operator.end..edit.range.end, out);
            let (wrong, right) = (&edit.mutants[0].1.replacement, &text[operator.clone()]);
            let on = switch(first);
            out.push_str(&format!(
                " {{ __x => if {on} {{ /*~<{first}*/{wrong}__x/*~>{first}*/ }} else {{ {right}__x }} }})"
            ));
        }
        Kind::Body => {
            for (number, mutant) in &edit.mutants {
                let value = &mutant.replacement;
                out.push_str(&format!(
                    " if {} {{ /*~<{number}*/ return {value}; /*~>{number}*/ }}",
                    switch(*number)
                ));
            }
        }
        Kind::Arm => out.push_str(&format!(" if !{}", switch(first))),
        Kind::Guard => {
            for (number, _) in edit.mutants.iter().filter(|(_, mutant)| mutant.replacement == "true") {
                out.push_str(&format!("{} || ", switch(*number)));
            }
            for (number, _) in edit.mutants.iter().filter(|(_, mutant)| mutant.replacement != "true") {
                out.push_str(&format!("!{} && ", switch(*number)));
            }
            part(edit.range.clone(), out);
        }
    }
    out.push_str(&format!("/*~]{first}*/"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(text: &str, genre: Genre, what: &str, replacement: &str) -> Mutant {
        let at = text.find(what).unwrap();
        let place = |byte: usize| {
            let before = &text[..byte];
            let line = before.matches('\n').count() + 1;
            Place { line, column: before.rsplit('\n').next().unwrap().chars().count() + 1 }
        };
        let span = Span { start: place(at), end: place(at + what.len()) };
        Mutant { file: String::new(), name: String::new(), replacement: replacement.into(), genre, span }
    }

    /// The rewritten text without marks, and the mutants without a switch.
    fn rewritten(text: &str, mutants: &[Mutant]) -> (String, Vec<usize>) {
        let mutants: Vec<(usize, &Mutant)> = mutants.iter().enumerate().collect();
        let rewritten = rewrite(text, &mutants).unwrap();
        let mut plain = String::new();
        let mut rest = rewritten.text.as_str();
        while let Some((before, after)) = rest.split_once("/*~") {
            plain.push_str(before);
            rest = after.split_once("*/").unwrap().1;
        }
        (plain + rest, rewritten.left_out)
    }

    #[test]
    fn each_kind_of_mutant_gets_a_switch() {
        let text = "fn f(é: u64) -> bool { match é { 1 => !g(), n if n + 2 < é => true, _ => false } }";
        let mutants = [
            mutant(text, Genre::FnValue, "match é", "true"),
            mutant(text, Genre::MatchArm, "1 => !g()", ""),
            mutant(text, Genre::UnaryOperator, "!", ""),
            mutant(text, Genre::MatchArmGuard, "n + 2 < é", "true"),
            mutant(text, Genre::BinaryOperator, "+", "-"),
            mutant(text, Genre::BinaryOperator, "<", ">"),
            mutant(text, Genre::BinaryOperator, "<", "=="),
        ];
        let (plain, left_out) = rewritten(text, &mutants);
        assert!(left_out.is_empty());
        let on = |number| format!("crate::__mutant::on({number})");
        let expected = format!(
            "fn f(é: u64) -> bool {{ if {} {{  return true;  }} match é {{ 1 if !{} => (match (g()) {{ __x => if {} {{ __x }} else {{ !__x }} }}), \
             n if {} || ((match (&((match ((n ),( 2 )) {{ (__l, __r) => if {} {{ __l - __r }} else {{ __l + __r }} }})),&( é)) {{ (__l, __r) => \
             if {} {{ __l > __r }} else if {} {{ __l == __r }} else {{ __l < __r }} }})) => true, _ => false }} }}",
            on(0),
            on(1),
            on(2),
            on(3),
            on(4),
            on(5),
            on(6)
        );
        let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(without_spaces(&plain), without_spaces(&expected));
        syn::parse_file(&plain).unwrap();
    }

    #[test]
    fn mutants_without_a_possible_switch_are_left_out() {
        let text = "const fn f() -> u64 { 1 + 2 } fn g() -> impl Fn() { || () } fn h() { if let 1 = a() && b() {} match c() { None => {} Some(_) => {} } }";
        let mutants = [
            mutant(text, Genre::FnValue, "1 + 2", "0"),
            mutant(text, Genre::BinaryOperator, "+", "-"),
            mutant(text, Genre::FnValue, "|| ()", "0"),
            mutant(text, Genre::BinaryOperator, "&&", "||"),
            mutant(text, Genre::MatchArm, "None => {}", ""),
        ];
        assert_eq!(rewritten(text, &mutants), (text.to_string(), vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn error_belongs_to_the_innermost_mutant() {
        let text = "fn f() -> u64 { a + b * c }";
        let mutants = [
            mutant(text, Genre::BinaryOperator, "+", "-"),
            mutant(text, Genre::BinaryOperator, "*", "/"),
            mutant(text, Genre::FnValue, "a + b * c", "0"),
        ];
        let mutants: Vec<(usize, &Mutant)> = mutants.iter().enumerate().collect();
        let text = rewrite(text, &mutants).unwrap().text;
        let at = |what: &str| mutant_at(&text, text.find(what).unwrap()).unwrap();
        assert_eq!([at("__l - "), at("__l / "), at("return 0"), at("__l + "), at("__l * ")], [0, 1, 2, 0, 1]);
        assert_eq!(mutant_at(&text, 2), None);
    }
}
