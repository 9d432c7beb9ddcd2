//! Draws in a terminal where tasks were over time (`--picture`).

use std::fmt::Write;

use roost_machine::Machine;

use crate::experiment::seconds;
use crate::table::wrapped;
use crate::timeline::{Grid, Timeline, WINDOWS};

/// Largest number of rows. With more LLCs, several share a row.
const MOST_ROWS: usize = 64;
/// Number of time columns if the width of the output is not known.
const COLUMNS: usize = 72;
/// Smallest number of time columns. Fewer show nothing useful.
const FEWEST_COLUMNS: usize = 8;
/// Blocks in steps of one eighth.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Printed after the end of a run.
const ENDED: char = '·';

const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Mean number of tasks on an LLC in one column of time, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    all: u64,
    waiting: u64,
}

/// The LLCs of one node that share a row.
struct Row {
    label: String,
    llcs: Vec<usize>,
}

/// Draws how many tasks each LLC of `machine` had over time, in one run of each scheduler (by its name), which had that
/// `seed`. Each LLC has a row, unless there are too many. All rows have the same scales, and are at most `width` wide.
/// `colour` shows how many tasks waited.
pub fn picture(
    machine: &Machine,
    runs: &[(&str, &Timeline)],
    seed: u64,
    width: Option<u16>,
    colour: bool,
) -> String {
    let rows = rows(machine, MOST_ROWS);
    let label = label_width(&rows);
    let columns = columns(label + " ||".len(), width);
    let end_ns = runs.iter().map(|(_, run)| run.end.ns()).max().unwrap_or(0).max(1);
    let span = |column: usize| {
        let at = |column: usize| (u128::from(end_ns) * column as u128 / columns as u128) as u64;
        (at(column), at(column + 1))
    };
    let spans: Vec<(u64, u64)> = (0..columns).map(span).collect();
    let drawn: Vec<_> = runs.iter().map(|(_, run)| cells(machine, run, &rows, &spans)).collect();
    let full = full_block(drawn.iter().flatten().flatten().flatten());
    let mut out = wrapped(&legend(&rows, end_ns, seed, full, colour), width);
    for ((name, _), drawn) in runs.iter().zip(&drawn) {
        out += &wrapped(&format!("\n{name}\n"), width);
        for (row, cells) in rows.iter().zip(drawn) {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{:label$} |{}|", row.label, line(cells, full, colour));
        }
    }
    out
}

/// How busy the CPUs of each LLC of `machine` were over time, for one that runs now: `columns` from old to new, each
/// with the busy part of every CPU in thousandths. The newest stands at the right, and as a number beside it; the
/// picture has at most `lines` rows.
pub fn busy_picture(
    machine: &Machine,
    busy: &[Vec<u64>],
    width: Option<u16>,
    lines: Option<u16>,
) -> String {
    let rows = rows(machine, lines.map_or(MOST_ROWS, usize::from).min(MOST_ROWS));
    let label = label_width(&rows);
    let columns = columns(label + " || 100%".len(), width);
    let newest = &busy[busy.len().saturating_sub(columns)..];
    let mut out = String::new();
    for row in &rows {
        let cpus: Vec<usize> =
            row.llcs.iter().flat_map(|&llc| machine.llcs[llc].cpus.iter()).collect();
        let mean = |column: &Vec<u64>| {
            let sum: u64 = cpus.iter().filter_map(|&cpu| column.get(cpu)).sum();
            Cell { all: sum / cpus.len().max(1) as u64, waiting: 0 }
        };
        let cells: Vec<Option<Cell>> = newest.iter().map(|column| Some(mean(column))).collect();
        let drawn = line(&cells, 1, false);
        let now = cells.last().copied().flatten().map_or(0, |cell| cell.all / 10);
        // Writing to a String does not fail.
        let _ = writeln!(out, "{:label$} |{drawn:>columns$}| {now:>3}%", row.label);
    }
    out
}

fn label_width(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0)
}

/// The number of columns of time, if `beside` characters of each line are for other things.
fn columns(beside: usize, width: Option<u16>) -> usize {
    let there = width.map_or(COLUMNS, |width| usize::from(width).saturating_sub(beside));
    there.clamp(FEWEST_COLUMNS, WINDOWS)
}

/// Explains how to read the picture.
fn legend(rows: &[Row], end_ns: u64, seed: u64, full: u64, colour: bool) -> String {
    let shared = rows.iter().map(|row| row.llcs.len()).max().unwrap_or(1);
    let row = match shared {
        1 => "One row for each LLC".to_owned(),
        _ => format!("Each row is the mean of up to {shared} LLCs"),
    };
    let tasks = if full == 1 { "1 task" } else { &format!("{full} tasks") };
    let waits = match colour {
        true => "; yellow: more than a tenth of them waited for a CPU; red: more than half",
        false => "",
    };
    let time = seconds(end_ns);
    format!(
        "Tasks on each LLC, running or waiting, from left to right over {time} s of each scheduler's first run \
         (seed {seed}). {row}; a full block: {tasks} or more{waits}.\n"
    )
}

