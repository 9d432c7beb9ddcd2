//! Fetches Debian packages with the host's apt, without touching the host's packages.
//!
//! apt runs with a configuration of its own: its own sources, lists, package status (empty) and downloads. From the
//! system's configuration, only `Acquire::*` (proxies), the mirror and the keyring are used. apt checks the signatures
//! of the index, and thereby each package.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::cache::Cache;
use crate::error::VmError;
use crate::tool;

/// The files with Debian's keys. They end in `.pgp` since Debian 13.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// The mirror that Debian recommends, for systems whose own sources name none.
const PUBLIC_MIRROR: &str = "http://deb.debian.org/debian";

/// A package that is about to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Size of the download in bytes.
    pub bytes: u64,
}

/// apt with a private configuration over some suites of Debian.
pub(crate) struct Apt {
    /// Configuration, sources, package status and downloads. They are removed when this is dropped.
    private: TempDir,
    /// Package lists, kept to fetch only what changed.
    lists: PathBuf,
    mirror: String,
    suites: &'static str,
}

impl Apt {
    /// apt over `suites`, with its index brought up to date.
    pub fn new(cache: &Cache, suites: &'static str) -> Result<Self, VmError> {
        for (tool, package) in [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg")] {
            tool::find(tool).ok_or(VmError::NoApt { tool, package })?;
        }
        let keyring =
            KEYRINGS.iter().find(|file| Path::new(file).is_file()).ok_or(VmError::NoApt {
                tool: "the keyring of Debian",
                package: "debian-archive-keyring",
            })?;
        let mirror = system_mirror()?;
        let lists = cache.apt().join(suites.replace(' ', "-"));
        let make =
            |dir: &Path| std::fs::create_dir_all(dir).map_err(|error| VmError::file(dir, &error));
        make(&lists.join("partial"))?;
        let private = tempfile::Builder::new().prefix(".incomplete-apt-").tempdir_in(cache.apt());
        let private = private.map_err(|error| VmError::file(&cache.apt(), &error))?;
        let apt = Self { private, lists, mirror, suites };
        make(&apt.dir("archives/partial"))?;
        make(&apt.dir("downloads"))?;
        make(&apt.dir("sources"))?;
        apt.write("status", "")?;
        apt.write("sources/debian.sources", &apt.sources(keyring))?;
        apt.write("config", &apt.configuration(&system_acquire()?))?;
        apt.update()?;
        Ok(apt)
    }

    /// The origin of the packages, for messages.
    pub fn origin(&self) -> String {
        format!("{}, {}", without_password(&self.mirror), self.suites)
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), VmError> {
        let path = self.dir(name);
        std::fs::write(&path, text).map_err(|error| VmError::file(&path, &error))
    }

    fn sources(&self, keyring: &str) -> String {
        format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64\n\
             Signed-By: {keyring}\n",
            self.mirror, self.suites
        )
    }

    /// apt reads this file before the system's configuration, and then reads only our parts and sources.
    fn configuration(&self, acquire: &str) -> String {
        let mut text = acquire.to_owned();
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(text, "{name} \"{value}\";");
        };
        let private = |name: &str| self.dir(name).display().to_string();
        set("Dir::Etc::parts", "/dev/null");
        set("Dir::Etc::main", "/dev/null");
        set("Dir::Etc::sourcelist", "/dev/null");
        set("Dir::Etc::preferences", "/dev/null");
        set("Dir::Etc::preferencesparts", "/dev/null");
        set("Dir::Etc::sourceparts", &private("sources"));
        set("Dir::State", &private("state"));
        set("Dir::State::status", &private("status"));
        set("Dir::State::lists", &self.lists.display().to_string());
        set("Dir::Cache", &private("cache"));
        set("Dir::Cache::archives", &private("archives"));
        // Without root, apt cannot switch to another user.
        set("APT::Sandbox::User", "");
        set("APT::Architecture", "amd64");
        set("APT::Architectures", "amd64");
        set("APT::Install-Recommends", "0");
        set("APT::Update::Error-Mode", "any");
        set("Acquire::Languages", "none");
        set("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "0");
        set("Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled", "0");
        set("Acquire::Retries", "3");
        text
    }

    fn command(&self, program: &'static str) -> Result<Command, VmError> {
        let mut command = tool::need(program, "apt")?;
        command.env("APT_CONFIG", self.dir("config")).current_dir(self.private.path());
        Ok(command)
    }

    fn update(&self) -> Result<(), VmError> {
        for dir in [self.dir("state"), self.dir("cache")] {
            std::fs::create_dir_all(&dir).map_err(|error| VmError::file(&dir, &error))?;
        }
        let mut command = self.command("apt-get")?;
        let result = tool::output(command.args(["update", "-q"]), "apt-get update");
        result.map(|_| ()).map_err(|error| self.offline("the package index", error))
    }

    fn offline(&self, what: &str, error: VmError) -> VmError {
        match error {
            VmError::Failed { reason, .. } => VmError::Offline {
                what: format!("{what} of {} from {}", self.suites, without_password(&self.mirror)),
                reason,
            },
            other => other,
        }
    }

    /// The names of all packages that begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, VmError> {
        let mut command = self.command("apt-cache")?;
        let text = tool::output(command.args(["pkgnames", prefix]), "apt-cache pkgnames")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// `packages` and all their dependencies, as for a system on which nothing is installed.
    pub fn closure(&self, packages: &[&str]) -> Result<Vec<Package>, VmError> {
        let mut command = self.command("apt-get")?;
        command.args(["install", "--print-uris", "-qq", "-y"]).args(packages);
        let text = tool::output(&mut command, "resolving packages")?;
        Ok(text.lines().filter_map(package).collect())
    }

    /// Exactly `packages`, without their dependencies.
    pub fn exactly(&self, packages: &[&str]) -> Result<Vec<Package>, VmError> {
        let mut command = self.command("apt-get")?;
        command.args(["download", "--print-uris", "-qq"]).args(packages);
        let text = tool::output(&mut command, "finding packages")?;
        Ok(text.lines().filter_map(package).collect())
    }

    /// Fetches `packages`, which apt checks, and unpacks them into `root` in the given order.
    pub fn unpack(&self, packages: &[Package], root: &Path) -> Result<(), VmError> {
        // The downloads are not in apt's own folder, because `closure` would leave out packages that are there.
        let archives = self.dir("downloads");
        let mut command = self.command("apt-get")?;
        command.args(["download", "-q"]).current_dir(&archives);
        command.args(packages.iter().map(|package| package.name.as_str()));
        tool::output(&mut command, "apt-get download")
            .map_err(|error| self.offline("packages", error))?;
        for package in packages {
            let file = archive(&archives, &package.name)?;
            let mut command = tool::need("dpkg-deb", "dpkg")?;
            let purpose = format!("unpacking {}", package.name);
            tool::output(command.arg("-x").arg(&file).arg(root), &purpose)?;
        }
        Ok(())
    }
}

