//! Statistics for Prometheus over HTTP (`--metrics ADDRESS`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::error::LiveError;
use crate::kernel;
use crate::tables::{Report, is_level};

/// Time limit for a whole request. Prometheus is always faster.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest number of bytes of a request that are read.
const LONGEST_REQUEST: usize = 8192;

/// A request for a report. The answer is sent through this channel.
pub type Question = Sender<Report>;

/// Serves at an address until the program ends. Every scrape sends a question to the thread that has the scheduler.
pub fn serve(address: SocketAddr) -> Result<Receiver<Question>, LiveError> {
    let listener = TcpListener::bind(address)
        .map_err(|error| LiveError::Metrics { address, reason: error.to_string() })?;
    let (questions, asked) = bounded(1);
    let answer = move || {
        for connection in listener.incoming().flatten() {
            // An error means that the client does not read its answer.
            let _ = serve_one(connection, &questions);
        }
    };
    let named = std::thread::Builder::new().name("metrics".into()).spawn(answer);
    named.map_err(|error| LiveError::Metrics { address, reason: error.to_string() })?;
    Ok(asked)
}

fn serve_one(mut connection: TcpStream, questions: &Sender<Question>) -> std::io::Result<()> {
    connection.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match path(&mut connection)?.as_deref() {
        Some("/metrics") => match ask(questions) {
            Some(report) => ("200 OK", exposition(&report, &kernel::release())),
            None => ("503 Service Unavailable", "the scheduler is being loaded\n".to_owned()),
        },
        Some(_) => ("404 Not Found", "statistics are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "ask with GET /metrics\n".to_owned()),
    };
    let kind = match status {
        "200 OK" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

fn ask(questions: &Sender<Question>) -> Option<Report> {
    let (answer, answered) = bounded(1);
    questions.send_timeout(answer, PATIENCE).ok()?;
    answered.recv_timeout(PATIENCE).ok()
}

/// Reads the head of a request. Returns the path if it is a GET.
fn path(connection: &mut TcpStream) -> std::io::Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < LONGEST_REQUEST {
        let left = end.saturating_duration_since(Instant::now());
        connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = connection.read(&mut buffer)?;
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) if request.method == Some("GET") => {
                return Ok(request.path.map(str::to_owned));
            }
            Ok(httparse::Status::Partial) if count > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// A report as a collector of Prometheus metrics.
#[derive(Debug)]
struct Metrics(Report);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, value) in self.0.rows() {
            let (meaning, counter) = (Report::meaning(name), ConstCounter::new(value));
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let (metric, kind): (&dyn Encode, _) = match is_level(name) {
                true => (&gauge, gauge.metric_type()),
                false => (&counter, counter.metric_type()),
            };
            metric.encode(encoder.encode_descriptor(name, meaning, None, kind)?)?;
        }
        Ok(())
    }
}

/// Encodes a metric of any kind.
trait Encode {
    fn encode(
        &self,
        encoder: prometheus_client::encoding::MetricEncoder<'_>,
    ) -> Result<(), std::fmt::Error>;
}

impl<T: EncodeMetric> Encode for T {
    fn encode(
        &self,
        encoder: prometheus_client::encoding::MetricEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        EncodeMetric::encode(self, encoder)
    }
}

/// The text format that Prometheus reads.
fn exposition(report: &Report, release: &str) -> String {
    let mut registry = Registry::with_prefix("roost");
    let labels =
        [("kernel", release.to_owned()), ("version", env!("CARGO_PKG_VERSION").to_owned())];
    let labels: Vec<_> = labels.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let info = prometheus_client::metrics::info::Info::new(labels);
    registry.register("scheduler", "The scheduler and its kernel", info);
    registry.register_collector(Box::new(Metrics(report.clone())));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(address: SocketAddr, request: &str) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Starts a server at a free port, and answers its questions.
    fn server() -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let asked = serve(free).unwrap();
        std::thread::spawn(move || {
            for question in asked {
                question.send(Report { ttwu_count: 42, ..Report::default() }).unwrap();
            }
        });
        free
    }

    #[test]
    fn a_scrape_gets_every_counter() {
        let answer = get(server(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("openmetrics-text"), "{head}");
        assert!(body.contains("\nroost_ttwu_count_total 42\n"), "{body}");
        for (name, _) in Report::default().rows() {
            assert!(body.contains(&format!("# HELP roost_{name} ")), "{name} is missing in {body}");
        }
        assert!(body.contains("# TYPE roost_memory_processes gauge"));
        assert!(body.ends_with("# EOF\n"));
    }

    #[test]
    fn anything_else_gets_an_error() {
        let server = server();
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * LONGEST_REQUEST));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "400"),
            ("nonsense\r\n\r\n", "400"),
            ("GET /metrics", "400"),
            ("", "400"),
        ] {
            let answer = get(server, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        }
        // The server may close the connection before it has read all of a request that is too long.
        let mut connection = TcpStream::connect(server).unwrap();
        let _ = connection.write_all(long.as_bytes());
        drop(connection);
        assert!(get(server, "GET /metrics HTTP/1.0\r\n\r\n").contains("ttwu_count"));
    }

    #[test]
    fn an_address_in_use_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = serve(taken.local_addr().unwrap()).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1") && error.lines().count() == 1, "{error}");
    }
}
