//! The directory in etcd: a process of its own for each test.

use super::{World, wait};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_cluster::directory::etcd::{EtcdDirectory, Options};
use terrace_cluster::directory::{Change, Directory, DirectoryError, Member, State};
use terrace_cluster::map::{Map, Node};

/// etcd on a free port.
pub(crate) struct Etcd {
    dir: TempDir,
    port: u16,
    process: Mutex<Child>,
}

impl Etcd {
    #[allow(clippy::disallowed_methods, reason = "waits for another process")]
    pub(crate) fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let begin = Instant::now();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let etcd = Self { process: Mutex::new(Self::run(&dir, port)), dir, port };
        while etcd.process.lock().unwrap().try_wait().unwrap().is_none() {
            if etcd.connect().read().is_ok() {
                return etcd;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        // Another process has taken the port meanwhile.
        Self::start()
    }

    fn run(dir: &TempDir, port: u16) -> Child {
        let client = format!("http://127.0.0.1:{port}");
        let peer = "http://127.0.0.1:0";
        let started = Command::new("etcd")
            .args(["--name", "test", "--data-dir"])
            .arg(dir.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("test={peer}"), "--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        started.unwrap_or_else(|error| {
            panic!("these tests need etcd ({error}); on Debian: apt-get install etcd-server")
        })
    }

    pub(crate) fn options(&self) -> Options {
        let endpoint = format!("127.0.0.1:{}", self.port);
        Options { lease: Duration::from_secs(2), ..Options::new(&endpoint, "test") }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.set_away(true);
    }
}

impl World for Etcd {
    fn connect(&self) -> Arc<dyn Directory> {
        Arc::new(EtcdDirectory::connect(&self.options()).unwrap())
    }

    fn set_away(&self, is_away: bool) {
        let mut process = self.process.lock().unwrap();
        if is_away {
            process.kill().unwrap();
            process.wait().unwrap();
        } else {
            *process = Self::run(&self.dir, self.port);
        }
    }

    fn end_leases(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = etcd_client::Client::connect(&self.options().endpoints, None).await.unwrap();
            for lease in client.leases().await.unwrap().leases() {
                client.lease_revoke(lease.id()).await.unwrap();
            }
        });
    }
}

crate::directory_conforms!(Etcd::start());

#[test]
fn etcd_that_is_away_is_an_error_with_advice() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let directory = EtcdDirectory::connect(&Options::new(&format!("127.0.0.1:{port}"), "shop")).unwrap();
    let error = directory.read().unwrap_err();
    assert!(matches!(error, DirectoryError::Away { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("etcd at 127.0.0.1:{port} does not answer: ")), "{text}");
    assert!(text.ends_with("; start it, or name others with --etcd"), "{text}");
}

#[test]
fn names_that_are_none_are_refused() {
    for name in ["", "a/b", "a b", "ä", &"a".repeat(65)] {
        let refused = EtcdDirectory::connect(&Options::new("127.0.0.1:1", name)).err();
        assert!(matches!(refused, Some(DirectoryError::Name(_))), "{name}");
    }
}

#[test]
fn endpoint_that_is_none_is_refused() {
    let refused = EtcdDirectory::connect(&Options::new("not an address", "shop")).err().unwrap();
    assert!(refused.to_string().contains("not an address"), "{refused}");
}

#[test]
fn clusters_of_other_names_are_apart() {
    let etcd = Etcd::start();
    let (one, other) = (etcd.connect(), Options { cluster: "test2".into(), ..etcd.options() });
    let other = EtcdDirectory::connect(&other).unwrap();
    let member = Member { host: "localhost".into(), port: 7000, wire: 1 };
    let _kept = (one.register("aa", &member), other.register("bb", &member));
    wait(&*one, |state| state.members.keys().eq(["aa"]));
    wait(&other, |state| state.members.keys().eq(["bb"]));
}

#[test]
fn kept_key_that_was_removed_comes_back() {
    let etcd = Etcd::start();
    let (keeper, other) = (etcd.connect(), etcd.connect());
    let member = |port| Member { host: "localhost".into(), port, wire: 1 };
    let _kept = keeper.register("aa", &member(7000));
    wait(&*other, |state| state.members.contains_key("aa"));
    other.change(&[], &[Change::Delete("members/aa".into())]).unwrap();
    wait(&*other, |state| state.members.contains_key("aa"));
    // A process with the same name comes and goes.
    let twin = other.register("aa", &member(7001));
    wait(&*keeper, |state| state.members.get("aa").is_some_and(|member| member.port == 7001));
    drop(twin);
    wait(&*other, |state| state.members.get("aa").is_some_and(|member| member.port == 7000));
}

/// Nodes ignore maps of earlier epochs, and the revisions of another etcd begin anew.
#[test]
fn epochs_grow_though_etcd_has_lost_its_data() {
    let etcd = Etcd::start();
    let directory = etcd.connect();
    let (tell, states) = mpsc::channel();
    let _watch = directory.watch(Box::new(move |state| _ = tell.send(state)));
    let heard = |is_it: &dyn Fn(&State) -> bool| loop {
        let state = states.recv_timeout(Duration::from_secs(60)).unwrap();
        if is_it(&state) {
            return state;
        }
    };
    let (node, member) = ("a".repeat(40), Member { host: "localhost".into(), port: 7000, wire: 1 });
    let _kept = directory.register(&node, &member);
    let map = |port| Map::spread(vec![Node { id: node.clone(), host: "localhost".into(), port }]);
    let mut last = 0;
    for round in 0..3 {
        let claim = directory.lead("one", None).unwrap().unwrap();
        for port in 0..30 {
            let seen = directory.read().unwrap();
            directory.put_map(&claim, &seen, &map(port), None).unwrap().unwrap();
            let state = heard(&|state| state.map == map(port));
            assert!(state.told_epoch() > last, "round {round}, map {port}: {} {last}", state.told_epoch());
            last = state.told_epoch();
        }
        // Later, it could take another claim of the same revision back.
        drop(claim);
        etcd.set_away(true);
        std::fs::remove_dir_all(etcd.dir.path().join("member")).unwrap();
        etcd.set_away(false);
        let state = heard(&|state| state.epoch == 0 && state.members.contains_key(&node));
        assert_eq!(state.told_epoch(), 0);
    }
}
