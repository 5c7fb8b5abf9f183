//! A report as a table of 100 columns: ours first, ratio and target last, and a mark for a missed
//! target.

use crate::report::{Bound, Report, Row, Section, Target};
use std::fmt::{self, Display, Formatter, Write};

const WIDTH: usize = 100;
/// Columns of a figure, of the ratio and of the target with its mark.
const FIGURE: usize = 11;
const RATIO: usize = 8;
const TARGET: usize = 13;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        for section in &self.sections {
            write_section(f, section)?;
        }
        match self.missed() {
            0 => writeln!(f, "\nevery target holds")?,
            1 => writeln!(f, "\n1 target is missed")?,
            n => writeln!(f, "\n{n} targets are missed")?,
        }
        writeln!(f, "again: {}", self.repeat)
    }
}

impl Report {
    fn write_head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (machine, limits) = (&self.machine, &self.limits);
        let memory = machine.memory_bytes as f64 / (1u64 << 30) as f64;
        let machine = format!(
            "{}: {} processors ({}), {memory:.1} GiB, Linux {}, huge pages {}",
            self.suite, machine.processors, machine.processor, machine.kernel, machine.huge_pages
        );
        let limits = format!(
            "its limits now: dependent random read {:.0} ns (4 KiB pages), {:.0} ns (huge); prefetched by 16 {:.0} and {:.0} M/s, two threads \
             {:.0} M/s; store + write-back + fence {:.0} ns, of a cached line {:.0} ns; write-back without fence {:.0} ns; streamed line + fence {:.0} ns; \
             {:.1} GB/s read, {:.1} written; fixed loop {:.1} ms",
            limits.dependent_read_4k_ns,
            limits.dependent_read_huge_ns,
            limits.prefetched_reads_4k_per_us,
            limits.prefetched_reads_huge_per_us,
            limits.prefetched_reads_huge_two_threads_per_us,
            limits.persist_ns,
            limits.persist_cached_ns,
            limits.write_back_ns,
            limits.streamed_line_ns,
            limits.read_gb_per_s,
            limits.write_gb_per_s,
            limits.fixed_loop_ns / 1e6,
        );
        write_wrapped(f, &machine, "")?;
        write_wrapped(f, &limits, "  ")?;
        match &self.warning {
            Some(warning) => write_wrapped(f, &format!("WARNING: {warning}"), ""),
            None => Ok(()),
        }
    }
}

/// The column widths of a section.
struct Columns {
    name: usize,
    figures: Vec<usize>,
    /// Whether there is a ratio or a target to show.
    judged: bool,
}

impl Columns {
    fn of(section: &Section) -> Self {
        let heads = std::iter::once(&section.ours).chain(&section.peers);
        let figures: Vec<usize> = heads.map(|head| FIGURE.max(head.chars().count() + 2)).collect();
        let judged = section.rows.iter().any(|row| row.ratio.is_some() || row.target.is_some());
        let others = figures.iter().sum::<usize>() + if judged { RATIO + TARGET } else { 0 };
        Self { name: WIDTH.saturating_sub(others), figures, judged }
    }
}

fn write_section(f: &mut Formatter<'_>, section: &Section) -> fmt::Result {
    writeln!(f)?;
    write_wrapped(f, &section.title, "")?;
    let columns = Columns::of(section);
    let mut head = format!("{:1$}", section.unit, columns.name);
    for (name, width) in std::iter::once(&section.ours).chain(&section.peers).zip(&columns.figures) {
        write!(head, "{name:>width$}")?;
    }
    if columns.judged {
        write!(head, "{:>RATIO$}{:>TARGET$}", "ratio", "target  ")?;
    }
    writeln!(f, "{}", head.trim_end())?;
    for row in &section.rows {
        write_row(f, row, &columns)?;
    }
    Ok(())
}

fn write_row(f: &mut Formatter<'_>, row: &Row, columns: &Columns) -> fmt::Result {
    let mut line = format!("{:1$}", row.name, columns.name);
    let figures = std::iter::once(row.ours).chain((0..).map(|i| row.peers.get(i).copied().flatten()));
    for (shown, width) in figures.zip(&columns.figures) {
        write!(line, "{:>width$}", figure(shown))?;
    }
    if columns.judged {
        let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        let target = row.target.map_or(String::new(), target);
        let mark = if row.holds() == Some(false) { "✗" } else { " " };
        write!(line, "{ratio:>RATIO$}{target:>width$} {mark}", width = TARGET - 2)?;
    }
    writeln!(f, "{}", line.trim_end())?;
    match &row.note {
        Some(note) => write_wrapped(f, &format!("  ^ {note}"), "    "),
        None => Ok(()),
    }
}

