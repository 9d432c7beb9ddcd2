//! One boot with exact time: repeating it gives the same results to the last byte.
//!
//! Time counts instructions, and nothing comes from outside. The root and the jobs are in memory from the start, and
//! results are written to the second serial line. So the host's load changes nothing.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use crate::cache::Cache;
use crate::cpio::Archive;
use crate::error::VmError;
use crate::guest::{self, GuestSpec, Line, descriptor, unnamed, unnamed_failed};
use crate::job::{self, Job, JobResult};
use crate::prepare::Pieces;
use crate::qemu::{self, Disks, Files, Hardware, Lane};
use crate::shape::Shape;
use crate::survey::Survey;

/// The results of one boot with exact time.
#[derive(Debug)]
pub struct ExactRun {
    /// The kernel's description of its machine.
    pub survey: Survey,
    /// The results of the jobs, in order.
    pub results: Vec<JobResult>,
    /// The lines of the console. They are equal if the boots are equal.
    pub console: Vec<String>,
}

/// Boots, runs `jobs` one after the other, and ends. The time limit is the sum of the limits of the boot and of all
/// jobs.
pub fn run(cache: &Cache, spec: &GuestSpec, jobs: &[Job]) -> Result<ExactRun, VmError> {
    let shape = Shape::of(&spec.machine)?;
    let pieces = Pieces::find(cache, &spec.given)?;
    let archive = initramfs(&pieces, jobs)?;
    let console = unnamed()?;
    let lane = Lane::Exact { shift: spec.instruction_shift };
    let hardware = Hardware { shape: &shape, memory_mib: spec.memory_mib, lane, kvm: false };
    let (archive_path, console_path) = (descriptor(&archive), descriptor(&console));
    let disks = Disks::Initramfs(&archive_path);
    let files = Files { kernel: &pieces.kernel.image, console: &console_path, disks };
    let command = qemu::command(&pieces.qemu, &hardware, &files, &spec.kernel_arguments);
    let mut line = Line::start(command, &[&archive], console, spec.stop)?;
    let timeout = jobs.iter().map(|job| job.timeout).sum::<Duration>() + spec.boot_timeout;
    let output = line.until_end(Instant::now() + timeout)?;
    let mut archives = archives(&output).into_iter();
    let survey = archives.next().ok_or_else(|| line.failure("ended during boot".into()))?;
    let survey = Survey::read(&job::unpack(GzDecoder::new(survey))?)?;
    survey.check(&spec.machine)?;
    let results =
        archives.map(GzDecoder::new).map(JobResult::read).collect::<Result<Vec<_>, _>>()?;
    if results.len() < jobs.len() {
        return Err(line.failure(format!("ended in job {}", results.len() + 1)));
    }
    Ok(ExactRun { survey, results, console: line.console_lines() })
}

/// Root, the guest's side of roost, and jobs: two archives in one file.
fn initramfs(pieces: &Pieces, jobs: &[Job]) -> Result<File, VmError> {
    let Some(root) = &pieces.initramfs else {
        return Err(VmError::Usage(
            "--exact needs the root as an archive: `roost vm prepare --root FILE` makes it, \
             then leave --root out"
                .into(),
        ));
    };
    let mut file = unnamed()?;
    let mut source = File::open(root).map_err(|error| VmError::file(root, &error))?;
    std::io::copy(&mut source, &mut file).map_err(|error| unnamed_failed(&error))?;
    let mut archive = Archive::new(BufWriter::new(&mut file));
    let write = |archive: &mut Archive<_>| -> Result<(), VmError> {
        for (name, bytes) in guest::first_files(pieces)? {
            // The kernel starts /init. The other files are where init looks for them.
            let place = if name == "init" { "init".to_owned() } else { format!("jobs/{name}") };
            if name != "init" {
                make_folders(archive, &place)?;
            }
            add(archive, &place, &bytes)?;
        }
        for (number, job) in jobs.iter().enumerate() {
            for (name, bytes) in job.files()? {
                let place = format!("jobs/{:04}/{name}", number + 1);
                make_folders(archive, &place)?;
                add(archive, &place, &bytes)?;
            }
        }
        make_folders(archive, "jobs/")?;
        archive.end().map_err(|error| unnamed_failed(&error))
    };
    write(&mut archive)?;
    drop(archive);
    file.flush().map_err(|error| unnamed_failed(&error))?;
    Ok(file)
}

fn add<W: Write>(archive: &mut Archive<W>, place: &str, bytes: &[u8]) -> Result<(), VmError> {
    archive.file(place.as_bytes(), 0o755, bytes).map_err(|error| unnamed_failed(&error))
}

/// Creates the folders above `place`. The kernel accepts folders that exist already.
fn make_folders<W: Write>(archive: &mut Archive<W>, place: &str) -> Result<(), VmError> {
    for (end, _) in place.match_indices('/') {
        let folder = archive.directory(place.as_bytes().get(..end).unwrap_or_default());
        folder.map_err(|error| unnamed_failed(&error))?;
    }
    Ok(())
}

/// The archives in the guest's output. Each follows a line with its size. An archive that is cut off is left out.
fn archives(output: &[u8]) -> Vec<&[u8]> {
    const ANSWER: &[u8] = b"roost: archive ";
    let mut archives = Vec::new();
    let mut rest = output;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, after) = rest.split_at(end + 1);
        rest = after;
        let Some(size) = line.strip_prefix(ANSWER) else { continue };
        let size = String::from_utf8_lossy(size).trim().parse::<usize>();
        let Some((archive, after)) = size.ok().and_then(|size| rest.split_at_checked(size)) else {
            break;
        };
        archives.push(archive);
        rest = after;
    }
    archives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_found_by_their_size() {
        let output = b"noise\nroost: archive 4\na\nb\nroost: ready\nroost: archive 2\nxyroost: archive 9\ncut";
        assert_eq!(archives(output), [b"a\nb\n".as_slice(), b"xy".as_slice()]);
        assert!(archives(b"").is_empty());
    }
}
