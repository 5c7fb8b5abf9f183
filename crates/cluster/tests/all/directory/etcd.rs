//! The directory in etcd: a process of its own for each test.

use super::{World, wait};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_cluster::directory::etcd::{EtcdDirectory, Options, User};
use terrace_cluster::directory::{Change, Directory, DirectoryError, Member, State};
use terrace_cluster::map::{Map, Node};

/// etcd on a free port.
pub(crate) struct Etcd {
    dir: TempDir,
    port: u16,
    /// Whether it asks for a certificate and a user.
    is_protected: bool,
    process: Mutex<Child>,
}

impl Etcd {
    #[allow(clippy::disallowed_methods, reason = "waits for another process")]
    pub(crate) fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let begin = Instant::now();
        let port = terrace_testkit::free_ports(1);
        let process = Mutex::new(run(&dir, port, false));
        let etcd = Self { process, dir, port, is_protected: false };
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

    /// One that wants TLS, a certificate and a user that may use the cluster `test` alone.
    pub(crate) fn start_protected() -> Self {
        let mut etcd = Self::start();
        make_certificates(&etcd.dir);
        for (name, password, role) in [("root", "sesame", "root"), ("shop", "pass:word", "test")] {
            etcd.ask("auth/user/add", &json!({ "name": name, "password": password }));
            etcd.ask("auth/role/add", &json!({ "name": role }));
            etcd.ask("auth/user/grant", &json!({ "user": name, "role": role }));
        }
        // "/terrace/test/" to "/terrace/test0".
        let range = json!({
            "permType": "READWRITE", "key": "L3RlcnJhY2UvdGVzdC8=", "range_end": "L3RlcnJhY2UvdGVzdDA=",
        });
        etcd.ask("auth/role/grant", &json!({ "name": "test", "perm": range }));
        etcd.ask("auth/enable", &json!({}));
        etcd.set_away(true);
        etcd.is_protected = true;
        etcd.set_away(false);
        let directory = etcd.connect();
        wait(&*directory, |_| true);
        etcd
    }

