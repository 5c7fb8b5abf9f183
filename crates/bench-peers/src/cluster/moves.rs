//! A third of the slots goes to another node under load.

use super::client::Client;
use super::processes::Processes;
use super::{Outcome, percentile, row};
use crate::plan::Plan;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_bench::{Bound, Section};

const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let cluster = Processes::start(3, "1gb")?;
    let moves: &[(&str, u16)] = &[("0-5460", 0), ("5461-10921", 1), ("0-5460", 2), ("5461-10921", 0)];
    let moves = if plan.quick { &moves[..1] } else { moves };
    // When each call ended, and how long it took.
    let (calls, is_over) = (Mutex::new(Vec::<(Duration, Duration)>::new()), AtomicBool::new(false));
    let began = Instant::now();
    let mut moved = Vec::new();
    std::thread::scope(|scope| -> Outcome<()> {
        for nth in 0..CLIENTS {
            let (calls, is_over, ports) = (&calls, &is_over, &cluster.ports);
            scope.spawn(move || {
                let (mut client, mut mine) = (Client::new(ports), Vec::new());
                for round in 0_usize.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    let key = format!("{nth} {}", round % 997);
                    if let Ok((took, _)) = client.call(&key, &["SET", &key, "value"], PATIENCE) {
                        mine.push((began.elapsed(), took));
                    }
                }
                calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(mine);
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        for (slots, node) in moves {
            moved.push(began.elapsed());
            let done = cluster.command(&[
                "move",
                slots,
                &format!("127.0.0.1:{}", cluster.ports[usize::from(*node)]),
            ]);
            std::thread::sleep(Duration::from_secs(3));
            if done.is_err() {
                is_over.store(true, Relaxed);
                done?;
            }
        }
        is_over.store(true, Relaxed);
        Ok(())
    })?;
    let calls = calls.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(figures(&calls, &moved))
}

fn figures(calls: &[(Duration, Duration)], moved: &[Duration]) -> Section {
    let window = Duration::from_millis(100);
    let rate = |from: Duration, to: Duration| {
        calls.iter().filter(|(at, _)| (from..to).contains(at)).count() as f64 / (to - from).as_secs_f64()
    };
    let usual = rate(Duration::from_secs(1), moved[0]);
    let (mut longest, mut dips, mut took) = (0.0_f64, Vec::new(), Vec::new());
    for at in moved {
        let near = calls.iter().filter(|(end, _)| (*at..*at + Duration::from_secs(2)).contains(end));
        let mut times: Vec<f64> = near.map(|(_, took)| took.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        longest = longest.max(percentile(&times, 100));
        took.push(percentile(&times, 99));
        let windows = (0..20).map(|nth| rate(*at + window * nth, *at + window * (nth + 1)));
        // The time with less than four fifths of the usual rate.
        dips.push(windows.filter(|rate| *rate < usual * 0.8).count() as f64 * 100.0);
    }
    let title = format!(
        "A third of the slots moved under load, {} times: {CLIENTS} clients, a SET at a time",
        moved.len()
    );
    let mut section = Section::new(&title, "ms", &[]);
    took.sort_by(f64::total_cmp);
    section.rows.push(
        row("p99 of calls within 2 s, the worst move", percentile(&took, 100)).judged(Bound::AtMost(10.0)),
    );
    section.rows.push(row("longest call", longest).judged(Bound::AtMost(50.0)));
    dips.sort_by(f64::total_cmp);
    section.rows.push(
        row("time with less than 80% of the usual rate", percentile(&dips, 100))
            .judged(Bound::AtMost(1000.0)),
    );
    section
}
