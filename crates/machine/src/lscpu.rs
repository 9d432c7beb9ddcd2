//! Machines from text that people paste: `lscpu -p=CPU,CORE,SOCKET,NODE,CACHE`, plain `lscpu -p`,
//! or `lscpu -J -e`, with or without the output of `numactl -H` after it.
//!
//! lscpu says which CPUs share what. It gives no sizes of caches, no memory and no distances.
//! numactl gives the last two.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES};
use crate::error::{MachineError, shown};

const REMEDY: &str = "give the output of `lscpu -p=CPU,CORE,SOCKET,NODE,CACHE` or `lscpu -J -e`, \
                      with that of `numactl -H` behind it if there is one";

/// An error, with its line.
struct Fault {
    line: usize,
    problem: String,
}

type Read<T> = Result<T, Fault>;

fn fault<T>(line: usize, problem: impl Into<String>) -> Read<T> {
    Err(Fault { line, problem: problem.into() })
}

/// Whether a text begins like one of these outputs.
pub(crate) fn is_lscpu(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    first.starts_with("# The following is the parsable format")
        || first.starts_with("# CPU,")
        || (first.trim_start().starts_with('{') && text.contains("\"cpus\""))
}

/// Reads the text of a file. `name` is its name in messages and the machine's name.
pub fn parse(text: &str, name: &str) -> Result<Machine, MachineError> {
    let failed = |fault: Fault| MachineError::Text {
        file: shown(name),
        line: fault.line,
        problem: fault.problem,
        remedy: REMEDY,
    };
    let mut description = describe(text).map_err(failed)?;
    description.name = shown(name);
    description.build().map_err(|problem| MachineError::Text {
        file: shown(name),
        line: 1,
        problem: problem.what,
        remedy: problem.remedy,
    })
}

fn describe(text: &str) -> Read<Description> {
    let lines: Vec<&str> = text.lines().collect();
    let is_numactl = |line: &&str| line.starts_with("available: ");
    let numactl = lines.iter().position(is_numactl).unwrap_or(lines.len());
    let (lscpu, numactl) = (&lines[..numactl], (numactl, &lines[numactl..]));
    let mut rows = match lscpu.iter().any(|line| line.trim_start().starts_with('{')) {
        true => json_rows(&lscpu.join("\n"))?,
        false => csv_rows(lscpu)?,
    };
    let mut description = Description::default();
    note_lacking(&mut rows, &mut description);
    let mut offline = Vec::new();
    for row in rows {
        if row.online {
            description.cpus.push(row.cpu);
        } else {
            offline.push(row.cpu.os_index);
        }
        if description.cpus.len() > MAX_CPUS {
            return fault(row.line, format!("more than {MAX_CPUS} CPUs"));
        }
    }
    for cpu in &description.cpus {
        if let Some(node) = cpu.node {
            description.nodes.insert(node, None);
        }
    }
    if !offline.is_empty() {
        let list = crate::build::list(offline.into_iter());
        description.guess("offline-cpus", format!("CPUs {list} are left out"));
    }
    read_numactl(numactl.0, numactl.1, &mut description)?;
    Ok(description)
}

/// One CPU.
struct Row {
    line: usize,
    cpu: CpuDescription,
    online: bool,
    /// It has numbers of caches, but not of the last one.
    lacks_last_cache: bool,
}

/// Adds numbers of caches, from the first level on. The last one is the LLC, and an L2 below it is
/// a cluster.
fn add_caches(row: &mut Row, caches: &[Option<u32>]) {
    let last = caches.iter().rposition(Option::is_some);
    row.cpu.llc = last.and_then(|last| caches[last]);
    row.lacks_last_cache = last.is_some_and(|last| last + 1 < caches.len());
    // The order is L1d, L1i, L2, L3. With fewer columns there is no L2 below the LLC.
    let has_cluster = caches.len() >= 4 && !row.lacks_last_cache;
    row.cpu.cluster = if has_cluster { caches[caches.len() - 2] } else { None };
}

