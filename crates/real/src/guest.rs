//! Measurements in guests. There is one boot per kernel, in which the schedulers take turns.

use std::time::Duration;

use roost_vm::{Cache, Guest, GuestSpec, Job, JobResult, Pieces, Survey, exact};

use crate::error::RealError;
use crate::knobs::Knobs;
use crate::measurement::{Contents, Measurement, SCRIPT_NAME, quoted};
use crate::result::Measured;

/// The result of a measurement, and the folder that it is read from.
#[derive(Debug)]
pub struct GuestResult {
    /// The result.
    pub measured: Measured,
    /// Keeps the folder.
    _job: JobResult,
}

/// How guests are used.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Whether time counts instructions.
    pub exact: bool,
    /// Real time that one measurement may take.
    pub timeout: Duration,
}

/// Runs `measurements` one after the other in one boot of `spec`. Passes the result of each to `done` (with exact time,
/// after all of them). If a workload needs programs that the usual root lacks, a root with them is built first.
pub fn measure(
    cache: &Cache,
    spec: &GuestSpec,
    lane: &Lane,
    measurements: &[Measurement<'_>],
    done: &mut dyn FnMut(GuestResult) -> Result<(), RealError>,
) -> Result<(), RealError> {
    let mut spec = spec.clone();
    spec.given.addition = measurements.iter().find_map(|one| one.workload.addition);
    Pieces::add(cache, &spec.given, &mut |line| eprintln!("roost: {line}"))?;
    match lane.exact {
        true => measure_exact(cache, &spec, lane, measurements, done),
        false => {
            let mut guest = Guest::boot(cache, &spec)?;
            let knobs = knobs(guest.survey());
            for measurement in measurements {
                let job = job(measurement, &knobs, lane.timeout)?;
                done(result(guest.run(&job)?, measurement)?)?;
            }
            Ok(())
        }
    }
}

/// With exact time, all jobs must exist when the guest starts, but the kernel's settings are known only after a boot.
/// If any settings must be looked up, an additional boot does that first.
fn measure_exact(
    cache: &Cache,
    spec: &GuestSpec,
    lane: &Lane,
    measurements: &[Measurement<'_>],
    done: &mut dyn FnMut(GuestResult) -> Result<(), RealError>,
) -> Result<(), RealError> {
    let any = measurements.iter().any(|measurement| !measurement.scheduler.settings.is_empty());
    let knobs = match any {
        true => knobs(Guest::boot(cache, spec)?.survey()),
        false => Knobs::default(),
    };
    let jobs = measurements.iter().map(|measurement| job(measurement, &knobs, lane.timeout));
    let run = exact::run(cache, spec, &jobs.collect::<Result<Vec<_>, _>>()?)?;
    for (job, measurement) in run.results.into_iter().zip(measurements) {
        done(result(job, measurement)?)?;
    }
    Ok(())
}

fn knobs(survey: &Survey) -> Knobs {
    Knobs::new(survey.settings.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn job(measurement: &Measurement<'_>, knobs: &Knobs, timeout: Duration) -> Result<Job, RealError> {
    let variables = measurement.variables();
    let export = |(name, value): &(_, String)| format!("export {name}={}\n", quoted(value));
    let exports = variables.iter().map(export);
    let script = exports.collect::<String>() + &format!("exec bash ./{SCRIPT_NAME}\n");
    let mut job = Job::script(script).within(timeout);
    for (name, contents) in measurement.files(knobs)? {
        job = match contents {
            Contents::Bytes(bytes) => job.with_bytes(&name, bytes),
            Contents::Copy(file) => job.with_file(&name, &file),
        };
    }
    Ok(job)
}

fn result(job: JobResult, measurement: &Measurement<'_>) -> Result<GuestResult, RealError> {
    let (workload, scheduler) = (&measurement.workload.name, &measurement.scheduler.name);
    let measured = Measured::check(&job.out(), workload, scheduler)?;
    Ok(GuestResult { measured, _job: job })
}

/// A guest like `base`, with the kernel that `scheduler` names, if it names one.
pub fn spec_for(base: &GuestSpec, version: Option<&str>) -> GuestSpec {
    let mut spec = base.clone();
    if let (Some(version), None) = (version, &spec.given.kernel) {
        spec.given.kernel = Some(version.to_owned());
    }
    spec
}
