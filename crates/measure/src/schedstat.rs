//! `/proc/schedstat`, versions 15 to 17 (kernel model, section 15; the kernel's
//! Documentation/scheduler/sched-stats.rst).

use std::collections::BTreeMap;

use crate::error::{Line, MEASURE_AGAIN, MeasureError, UNKNOWN_KERNEL, shown};

/// Names of the numbers in a `cpu` line, in order. The second number is always 0. All except the last three have 32
/// bits in the kernel.
const CPU_COLUMNS: [&str; 9] = [
    "yld_count",
    "",
    "sched_count",
    "sched_goidle",
    "ttwu_count",
    "ttwu_local",
    "rq_cpu_time",
    "run_delay",
    "pcount",
];

/// Index of the number in a `cpu` line that is the time that tasks ran, in ns.
const RUN_COLUMN: usize = 6;

/// The numbers of a `cpu` line from this index on have 64 bits.
const FIRST_WIDE: usize = 6;

/// Names of a domain's numbers for each idle type.
const LB_COLUMNS: [&str; 8] =
    ["count", "balanced", "failed", "imbalance", "gained", "hot_gained", "nobusyq", "nobusyg"];

/// Names of a domain's other numbers. The kernel does not use the six without a name any more.
const DOMAIN_COLUMNS: [&str; 12] = [
    "alb_count",
    "alb_failed",
    "alb_pushed",
    "",
    "",
    "",
    "",
    "",
    "",
    "ttwu_wake_remote",
    "ttwu_move_affine",
    "ttwu_move_balance",
];

/// The simulation's levels, from the bottom up. Farther NUMA levels are added to the last one.
const LEVELS: [&str; 9] = ["SMT", "CLS", "MC", "PKG", "NODE", "NUMA", "NUMA2", "NUMA3", "NUMA4"];

/// How a version writes a domain's line.
#[derive(Clone, Copy)]
struct Layout {
    /// Whether the line contains the level's name.
    named: bool,
    /// How many numbers the imbalance has. Since version 17 it has four, depending on what should be moved: load,
    /// utilisation, tasks, misfit tasks. A pass adds to only one of them, so their sum equals the single number of
    /// older versions.
    imbalances: usize,
    /// The idle types, in the order of their numbers.
    idle_types: [&'static str; 3],
}

impl Layout {
    fn of(version: &str) -> Option<Self> {
        let newer = Self { named: true, imbalances: 4, idle_types: ["busy", "idle", "newidle"] };
        let older = Self { named: false, imbalances: 1, ..newer };
        match version {
            "15" => Some(Self { idle_types: ["idle", "busy", "newidle"], ..older }),
            "16" => Some(older),
            "17" => Some(newer),
            _ => None,
        }
    }

    /// Names of a domain's numbers, in order. Numbers with the same name are added.
    fn columns(&self) -> Vec<String> {
        let times = |column| if column == "imbalance" { self.imbalances } else { 1 };
        let of_idle_type = |idle_type: &'static str| {
            LB_COLUMNS.iter().flat_map(move |&column| {
                std::iter::repeat_n(format!("lb_{column}.{idle_type}"), times(column))
            })
        };
        let rest = DOMAIN_COLUMNS.iter().map(|&column| column.to_owned());
        self.idle_types.into_iter().flat_map(of_idle_type).chain(rest).collect()
    }
}

/// `/proc/schedstat` at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedstat {
    file: String,
    /// Names of a domain's numbers.
    columns: Vec<String>,
    /// Numbers by CPU, with the operating system's numbers.
    cpus: BTreeMap<u32, Cpu>,
}

/// Numbers of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpu {
    numbers: [u64; CPU_COLUMNS.len()],
    /// Domains from the bottom up.
    domains: Vec<Domain>,
}

/// Numbers of one domain of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    level: String,
    numbers: Vec<u32>,
}

/// The counts between two times, summed over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedstatDelta {
    counters: Vec<(String, u64)>,
    /// Run time by CPU, with the operating system's numbers.
    run_ns: BTreeMap<u32, u64>,
}

