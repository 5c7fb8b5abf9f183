//! What a serving node says of itself, asked as clients do.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long each step of a question may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// The reply to a command without arguments, as it comes, with those of AUTH and QUIT around it.
pub(super) fn ask(address: SocketAddr, password: Option<&str>, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    if let Some(password) = password {
        request = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len());
    }
    stream.write_all(format!("{request}{command}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// The number behind a name in such a reply.
pub(super) fn number(reply: &str, name: &str) -> Option<u64> {
    reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}
