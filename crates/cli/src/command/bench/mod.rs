//! `bench`: measures a store on the user's machine, through the same calls as a program that embeds
//! it.

mod options;
mod report;
mod subject;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use terrace::{ByteSize, Store};
use terrace_bench::{Drive, Operations, Pace, Seen, Shape, drive, fixed_loop_ns};
use terrace_server::config::{Config, Key};

pub(crate) use options::BenchOptions;

use crate::{
    clock,
    failure::{Failure, Outcome},
    in_force,
    location::is_on_disk,
    open,
};
use report::{Measured, Sample};
use subject::OfStore;

pub(crate) fn run(options: &BenchOptions) -> Outcome {
    let config = options.pool.config()?;
    let own_pool = !config.is_explicit(Key::Pool) && !is_on_disk(&config);
    let shape = options.shape(own_pool)?;
    let _scratch = if own_pool { Some(Scratch::new(&config, options, &shape)?) } else { None };
    let store = open::or_create(&config)?.store;
    in_force::warn(&config, &store);
    let measured = measure(&store, options, &shape);
    // The pool is the user's: the keys of the benchmark are removed even after a failure.
    let removed = if own_pool { Ok(()) } else { subject::remove(&store) };
    let stats = store.stats();
    let closed = open::close(store);
    report::print(options, &shape, &measured?, &stats)?;
    removed?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

/// A temporary pool for the benchmark; dropping it removes the file.
struct Scratch(PathBuf);

impl Scratch {
    fn new(config: &Config, options: &BenchOptions, shape: &Shape) -> Result<Scratch, Failure> {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.into() } else { std::env::temp_dir() };
        let path = folder.join(format!("terrace-bench.{}.pool", std::process::id()));
        config.assign("pool", &path.to_string_lossy()).map_err(Failure::new)?;
        if !config.is_explicit(Key::Size) {
            config.record(Key::Size, size(options, shape));
        }
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Size of a pool for the records, those that the workload adds, and their overhead. Twice that, as
/// a new value is written before the old one is freed.
fn size(options: &BenchOptions, shape: &Shape) -> u64 {
    // The number of inserts in a given time is unknown: 10 million take more than a minute here.
    const ADDED: u64 = 10_000_000;
    let inserts = options.workload().mix.inserts;
    let added = match options.operations {
        Some(operations) => operations,
        None => options.rate.map_or(ADDED, |rate| (rate * options.seconds as f64) as u64),
    } * u64::from(inserts)
        / 100;
    let record = (shape.key_bytes() as f64 + shape.mean_value_bytes() + 128.0) as u64;
    let bytes = record.saturating_mul(options.records + added).saturating_mul(2);
    ByteSize::bytes(bytes.max(64 << 20)).as_bytes()
}

fn measure(store: &Store, options: &BenchOptions, shape: &Shape) -> Result<Measured, Failure> {
    let threads = options.threads();
    let began = clock::start();
    if !options.workload().from_nothing {
        fill(store, options, shape)?;
    }
    let filled = began.elapsed();
    let loop_before = fixed_loop_ns();
    let mut measured = run_threads(store, options, shape)?;
    let loop_after = fixed_loop_ns();
    measured.filled = filled;
    measured.threads = threads;
    measured.machine_moved = loop_before.max(loop_after) / loop_before.min(loop_after) - 1.0;
    Ok(measured)
}

/// Puts the initial records.
fn fill(store: &Store, options: &BenchOptions, shape: &Shape) -> Result<(), Failure> {
    let threads = options.threads() as u64;
    let share = |nth: u64| options.records * nth / threads..options.records * (nth + 1) / threads;
    std::thread::scope(|scope| {
        let fillers: Vec<_> =
            (0..threads).map(|nth| scope.spawn(move || subject::fill(store, shape, share(nth)))).collect();
        fillers.into_iter().try_for_each(|filler| filler.join().map_err(|_| fault())?)
    })
}

/// Length of one interval of the results over time.
fn tick(options: &BenchOptions) -> Duration {
    const LEAST: Duration = Duration::from_millis(50);
    let all = if options.operations.is_some() { 10 } else { options.seconds };
    (Duration::from_secs(all) / 60).max(LEAST)
}

fn run_threads(store: &Store, options: &BenchOptions, shape: &Shape) -> Result<Measured, Failure> {
    let threads = options.threads();
    let (start, stop, done) = (Barrier::new(threads + 1), AtomicBool::new(false), AtomicUsize::new(0));
    let work = |thread: usize| {
        let mut subject = OfStore::new(store, thread as u64);
        let (nth, all) = (thread as u64, threads as u64);
        let stream = Operations::new(options.workload(), options.records, nth, all, options.seed);
        let share = |operations: u64| operations * (nth + 1) / all - operations * nth / all;
        let how = Drive {
            pace: Pace::of(options.rate, thread, threads),
            operations: options.operations.map(share),
            time: options.operations.is_none().then(|| Duration::from_secs(options.seconds)),
            tick: tick(options),
        };
        start.wait();
        let seen = drive(&mut subject, stream, shape, how, clock::start(), &stop);
        done.fetch_add(1, Relaxed);
        seen
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        start.wait();
        let began = clock::start();
        let samples = sample(store, options, began, &stop, &|| done.load(Relaxed) == threads);
        let mut seen = Seen::default();
        for worker in workers {
            seen.add(worker.join().map_err(|_| fault())??);
        }
        Ok(Measured::new(seen, began.elapsed(), tick(options), samples))
    })
}

/// Samples the store once per tick until the time is over or all threads are done, then stops the
/// threads.
fn sample(
    store: &Store,
    options: &BenchOptions,
    began: Instant,
    stop: &AtomicBool,
    done: &dyn Fn() -> bool,
) -> Vec<Sample> {
    let mut samples = vec![Sample::of(store, Duration::ZERO)];
    let end = options.operations.is_none().then(|| Duration::from_secs(options.seconds));
    let mut next = tick(options);
    while !done() {
        let until = end.map_or(next, |end| end.min(next));
        let left = until.saturating_sub(began.elapsed());
        if !left.is_zero() {
            // In short steps where threads end by themselves, to notice the end within a tick.
            clock::pause(if end.is_some() { left } else { left.min(Duration::from_millis(1)) });
            continue;
        }
        if end.is_some_and(|end| began.elapsed() >= end) {
            break;
        }
        samples.push(Sample::of(store, began.elapsed()));
        next += tick(options);
    }
    // ORDER: Relaxed: it is enough that the threads see the flag eventually.
    stop.store(true, Relaxed);
    samples
}

fn fault() -> Failure {
    Failure::new("a benchmark thread panicked (see above): this is a bug in Terrace")
}