/// CPUs without a number in the column of the last cache have the cache below as their LLC. If
/// other CPUs have a number there, the numbers of both caches cannot be compared, and these CPUs
/// get no LLC.
fn note_lacking(rows: &mut [Row], description: &mut Description) {
    let lacking = |row: &&Row| row.lacks_last_cache;
    if !rows.iter().any(|row| row.lacks_last_cache) {
        return;
    }
    let list = crate::build::list(rows.iter().filter(lacking).map(|row| row.cpu.os_index));
    let all = rows.iter().all(|row| row.lacks_last_cache);
    if all {
        let assumed =
            format!("CPUs {list} have no number of the last cache: the one below is the LLC");
        return description.guess("no-l3-cache", assumed);
    }
    for row in rows.iter_mut().filter(|row| row.lacks_last_cache) {
        row.cpu.llc = None;
    }
    description.guess("no-l3-cache", format!("CPUs {list} have no number of the last cache"));
}

/// The rows of `lscpu -p`. A line that starts with "# CPU" names the columns.
fn csv_rows(lines: &[&str]) -> Read<Vec<Row>> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let line_number = index + 1;
        if let Some(header) = line.strip_prefix("# ") {
            if header.to_ascii_lowercase().starts_with("cpu") {
                columns = header.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
            }
            continue;
        }
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if columns.is_empty() {
            return fault(line_number, "no line that names the columns, as \"# CPU,Core,Socket\"");
        }
        rows.push(csv_row(line_number, line, &columns)?);
    }
    if rows.is_empty() {
        return fault(1, "no CPU in it");
    }
    Ok(rows)
}

fn csv_row(line_number: usize, line: &str, columns: &[String]) -> Read<Row> {
    let mut row = Row {
        line: line_number,
        cpu: CpuDescription::default(),
        online: true,
        lacks_last_cache: false,
    };
    let mut caches = Vec::new();
    let mut has_number = false;
    for (name, text) in columns.iter().zip(line.split(',')) {
        let text = text.trim();
        match name.as_str() {
            "cpu" => {
                let Some(number) = number(line_number, text)? else { continue };
                row.cpu.os_index = number;
                has_number = true;
            }
            "core" => row.cpu.core = number(line_number, text)?,
            "socket" => row.cpu.package = number(line_number, text)?,
            "node" => row.cpu.node = number(line_number, text)?,
            "online" => row.online = !text.eq_ignore_ascii_case("n"),
            // CACHE is one column, with numbers separated by colons. By default each cache has its
            // own column.
            name if name.starts_with("l1") || name == "cache" => {
                for cache in text.split(':') {
                    caches.push(number(line_number, cache)?);
                }
            }
            "l2" | "l3" | "l4" => caches.push(number(line_number, text)?),
            _ => {}
        }
    }
    if !has_number {
        return fault(line_number, "a row without the number of a CPU");
    }
    add_caches(&mut row, &caches);
    Ok(row)
}

/// A number. lscpu leaves it empty, or writes "-", if it does not know.
fn number(line: usize, text: &str) -> Read<Option<u32>> {
    match text.trim() {
        "" | "-" => Ok(None),
        text => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => fault(line, format!("\"{}\" instead of a number", shown(text))),
        },
    }
}

/// The rows of `lscpu -J -e`.
fn json_rows(text: &str) -> Read<Vec<Row>> {
    let document: Value = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => return fault(error.line().max(1), error.to_string()),
    };
    let Some(cpus) = document["cpus"].as_array() else {
        return fault(1, "no list \"cpus\" in it");
    };
    cpus.iter().map(json_row).collect()
}

fn json_row(cpu: &Value) -> Read<Row> {
    // Newer versions write numbers, older ones strings.
    let number = |key: &str| match &cpu[key] {
        Value::Number(number) => Ok(number.as_u64().and_then(|number| u32::try_from(number).ok())),
        Value::String(text) => number(1, text),
        _ => Ok(None),
    };
    let Some(os_index) = number("cpu")? else { return fault(1, "a CPU without a number") };
    let online = match &cpu["online"] {
        Value::Bool(online) => *online,
        Value::String(online) => !online.starts_with('n'),
        _ => true,
    };
    let described = CpuDescription {
        os_index,
        core: number("core")?,
        package: number("socket")?,
        node: number("node")?,
        ..CpuDescription::default()
    };
    let mut row = Row { line: 1, cpu: described, online, lacks_last_cache: false };
    let caches = cpu.as_object().and_then(|cpu| cpu.iter().find(|(key, _)| key.starts_with("l1")));
    if let Some(text) = caches.and_then(|(_, caches)| caches.as_str()) {
        let numbers = text.split(':').map(|text| self::number(1, text));
        add_caches(&mut row, &numbers.collect::<Read<Vec<_>>>()?);
    }
    Ok(row)
}

