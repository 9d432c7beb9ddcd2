//! The program `roost`: parses the arguments and calls the crates that do the work.

mod args;
mod build;
mod cells;
mod compare;
#[cfg(test)]
#[path = "../tests/docs/documented.rs"]
mod documented;
mod error;
mod lists;
mod live;
mod look;
mod machine;
mod man;
mod policy;
mod progress;
mod real;
mod reference;
mod reproduce;
mod resume;
mod scx;
mod sweep;
mod top;
mod traces;
mod validate;
mod vm;
mod workloads;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(Cli { command: Command::Machine(args) }) => {
            machine::run(&args).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Compare(args) }) => {
            compare::run(&args).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Sweep(args) }) => sweep::run(&args).map(|()| ExitCode::SUCCESS),
        Ok(Cli { command: Command::Policy(args) }) => {
            policy::run(&args.command).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Vm(args) }) => vm::run(&args.command),
        Ok(Cli { command: Command::Validate(args) }) => {
            validate::run(&args).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Scx(args) }) => scx::run(&args).map(|()| ExitCode::SUCCESS),
        Ok(Cli { command: Command::Reproduce(args) }) => {
            reproduce::run(&args).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Run(args) }) => live::run(&args),
        Ok(Cli { command: Command::Top(args) }) if args.counters => live::top(args.interval),
        Ok(Cli { command: Command::Top(args) }) => {
            top::run(args.interval).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Completions(args) }) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "roost", &mut script);
            error::print(&String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
        }
        Ok(Cli { command: Command::Man(args) }) => {
            man::write(&args.folder).map(|()| ExitCode::SUCCESS)
        }
        Err(error) => args::help_or_error(&error).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            for line in error.console() {
                error::tell(&format!("| {line}"));
            }
            error::tell(&error.to_string());
            error.exit_code()
        }
    }
}
