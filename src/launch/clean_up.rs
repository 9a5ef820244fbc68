//! Takes back what a launch made. It never stops at a failure, and tells all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::exec::Exec;
use super::plan::Undo;

/// How long a removal that the runtime has begun by itself may take, and how often it is asked.
const IN_PROGRESS: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(20);

/// Takes groups back one after the other, each of them at once; returns what is left, in words.
pub async fn clean_up(exec: &Arc<Exec>, groups: &[Vec<Undo>]) -> Vec<String> {
    let mut left = Vec::new();
    for group in groups {
        let mut removals = JoinSet::new();
        for undo in group {
            let (exec, undo) = (Arc::clone(exec), undo.clone());
            removals.spawn(async move { take_back(&exec, &undo).await });
        }
        for outcome in removals.join_all().await {
            left.extend(outcome.err());
        }
    }
    left
}

/// Removes one thing; one that has gone by itself is as good.
async fn take_back(exec: &Exec, undo: &Undo) -> Result<(), String> {
    let complaint = match exec.ask(&undo.remove).await {
        Ok(done) if done.status.success() => return Ok(()),
        Ok(done) => done.complaint(),
        Err(error) => error.to_string(),
    };
    let due = Instant::now() + IN_PROGRESS;
    loop {
        match exec.ask(&undo.remains).await {
            Ok(list) if list.status.success() && list.stdout.trim_ascii().is_empty() => {
                return Ok(());
            }
            // The runtime may be removing it already, because it has ended.
            Ok(list) if list.status.success() && Instant::now() < due => sleep(AGAIN).await,
            _ => {
                let what = undo.remove.arguments().last();
                return Err(format!(
                    "`{}` is left: {complaint}",
                    what.map_or("", String::as_str)
                ));
            }
        }
    }
}
