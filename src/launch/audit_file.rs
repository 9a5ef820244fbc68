//! The file in which the attempts of launches are recorded.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// How large an audit file grows by default, before it becomes the old one: sixty thousand attempts.
pub const DEFAULT_CAP: u64 = 16 << 20;

/// Why an audit file cannot be written. Nothing may go out without a record, so there is no launch.
#[derive(Debug, Error)]
pub enum AuditError {
    /// Its folder is not there and cannot be made.
    #[error("{}", Reported(.path, &format!("its folder cannot be made: {}", .reason)))]
    Folder {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A symbolic link in its place: what it leads to is not ours to write to.
    #[error("{}", Reported(.0, "it is a symbolic link; give the file itself"))]
    Link(PathBuf),
    /// Something else in its place.
    #[error("{}", Reported(.0, "it is no regular file"))]
    NotAFile(PathBuf),
    /// It cannot be opened or made.
    #[error("{}", Reported(.path, &.reason.to_string()))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// It is full, and cannot become the old one.
    #[error("{}", Reported(.path, &format!("it is full and cannot be renamed: {}", .reason)))]
    Rotate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A line could not be written.
    #[error("{}", Reported(.path, &.reason.to_string()))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
}

/// What cannot be done, why, and the remedy.
struct Reported<'a>(&'a Path, &'a str);

impl fmt::Display for Reported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, reason) = self;
        write!(
            f,
            "the audit file `{}` cannot be written: {reason}; name another with --audit FILE, or do \
             without one by --audit none",
            path.display()
        )
    }
}

/// An audit file. Several launches may write to one at a time: each line is one write to its end.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    cap: u64,
    file: File,
    /// Whether half a line stands at its end.
    is_torn: bool,
}

impl AuditFile {
    /// Opens the file at `path`, or makes it and its folders for the user alone. When a line would
    /// make it larger than `cap`, it becomes `PATH.1` in place of the one that was that before.
    pub fn open(path: &Path, cap: u64) -> Result<Self, AuditError> {
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(|reason| AuditError::Folder {
                path: path.to_owned(),
                reason,
            })?;
        }
        Ok(Self {
            path: path.to_owned(),
            cap,
            file: open_to_append(path)?,
            is_torn: false,
        })
    }

    /// Writes a line, to which a line feed is added.
    pub fn write_line(&mut self, line: &str) -> Result<(), AuditError> {
        if !self.is_in_place() {
            self.reopen()?;
        }
        let mut text = String::with_capacity(line.len() + 2);
        if self.is_torn {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
        if self.is_full(text.len()) {
            self.rotate(text.len())?;
        }
        let written = self.file.write_all(text.as_bytes());
        self.is_torn = written.is_err();
        written.map_err(|reason| AuditError::Write {
            path: self.path.clone(),
            reason,
        })
    }

    /// Makes the file the old one and begins another. The lock decides who does, where several
    /// would: for the others the file is then no longer in its place, and that is looked at again
    /// under the lock, or the new file would go after the old one.
    fn rotate(&mut self, more: usize) -> Result<(), AuditError> {
        let failed = |reason| AuditError::Rotate {
            path: self.path.clone(),
            reason,
        };
        match self.file.try_lock() {
            Ok(()) => {}
            // Another launch is at it; one line more in the old file does not matter.
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(reason)) => return Err(failed(reason)),
        }
        if self.is_in_place() && self.is_full(more) {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            fs::rename(&self.path, &old).map_err(failed)?;
        }
        // The lock goes with the file it is on.
        self.reopen()
    }

    fn reopen(&mut self) -> Result<(), AuditError> {
        self.file = open_to_append(&self.path)?;
        self.is_torn = false;
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        let identity = |of: io::Result<Metadata>| of.ok().map(|of| (of.dev(), of.ino()));
        let ours = identity(self.file.metadata());
        ours.is_some() && ours == identity(fs::symlink_metadata(&self.path))
    }

    fn is_full(&self, more: usize) -> bool {
        let length = self.file.metadata().map_or(0, |file| file.len());
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        length > 0 && length.saturating_add(more) > self.cap
    }
}