/// Memory and distances of nodes from `numactl -H`.
fn read_numactl(first: usize, lines: &[&str], description: &mut Description) -> Read<()> {
    let mut columns: Option<Vec<u32>> = None;
    let mut rows = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        let line_number = first + index + 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["node", "distances:", ..] => columns = Some(Vec::new()),
            ["node", numbers @ ..] if columns.is_some() => {
                columns =
                    Some(numbers.iter().map(|text| known(line_number, text)).collect::<Read<_>>()?);
            }
            ["node", node, "size:", mib, "MB"] => {
                let (node, mib) = (known(line_number, node)?, known(line_number, mib)?);
                description.nodes.insert(node, Some(u64::from(mib) << 20));
            }
            ["node", node, "cpus:", cpus @ ..] => {
                let node = known(line_number, node)?;
                description.nodes.entry(node).or_insert(None);
                for text in cpus {
                    let number = known(line_number, text)?;
                    let cpu = description.cpus.iter_mut().find(|cpu| cpu.os_index == number);
                    if let Some(cpu) = cpu {
                        cpu.node = cpu.node.or(Some(node));
                    }
                }
            }
            [from, distances @ ..] if columns.is_some() && from.ends_with(':') => {
                let from = known(line_number, from.trim_end_matches(':'))?;
                let row = distances.iter().map(|text| known(line_number, text));
                rows.insert(from, row.collect::<Read<Vec<u32>>>()?);
            }
            _ => {}
        }
        if description.nodes.len() > MAX_NODES {
            return fault(line_number, format!("more than {MAX_NODES} nodes"));
        }
    }
    for (from, row) in rows {
        for (&to, distance) in columns.iter().flatten().zip(row) {
            description.distances.insert((from, to), distance);
        }
    }
    Ok(())
}

