//! What the program says on standard error, and who waits until it is read: nobody.
//!
//! A pipe that nobody reads is full some day, and a write to it waits for ever. That must hold up
//! neither the lifeline nor a signal nor a connection. So while a proxy runs, what is said goes
//! through a short queue to a thread of its own; what does not fit is left out, and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, panic, thread};

use strait::stdio::Waiting;

/// Lines that wait at a time: more than a start and an end say together.
const MOST_WAITING: usize = 64;
/// How long the end waits for what has not been read yet.
const LAST_NOTICES: Duration = Duration::from_millis(500);
/// Bytes of stack for the thread: it calls nothing deep. Not from the environment.
const STACK: usize = 256 * 1024;

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    has_writer: false,
    is_writing: false,
    left_out: 0,
    lines: VecDeque::new(),
});
static CHANGED: Condvar = Condvar::new();

/// Says something that is no attempt, in one write. A closed standard error is no reason to stop.
///
/// Waits for nobody once [`start`] has been called; before that nothing runs that could be held up,
/// and what is wrong with the command line has to come out whole.
pub(crate) fn notice(text: fmt::Arguments<'_>) {
    let line = format!("{text}\n");
    let mut queue = lock();
    if queue.has_writer {
        queue.push(line);
        CHANGED.notify_all();
    } else {
        drop(queue);
        write(&line);
    }
}

/// Starts the thread that writes, and sends there what std would say of a fault itself.
pub(crate) fn start() -> io::Result<()> {
    thread::Builder::new()
        .name("notices".to_owned())
        .stack_size(STACK)
        .spawn(|| {
            loop {
                write(&next());
            }
        })?;
    lock().has_writer = true;
    panic::set_hook(Box::new(|fault| {
        notice(format_args!("{}", fault.to_string().replace('\n', " ")));
    }));
    Ok(())
}

/// Waits until all has been written, but not for ever.
pub(crate) fn flush() {
    let is_behind = |queue: &mut Queue| !queue.is_done();
    drop(CHANGED.wait_timeout_while(lock(), LAST_NOTICES, is_behind));
}

fn write(line: &str) {
    // Nowhere to say that nothing can be said.
    let _ = Waiting::new(io::stderr()).write_all(line.as_bytes());
}

/// The next line to write, once there is one; the last one is written.
fn next() -> String {
    let mut queue = lock();
    queue.is_writing = false;
    CHANGED.notify_all();
    loop {
        if let Some(line) = queue.pop() {
            queue.is_writing = true;
            return line;
        }
        queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    // Each change leaves the queue whole.
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has not been written yet.
#[derive(Debug, Default)]
struct Queue {
    has_writer: bool,
    is_writing: bool,
    left_out: usize,
    lines: VecDeque<String>,
}

impl Queue {
    /// Takes a line if there is room for it, and for the one that stands where others are missing.
    fn push(&mut self, line: String) {
        let room = MOST_WAITING.saturating_sub(self.lines.len());
        match self.left_out {
            0 if room >= 1 => self.lines.push_back(line),
            count if room >= 2 => {
                self.lines.push_back(omission(count));
                self.lines.push_back(line);
                self.left_out = 0;
            }
            _ => self.left_out = self.left_out.saturating_add(1),
        }
    }

    fn pop(&mut self) -> Option<String> {
        self.lines.pop_front().or_else(|| {
            let count = std::mem::take(&mut self.left_out);
            (count > 0).then(|| omission(count))
        })
    }

    fn is_done(&self) -> bool {
        self.lines.is_empty() && self.left_out == 0 && !self.is_writing
    }
}

fn omission(count: usize) -> String {
    format!("warning: standard error was not read; notices left out here: {count}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_where_it_is_missing() {
        let mut queue = Queue::default();
        for number in 0..MOST_WAITING + 3 {
            queue.push(format!("{number}\n"));
        }
        assert_eq!(queue.pop().as_deref(), Some("0\n"));
        // No room for it and for the count.
        queue.push("left out too\n".to_owned());
        assert_eq!(queue.pop().as_deref(), Some("1\n"));
        queue.push("last\n".to_owned());
        let rest: Vec<String> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest.len(), MOST_WAITING);
        assert_eq!(rest[rest.len() - 2], omission(4));
        assert_eq!(rest[rest.len() - 1], "last\n");
        assert!(queue.is_done());
    }

    #[test]
    fn what_does_not_fit_is_counted_at_the_end_too() {
        let mut queue = Queue::default();
        for _ in 0..=MOST_WAITING {
            queue.push("line\n".to_owned());
        }
        queue.lines.clear();
        assert!(!queue.is_done());
        assert_eq!(queue.pop(), Some(omission(1)));
        assert_eq!(queue.pop(), None);
    }
}
