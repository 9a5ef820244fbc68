//! What ends a proxy that runs: the end of standard input, and signals.

use std::{fs, io};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::watch;

use strait::lifeline;
use strait::proxy::Stop;

use crate::notices::notice;

/// Turns the end of standard input and the signals into stopping: the first signal drains, the
/// second cuts, and SIGQUIT cuts at once. As PID 1 a signal without a handler would be ignored.
///
/// The handlers are there when this returns; the future acts on them until the proxy has ended.
pub(crate) fn watch(
    tell: watch::Sender<Stop>,
    has_lifeline: bool,
) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // `nohup`, and a shell for what it starts in the background, have these ignored for a reason.
    let mut hangup = unless_ignored(Signal::HUP)?;
    let mut quit = unless_ignored(Signal::QUIT)?;
    // With a handler, which stays when this is dropped, a log that may not grow is a failed write,
    // which stops the proxy with its reason. Without one it is the end, there and then.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    let lifeline = has_lifeline.then(lifeline::watch).transpose()?;
    Ok(async move {
        let mut ended = std::pin::pin!(async {
            match lifeline {
                Some(lifeline) => drop(lifeline.await),
                None => std::future::pending().await,
            }
        });
        let mut next = Stop::Drain;
        loop {
            let stop = tokio::select! {
                () = &mut ended => {
                    notice(format_args!("standard input has ended: stopping"));
                    tell.send_replace(Stop::Now);
                    // The receiver goes when serving ends.
                    return tell.closed().await;
                }
                () = received(&mut quit) => Stop::Now,
                () = received(&mut hangup) => next,
                _ = terminate.recv() => next,
                _ = interrupt.recv() => next,
            };
            notice(format_args!(
                "{}",
                match (stop, next) {
                    (Stop::Run | Stop::Drain, _) =>
                        "signal received: no new connections, finishing what is open",
                    (Stop::Now, Stop::Run | Stop::Drain) => "signal received: stopping",
                    (Stop::Now, Stop::Now) => "signal received again: stopping",
                }
            ));
            tell.send_replace(stop);
            next = Stop::Now;
        }
    })
}

/// A handler for a signal, unless whoever started this has it ignored.
fn unless_ignored(number: Signal) -> io::Result<Option<unix::Signal>> {
    // Without /proc it is taken as it comes.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_ignored(&status, number) {
        return Ok(None);
    }
    signal(SignalKind::from_raw(number.as_raw())).map(Some)
}

/// What `proc_pid_status(5)` says of a signal: its bit in `SigIgn`, the first of which is signal 1's.
fn is_ignored(status: &str, number: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number.as_raw() - 1) & 1 == 1)
}

async fn received(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read_from_its_first_bit() {
        let status = "Name:\tstrait\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, Signal::HUP));
        assert!(is_ignored(status, Signal::PIPE));
        assert!(!is_ignored(status, Signal::QUIT));
        assert!(!is_ignored("", Signal::HUP));
    }
}
