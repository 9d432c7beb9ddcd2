//! `roost reproduce`: compares published figures with simulated ones.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use roost_report::HtmlFile;
use roost_reproduce::{Cache, Plan, QUICK_SEED, ReproduceError, Results, Study, Watch};

use crate::args::{ReproduceArgs, ReproduceFormat};
use crate::build;
use crate::error::{Error, print, tell};
use crate::look;
use crate::progress::{self, cores, minutes};

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// Runs the studies that `args` names, prints the result and writes the page.
pub fn run(args: &ReproduceArgs) -> Result<(), Error> {
    let html = args.html.as_deref().map(HtmlFile::create).transpose()?;
    if let Some(file) = &args.from {
        return show(args, &saved(file, &args.studies)?, html);
    }
    let studies = roost_reproduce::read_studies(&args.published)?;
    let others = Plan::of_nothing(studies.clone());
    let studies = roost_reproduce::chosen(studies, &args.studies)?;
    let cache = cache()?;
    let identity = build::identity();
    if args.list {
        return list(studies, &identity, &cache);
    }
    let files = Files::of(&args.docs)?;
    // This fails only if a handler is set already, which happens only in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let plan = Plan::new(studies, args.quick, &identity, Some(&cache))?;
    let results = carry_out(args, &plan, &cache)?;
    let complete: usize = results.studies.values().map(|study| study.run()).sum();
    show(args, &results, html)?;
    match complete == plan.rows() {
        true => {
            let nothing = roost_reproduce::results(&others, &Vec::new(), build::shown())?;
            files.write(results, nothing)
        }
        false => Err(Error::RowsLeft { complete, wanted: plan.rows() }),
    }
}

/// Prints results, and writes the page with charts if the user asked for it.
fn show(args: &ReproduceArgs, results: &Results, html: Option<HtmlFile>) -> Result<(), Error> {
    if let Some(html) = html {
        html.write(&roost_reproduce::html(results, &look::command()))?;
    }
    print(&match args.format {
        ReproduceFormat::Markdown => roost_reproduce::page(results),
        ReproduceFormat::Json => results.json(),
    })
}

/// The results that an earlier run wrote to `file`: of `studies`, or of all if none are named.
fn saved(file: &Path, studies: &[String]) -> Result<Results, Error> {
    let wrong = |problem: String| {
        let file = file.display();
        Error::Usage(format!("{file}: {problem}; name a results.json that `roost reproduce` wrote"))
    };
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let mut results = Results::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some(unknown) = studies.iter().find(|name| !results.studies.contains_key(*name)) {
        let problem = format!("{}: has no study named {unknown}; it has", file.display());
        let known = results.studies.into_keys().collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!("{problem} {known}")));
    }
    results.studies.retain(|name, _| studies.is_empty() || studies.contains(name));
    Ok(results)
}

/// Prints how long the runs will take, and makes them.
fn carry_out(args: &ReproduceArgs, plan: &Plan, cache: &Cache) -> Result<Results, Error> {
    let missing = plan.runs.iter().filter(|run| cache.get(&run.key).is_none());
    let (runs, seconds) = missing.fold((0, 0.0), |(runs, sum), run| (runs + 1, sum + run.seconds));
    let jobs = args.jobs.map_or_else(cores, usize::from);
    let part = match plan.quick {
        true => format!(", a tenth chosen by seed {QUICK_SEED}"),
        false => String::new(),
    };
    tell(&format!(
        "{} of {} rows{part}; {runs} of {} runs are to be made: about {} on {jobs} of the cores",
        plan.rows(),
        plan.all_rows(),
        plan.runs.len(),
        minutes(seconds / jobs.max(1) as f64),
    ));
    let bar = progress::of_estimate((seconds * 1000.0) as u64);
    let watch = Watch {
        stop: &STOP,
        ended: &|seconds| bar.inc((seconds * 1000.0) as u64),
        tell: &|message| bar.suspend(|| tell(message)),
    };
    let measured = roost_reproduce::carry_out(plan, Some(cache), jobs, &watch);
    bar.finish_and_clear();
    Ok(roost_reproduce::results(plan, &measured?, build::shown())?)
}

/// Lists the studies, one per line.
fn list(studies: Vec<Study>, identity: &str, cache: &Cache) -> Result<(), Error> {
    let mut out = String::new();
    for study in studies {
        let (name, question) = (study.name.clone(), study.question.clone());
        let plan = Plan::new(vec![study], false, identity, Some(cache))?;
        let seconds: f64 = plan.runs.iter().map(|run| run.seconds).sum();
        let time = minutes(seconds);
        out += &format!("{name:<14} {:>4} rows {time:>8} of a core  {question}\n", plan.rows());
    }
    print(&out)
}

fn cache() -> Result<Cache, Error> {
    let folder = roost_kept::folder_of_user().ok_or_else(|| {
        Error::Usage("no folder to keep runs in: set ROOST_CACHE to one".to_owned())
    })?;
    Ok(Cache::at(&folder.join("reproduce"))?)
}

/// The files results.md and results.json.
struct Files {
    page: PathBuf,
    json: PathBuf,
    /// What results.json says about studies that are not run now.
    earlier: Results,
}

impl Files {
    /// The files in the folder `docs`. Checks before any run that the folder can be written to.
    fn of(docs: &Path) -> Result<Self, Error> {
        roost_reproduce::can_write(docs)?;
        let json = docs.join("results.json");
        let earlier = match std::fs::read_to_string(&json) {
            Ok(text) => Results::parse(&text)
                .map_err(|error| ReproduceError::Results { file: json.clone(), error })?,
            Err(error) if error.kind() == ErrorKind::NotFound => Results::default(),
            Err(error) => return Err(ReproduceError::Unreadable { file: json, error }.into()),
        };
        Ok(Self { page: docs.join("results.md"), json, earlier })
    }

    /// Writes both files. `nothing` has the entries of studies that were never run.
    fn write(self, results: Results, nothing: Results) -> Result<(), Error> {
        let results = nothing.over(results.over(self.earlier));
        roost_reproduce::write_file(&self.json, &results.json())?;
        roost_reproduce::write_file(&self.page, &roost_reproduce::page(&results))?;
        Ok(())
    }
}
