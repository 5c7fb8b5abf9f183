//! The directory in an etcd that asks for a certificate and a user.

use super::{Etcd, World, wait};
use terrace_cluster::directory::etcd::{EtcdDirectory, Options, User};
use terrace_cluster::directory::{Change, Directory, DirectoryError};

// Those that end etcd make tokens of before its end void.
crate::directory_conforms!(Etcd::start_protected();
    kept_key_follows_its_text, kept_key_goes_with_its_process, kept_key_comes_once_the_directory_answers,
    claim_that_is_dropped_frees_its_key, map_is_put_by_the_leader_alone,
    watch_tells_the_latest_state, watch_goes_on_after_the_directory_was_away, watch_that_is_dropped_is_silent);

/// What a read says that is refused.
fn refusal(options: &Options) -> String {
    match EtcdDirectory::connect(options).unwrap().read() {
        Err(error @ DirectoryError::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stranger_is_refused_with_the_reason() {
    let etcd = Etcd::start_protected();
    let known = etcd.options();
    let file = |name: &str| known.ca.as_ref().unwrap().with_file_name(name);
    let other = refusal(&Options { ca: Some(file("other.pem")), ..known.clone() });
    assert!(other.contains("invalid peer certificate") && other.contains("--etcd-ca names"), "{other}");
    for identity in [None, Some((file("other.pem"), file("other.key")))] {
        // etcd may end the connection before its reason is read.
        let error = EtcdDirectory::connect(&Options { identity, ..known.clone() }).unwrap().read();
        let text = error.unwrap_err().to_string();
        assert!(text.contains("--etcd-cert"), "{text}");
    }
    let named = Some((file("server.pem"), file("server.key")));
    let named = refusal(&Options { identity: named, ..known.clone() });
    assert!(named.contains("--etcd-cert has a common name (CN)"), "{named}");
    let user = |name: &str, password: &str| Some(User { name: name.into(), password: password.into() });
    let wrong = refusal(&Options { user: user("shop", "other"), ..known.clone() });
    assert!(wrong.contains("authentication failed, invalid user ID or password"), "{wrong}");
    assert!(!wrong.contains("pass:word"));
    let anybody = refusal(&Options { user: None, ..known.clone() });
    assert!(anybody.contains("user name is empty"), "{anybody}");
    // Without certificates, addresses are http.
    let plain = EtcdDirectory::connect(&Options { ca: None, identity: None, ..known.clone() }).unwrap();
    // etcd may hang up before its answer has been read.
    let plain = std::iter::repeat_with(|| plain.read().unwrap_err().to_string())
        .take(20)
        .find(|plain| !plain.contains("Connection reset"))
        .expect("an answer");
    assert!(plain.to_lowercase().contains("https"), "{plain}");
    let elsewhere = refusal(&Options { cluster: "elsewhere".into(), ..known.clone() });
    assert!(elsewhere.contains("permission denied"), "{elsewhere}");
    assert!(EtcdDirectory::connect(&known).unwrap().read().is_ok());
}

/// A change of its users voids what an etcd has checked before.
#[test]
fn token_is_renewed_when_etcd_has_forgotten_it() {
    let etcd = Etcd::start_protected();
    let directory = etcd.connect();
    let put = |name: &str| {
        let change = Change::Put(format!("drained/{name}"), "{}".into());
        directory.change(&[], &[change]).map(|revision| revision.is_some())
    };
    assert!(put("before").unwrap());
    etcd.set_away(true);
    etcd.set_away(false);
    wait(&*etcd.connect(), |_| true);
    // The connection of before may be found dead only now.
    let done = (0..50).map(|_| put("after")).find(Result::is_ok);
    assert!(done.unwrap().unwrap());
    let state = directory.read().unwrap();
    assert!(["before", "after"].iter().all(|name| state.drained.contains(*name)), "{:?}", state.drained);
}
