//! etcd's JSON gateway: what etcd is asked as JSON over HTTP, by calls that block.
//!
//! Keys and values are base64 in it, and numbers of 64 bits are texts. A member that does not
//! answer is left for the next one.

use super::options::{Options, User};
use crate::directory::DirectoryError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, BodyReader, Timeout};

/// How long a request may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer: a map of a thousand nodes has some hundred kilobytes.
const ANSWER_MAX: u64 = 64 << 20;
/// gRPC's codes that etcd may answer otherwise a moment later: CANCELLED, UNKNOWN,
/// DEADLINE_EXCEEDED, UNAVAILABLE.
const PASSING: [i64; 4] = [1, 2, 4, 14];
/// gRPC's code of a member that has no leader, or stops.
const UNAVAILABLE: i64 = 14;
/// gRPC's code for a token that is none, or none any more.
const UNAUTHENTICATED: i64 = 16;
/// gRPC's code for what this client may not do.
const UNAUTHORIZED: i64 = 7;
/// gRPC's code for what is not there.
const NOT_FOUND: i64 = 5;

#[allow(clippy::disallowed_methods, reason = "a bound for an answer that may never come")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// etcd has not done what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody answers. Whether it may have been asked nevertheless.
    Away { why: String, is_asked: bool },
    /// The two sides do not trust each other.
    Tls(String),
    /// etcd's own error.
    Status { code: i64, why: String },
}

impl Failure {
    pub(super) fn not_found(why: &str) -> Self {
        Self::Status { code: NOT_FOUND, why: why.into() }
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: NOT_FOUND, .. })
    }

    /// As the directory tells it.
    pub(super) fn told(self, endpoints: &str) -> DirectoryError {
        let endpoints = endpoints.to_owned();
        match self {
            Self::Away { why, .. } => DirectoryError::Away { endpoints, why },
            Self::Status { code, why } if PASSING.contains(&code) => DirectoryError::Away { endpoints, why },
            Self::Status { why, .. } | Self::Tls(why) => DirectoryError::Refused { endpoints, why },
        }
    }

    /// Adds what the end of a connection may mean: etcd's reason is lost at times.
    fn of(self, member: &str) -> Self {
        let Self::Away { why, is_asked: true } = self else { return self };
        let too = match member.starts_with("https:") {
            true if why != no_answer() => {
                " (an etcd that refuses the certificate of --etcd-cert, or wants one, does this, too)"
            }
            false if why.contains("disconnected") => " (an etcd that wants https does this, too: --etcd-ca)",
            _ => "",
        };
        Self::Away { why: why + too, is_asked: true }
    }

    /// Whether another member may do better, and nothing can have been done by this one.
    fn is_harmless(&self) -> bool {
        matches!(self, Self::Away { is_asked: false, .. } | Self::Tls(_))
    }

    /// Whether another member may do better.
    fn is_of_member(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Tls(_) | Self::Status { code: UNAVAILABLE, .. })
    }

    /// Whether a new token would help. etcd refuses tokens of before a change of its users, too.
    fn is_of_token(&self) -> bool {
        let Self::Status { code, why } = self else { return false };
        *code == UNAUTHENTICATED || why.contains("auth store is old") || why.contains("user name is empty")
    }
}

/// Whether a request that may have been done can be done again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It changes nothing, or the same.
    Harmless,
    /// Only one that was not asked.
    Unasked,
}

/// The members of etcd, and how they are asked. Each has connections of its own.
pub(super) struct Gateway {
    agent: Agent,
    shared: Arc<Shared>,
}

struct Shared {
    /// The begins of addresses: `https://host:port`.
    members: Vec<String>,
    /// The member that is asked.
    asked: AtomicUsize,
    user: Option<User>,
    token: Mutex<Option<String>>,
}

