//! Standard input as a lifeline: when it ends, the program that holds it is gone.

use std::io::{self, ErrorKind, Read};
use std::thread;

use tokio::sync::oneshot;

/// Bytes of stack for the thread: it calls nothing deep. Not from the environment.
const STACK: usize = 256 * 1024;

/// Watches standard input from a thread of its own. The receiver resolves when it ends; what comes
/// in before is read and ignored. A closed or unreadable standard input counts as ended.
///
/// Not tokio's `stdin`: a runtime waits at its end for the read that is under way there.
pub fn watch() -> io::Result<oneshot::Receiver<()>> {
    let (ended, lifeline) = oneshot::channel();
    thread::Builder::new()
        .name("lifeline".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut ignored = [0; 1024];
            loop {
                match stdin.read(&mut ignored) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            // The proxy may have ended first, and then nobody wants to know.
            let _ = ended.send(());
        })?;
    Ok(lifeline)
}