impl Schedstat {
    /// Parses `/proc/schedstat`. Up to version 16 it does not contain the names of the domains' levels. `level_name`
    /// returns the kernel's name (`MC`, `PKG`, `NUMA`, ...) for a CPU (with the operating system's number) and the
    /// number of a domain, counted from 0 at the bottom. If it returns none, the level is called `domain` plus its
    /// number. `file` is named in errors.
    pub fn parse(
        file: &str,
        text: &str,
        level_name: impl Fn(u32, usize) -> Option<String>,
    ) -> Result<Self, MeasureError> {
        let mut lines = Line::all(file, text);
        let layout = layout(lines.next().unwrap_or(Line { file, number: 1, text: "" }))?;
        let columns = layout.columns();
        let mut cpus: BTreeMap<u32, Cpu> = BTreeMap::new();
        let mut current = None;
        for line in lines {
            let words: Vec<&str> = line.text.split_ascii_whitespace().collect();
            let Some((&key, words)) = words.split_first() else { continue };
            if let Some(number) = key.strip_prefix("cpu") {
                let cpu = line.number(number)?;
                if cpus.insert(cpu, Cpu::parse(&line, words)?).is_some() {
                    return Err(line.error(format!("CPU {cpu} a second time"), MEASURE_AGAIN));
                }
                current = Some(cpu);
            } else if key.starts_with("domain") {
                let found = current.and_then(|cpu| Some((cpu, cpus.get_mut(&cpu)?)));
                let early = || line.error("a domain before any CPU".into(), MEASURE_AGAIN);
                let (number, cpu) = found.ok_or_else(early)?;
                let unnamed = level_name(number, cpu.domains.len());
                let level = unnamed.unwrap_or_else(|| key.to_owned());
                cpu.add_domain(&line, words, &layout, level, columns.len())?;
            } else if key != "timestamp" {
                let problem = format!("a line of unknown kind \"{}\"", shown(key));
                return Err(line.error(problem, UNKNOWN_KERNEL));
            }
        }
        Ok(Self { file: file.to_owned(), columns, cpus })
    }

    /// The counts since `before`. A 32-bit counter may overflow once in between.
    pub fn since(&self, before: &Self) -> Result<SchedstatDelta, MeasureError> {
        if !self.is_like(before) {
            return Err(MeasureError::Mismatch {
                file: self.file.clone(),
                problem: format!("other CPUs or scheduling domains than in {}", before.file),
                remedy: "leave CPUs online and cpusets as they are while measuring",
            });
        }
        let mut machine = [0_u64; CPU_COLUMNS.len()];
        let mut levels: BTreeMap<(usize, &str), Vec<u64>> = BTreeMap::new();
        for (after, before) in self.cpus.values().zip(before.cpus.values()) {
            for (sum, counted) in machine.iter_mut().zip(after.counted_since(before)) {
                *sum = sum.wrapping_add(counted);
            }
            for (after, before) in after.domains.iter().zip(&before.domains) {
                let rank = LEVELS.iter().position(|level| *level == after.level);
                let key = (rank.unwrap_or(LEVELS.len()), after.level.as_str());
                let sums = levels.entry(key).or_insert_with(|| vec![0; self.columns.len()]);
                for (sum, counted) in sums.iter_mut().zip(after.counted_since(before)) {
                    *sum = sum.wrapping_add(counted);
                }
            }
        }
        let mut delta = SchedstatDelta { run_ns: self.run_ns_since(before), ..Default::default() };
        delta.add("", &CPU_COLUMNS, &machine);
        for ((_, level), sums) in &levels {
            delta.add(&format!("{level}."), &self.columns, sums);
        }
        Ok(delta)
    }

    fn run_ns_since(&self, before: &Self) -> BTreeMap<u32, u64> {
        let pairs = self.cpus.iter().zip(before.cpus.values());
        let counted = pairs.filter_map(|((number, after), before)| {
            Some((*number, after.counted_since(before).nth(RUN_COLUMN)?))
        });
        counted.collect()
    }

    /// Whether `other` has the same CPUs, domains and format.
    fn is_like(&self, other: &Self) -> bool {
        let shape = |schedstat: &Self| -> Vec<(u32, Vec<String>)> {
            let levels =
                |cpu: &Cpu| cpu.domains.iter().map(|domain| domain.level.clone()).collect();
            schedstat.cpus.iter().map(|(number, cpu)| (*number, levels(cpu))).collect()
        };
        self.columns == other.columns && shape(self) == shape(other)
    }
}

