//! Shows a running scheduler in the terminal (`roost top`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Sparkline, Table};

use crate::error::LiveError;
use crate::kernel;
use crate::stats::Client;
use crate::tables::{Report, is_level};

/// Number of values kept for the curve of wakeups: more than most terminals have columns.
const KEPT: usize = 512;

/// What the view shows.
#[derive(Default)]
struct View {
    kernel: String,
    /// Counts since the previous answer, and the time since then.
    last: Report,
    seconds: f64,
    /// Counts since the view was started.
    total: Report,
    /// Wakeups per second.
    wakeups: VecDeque<u64>,
}

/// Shows a running scheduler until the user presses q, Esc or Ctrl-C, or until the scheduler ends.
pub fn run(interval: Duration) -> Result<(), LiveError> {
    let mut client = Client::connect()?;
    // The first answer has all counts since the scheduler started.
    client.report()?;
    let mut terminal = ratatui::try_init().map_err(LiveError::Terminal)?;
    let result = show(&mut terminal, &mut client, interval);
    ratatui::restore();
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: &mut Client,
    interval: Duration,
) -> Result<(), LiveError> {
    let mut view = View { kernel: kernel::release(), ..View::default() };
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, &view)).map_err(LiveError::Terminal)?;
        if wants_to_leave(asked + interval)? {
            return Ok(());
        }
        if asked.elapsed() >= interval {
            let counters = client.report()?;
            view.add(counters, asked.elapsed().as_secs_f64());
            asked = Instant::now();
        }
    }
}

/// Waits for a key until `end`. Returns true if the key closes the view.
fn wants_to_leave(end: Instant) -> Result<bool, LiveError> {
    let wait = end.saturating_duration_since(Instant::now());
    if !event::poll(wait).map_err(LiveError::Terminal)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read().map_err(LiveError::Terminal)? else { return Ok(false) };
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let leaves = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || ctrl_c;
    Ok(leaves && key.kind == KeyEventKind::Press)
}

impl View {
    fn add(&mut self, counters: Report, seconds: f64) {
        self.wakeups.push_front((counters.ttwu_count as f64 / seconds.max(0.001)) as u64);
        self.wakeups.truncate(KEPT);
        self.total = self.total.plus(&counters);
        (self.last, self.seconds) = (counters, seconds);
    }

    /// Mean waiting time in a queue, in us.
    fn mean_wait_us(&self) -> u64 {
        let waits = self.last.queued + self.last.bound;
        self.last.run_delay_ns.checked_div(waits).unwrap_or(0) / 1000
    }

    /// A row for each counter that has moved: name, count per second, count since the view started, meaning.
    fn rows(&self) -> Vec<[String; 4]> {
        let totals = self.total.rows();
        let moved = self.last.rows().into_iter().zip(totals).filter(|(_, (_, sum))| *sum > 0);
        moved
            .map(|((name, value), (_, total))| {
                let (rate, total) = match is_level(name) {
                    true => ("".to_owned(), value),
                    false => (format!("{:.0}", value as f64 / self.seconds.max(0.001)), total),
                };
                [name.to_owned(), rate, total.to_string(), Report::meaning(name).to_owned()]
            })
            .collect()
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let heights = [Constraint::Length(1), Constraint::Length(6), Constraint::Min(3)];
    let [head, curve, table] = Layout::vertical(heights).areas(frame.area());
    let wait = view.mean_wait_us();
    let longest = view.last.run_delay_max_ns / 1000;
    let line = format!(
        "roost on Linux {}: mean wait {wait} us, longest {longest} us since it was loaded. q leaves",
        view.kernel
    );
    frame.render_widget(Line::from(line).bold(), head);
    let now = view.wakeups.front().copied().unwrap_or(0);
    let title = format!(" wakeups a second: {now} ");
    let wakeups: Vec<u64> = view.wakeups.iter().copied().collect();
    let right_to_left = ratatui::widgets::RenderDirection::RightToLeft;
    let line = Sparkline::default().data(&wakeups).direction(right_to_left);
    frame.render_widget(line.block(Block::bordered().title(title)), curve);
    let header =
        Row::new(["counter", "a second", "since now", "meaning"]).style(Style::new().bold());
    let widths = [
        Constraint::Length(22),
        Constraint::Length(10),
        Constraint::Length(14),
        Constraint::Min(20),
    ];
    let rows = view.rows().into_iter().map(Row::new);
    frame.render_widget(Table::new(rows, widths).header(header), table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(view: &View, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn rates_totals_and_waits_are_shown() {
        let mut view = View { kernel: "7.2.13".into(), ..View::default() };
        let counters = |ttwu_count| Report {
            ttwu_count,
            queued: 10,
            run_delay_ns: 50_000,
            run_delay_max_ns: 9_000,
            ..Report::default()
        };
        view.add(counters(100), 2.0);
        view.add(counters(300), 2.0);
        let screen = screen(&view, 120, 24);
        for what in
            ["7.2.13: mean wait 5 us, longest 9 us", "wakeups a second: 150", "a CPU was chosen"]
        {
            assert!(screen.contains(what), "no {what:?} in\n{screen}");
        }
        let row = screen.lines().find(|line| line.contains("ttwu_count")).unwrap();
        assert!(row.contains(" 150 ") && row.contains(" 400 "), "{row}");
        assert!(!screen.contains("sis_failed"), "what never moved is left out\n{screen}");
    }

    #[test]
    fn levels_are_no_rates() {
        let mut view = View::default();
        for memory_processes in [30, 7] {
            let longest = Report { memory_processes, run_delay_max_ns: 9, ..Report::default() };
            view.add(longest, 2.0);
        }
        let rows: Vec<_> =
            view.rows().into_iter().map(|[name, rate, now, _]| (name, rate, now)).collect();
        let level = |name: &str, now: &str| (name.to_owned(), String::new(), now.to_owned());
        assert_eq!(rows, [level("run_delay_max_ns", "9"), level("memory_processes", "7")]);
    }

    #[test]
    fn any_size_will_do() {
        let mut view = View::default();
        view.add(Report { ttwu_count: 3, ..Report::default() }, 0.0);
        for (columns, lines) in [(1, 1), (20, 5), (400, 3)] {
            screen(&view, columns, lines);
        }
    }
}
