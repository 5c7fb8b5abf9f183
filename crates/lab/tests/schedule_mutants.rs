//! Bugs that are planted into what the targets store, and how many schedules it takes to find each.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it says how fast it was")]

use std::time::Instant;
use terrace_lab::targets::{Cells, ClhtBytes, ClhtU64, DirectEngine};
use terrace_testkit::crash::{Memory, Target};
use terrace_testkit::schedule::{Faulty, Flaw, FlawKind, Scenario, Sites, Stage, run};

fn wrong<T: Target>(stage: &Stage, flaw: Option<Flaw>, seed: u64, sites: &mut Sites) -> Option<String> {
    let scenario = Scenario::draw::<T>(seed);
    let memory = Faulty::over(Memory::<false>::zeroed(T::BYTES.0, T::BYTES.1).unwrap(), flaw);
    let seen = memory.seen();
    let run = run::<T, _>(stage, memory, &scenario, &Scenario::policy(seed), seed);
    sites.extend(seen.sites());
    match run {
        Ok(run) => run.wrong,
        Err(wrong) => Some(wrong),
    }
}

fn line(flaw: Flaw) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_string() + flaw.site.file();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().nth(flaw.site.line() as usize - 1).unwrap_or_default().trim().chars().take(70).collect()
}

fn sweep<T: Target>(budget: u64) {
    let (stage, start) = (Stage::new(), Instant::now());
    let mut sites = Sites::new();
    for seed in 0..300 {
        assert_eq!(wrong::<T>(&stage, None, seed, &mut sites), None, "seed {seed}");
    }
    let (mut found, mut all) = (0, 0);
    for (site, is_rmw) in sites {
        if site.file().contains("targets") {
            continue;
        }
        let kinds: &[FlawKind] =
            if is_rmw { &[FlawKind::Lost] } else { &[FlawKind::Lost, FlawKind::Late(1), FlawKind::Late(2)] };
        for &kind in kinds {
            let flaw = Flaw { site, kind };
            all += 1;
            let hit = (0..budget)
                .find_map(|seed| Some((seed, wrong::<T>(&stage, Some(flaw), seed, &mut Sites::new())?)));
            match hit {
                Some((seed, wrong)) => {
                    found += 1;
                    println!(
                        "{:5} {kind:?} {}:{} {}  -> {}",
                        seed + 1,
                        site.file(),
                        site.line(),
                        line(flaw),
                        wrong.chars().take(90).collect::<String>()
                    )
                }
                None => println!("    - {kind:?} {}:{} {}", site.file(), site.line(), line(flaw)),
            }
        }
    }
    println!("{}: {found} of {all} found, {:?}", T::NAME, start.elapsed());
}

#[test]
#[ignore]
fn clht() {
    sweep::<ClhtU64>(300);
}
#[test]
#[ignore]
fn clht_bytes() {
    sweep::<ClhtBytes>(300);
}
#[test]
#[ignore]
fn cells() {
    sweep::<Cells>(300);
}
#[test]
#[ignore]
fn direct() {
    sweep::<DirectEngine>(300);
}
