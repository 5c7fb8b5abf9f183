//! The page: one HTML file that is also well-formed XML. It has no scripts, and nothing that a
//! browser would have to fetch.

use std::fmt::Write;

use super::plot::{Bar, PlotError, Scale, Series, bars, figure, lines};
use super::source::{Machine, Row, Run, Section, Side, Source, Suite};
use super::text::{escaped, figure as number, nanoseconds};

const STYLE: &str = "\
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #282c34; background: #f5f6f8; max-width: 1320px; margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0 12px; max-width: 90ch; } .quiet { color: #5b626d; }
.plots { display: flex; flex-wrap: wrap; gap: 16px; align-items: start; }
figure { margin: 0; flex: 0 1 620px; box-sizing: border-box; background: white; border: 1px solid #e1e4e8; border-radius: 6px; padding: 10px 12px; }
figcaption { font-weight: 600; } svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; margin: 0 0 16px; } .legend { font-size: 13px; } table { border-collapse: collapse; background: white; border: 1px solid #e1e4e8; }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid #eef0f3; white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; white-space: normal; max-width: 64ch; } th { font-weight: 600; background: #fafbfc; }
.missed { color: #a33b00; font-weight: 600; } code { font: 13px ui-monospace, monospace; }
";

/// The page of all files.
pub(super) fn page(sources: &[Source]) -> Result<String, PlotError> {
    let mut page = String::new();
    page += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n";
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n<title>Terrace: measurements</title>\n";
    let _ = write!(page, "<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Terrace: measurements</h1>\n");
    machines(&mut page, sources);
    let runs: Vec<&Run> = sources.iter().filter_map(Source::run).collect();
    if !runs.is_empty() {
        write_runs(&mut page, &runs)?;
    }
    for suite in sources.iter().filter_map(Source::suite) {
        write_suite(&mut page, suite)?;
    }
    commands(&mut page, sources);
    page += "</body>\n</html>\n";
    Ok(page)
}

impl Source {
    fn run(&self) -> Option<&Run> {
        match self {
            Source::Run(run) => Some(run),
            Source::Suite(_) => None,
        }
    }

    fn suite(&self) -> Option<&Suite> {
        match self {
            Source::Suite(suite) => Some(suite),
            Source::Run(_) => None,
        }
    }
}

/// Each machine once, and warnings about those whose speed changed.
fn machines(page: &mut String, sources: &[Source]) {
    let mut written: Vec<String> = Vec::new();
    for source in sources {
        let text = machine(source.machine());
        if !written.contains(&text) {
            let _ = writeln!(page, "<p class=\"quiet\">{}</p>", escaped(&text));
            written.push(text);
        }
        let moved = source.machine().fixed_loop_moved;
        if moved > 0.1 {
            let _ = writeln!(
                page,
                "<p class=\"missed\">{}: the machine's speed changed by {:.0}% during the run.</p>",
                escaped(source.name()),
                moved * 100.0
            );
        }
    }
}

fn machine(machine: &Machine) -> String {
    format!(
        "{} processors ({}), {:.1} GiB, Linux {}, huge pages {}",
        machine.processors,
        machine.processor,
        machine.memory_bytes as f64 / (1u64 << 30) as f64,
        machine.kernel,
        machine.huge_pages
    )
}

/// The commands that repeat the measurements.
fn commands(page: &mut String, sources: &[Source]) {
    *page += "<h2>Commands to repeat</h2>\n";
    for source in sources {
        let _ =
            writeln!(page, "<p>{}: <code>{}</code></p>", escaped(source.name()), escaped(source.repeat()));
    }
}

/// A table. The first column is text; all cells are escaped already.
fn table(page: &mut String, head: &[&str], rows: &[Vec<String>]) {
    *page += "<div class=\"wide\"><table>\n<tr>";
    head.iter().for_each(|cell| _ = write!(page, "<th>{}</th>", escaped(cell)));
    *page += "</tr>\n";
    for row in rows {
        *page += "<tr>";
        row.iter().for_each(|cell| _ = write!(page, "<td>{cell}</td>"));
        *page += "</tr>\n";
    }
    *page += "</table></div>\n";
}

fn write_runs(page: &mut String, runs: &[&Run]) -> Result<(), PlotError> {
    *page += "<h2>Workloads</h2>\n";
    for run in runs {
        let rate = run.rate_asked_per_second;
        let rate =
            rate.map_or(String::new(), |rate| format!(", target {} operations per second", number(rate)));
        let _ = writeln!(
            page,
            "<p><b>{}</b>: {} ({}). {} records, keys of {} B, values of {} B, {}, {} threads{rate}. {} operations, {} per second.</p>",
            escaped(&run.name),
            escaped(&run.workload),
            escaped(&run.about),
            number(run.records as f64),
            run.key_bytes,
            escaped(&run.value_bytes),
            escaped(&run.distribution),
            run.threads,
            number(run.operations as f64),
            number(run.operations_per_second),
        );
    }
    let mut head = vec!["", "operations", "per second"];
    head.extend(Side::QUANTILES);
    table(page, &head, &latency_rows(runs));
    *page += "<h2>Plots</h2>\n<div class=\"plots\">\n";
    for (caption, svg) in plots(runs)? {
        *page += &figure(caption, &svg);
    }
    *page += "</div>\n";
    Ok(())
}

/// The name of one kind of operations of a run.
fn named(run: &Run, kind: &str) -> String {
    format!("{}: {}", run.name, kind.replace('_', " "))
}

fn latency_rows(runs: &[&Run]) -> Vec<Vec<String>> {
    let row = |run: &Run, kind: &str, side: &Side| {
        let counts = [number(side.operations as f64), number(side.operations_per_second)];
        let latencies = side.latencies_ns().map(|ns| nanoseconds(ns as f64));
        [escaped(&named(run, kind))].into_iter().chain(counts).chain(latencies).collect()
    };
    runs.iter().flat_map(|run| run.kinds.iter().map(move |(kind, side)| row(run, kind, side))).collect()
}

fn plots(runs: &[&Run]) -> Result<Vec<(&'static str, String)>, PlotError> {
    let each = |points: &dyn Fn(&Run) -> Vec<(f64, f64)>| -> Vec<Series> {
        let of_run = |run: &&Run| Series { name: run.name.clone(), points: points(run) };
        runs.iter().map(of_run).filter(|series| !series.points.is_empty()).collect()
    };
    let rates = |run: &Run| run.over_time.iter().map(|p| (p.seconds, p.operations_per_second)).collect();
    let load = |run: &Run| run.samples.iter().map(|s| (s.seconds, s.load_factor)).collect();
    let records = |run: &Run| run.samples.iter().map(|s| (s.seconds, s.records as f64)).collect();
    const TIME: &str = "seconds";
    let mut plots = vec![
        ("Throughput, operations per second", lines(&each(&rates), TIME, Scale::Linear, None)?),
        ("Latency by percentile", lines(&percentiles(runs), "", Scale::LogNs, Some(&Side::QUANTILES))?),
        ("Latency over time, median and 99th percentile", lines(&tails(runs), TIME, Scale::LogNs, None)?),
        ("Load factor of the index", lines(&each(&load), TIME, Scale::Linear, None)?),
    ];
    let grows = |run: &&Run| run.samples.first().map(|s| s.records) != run.samples.last().map(|s| s.records);
    if runs.iter().any(grows) {
        plots.push(("Records", lines(&each(&records), TIME, Scale::Linear, None)?));
    }
    Ok(plots)
}

fn percentiles(runs: &[&Run]) -> Vec<Series> {
    let series = |run: &Run, kind: &str, side: &Side| {
        let points = side.latencies_ns().into_iter().enumerate().map(|(nth, ns)| (nth as f64, ns as f64));
        Series { name: named(run, kind), points: points.collect() }
    };
    runs.iter().flat_map(|run| run.kinds.iter().map(move |(kind, side)| series(run, kind, side))).collect()
}

fn tails(runs: &[&Run]) -> Vec<Series> {
    let series = |run: &Run, name: &str, ns: &dyn Fn(&super::source::Piece) -> u64| {
        let pieces = run.over_time.iter().filter(|piece| piece.operations_per_second > 0.0);
        let points = pieces.map(|piece| (piece.seconds, ns(piece) as f64)).collect();
        Series { name: format!("{}: {name}", run.name), points }
    };
    let of_run =
        |run: &&Run| [series(run, "p50", &|p| p.latency_ns_p50), series(run, "p99", &|p| p.latency_ns_p99)];
    runs.iter().flat_map(of_run).filter(|series| !series.points.is_empty()).collect()
}

fn write_suite(page: &mut String, suite: &Suite) -> Result<(), PlotError> {
    let missed = match suite.missed {
        0 => "every target holds".to_string(),
        1 => "1 target is missed".to_string(),
        n => format!("{n} targets are missed"),
    };
    let _ = writeln!(
        page,
        "<h2>{}: suite {}</h2>\n<p>{missed}.</p>",
        escaped(&suite.name),
        escaped(&suite.suite)
    );
    if let Some(warning) = &suite.warning {
        let _ = writeln!(page, "<p class=\"missed\">{}</p>", escaped(warning));
    }
    let limits = suite.limits.iter().map(|(name, figure)| format!("{name} {}", number(*figure)));
    let limits = limits.collect::<Vec<_>>().join(", ");
    let _ = writeln!(page, "<p class=\"quiet\">Limits of the machine at that time: {}</p>", escaped(&limits));
    for section in &suite.sections {
        write_section(page, section)?;
    }
    Ok(())
}

fn write_section(page: &mut String, section: &Section) -> Result<(), PlotError> {
    let _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", escaped(&section.unit), escaped(&section.title));
    let (peers, judged) = (section.peers(), section.is_judged());
    let mut head = vec!["", &section.ours];
    head.extend(&peers);
    if judged {
        head.extend(["ratio", "target"]);
    }
    let rows: Vec<_> = section.rows.iter().map(|row| row_of(row, &peers, judged)).collect();
    *page += "<div class=\"plots\">\n";
    table(page, &head, &rows);
    let groups: Vec<_> = section.rows.iter().map(|row| (row.name.clone(), bars_of(section, row))).collect();
    if groups.iter().any(|group| !group.1.is_empty()) {
        *page += &figure(&section.unit, &bars(&groups)?);
    }
    *page += "</div>\n";
    Ok(())
}

fn row_of(row: &Row, peers: &[&str], judged: bool) -> Vec<String> {
    let shown = |figure: Option<f64>| figure.map_or("-".to_string(), number);
    let mut cells = vec![escaped(&row.name)];
    if let Some(note) = &row.note {
        let _ = write!(cells[0], "<br /><span class=\"quiet\">{}</span>", escaped(note));
    }
    cells.push(shown(row.ours));
    cells.extend(peers.iter().map(|peer| shown(row.peers.get(*peer).copied().flatten())));
    if judged {
        cells.push(row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x")));
        cells.push(target_of(row));
    }
    cells
}

fn target_of(row: &Row) -> String {
    let target = row.target.iter().flatten().map(|(bound, figure)| {
        let sign = if bound.ends_with("at_most") { "≤" } else { "≥" };
        let times = if bound.starts_with("ratio") { "x" } else { "" };
        format!("{sign} {figure}{times}")
    });
    let target = target.collect::<Vec<_>>().join(" ");
    match row.holds {
        Some(false) => format!("<span class=\"missed\">{target} ✗</span>"),
        _ => target,
    }
}

fn bars_of(section: &Section, row: &Row) -> Vec<Bar> {
    let peers = section.peers();
    let ours = row.ours.map(|figure| Bar { name: section.ours.clone(), figure, side: 0 });
    let peer = |(nth, name): (usize, &&str)| {
        let figure = row.peers.get(*name).copied().flatten()?;
        Some(Bar { name: (*name).to_string(), figure, side: nth + 1 })
    };
    ours.into_iter().chain(peers.iter().enumerate().filter_map(peer)).collect()
}
