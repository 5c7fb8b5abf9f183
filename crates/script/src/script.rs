//! A script, its name and its flags.

use sha1_smol::Sha1;

/// Bits of [`Script::flags`].
pub mod flag {
    /// The script writes nothing.
    pub const NO_WRITES: u32 = 1 << 0;
    /// May run in a full server.
    pub const ALLOW_OOM: u32 = 1 << 1;
    /// May run on a stale replica.
    pub const ALLOW_STALE: u32 = 1 << 2;
    /// Does not run on a node of a cluster.
    pub const NO_CLUSTER: u32 = 1 << 3;
    /// May use keys of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: u32 = 1 << 4;

    /// The names of the flags in the first line of a script.
    pub const NAMES: [(u32, &str); 5] = [
        (NO_WRITES, "no-writes"),
        (ALLOW_OOM, "allow-oom"),
        (ALLOW_STALE, "allow-stale"),
        (NO_CLUSTER, "no-cluster"),
        (ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];
}

/// A script whose first line is valid; the rest may not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The SHA-1 of its text in 40 hexadecimal digits: its name.
    pub sha: String,
    /// Its text.
    pub text: Box<[u8]>,
    /// Bits of [`flag`].
    pub flags: u32,
    /// How long it takes to compile it, in instructions of Lua's.
    pub cost: u64,
    /// Where the code begins: after a first line `#!lua`.
    code: usize,
}

impl Script {
    /// The name of a script with this text.
    pub fn sha(text: &[u8]) -> String {
        Sha1::from(text).digest().to_string()
    }

    /// Reads the flags of a script. The error is a reply.
    pub fn new(text: &[u8]) -> Result<Script, String> {
        let cost =
            cost(text).map_err(|error| format!("ERR Error compiling script (new function): {error}"))?;
        let (flags, code) = match text.starts_with(b"#!") {
            true => first_line(text)?,
            false => (0, 0),
        };
        Ok(Script { sha: Script::sha(text), text: text.into(), flags, cost, code })
    }

    /// The code, whose lines have their numbers in the text.
    pub fn code(&self) -> &[u8] {
        &self.text[self.code..]
    }

    /// Whether its first line says what it may do, and that it may not run in a full server.
    pub fn refuses_oom(&self) -> bool {
        self.code > 0 && self.flags & (flag::ALLOW_OOM | flag::NO_WRITES) == 0
    }

    /// Whether the script has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Maximum length of a script, bytes.
const TEXT_MOST: usize = 16 << 20;
/// Maximum number of words of a script that are one of [`BRANCHES`].
const BRANCHES_MOST: u64 = 16_384;
/// Words that make Lua walk over all jumps of the same expression, statement or loop.
const BRANCHES: [&[u8]; 4] = [b"elseif", b"and", b"or", b"break"];

/// How many words of a text are one of [`BRANCHES`], in comments and strings too.
fn branches(text: &[u8]) -> u64 {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.filter(|word| BRANCHES.contains(word)).count() as u64
}

/// How long it takes to compile a text, in instructions of Lua's. Refuses one that would take long,
/// since nothing ends that.
pub(crate) fn cost(text: &[u8]) -> Result<u64, String> {
    if text.len() > TEXT_MOST {
        return Err(format!("the text has more than {TEXT_MOST} bytes: split it, or pass data in ARGV"));
    }
    let branches = branches(text);
    if branches > BRANCHES_MOST {
        return Err(format!(
            "the text has more than {BRANCHES_MOST} words `elseif`, `and`, `or` and `break`: look values up in \
             a table"
        ));
    }
    Ok(text.len() as u64 + branches.pow(2) / 2)
}

/// The flags in a first line `#!lua flags=a,b`, and where it ends.
fn first_line(text: &[u8]) -> Result<(u32, usize), String> {
    let end = text.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = String::from_utf8_lossy(&text[..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    let mut flags = 0;
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for name in names.split(',').filter(|_| !names.is_empty()) {
            let known = flag::NAMES.iter().find(|(_, known)| *known == name);
            let (bit, _) = known.ok_or_else(|| format!("ERR Unexpected flag in script shebang: {name}"))?;
            flags |= bit;
        }
    }
    Ok((flags, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_gives_flags_and_keeps_line_numbers() {
        let script = Script::new(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert_eq!(script.flags, flag::NO_WRITES | flag::ALLOW_OOM);
        assert_eq!(script.code(), b"\nreturn 1");
        assert_eq!(Script::new(b"return 1").unwrap().code(), b"return 1");
        assert_eq!(Script::new(b"return 1").unwrap().sha, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn wrong_first_line_is_refused() {
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua flags=no-writes,foo\n", "ERR Unexpected flag in script shebang: foo"),
            ("#!lua flags=no-writes,\n", "ERR Unexpected flag in script shebang: "),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
        ] {
            assert_eq!(Script::new(text.as_bytes()), Err(error.into()));
        }
    }
}