impl Gateway {
    /// Asks nobody yet.
    pub(super) fn new(options: &Options) -> Result<Self, DirectoryError> {
        let is_protected = options.ca.is_some() || options.identity.is_some();
        let endpoint = |endpoint: &String| member(endpoint, is_protected);
        let members: Vec<String> = options.endpoints.iter().map(endpoint).collect::<Result<_, _>>()?;
        if options.ca.is_none() && members.iter().any(|member| member.starts_with("https:")) {
            return Err(DirectoryError::Settings(
                "https needs --etcd-ca: a file with the certificates that sign those of etcd".into(),
            ));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("terrace/", env!("CARGO_PKG_VERSION")));
        if is_protected {
            config = config.tls_config(tls(options)?);
        }
        let shared = Shared {
            members,
            asked: AtomicUsize::new(0),
            user: options.user.clone(),
            token: Mutex::default(),
        };
        Ok(Self { agent: config.build().into(), shared: Arc::new(shared) })
    }

    /// The same with connections of its own.
    pub(super) fn apart(&self) -> Self {
        Self { agent: self.agent.config().clone().into(), shared: Arc::clone(&self.shared) }
    }

    /// Ends all requests, also those under way.
    pub(super) fn shut_down(&self) {
        self.agent.clone().shutdown();
    }

    /// What etcd answers.
    pub(super) fn ask(
        &self,
        path: &str,
        body: &Value,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        self.try_members(repeat, deadline, |member, token, until| {
            let time = Times { until, body: None };
            self.send(member, token, path, body, time)?.only()
        })
    }

    /// A stream of answers that ends after some time. `deadline` is that of the first one, which is
    /// left out.
    pub(super) fn stream(
        &self,
        path: &str,
        body: &Value,
        deadline: Instant,
        time: Duration,
    ) -> Result<Lines, Failure> {
        self.try_members(Repeat::Harmless, deadline, |member, token, until| {
            let time = Times { until, body: Some(time) };
            let mut lines = self.send(member, token, path, body, time)?;
            match lines.next()? {
                Some(_) => Ok(lines),
                None => Err(away("it has ended the stream".into())),
            }
        })
    }

    /// Tries one member after the other, as long as there is time and no harm.
    fn try_members<T>(
        &self,
        repeat: Repeat,
        deadline: Instant,
        attempt: impl Fn(&str, Option<&str>, Instant) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let shared = &self.shared;
        for others in (0..shared.members.len()).rev() {
            // ORDER: Relaxed: any member will do.
            let nth = shared.asked.load(Ordering::Relaxed);
            let done = self.with_token(&shared.members[nth], deadline, &attempt);
            let Err(failure) = &done else { return done };
            if failure.is_of_member() {
                let next = (nth + 1) % shared.members.len();
                // ORDER: Relaxed: see above. If it was changed meanwhile, that is the better one.
                let _ = shared.asked.compare_exchange(nth, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            let may_repeat = failure.is_harmless() || repeat == Repeat::Harmless && failure.is_of_member();
            if others == 0 || !may_repeat || now() >= deadline {
                return done;
            }
        }
        unreachable!("there is a member")
    }

    /// Tries a member, with a new token if it refuses the one that there is.
    fn with_token<T>(
        &self,
        member: &str,
        deadline: Instant,
        attempt: &impl Fn(&str, Option<&str>, Instant) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(user) = &self.shared.user else { return attempt(member, None, deadline) };
        let token = self.token(user, member, None, deadline)?;
        let done = attempt(member, Some(&token), deadline);
        if !done.as_ref().is_err_and(Failure::is_of_token) {
            return done;
        }
        let token = self.token(user, member, Some(token), deadline)?;
        attempt(member, Some(&token), deadline)
    }

    /// A token other than the one that was refused. One thread at a time asks for it.
    fn token(
        &self,
        user: &User,
        member: &str,
        refused: Option<String>,
        deadline: Instant,
    ) -> Result<String, Failure> {
        let mut token = self.shared.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = token.as_ref().filter(|there| refused.as_ref() != Some(*there)) {
            return Ok(there.clone());
        }
        *token = None;
        let body = json!({ "name": user.name, "password": user.password });
        let time = Times { until: deadline, body: None };
        let answer = self.send(member, None, "/v3/auth/authenticate", &body, time)?.only()?;
        let new = answer["token"].as_str().ok_or_else(|| away("it has sent no token".into()))?;
        *token = Some(new.to_owned());
        Ok(new.to_owned())
    }

    /// Sends a request, and waits for the begin of its answer.
    fn send(
        &self,
        member: &str,
        token: Option<&str>,
        path: &str,
        body: &Value,
        time: Times,
    ) -> Result<Lines, Failure> {
        let left = time.until.saturating_duration_since(now());
        if left.is_zero() {
            return Err(too_late());
        }
        let mut request = self
            .agent
            .post(format!("{member}{path}"))
            .config()
            .timeout_global(Some(time.body.unwrap_or(left)))
            .timeout_connect(Some(left / self.shared.members.len() as u32))
            .timeout_recv_response(Some(left))
            .build()
            // A member of etcd that is cut off from the others says so, and does not tell old news.
            .header("Grpc-Metadata-hasleader", "true")
            .header("Content-Type", "application/json");
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let sent = request.send(body.to_string().as_bytes()).map_err(failure_of);
        let response = sent.map_err(|failure| failure.of(member))?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(refusal(head.status.as_u16(), body, path));
        }
        Ok(Lines(BufReader::new(body.into_with_config().limit(ANSWER_MAX).reader())))
    }
}

/// How long a request may take.
#[derive(Clone, Copy)]
struct Times {
    /// Until its answer, or the begin of a stream.
    until: Instant,
    /// How long its stream may go on.
    body: Option<Duration>,
}

/// Answers, a line each.
pub(super) struct Lines(BufReader<BodyReader<'static>>);

impl Lines {
    /// The only one. The connection is used again if all of it is read.
    fn only(mut self) -> Result<Value, Failure> {
        let answer = self.next()?.ok_or_else(|| away("it has sent no answer".into()))?;
        // Without the rest the connection ends.
        let _ = io::copy(&mut self.0, &mut io::sink());
        Ok(answer)
    }

    /// The next one. `None`: the time of the stream is over, or etcd has ended it.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Failure> {
        let mut line = Vec::new();
        match self.0.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(failure_of(ureq::Error::from(error))),
        }
        let value: Value = serde_json::from_slice(&line).map_err(|_| away("its answer is no JSON".into()))?;
        match status_of(&value) {
            Some(status) => Err(status),
            // Streams wrap each answer.
            None => Ok(Some(match value {
                Value::Object(mut map) if map.contains_key("result") => map["result"].take(),
                value => value,
            })),
        }
    }
}