fn layout(first: Line<'_>) -> Result<Layout, MeasureError> {
    let version = first.text.strip_prefix("version ").map(str::trim);
    version.and_then(Layout::of).ok_or_else(|| {
        let version = version.map_or("none".into(), shown);
        let problem = format!("schedstat version is {version}, known are 15 to 17");
        first.error(problem, UNKNOWN_KERNEL)
    })
}

impl Cpu {
    fn parse(line: &Line<'_>, words: &[&str]) -> Result<Self, MeasureError> {
        let mut numbers = [0; CPU_COLUMNS.len()];
        expect_numbers(line, words.len(), numbers.len())?;
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = line.number(word)?;
        }
        Ok(Self { numbers, domains: Vec::new() })
    }

    fn counted_since(&self, before: &Self) -> impl Iterator<Item = u64> {
        let pairs = self.numbers.iter().zip(before.numbers).enumerate();
        pairs.map(|(column, (after, before))| match after.wrapping_sub(before) {
            narrow if column < FIRST_WIDE => narrow & u64::from(u32::MAX),
            wide => wide,
        })
    }

    /// Adds the next higher domain. `words` follow the domain's number.
    fn add_domain(
        &mut self,
        line: &Line<'_>,
        words: &[&str],
        layout: &Layout,
        unnamed: String,
        columns: usize,
    ) -> Result<(), MeasureError> {
        let (level, rest) = match words {
            [name, _mask, rest @ ..] if layout.named => ((*name).to_owned(), rest),
            [_mask, rest @ ..] if !layout.named => (unnamed, rest),
            _ => (unnamed, words),
        };
        expect_numbers(line, rest.len(), columns)?;
        let numbers = rest.iter().map(|word| line.number(word)).collect::<Result<_, _>>()?;
        let level = self.distinct(level);
        self.domains.push(Domain { level, numbers });
        Ok(())
    }

    /// The simulation's name of a level. PKG was called DIE before Linux 6.7. NUMA levels are numbered from the bottom
    /// up.
    fn distinct(&self, level: String) -> String {
        match level.as_str() {
            "DIE" => "PKG".into(),
            "NUMA" => {
                let below = self.domains.iter().filter(|domain| domain.level.starts_with("NUMA"));
                ["NUMA", "NUMA2", "NUMA3", "NUMA4"][below.count().min(3)].into()
            }
            _ => level,
        }
    }
}

impl Domain {
    fn counted_since(&self, before: &Self) -> impl Iterator<Item = u64> {
        let pairs = self.numbers.iter().zip(&before.numbers);
        pairs.map(|(after, before)| u64::from(after.wrapping_sub(*before)))
    }
}

fn expect_numbers(line: &Line<'_>, found: usize, expected: usize) -> Result<(), MeasureError> {
    if found == expected {
        return Ok(());
    }
    Err(line.error(format!("{found} numbers instead of {expected}"), UNKNOWN_KERNEL))
}

impl SchedstatDelta {
    /// Adds the numbers with a name. Numbers with the same name are summed up.
    fn add<S: AsRef<str>>(&mut self, prefix: &str, names: &[S], numbers: &[u64]) {
        for (name, number) in names.iter().zip(numbers) {
            if name.as_ref().is_empty() {
                continue;
            }
            let name = format!("{prefix}{}", name.as_ref());
            match self.counters.last_mut() {
                Some((last, sum)) if *last == name => *sum = sum.wrapping_add(*number),
                _ => self.counters.push((name, *number)),
            }
        }
    }

    /// Time that tasks ran on a CPU (with the operating system's number), in ns.
    pub fn run_ns(&self, cpu: u32) -> Option<u64> {
        self.run_ns.get(&cpu).copied()
    }

    /// Name and value of every counter, in a fixed order. The names are the simulation's: `yld_count`, `sched_goidle`,
    /// `MC.lb_count.newidle`, `PKG.alb_count`, `NUMA2.ttwu_wake_remote`. Counters that the simulation does not have
    /// keep the kernel's names: `sched_count`, `ttwu_count`, `ttwu_local`, `rq_cpu_time` and `run_delay` (ns),
    /// `pcount`.
    pub fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, value) in &self.counters {
            sink(name, *value);
        }
    }
}

#[cfg(test)]
mod tests;
