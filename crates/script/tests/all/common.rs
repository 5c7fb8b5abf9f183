//! A machine with a small host, and what a script replies.

use std::collections::BTreeMap;

use terrace_protocol::{Args, Queue, Reply};
use terrace_script::{CallError, Ended, Host, Limits, Machine, Run, Script, StopFlag};

/// Strings by key.
#[derive(Default)]
pub(crate) struct Strings {
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether the next command ends the run.
    pub(crate) gives_up: bool,
}

impl Host for Strings {
    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), CallError> {
        if self.gives_up {
            return Err(CallError::Abandon);
        }
        let mut reply = Reply::new(out, resp3);
        match &args.name().to_ascii_lowercase()[..] {
            b"set" => {
                self.values.insert(args.at(1).to_vec(), args.at(2).to_vec());
                reply.ok();
            }
            b"get" => match self.values.get(args.at(1)) {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            },
            b"all" => {
                reply.map(self.values.len());
                for (key, value) in &self.values {
                    reply.bulk(key);
                    reply.bulk(value);
                }
            }
            b"double" => reply.double(2.5),
            b"wrong" => return Err(CallError::Failed(b"WRONG it is".to_vec().into())),
            _ => {
                return Err(CallError::Failed(
                    b"ERR Unknown Redis command called from script".to_vec().into(),
                ));
            }
        }
        Ok(())
    }

    fn knows(&self, args: Args<'_>) -> bool {
        args.is(0, "get")
    }
}

/// A machine and its host.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) host: Strings,
    pub(crate) limits: Limits,
    pub(crate) flag: StopFlag,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let limits = Limits { memory: 16 << 20, instructions: 50_000_000, budget: 0 };
        let (machine, host) = (Machine::new().unwrap(), Strings::default());
        Bench { machine, host, limits, flag: StopFlag::default() }
    }

    pub(crate) fn run_with(&mut self, text: &str, args: &[&str], resp3: bool) -> Result<String, Ended> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.run_bytes(text.as_bytes(), &args, resp3)
    }

    pub(crate) fn run_bytes(&mut self, text: &[u8], args: &[&[u8]], resp3: bool) -> Result<String, Ended> {
        let script = Script::new(text).map_err(|text| Ended::Failed(text.into_bytes().into()))?;
        let mut out = Vec::new();
        let mut queue = Queue::default();
        [&b"key"[..]].iter().chain(args).for_each(|arg| queue.add(arg));
        queue.end();
        let args = queue.iter().next().unwrap();
        let run = Run { args, keys: 1, limits: self.limits, flag: &self.flag };
        self.machine.run(&script, run, &mut self.host, &mut Reply::new(&mut out, resp3))?;
        Ok(String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_string())
    }

    /// The reply in RESP2, in one line; an error without its end about the script.
    pub(crate) fn run(&mut self, text: &str) -> String {
        match self.run_with(text, &["one", "two"], false) {
            Ok(reply) => reply,
            Err(Ended::Failed(text) | Ended::Stopped(_, text)) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                format!("-{}", text.split(" script: ").next().unwrap_or_default())
            }
        }
    }

    /// Checks the replies of scripts.
    pub(crate) fn check(&mut self, cases: &[(&str, &str)]) {
        for (text, reply) in cases {
            assert_eq!(self.run(text), *reply, "{text}");
            assert!(!self.machine.is_spoilt(), "{text}");
        }
    }
}
