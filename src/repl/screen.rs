//! Output above the prompt: whole lines, so that the input line stays intact.
//!
//! All output during a prompt goes through one thread, which passes it to the line editor.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::ExternalPrinter;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Delay after which an incomplete line is shown.
const PATIENCE: Duration = Duration::from_millis(150);
/// Largest number of queued pieces: a slow terminal slows down the tracer, but does not fill its memory.
const QUEUE: usize = 256;
/// Largest number of bytes that are shown at once.
const BATCH: usize = 64 * 1024;
/// Text without visible effect: a line that is removed again.
const NOTHING: &str = "\x1b[A\n";

/// Writer to the terminal; clones write to the same one.
#[derive(Clone)]
pub struct Screen {
    sender: SyncSender<ScreenOutput>,
    shown: Arc<Mutex<Option<JoinHandle<()>>>>,
    /// Mode of the terminal before the session.
    mode: Termios,
}

enum ScreenOutput {
    Text(Vec<u8>),
    End,
}

impl Screen {
    /// Starts showing output through the line editor.
    pub fn start(printer: impl ExternalPrinter + Send + 'static) -> io::Result<Screen> {
        let mode = tcgetattr(io::stdin())?;
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::spawn(move || show(&receiver, printer));
        Ok(Screen { sender, shown: Arc::new(Mutex::new(Some(thread))), mode })
    }

    /// Waits until everything is shown, clears the prompt if the editor still shows one, and restores the
    /// terminal.
    pub fn end(&self) {
        let _ = self.sender.send(ScreenOutput::End);
        if let Some(thread) = self.shown.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        const ERASE_BELOW: &str = "\r\x1b[J";
        const PASTE_AS_TYPED: &str = "\x1b[?2004l";
        let mut out = io::stdout();
        let _ = write!(out, "{ERASE_BELOW}{PASTE_AS_TYPED}").and_then(|()| out.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.mode);
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sender.send(ScreenOutput::Text(bytes.to_vec())).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn show(sender: &Receiver<ScreenOutput>, mut printer: impl ExternalPrinter) {
    let mut waiting = Vec::new();
    loop {
        let patience = if waiting.is_empty() { Duration::MAX } else { PATIENCE };
        let ended = match sender.recv_timeout(patience) {
            Ok(ScreenOutput::Text(text)) => {
                waiting.extend(text);
                gather(sender, &mut waiting)
            }
            Err(RecvTimeoutError::Timeout) => {
                print(&mut printer, std::mem::take(&mut waiting));
                false
            }
            Ok(ScreenOutput::End) | Err(RecvTimeoutError::Disconnected) => true,
        };
        if ended {
            print(&mut printer, waiting);
            return settle(&mut printer);
        }
        let whole = waiting.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = waiting.split_off(whole);
        print(&mut printer, std::mem::replace(&mut waiting, rest));
    }
}

/// Takes further queued output; returns whether the end was reached.
fn gather(sender: &Receiver<ScreenOutput>, waiting: &mut Vec<u8>) -> bool {
    while waiting.len() < BATCH {
        match sender.try_recv() {
            Ok(ScreenOutput::Text(text)) => waiting.extend(text),
            Ok(ScreenOutput::End) => return true,
            Err(_) => break,
        }
    }
    false
}

/// Waits until the editor has shown all text. It shows text later in its own thread, and can hold one text. When
/// it accepts a second one, it has shown all previous ones.
fn settle(printer: &mut impl ExternalPrinter) {
    for _ in 0..2 {
        if printer.print(NOTHING.to_owned()).is_err() {
            return;
        }
    }
}

/// Prints a text through the editor, or directly after the editor has ended.
fn print(printer: &mut impl ExternalPrinter, text: Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let shown = printer.print(String::from_utf8_lossy(&text).into_owned());
    if shown.is_err() {
        let _ = io::stdout().write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SharedPrinter(Arc<Mutex<Vec<String>>>);

    impl ExternalPrinter for SharedPrinter {
        fn print(&mut self, text: String) -> rustyline::Result<()> {
            self.0.lock().unwrap().push(text);
            Ok(())
        }
    }

    #[test]
    fn a_line_in_pieces_is_shown_whole() {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = sync_channel(QUEUE);
        for piece in ["one", " line\ntwo ", "lines\nan", "d a part"] {
            sender.send(ScreenOutput::Text(piece.into())).unwrap();
        }
        sender.send(ScreenOutput::End).unwrap();
        show(&receiver, SharedPrinter(Arc::clone(&shown)));
        let shown = shown.lock().unwrap();
        let lines: Vec<&String> = shown.iter().filter(|text| *text != NOTHING).collect();
        assert_eq!(shown.concat().replace(NOTHING, ""), "one line\ntwo lines\nand a part");
        assert!(lines[..lines.len() - 1].iter().all(|text| text.ends_with('\n')), "{shown:?}");
    }

    /// Imitates the editor: it can hold one text, and shows it in a thread, often late.
    struct DelayedPrinter(SyncSender<String>);

    impl ExternalPrinter for DelayedPrinter {
        fn print(&mut self, text: String) -> rustyline::Result<()> {
            self.0.send(text).expect("the thread lives");
            Ok(())
        }
    }

    #[test]
    fn the_end_waits_until_all_is_shown() {
        let (given, taken) = sync_channel::<String>(1);
        let shown = Arc::new(Mutex::new(String::new()));
        let showing = Arc::clone(&shown);
        std::thread::spawn(move || {
            for text in taken {
                std::thread::sleep(Duration::from_millis(50));
                *showing.lock().unwrap() += &text;
            }
        });
        let (sender, receiver) = sync_channel(QUEUE);
        sender.send(ScreenOutput::Text("@n: 1\n".into())).unwrap();
        sender.send(ScreenOutput::End).unwrap();
        show(&receiver, DelayedPrinter(given));
        assert!(shown.lock().unwrap().starts_with("@n: 1\n"), "not shown at the end");
    }
}
