//! Kernels: which versions the archive has, what a kernel file contains, and whether it can be used.

use std::path::{Path, PathBuf};

use crate::apt::{Apt, Package};
use crate::cache::{Cache, ORIGIN};
use crate::error::VmError;

/// Debian's suites that have newer kernels than the stable one.
pub(crate) const SUITES: &str = "trixie-backports sid";

/// Debian's small kernel for virtual machines. NVMe and ext4 are built in.
const FLAVOUR: &str = "-cloud-amd64";

/// The default version, if the archive has it: the newest that the simulation knows (`fair@7.2`).
pub const DEFAULT_VERSION: &str = "7.2";

/// Options without which a guest cannot boot, because it has no modules.
const NEEDED: [&str; 8] = [
    "BLK_DEV_NVME",
    "EXT4_FS",
    "DEVTMPFS",
    "TMPFS",
    "BLK_DEV_INITRD",
    "SERIAL_8250_CONSOLE",
    "DEBUG_FS",
    "SCHEDSTATS",
];

/// Options that decide what can be measured in a guest. Messages say whether they are set.
const TOLD: [&str; 5] =
    ["SCHED_CLASS_EXT", "SCHED_CACHE", "NUMA_BALANCING", "IRQ_TIME_ACCOUNTING", "DEBUG_INFO_BTF"];

/// The origin of a kernel that is not from a package.
const BY_HAND: &str = "given by hand";

/// A kernel that a guest can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The image (`vmlinuz`).
    pub image: PathBuf,
    /// The kernel's configuration, if it is known.
    pub config: Option<PathBuf>,
    /// The kernel's release, as shown by `uname -r`.
    pub release: String,
}

impl Kernel {
    /// The kernel that a user names: a file, or a version in the cache or its beginning.
    pub fn resolve(cache: &Cache, name: &str) -> Result<Self, VmError> {
        let path = Path::new(name);
        if path.is_file() {
            return Self::from_file(path);
        }
        if !is_version(name) {
            let problem = "there is no such file".to_owned();
            return Err(error(name, problem, "give a kernel image, or a version as 7.2".into()));
        }
        let versions = cache.kernel_versions();
        // A kernel that the user gave takes precedence.
        let own = cache.own_kernel().filter(|version| versions.contains(version));
        let mut known = own.iter().chain(versions.iter().rev());
        let Some(version) = known.find(|version| matches(version, name)) else {
            let have = match versions.is_empty() {
                true => "the cache has none".to_owned(),
                false => format!("the cache has {}", versions.join(", ")),
            };
            return Err(error(
                name,
                format!("no such file or version; {have}"),
                format!("fetch it with `roost vm prepare --kernel {name}`"),
            ));
        };
        let dir = cache.kernels().join(version);
        let config = Some(dir.join("config")).filter(|file| file.is_file());
        Ok(Self { image: dir.join("vmlinuz"), config, release: version.clone() })
    }

