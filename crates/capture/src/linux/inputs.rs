//! The files of this machine that a program asked for. What it loaded depends on them.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A program that asks for more files is not kept.
const MOST: usize = 10_000;

/// Figures of this machine that are never the same twice. What a program does with them is kept as it was.
const EVER_NEW: [&str; 4] = ["/proc/loadavg", "/proc/meminfo", "/proc/uptime", "/proc/vmstat"];

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
    /// Something else than a file that it asked about, or a file of `/proc`.
    Something,
    /// A folder that it may have listed, or a file that it asked about.
    Unchanged(Stamp),
    /// A file that it opened. Files of `/proc` have no stamp. The hash of the content comes last.
    Content(Option<Stamp>, Option<String>),
}

impl Input {
    fn is_there_again(&self, path: &Path) -> bool {
        let about = std::fs::metadata(path).ok();
        match (self, about) {
            (Self::Nothing, about) => about.is_none(),
            (Self::Something, about) => about.is_some(),
            (Self::Unchanged(stamp), about) => {
                about.is_some_and(|about| Stamp::of(&about) == *stamp)
            }
            (Self::Content(stamp, hash), Some(about)) => {
                let is_same = Some(Stamp::of(&about)) == *stamp;
                is_same || about.is_file() && hash.is_some() && content(path) == *hash
            }
            (Self::Content(..), None) => false,
        }
    }
}

/// The hash of a file's content.
fn content(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| roost_kept::sha256(&bytes))
}

/// What a program found, by path.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Inputs(BTreeMap<PathBuf, Input>);

impl Inputs {
    /// Notes that the program asked about a path.
    pub fn ask(&mut self, path: &Path) {
        if self.0.len() > MOST || self.0.contains_key(path) {
            return;
        }
        let input = match std::fs::metadata(path) {
            Ok(about) if about.is_file() && !path.starts_with("/proc") => {
                Input::Unchanged(Stamp::of(&about))
            }
            Ok(_) => Input::Something,
            Err(_) => Input::Nothing,
        };
        self.0.insert(path.to_owned(), input);
    }

    /// Notes that the program opened a path, or tried to.
    pub fn open(&mut self, path: &Path) {
        let known = matches!(self.0.get(path), Some(Input::Content(..)));
        if self.0.len() > MOST || known || EVER_NEW.iter().any(|name| path == Path::new(name)) {
            return;
        }
        let of_proc = path.starts_with("/proc");
        let input = match std::fs::metadata(path) {
            Ok(about) if about.is_file() => {
                Input::Content((!of_proc).then(|| Stamp::of(&about)), None)
            }
            Ok(about) if about.is_dir() && !of_proc => Input::Unchanged(Stamp::of(&about)),
            Ok(_) => Input::Something,
            Err(_) => Input::Nothing,
        };
        self.0.insert(path.to_owned(), input);
    }

    /// These inputs with the hashes of all files. `None` if one has changed meanwhile, or cannot be read.
    pub fn hashed(mut self) -> Option<Self> {
        for (path, input) in &mut self.0 {
            let Input::Content(stamp, hash) = input else { continue };
            if !std::fs::metadata(path).is_ok_and(|about| about.is_file()) {
                return None;
            }
            *hash = Some(content(path)?);
            let now = std::fs::metadata(path).ok()?;
            if stamp.is_some_and(|stamp| Stamp::of(&now) != stamp) {
                return None;
            }
        }
        (self.0.len() <= MOST).then_some(self)
    }

    /// Whether a program would find the same today.
    pub fn are_the_same(&self) -> bool {
        self.0.iter().all(|(path, input)| input.is_there_again(path))
    }

    /// The paths, for tests.
    #[cfg(test)]
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn inputs_are_the_same_until_a_file_has_another_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let remove = |name: &str| std::fs::remove_file(at(name)).unwrap();
        write("read", "1");
        write("asked", "1");
        for name in ["listed", "folder"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        // A kernel's clock for files may stand still for some ms.
        let old = SystemTime::now() - Duration::from_secs(10);
        for name in ["read", "asked", "listed"] {
            File::open(at(name)).unwrap().set_modified(old).unwrap();
        }
        let mut inputs = Inputs::default();
        for name in ["read", "missing", "listed"] {
            inputs.open(&at(name));
        }
        for name in ["asked", "folder", "folder/missing"] {
            inputs.ask(&at(name));
        }
        let inputs = inputs.hashed().unwrap();
        let differs_after = |change: &dyn Fn(), back: &dyn Fn()| {
            assert!(inputs.are_the_same());
            change();
            assert!(!inputs.are_the_same());
            back();
        };
        // A file that is written again has other times, and the same content.
        differs_after(&|| write("read", "2"), &|| write("read", "1"));
        differs_after(&|| remove("read"), &|| write("read", "1"));
        differs_after(&|| write("missing", ""), &|| remove("missing"));
        differs_after(&|| write("folder/missing", ""), &|| remove("folder/missing"));
        write("folder/other", "");
        assert!(inputs.are_the_same(), "nobody has listed it");
        differs_after(&|| write("listed/new", ""), &|| {
            remove("listed/new");
            File::open(at("listed")).unwrap().set_modified(old).unwrap();
        });
    }

    #[test]
    fn a_file_that_was_asked_about_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let mut inputs = Inputs::default();
        inputs.ask(&file);
        assert!(matches!(inputs.0[&file], Input::Unchanged(_)));
        std::fs::write(&file, "22").unwrap();
        assert!(!inputs.are_the_same());
        inputs.open(&file);
        assert!(matches!(inputs.0[&file], Input::Content(..)));
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

    /// Their times are those of the question, and their size is 0.
    #[test]
    fn files_of_proc_count_by_their_content() {
        let mut inputs = Inputs::default();
        inputs.open(Path::new("/proc/sys/kernel/ostype"));
        inputs.open(Path::new("/proc/meminfo"));
        inputs.open(Path::new("/dev/null"));
        inputs.ask(Path::new("/proc/sys/kernel/osrelease"));
        assert_eq!(inputs.0.len(), 3, "{inputs:?}");
        let inputs = inputs.hashed().unwrap();
        assert!(inputs.are_the_same());
        let linux = Some(roost_kept::sha256(b"Linux\n"));
        assert_eq!(inputs.0[Path::new("/proc/sys/kernel/ostype")], Input::Content(None, linux));
    }
}
