//! Commands about connections: passwords, RESET, CLIENT.

use terrace_server::session::Flow;

use super::SYNTAX;
use crate::common::{Client, START_MS, is_on_disk};

/// A connection to a server with this password.
fn guest(password: &str) -> Client {
    let client = Client::new();
    client.shared.config.set("requirepass", password.as_bytes()).unwrap();
    client.another()
}

#[test]
fn passwords() {
    let mut client = guest("open sesame");
    client.expect(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:"),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH nobody \"open sesame\"", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("MULTI", "-NOAUTH Authentication required."),
    ]);
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(!client.session.is_authenticated());
    assert!(client.ask("HELLO 3 AUTH default \"open sesame\" SETNAME me").starts_with("%7 "));
    assert!(client.session.is_authenticated());
    client.expect(&[
        ("GET k", "_"),
        ("CLIENT GETNAME", "$2 me"),
        ("RESET", "+RESET"),
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH \"open sesame\"", "+OK"),
        ("GET k", "$-1"),
    ]);
}

#[test]
fn limits_are_narrow_before_authentication() {
    let mut stranger = guest("open sesame");
    let (reply, flow) = stranger.send(b"*11\r\n");
    assert_eq!(
        (reply.as_str(), flow),
        (
            "-ERR Protocol error: unauthenticated multibulk length (at most 10 arguments before AUTH)",
            Flow::Close
        )
    );
    // The wider limits apply to everything behind AUTH in the same bytes.
    let mut guest = stranger.another();
    let mset = format!(
        "*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\n*13\r\n$4\r\nMSET\r\n{}",
        "$1\r\na\r\n".repeat(12)
    );
    assert_eq!(guest.send(mset.as_bytes()).0, "+OK +OK");
}

/// RESET discards the client's choices.
#[test]
fn reset_restores_a_new_connection() {
    let mut one = guest("secret");
    assert_eq!(one.ask("AUTH secret"), "+OK");
    for line in ["HELLO 3 SETNAME me", "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON", "WATCH k", "MULTI"] {
        assert!(!one.ask(line).starts_with('-'), "{line}");
    }
    one.expect(&[("RESET", "+RESET"), ("AUTH secret", "+OK"), ("GET k", "$-1")]);
    let info = one.ask("CLIENT INFO");
    for part in ["name= ", "flags=N ", "multi=-1 ", "watch=0 ", "resp=2 "] {
        assert!(info.contains(part), "{part} in {info}");
    }
}

/// The limits for unauthenticated clients apply at once after RESET, to commands parsed ahead and
/// to an incomplete one.
#[test]
fn limits_are_narrow_again_after_reset() {
    let client = guest("secret");
    let known = || {
        let mut client = client.another();
        assert_eq!(client.ask("AUTH secret"), "+OK");
        client
    };
    let long = "x".repeat(20_000);
    let refused = "-ERR Protocol error: unauthenticated bulk length (at most 16384 bytes before AUTH)";
    let echo = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{long}\r\n");
    assert_eq!(
        known().send(format!("RESET\r\n{echo}").as_bytes()),
        (format!("+RESET {refused}"), Flow::Close)
    );
    // With AUTH in between it is accepted.
    let (reply, flow) = known().send(format!("RESET\r\nAUTH secret\r\n{echo}").as_bytes());
    assert_eq!((reply, flow), (format!("+RESET +OK $20000 {long}"), Flow::Continue));
    let mut half = known();
    let begun = "RESET\r\n*2\r\n$4\r\nECHO\r\n$20000\r\nxxx";
    let mut input = begun.as_bytes().to_vec();
    let mut output = Vec::new();
    assert_eq!(half.session.process(&mut input, &mut output, START_MS), Flow::Continue);
    input.push(b'x');
    assert_eq!(half.session.process(&mut input, &mut output, START_MS), Flow::Close);
    assert_eq!(String::from_utf8(output).unwrap(), format!("+RESET\r\n{refused}\r\n"));
}

