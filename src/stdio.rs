//! Standard input and output as files of our own, whose reads and writes wait.
//!
//! std's own buffer lines and lock; and whoever shares a descriptor may have made it non-blocking,
//! which std passes on as an error in the middle of a write.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A file whose reads and writes wait, also where it has been made non-blocking.
#[derive(Debug)]
pub struct Waiting<F>(F);

impl<F: AsFd> Waiting<F> {
    /// Reads and writes `file`.
    pub fn new(file: F) -> Self {
        Self(file)
    }

    fn until(&self, ready: PollFlags) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, ready)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A copy of a standard descriptor.
pub fn copy(descriptor: BorrowedFd<'_>) -> io::Result<Waiting<File>> {
    Ok(Waiting(File::from(descriptor.try_clone_to_owned()?)))
}

/// Whether nobody holds the other end of a pipe any more, and nothing that came through it waits to
/// be read. Of anything else than a pipe or a socket this is never known.
pub fn has_ended(descriptor: BorrowedFd<'_>) -> bool {
    let mut waiting = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    let is_known = poll(&mut waiting, Some(&now)).is_ok();
    let [waiting] = waiting;
    let events = waiting.revents();
    is_known && events.contains(PollFlags::HUP) && !events.contains(PollFlags::IN)
}

impl<F: Read + AsFd> Read for Waiting<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.until(PollFlags::IN)?;
                }
                outcome => return outcome,
            }
        }
    }
}

impl<F: Write + AsFd> Write for Waiting<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.until(PollFlags::OUT)?;
                }
                outcome => return outcome,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;

    #[test]
    fn a_non_blocking_pipe_is_waited_for() {
        let (reader, writer) = pipe().expect("a pipe");
        for end in [reader.as_fd(), writer.as_fd()] {
            rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::NONBLOCK).expect("it is ours");
        }
        // More than a pipe holds, so that both ends must wait.
        let sent: Vec<u8> = (0..1 << 20)
            .map(|index: u32| index.to_le_bytes()[1])
            .collect();
        let expected = sent.clone();
        let writing = std::thread::spawn(move || Waiting::new(writer).write_all(&sent));
        let mut received = Vec::new();
        Waiting::new(reader)
            .read_to_end(&mut received)
            .expect("all of it");
        writing.join().expect("no panic").expect("all of it");
        assert!(received == expected);
    }

    #[test]
    fn an_end_is_seen_once_everything_is_read() {
        let (mut reader, mut writer) = pipe().expect("a pipe");
        assert!(!has_ended(reader.as_fd()));
        writer.write_all(b"x").expect("room");
        drop(writer);
        assert!(!has_ended(reader.as_fd()), "something waits");
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("one byte");
        assert!(has_ended(reader.as_fd()));
    }
}
