//! `roost run` and `roost top --counters`. Both start the live scheduler, which is a separate program (`scx_roost`).

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{ArgMatches, Args, FromArgMatches};
use roost_real::live;
use roost_settings::{Action, Invocation, Settings};

use crate::error::Error;

/// Arguments of `roost run`. `scx_roost` takes the same ones.
#[derive(Debug)]
pub struct RunArgs(Invocation);

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Invocation::from_matches(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RunArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
            .args(roost_settings::arguments())
            .after_help(roost_settings::after_help("roost run"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Replaces this process by `scx_roost`, which then handles signals and sets the exit status.
pub fn run(args: &RunArgs) -> Result<ExitCode, Error> {
    become_live(&args.0)
}

/// Shows what a running scheduler does.
pub fn top(interval: Duration) -> Result<ExitCode, Error> {
    become_live(&Invocation {
        action: Action::Top(interval),
        config: None,
        options: Settings::default(),
        stats: None,
        metrics: None,
        verbose: false,
        sysfs: None,
    })
}

fn become_live(invocation: &Invocation) -> Result<ExitCode, Error> {
    let program = live::find().map_err(|error| Error::NoLoader(error.to_string()))?;
    let failed = Command::new(&program).args(invocation.to_arguments()).exec();
    Err(Error::NoLoader(format!("{}: cannot be started: {failed}", program.display())))
}
