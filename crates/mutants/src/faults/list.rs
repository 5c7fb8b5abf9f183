//! The list of faults in `crates/mutants/faults`: edits of the product, each with the runs of the lab that find it.

use crate::Outcome;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the list lies, from the root of the workspace.
const FOLDER: &str = "crates/mutants/faults";

/// A known fault of the product.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// Unique in the list, as `clht/lock-left-held`: its file's name comes first.
    pub(crate) name: String,
    /// What is wrong, in a sentence.
    #[serde(rename = "about")]
    _about: String,
    /// Each target of the lab that has to find it, with the seed of a run that did, if one is known.
    pub(crate) found: BTreeMap<String, String>,
    /// The edits that make the fault, all at once.
    #[serde(rename = "edit")]
    pub(crate) edits: Vec<Edit>,
}

/// One edit of a source file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The path from the root of the workspace. In the list, from the folder that the file names.
    pub(crate) file: String,
    /// The only function in which `text` is looked for.
    pub(crate) function: Option<String>,
    /// The text to replace, which has to be there exactly once. Any white space matches any other.
    pub(crate) text: String,
    /// The text that takes its place.
    #[serde(rename = "with")]
    pub(crate) replacement: String,
}

/// A file of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faults {
    folder: String,
    #[serde(rename = "fault")]
    faults: Vec<Fault>,
}

/// All faults, by file and in the order of each file. `root` is that of the workspace.
pub(crate) fn load(root: &Path) -> Outcome<Vec<Fault>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let (mut all, mut names) = (Vec::new(), BTreeSet::new());
    for path in paths {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a path is no text")?;
        let Faults { folder, faults } = toml::from_str(&fs::read_to_string(&path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        for mut fault in faults {
            fault.name = format!("{stem}/{}", fault.name);
            fault.edits.iter_mut().for_each(|edit| edit.file = format!("{folder}/{}", edit.file));
            if !names.insert(fault.name.clone()) {
                return Err(format!("two faults are called {}", fault.name).into());
            }
            all.push(fault);
        }
    }
    Ok(all)
}

/// The edits of these faults by file, each with the number of its fault.
pub(crate) fn by_file(faults: &[Fault]) -> BTreeMap<&str, Vec<(usize, &Edit)>> {
    let mut files: BTreeMap<&str, Vec<(usize, &Edit)>> = BTreeMap::new();
    for (number, fault) in faults.iter().enumerate() {
        for edit in &fault.edits {
            files.entry(&edit.file).or_default().push((number, edit));
        }
    }
    files
}
