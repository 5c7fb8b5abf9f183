//! report: the page is well-formed, shows all results, and fetches nothing.

use crate::common::{Place, run};
use serde_json::json;

/// Markup that would make a browser fetch something.
const FETCHES: [&str; 9] =
    ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe"];

fn machine() -> serde_json::Value {
    json!({ "processor": "A <Processor> & Co", "processors": 2, "memory_bytes": 8u64 << 30, "kernel": "6.1", "huge_pages": "madvise" })
}

fn suite() -> serde_json::Value {
    let row = |name: &str, ours: Option<f64>, holds: bool| {
        json!({ "name": name, "ours": ours, "peers": { "redis": 2.5, "none": null }, "ratio": 1.2, "target": { "ratio_at_least": 1.5 },
                "holds": holds, "note": "a <note>", "figures": null, "fixed_loop_moved": null, "runs": null })
    };
    json!({ "suite": "foundation", "warning": "a quick run", "repeat": "cargo peers foundation", "missed": 1, "machine": machine(),
            "limits": { "persist_ns": 172.0 },
            "sections": [{ "title": "Maps </title><script>alert(1)</script>", "unit": "million operations/s",
                           "rows": [row("get <b>", Some(3.0), true), row("put", None, false)] },
                         media()] })
}

/// A section of `cargo peers slow`: its columns have an order, and its rows no targets.
fn media() -> serde_json::Value {
    let row = |name: &str, plain: f64| {
        json!({ "name": name, "ours": plain, "peers": { "cxl": 0.5, "optane-100": 2.25 }, "ratio": null, "target": null, "holds": null,
                "note": null, "figures": null, "fixed_loop_moved": null, "runs": null })
    };
    json!({ "title": "Media traffic", "unit": "blocks an operation", "ours": "pcm", "columns": ["optane-100", "cxl"],
            "rows": [row("get", 1.5), row("insert", 0.0)] })
}

/// Minimum number of plots of [`page`]: four of the runs, and one per section. The plot of the
/// records exists only if a run was long enough to grow visibly.
const PLOTS: usize = 4 + 2;

/// A page of two runs and a suite.
fn page(place: &Place) -> String {
    let file = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (closed, open, suite_file, page) =
        (file("closed.json"), file("open & <late>.json"), file("suite.json"), file("page.html"));
    let bench = ["bench", "--records", "2000", "--operations", "3000", "--threads", "2"];
    run(bench.into_iter().chain(["--workload", "ycsb-d", "--json", &closed]), b"").ok();
    run(bench.into_iter().chain(["--workload", "ycsb-a", "--rate", "20000", "--json", &open]), b"").ok();
    std::fs::write(&suite_file, suite().to_string()).unwrap();
    run(["report", &closed, &open, &suite_file, "-o", &page], b"").ok();
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn page_of_runs_and_suites_is_self_contained() {
    let place = Place::new();
    let page = page(&place);
    let document = roxmltree::Document::parse_with_options(
        &page,
        roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() },
    )
    .unwrap();
    let tags = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    let count = |name: &'static str| tags(name).count();
    assert!(count("svg") >= PLOTS && count("table") == 3 && count("script") == 0, "{page}");
    let words = |node: roxmltree::Node<'_, '_>| -> Vec<String> {
        node.descendants().filter(|n| n.is_text()).map(|n| n.text().unwrap().trim().to_owned()).collect()
    };
    let media = words(tags("table").next_back().unwrap()).into_iter().filter(|word| !word.is_empty());
    let media = media.collect::<Vec<_>>().join(" ");
    assert_eq!(media, "pcm optane-100 cxl get 1.50 2.25 0.50 insert 0 2.25 0.50");
    let bars = tags("svg").next_back().unwrap();
    assert_eq!(bars.descendants().filter(|node| node.has_tag_name("rect")).count(), 6, "one bar per figure");
    let drawn = document.descendants().filter(|node| node.has_tag_name("polyline")).count();
    assert!(drawn >= 8, "{drawn} lines");
    let text: String = document.descendants().filter_map(|node| node.text()).collect();
    for part in [
        "ycsb-d",
        "read modify write",
        "p99.99",
        "Load factor of the index",
        "open & <late>",
        "A <Processor> & Co",
        "get <b>",
        "1 target is missed",
        "a quick run",
        "cargo peers foundation",
    ] {
        assert_eq!(text.contains(part), part != "read modify write", "{part}");
    }
    let lower = page.to_lowercase();
    // The patterns match markup; the hostile texts of the suite are escaped.
    for fetch in FETCHES {
        assert!(!lower.contains(fetch), "{fetch}");
    }
}

#[test]
fn page_without_results_goes_to_standard_output() {
    let place = Place::new();
    let file = place.path("empty.json");
    let mut empty = suite();
    empty["sections"] = json!([]);
    std::fs::write(&file, empty.to_string()).unwrap();
    let out = run(["report", file.to_str().unwrap()], b"").ok();
    assert!(out.text().starts_with("<!DOCTYPE html>"));
}

#[test]
fn invalid_report_file_is_refused_by_name() {
    let place = Place::new();
    let file = place.path("other.json");
    for text in ["", "[]", "{\"a\": 1}", "{\"sections\": 1}", "not json"] {
        std::fs::write(&file, text).unwrap();
        run(["report", file.to_str().unwrap()], b"").fails(1, "other.json is not a report");
    }
    run(["report", place.path("absent").to_str().unwrap()], b"").fails(1, "cannot read");
    assert_eq!(run(["report"], b"").code, 2);
}
