//! Tests of the edits, and of the lists.

use super::edit::with_switches;
use super::list::{Edit, by_file, load};
use crate::marks::fault_at;
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
fn compiler_error_belongs_to_its_fault() {
    let edits = [edit(None, "one();", "1;"), edit(Some("f"), "two();", "2;")];
    let [a, b] = &edits;
    let text = with_switches(TEXT, &[(3, a), (7, b)]).unwrap();
    let at = |what: &str| fault_at(&text, text.find(what).unwrap());
    assert_eq!([at("1;"), at("2;"), at("three")], [Some(3), Some(7), None]);
    assert_eq!(fault_at(&text, text.rfind("one();").unwrap()), None);
}

#[test]
fn white_space_matches_any_white_space() {
    let edit = edit(None, "one(); two();", "");
    assert_eq!(plain(&with_switches(TEXT, &[(0, &edit)]).unwrap()).matches("on(0){}").count(), 1);
    assert!(with_switches(TEXT, &[(0, &self::edit(None, "one();two();", ""))]).is_err());
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