fn target(target: Target) -> String {
    match target {
        Target::Ratio(Bound::AtLeast(bound)) => format!("≥ {bound}x"),
        Target::Ratio(Bound::AtMost(bound)) => format!("≤ {bound}x"),
        Target::Figure(Bound::AtLeast(bound)) => format!("≥ {bound}"),
        Target::Figure(Bound::AtMost(bound)) => format!("≤ {bound}"),
    }
}

/// A figure with three significant digits, and commas in thousands.
fn figure(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure.abs() >= 1000.0 => thousands(figure.round() as i64),
        Some(figure) if figure.abs() >= 100.0 => format!("{figure:.0}"),
        Some(figure) if figure.abs() >= 10.0 => format!("{figure:.1}"),
        Some(figure) => format!("{figure:.2}"),
    }
}

fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn write_wrapped(f: &mut Formatter<'_>, text: &str, indent: &str) -> fmt::Result {
    let mut line = String::new();
    let lead = &text[..text.len() - text.trim_start().len()];
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{line}")?;
            line = indent.to_owned();
        }
        let gap = if line.trim().is_empty() { "" } else { " " };
        if line.is_empty() {
            line.push_str(lead);
        }
        line.push_str(gap);
        line.push_str(word);
    }
    writeln!(f, "{line}")
}

#[cfg(test)]
mod tests {
    use crate::{Bound, Limits, Machine, Measured, Report, Row, Section};

    fn limits() -> Limits {
        Limits {
            dependent_read_4k_ns: 430.0,
            dependent_read_huge_ns: 280.0,
            prefetched_reads_4k_per_us: 36.0,
            prefetched_reads_huge_per_us: 65.0,
            prefetched_reads_huge_two_threads_per_us: 141.0,
            persist_ns: 172.0,
            persist_cached_ns: 150.0,
            write_back_ns: 20.0,
            streamed_line_ns: 105.0,
            read_gb_per_s: 11.0,
            write_gb_per_s: 6.0,
            fixed_loop_ns: 31e6,
        }
    }

    fn report() -> Report {
        let machine = Machine {
            processor: "A Processor With A Long Name, family 6 model 167".into(),
            processors: 2,
            memory_bytes: 23 << 30,
            kernel: "6.18.0".into(),
            huge_pages: "madvise".into(),
        };
        let measured = Measured {
            medians: vec![30.0, 10.0, 25.0, 9.0],
            figures: vec![],
            moved: 0.01,
            repeated: 1,
            steady: true,
        };
        let mut section = Section::new("Maps", "M/s", &["papaya", "dashmap", "scc"]);
        section
            .rows
            .push(Row::from_measured("get, 1 thread", measured.clone()).against_highest(Bound::AtLeast(1.5)));
        section.rows.push(Row::from_measured("get, 2 threads", measured).against(0, Bound::AtLeast(2.0)));
        section.rows.push(Row { ours: Some(1234567.0), ..Row::new("count") }.judged(Bound::AtMost(48.0)));
        Report {
            suite: "foundation".into(),
            machine,
            limits: limits(),
            sections: vec![section],
            repeat: "cargo peers".into(),
            warning: None,
        }
    }

    #[test]
    fn lines_fit_100_columns_and_misses_are_marked() {
        let text = report().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let line = |name| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("get, 1 thread").contains("1.20x") && line("get, 1 thread").ends_with('✗'), "{text}");
        assert!(line("get, 2 threads").ends_with("3.00x       ≥ 2x"), "{text}");
        assert!(line("count").contains("1,234,567") && line("count").ends_with('✗'), "{text}");
        assert!(text.contains("2 targets are missed"), "{text}");
    }

    #[test]
    fn section_without_targets_has_figures_only() {
        let mut section =
            Section::new("Media", "an operation", &["blocks written"]).ours_named("write-backs");
        section.rows.push(Row { ours: Some(1.0), peers: vec![Some(2.5)], ..Row::new("insert") });
        let text = Report { sections: vec![section], ..report() }.to_string();
        let line = |name| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("an operation").ends_with("  write-backs  blocks written"), "{text}");
        assert!(line("insert").ends_with("         1.00            2.50"), "{text}");
        assert_eq!(line("insert").chars().count(), 100, "{text}");
    }

    #[test]
    fn json_contains_every_figure() {
        let json = report().to_json();
        assert_eq!(json["missed"], 2);
        assert_eq!(json["sections"][0]["rows"][0]["peers"]["dashmap"], 25.0);
        assert_eq!(json["limits"]["dependent_read_huge_ns"], 280.0);
        assert_eq!(json["sections"][0]["rows"][2]["target"]["at_most"], 48.0);
    }
}
