//! The commands of clients, with their effects on the model.

use std::sync::Arc;
use terrace_testkit::process::{Contents, Operation};

/// A command of a client, with its effect on the model.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(Vec<u8>, Vec<u8>),
    SetExpiring(Vec<u8>, Vec<u8>, u64),
    Delete(Vec<u8>),
    Increment(Vec<u8>, i64),
    Append(Vec<u8>, Vec<u8>),
    SetAll(Vec<(Vec<u8>, Vec<u8>)>),
    Transaction(Vec<Op>),
    /// A script that executes the commands.
    Script(Vec<Op>),
    /// FLUSHALL, and all keys that may be there.
    Clear(Arc<Vec<Vec<u8>>>),
}

/// Executes the commands in ARGV, each after the number of its words.
const SCRIPT: &str = "local at = 1 while at <= #ARGV do local words = {} \
     for n = 1, tonumber(ARGV[at]) do words[n] = ARGV[at + n] end \
     redis.call(unpack(words)) at = at + 1 + #words end return 1";

impl Operation for Op {
    fn apply(&self, model: &mut Contents) {
        match self {
            Op::Set(key, value) => {
                model.insert(key.clone(), (value.clone(), None));
            }
            Op::SetExpiring(key, value, at) => {
                model.insert(key.clone(), (value.clone(), Some(*at)));
            }
            Op::Delete(key) => {
                model.remove(key);
            }
            Op::Increment(key, by) => {
                let state = model.entry(key.clone()).or_insert((b"0".to_vec(), None));
                let now: i64 = std::str::from_utf8(&state.0).unwrap().parse().unwrap();
                state.0 = (now + by).to_string().into_bytes();
            }
            Op::Append(key, tail) => model.entry(key.clone()).or_default().0.extend_from_slice(tail),
            Op::SetAll(pairs) => model.extend(pairs.iter().map(|(k, v)| (k.clone(), (v.clone(), None)))),
            Op::Transaction(ops) | Op::Script(ops) => ops.iter().for_each(|op| op.apply(model)),
            Op::Clear(_) => model.clear(),
        }
    }

    fn keys(&self) -> Vec<&[u8]> {
        match self {
            Op::Set(k, _)
            | Op::SetExpiring(k, ..)
            | Op::Delete(k)
            | Op::Increment(k, _)
            | Op::Append(k, _) => vec![k],
            Op::SetAll(pairs) => pairs.iter().map(|(k, _)| k.as_slice()).collect(),
            Op::Transaction(ops) | Op::Script(ops) => ops.iter().flat_map(Op::keys).collect(),
            Op::Clear(keys) => keys.iter().map(Vec::as_slice).collect(),
        }
    }
}

impl Op {
    pub(crate) fn send(&self, pipe: &mut redis::Pipeline) {
        match self {
            Op::Transaction(ops) => {
                pipe.cmd("MULTI");
                ops.iter().for_each(|op| op.send(pipe));
                pipe.cmd("EXEC");
            }
            Op::Script(ops) => {
                pipe.cmd("EVAL").arg(SCRIPT).arg(0);
                for words in ops.iter().map(Op::words) {
                    pipe.arg(words.len()).arg(words);
                }
            }
            op => {
                let mut words = op.words().into_iter();
                let name = String::from_utf8(words.next().unwrap()).unwrap();
                pipe.cmd(&name).arg(words.collect::<Vec<_>>());
            }
        }
    }

    /// The command of an operation that is one.
    fn words(&self) -> Vec<Vec<u8>> {
        let number = |number: &dyn std::fmt::Display| number.to_string().into_bytes();
        match self {
            Op::Set(k, v) => vec![b"SET".to_vec(), k.clone(), v.clone()],
            Op::SetExpiring(k, v, at) => {
                vec![b"SET".to_vec(), k.clone(), v.clone(), b"PXAT".to_vec(), number(at)]
            }
            Op::Delete(k) => vec![b"DEL".to_vec(), k.clone()],
            Op::Increment(k, by) => vec![b"INCRBY".to_vec(), k.clone(), number(by)],
            Op::Append(k, v) => vec![b"APPEND".to_vec(), k.clone(), v.clone()],
            Op::SetAll(pairs) => {
                let pairs = pairs.iter().flat_map(|(k, v)| [k.clone(), v.clone()]);
                std::iter::once(b"MSET".to_vec()).chain(pairs).collect()
            }
            Op::Clear(_) => vec![b"FLUSHALL".to_vec()],
            Op::Transaction(_) | Op::Script(_) => unreachable!("not one command"),
        }
    }
}