/// A number that must be present.
fn known(line: usize, text: &str) -> Read<u32> {
    match number(line, text)? {
        Some(number) => Ok(number),
        None => fault(line, "a number is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores with two threads, and an L3 per socket. Linux numbers the first
    /// threads first.
    const COLUMNS: &str = "# The following is the parsable format, which can be fed to other\n\
         # programs. Each different item in every column has an unique ID\n\
         # starting usually from zero.\n";

    fn rows(cpus: impl Iterator<Item = u32>, caches: &str) -> String {
        let row = |cpu: u32| {
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            let caches = caches.replace("CORE", &core.to_string());
            format!(
                "{cpu},{core},{socket},{socket},{}\n",
                caches.replace("L3", &socket.to_string())
            )
        };
        cpus.map(row).collect()
    }

    const NUMACTL: &str = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 4 5\nnode 0 size: 1024 MB\n\
         node 0 free: 8 MB\nnode 1 cpus: 2 3 6 7\nnode 1 size: 2048 MB\nnode 1 free: 8 MB\n\
         node distances:\nnode   0   1 \n  0:  10  32 \n  1:  32  10 \n";

    fn is_the_machine(machine: &Machine) {
        assert_eq!((machine.nr_cpus(), machine.cores.len(), machine.llcs.len()), (8, 4, 2));
        assert_eq!((machine.packages, machine.nodes.len()), (2, 2));
        assert_eq!(machine.siblings(1).to_string(), "1,5");
        assert_eq!(machine.llcs[1].cpus.to_string(), "2-3,6-7");
    }

    #[test]
    fn a_column_of_caches_and_one_column_for_each_are_the_same_machine() {
        let one = format!("{COLUMNS}# CPU,Core,Socket,Node,L1d:L1i:L2:L3\n");
        let machine = parse(&(one + &rows(0..8, "CORE:CORE:CORE:L3")), "cpus").unwrap();
        is_the_machine(&machine);
        assert_eq!(machine.distances[0][1], 20);
        let each = format!("{COLUMNS}# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n");
        let machine = parse(&(each + &rows(0..8, ",CORE,CORE,CORE,L3")), "cpus").unwrap();
        is_the_machine(&machine);
        assert!(machine.guesses.iter().any(|guess| guess.name == "no-memory-size"));
    }

    /// As on virtual machines that report no L3, or only for one of two sockets.
    #[test]
    fn an_empty_column_of_the_last_cache_is_reported() {
        let text = |l3: &dyn Fn(u32) -> &'static str| {
            let rows: String = (0..4)
                .map(|cpu| format!("{cpu},{cpu},0,0,,{cpu},{cpu},{},{}\n", cpu / 2, l3(cpu)))
                .collect();
            format!("{COLUMNS}# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n{rows}")
        };
        let guess = |machine: &Machine| {
            let guess = machine.guesses.iter().find(|guess| guess.name == "no-l3-cache");
            guess.map(|guess| guess.assumed.clone())
        };
        let machine = parse(&text(&|_| ""), "cpus").unwrap();
        assert_eq!(machine.llcs.len(), 2, "the L2s");
        let assumed = guess(&machine).unwrap();
        assert!(
            assumed.starts_with("CPUs 0-3 have no number") && assumed.ends_with("LLC"),
            "{assumed}"
        );
        // The L2 of CPUs 2 and 3 has the same number as the L3 of the others.
        let machine = parse(&text(&|cpu| if cpu < 2 { "1" } else { "" }), "cpus").unwrap();
        assert_eq!(machine.llcs.len(), 2, "one of CPUs 0 and 1, one of the others");
        assert!(guess(&machine).unwrap().starts_with("CPUs 2-3 have no number"));
        assert_eq!(guess(&parse(&text(&|_| "0"), "cpus").unwrap()), None);
    }

    #[test]
    fn numactl_adds_memory_and_distances() {
        let lscpu =
            format!("# CPU,Core,Socket,Node,L1d:L1i:L2:L3\n{}", rows(0..8, "CORE:CORE:CORE:L3"));
        let machine = parse(&(lscpu + NUMACTL), "cpus").unwrap();
        is_the_machine(&machine);
        assert_eq!(machine.distances, [[10, 32], [32, 10]]);
        assert_eq!(machine.nodes[1].memory_bytes, Some(2 << 30));
    }

    #[test]
    fn json_is_read_with_numbers_and_with_strings() {
        let row = |cpu: u32, quote: &str| {
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            format!(
                "{{\"cpu\": {quote}{cpu}{quote}, \"node\": {quote}{socket}{quote}, \
                 \"socket\": {quote}{socket}{quote}, \"core\": {quote}{core}{quote}, \
                 \"l1d:l1i:l2:l3\": \"{core}:{core}:{core}:{socket}\", \"online\": {quote}true{quote}}}"
            )
        };
        for quote in ["", "\""] {
            let rows: Vec<String> = (0..8).map(|cpu| row(cpu, quote)).collect();
            let text = format!("{{\n \"cpus\": [\n{}]\n}}\n{NUMACTL}", rows.join(",\n"));
            let text = text.replace("\"online\": \"true\"", "\"online\": \"yes\"");
            let machine = parse(&text, "cpus").unwrap();
            is_the_machine(&machine);
            assert_eq!(machine.distances[1][0], 32);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, expected) in [
            ("# CPU,Core\n0,x\n", "cpus:2: \"x\" instead of a number"),
            ("# CPU,Core\n", "no CPU in it"),
            ("0,1\n", "cpus:1: no line that names the columns"),
            ("# CPU,Core\n,1\n", "cpus:2: a row without the number of a CPU"),
            ("# CPU,Core\n0,0\n0,1\n", "CPU 0 is described twice"),
            ("{\"cpus\": [}", "cpus:1:"),
            ("{\"cpus\": 3}", "no list \"cpus\""),
            ("# CPU,Core\n0,0\navailable: 1 nodes\nnode 0 size: many MB\n", "cpus:4: \"many\""),
        ] {
            let error = parse(text, "cpus").unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
