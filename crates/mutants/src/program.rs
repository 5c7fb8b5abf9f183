//! A copy of the workspace in which the package has all of its mutants, built.

use crate::Outcome;
use crate::list::Mutant;
use crate::rewrite::{mutant_at, rewrite};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the switches of a mutated crate ask.
const SWITCHES: &str = r#"

#[doc(hidden)]
pub mod __mutant {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static CHOSEN: OnceLock<(u32, Option<String>)> = OnceLock::new();
    static SEEN: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

    /// Whether this mutant is to be there. Or, where that is asked, takes note that somebody came by.
    #[inline]
    pub fn on(number: u32) -> bool {
        let (chosen, note) = CHOSEN.get_or_init(|| {
            let number = std::env::var("MUTANT").ok().and_then(|number| number.parse().ok());
            (number.unwrap_or(u32::MAX), std::env::var("MUTANTS_SEEN").ok())
        });
        if let Some(path) = note {
            take_note(number, path);
        }
        *chosen == number
    }

    #[cold]
    fn take_note(number: u32, path: &str) {
        let seen = &SEEN[number as usize];
        // Looked at first: threads that all come by would hand its line to and fro.
        if !seen.load(Relaxed)
            && !seen.swap(true, Relaxed)
            && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
        {
            let _ = file.write_all(format!("{number}\n").as_bytes());
        }
    }
}
"#;

/// A test program, and the directory that it expects to be started in.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) directory: PathBuf,
}

pub(crate) struct Built {
    pub(crate) programs: Vec<Program>,
    /// Mutants that are not in it: they do not compile, or there is no switch for them.
    pub(crate) left_out: BTreeSet<usize>,
}

pub(crate) struct Workspace {
    /// Where the copy lies.
    tree: PathBuf,
    target: PathBuf,
    package: String,
}

impl Workspace {
    /// Copies what git knows of the workspace in the current directory, but for what gets mutants: so that this is as old as it was if it becomes the same again.
    pub(crate) fn copy(directory: &Path, package: &str, mutants: &[Mutant]) -> Outcome<Self> {
        let tree = directory.join("tree");
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()?;
        let listed = String::from_utf8(output.stdout)?;
        let files: BTreeSet<&str> = listed.split('\0').filter(|file| Path::new(file).is_file()).collect();
        let mutated: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
        for file in files {
            let (path, bytes) = (tree.join(file), fs::read(file)?);
            let has_switches = || fs::read(&path).is_ok_and(|there| there == with_switches(&bytes));
            let is_left = mutated.contains(file) || (file.ends_with("src/lib.rs") && has_switches());
            if !is_left || !path.exists() {
                write_if_other(&path, &bytes)?;
            }
        }
        Ok(Self { tree, target: directory.join("target"), package: package.into() })
    }

    /// Where the package's crate begins: a library's, or that of a program.
    fn root(&self) -> Outcome<PathBuf> {
        let sources = self.directory_of()?.join("src");
        let mut roots = ["lib.rs", "main.rs"].iter().map(|name| sources.join(name));
        Ok(roots.find(|root| root.is_file()).ok_or("it has neither a library nor a program")?)
    }

    fn directory_of(&self) -> Outcome<PathBuf> {
        let command = self.cargo(&["pkgid", "--package", &self.package]).output()?;
        let id = String::from_utf8(command.stdout)?;
        let path = id.split("file://").nth(1).and_then(|rest| rest.split('#').next());
        Ok(path.ok_or("cargo knows no such package")?.into())
    }

    /// Puts all mutants in and builds the tests of the package, and of those in `ask`; if there are any in `only`, no other programs. What does not compile is left out.
    pub(crate) fn build(&self, mutants: &[Mutant], ask: &[String], only: &[String]) -> Outcome<Built> {
        let root = self.root()?;
        let mut left_out = BTreeSet::new();
        loop {
            self.put_in(mutants, &mut left_out, &root)?;
            let wrong = self.wrong(mutants)?;
            if wrong.is_empty() {
                break;
            }
            say(&format!("{} mutants do not compile; once more without them", wrong.len()));
            left_out.extend(wrong);
        }
        Ok(Built { programs: self.programs(ask, only)?, left_out })
    }

