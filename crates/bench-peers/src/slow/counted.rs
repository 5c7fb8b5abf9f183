//! Counts: what an operation asks of any medium, the part of it that the media behind a cache see,
//! and how long it waits by the model. Exact.

use super::subject::Kind;
use super::work::{Size, Work, fill};
use super::{NAME, Outcome, profiles};
use crate::plan::say;
use terrace_bench::{Bound, Row, Section};
use terrace_medium::{MappedMedium, Pmem};
use terrace_testkit::{Counts, Profile, Slow, TappedPmem, Traffic};

/// The total cost of a work's operations under a profile.
#[derive(Clone, Copy, Debug)]
struct Cost {
    counts: Counts,
    traffic: Traffic,
    waited_ns: u64,
}

/// A figure of a cost.
type Figure = fn(&Cost) -> u64;

/// All tables of results of a kind.
pub(super) fn sections(kind: Kind, works: &[Work], size: Size) -> Outcome<Vec<Section>> {
    say(&format!("{NAME} {}: counting", kind.name()));
    let costs = Profile::ALL.into_iter().map(|profile| costs(kind, works, size, profile));
    let table = Table { kind, works, size, costs: costs.collect::<Outcome<_>>()? };
    Ok(vec![table.waits(), table.bounds(), table.asked(), table.lines(), table.blocks()])
}

/// Each work under `profile`.
fn costs(kind: Kind, works: &[Work], size: Size, profile: Profile) -> Outcome<Vec<Cost>> {
    let medium = |mapping| TappedPmem::over_slow(Slow::counted(Pmem::new(mapping), profile));
    let on = kind.on(size.most(), medium)?;
    fill(&*on.subject, size);
    let cost = |&work: &Work| {
        // The first run lets cache and buffer reach their long-term content.
        work.run(&*on.subject, size, 1, |run| run.all());
        work.run(&*on.subject, size, 2, |run| {
            let medium = on.pool.medium();
            let (counts, (traffic, waited_ns, ())) = medium.during(|| medium.slow().during(|| run.all()));
            Cost { counts, traffic, waited_ns }
        })
    };
    Ok(works.iter().map(cost).collect())
}

struct Table<'a> {
    kind: Kind,
    works: &'a [Work],
    size: Size,
    /// A list for each profile, with a cost for each work.
    costs: Vec<Vec<Cost>>,
}

impl Table<'_> {
    fn section(&self, title: &str, unit: &str, columns: &[&str]) -> Section {
        let title =
            format!("{}, counted: {} records, an operation: {title}", self.kind.about(), self.size.records);
        let unit = format!("{}, {unit}", self.kind.name());
        Section::new(&title, &unit, &columns[1..]).ours_named(columns[0])
    }

    fn row(&self, name: String, figures: impl IntoIterator<Item = u64>) -> Row {
        let an_operation = |figure| Some(figure as f64 / self.size.operations as f64);
        let mut figures = figures.into_iter().map(an_operation);
        Row { ours: figures.next().flatten(), peers: figures.collect(), ..Row::new(name) }
    }

    /// A row for each work and figure, a column for each profile.
    fn by_profile(&self, section: &mut Section, figures: &[(&str, Figure)]) {
        for (what, figure) in figures {
            for (nth, work) in self.works.iter().enumerate() {
                let name = format!("{}{what}", work.name());
                section.rows.push(self.row(name, self.costs.iter().map(|costs| figure(&costs[nth]))));
            }
        }
    }

    fn waits(&self) -> Section {
        let title = "one thread, by the model's own count of time: its waits for memory; what the processor does costs nothing";
        let mut section = self.section(title, "modelled ns", &profiles());
        self.by_profile(&mut section, &[("", |cost| cost.waited_ns)]);
        section
    }

    /// The modelled waits over their lower bound, under the profile for which that ratio is
    /// largest.
    fn bounds(&self) -> Section {
        let title = "modelled waits over what it cannot do without: a random read for the bucket and one for a record, and for a change of the \
                     index a write-back; the worst of all profiles";
        let mut section = self.section(title, "times the bound", &["worst"]);
        for (nth, &work) in self.works.iter().enumerate() {
            let ratio = |(costs, profile): (&Vec<Cost>, Profile)| {
                let waited = costs[nth].waited_ns as f64 / self.size.operations as f64;
                Some((waited / bound_ns(self.kind, work, &profile)?, profile.name))
            };
            let ratios = self.costs.iter().zip(Profile::ALL).filter_map(ratio);
            if let Some((worst, name)) = ratios.max_by(|a, b| a.0.total_cmp(&b.0)) {
                let row =
                    Row { ours: Some(worst), note: Some(format!("under {name}")), ..Row::new(work.name()) };
                section.rows.push(row.judged(Bound::AtMost(1.2)));
            }
        }
        section
    }

    fn asked(&self) -> Section {
        let columns =
            ["write-backs", "fences", "lines read", "lines written", "blocks read", "blocks written"];
        let title = "whatever the medium: write-backs, fences, lines of 64 and blocks of 256 bytes that it touches, in a cache or not";
        let mut section = self.section(title, "accesses", &columns);
        let figures = |c: Counts| {
            [c.write_backs, c.fences, c.lines_read, c.lines_written, c.blocks_read, c.blocks_written]
        };
        let rows = self.works.iter().zip(&self.costs[0]);
        section.rows = rows.map(|(work, cost)| self.row(work.name().into(), figures(cost.counts))).collect();
        section
    }

    fn lines(&self) -> Section {
        let title = "media traffic: lines of 64 bytes that pass the modelled cache of 512 KiB";
        let mut section = self.section(title, "media lines", &profiles());
        let figures: [(&str, Figure); 2] =
            [(", read", |cost| cost.traffic.lines_read), (", written", |cost| cost.traffic.lines_written)];
        self.by_profile(&mut section, &figures);
        section
    }

    fn blocks(&self) -> Section {
        let sizes = Profile::ALL.map(|profile| format!("{} {}", profile.name, profile.block_bytes));
        let title = format!(
            "media traffic: blocks that the media read and write, of their own size (in bytes: {}), behind their write-combining buffer",
            sizes.join(", ")
        );
        let mut section = self.section(&title, "media blocks", &profiles());
        let figures: [(&str, Figure); 2] =
            [(", read", |cost| cost.traffic.blocks_read), (", written", |cost| cost.traffic.blocks_written)];
        self.by_profile(&mut section, &figures);
        section
    }
}

/// The minimal wait of an operation on a record that no cache holds; `None` if that depends on more
/// than the index.
fn bound_ns(kind: Kind, work: Work, profile: &Profile) -> Option<f64> {
    let (read, write_back) = (profile.random_read_ns as f64, profile.write_back_ns as f64);
    match (kind, work) {
        (Kind::Index, Work::Get) => Some(read),
        (Kind::Index, Work::Insert | Work::Update | Work::Remove) => Some(read + write_back),
        (Kind::Store, Work::Get) => Some(2.0 * read),
        _ => None,
    }
}