impl Failure {
    /// Whether a stream ended because its time was over.
    pub(super) fn is_end_of_time(&self) -> bool {
        matches!(self, Self::Away { why, .. } if *why == no_answer())
    }
}

fn away(why: String) -> Failure {
    Failure::Away { why, is_asked: true }
}

fn no_answer() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

pub(super) fn too_late() -> Failure {
    Failure::Away { why: no_answer(), is_asked: false }
}

fn failure_of(error: ureq::Error) -> Failure {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match error {
        ureq::Error::Timeout(phase) => {
            let is_asked = !matches!(phase, Timeout::Resolve | Timeout::Connect);
            Failure::Away { why: no_answer(), is_asked }
        }
        ureq::Error::Io(error) => {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
            if let Some(cause) = cause {
                return distrust(&cause.to_string());
            }
            let is_asked = !matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable);
            Failure::Away { why: error.to_string(), is_asked }
        }
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
            Failure::Away { why: error.to_string(), is_asked: false }
        }
        ureq::Error::Rustls(cause) => distrust(&cause.to_string()),
        ureq::Error::Tls(cause) => distrust(cause),
        other => away(other.to_string()),
    }
}

fn distrust(why: &str) -> Failure {
    Failure::Tls(format!(
        "{why}. --etcd-ca names the certificates that sign those of etcd, --etcd-cert and --etcd-key what \
         this program shows"
    ))
}

/// The error in an answer, in the words of one version of the gateway or another.
fn status_of(answer: &Value) -> Option<Failure> {
    let error = match &answer["error"] {
        Value::Null if answer["code"].is_number() && answer["message"].is_string() => answer,
        Value::Null => return None,
        Value::String(_) => answer,
        error => error,
    };
    let code = ["code", "grpc_code"].iter().find_map(|name| error[name].as_i64()).unwrap_or(2);
    let why = ["message", "error"].iter().find_map(|name| error[name].as_str());
    Some(Failure::Status { code, why: why.unwrap_or("an error without words").into() })
}

