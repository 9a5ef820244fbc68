//! What this machine says of itself, read from it: users, control groups, labels, processes.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::owner::Owner;
use super::runtime::{Controllers, MachineFacts};
use super::spec::RunId;

/// The user and the group this program runs as.
pub fn user() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// What the plan of a launch needs to know.
pub fn facts() -> MachineFacts {
    let (user, _) = user();
    MachineFacts {
        host: name(),
        user,
        controllers: controllers(user),
        has_selinux: read("/sys/fs/selinux/enforce").is_some_and(|mode| mode.trim() == "1"),
        has_ipv6: Path::new("/proc/sys/net/ipv6").exists(),
    }
}

fn name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// The controllers that the user's own part of the tree has (control groups, version 2).
fn controllers(user: u32) -> Controllers {
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return Controllers::OfRoot;
    }
    let slice = format!("/sys/fs/cgroup/user.slice/user-{user}.slice/user@{user}.service");
    let of_user = read(&format!("{slice}/cgroup.controllers"));
    // Without a manager of the user's own nothing is delegated.
    Controllers::Delegated(of_user.unwrap_or_default())
}

/// Who this process is, for whoever finds what it leaves.
pub fn owner() -> Owner {
    let process = std::process::id();
    Owner {
        host: name(),
        boot: read("/proc/sys/kernel/random/boot_id")
            .map(|boot| boot.trim().to_owned())
            .unwrap_or_default(),
        process,
        started: started(process).unwrap_or_default(),
    }
}

/// When a process started, in clock ticks since the boot: field 22 of `/proc/PID/stat` (proc(5)).
/// `None` is a process that is not there, or a machine that does not say.
pub fn started(process: u32) -> Option<String> {
    let line = read(&format!("/proc/{process}/stat"))?;
    // The second field is the program's name in parentheses, and may hold anything.
    let (_, rest) = line.rsplit_once(')')?;
    let is_zombie = rest.trim_start().starts_with('Z');
    let started = rest.split_ascii_whitespace().nth(19)?;
    (!is_zombie).then(|| started.to_owned())
}

/// A run id that no other launch has.
pub fn run_id() -> io::Result<RunId> {
    let mut bytes = [0; 6];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(RunId::from_bytes(bytes))
}

/// The program of this process.
pub fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_started() {
        let us = owner();
        assert_eq!(us.process, std::process::id());
        assert!(!us.is_dead(&us, started));
        assert_eq!(Owner::parse(&us.to_string()).as_ref(), Some(&us));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn runs_are_told_apart() {
        assert_ne!(
            run_id().expect("random bytes"),
            run_id().expect("random bytes")
        );
    }
}
