//! The list of known faults in `crates/mutants/faults`: edits of the product, each with the runs of
//! the lab that find it.

use crate::Outcome;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folder of the list, from the root of the workspace.
const FOLDER: &str = "crates/mutants/faults";

/// A known fault: edits that inject it into the product.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// Unique name, for example `clht/lock-left-held`. It begins with the file's name.
    pub(crate) name: String,
    /// One sentence about what is wrong.
    #[serde(rename = "about")]
    _about: String,
    /// The targets of the lab that must find the fault. Each has the seed of a run that did, or an
    /// empty text. Or packages, each with the name of a test that must find it.
    pub(crate) found: BTreeMap<String, String>,
    /// The edits, which are applied together.
    #[serde(rename = "edit")]
    pub(crate) edits: Vec<Edit>,
}

/// One edit of a source file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Path from the root of the workspace. In the list: from the folder that the file names.
    pub(crate) file: String,
    /// The function that `text` must be in, if there is one.
    pub(crate) function: Option<String>,
    /// The text to replace. It must match exactly once; any white space matches any other.
    pub(crate) text: String,
    /// The replacement.
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

/// Loads all faults, by file, in the order of each file. `root` is the root of the workspace.
pub(crate) fn load(root: &Path) -> Outcome<Vec<Fault>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let (mut all, mut names) = (Vec::new(), BTreeSet::new());
    for path in paths {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a path is not valid UTF-8")?;
        let Faults { folder, faults } = toml::from_str(&fs::read_to_string(&path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        for mut fault in faults {
            fault.name = format!("{stem}/{}", fault.name);
            fault.edits.iter_mut().for_each(|edit| edit.file = format!("{folder}/{}", edit.file));
            if !names.insert(fault.name.clone()) {
                return Err(format!("two faults have the name {}", fault.name).into());
            }
            all.push(fault);
        }
    }
    Ok(all)
}

/// Groups the edits of these faults by file, each with the number of its fault.
pub(crate) fn by_file(faults: &[Fault]) -> BTreeMap<&str, Vec<(usize, &Edit)>> {
    let mut files: BTreeMap<&str, Vec<(usize, &Edit)>> = BTreeMap::new();
    for (number, fault) in faults.iter().enumerate() {
        for edit in &fault.edits {
            files.entry(&edit.file).or_default().push((number, edit));
        }
    }
    files
}
