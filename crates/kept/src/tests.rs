//! Tests of kept files.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn key(text: &str) -> Key {
    Key::of(&[text.as_bytes()])
}

/// The files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn what_was_kept_is_there_for_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::at(&folder.path().join("new/kind"));
    assert_eq!(kept.get(&key("a")), None, "there is no folder yet");
    kept.keep(&key("a"), b"first");
    kept.keep(&key("b"), b"");
    assert_eq!(kept.get(&key("a")).as_deref(), Some(&b"first"[..]));
    assert_eq!(kept.get(&key("b")).as_deref(), Some(&b""[..]));
    assert_eq!(kept.get(&key("c")), None);
    kept.keep(&key("a"), b"second");
    assert_eq!(kept.get(&key("a")).as_deref(), Some(&b"second"[..]));
    assert_eq!(files(&folder.path().join("new/kind")).len(), 2, "nothing else is left");
}

#[test]
fn parts_of_a_key_do_not_run_together() {
    assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
    assert_ne!(Key::of(&[b"a"]), Key::of(&[b"a", b""]));
}

/// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
#[test]
fn the_hash_is_that_of_the_standard() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc"), hash);
}

#[test]
fn what_was_used_least_recently_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept { most_bytes: 3 * (HASH as u64 + 10), ..Kept::at(&folder.path().join("kind")) };
    let past = |name: &str, seconds| {
        kept.keep(&key(name), &[0; 10]);
        let file = File::options().append(true).open(kept.folder.join(&key(name).0)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    past("a", 30);
    past("b", 20);
    assert!(kept.get(&key("a")).is_some(), "now b is the one that was used least recently");
    kept.keep(&key("c"), &[0; 10]);
    kept.keep(&key("d"), &[0; 10]);
    assert!(kept.get(&key("b")).is_none());
    kept.keep(&key("large"), &[0; 200]);
    assert!(kept.get(&key("large")).is_none(), "it does not fit, and removes nothing");
    for name in ["a", "c", "d"] {
        assert!(kept.get(&key(name)).is_some(), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let kept = Kept::at(&file.join("kind"));
    kept.keep(&key("a"), b"first");
    assert_eq!(kept.get(&key("a")), None);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::at(&folder.path().join("kind"));
    kept.keep(&key("a"), b"first");
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&kept.folder, mode).unwrap();
    };
    set(0o777);
    assert_eq!(kept.get(&key("a")), None);
    kept.keep(&key("b"), b"second");
    set(0o700);
    assert_eq!(kept.get(&key("a")).as_deref(), Some(&b"first"[..]));
    assert_eq!(kept.get(&key("b")), None, "nothing was written there");
    // A file that others could write to while they could write to the folder.
    let file = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(kept.folder.join(&key("a").0), file).unwrap();
    assert_eq!(kept.get(&key("a")), None);
}

proptest! {
    /// A file with a wrong byte, or without its end, counts as missing.
    #[test]
    fn a_damaged_file_counts_as_missing(
        content in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::at(&folder.path().join("kind"));
        kept.keep(&key("a"), &content);
        let path = kept.folder.join(&key("a").0);
        let bytes = std::fs::read(&path).unwrap();
        let mut wrong = bytes.clone();
        wrong[at.index(bytes.len())] ^= flip;
        std::fs::write(&path, &wrong).unwrap();
        prop_assert_eq!(kept.get(&key("a")), None);
        std::fs::write(&path, &bytes[..at.index(bytes.len())]).unwrap();
        prop_assert_eq!(kept.get(&key("a")), None);
    }
}
