//! `roost scx`: shows what a sched_ext scheduler contains and needs.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use roost_capture::{CaptureError, Command};
use roost_kept::Kept;
use roost_scx::{Description, KernelTypes, Object, Program, describe};
use roost_simulate::SpecError;
use serde_json::{Value, json};

use crate::args::{ScxArgs, ScxFormat};
use crate::error::{Error, print, tell};
use crate::machine::pretty;

/// The scheduler of this project, whose object is built in.
const ROOST: &str = "roost";

/// The machine on which a program is started, unless the command line names another.
const MACHINE: &str = "zen3-2s";

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// Shows what `args` asks for.
pub fn run(args: &ScxArgs) -> Result<(), Error> {
    let program = match is_object(&args.file) {
        true => object(args)?,
        false => taken_over(args)?,
    };
    let description = describe(&program);
    print(&match args.format {
        ScxFormat::Text => text(&description),
        ScxFormat::Json => pretty(&as_json(&description)),
    })
}

/// Whether a name is that of an object, not of a program.
fn is_object(name: &str) -> bool {
    let path = Path::new(name);
    let is_named_so = path.extension().is_some_and(|extension| extension == "o");
    name == ROOST || is_named_so || (path.is_file() && Command::parse(name).is_err())
}

fn object(args: &ScxArgs) -> Result<Program, Error> {
    if args.machine.is_some() {
        return Err(Error::Usage(
            "--machine: only for a program; an object is the same on all".into(),
        ));
    }
    let file = Path::new(&args.file);
    let of_file = |error| named(file, error);
    let object = match args.file == ROOST {
        true => Object::roost(),
        false => Object::parse(&read(file)?),
    };
    let object = object.map_err(of_file)?;
    let kernel = match &args.btf {
        Some(file) => KernelTypes::parse(&file.display().to_string(), &read(file)?)
            .map_err(|error| named(file, error))?,
        None => KernelTypes::shipped().map_err(of_file)?,
    };
    Program::new(object, kernel).map_err(of_file)
}

/// What a scheduler's own program loads.
fn taken_over(args: &ScxArgs) -> Result<Program, Error> {
    if args.btf.is_some() {
        return Err(Error::Usage(
            "--btf: only for an object; a program gets the built-in types".into(),
        ));
    }
    let failed = |error: CaptureError| Error::from(SpecError::from(error));
    let command = Command::parse(&args.file).map_err(failed)?;
    let machine = roost_machine::resolve(args.machine.as_deref().unwrap_or(MACHINE))?;
    // This fails only if a handler is set already, which happens only in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let (limit, kept) = (roost_capture::LIMIT, Kept::captures());
    let loaded = roost_capture::capture(&command, &machine, limit, &STOP, kept.as_ref());
    let loaded = loaded.map_err(failed)?;
    let kernel = KernelTypes::shipped();
    let program = kernel.and_then(|kernel| Program::taken_over(&loaded, kernel));
    let program = program.map_err(|error| named(Path::new(&args.file), error))?;
    tell(
        "note: the program's loader chose the members of the kernel's structs, so those that are 0 are not listed",
    );
    tell(
        "note: what it does in user space after it attached its scheduler is missing in the simulation",
    );
    Ok(program)
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Usage(format!("{}: {error}", file.display())))
}

fn named(file: &Path, error: roost_scx::ScxError) -> Error {
    Error::Scx(format!("{}: {error}", file.display()))
}

fn text(about: &Description) -> String {
    let mut out = format!("{} for {}\n", about.scheduler, about.kernel);
    for (name, value) in &about.numbers {
        let _ = writeln!(out, "  {name} = {value:#x}");
    }
    table(
        &mut out,
        "hooks: instructions; instructions with all called functions",
        &about.hooks,
        |hook| (hook.name.clone(), format!("{:>6} {:>6}", hook.own, hook.all)),
    );
    table(&mut out, "other programs: instructions", &about.programs, |(section, own)| {
        (section.clone(), format!("{own:>6}"))
    });
    table(&mut out, "maps: bytes of key and value, entries", &about.maps, |map| {
        let sizes = format!("{:>6} {:>6} {:>6}", map.key_size, map.value_size, map.max_entries);
        (format!("{} ({})", map.name, map.kind), sizes)
    });
    table(&mut out, "kfuncs: calls in the code", &about.kfuncs, counted);
    table(&mut out, "helpers: calls in the code", &about.helpers, counted);
    table(&mut out, "settings", &about.settings, |setting| {
        let fixed = if setting.constant { "" } else { "  (changes as it runs)" };
        (setting.name.clone(), format!("{} = {}{fixed}", setting.of, setting.value))
    });
    let line = |name: &String| (name.clone(), String::new());
    table(&mut out, "optional, and missing in this kernel", &about.optional, line);
    table(&mut out, "missing in this kernel", &about.missing, line);
    table(&mut out, "missing in the simulation: it cannot run there", &about.lacks, line);
    table(
        &mut out,
        "refused by the kernel: it cannot run in the simulation either",
        about.refused.as_slice(),
        line,
    );
    table(&mut out, "hooks that the simulation never calls", &about.uncalled, line);
    table(
        &mut out,
        "kernel fields that it reads, and that are always 0 in the simulation",
        &about.unfilled,
        line,
    );
    out
}

fn counted((name, calls): &(String, usize)) -> (String, String) {
    (name.clone(), format!("{calls:>6}"))
}

/// Writes a heading and one row per item. Writes nothing if there are no items.
fn table<T>(out: &mut String, heading: &str, items: &[T], row: impl Fn(&T) -> (String, String)) {
    let rows: Vec<(String, String)> = items.iter().map(row).collect();
    let Some(width) = rows.iter().map(|(name, _)| name.len()).max() else { return };
    let _ = writeln!(out, "\n{heading}");
    for (name, rest) in rows {
        let _ = writeln!(out, "{}", format!("  {name:<width$}  {rest}").trim_end());
    }
}

fn as_json(about: &Description) -> Value {
    let list = |rows: &[(String, usize)], value: &str| -> Value {
        rows.iter().map(|(name, count)| json!({"name": name, value: count})).collect()
    };
    let hooks = about.hooks.iter().map(|hook| {
        json!({"name": hook.name, "function": hook.function, "instructions": hook.own,
               "instructions_reachable": hook.all})
    });
    let maps = about.maps.iter().map(|map| {
        json!({"name": map.name, "kind": map.kind.to_string(), "key_bytes": map.key_size,
               "value_bytes": map.value_size, "max_entries": map.max_entries, "flags": map.flags})
    });
    let settings = about.settings.iter().map(|setting| {
        // Every value fits in 64 bits, signed or unsigned.
        let value = u64::try_from(setting.value)
            .map_or_else(|_| Value::from(setting.value as i64), Value::from);
        json!({"name": setting.name, "type": setting.of, "value": value,
               "constant": setting.constant})
    });
    let numbers: serde_json::Map<String, Value> =
        about.numbers.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
    json!({
        "scheduler": about.scheduler, "kernel": about.kernel, "numbers": numbers,
        "hooks": hooks.collect::<Value>(), "programs": list(&about.programs, "instructions"),
        "maps": maps.collect::<Value>(), "kfuncs": list(&about.kfuncs, "calls"),
        "helpers": list(&about.helpers, "calls"), "settings": settings.collect::<Value>(),
        "optional": about.optional, "missing": about.missing,
        "simulation": {"missing": about.lacks, "refused": about.refused, "uncalled_hooks": about.uncalled,
                       "zero": about.unfilled},
    })
}
