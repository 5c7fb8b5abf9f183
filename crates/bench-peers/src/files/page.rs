//! The page: one HTML file without scripts, that fetches nothing.

use super::Outcome;
use super::plot::Plot;
use std::fmt::Write;
use std::path::Path;
use terrace_bench::Section;

const STYLE: &str = "body { font: 15px/1.5 system-ui, sans-serif; max-width: 1320px; margin: 0 auto; padding: 24px; } \
.plots { display: flex; flex-wrap: wrap; gap: 16px; } figure { margin: 0; border: 1px solid #e1e4e8; padding: 10px 12px; } \
figcaption { font-weight: 600; } table { border-collapse: collapse; } p { max-width: 100ch; } \
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid #eef0f3; } \
th:first-child, td:first-child { text-align: left; } .missed { color: #a33b00; font-weight: 600; }";

pub(crate) fn write(path: &Path, title: &str, plots: &[Plot], sections: &[Section]) -> Outcome<()> {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n");
    write!(page, "<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n")?;
    write!(page, "<h1>{title}</h1>\n<div class=\"plots\">\n")?;
    for plot in plots {
        let title = escaped(&plot.title);
        let drawn = plot.drawn()?;
        writeln!(
            page,
            "<figure aria-label=\"{title}\">\n<figcaption>{title}</figcaption>\n{drawn}</figure>"
        )?;
    }
    page += "</div>\n";
    sections.iter().try_for_each(|section| table(&mut page, section))?;
    page += "</body>\n</html>\n";
    std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn table(page: &mut String, section: &Section) -> Outcome<()> {
    write!(page, "<p>{}</p>\n<table>\n<tr><th>{}</th>", escaped(&section.title), escaped(&section.unit))?;
    writeln!(page, "<th>{}</th><th>other</th><th>ratio</th></tr>", escaped(&section.ours))?;
    let figure = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.2}"));
    for row in &section.rows {
        let class = if row.holds() == Some(false) { " class=\"missed\"" } else { "" };
        let other = row.peers.first().copied().flatten();
        let cells = [row.ours, other, row.ratio].map(|cell| format!("<td>{}</td>", figure(cell))).concat();
        writeln!(page, "<tr{class}><td>{}</td>{cells}</tr>", escaped(&row.name))?;
    }
    page.push_str("</table>\n");
    Ok(())
}

/// Text without markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
