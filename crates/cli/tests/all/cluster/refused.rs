//! Options that make no sense are refused, and nothing is made.

use std::{
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use super::up::{errors, memory_node, write_key};
use crate::common::{Place, free_port, program, run};

#[test]
fn too_few_ports_of_the_fabric_are_refused() {
    let place = Place::new();
    let dir = place.path("cluster");
    let words = ["cluster", "up", "--fabric-ports", "20000-20003", "--dir", dir.to_str().unwrap()];
    let refused =
        run(words, b"").fails(2, "--fabric-ports 20000-20003 has 4 ports, and 3 serving nodes with ");
    assert!(refused.err.contains("give a wider range, or a lower --serve"), "{}", refused.err);
    assert!(!dir.exists());
    for ports in ["0-9", "9-8", "all", "1-70000"] {
        let refused = run(["cluster", "up", "--fabric-ports", ports], b"");
        refused.fails(2, "it must be a range of ports: 7200-7231");
    }
}

#[test]
fn memory_node_names_ports_of_the_fabric_that_are_taken() {
    let place = Place::new();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    let etcd = format!("127.0.0.1:{}", free_port());
    let (key, pool) = (place.path("key"), place.path("pool"));
    write_key(&key);
    let more = ["--metrics-port", "0", "--fabric-ports", &taken.to_string(), "--size", "128mb"];
    let done = memory_node(&etcd, &key, &pool, &more).output().unwrap();
    let why = errors(&done);
    assert_eq!(done.status.code(), Some(1), "{why}");
    let none = format!("none of the fabric's ports {taken}-{taken} (1 of them) is free at 127.0.0.1");
    assert!(why.contains(&none), "{why}");
    assert!(!pool.exists());
}

#[test]
fn help_of_a_node_has_no_settings_that_it_refuses() {
    let help = run(["node", "--help"], b"").ok().text().to_owned();
    for text in ["maxmemory", "lfu-", "makes it grow"] {
        assert!(!help.contains(text), "{text}");
    }
    assert!(help.contains("--size") && help.contains("--metrics-bind"), "{help}");
}

#[test]
fn etcd_that_is_missing_is_named_with_its_package() {
    let place = Place::new();
    let done = program()
        .args(["cluster", "up", "--dir"])
        .arg(place.path("cluster"))
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: cannot run etcd, which keeps the cluster's map: "), "{err}");
    assert!(err.contains("apt-get install etcd-server"), "{err}");
    assert!(!place.path("cluster").exists());
}

#[test]
fn pool_that_would_be_full_at_once_is_refused() {
    let place = Place::new();
    let dir = place.path("cluster");
    let words = ["cluster", "up", "--serve", "64", "--size", "128mb", "--dir", dir.to_str().unwrap()];
    let refused = run(words, b"").fails(2, "a pool of 128 MiB is too small for 64 serving nodes");
    assert!(refused.err.contains("give --size "), "{}", refused.err);
    assert!(!dir.exists());
}

#[test]
fn cluster_commands_without_etcd_say_so() {
    let etcd = format!("127.0.0.1:{}", free_port());
    for words in [&["status"][..], &["move", "0", "x"], &["drain", "x"]] {
        let done = run(["cluster"].iter().chain(words).chain(&["--etcd", &etcd]), b"");
        done.fails(1, &format!("etcd at {etcd} does not answer: "));
    }
    run(["cluster", "status", "--cluster", "a/b"], b"").fails(1, "is no name of a cluster");
}

#[test]
fn options_of_etcd_that_make_no_sense_are_refused() {
    let place = Place::new();
    let file = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        place.path(name).to_str().unwrap().to_owned()
    };
    let (empty, key, id) = (file("empty", "\n"), place.path("key"), place.path("id"));
    write_key(&key);
    let open = file("open", "a key that others can read\n");
    fs::set_permissions(&open, Permissions::from_mode(0o640)).unwrap();
    let (port, key, id) = (free_port().to_string(), key.to_str().unwrap(), id.to_str().unwrap());
    let node = ["node", "--role", "serve", "--port", &port, "--key-file", key, "--node-id-file", id];
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--etcd", "shop:sesame@127.0.0.1:1"], 2, "an address of etcd has no user and no password"),
        (&["--etcd", "https://127.0.0.1:1"], 2, "https needs --etcd-ca"),
        (&["--etcd-ca", "/nonexistent"], 2, "cannot read /nonexistent"),
        (&["--etcd-ca", &empty], 2, "has no certificate"),
        (&["--etcd-cert", &empty], 2, "--etcd-key"),
        (&["--etcd-cert", &empty, "--etcd-key", &open], 1, &format!("others can read the key file {open}")),
        (&["--etcd-user", "shop"], 2, "--etcd-password-file"),
        (&["--etcd-user", "shop", "--etcd-password-file", &empty], 1, "its first line is empty"),
    ];
    for (words, code, why) in cases {
        for command in [&["cluster", "status"][..], &node] {
            let refused = run(command.iter().chain(words), b"").fails(code, why);
            assert!(!refused.err.contains("sesame"), "{}", refused.err);
        }
    }
}

#[test]
fn node_options_that_make_no_sense_are_refused() {
    let place = Place::new();
    let key = place.path("key");
    let node = |words: &[&str]| {
        let first = ["node", "--key-file", key.to_str().unwrap()];
        run(first.iter().chain(words), b"")
    };
    let memory = ["--role", "memory", "--pool", "/dev/shm/none/pool", "--listen"];
    let memory = |listen| [&memory[..], &[listen]].concat();
    node(&memory("127.0.0.1:0")).fails(1, "cannot read the key file");
    fs::write(&key, "short\n").unwrap();
    node(&memory("127.0.0.1:0")).fails(1, "fewer than 32 letters");
    write_key(&key);
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let refused = node(&memory("127.0.0.1:0"));
    refused.fails(1, "others can read the key file").fails(1, &format!("chmod 600 {}", key.display()));
    write_key(&key);
    node(&memory("0.0.0.0:0")).fails(2, "give --announce-host");
    assert!(!PathBuf::from("/dev/shm/none").exists());
    assert_eq!(node(&["--role", "memory", "--lease", "10ms"]).code, 2);
    assert_eq!(node(&["--role", "serve", "--lanes", "1"]).code, 2);
    assert_eq!(node(&["--role", "other"]).code, 2);
}

#[test]
fn serving_node_refuses_options_that_make_no_sense() {
    let place = Place::new();
    let key = place.path("key");
    write_key(&key);
    let node = |words: &[&str]| {
        let first = ["node", "--key-file", key.to_str().unwrap()];
        run(first.iter().chain(words), b"")
    };
    let port = free_port().to_string();
    let serve = ["--role", "serve", "--metrics-port", "0", "--port", &port, "--node-id-file"];
    let id = place.path("id");
    fs::write(&id, "no id\n").unwrap();
    let refused = node(&[&serve[..], &[id.to_str().unwrap()]].concat());
    refused.fails(1, "has no id, which is 40 hexadecimal digits");
    // Another process has the id.
    fs::write(&id, "0123456789abcdef0123456789abcdef01234567\n").unwrap();
    let used = fs::File::open(&id).unwrap();
    used.lock().unwrap();
    let refused = node(&[&serve[..], &[id.to_str().unwrap()]].concat());
    refused.fails(1, "runs already").fails(1, "give another --node-id-file");
    drop(used);
    let narrow =
        [&serve[..], &[id.to_str().unwrap(), "--lanes", "5", "--fabric-ports", "7300-7303"]].concat();
    node(&narrow).fails(2, "--fabric-ports 7300-7303 has 4 ports, and this node has 5 lanes");
}
