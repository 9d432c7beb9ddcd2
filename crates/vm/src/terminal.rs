//! The user's terminal, while it is used for a guest.

use std::io::IsTerminal;
use std::mem::MaybeUninit;

/// Standard input as a terminal that passes on every key. Its former settings are restored when this is dropped.
pub struct RawTerminal {
    before: libc::termios,
}

impl RawTerminal {
    /// Takes over standard input. `None` if it is not a terminal.
    pub fn take() -> Option<Self> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let mut before = MaybeUninit::uninit();
        // SAFETY: tcgetattr fills the structure unless it fails.
        let before = unsafe {
            if libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) != 0 {
                return None;
            }
            before.assume_init()
        };
        let mut raw = before;
        // SAFETY: both take a structure that was filled above.
        unsafe {
            libc::cfmakeraw(&mut raw);
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw);
        }
        Some(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // SAFETY: the structure was filled by tcgetattr.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.before) };
    }
}

/// Rows and columns of standard output. 24 x 80 if it is not a terminal.
pub fn size() -> (u16, u16) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills a winsize.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    match answer == 0 && size.ws_row > 0 && size.ws_col > 0 {
        true => (size.ws_row, size.ws_col),
        false => (24, 80),
    }
}
