//! What a swarm was asked for, which case is next, and what was seen so far.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::case::{Case, Draw};

/// How to write what a swarm can be asked for.
const USAGE: &str = "give three whole numbers: first seed, seconds, runs (0: no limit); then, if wanted, faults=on or \
                     faults=off, scheduler=roost (only the shipped program) and schedules=N (small runs of it, until \
                     N different schedules were seen)";

/// What a swarm was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first seed.
    pub seed: u64,
    /// How long cases are begun, if nothing else limits their number.
    pub time: Duration,
    /// The number of cases. 0: no limit.
    pub runs: u64,
    /// If the number of cases is 0: the number of different schedules of the shipped program that end the swarm. 0: the
    /// time ends it.
    pub schedules: usize,
    /// Whether seeds whose case has another scheduler are left out.
    pub shipped: bool,
    /// How cases are drawn.
    pub draw: Draw,
}

impl Request {
    /// Reads a command line: seed, seconds, number of runs, and then `name=value` in any order.
    ///
    /// # Errors
    /// A line that says what to write.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let read = || {
            let [seed, seconds, runs, switches @ ..] = words else { return None };
            let mut request = Self {
                seed: seed.parse().ok()?,
                time: Duration::from_secs(seconds.parse().ok()?),
                runs: runs.parse().ok()?,
                schedules: 0,
                shipped: false,
                draw: Draw::default(),
            };
            switches.iter().try_for_each(|switch| request.set(switch))?;
            Some(request)
        };
        read().ok_or_else(|| USAGE.to_owned())
    }

    fn set(&mut self, switch: &str) -> Option<()> {
        match switch.split_once('=')? {
            ("faults", "on") => self.draw.faults = Some(true),
            ("faults", "off") => self.draw.faults = Some(false),
            ("scheduler", "roost") => self.shipped = true,
            ("schedules", number) => {
                self.schedules = number.parse().ok().filter(|&number| number > 0)?;
                self.draw.small = true;
            }
            _ => return None,
        }
        Some(())
    }
}

/// A swarm's cases, and what was seen of them.
pub struct Swarm {
    request: Request,
    start: Instant,
    next_seed: u64,
    begun: u64,
    passed: u64,
    failed: u64,
    /// Runs of the shipped program, and those of them with faults.
    shipped: [u64; 2],
    schedules: BTreeSet<u64>,
}

impl Swarm {
    /// A swarm of which nothing has run.
    pub fn new(request: Request) -> Self {
        Self {
            start: Instant::now(),
            next_seed: request.seed,
            begun: 0,
            passed: 0,
            failed: 0,
            shipped: [0; 2],
            schedules: BTreeSet::new(),
            request,
        }
    }

    /// The next case, unless there were enough.
    pub fn next_case(&mut self) -> Option<Case> {
        if self.is_done() {
            return None;
        }
        self.begun += 1;
        loop {
            let case = Case::drawn(self.next_seed, self.request.draw);
            self.next_seed = self.next_seed.wrapping_add(1);
            if !self.request.shipped || case.version.is_none() {
                return Some(case);
            }
        }
    }

    fn is_done(&self) -> bool {
        let Request { time, runs, schedules, .. } = self.request;
        match (runs, schedules) {
            (0, 0) => self.start.elapsed() >= time,
            (0, _) => self.schedules.len() >= schedules,
            _ => self.begun >= runs,
        }
    }

    /// Counts a case. `schedule` is that of its run, if the case passed.
    pub fn count(&mut self, case: &Case, schedule: Option<u64>) {
        match schedule {
            Some(_) => self.passed += 1,
            None => self.failed += 1,
        }
        if case.version.is_none() {
            self.shipped[0] += 1;
            self.shipped[1] += u64::from(case.faults);
            self.schedules.extend(schedule);
        }
    }

    /// Whether all cases passed.
    pub fn passed(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [runs, faults] = self.shipped;
        write!(
            f,
            "{} passed, {} failed; of the shipped program {runs} runs, {faults} with faults, {} different schedules",
            self.passed,
            self.failed,
            self.schedules.len()
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn request(line: &str) -> Result<Request, String> {
        Request::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    /// The cases of a swarm whose runs all pass, each with the schedule `schedule` makes of its seed.
    fn cases(line: &str, schedule: impl Fn(u64) -> u64) -> (Vec<Case>, Swarm) {
        let mut swarm = Swarm::new(request(line).unwrap());
        let mut cases = Vec::new();
        while let Some(case) = swarm.next_case() {
            swarm.count(&case, Some(schedule(case.seed)));
            cases.push(case);
        }
        (cases, swarm)
    }

    #[test]
    fn what_is_asked_wrongly_is_answered_with_what_to_write() {
        for line in ["1 60", "1 60 x", "1 60 0 faults=some", "1 60 0 schedules=0", "1 60 0 on"] {
            assert_eq!(request(line), Err(USAGE.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_swarm_draws_the_cases_of_its_seeds() {
        let (drawn, _) = cases("7 60 50", |seed| seed);
        assert_eq!(drawn, (7..57).map(Case::of).collect::<Vec<_>>());
    }

    /// Everything else of a case stays as it was drawn.
    #[test]
    fn faults_are_switched_for_the_shipped_program_alone() {
        for (switch, faults) in [("on", true), ("off", false)] {
            for case in cases(&format!("0 60 50 faults={switch}"), |seed| seed).0 {
                let drawn = Case::of(case.seed);
                let faults = if drawn.version.is_none() { faults } else { drawn.faults };
                assert_eq!(case, Case { faults, draw: case.draw, ..drawn });
            }
        }
    }

    #[test]
    fn a_swarm_of_the_shipped_program_leaves_other_seeds_out() {
        let (cases, _) = cases("0 60 20 scheduler=roost", |seed| seed);
        assert_eq!(cases.len(), 20);
        assert!(cases.iter().all(|case| *case == Case::of(case.seed) && case.version.is_none()));
    }

    /// Two seeds each have the same schedule here.
    #[test]
    fn small_cases_are_drawn_until_so_many_schedules_differ() {
        let (cases, swarm) = cases("0 60 0 schedules=100", |seed| seed / 2);
        assert_eq!(cases.len(), 199);
        assert!(swarm.to_string().contains("100 different schedules"), "{swarm}");
        let faults = cases.iter().filter(|case| case.faults).count();
        assert!(swarm.to_string().contains(&format!("199 runs, {faults} with faults")), "{swarm}");
        assert!((100..190).contains(&faults), "{faults}");
        for case in &cases {
            assert!(case.version.is_none());
            assert!(case.machine.machine().unwrap().nr_cpus() <= 24, "{case}");
            case.workload().unwrap();
        }
    }

    #[test]
    fn a_failing_case_is_repeated_with_the_same_switches() {
        for (switches, command) in [
            ("", ""),
            (" faults=on", " FAULTS=on"),
            (" schedules=9 faults=off", " SCHEDULES=1 FAULTS=off"),
        ] {
            let (cases, _) = cases(&format!("4 60 1{switches}"), |seed| seed);
            let wanted = format!("repeat it with: make swarm SEED=4 RUNS=1{command}");
            assert_eq!(cases[0].repeat(), wanted);
        }
    }
}
