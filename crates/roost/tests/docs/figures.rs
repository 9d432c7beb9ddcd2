//! Figures that pages quote from docs/results.json equal the ones in that file.

use serde_json::Value;

use crate::documented::root;

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect("a page")
}

/// A number with its sign, as pages write it.
fn signed(value: f64, digits: usize) -> String {
    format!("{value:+.digits$}").replace('-', "−")
}

/// Changes of some rows of a study, published and simulated, in percent. Positive is better.
struct Changes {
    published: Vec<f64>,
    simulated: Vec<f64>,
}

impl Changes {
    fn each(&self, written: impl Fn(&[f64]) -> String) -> [String; 2] {
        [written(&self.published), written(&self.simulated)]
    }

    /// `+4.83%, −0.59%`, each with `digits` digits.
    fn percent(&self, digits: usize) -> [String; 2] {
        let list = |changes: &[f64]| -> Vec<String> {
            changes.iter().map(|change| format!("{}%", signed(*change, digits))).collect()
        };
        self.each(|changes| list(changes).join(", "))
    }

    /// `−0.6 to +1.0%`: the smallest and the largest change.
    fn range(&self) -> [String; 2] {
        self.each(|changes| {
            let least = changes.iter().copied().fold(f64::INFINITY, f64::min);
            let most = changes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{} to {}%", signed(least, 1), signed(most, 1))
        })
    }

    /// `×3.53, 2.81`: a gain of 253% is ×3.53.
    fn times(&self) -> [String; 2] {
        self.each(|changes| {
            let times = changes.iter().map(|change| format!("{:.2}", 1.0 + change / 100.0));
            format!("×{}", times.collect::<Vec<_>>().join(", "))
        })
    }

    /// `−35, +13%`: by how much the run time changes.
    fn run_time(&self) -> [String; 2] {
        self.each(|changes| {
            let list: Vec<String> = changes.iter().map(|change| signed(-change, 0)).collect();
            format!("{}%", list.join(", "))
        })
    }
}

/// docs/results.json.
struct Figures(Value);

impl Figures {
    fn row(&self, study: &str, id: &str) -> &Value {
        let rows = self.0["studies"][study]["rows"].as_array();
        let row = rows.and_then(|rows| rows.iter().find(|row| row["id"] == id));
        row.unwrap_or_else(|| panic!("{study} has no {id}"))
    }

    fn changes(&self, study: &str, ids: &[String]) -> Changes {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{study}: {value}"));
        let rows: Vec<&Value> = ids.iter().map(|id| self.row(study, id)).collect();
        Changes {
            published: rows.iter().map(|row| number(&row["published_change_pct"])).collect(),
            simulated: rows.iter().map(|row| number(&row["simulated"]["change_pct"])).collect(),
        }
    }

    fn stream(&self) -> [String; 2] {
        let ids = ["copy", "scale", "add", "triad"].map(|name| format!("000-stream-{name}-16"));
        self.changes("stream", &ids).times()
    }

    fn coremark(&self) -> [String; 2] {
        self.changes("coremark", &["000-coremark-hmean-score-16".to_owned()]).percent(2)
    }

    fn netperf(&self, clients: &[u32]) -> Changes {
        let ids: Vec<String> =
            clients.iter().map(|clients| format!("002-netperf-tcp-rr-{clients}")).collect();
        self.changes("netperf", &ids)
    }

    fn oltp(&self) -> Changes {
        let ids =
            [(4, 24), (4, 48), (4, 72), (8, 24), (8, 48), (8, 72)].map(|(instances, threads)| {
                format!("001-oltp-{instances}-instances-each-{threads}-threads")
            });
        self.changes("oltp", &ids)
    }

    /// Migrations of the iperf3 pair without and with the change, averaged over the seeds.
    fn iperf3(&self) -> String {
        let simulated = &self.row("iperf3", "003-iperf3-llc-migrations-200s")["simulated"];
        let moves = |name: &str| simulated[name].as_f64().expect("moves");
        format!("{:.0} to {:.1}", moves("base"), moves("patched"))
    }

    /// Number of material changes, how many of them have the published sign, and how many have the size within a factor
    /// of 2.
    fn score(&self) -> Vec<String> {
        let all = &self.0["score"]["all"];
        let [sign, size] = ["sign", "size"].map(|bar| &all[bar]);
        let changes = format!("{} material changes", sign["of"]);
        vec![changes, format!("{} have the sign, {} also the size", sign["right"], size["right"])]
    }

    /// numa01, numa01_THREAD_ALLOC, numa02_SMT on 4 nodes; numa01, numa02_SMT on 2 nodes.
    fn autonuma(&self) -> Changes {
        let rows = |nodes: u32, names: &[&str]| {
            let id = |name: &&str| format!("004-autonuma-{nodes}node-noht-this-{name}-avg");
            let ids: Vec<String> = names.iter().map(id).collect();
            self.changes(&format!("autonuma-{nodes}n"), &ids)
        };
        let (four, two) = (
            rows(4, &["numa01", "numa01-thread-alloc", "numa02-smt"]),
            rows(2, &["numa01", "numa02-smt"]),
        );
        Changes {
            published: [four.published, two.published].concat(),
            simulated: [four.simulated, two.simulated].concat(),
        }
    }
}

/// The `wanted` texts that are missing in the line of a page that begins with `start`.
fn shows(page: &str, line: &str, wanted: &[String]) -> Vec<String> {
    let text = read(page);
    let Some(found) = text.lines().find(|found| found.starts_with(line)) else {
        return vec![format!("{page} has no line {line}")];
    };
    let missing = wanted.iter().filter(|wanted| !found.contains(*wanted));
    missing.map(|wanted| format!("{page}: {line}: it should say {wanted}")).collect()
}