    /// Copies the user's kernel into the cache. It is the default kernel from now on.
    pub(crate) fn keep(self, cache: &Cache) -> Result<Self, VmError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
        if !is_version(&self.release) || !self.release.chars().all(plain) {
            let problem = format!("calls itself \"{}\"", self.release.escape_debug());
            let name = self.image.display().to_string();
            return Err(error(&name, problem, "a release begins with numbers, as 7.2.13".into()));
        }
        let place = cache.kernels().join(&self.release);
        if self.image != place.join("vmlinuz") {
            cache.complete(&place, |piece| {
                let copy = |from: &Path, name: &str| {
                    let copied = std::fs::copy(from, piece.join(name));
                    copied.map(drop).map_err(|error| VmError::file(from, &error))
                };
                copy(&self.image, "vmlinuz")?;
                self.config.as_deref().map_or(Ok(()), |config| copy(config, "config"))?;
                let origin = piece.join(ORIGIN);
                std::fs::write(&origin, format!("{BY_HAND}\n"))
                    .map_err(|error| VmError::file(&origin, &error))
            })?;
        }
        cache.set_own_kernel(Some(&self.release))?;
        Self::resolve(cache, &self.release)
    }

    /// Whether it is not a package of Debian's.
    pub(crate) fn is_given_by_hand(&self, cache: &Cache) -> bool {
        let origin = std::fs::read_to_string(origin(cache, self)).unwrap_or_default();
        origin.is_empty() || origin.starts_with(BY_HAND) || !self.image.starts_with(cache.kernels())
    }

    /// The user's kernel image. Its configuration is searched where distributions put it.
    pub fn from_file(image: &Path) -> Result<Self, VmError> {
        let image = std::path::absolute(image).map_err(|error| VmError::file(image, &error))?;
        let bytes = std::fs::read(&image).map_err(|error| VmError::file(&image, &error))?;
        let Some(release) = release(&bytes) else {
            return Err(error(
                &image.display().to_string(),
                "is no x86 kernel image".into(),
                "give a bzImage or vmlinuz file".into(),
            ));
        };
        let beside = |name: String| image.with_file_name(name);
        let places = [beside(format!("config-{release}")), beside("config".into())];
        let config = places.into_iter().find(|file| file.is_file());
        let kernel = Self { image, config, release };
        kernel.check()?;
        Ok(kernel)
    }

    /// Refuses a kernel without the options that a guest needs. Nothing is checked if its configuration is not known.
    fn check(&self) -> Result<(), VmError> {
        let Some(config) = &self.config else { return Ok(()) };
        let text =
            std::fs::read_to_string(config).map_err(|error| VmError::file(config, &error))?;
        let missing: Vec<&str> =
            NEEDED.iter().copied().filter(|option| !built_in(&text, option)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(error(
            &self.release,
            format!("CONFIG_{} is not built in", missing.join(", CONFIG_")),
            "take one of Debian's cloud kernels".into(),
        ))
    }

    /// Which of the important options the kernel has, as text.
    pub fn options(&self) -> String {
        let Some(config) = &self.config else {
            return "configuration not known (sched_ext schedulers that read it fail)".into();
        };
        let text = std::fs::read_to_string(config).unwrap_or_default();
        let told = TOLD.map(|option| {
            let sign = if built_in(&text, option) { "" } else { "no " };
            format!("{sign}{option}")
        });
        told.join(", ")
    }
}

fn error(name: &str, problem: String, remedy: String) -> VmError {
    VmError::Kernel { name: name.to_owned(), problem, remedy }
}

fn built_in(config: &str, option: &str) -> bool {
    let line = format!("CONFIG_{option}=y");
    config.lines().any(|other| other == line)
}

/// The release that a bzImage contains (Documentation/arch/x86/boot.rst: `kernel_version` at 0x20e is the place of a
/// string, counted from 0x200).
fn release(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let place = image.get(0x20e..0x210)?;
    let start = 0x200 + usize::from(u16::from_le_bytes([*place.first()?, *place.get(1)?]));
    let text = image.get(start..)?.split(|&byte| byte == 0 || byte == b' ').next()?;
    let text = std::str::from_utf8(text).ok()?;
    (!text.is_empty() && text.len() < 128).then(|| text.to_owned())
}

/// Whether `name` can be a version, and so is not a file.
pub(crate) fn is_version(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit()) && !name.contains('/')
}

