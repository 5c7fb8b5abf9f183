//! A copy of the workspace with mutants or faults, and the programs built from it.

use crate::Outcome;
use crate::list::Mutant;
use crate::rewrite::{mutant_at, rewrite};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The module that the switches call, appended to the root of each mutated crate.
const SWITCHES: &str = r#"

#[doc(hidden)]
pub mod __mutant {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static CHOSEN: OnceLock<(u32, Option<String>)> = OnceLock::new();
    static SEEN: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

    /// Whether this mutant is switched on. With MUTANTS_SEEN, records that the test reaches it.
    #[inline]
    pub fn on(number: u32) -> bool {
        let (chosen, seen_file) = CHOSEN.get_or_init(|| {
            let number = std::env::var("MUTANT").ok().and_then(|number| number.parse().ok());
            (number.unwrap_or(u32::MAX), std::env::var("MUTANTS_SEEN").ok())
        });
        if let Some(path) = seen_file {
            record_seen(number, path);
        }
        *chosen == number
    }

    #[cold]
    fn record_seen(number: u32, path: &str) {
        let seen = &SEEN[number as usize];
        // Load first: swaps by many threads would contend for the cache line.
        if !seen.load(Relaxed)
            && !seen.swap(true, Relaxed)
            && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
        {
            let _ = file.write_all(format!("{number}\n").as_bytes());
        }
    }
}
"#;

/// The arguments of cargo that build the lab.
pub(crate) const LAB: [&str; 3] = ["build", "--package", "terrace-lab"];

/// A test program, and the directory in which it must be started.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) directory: PathBuf,
}

pub(crate) struct Built {
    pub(crate) programs: Vec<Program>,
    /// Mutants that the programs do not have: they do not compile, or no switch is possible.
    pub(crate) left_out: BTreeSet<usize>,
}

pub(crate) struct Workspace {
    /// Path of the copy.
    tree: PathBuf,
    target: PathBuf,
}

/// A source file with switches: its path from the root of the workspace, and its text.
pub(crate) struct Switched {
    pub(crate) file: String,
    pub(crate) text: String,
}

impl Workspace {
    /// Copies the files of the workspace in the current directory that git does not ignore. Leaves
    /// out the `mutated` files, so that those that do not change keep their modification time.
    pub(crate) fn copy(directory: &Path, mutated: &BTreeSet<&str>) -> Outcome<Self> {
        let tree = directory.join("tree");
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()?;
        let listed = String::from_utf8(output.stdout)?;
        let files: BTreeSet<&str> = listed.split('\0').filter(|file| Path::new(file).is_file()).collect();
        for file in files {
            let (path, bytes) = (tree.join(file), fs::read(file)?);
            let has_switches = || fs::read(&path).is_ok_and(|present| present == with_switches(&bytes));
            let is_kept = mutated.contains(file) || (file.ends_with("src/lib.rs") && has_switches());
            if !is_kept || !path.exists() {
                write_if_changed(&path, &bytes)?;
            }
        }
        Ok(Self { tree, target: directory.join("target") })
    }

    /// Injects the mutants, and builds the tests of the package and of the packages in `ask`. If
    /// `only` is not empty, builds only those programs. Leaves out mutants that do not compile.
    pub(crate) fn build(
        &self,
        package: &str,
        mutants: &[Mutant],
        ask: &[String],
        only: &[String],
    ) -> Outcome<Built> {
        let mut left_out = BTreeSet::new();
        loop {
            self.inject(rewritten(mutants, &mut left_out)?)?;
            let broken = self.broken(&["check", "--package", package])?;
            if broken.is_empty() {
                break;
            }
            print_status(&format!("{} mutants do not compile; trying again without them", broken.len()));
            left_out.extend(broken.into_keys());
        }
        Ok(Built { programs: self.programs(package, ask, only)?, left_out })
    }

    /// Writes these files, and appends the module that the switches call to the roots of their
    /// crates.
    pub(crate) fn inject(&self, files: Vec<Switched>) -> Outcome<()> {
        let mut texts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for Switched { file, text } in files {
            let root = root_of(&file)?;
            if !texts.contains_key(&root) {
                texts.insert(root.clone(), fs::read(&root)?);
            }
            texts.insert(file, text.into_bytes());
        }
        for (file, text) in texts {
            let is_root = file == root_of(&file)?;
            let text = if is_root { with_switches(&text) } else { text };
            write_if_changed(&self.tree.join(file), &text)?;
        }
        Ok(())
    }

    /// Runs this cargo command. Returns the mutants that have compiler errors, each with its first
    /// error.
    pub(crate) fn broken(&self, arguments: &[&str]) -> Outcome<BTreeMap<usize, String>> {
        let output = self.cargo(&[arguments, &["--message-format=json"]].concat()).output()?;
        let mut broken = BTreeMap::new();
        let mut other_errors = String::new();
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
            let text = message.rendered.unwrap_or_default();
            if found.is_empty() && !message.spans.is_empty() {
                other_errors += &text;
            }
            for number in found {
                broken.entry(number).or_insert(text.clone());
            }
        }
        match output.status.success() {
            true => Ok(BTreeMap::new()),
            false if !broken.is_empty() => Ok(broken),
            false => {
                Err(format!("the copy does not compile, for a reason other than a mutant:\n{other_errors}")
                    .into())
            }
        }
    }

    /// Builds the lab's program if necessary; returns its path.
    pub(crate) fn lab(&self) -> Outcome<PathBuf> {
        let output =
            self.cargo(&[&LAB[..], &["--message-format=json"]].concat()).stderr(Stdio::inherit()).output()?;
        let built = String::from_utf8(output.stdout)?;
        let artifacts = built.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
        let program = artifacts.filter_map(|artifact| artifact.executable).next_back();
        Ok(program.filter(|_| output.status.success()).ok_or("the lab does not compile")?.into())
    }

    pub(crate) fn programs(&self, package: &str, ask: &[String], only: &[String]) -> Outcome<Vec<Program>> {
        let mut arguments = vec!["test", "--no-run", "--message-format=json", "--package", package];
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
        // Mutants would fail the project's lints.
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

/// Rewrites the files of these mutants, with a switch for each that is not in `left_out`. Adds
/// those for which no switch is possible.
fn rewritten(mutants: &[Mutant], left_out: &mut BTreeSet<usize>) -> Outcome<Vec<Switched>> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let of_file = by_file.entry(&mutant.file).or_default();
        if !left_out.contains(&number) {
            of_file.push((number, mutant));
        }
    }
    let mut files = Vec::new();
    for (file, mutants) in by_file {
        let rewritten = rewrite(&fs::read_to_string(file)?, &mutants)?;
        left_out.extend(rewritten.left_out);
        files.push(Switched { file: file.into(), text: rewritten.text });
    }
    Ok(files)
}

/// The root file of the crate that a file belongs to: its library's, or else its program's.
fn root_of(file: &str) -> Outcome<String> {
    let (folder, _) = file.rsplit_once("/src/").ok_or("a source file is outside of `src`")?;
    let mut roots = ["lib.rs", "main.rs"].iter().map(|name| format!("{folder}/src/{name}"));
    Ok(roots.find(|root| Path::new(root).is_file()).ok_or("a crate has neither a library nor a program")?)
}

fn with_switches(library: &[u8]) -> Vec<u8> {
    [library, SWITCHES.as_bytes()].concat()
}

/// Writes a file only if its content changes. Otherwise it keeps its modification time, and cargo
/// does not compile it again.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Outcome<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
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

pub(crate) fn print_status(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
