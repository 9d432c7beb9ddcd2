//! `roost vm` and `roost machine --on vm`: a stock kernel on an emulated machine.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use roost_machine::{DrawOptions, Machine};
use roost_vm::domains::{self, DomainComparison};
use roost_vm::{Cache, Given, Guest, GuestSpec, Job, Pieces, exact, terminal};
use serde_json::{Value, json};

use crate::args::{GuestArgs, MachineArgs, MachineFormat, PieceArgs, VmCommand, VmRunArgs};
use crate::error::{Error, print, tell};
use crate::machine;

/// The machine if none is named.
pub const DEFAULT_MACHINE: &str = "2n2l4c";

/// Runs `command`.
pub fn run(command: &VmCommand) -> Result<ExitCode, Error> {
    match command {
        VmCommand::Prepare(args) => prepare(args),
        VmCommand::Run(args) => run_command(args),
        VmCommand::Shell(args) => shell(args),
    }
}

fn prepare(args: &PieceArgs) -> Result<ExitCode, Error> {
    let cache = Cache::of_user()?;
    // If nobody reads the output, the work is finished anyway.
    Pieces::prepare(&cache, &given(args), &mut |line| {
        let _ = print(&format!("{line}\n"));
    })?;
    print(&format!("ready in {}; try: roost vm shell --machine 2n2l4c\n", cache.dir().display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The pieces that the user gives.
pub fn given(args: &PieceArgs) -> Given {
    let (kernel, qemu, root) = (args.kernel.clone(), args.qemu.clone(), args.root.clone());
    Given { kernel, qemu, root, addition: None }
}

fn spec(args: &GuestArgs) -> Result<GuestSpec, Error> {
    let mut spec = GuestSpec::new(&roost_machine::resolve(&args.machine)?);
    spec.given = given(&args.pieces);
    spec.memory_mib = args.memory;
    spec.boot_timeout = args.boot_timeout;
    Ok(spec)
}

/// Prints that a boot takes a while, if standard error is a terminal.
fn booting(spec: &GuestSpec) {
    if std::io::stderr().is_terminal() {
        tell(&format!("booting {}", spec.machine.name));
    }
}

fn run_command(args: &VmRunArgs) -> Result<ExitCode, Error> {
    let cache = Cache::of_user()?;
    let spec = spec(&args.guest)?;
    let job = Job::of(&args.command).within(args.timeout);
    booting(&spec);
    let result = match args.exact {
        false => Guest::boot(&cache, &spec)?.run(&job)?,
        true => {
            let run = exact::run(&cache, &spec, &[job])?;
            let nothing = || Error::Usage("the guest ran nothing".into());
            run.results.into_iter().next().ok_or_else(nothing)?
        }
    };
    std::io::stdout().write_all(&result.stdout).map_err(Error::Output)?;
    std::io::stderr().write_all(&result.stderr).map_err(Error::Output)?;
    Ok(ExitCode::from(u8::try_from(result.status).unwrap_or(u8::MAX)))
}

fn shell(args: &GuestArgs) -> Result<ExitCode, Error> {
    let spec = spec(args)?;
    booting(&spec);
    let guest = Guest::boot(&Cache::of_user()?, &spec)?;
    let (rows, columns) = terminal::size();
    let shell = guest.shell(rows, columns)?;
    let raw = terminal::RawTerminal::take();
    let result = shell.run(std::io::stdin(), &mut std::io::stdout());
    // Restores the terminal before an error is printed.
    drop(raw);
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Shows `machine` as a guest's kernel sees it, and the kernel's domains next to the model's.
pub fn show_machine(machine: &Machine, args: &MachineArgs) -> Result<(), Error> {
    let mut spec = GuestSpec::new(machine);
    spec.given.kernel.clone_from(&args.kernel);
    let cpu = machine::cpu(args, &spec.machine)?;
    booting(&spec);
    let guest = Guest::boot(&Cache::of_user()?, &spec)?;
    let seen = &guest.survey().machine;
    let comparison = domains::compare(guest.survey())?;
    print(&match args.format {
        MachineFormat::Text => {
            let drawn = roost_machine::draw(seen, DrawOptions { figures: false });
            format!("{drawn}\n{}", comparison.text(cpu))
        }
        MachineFormat::Json => machine::pretty(&as_json(&comparison)),
        MachineFormat::Csv => csv(&comparison),
    })?;
    match comparison.agrees() {
        true => Ok(()),
        false => Err(Error::Domains { machine: machine.name.clone() }),
    }
}

fn as_json(comparison: &DomainComparison) -> Value {
    let properties = comparison.properties.iter().map(|row| {
        json!({
            "cpu": row.cpu, "domain": row.domain, "name": row.name,
            "guest": row.guest, "model": row.model,
        })
    });
    json!({
        "kernel": comparison.release, "model": format!("fair@{}", comparison.version),
        "agrees": comparison.agrees(), "properties": properties.collect::<Vec<_>>(),
    })
}

fn csv(comparison: &DomainComparison) -> String {
    let rows = comparison.properties.iter().map(|row| {
        format!("{},{},{},\"{}\",\"{}\"\n", row.cpu, row.domain, row.name, row.guest, row.model)
    });
    std::iter::once("cpu,domain,name,guest,model\n".to_owned()).chain(rows).collect()
}
