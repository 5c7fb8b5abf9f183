//! `bench`: measures the user's own store on the user's own machine, through the same calls as a program that embeds it.

mod report;
mod workload;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use terrace::{ByteSize, Store};
use terrace_server::config::{Config, Key};

use crate::{
    args::BenchOptions,
    clock,
    failure::{Failure, Outcome},
    open,
};
use report::Measured;
use workload::{Keys, Worker};

pub(crate) fn run(options: &BenchOptions) -> Outcome {
    let config = options.pool.config()?;
    let scratch = if config.given(Key::Pool) { None } else { Some(Scratch::new(&config, options)?) };
    let store = open::or_create(&config)?.store;
    let keys = Keys::new(options);
    let measured = fill(&store, &keys, options).and_then(|filled| measure(&store, &keys, options, filled));
    // The pool is the user's: whatever happened, our keys go.
    let removed = if scratch.is_some() { Ok(()) } else { remove(&store, &keys) };
    let stats = store.stats();
    let closed = open::close(store);
    report::print(options, &measured?, &stats)?;
    removed?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

/// A pool of its own, beside the default one, that goes when the measuring is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(config: &Config, options: &BenchOptions) -> Result<Scratch, Failure> {
        let path = PathBuf::from(format!("/dev/shm/terrace-bench.{}.pool", std::process::id()));
        let path = if Path::new("/dev/shm").is_dir() {
            path
        } else {
            std::env::temp_dir().join("terrace-bench.pool")
        };
        config.assign("pool", &path.to_string_lossy()).map_err(Failure::new)?;
        if !config.given(Key::Size) {
            // Records with their overhead, twice, since a value is written anew before the old one goes.
            let bytes = (options.key_bytes + options.value_bytes + 128)
                .saturating_mul(options.records)
                .saturating_mul(2);
            let size = ByteSize::bytes(bytes.max(64 << 20)).as_bytes();
            config.record(Key::Size, size);
        }
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn threads(options: &BenchOptions) -> usize {
    match usize::try_from(options.threads) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        Ok(threads) => threads,
    }
}

/// Puts the records to begin with; returns how long that took.
fn fill(store: &Store, keys: &Keys, options: &BenchOptions) -> Result<Duration, Failure> {
    let began = clock::start();
    let threads = threads(options) as u64;
    std::thread::scope(|scope| {
        let share = |nth: u64| options.records * nth / threads..options.records * (nth + 1) / threads;
        let fillers: Vec<_> =
            (0..threads).map(|nth| scope.spawn(move || workload::fill(store, keys, share(nth)))).collect();
        fillers.into_iter().try_for_each(|filler| filler.join().map_err(|_| fault())?)
    })?;
    Ok(began.elapsed())
}

fn measure(
    store: &Store,
    keys: &Keys,
    options: &BenchOptions,
    filled: Duration,
) -> Result<Measured, Failure> {
    let threads = threads(options);
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|nth| {
                let worker = Worker::new(store, keys, options, nth as u64, threads as u64);
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    start.wait();
                    worker.run(stop)
                })
            })
            .collect();
        start.wait();
        let began = clock::start();
        if options.operations.is_none() {
            clock::pause(Duration::from_secs(options.seconds));
            // ORDER: Relaxed: the workers only have to see it some time.
            stop.store(true, Ordering::Relaxed);
        }
        let mut measured = Measured::new(filled, threads);
        for worker in workers {
            measured.add(worker.join().map_err(|_| fault())??);
        }
        measured.took = began.elapsed();
        Ok(measured)
    })
}

fn fault() -> Failure {
    Failure::new("a thread of the measurement hit a fault in Terrace, reported above")
}

fn remove(store: &Store, keys: &Keys) -> Result<(), Failure> {
    let mut key = Vec::new();
    for nth in 0..keys.count() {
        keys.write(nth, &mut key);
        store.remove(&key).map_err(Failure::new)?;
    }
    Ok(())
}