/// The LLCs in the order of their nodes. Several share a row if there are more than `most`.
fn rows(machine: &Machine, most: usize) -> Vec<Row> {
    let of_node = |node: usize| -> Vec<usize> {
        let on = |llc: &usize| llc_node(machine, *llc) == node;
        (0..machine.llcs.len()).filter(on).collect()
    };
    let nodes: Vec<Vec<usize>> = (0..machine.nodes.len()).map(of_node).collect();
    let rows_of =
        |together: usize| nodes.iter().map(|llcs| llcs.len().div_ceil(together)).sum::<usize>();
    let most = most.max(nodes.len());
    let together = (1..).find(|&together| rows_of(together) <= most).unwrap_or(1);
    let mut rows: Vec<Row> = Vec::new();
    for (node, llcs) in machine.nodes.iter().zip(&nodes) {
        let number = node.os_index;
        rows.extend(
            llcs.chunks(together)
                .map(|llcs| Row { label: label(number, llcs), llcs: llcs.to_vec() }),
        );
    }
    rows
}

/// The node of an LLC's CPUs.
pub(crate) fn llc_node(machine: &Machine, llc: usize) -> usize {
    let first = machine.llcs[llc].cpus.first();
    first.map_or(0, |cpu| machine.cpus[cpu].node as usize)
}

fn label(node: u32, llcs: &[usize]) -> String {
    match llcs {
        [first, .., last] => format!("node {node} LLC {first}-{last}"),
        [only] => format!("node {node} LLC {only}"),
        [] => String::new(),
    }
}

/// The cells by row and column. `None` after the end of the run.
fn cells(
    machine: &Machine,
    run: &Timeline,
    rows: &[Row],
    spans: &[(u64, u64)],
) -> Vec<Vec<Option<Cell>>> {
    let llcs = run.llcs(machine);
    let of_row = |row: &Row| {
        let cell = |&(from, to): &(u64, u64)| {
            let to = to.min(run.end.ns());
            let lasts = to.checked_sub(from).filter(|&ns| ns > 0)?;
            let mean = |grid: &Grid| {
                let sum: u128 = row.llcs.iter().map(|&llc| within(run, grid, llc, from, to)).sum();
                (sum * 1000 / u128::from(lasts) / row.llcs.len() as u128) as u64
            };
            let waiting = mean(&llcs.waiting);
            Some(Cell { all: mean(&llcs.running) + waiting, waiting })
        };
        spans.iter().map(cell).collect()
    };
    rows.iter().map(of_row).collect()
}

/// The part of a row's time in `from..to`, in ns. Time is assumed to be spread evenly within a window.
fn within(run: &Timeline, grid: &Grid, row: usize, from: u64, to: u64) -> u128 {
    let first = (from / run.window_ns) as usize;
    let windows = grid.row(row).enumerate().skip(first);
    let overlap = |(window, ns): (usize, u64)| {
        let begin = window as u64 * run.window_ns;
        let length = run.length_ns(window);
        let common = to.min(begin + length).saturating_sub(from.max(begin));
        u128::from(ns) * u128::from(common) / u128::from(length.max(1))
    };
    windows.take_while(|(window, _)| (*window as u64) * run.window_ns < to).map(overlap).sum()
}

/// Number of tasks that a full block stands for. All cells except the fullest hundredth fit.
fn full_block<'a>(cells: impl Iterator<Item = &'a Cell>) -> u64 {
    let mut all: Vec<u64> = cells.map(|cell| cell.all).filter(|&all| all > 0).collect();
    all.sort_unstable();
    let at = (all.len() * 99 / 100).min(all.len().saturating_sub(1));
    all.get(at).map_or(1, |most| most.div_ceil(1000))
}

/// The text of one row.
fn line(cells: &[Option<Cell>], full: u64, colour: bool) -> String {
    let mut out = String::new();
    let mut shown = PLAIN;
    for cell in cells {
        let (block, wanted) = match cell {
            None => (ENDED, PLAIN),
            Some(cell) => (block(cell.all, full), hue(*cell)),
        };
        if colour && wanted != shown {
            out += wanted;
            shown = wanted;
        }
        out.push(block);
    }
    if shown != PLAIN {
        out += PLAIN;
    }
    out
}

/// The block for a cell. It is blank only for less than 0.005 tasks.
fn block(all: u64, full: u64) -> char {
    let eighths = (all * 8).div_ceil(full * 1000) as usize;
    let eighths = if all < 5 { 0 } else { eighths };
    BLOCKS[eighths.min(BLOCKS.len() - 1)]
}

