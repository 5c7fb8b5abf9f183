//! Tests of the parts of a directory in etcd.

use super::link::Told;
use crate::directory::DirectoryError;

/// Reads and renewals go on while there is no room for a change.
#[test]
fn refusal_is_told_once_until_a_change_is_taken() {
    let refused = |why: &str| DirectoryError::Refused { endpoints: "e1:2379".into(), why: why.into() };
    let full = refused("etcdserver: mvcc: database space exceeded");
    let mut told = Told::default();
    assert!(told.is_news(&full));
    for _ in 0..3 {
        assert!(!told.has_answered() && !told.is_news(&full));
    }
    assert!(told.is_news(&refused("etcdserver: permission denied")) && !told.is_news(&full));
    let away = DirectoryError::Away { endpoints: "e1:2379".into(), why: "no answer".into() };
    assert!(told.is_news(&away) && !told.is_news(&away));
    assert!(told.has_answered() && !told.has_answered());
    assert!(told.has_changed() && !told.has_changed());
    assert!(told.is_news(&full));
}