/// The downloaded file of a package.
fn archive(archives: &Path, name: &str) -> Result<PathBuf, VmError> {
    let entries = std::fs::read_dir(archives).map_err(|error| VmError::file(archives, &error))?;
    let prefix = format!("{name}_");
    let mut files = entries.flatten().map(|entry| entry.path());
    let found = files.find(|file| {
        file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&prefix))
    });
    found.ok_or_else(|| VmError::Failed {
        tool: "apt-get download".into(),
        reason: format!("package {name} did not arrive"),
    })
}

/// Parses a line of `--print-uris`: `'URI' NAME_VERSION_ARCH.deb BYTES HASH`.
fn package(line: &str) -> Option<Package> {
    let mut words = line.strip_prefix('\'')?.split_whitespace().skip(1);
    let (file, bytes) = (words.next()?, words.next()?);
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    let version = version.replace("%3a", ":");
    Some(Package { name: name.to_owned(), version, bytes: bytes.parse().ok()? })
}

/// The system's own settings for downloads, such as proxies.
fn system_acquire() -> Result<String, VmError> {
    let mut command = tool::need("apt-config", "apt")?;
    let text = tool::output(command.args(["dump", "Acquire"]), "apt-config dump")?;
    // The empty first line opens the section, and would be read as a value.
    Ok(text.lines().filter(|line| line.contains("::")).map(|line| format!("{line}\n")).collect())
}

/// The Debian mirror in the system's own sources, or the public one.
fn system_mirror() -> Result<String, VmError> {
    let mut command = tool::need("apt-get", "apt")?;
    command.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    let text = tool::output(&mut command, "apt-get indextargets")?;
    Ok(debian_mirror(&text).unwrap_or_else(|| PUBLIC_MIRROR.to_owned()))
}

/// The first of some repositories that is a mirror of all of Debian: its path ends in `debian`.
fn debian_mirror(repositories: &str) -> Option<String> {
    let trimmed = repositories.lines().map(|line| line.trim().trim_end_matches('/'));
    trimmed.filter(|uri| uri.ends_with("/debian")).map(str::to_owned).next()
}

/// A mirror's address without name and password, to be shown.
fn without_password(uri: &str) -> String {
    match uri.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('@'))) {
        Some((scheme, Some((_, rest)))) => format!("{scheme}://{rest}"),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_apt_names_a_package() {
        let line = "'http://mirror.example/debian/pool/q.deb' \
                    qemu-system-x86_1%3a10.0.13+ds-0_amd64.deb 10278596 SHA256:00";
        let expected = Package {
            name: "qemu-system-x86".into(),
            version: "1:10.0.13+ds-0".into(),
            bytes: 10278596,
        };
        assert_eq!(package(line), Some(expected));
        assert_eq!(package("Reading package lists..."), None);
    }

    #[test]
    fn the_mirror_is_the_systems_own() {
        let text = "http://mirror.example/debian-security/\nhttp://mirror.example/debian/\n";
        assert_eq!(debian_mirror(text).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(debian_mirror("http://mirror.example/ubuntu/\n"), None);
        assert_eq!(
            without_password("https://me:key@mirror.example/debian"),
            "https://mirror.example/debian"
        );
    }
}