/// Whether `version` is `wanted` or begins with its parts: 7.2.13+deb14 is a 7.2, but not a 7.21.
fn matches(version: &str, wanted: &str) -> bool {
    let rest = version.strip_prefix(wanted);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// The numbers by which versions are ordered.
pub(crate) fn version_key(version: &str) -> Vec<u32> {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Prefixes of the names of packages with a kernel image. The last one is unsigned; for a while, the newest versions
/// have only this package.
const IMAGES: [&str; 3] = ["linux-image-", "linux-binary-", "linux-binary-unsigned-"];

/// The version of the kernel image in a package.
fn packaged_version(package: &str) -> Option<&str> {
    let versions = IMAGES.iter().filter_map(|prefix| package.strip_prefix(prefix));
    versions.filter_map(|rest| rest.strip_suffix(FLAVOUR)).find(|version| is_version(version))
}

/// Fetches the newest kernel of a version. Returns the kernel.
pub(crate) fn fetch(cache: &Cache, apt: &Apt, wanted: Option<&str>) -> Result<Kernel, VmError> {
    let mut names = Vec::new();
    for prefix in IMAGES.into_iter().chain(["linux-base-"]) {
        names.extend(apt.names(prefix)?);
    }
    let version = choose(&names, wanted)?;
    let release = format!("{version}{FLAVOUR}");
    let place = cache.kernels().join(&release);
    if !place.is_dir() {
        let wanted = packages_of(&release, &names);
        let packages = apt.exactly(&wanted.iter().map(String::as_str).collect::<Vec<_>>())?;
        cache.complete(&place, |piece| unpack(apt, &packages, &release, piece))?;
    }
    let kernel = Kernel::resolve(cache, &release)?;
    kernel.check()?;
    Ok(kernel)
}

/// Those of the packages `names` that contain the image and the configuration; they differ between versions. For
/// versions whose source has left the suites, the archive keeps only the signed image, and the configuration is gone.
fn packages_of(release: &str, names: &[String]) -> Vec<String> {
    let package = |part: &str| format!("linux-{part}-{release}");
    let mut parts = vec![package("image"), package("binary"), package("base")];
    if !names.contains(&package("binary")) {
        parts.push(package("binary-unsigned"));
    }
    parts.retain(|part| names.contains(part));
    parts
}

/// The version to fetch: the newest one that was asked for.
fn choose(names: &[String], wanted: Option<&str>) -> Result<String, VmError> {
    let mut versions: Vec<&str> = names.iter().filter_map(|name| packaged_version(name)).collect();
    versions.sort_by_key(|version| version_key(version));
    versions.dedup();
    let newest = |wanted: &str| versions.iter().rev().find(|version| matches(version, wanted));
    let found = match wanted {
        Some(wanted) => newest(wanted),
        None => newest(DEFAULT_VERSION).or(versions.last()),
    };
    found.map(|&version| version.to_owned()).ok_or_else(|| {
        let remedy = format!("it has {}; or give a kernel file", versions.join(", "));
        error(wanted.unwrap_or("any"), "the archive does not have it".into(), remedy)
    })
}

/// Fills the folder of a kernel.
fn unpack(apt: &Apt, packages: &[Package], release: &str, piece: &Path) -> Result<(), VmError> {
    let tree = tempfile::tempdir_in(piece).map_err(|error| VmError::file(piece, &error))?;
    apt.unpack(packages, tree.path())?;
    for name in ["vmlinuz", "config"] {
        let modules = format!("usr/lib/modules/{release}/{name}");
        let unsigned = format!("{modules}.unsigned");
        let places = [format!("boot/{name}-{release}"), modules, unsigned];
        let file = places.iter().map(|place| tree.path().join(place)).find(|file| file.is_file());
        let place = piece.join(name);
        let Some(file) = file else {
            // The guest can run without the configuration.
            if name == "config" {
                continue;
            }
            let problem = format!("its packages hold no {name}");
            return Err(error(release, problem, "choose another version".into()));
        };
        std::fs::rename(file, &place).map_err(|error| VmError::file(&place, &error))?;
    }
    crate::prepare::write_origin(piece, packages)
}

/// The file in which a kernel of the cache says what it was made of.
pub(crate) fn origin(cache: &Cache, kernel: &Kernel) -> PathBuf {
    cache.kernels().join(&kernel.release).join(ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_newest_of_what_is_asked_for_is_chosen() {
        let names = names(&[
            "linux-image-7.2.9+deb13-cloud-amd64",
            "linux-binary-7.2.12+deb13-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64-dbg",
            "linux-image-7.21.1+deb13-cloud-amd64",
            "linux-image-cloud-amd64",
            "linux-image-7.2.13+deb14-amd64",
            "linux-binary-unsigned-7.4.1+deb14-cloud-amd64",
        ]);
        assert_eq!(choose(&names, Some("7.2")).unwrap(), "7.2.12+deb13");
        assert_eq!(choose(&names, None).unwrap(), "7.2.12+deb13");
        assert_eq!(choose(&names, Some("7.3.4")).unwrap(), "7.3.4+deb13");
        assert_eq!(choose(&names, Some("7.4")).unwrap(), "7.4.1+deb14");
        let error = choose(&names, Some("6.1")).unwrap_err().to_string();
        assert!(error.contains("7.2.9+deb13") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn without_the_default_version_the_newest_is_taken() {
        let names = names(&["linux-image-7.9.1-cloud-amd64", "linux-image-7.10.1-cloud-amd64"]);
        assert_eq!(choose(&names, None).unwrap(), "7.10.1");
    }

    #[test]
    fn an_unsigned_image_is_fetched_where_there_is_no_other() {
        let names = names(&[
            "linux-binary-7.2.1-cloud-amd64",
            "linux-binary-unsigned-7.2.1-cloud-amd64",
            "linux-base-7.2.1-cloud-amd64",
            "linux-binary-unsigned-7.3.1-cloud-amd64",
            "linux-binary-6.19.1-cloud-amd64",
        ]);
        let of = |release: &str| packages_of(release, &names);
        assert_eq!(
            of("7.2.1-cloud-amd64"),
            ["linux-binary-7.2.1-cloud-amd64", "linux-base-7.2.1-cloud-amd64"]
        );
        assert_eq!(of("7.3.1-cloud-amd64"), ["linux-binary-unsigned-7.3.1-cloud-amd64"]);
        assert_eq!(of("6.19.1-cloud-amd64"), ["linux-binary-6.19.1-cloud-amd64"]);
    }

    /// An image that contains only this release.
    fn image(release: &str) -> Vec<u8> {
        let mut image = vec![0_u8; 0x300];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x40_u16.to_le_bytes());
        let text = format!("{release} (x) #");
        image[0x240..0x240 + text.len()].copy_from_slice(text.as_bytes());
        image
    }

    #[test]
    fn a_kernel_given_by_hand_is_kept_and_meant_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(&dir.path().join("cache")).unwrap();
        let place = cache.kernels().join("7.2.13+deb14-cloud-amd64");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("vmlinuz"), "x").unwrap();
        let file = dir.path().join("bzImage");
        std::fs::write(&file, image("7.2.0-mine")).unwrap();
        let kept = Kernel::from_file(&file).unwrap().keep(&cache).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(kept.release, "7.2.0-mine");
        assert!(kept.image.starts_with(cache.dir()) && kept.image.is_file());
        // It takes precedence over newer versions, but only if it matches the version that was asked for.
        let release = |name| Kernel::resolve(&cache, name).unwrap().release;
        assert_eq!(release("7.2"), "7.2.0-mine");
        assert_eq!(release("7.2.13"), "7.2.13+deb14-cloud-amd64");
        assert!(kept.is_given_by_hand(&cache));
        std::fs::write(place.join(ORIGIN), "linux-base-7.2.13 7.2.13-1\n").unwrap();
        assert!(!Kernel::resolve(&cache, "7.2.13").unwrap().is_given_by_hand(&cache));
        cache.set_own_kernel(None).unwrap();
        assert_eq!(release("7.2"), "7.2.13+deb14-cloud-amd64");

        std::fs::write(&file, image("../../x")).unwrap();
        let error = Kernel::from_file(&file).unwrap().keep(&cache).unwrap_err().to_string();
        assert!(error.contains("calls itself"), "{error}");
    }

    #[test]
    fn an_image_tells_its_release() {
        assert_eq!(release(&image("7.2.13")).as_deref(), Some("7.2.13"));
        assert_eq!(release(b"#!/bin/sh"), None);
    }

    #[test]
    fn what_is_no_kernel_is_refused_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "x").unwrap();
        let error = Kernel::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("no x86 kernel image") && error.contains("bzImage"), "{error}");
        let cache = Cache::at(dir.path()).unwrap();
        let error = Kernel::resolve(&cache, "6.1").unwrap_err().to_string();
        assert!(error.contains("roost vm prepare --kernel 6.1"), "{error}");
        let error = Kernel::resolve(&cache, "./bzImage").unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn a_kernel_without_what_a_guest_needs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        std::fs::write(&config, "CONFIG_EXT4_FS=m\n# CONFIG_TMPFS is not set\n").unwrap();
        let kernel =
            Kernel { image: "vmlinuz".into(), config: Some(config), release: "1.0".into() };
        let error = kernel.check().unwrap_err().to_string();
        assert!(error.contains("CONFIG_EXT4_FS") && error.contains("CONFIG_TMPFS"), "{error}");
    }
}