    fn put_in(&self, mutants: &[Mutant], left_out: &mut BTreeSet<usize>, root: &Path) -> Outcome<()> {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in mutants.iter().enumerate() {
            let of_file = by_file.entry(&mutant.file).or_default();
            if !left_out.contains(&number) {
                of_file.push((number, mutant));
            }
        }
        let mut has_switches = false;
        for (file, mutants) in by_file {
            let rewritten = rewrite(&fs::read_to_string(file)?, &mutants)?;
            left_out.extend(rewritten.left_out);
            let (path, mut text) = (self.tree.join(file), rewritten.text.into_bytes());
            if path == root {
                text = with_switches(&text);
                has_switches = true;
            }
            write_if_other(&path, &text)?;
        }
        if !has_switches {
            let original = root.strip_prefix(&self.tree)?;
            write_if_other(root, &with_switches(&fs::read(original)?))?;
        }
        Ok(())
    }

    /// The mutants that the compiler complains of.
    fn wrong(&self, mutants: &[Mutant]) -> Outcome<BTreeSet<usize>> {
        let output = self.cargo(&["check", "--message-format=json", "--package", &self.package]).output()?;
        let mut wrong = BTreeSet::new();
        let mut unexplained = String::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let Ok(Message { message: Some(message) }) = serde_json::from_str::<Message>(line) else {
                continue;
            };
            if message.level != "error" {
                continue;
            }
            let mut found = BTreeSet::new();
            for span in message.spans.iter().filter(|span| span.is_primary) {
                let text = fs::read_to_string(self.tree.join(&span.file_name))?;
                found.extend(mutant_at(&text, span.byte_start));
            }
            if found.is_empty() && !message.spans.is_empty() {
                unexplained += &message.rendered.unwrap_or_default();
            }
            wrong.extend(found);
        }
        match output.status.success() {
            true => Ok(BTreeSet::new()),
            false if wrong.iter().any(|&number| number < mutants.len()) => Ok(wrong),
            false => Err(format!("it does not compile, and no mutant is to blame:\n{unexplained}").into()),
        }
    }

    fn programs(&self, ask: &[String], only: &[String]) -> Outcome<Vec<Program>> {
        let mut arguments = vec!["test", "--no-run", "--message-format=json", "--package", &self.package];
        ask.iter().for_each(|package| arguments.extend(["--package", package]));
        for program in only {
            match program.as_str() {
                "lib" => arguments.push("--lib"),
                test => arguments.extend(["--test", test]),
            }
        }
        let output = self.cargo(&arguments).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err("the tests do not compile".into());
        }
        let built = String::from_utf8(output.stdout)?;
        let artifacts = built.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
        let tests = artifacts.filter(|artifact| artifact.profile.test);
        let programs = tests.filter_map(|artifact| {
            let directory = Path::new(&artifact.manifest_path).parent()?.to_path_buf();
            Some(Program { path: artifact.executable?.into(), directory })
        });
        Ok(programs.collect())
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        // The project's lints are not meant for this.
        command
            .args(arguments)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints=allow");
        command
    }
}

#[derive(Deserialize)]
struct Message {
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    spans: Vec<DiagnosticSpan>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct DiagnosticSpan {
    file_name: String,
    byte_start: usize,
    is_primary: bool,
}

#[derive(Deserialize)]
struct Artifact {
    manifest_path: String,
    profile: Profile,
    executable: Option<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn with_switches(library: &[u8]) -> Vec<u8> {
    [library, SWITCHES.as_bytes()].concat()
}

/// What has not changed keeps its time, and need not be compiled again.
fn write_if_other(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().ok_or("a file has no directory")?)?;
    let is_script = path.extension().is_none();
    fs::write(path, bytes)?;
    if is_script {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