fn hue(cell: Cell) -> &'static str {
    match cell.waiting {
        waiting if 2 * waiting > cell.all => RED,
        waiting if 10 * waiting > cell.all => YELLOW,
        _ => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use roost_engine::{CpuId, Time, TraceTask};

    use super::*;
    use crate::timeline::TimelineRecorder;

    /// About a millisecond, in whole windows.
    const MS: u64 = 1 << 20;

    /// A run of `end` ms. Each of `cpus` has a task, except in the first and last ms.
    fn run(machine: &Machine, end: u64, cpus: &[CpuId]) -> Timeline {
        let recorder = TimelineRecorder::new(machine, Time(0));
        let task = |cpu: CpuId| TraceTask {
            pid: cpu as u32 + 1,
            slot: cpu as u32,
            process: 1,
            known_to: &"t",
        };
        recorder.observe(Time(end * MS), |tracer| {
            for &cpu in cpus {
                tracer.switch(Time(MS), cpu, None, Some(task(cpu)));
            }
            for &cpu in cpus {
                let left = Some((task(cpu), roost_engine::LeftAs::Exited));
                tracer.switch(Time((end - 1) * MS), cpu, left, None);
            }
        });
        recorder.finish(Time(end * MS))
    }

    /// 2 nodes of 2 LLCs of 4 CPUs. Two tasks are on LLC 1, one is on LLC 2. The second run ends in the middle.
    #[test]
    fn a_row_an_llc_and_a_full_block_for_the_fullest() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let (long, short) = (run(&machine, 16, &[4, 5, 8]), run(&machine, 8, &[0]));
        let text = picture(&machine, &[("long", &long), ("short", &short)], 7, Some(31), false);
        let drawn: Vec<&str> = text.lines().skip_while(|line| *line != "long").collect();
        assert_eq!(
            drawn,
            [
                "long",
                "node 0 LLC 0 |                |",
                "node 0 LLC 1 | ██████████████ |",
                "node 1 LLC 2 | ▄▄▄▄▄▄▄▄▄▄▄▄▄▄ |",
                "node 1 LLC 3 |                |",
                "",
                "short",
                "node 0 LLC 0 | ▄▄▄▄▄▄ ········|",
                "node 0 LLC 1 |        ········|",
                "node 1 LLC 2 |        ········|",
                "node 1 LLC 3 |        ········|",
            ]
        );
        let heading = text.replace('\n', " ");
        assert!(heading.contains("a full block: 2 tasks or more"), "{text}");
        assert!(heading.contains("first run (seed 7)"), "{text}");
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let machine = roost_machine::resolve("zen3-2s").unwrap();
        let t = run(&machine, 100, &[0, 9, 200]);
        for width in [40, 80, 300] {
            let text = picture(&machine, &[("fair@7.2", &t)], 7, Some(width), false);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(width)), "{width}: {widest:?}");
        }
    }

    #[test]
    fn many_llcs_share_rows_within_their_node() {
        let machine = roost_machine::resolve("node:3 l3:50 core:1 pu:1").unwrap();
        let rows = rows(&machine, MOST_ROWS);
        assert_eq!(rows.len(), 51, "17 of up to 3 LLCs for each node");
        assert_eq!(rows[16].label, "node 0 LLC 48-49");
        assert_eq!(rows[17].label, "node 1 LLC 50-52");
        let text = picture(&machine, &[("s", &run(&machine, 8, &[48]))], 7, None, false);
        assert!(text.contains("Each row is the mean of up to 3 LLCs"), "{text}");
    }

    /// 2 nodes of 2 LLCs of 4 CPUs: half of LLC 1 is busy, then all of LLC 2.
    #[test]
    fn a_live_machine_shows_the_busy_part_of_each_llc() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let mut columns = vec![vec![0; 16]; 2];
        columns[0][4..6].fill(1000);
        columns[1][8..12].fill(1000);
        let text = busy_picture(&machine, &columns, Some(28), None);
        let drawn: Vec<&str> = text.lines().collect();
        assert_eq!(
            drawn,
            [
                "node 0 LLC 0 |        |   0%",
                "node 0 LLC 1 |      ▄ |   0%",
                "node 1 LLC 2 |       █| 100%",
                "node 1 LLC 3 |        |   0%",
            ]
        );
        let low = busy_picture(&machine, &columns, Some(30), Some(2));
        assert_eq!(low.lines().count(), 2, "a row of two LLCs for each node: {low}");
        assert!(low.ends_with("|  50%\n"), "{low}");
    }

    #[test]
    fn colour_says_how_many_wait() {
        let cell = |all, waiting| Some(Cell { all, waiting });
        let cells = [cell(1000, 0), cell(1000, 100), cell(1000, 101), cell(1000, 501), None];
        assert_eq!(line(&cells, 1, true), format!("██{YELLOW}█{RED}█{PLAIN}·"));
        assert_eq!(line(&cells, 1, false), "████·");
        assert_eq!(line(&cells[..4], 2, true), format!("▄▄{YELLOW}▄{RED}▄{PLAIN}"));
        assert_eq!(
            [0, 4, 5, 1000, 1001, 9000].map(|all| block(all, 8)),
            [' ', ' ', '▁', '▁', '▂', '█']
        );
    }
}