#[test]
fn connections() {
    Client::new().expect(&[
        ("PING", "+PONG"),
        ("PING hi", "$2 hi"),
        ("ECHO hi", "$2 hi"),
        ("SELECT 0", "+OK"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("CLIENT ID", ":1"),
        ("CLIENT GETNAME", "$-1"),
        ("CLIENT SETNAME worker", "+OK"),
        (
            "CLIENT SETNAME \"a b\"",
            "-ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT GETNAME", "$6 worker"),
        ("CLIENT SETINFO LIB-NAME redis-rs", "+OK"),
        ("CLIENT SETINFO lib-ver 1.0", "+OK"),
        (
            "CLIENT SETINFO lib-ver \"1 0\"",
            "-ERR lib-ver cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT SETINFO other 1", "-ERR Unrecognized option 'other'"),
        ("CLIENT NO-EVICT ON", "+OK"),
        ("CLIENT NO-TOUCH ON", "+OK"),
        ("CLIENT NO-TOUCH MAYBE", SYNTAX),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("WAIT 1 1000", ":0"),
    ]);
}

#[test]
fn connections_are_described() {
    let mut client = Client::new();
    for choice in
        ["SETNAME worker", "SETINFO LIB-NAME redis-rs", "SETINFO lib-ver 1.0", "NO-EVICT ON", "NO-TOUCH ON"]
    {
        assert_eq!(client.ask(&format!("CLIENT {choice}")), "+OK");
    }
    let info = client.ask("CLIENT INFO");
    for part in [
        "id=1 ",
        "name=worker ",
        "flags=eT ",
        "multi=-1 ",
        "cmd=client|info ",
        "resp=2 ",
        "lib-name=redis-rs ",
        "lib-ver=1.0",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
}

#[test]
fn connections_are_listed_until_they_end() {
    let mut client = Client::new();
    let mut other = client.another();
    assert!(other.ask("CLIENT LIST").contains("id=1 ") && other.ask("CLIENT LIST ID 2").contains("id=2 "));
    assert_eq!(other.send(b"QUIT\r\nPING\r\n"), ("+OK".into(), Flow::Close));
    drop(other);
    assert!(!client.ask("CLIENT LIST").contains("id=2 "));
    assert_eq!(client.send(b"PING\r\nPOST / HTTP/1.1\r\nPING\r\n"), ("+PONG".into(), Flow::Close));
}

#[test]
fn missing_features_are_refused() {
    let mut client = Client::new();
    client.expect(&[
        ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'"),
        ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
        (
            "CONFIG SET port 1",
            "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config",
        ),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("OBJECT ENCODING nosuch", "$-1"),
    ]);
    let hash = client.ask("HSET k f v");
    assert!(
        hash.starts_with("-ERR unknown command 'HSET', with args beginning with: 'k' 'f' 'v' "),
        "{hash}"
    );
    assert!(hash.contains("Terrace holds strings"), "{hash}");
    let of_disk = ["SAVE", "BGSAVE", "LASTSAVE", "WAITAOF 1 0 0"];
    let of_none = ["BGREWRITEAOF", "SHUTDOWN SAVE", "CONFIG SET appendonly yes", "CONFIG SET save \"60 1\""];
    let of_disk = of_disk.into_iter().filter(|_| !is_on_disk());
    for line in of_none.into_iter().chain(of_disk) {
        assert!(client.ask(line).starts_with("-ERR "), "{line} is not answered OK");
    }
    assert_eq!(client.send(b"SHUTDOWN\r\nPING\r\n"), (String::new(), Flow::Shutdown));
    assert!(client.shared.is_shutting_down());
}

/// CLIENT REPLY leaves replies out, but not the effects.
#[test]
fn replies_are_left_out_on_request() {
    let mut client = Client::new();
    client.expect(&[("CLIENT REPLY maybe", "-ERR syntax error"), ("CLIENT REPLY OFF", ""), ("SET k v", "")]);
    assert_eq!(client.send(&b"GET k\r\nNOSUCH\r\n".repeat(20)).0, "");
    client.expect(&[
        ("CLIENT REPLY SKIP", ""),
        ("PING", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("GET k", "$1 v"),
        ("CLIENT REPLY SKIP", ""),
        ("SET k w", ""),
        ("GET k", "$1 w"),
        ("CLIENT REPLY SKIP", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("PING", "+PONG"),
        ("CLIENT REPLY OFF", ""),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
    ]);
    assert_eq!(client.send(b"CLIENT REPLY SKIP\r\nGET k\r\nGET k\r\nGET k\r\n").0, "$1 w $1 w");
}