/// What an answer says whose status is no success.
fn refusal(status: u16, body: Body, path: &str) -> Failure {
    let mut text = String::new();
    // Without all of its words, the status must do.
    let _ = body.into_with_config().limit(1 << 16).reader().read_to_string(&mut text);
    if let Some(status) = serde_json::from_str(&text).ok().as_ref().and_then(status_of) {
        return status;
    }
    match status {
        _ if text.starts_with("CommonName of client") => {
            let why = "the certificate of --etcd-cert has a common name (CN). Where etcd has users, give one without";
            Failure::Status { code: UNAUTHORIZED, why: why.into() }
        }
        404 => Failure::Status {
            code: NOT_FOUND,
            why: format!("it knows no {path}: etcd 3.4 or later, with its gRPC gateway enabled, does"),
        },
        400..500 => {
            Failure::Status { code: UNAUTHORIZED, why: format!("{}, HTTP status {status}", text.trim()) }
        }
        _ => away(format!("HTTP status {status}")),
    }
}

/// The begin of a member's addresses.
fn member(endpoint: &str, is_protected: bool) -> Result<String, DirectoryError> {
    let settings = |why: String| Err(DirectoryError::Settings(why));
    if endpoint.contains('@') {
        return settings(
            "an address of etcd has no user and no password: give --etcd-user and --etcd-password-file"
                .into(),
        );
    }
    let full = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false if is_protected => format!("https://{endpoint}"),
        false => format!("http://{endpoint}"),
    };
    let uri = full.parse::<Uri>().ok();
    let parts =
        uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.host()?, uri.port_u16()?, uri.path())));
    match parts {
        Some(("http", ..)) if is_protected => settings(format!(
            "{endpoint} is read and changed by anybody in the network, though certificates are given: write \
             https://"
        )),
        Some(("http" | "https", host, _, "" | "/")) if !host.is_empty() => {
            Ok(full.trim_end_matches('/').to_owned())
        }
        _ => settings(format!("{endpoint:?} is no address of etcd: give host:port, as in 127.0.0.1:2379")),
    }
}

/// What is in a file of certificates or keys.
fn pem(path: &Path) -> Result<Vec<PemItem<'static>>, DirectoryError> {
    let file = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| DirectoryError::Settings(format!("cannot read {file}: {error}")))?;
    let items = parse_pem(&bytes).collect::<Result<Vec<_>, _>>();
    items.map_err(|error| DirectoryError::Settings(format!("{file} is no PEM file: {error}")))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, DirectoryError> {
    let certificates = pem(path)?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        return Err(DirectoryError::Settings(format!("{} has no certificate", path.display())));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, DirectoryError> {
    let key = pem(path)?.into_iter().find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    key.ok_or_else(|| {
        let file = path.display();
        DirectoryError::Settings(format!("{file} has no private key, or one under a password"))
    })
}

/// Whether a key is that of a certificate, and both are of a kind that TLS takes: the first
/// connection would panic.
fn check_identity(
    chain: &[Certificate<'_>],
    key: &PrivateKey<'_>,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<(), String> {
    let key = PrivateKeyDer::try_from(key.der())?.clone_key();
    let chain = chain.iter().map(|certificate| certificate.der().to_vec().into()).collect();
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(provider));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(rustls::RootCertStore::empty());
    config.with_client_auth_cert(chain, key).map(drop).map_err(|error| error.to_string())
}

fn tls(options: &Options) -> Result<TlsConfig, DirectoryError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::clone(&provider));
    if let Some(ca) = &options.ca {
        tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates(ca)?)));
    }
    if let Some((certificate_file, key_file)) = &options.identity {
        let (chain, key) = (certificates(certificate_file)?, private_key(key_file)?);
        check_identity(&chain, &key, &provider).map_err(|error| {
            let (certificate, key) = (certificate_file.display(), key_file.display());
            DirectoryError::Settings(format!("{certificate} and {key} do not go together: {error}"))
        })?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(tls.build())
}

/// Bytes as the gateway has them.
pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// A text of an answer. What is no text is replaced.
pub(super) fn decoded(value: &Value) -> String {
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A number of an answer; 0 if it is left out.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}
