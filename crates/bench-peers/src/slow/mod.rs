//! P-CLHT and the whole store on memory slower than this machine's: how long they wait, and what
//! they send to the media.
//!
//! Measured twice: by the clock, on media that make threads wait ([`timed`]); and by the model's
//! own count of time ([`counted`]), which is exact and the same on every machine. Only the second
//! is judged.

mod counted;
mod subject;
mod timed;
mod work;

use crate::plan::{Plan, say};
use subject::Kind;
use terrace_bench::{Row, Section};
use terrace_medium::MapError;
use terrace_testkit::{Calibration, Profile};
use work::{Size, Work};

const NAME: &str = "slow";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// All tables of results.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = vec![calibration(plan)?];
    for kind in Kind::ALL {
        let works: Vec<Work> = Work::ALL.into_iter().filter(|work| wants(plan, kind, *work)).collect();
        if !works.is_empty() {
            let size = Size { records: plan.count(1_000_000), operations: plan.count(50_000) };
            sections.push(timed::section(plan, kind, &works, size)?);
            sections.extend(counted::sections(kind, &works, size)?);
        }
    }
    sections.retain(|section| !section.rows.is_empty());
    Ok(sections)
}

fn wants(plan: &Plan, kind: Kind, work: Work) -> bool {
    plan.wants(NAME, &format!("{} {}", kind.name(), work.name()))
}

/// The names of all profiles, in the order of the columns.
fn profiles() -> [&'static str; Profile::ALL.len()] {
    Profile::ALL.map(|profile| profile.name)
}

/// How accurately this machine can imitate each profile.
fn calibration(plan: &Plan) -> Result<Section, MapError> {
    let title = "Calibration: what each profile asks for and what this machine makes of it, one thread. An access lasts as long as the model says or as \
                 long as it really takes, whichever is longer";
    let mut section = Section::new(title, "calibration, ns", &["asked"]).ours_named("achieved");
    for profile in Profile::ALL.into_iter().filter(|_| plan.wants(NAME, "calibration")) {
        let calibration = Calibration::measure(profile)?;
        say(&calibration.to_string());
        section.rows.extend(calibration.comparisons.iter().map(|c| Row {
            ours: Some(c.achieved_ns),
            peers: vec![Some(c.asked_ns)],
            ..Row::new(format!("{}: {}", profile.name, c.name))
        }));
    }
    Ok(section)
}
