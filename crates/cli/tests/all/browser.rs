//! report: what is on the page, and the page in a browser. The latter is skipped without a browser,
//! unless `TERRACE_BROWSER` is set.

use crate::common::{Place, run};
use serde_json::json;
use std::io::Write;
use std::process::Command;

/// Chromium, under the name that it has on this machine.
fn chromium() -> Option<&'static str> {
    let is_there =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
}

/// Flags for a run without network access, which writes the document to standard output.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--window-size=1400,1000",
    "--dump-dom",
];

/// A script that counts the visible plots and tables: those with a size, and within the window.
const COUNT: &str = "<script>
  const shown = (name) => [...document.querySelectorAll(name)].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width > 100 && box.height > 50 && box.right <= innerWidth;
  }).length;
  document.body.dataset.seen = `${shown('svg')} plots, ${shown('table')} tables`;
</script>";

/// A page, as loaded by a browser.
struct Seen {
    /// The document after it was loaded.
    document: String,
    /// The lines that it wrote to the console.
    console: Vec<String>,
}

fn show(browser: &str, place: &Place, page: &str) -> Seen {
    let file = place.path("shown.html");
    std::fs::write(&file, page).unwrap();
    let profile = format!("--user-data-dir={}", place.path("profile").display());
    // A browser that hangs is killed, which fails the test.
    let out = Command::new("timeout")
        .args(["120", browser])
        .args(FLAGS)
        .arg(profile)
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Seen { document: String::from_utf8_lossy(&out.stdout).into_owned(), console }
}

/// Writes the results of a suite with one section.
fn write_suite(suite: &str) {
    let row = json!({ "name": "get", "ours": 1.0, "peers": { "optane-100": 1.5 }, "ratio": null, "target": null, "holds": null, "note": null });
    let media = json!({ "title": "Media traffic", "unit": "blocks an operation", "ours": "dram", "columns": ["optane-100"],
                        "rows": [row.clone(), row] });
    let machine =
        json!({ "processor": "p", "processors": 2, "memory_bytes": 1, "kernel": "6", "huge_pages": "never" });
    let text = json!({ "suite": "slow", "warning": null, "repeat": "again", "missed": 0, "machine": machine, "limits": {}, "sections": [media] });
    std::fs::write(suite, text.to_string()).unwrap();
}

/// A page of a run and a suite with one section.
fn page(place: &Place) -> String {
    let file = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (bench, suite, page) = (file("bench.json"), file("suite.json"), file("page.html"));
    let options = ["--records", "2000", "--operations", "3000", "--threads", "1", "--workload", "ycsb-a"];
    run(["bench", "--json", &bench].into_iter().chain(options), b"").ok();
    write_suite(&suite);
    run(["report", &bench, &suite, "-o", &page], b"").ok();
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn page_shows_every_row_and_figure() {
    let place = Place::new();
    let file = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (suite, page) = (file("suite.json"), file("page.html"));
    write_suite(&suite);
    run(["report", &suite, "-o", &page], b"").ok();
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/page-shows");
    let shown = Command::new(check).args([page, suite]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
}

#[test]
fn browser_shows_every_plot_without_console_messages() {
    let Some(browser) = chromium() else {
        let without = "no chromium on the path, so the page of `terrace report` is not shown in a browser";
        // `./test --nightly` installs one.
        assert!(std::env::var_os("TERRACE_BROWSER").is_none(), "{without}");
        writeln!(std::io::stderr(), "SKIPPED: {without}").unwrap();
        return;
    };
    let place = Place::new();
    let page = page(&place);
    let counted = page.replace("</body>", &format!("{COUNT}</body>"));
    let seen = show(browser, &place, &counted);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    assert!(seen.document.contains("data-seen=\"5 plots, 2 tables\""), "{}", seen.document);

    // The check detects a plot that is not shown, and a script that fails.
    let broken = counted.replacen("<svg", "<svg style=\"display: none\"", 1);
    let seen = show(browser, &place, &broken.replace("</body>", "<script>absent()</script></body>"));
    assert!(seen.document.contains("data-seen=\"4 plots"), "{}", seen.document);
    assert!(seen.console.iter().any(|line| line.contains("absent")), "{:?}", seen.console);
}
