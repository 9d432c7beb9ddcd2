//! The command line: nothing but arguments and calls.

mod args;
mod compare;
mod error;
mod machine;
mod schedulers;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Machine(args) => machine::run(&args),
        Command::Compare(args) => compare::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roost: {error}");
            error.exit_code()
        }
    }
}
