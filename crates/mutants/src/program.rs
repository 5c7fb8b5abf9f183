//! A copy of the workspace with a switch for each fault, and the programs built from it.

use crate::Outcome;
use crate::marks::fault_at;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The module that the switches call, appended to the root of each crate with faults.
const SWITCHES: &str = r#"

#[doc(hidden)]
pub mod __mutant {
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<u32> = OnceLock::new();

    /// Whether this fault is switched on.
    #[inline]
    pub fn on(number: u32) -> bool {
        let chosen = || std::env::var("MUTANT").ok().and_then(|number| number.parse().ok());
        *CHOSEN.get_or_init(|| chosen().unwrap_or(u32::MAX)) == number
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

/// The copy of the workspace, and the directory of its builds.
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
    /// out the `faulty` files, so that those that do not change keep their modification time.
    pub(crate) fn copy(directory: &Path, faulty: &BTreeSet<&str>) -> Outcome<Self> {
        let tree = directory.join("tree");
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()?;
        let listed = String::from_utf8(output.stdout)?;
        let files: BTreeSet<&str> = listed.split('\0').filter(|file| Path::new(file).is_file()).collect();
        for file in files {
            let (path, bytes) = (tree.join(file), fs::read(file)?);
            let has_switches = || fs::read(&path).is_ok_and(|present| present == with_switches(&bytes));
            let is_kept = faulty.contains(file) || (file.ends_with("src/lib.rs") && has_switches());
            if !is_kept || !path.exists() {
                write_if_changed(&path, &bytes)?;
            }
        }
        Ok(Self { tree, target: directory.join("target") })
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

    /// Runs this cargo command. Returns the faults that have compiler errors, each with its first
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
                found.extend(fault_at(&text, span.byte_start));
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
                Err(format!("the copy does not compile, for a reason other than a fault:\n{other_errors}")
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

    /// Builds these test programs of a package: `lib`, or the names of files in `tests`.
    pub(crate) fn programs(&self, package: &str, names: &[&str]) -> Outcome<Vec<Program>> {
        let mut arguments = vec!["test", "--no-run", "--message-format=json", "--package", package];
        for name in names {
            match *name {
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
        // Code with faults would fail the project's lints.
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
