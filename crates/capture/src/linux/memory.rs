//! The memory of the program, which waits in a system call.

use std::io;

/// The longest path of Linux.
const MOST_PATH: usize = 4096;

/// A process whose memory can be read and written.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its number.
    pub pid: libc::pid_t,
}

/// A fault of memory, as system calls report it.
const FAULT: i32 = libc::EFAULT;

impl Memory {
    /// Reads `len` bytes. An error is a number of errno.
    pub fn read(self, address: u64, len: usize) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0; len];
        match self.read_some(address, &mut bytes) {
            Ok(read) if read == len => Ok(bytes),
            _ => Err(FAULT),
        }
    }

    fn read_some(self, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
        // SAFETY: `local` is a live buffer of its length. The kernel checks `remote`, which is in the other process.
        let read = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// Writes bytes.
    pub fn write(self, address: u64, bytes: &[u8]) -> Result<(), i32> {
        if bytes.is_empty() {
            return Ok(());
        }
        let local =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
        // SAFETY: `local` is a live buffer of its length, which is only read. The kernel checks `remote`.
        let written = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        if written == bytes.len() as isize { Ok(()) } else { Err(FAULT) }
    }

    /// Reads a text that ends with a NUL, such as a path.
    pub fn text(self, address: u64) -> Result<Vec<u8>, i32> {
        let mut text = Vec::new();
        // A read that crosses into a page that does not exist fails, so pages are read one by one.
        while text.len() < MOST_PATH {
            let at = address.wrapping_add(text.len() as u64);
            let mut part = vec![0; 256 - (at % 256) as usize];
            let read = self.read_some(at, &mut part).map_err(|_| FAULT)?;
            part.truncate(read);
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                text.extend(&part[..end]);
                return Ok(text);
            }
            text.extend(part);
        }
        Err(libc::ENAMETOOLONG)
    }
}