fn figures() -> Figures {
    Figures(serde_json::from_str(&read("docs/results.json")).expect("results"))
}

#[test]
fn the_readme_has_the_figures_of_the_results() {
    let figures = figures();
    let rows = [
        ("| [`numa-imbalance`]", [figures.stream(), figures.coremark()].concat()),
        ("| [`sis-util`]", figures.netperf(&[196, 224]).percent(0).to_vec()),
        ("| [`llc-imbalance`]", vec![figures.iperf3()]),
        ("| [`cling`]", figures.oltp().range().to_vec()),
        ("| [`consolidate`]", figures.autonuma().run_time().to_vec()),
        ("| [all published rows]", figures.score()),
    ];
    let missing: Vec<String> =
        rows.iter().flat_map(|(line, wanted)| shows("README.md", line, wanted)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_pages_of_the_mechanisms_have_the_figures_of_the_results() {
    let figures = figures();
    let [oltp_published, oltp] = figures.oltp().percent(2).map(|list| list.replace(", ", " | "));
    let low = figures.netperf(&[28, 56, 84, 112, 140, 168]);
    let mut rows = vec![
        ("numa-imbalance", "| STREAM", figures.stream().to_vec()),
        ("numa-imbalance", "| CoreMark", figures.coremark().to_vec()),
        ("sis-util", "| throughput at 28 to 168", vec![low.range()[1].clone()]),
        ("sis-util", "| throughput at 196", figures.netperf(&[196, 224]).percent(1).to_vec()),
        ("llc-imbalance", "| migrations", vec![figures.iperf3()]),
        ("cling", "| published", vec![oltp_published]),
        ("cling", "| simulated", vec![oltp]),
    ];
    let autonuma = figures.autonuma();
    let names = [
        "4 nodes numa01 ",
        "4 nodes numa01_",
        "4 nodes numa02",
        "2 nodes numa01",
        "2 nodes numa02",
    ];
    let lines = names.map(|name| format!("| {name}"));
    for (at, line) in lines.iter().enumerate() {
        let [published, simulated] = [&autonuma.published, &autonuma.simulated];
        let of = |changes: &[f64]| format!("{}%", signed(-changes[at], 0));
        rows.push(("consolidate", line, vec![of(published), of(simulated)]));
    }
    let missing = rows.iter().flat_map(|(page, line, wanted)| {
        shows(&format!("docs/understand/{page}.md"), line, wanted)
    });
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The page for readers with servers.
#[test]
fn the_page_for_servers_has_the_figures_of_the_results() {
    let figures = figures();
    let rows = [
        ("| MySQL", figures.oltp().range().to_vec()),
        ("| request and reply", figures.netperf(&[196]).percent(0).to_vec()),
        ("| two processes", vec![figures.iperf3()]),
        ("| independent compute", figures.coremark().to_vec()),
        ("| bandwidth-bound", figures.stream().to_vec()),
    ];
    let missing = rows.iter().flat_map(|(line, wanted)| shows("docs/use/servers.md", line, wanted));
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The cells of all table rows in a text.
fn table_rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect())
}

/// Scenario, shape, agree%, compared, size, overlap, differ, rare, placement: the sums of all scenarios and shapes.
#[test]
fn the_agreement_with_a_kernel_is_that_of_the_table() {
    let text = read("docs/validation-results.md");
    let (mut compared, mut agreed) = (0, 0);
    for row in table_rows(&text).filter(|row| row.len() == 9) {
        let counts: Vec<u32> = row[3..6].iter().filter_map(|cell| cell.parse().ok()).collect();
        if let ([all, size, overlap], true) = (&counts[..], row[1].starts_with(['1', '2'])) {
            (compared, agreed) = (compared + all, agreed + size + overlap);
        }
    }
    let percent = format!("{:.1}%", 100.0 * f64::from(agreed) / f64::from(compared));
    let readme = [format!("{compared} counters"), format!("{percent} agree")];
    let page = [format!("{percent} ({agreed} of {compared})")];
    let mut missing = shows("README.md", "| [`fair@7.2`]", &readme);
    missing.extend(shows("docs/validation.md", "| 85% of all", &page));
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The page says what the service does after an end, by the unit's own lines.
#[test]
fn the_page_of_the_service_has_the_figures_of_its_unit() {
    let (page, unit) = (read("docs/live.md"), read("packaging/scx_roost.service"));
    let of_restarts =
        ["Restart=", "RestartSec=", "RestartPreventExitStatus=", "StartLimit", "TimeoutStopSec="];
    let lines = unit.lines().filter(|line| of_restarts.iter().any(|key| line.starts_with(key)));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    let missing: Vec<&&str> =
        lines.iter().filter(|line| !page.contains(&format!("`{line}`"))).collect();
    assert!(missing.is_empty(), "docs/live.md lacks {missing:?}");
}

#[test]
fn the_live_schedulers_time_is_that_of_its_results() {
    let text = read("docs/live-results.md");
    let rows: Vec<Vec<&str>> = table_rows(&text).collect();
    let find = |name: &str| rows.iter().find(|row| row[0].starts_with(name));
    let (kernels, times) = (find("what"), find("hackbench, CPU instructions"));
    let (kernels, times) = (kernels.expect("a heading"), times.expect("a row"));
    let wanted: Vec<String> =
        (1..=2).map(|at| format!("{} on {}", times[at], kernels[at])).collect();
    let missing = shows("README.md", "| [live scheduler]", &wanted);
    assert!(missing.is_empty(), "{missing:#?}");
}