    /// Asks it as a program of another kind does.
    fn ask(&self, path: &str, body: &Value) -> Value {
        let place = format!("http://127.0.0.1:{}/v3/{path}", self.port);
        let answer = ureq::post(place).send(body.to_string().as_bytes()).unwrap();
        serde_json::from_reader(answer.into_body().into_reader()).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn options(&self) -> Options {
        let endpoint = format!("127.0.0.1:{}", self.port);
        let options = Options { lease: Duration::from_secs(2), ..Options::new(&endpoint, "test") };
        if !self.is_protected {
            return options;
        }
        Options {
            ca: Some(self.file("ca.pem")),
            identity: Some((self.file("client.pem"), self.file("client.key"))),
            user: Some(User { name: "shop".into(), password: "pass:word".into() }),
            ..options
        }
    }
}

fn run(dir: &TempDir, port: u16, is_protected: bool) -> Child {
    let client = format!("{}://127.0.0.1:{port}", if is_protected { "https" } else { "http" });
    let peer = "http://127.0.0.1:0";
    let mut command = Command::new("etcd");
    if is_protected {
        for (flag, file) in
            [("--trusted-ca-file", "ca.pem"), ("--cert-file", "server.pem"), ("--key-file", "server.key")]
        {
            command.arg(flag).arg(dir.path().join(file));
        }
        command.args(["--client-cert-auth", "--bcrypt-cost", "4"]);
    }
    let started = command
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

/// An authority, and two certificates that it signs: the server's and a client's. One of another
/// authority, too. The server shows its own to itself, so it has both uses.
fn make_certificates(dir: &TempDir) {
    let openssl = |words: &str| {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(dir.path()).output();
        let made = made.unwrap_or_else(|error| panic!("these tests need openssl ({error})"));
        assert!(made.status.success(), "{words}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "other"] {
        openssl(&format!("req -x509 {key} -days 30 -subj /CN={name} -keyout {name}.key -out {name}.pem"));
    }
    std::fs::write(
        dir.path().join("uses"),
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n",
    )
    .unwrap();
    // The gateway refuses clients whose certificates have a common name, where etcd has users.
    for (name, subject) in [("server", "/CN=server"), ("client", "/O=shop")] {
        openssl(&format!("req {key} -subj {subject} -keyout {name}.key -out {name}.csr"));
        let signer = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile uses";
        openssl(&format!("x509 -req -in {name}.csr {signer} -out {name}.pem"));
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
            *process = run(&self.dir, self.port, self.is_protected);
        }
    }

    fn end_leases(&self) {
        let leases = self.ask("lease/leases", &json!({}));
        for lease in leases["leases"].as_array().into_iter().flatten() {
            self.ask("lease/revoke", &json!({ "ID": lease["ID"] }));
        }
    }
}

crate::directory_conforms!(Etcd::start());

#[test]
fn etcd_that_is_away_is_an_error_with_advice() {
    let port = terrace_testkit::free_ports(1);
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

/// Why a directory cannot be used at all.
fn refused(options: &Options) -> String {
    EtcdDirectory::connect(options).err().expect("an error").to_string()
}

#[test]
fn endpoint_that_is_none_is_refused() {
    let endpoints =
        ["not an address", "", "localhost", "ftp://localhost:2379", "localhost:x", "http://h:1/path"];
    for endpoint in endpoints {
        let text = refused(&Options::new(endpoint, "shop"));
        assert_eq!(text, format!("{endpoint:?} is no address of etcd: give host:port, as in 127.0.0.1:2379"));
    }
    for endpoint in ["localhost:1", "http://localhost:1", "http://[::1]:1/", "127.0.0.1:1, 10.0.0.1:1"] {
        EtcdDirectory::connect(&Options::new(endpoint, "shop")).unwrap();
    }
}

#[test]
fn password_in_an_address_is_refused_and_not_shown() {
    for endpoint in ["shop:sesame@127.0.0.1:2379", "https://shop:sesame@127.0.0.1:2379"] {
        let text = refused(&Options::new(endpoint, "shop"));
        assert!(text.ends_with("give --etcd-user and --etcd-password-file"), "{text}");
        assert!(!text.contains("sesame"), "{text}");
    }
    let user = User { name: "shop".into(), password: "sesame".into() };
    assert!(!format!("{user:?}").contains("sesame"));
}

#[test]
fn certificates_that_are_none_are_refused() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        Some(dir.path().join(name))
    };
    let options = Options::new("127.0.0.1:1", "shop");
    let https = Options::new("https://127.0.0.1:1", "shop");
    assert!(refused(&https).starts_with("https needs --etcd-ca: "));
    let text = refused(&Options { ca: Some(dir.path().join("none")), ..options.clone() });
    assert!(text.starts_with(&format!("cannot read {}/none: ", dir.path().display())), "{text}");
    let text = refused(&Options { ca: file("empty", "text"), ..options.clone() });
    assert!(text.ends_with("empty has no certificate"), "{text}");
    make_certificates(&dir);
    let (ca, client) = (dir.path().join("ca.pem"), dir.path().join("client.pem"));
    let plain = Options { ca: Some(ca.clone()), ..Options::new("http://127.0.0.1:1", "shop") };
    assert!(refused(&plain).ends_with("though certificates are given: write https://"));
    let of_another = Some((client.clone(), dir.path().join("server.key")));
    let text = refused(&Options { ca: Some(ca.clone()), identity: of_another, ..options.clone() });
    assert!(text.contains("server.key do not go together: "), "{text}");
    let text = refused(&Options { ca: Some(ca), identity: Some((client.clone(), client)), ..options });
    assert!(text.contains("client.pem has no private key"), "{text}");
}

#[test]
fn another_member_is_asked_for_one_that_is_dead() {
    let etcd = Etcd::start();
    let port = terrace_testkit::free_ports(1);
    let (dead, live) = (format!("127.0.0.1:{port}"), &etcd.options().endpoints[0]);
    for (nth, endpoints) in [format!("{dead},{live}"), format!("{live},{dead}")].iter().enumerate() {
        let options = Options { endpoints: Options::new(endpoints, "x").endpoints, ..etcd.options() };
        let directory = EtcdDirectory::connect(&options).unwrap();
        let (tell, states) = mpsc::channel();
        let watch = directory.watch(Box::new(move |state| _ = tell.send(state)));
        let node = format!("node{nth}");
        assert!(
            directory.change(&[], &[Change::Put(format!("drained/{node}"), "{}".into())]).unwrap().is_some()
        );
        assert!(states.iter().any(|state| state.drained.contains(&node)));
        assert!(directory.lead("one", None).unwrap().is_some());
        drop(watch);
        drop(directory);
        wait(&*etcd.connect(), |state| state.leader.is_none());
    }
}

/// A member that takes connections and never answers.
#[test]
fn another_member_is_asked_for_one_that_hangs() {
    let etcd = Etcd::start();
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = format!("{},{}", hangs.local_addr().unwrap(), etcd.options().endpoints[0]);
    let options = Options { endpoints: Options::new(&endpoints, "x").endpoints, ..etcd.options() };
    let directory = EtcdDirectory::connect(&options).unwrap();
    wait(&directory, |state| state.drained.is_empty());
    directory.drain("node", true).unwrap();
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
