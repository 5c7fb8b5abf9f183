//! Public libraries that use Lua scripts: redis-py and its `Lock`, limits, rate-limiter-flexible,
//! redlock, redsync. Each against a pool, a directory and a cluster.

use std::{path::Path, process::Command};

use crate::{
    clients::{have, output},
    common::{Place, Served},
};

fn clients() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
}

fn of_python() -> Option<Command> {
    have("python3", &["-c", "import redis.cluster"]).then(|| {
        let mut command = Command::new("python3");
        command.arg(clients().join("scripts.py"));
        command
    })
}

fn of_node(place: &Place) -> Option<Command> {
    let directory = place.path("node");
    std::fs::create_dir(&directory).unwrap();
    for name in ["package.json", "package-lock.json", "scripts.js"] {
        std::fs::copy(clients().join("node").join(name), directory.join(name)).unwrap();
    }
    have("npm", &["ci", "--silent", "--no-audit", "--prefix", directory.to_str().unwrap()]).then(|| {
        let mut command = Command::new("node");
        command.arg(directory.join("scripts.js"));
        command
    })
}

fn of_go(place: &Place) -> Option<Command> {
    let (module, program) = (clients().join("go"), place.path("redsync"));
    let build = ["-C", module.to_str().unwrap(), "build", "-o", program.to_str().unwrap(), "./scripts"];
    have("go", &build).then(|| Command::new(program))
}

/// Runs all libraries that this machine has, each against the server at a port.
fn all_work(place: &Place, port: u16, kind: &str) {
    for mut command in [of_python(), of_node(place), of_go(place)].into_iter().flatten() {
        let shown = output(command.args([&port.to_string(), kind]), "");
        assert!(["passed", "with limits", "without limits"].contains(&shown.trim_end()), "{shown}");
    }
}

#[test]
fn script_libraries_work_on_a_pool() {
    let place = Place::new();
    let server = Served::start(&place.pool(), &[]);
    all_work(&place, server.port, "server");
}

#[test]
fn script_libraries_work_in_a_directory() {
    let place = Place::new();
    let directory = place.path("directory");
    let server = Served::start_with(&[], &["--dir", directory.to_str().unwrap()]);
    all_work(&place, server.port, "server");
}

#[cfg(feature = "cluster")]
#[test]
fn script_libraries_work_in_a_cluster() {
    let (place, up) = (Place::new(), crate::cluster::Up::start(Place::new()));
    all_work(&place, up.port, "cluster");
}