fn open_to_append(path: &Path) -> Result<File, AuditError> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        // So that a pipe without a reader, or a terminal, is seen and not waited for.
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let path = path.to_owned();
    let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(AuditError::Link(path)),
        Err(Errno::NXIO | Errno::ISDIR) => return Err(AuditError::NotAFile(path)),
        Err(error) => {
            let reason = error.into();
            return Err(AuditError::Open { path, reason });
        }
    };
    match file.metadata() {
        Ok(kind) if kind.is_file() => Ok(file),
        Ok(_) => Err(AuditError::NotAFile(path)),
        Err(reason) => Err(AuditError::Open { path, reason }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    /// A folder of a test's own, gone with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("strait-report-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("a folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_audit_file_is_made_for_the_user_alone_and_appended_to() {
        let folder = Folder::new();
        let path = folder.0.join("a/b/audit.jsonl");
        for _ in 0..2 {
            let mut file = AuditFile::open(&path, DEFAULT_CAP).expect("a file");
            file.write_line("{}").expect("written");
        }
        assert_eq!(fs::read_to_string(&path).expect("read"), "{}\n{}\n");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&folder.0.join("a")), 0o700);
        assert_eq!(mode(&folder.0.join("a/b")), 0o700);
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let folder = Folder::new();
        let link = folder.0.join("link");
        symlink(folder.0.join("target"), &link).expect("a link");
        let pipe = folder.0.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .expect("a pipe");
        let is = |path: &Path, expected: fn(&AuditError) -> bool| {
            let error = AuditFile::open(path, 1).expect_err("refused");
            assert!(expected(&error), "{error:?}");
            assert!(error.to_string().contains("--audit none"), "{error}");
        };
        is(&link, |error| matches!(error, AuditError::Link(_)));
        assert!(!folder.0.join("target").exists());
        is(&pipe, |error| matches!(error, AuditError::NotAFile(_)));
        is(&folder.0, |error| matches!(error, AuditError::NotAFile(_)));
        is(Path::new("/dev/null"), |error| {
            matches!(error, AuditError::NotAFile(_))
        });
        fs::write(folder.0.join("file"), "").expect("a file");
        is(&folder.0.join("file/a/b"), |error| {
            matches!(error, AuditError::Folder { .. })
        });
    }

    #[test]
    fn a_full_file_becomes_the_old_one_for_every_launch() {
        let folder = Folder::new();
        let path = folder.0.join("audit.jsonl");
        let mut one = AuditFile::open(&path, 10).expect("a file");
        let mut other = AuditFile::open(&path, 10).expect("a file");
        one.write_line("1234").expect("written");
        other.write_line("5678").expect("written");
        one.write_line("third").expect("written");
        other.write_line("4").expect("written");
        let read = |name| fs::read_to_string(folder.0.join(name)).expect("read");
        assert_eq!(read("audit.jsonl"), "third\n4\n");
        assert_eq!(read("audit.jsonl.1"), "1234\n5678\n");
        one.write_line("longer than the cap").expect("written");
        assert_eq!(read("audit.jsonl"), "longer than the cap\n");
        assert_eq!(read("audit.jsonl.1"), "third\n4\n");
        fs::remove_file(&path).expect("removed");
        one.write_line("again").expect("written");
        assert_eq!(read("audit.jsonl"), "again\n");
    }

    #[test]
    fn launches_at_once_lose_no_line_but_by_the_second_rotation() {
        let folder = Folder::new();
        let path = folder.0.join("audit.jsonl");
        let (writers, lines) = (4, 500);
        // Room for all but a few: exactly one rotation.
        let cap = 20 * writers * lines * 3 / 4;
        thread::scope(|scope| {
            for writer in 0..writers {
                let path = &path;
                scope.spawn(move || {
                    let mut file = AuditFile::open(path, cap).expect("a file");
                    for line in 0..lines {
                        let line = format!("{{\"w\":{writer},\"line\":{line:04}}}");
                        file.write_line(&line).expect("written");
                    }
                });
            }
        });
        let read = |name| fs::read_to_string(folder.0.join(name)).expect("read");
        let all = read("audit.jsonl") + &read("audit.jsonl.1");
        let different: BTreeSet<&str> = all.lines().collect();
        assert_eq!(different.len() as u64, writers * lines);
        assert!(
            all.lines().all(|line| line.len() == 19),
            "none is in another"
        );
    }
}
