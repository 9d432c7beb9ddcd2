//! The files of this machine that a program asked for. What it loaded depends on them.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A program that asks for more files is not kept.
const MOST: usize = 10_000;

/// What tells without reading a file that nobody has changed it: device, inode, size, and the times of the last changes
/// of its content and of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp([u64; 3], [i64; 4]);

impl Stamp {
    fn of(about: &Metadata) -> Self {
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Self([about.dev(), about.ino(), about.size()], times)
    }
}

/// What a program found at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Input {
    Nothing,
    /// A folder that it may have listed.
    Folder(Stamp),
    /// A file, and the hash of its content once that is known.
    File(Stamp, Option<String>),
    /// Something that it only asked about, other than a file.
    Something,
}

/// What a program found, by path.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Inputs(BTreeMap<PathBuf, Input>);

impl Inputs {
    /// Notes that the program asked about a path.
    pub fn ask(&mut self, path: &Path) {
        self.note(path, |about| match about {
            Some(about) if about.is_file() => Input::File(Stamp::of(about), None),
            Some(_) => Input::Something,
            None => Input::Nothing,
        });
    }

    /// Notes that the program opened a path, or tried to.
    pub fn open(&mut self, path: &Path) {
        self.note(path, |about| match about {
            Some(about) if about.is_file() => Input::File(Stamp::of(about), None),
            Some(about) if about.is_dir() => Input::Folder(Stamp::of(about)),
            Some(_) => Input::Something,
            None => Input::Nothing,
        });
    }

    /// Processes and devices are left out: they are never the same twice.
    fn note(&mut self, path: &Path, input: impl FnOnce(Option<&Metadata>) -> Input) {
        if path.starts_with("/proc") || path.starts_with("/dev") || self.0.len() > MOST {
            return;
        }
        let input = input(std::fs::metadata(path).ok().as_ref());
        match self.0.get(path) {
            None | Some(Input::Something) => self.0.insert(path.to_owned(), input),
            Some(_) => None,
        };
    }

    /// These inputs with the hashes of all files. `None` if one has changed meanwhile, or cannot be read.
    pub fn hashed(mut self) -> Option<Self> {
        for (path, input) in &mut self.0 {
            if let Input::File(stamp, hash) = input {
                let content = std::fs::read(path).ok()?;
                *hash = Some(roost_kept::sha256(&content));
                if Stamp::of(&std::fs::metadata(path).ok()?) != *stamp {
                    return None;
                }
            }
        }
        (self.0.len() <= MOST).then_some(self)
    }

    /// Whether a program would find the same today.
    pub fn are_the_same(&self) -> bool {
        self.0.iter().all(|(path, input)| {
            let about = std::fs::metadata(path).ok();
            match (input, about) {
                (Input::Nothing, about) => about.is_none(),
                (Input::Something, about) => about.is_some_and(|about| !about.is_file()),
                (Input::Folder(stamp), about) => {
                    about.is_some_and(|about| about.is_dir() && Stamp::of(&about) == *stamp)
                }
                (Input::File(stamp, hash), Some(about)) => {
                    let has_hash = |content: Vec<u8>| Some(roost_kept::sha256(&content)) == *hash;
                    Stamp::of(&about) == *stamp || std::fs::read(path).is_ok_and(has_hash)
                }
                (Input::File(..), None) => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_until_a_file_has_another_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("read"), "1").unwrap();
        std::fs::create_dir(at("listed")).unwrap();
        std::fs::create_dir(at("asked")).unwrap();
        let mut inputs = Inputs::default();
        inputs.open(&at("read"));
        inputs.open(&at("missing"));
        inputs.open(&at("listed"));
        inputs.ask(&at("asked"));
        inputs.ask(&at("asked/missing"));
        let inputs = inputs.hashed().unwrap();
        let differs_after = |change: &dyn Fn(), back: &dyn Fn()| {
            assert!(inputs.are_the_same());
            change();
            assert!(!inputs.are_the_same());
            back();
        };
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let remove = |name: &str| std::fs::remove_file(at(name)).unwrap();
        // A file that is written again has other times, and the same content.
        differs_after(&|| write("read", "2"), &|| write("read", "1"));
        differs_after(&|| remove("read"), &|| write("read", "1"));
        differs_after(&|| write("missing", ""), &|| remove("missing"));
        differs_after(&|| write("asked/missing", ""), &|| remove("asked/missing"));
        write("asked/other", "");
        differs_after(&|| write("listed/new", ""), &|| {});
    }

    #[test]
    fn a_file_that_changes_while_the_program_runs_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let mut inputs = Inputs::default();
        inputs.open(&file);
        std::fs::write(&file, "22").unwrap();
        assert!(inputs.hashed().is_none());
    }

    #[test]
    fn processes_and_devices_are_left_out() {
        let mut inputs = Inputs::default();
        inputs.open(Path::new("/proc/meminfo"));
        inputs.ask(Path::new("/dev/null"));
        assert!(inputs.0.is_empty());
    }
}
