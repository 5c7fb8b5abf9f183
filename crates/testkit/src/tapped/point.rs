//! A tap that kills or stops its process at a chosen line of the source.

use crate::points;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// The action at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointAction {
    /// The process is killed, as by `kill -9`.
    Kill,
    /// The process is stopped until it is resumed.
    Stop,
}

/// The nth time that a line of the source changes a medium, right after the change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The source file, as named by the compiler.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// The number of the change, from 1 on.
    pub nth: u64,
    /// The product's name for the access, if it has one.
    pub name: Option<&'static str>,
}

impl Point {
    /// The environment variable that sets a victim's point.
    pub const VARIABLE: &'static str = "TERRACE_STOP_AT";

    /// Whether both are in the same line.
    pub fn is_at(&self, other: &Self) -> bool {
        (&self.file, self.line) == (&other.file, other.line)
    }

    /// The value of the variable for this point.
    pub fn to_variable(&self, action: PointAction) -> String {
        let action = if action == PointAction::Kill { "kill" } else { "stop" };
        format!("{action} {} {} {}", self.nth, self.line, self.file)
    }
}

impl Display for Point {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}, time {}{}",
            self.file,
            self.line,
            self.nth,
            self.name.map_or(String::new(), |name| format!(" ({name})"))
        )
    }
}

struct Plan {
    point: Point,
    action: PointAction,
    times: AtomicU64,
}

impl FromStr for Plan {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.splitn(4, ' ').collect();
        let [action, nth, line, file] = words[..] else { return Err(()) };
        let action = match action {
            "kill" => PointAction::Kill,
            "stop" => PointAction::Stop,
            _ => return Err(()),
        };
        let (nth, line) = (nth.parse().map_err(drop)?, line.parse().map_err(drop)?);
        Ok(Self {
            point: Point { file: file.into(), line, nth, name: None },
            action,
            times: AtomicU64::new(0),
        })
    }
}

/// The point of this process, from its environment.
fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    PLAN.get_or_init(|| std::env::var(Point::VARIABLE).ok()?.parse().ok()).as_ref()
}

/// How often each line has changed a medium while counting is on, and the name of the change.
static COUNTED: Mutex<Option<Counts>> = Mutex::new(None);

type Counts = BTreeMap<(&'static str, u32), (u64, Option<&'static str>)>;

/// The lines that change any medium that stops at points while `work` runs, each with its number of
/// changes.
pub fn points_of(work: impl FnOnce()) -> Vec<Point> {
    /// Only one count at a time, even with parallel tests.
    static COUNTING: Mutex<()> = Mutex::new(());
    let _counting = COUNTING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let counted = || COUNTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *counted() = Some(BTreeMap::new());
    work();
    let lines = counted().take().unwrap_or_default();
    let point = |((file, line), (nth, name)): ((&str, u32), _)| Point { file: file.into(), line, nth, name };
    lines.into_iter().map(point).collect()
}

/// Called after a change at this line: counts it, and kills or stops the process at its point.
pub(super) fn reached(site: &'static Location<'static>) {
    if let Some(lines) = &mut *COUNTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        let (times, name) = lines.entry((site.file(), site.line())).or_default();
        *times += 1;
        *name = name.or(points::current());
    }
    let Some(plan) = plan() else { return };
    let here = site.line() == plan.point.line && site.file() == plan.point.file;
    if !here || plan.times.fetch_add(1, Relaxed) + 1 != plan.point.nth {
        return;
    }
    let signal = if plan.action == PointAction::Kill { libc::SIGKILL } else { libc::SIGSTOP };
    // To this thread: another thread might take a signal to the process, and this one would
    // continue until then.
    // SAFETY: a signal to this thread, without a handler.
    unsafe { libc::raise(signal) };
}
