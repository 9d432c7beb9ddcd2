//! `roost sweep`: runs a plan into one Parquet file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use roost_report::HtmlFile;
use roost_sweep::{Journal, Plan, Program, Progress, Spent, Watch};

use crate::args::{SweepArgs, SweepCommand};
use crate::build;
use crate::error::{Error, print, tell};
use crate::progress::{self, cores, minutes};

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// Runs a plan, or writes the page of a result.
pub fn run(args: &SweepArgs) -> Result<(), Error> {
    match (&args.command, &args.plan) {
        (Some(SweepCommand::Report { file, html }), _) => report(file, html.as_deref()),
        (None, Some(plan)) => sweep(args, plan),
        // Clap requires one of the two.
        (None, None) => Ok(()),
    }
}

/// Writes the page of a result.
fn report(file: &Path, html: Option<&Path>) -> Result<(), Error> {
    let page = html.map_or_else(|| file.with_extension("html"), Path::to_owned);
    let html = HtmlFile::create(&page)?;
    html.write(&roost_sweep::page(&roost_sweep::read(file)?)?)?;
    print(&format!("{}\n", page.display()))
}

fn sweep(args: &SweepArgs, file: &Path) -> Result<(), Error> {
    let plan = Plan::read(file)?;
    let result = args.output.clone().unwrap_or_else(|| file.with_extension("parquet"));
    let program = Program { identity: build::identity() };
    let Some(mut journal) = roost_sweep::begin(&result, &plan, &program, &build::this())? else {
        tell(&format!("note: {} has all {} runs already", result.display(), plan.len()));
        return Ok(());
    };
    plan.notes.iter().for_each(|note| tell(&format!("note: {note}")));
    // This fails only if a handler is set already, which happens only in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    carry_out(args, &plan, &mut journal)?;
    Ok(roost_sweep::finish(&result, &plan, journal, &build::this())?)
}

/// Makes the missing runs, and prints how long they took.
fn carry_out(args: &SweepArgs, plan: &Plan, journal: &mut Journal) -> Result<(), Error> {
    let (wanted, kept) = (plan.len(), journal.ended().len());
    let cells = plan.cells.len();
    let jobs = args.jobs.map_or_else(cores, usize::from);
    let kept = match kept {
        0 => String::new(),
        kept => format!(", of which {kept} are kept"),
    };
    tell(&format!("{wanted} runs of {cells} cells{kept}; {jobs} at the same time"));
    let bar = progress::of_sweep(wanted as u64);
    let ended = |progress: &Progress| {
        bar.set_position(progress.ended as u64);
        if let Some(seconds) = progress.seconds_left {
            bar.set_message(format!("{} left", minutes(seconds / jobs as f64)));
        }
        if let Some(line) = progress.line(plan) {
            // If the reader of standard output has gone away, the sweep continues.
            let _ = bar.suspend(|| print(&format!("{line}\n")));
        }
    };
    let begun = Instant::now();
    let watch = Watch { stop: &STOP, ended: &ended };
    let spent = roost_sweep::carry_out(plan, journal, jobs, &watch);
    bar.finish_and_clear();
    let Spent { runs, seconds } = spent?;
    let elapsed = begun.elapsed().as_secs_f64();
    tell(&format!("{runs} runs took {seconds:.2} s of a core, and all of it {elapsed:.2} s"));
    Ok(())
}
