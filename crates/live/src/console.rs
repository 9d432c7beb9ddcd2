//! Output to the user. Separate threads write it. If nobody reads the output (`| less`, Ctrl-S), only these threads are
//! blocked, never the scheduler's loop.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded, unbounded};

use crate::error::LiveError;

/// Time at the end of the program for output that is not written yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest number of statistics lines that wait to be read.
const WAITING: usize = 16;

static OUT: OnceLock<Writer> = OnceLock::new();
static ERR: OnceLock<Writer> = OnceLock::new();

/// Prints a message. If the terminal has gone away, the scheduler continues without it.
pub fn say(text: Arguments<'_>) {
    tell(format!("{text}\n"));
}

/// Prints a text that contains its own line ends.
pub fn tell(text: String) {
    let writer = ERR.get_or_init(|| Writer::start(std::io::stderr(), unbounded(), |_| ()));
    if let Err(text) = writer.offer(text) {
        // The thread could not be started, or has ended.
        let _ = std::io::stderr().write_all(text.into_inner().unwrap_or_default().as_bytes());
    }
}

/// Prints a line while a scheduler is loaded. Returns false if too many lines wait because nobody reads.
pub fn show(line: String) -> bool {
    let failed = |error| {
        say(format_args!("scx_roost: statistics: {error}; they are not printed any more"));
    };
    let writer = OUT.get_or_init(|| Writer::start(std::io::stdout(), bounded(WAITING), failed));
    writer.offer(line).is_ok()
}

/// Prints while no scheduler is loaded. Returns false if the reader has gone away (`| head`), which is not an error.
pub fn print(text: &str) -> Result<bool, LiveError> {
    print_to(&mut std::io::stdout().lock(), text)
}

fn print_to(out: &mut impl Write, text: &str) -> Result<bool, LiveError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(LiveError::Output(error)),
    }
}

/// Waits until all output is written, but no longer than `PATIENCE`.
pub fn finish() {
    for writer in [&OUT, &ERR].into_iter().filter_map(OnceLock::get) {
        writer.finish();
    }
}

/// Texts for a writing thread. `None` ends the thread.
type Texts = (Sender<Option<String>>, Receiver<Option<String>>);

/// A thread that writes texts to one stream.
struct Writer {
    texts: Sender<Option<String>>,
    /// This channel is disconnected when the thread ends.
    ended: Receiver<()>,
}

impl Writer {
    /// Starts the thread. It ends after a failed write.
    fn start(
        mut out: impl Write + Send + 'static,
        (texts, waiting): Texts,
        failed: impl FnOnce(std::io::Error) + Send + 'static,
    ) -> Self {
        let (alive, ended) = bounded(0);
        let write = move || {
            let _alive: Sender<()> = alive;
            let mut write =
                |text: String| out.write_all(text.as_bytes()).and_then(|()| out.flush());
            if let Err(error) = waiting.into_iter().map_while(|text| text).try_for_each(&mut write)
            {
                failed(error);
            }
        };
        // If the thread cannot be started, nothing receives the texts.
        let _ = std::thread::Builder::new().name("console".into()).spawn(write);
        Self { texts, ended }
    }

    /// Passes a text to the thread. Fails if there is no thread or no room.
    fn offer(&self, text: String) -> Result<(), TrySendError<Option<String>>> {
        self.texts.try_send(Some(text))
    }

    fn finish(&self) {
        let end = Instant::now() + PATIENCE;
        // If the thread has ended or does not read in time, there is nothing more to do.
        let _ = self.texts.send_deadline(None, end);
        let _ = self.ended.recv_deadline(end);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn who_does_not_read_holds_nothing_up() {
        let (mut reader, pipe) = std::io::pipe().unwrap();
        let writer = Writer::start(pipe, bounded(WAITING), |_| ());
        let start = Instant::now();
        // More than a pipe can hold.
        let line = "x".repeat(1 << 20);
        let taken = (0..99).take_while(|_| writer.offer(line.clone()).is_ok()).count();
        assert!((WAITING..=WAITING + 1).contains(&taken), "{taken}");
        writer.finish();
        assert!(start.elapsed() < PATIENCE + Duration::from_secs(2), "{:?}", start.elapsed());
        let mut first = vec![0; line.len()];
        reader.read_exact(&mut first).unwrap();
        assert_eq!(first, line.as_bytes());
    }

    #[test]
    fn all_is_written_at_the_end() {
        let (mut reader, pipe) = std::io::pipe().unwrap();
        let writer = Writer::start(pipe, unbounded(), |_| ());
        (0..99).for_each(|number| writer.offer(format!("{number}\n")).unwrap());
        writer.finish();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (99, Some("98")));
    }

    #[test]
    fn a_reader_that_goes_away_is_told_once_and_is_no_error_to_print() {
        let (reader, mut pipe) = std::io::pipe().unwrap();
        assert!(print_to(&mut pipe, "x").unwrap());
        drop(reader);
        assert!(!print_to(&mut pipe, "x").unwrap());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        assert!(matches!(print_to(&mut full.unwrap(), "x"), Err(LiveError::Output(_))));
        let (tell, told) = unbounded();
        let failed = move |error: std::io::Error| tell.send(error.kind()).unwrap();
        let writer = Writer::start(pipe, unbounded(), failed);
        writer.offer("x".to_owned()).unwrap();
        writer.ended.recv().unwrap_err();
        assert_eq!(told.iter().collect::<Vec<_>>(), [ErrorKind::BrokenPipe]);
        assert!(matches!(writer.offer("x".to_owned()), Err(TrySendError::Disconnected(_))));
    }
}
