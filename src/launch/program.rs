//! Our own program for the sidecar: static, because its root is empty, and a copy that nobody else
//! changes, because it is mounted into a container.

use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use elf::abi;
use elf::dynamic::DynamicTable;
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::{ElfBytes, ParseError};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The largest file that is read: scripts/build-static aims at 4 MiB, and a debug build has 80.
const MAX_SIZE: u64 = 256 << 20;
/// Where the copies are, in the user's folder for caches.
const COPIES: [&str; 2] = ["strait", "program"];

/// A static program for the runtime's machine, whole.
pub struct Program {
    path: PathBuf,
    content: Vec<u8>,
}

impl Program {
    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Why there is no program for the sidecar.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// No program of ours runs there.
    #[error(
        "the runtime's machine is `{}`, and there is no strait for it; amd64 and arm64 are what it \
         is built for", .0.escape_default()
    )]
    Architecture(String),
    /// The one that was named cannot be it.
    #[error(
        "`{}`, given by --proxy-binary, {reason}; give a static strait for {architecture}, as \
         scripts/build-static makes it", .path.display()
    )]
    Choice {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Unfit,
        /// The architecture that is needed.
        architecture: &'static str,
    },
    /// None of those looked at can be it.
    #[error(
        "the proxy needs a static strait for {architecture}, and there is none:{}make one with \
         scripts/build-static and put it beside strait, or name it with --proxy-binary",
        LookedAt(.looked_at)
    )]
    NotFound {
        /// The files, and what is wrong with each.
        looked_at: Vec<(PathBuf, Unfit)>,
        /// The architecture that is needed.
        architecture: &'static str,
    },
    /// The folder for copies belongs to someone else, who could change them.
    #[error(
        "`{}`, where the proxy's program is kept, belongs to another user or is no folder; remove \
         it, or set XDG_CACHE_HOME to a folder of your own", .0.display()
    )]
    Folder(PathBuf),
    /// The copy cannot be made.
    #[error(
        "the proxy's program cannot be copied to `{}`: {reason}; make room for it there, or set \
         XDG_CACHE_HOME to a folder that can be written to", .path.display()
    )]
    Copy {
        /// What could not be made.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
}

/// Why a file cannot be the program; the words stand after its name.
#[derive(Debug, Error)]
pub enum Unfit {
    /// Nothing there.
    #[error("is not there")]
    Missing,
    /// It cannot be read.
    #[error("cannot be read ({0})")]
    Unreadable(io::Error),
    /// A folder, a device.
    #[error("is no regular file")]
    NotAFile,
    /// Larger than any of ours.
    #[error("is larger than {} MiB", MAX_SIZE >> 20)]
    TooLarge,
    /// It begins with `#!`.
    #[error("is a script")]
    Script,
    /// Another kind of file: macOS's programs, too.
    #[error("is no Linux program (ELF)")]
    NotElf,
    /// ELF that does not hold together.
    #[error("is a damaged program ({0})")]
    Damaged(ParseError),
    /// ELF that is not run: an object file, a core dump.
    #[error("is ELF, but no program")]
    NotAProgram,
    /// For another machine.
    #[error("is for another architecture")]
    Machine,
    /// It needs an interpreter (`PT_INTERP`).
    #[error("is not static: it needs the dynamic linker")]
    Interpreter,
    /// It needs libraries (`DT_NEEDED`).
    #[error("is not static: it needs libraries")]
    Libraries,
}

/// One file a line, after a colon.
struct LookedAt<'a>(&'a [(PathBuf, Unfit)]);

impl fmt::Display for LookedAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for (path, reason) in self.0 {
            writeln!(f, "  `{}` {reason}", path.display())?;
        }
        Ok(())
    }
}

/// A machine that programs of ours are built for.
#[derive(Clone, Copy)]
struct Machine {
    /// As images call it.
    image: &'static str,
    /// As the kernel and scripts/build-static call it.
    kernel: &'static str,
    /// As ELF calls it.
    elf: u16,
}

const MACHINES: [Machine; 2] = [
    Machine {
        image: "amd64",
        kernel: "x86_64",
        elf: abi::EM_X86_64,
    },
    Machine {
        image: "arm64",
        kernel: "aarch64",
        elf: abi::EM_AARCH64,
    },
];

/// Finds the program for a runtime whose machine is of `architecture`, as images call it: the user's
/// `choice` and nothing else where there is one, else `own`, the program that runs now, else what
/// scripts/build-static made, beside it.
pub fn find(
    choice: Option<&Path>,
    own: &Path,
    architecture: &str,
) -> Result<Program, ProgramError> {
    let machine = MACHINES
        .into_iter()
        .find(|machine| machine.image == architecture)
        .ok_or_else(|| ProgramError::Architecture(architecture.to_owned()))?;
    if let Some(path) = choice {
        return read(path, machine).map_err(|reason| ProgramError::Choice {
            path: path.to_owned(),
            reason,
            architecture: machine.image,
        });
    }
    let beside = [format!("strait-{}", machine.kernel), "strait-static".into()];
    let beside = beside.into_iter().map(|name| own.with_file_name(name));
    let mut looked_at = Vec::new();
    for path in [own.to_owned()].into_iter().chain(beside) {
        match read(&path, machine) {
            Ok(program) => return Ok(program),
            Err(reason) => looked_at.push((path, reason)),
        }
    }
    Err(ProgramError::NotFound {
        looked_at,
        architecture: machine.image,
    })
}

/// Reads and judges a file; what was judged is what will be copied.
fn read(path: &Path, machine: Machine) -> Result<Program, Unfit> {
    // A pipe would be waited for.
    let file = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY,
        Mode::empty(),
    );
    let file = File::from(file.map_err(|error| match io::Error::from(error) {
        error if error.kind() == io::ErrorKind::NotFound => Unfit::Missing,
        error => Unfit::Unreadable(error),
    })?);
    let kind = file.metadata().map_err(Unfit::Unreadable)?;
    if !kind.is_file() {
        return Err(Unfit::NotAFile);
    }
    let mut content = Vec::with_capacity(usize::try_from(kind.len().min(MAX_SIZE)).unwrap_or(0));
    let mut file = file.take(MAX_SIZE + 1);
    let length = file.read_to_end(&mut content).map_err(Unfit::Unreadable)?;
    if u64::try_from(length).is_ok_and(|length| length > MAX_SIZE) {
        return Err(Unfit::TooLarge);
    }
    judge(&content, machine)?;
    Ok(Program {
        path: path.to_owned(),
        content,
    })
}

/// Whether these bytes are a static program for the machine.
fn judge(content: &[u8], machine: Machine) -> Result<(), Unfit> {
    if content.starts_with(b"#!") {
        return Err(Unfit::Script);
    }
    if !content.starts_with(&abi::ELFMAGIC) {
        return Err(Unfit::NotElf);
    }
    let program = ElfBytes::<AnyEndian>::minimal_parse(content).map_err(Unfit::Damaged)?;
    let header = program.ehdr;
    if ![abi::ET_EXEC, abi::ET_DYN].contains(&header.e_type) {
        return Err(Unfit::NotAProgram);
    }
    let is_for_it = header.e_machine == machine.elf
        && header.class == Class::ELF64
        && header.endianness == AnyEndian::Little;
    if !is_for_it {
        return Err(Unfit::Machine);
    }
    // By the segments, as the kernel and the dynamic linker go; sections can be missing, or lie.
    let segments = program.segments().ok_or(Unfit::NotAProgram)?;
    if !segments
        .iter()
        .any(|segment| segment.p_type == abi::PT_LOAD)
    {
        return Err(Unfit::NotAProgram);
    }
    for segment in segments {
        if segment.p_type == abi::PT_INTERP {
            return Err(Unfit::Interpreter);
        }
        // Position-independent static programs have one, too, to move themselves by.
        if segment.p_type == abi::PT_DYNAMIC {
            let data = program.segment_data(&segment).map_err(Unfit::Damaged)?;
            let entries = DynamicTable::new(header.endianness, header.class, data);
            if entries.iter().any(|entry| entry.d_tag == abi::DT_NEEDED) {
                return Err(Unfit::Libraries);
            }
        }
    }
    Ok(())
}

/// Copies a program to where a container may have it from, and says where: in `cache`, the user's
/// folder for caches, under a name made from its content.
///
/// A copy that is there already is compared byte for byte, each time, and replaced unless it is the
/// same. A container that has the old one keeps it.
pub fn private_copy(program: &Program, cache: &Path) -> Result<PathBuf, ProgramError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |reason| ProgramError::Copy { path, reason }
    };
    let folder = COPIES
        .iter()
        .fold(cache.to_owned(), |path, name| path.join(name));
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&folder);
    match made {
        // Something that is no folder is in its place.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(failed(&folder))?,
    }
    let found = fs::symlink_metadata(&folder).map_err(failed(&folder))?;
    if !found.is_dir() || found.uid() != user() {
        return Err(ProgramError::Folder(folder));
    }
    if found.mode() & 0o777 != 0o700 {
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(failed(&folder))?;
    }

    let copy = folder.join(name_of(&program.content));
    if !is_the_same(&copy, &program.content) {
        replace(&copy, &program.content).map_err(failed(&copy))?;
    }
    Ok(copy)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn name_of(content: &[u8]) -> String {
    let digits = Sha256::digest(content);
    digits.iter().fold(String::new(), |mut name, byte| {
        // A String takes every write.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Whether a file is ours, cannot be written to, and holds exactly this.
fn is_the_same(copy: &Path, content: &[u8]) -> bool {
    let open = || -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(copy, flags, Mode::empty())?);
        let found = file.metadata()?;
        let is_ours = found.is_file() && found.uid() == user() && found.mode() & 0o7777 == 0o555;
        if !is_ours || u64::try_from(content.len()) != Ok(found.len()) {
            return Ok(false);
        }
        let mut there = Vec::with_capacity(content.len());
        file.read_to_end(&mut there)?;
        Ok(there == content)
    };
    // What cannot be read is not the same, and the attempt to replace it says why.
    open().unwrap_or(false)
}

/// Writes beside it, then over it: whoever looks at `copy` sees the old one whole or the new one.
fn replace(copy: &Path, content: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let new = copy.with_file_name(format!(".new-{}-{count}", process::id()));
    // Left by a process of the same number that did not come to its end.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let write = || {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(0o555))?;
        drop(file);
        // A runtime makes an empty folder where it finds nothing to mount, and no file replaces that.
        if fs::symlink_metadata(copy).is_ok_and(|found| found.is_dir()) {
            fs::remove_dir(copy)?;
        }
        fs::rename(&new, copy)
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::*;

    /// A 64-bit ELF file with these segments, each of a type and with some content.
    fn elf(machine: u16, kind: u16, segments: &[(u32, &[u8])]) -> Vec<u8> {
        const HEADER: usize = 64;
        const SEGMENT: usize = 56;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let word = |file: &mut Vec<u8>, value: u64, bytes: usize| {
            file.extend_from_slice(&value.to_le_bytes()[..bytes]);
        };
        word(&mut file, kind.into(), 2);
        word(&mut file, machine.into(), 2);
        word(&mut file, 1, 4);
        word(&mut file, 0x40_0000, 8);
        word(&mut file, HEADER as u64, 8);
        word(&mut file, 0, 8);
        word(&mut file, 0, 4);
        word(&mut file, HEADER as u64, 2);
        word(&mut file, SEGMENT as u64, 2);
        word(&mut file, segments.len() as u64, 2);
        file.resize(HEADER, 0);
        let mut content = HEADER + SEGMENT * segments.len();
        for (kind, data) in segments {
            word(&mut file, (*kind).into(), 4);
            word(&mut file, 5, 4);
            for value in [content, 0, 0, data.len(), data.len(), 1] {
                word(&mut file, value as u64, 8);
            }
            content += data.len();
        }
        for (_, data) in segments {
            file.extend_from_slice(data);
        }
        file
    }

    fn static_elf(machine: u16) -> Vec<u8> {
        // DT_NULL: what a position-independent one has at the least.
        let dynamic = (abi::PT_DYNAMIC, [0; 16].as_slice());
        elf(machine, abi::ET_DYN, &[(abi::PT_LOAD, b"code"), dynamic])
    }

    fn program(content: &[u8]) -> Program {
        Program {
            path: PathBuf::from("/strait"),
            content: content.to_vec(),
        }
    }

    /// A folder of a test's own, gone with it.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("strait-program-{}-{count}", process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("a folder");
            Self(path)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).expect("written");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_a_static_program_for_the_machine_will_do() {
        let [amd64, arm64] = MACHINES;
        let load = (abi::PT_LOAD, b"code".as_slice());
        let good = elf(amd64.elf, abi::ET_EXEC, &[load]);
        judge(&good, amd64).expect("not position-independent");
        judge(&static_elf(amd64.elf), amd64).expect("position-independent");
        judge(&static_elf(arm64.elf), arm64).expect("another machine");

        let is = |content: &[u8], expected: &str| {
            let reason = judge(content, amd64).expect_err(expected);
            assert_eq!(reason.to_string(), expected);
        };
        is(b"", "is no Linux program (ELF)");
        is(b"\xcf\xfa\xed\xfe", "is no Linux program (ELF)");
        is(b"#!/bin/sh\n", "is a script");
        is(&static_elf(arm64.elf), "is for another architecture");
        let mut big_endian = elf(arm64.elf, abi::ET_EXEC, &[load]);
        big_endian[5] = 2;
        judge(&big_endian, arm64).expect_err("the other byte order");
        is(
            &elf(amd64.elf, abi::ET_REL, &[load]),
            "is ELF, but no program",
        );
        is(&elf(amd64.elf, abi::ET_EXEC, &[]), "is ELF, but no program");
        let interpreter = (abi::PT_INTERP, b"/lib64/ld.so\0".as_slice());
        is(
            &elf(amd64.elf, abi::ET_DYN, &[load, interpreter]),
            "is not static: it needs the dynamic linker",
        );
        let mut needed = [0; 32];
        needed[0] = 1;
        is(
            &elf(amd64.elf, abi::ET_DYN, &[load, (abi::PT_DYNAMIC, &needed)]),
            "is not static: it needs libraries",
        );
        for end in 4..good.len() {
            let outcome = judge(&good[..end], amd64);
            assert!(outcome.is_err() || end >= 64 + 56, "{end} bytes");
        }
    }

    #[test]
    fn this_test_is_not_static() {
        let own = std::env::current_exe().expect("a program");
        let machine = MACHINES
            .into_iter()
            .find(|machine| machine.kernel == std::env::consts::ARCH);
        if let Some(machine) = machine.filter(|_| cfg!(target_env = "gnu")) {
            let reason = read(&own, machine).expect_err("dynamic");
            assert!(matches!(reason, Unfit::Interpreter), "{reason}");
        }
    }

    #[test]
    fn the_choice_comes_first_and_alone_then_our_own_then_what_is_beside_it() {
        let folder = Folder::new();
        let own = folder.file("strait", b"#!");
        let error = find(None, &own, "arm64").expect_err("nothing");
        let place = folder.0.display().to_string();
        insta::assert_snapshot!(error.to_string().replace(&place, "DIR"), @r"
        the proxy needs a static strait for arm64, and there is none:
          `DIR/strait` is a script
          `DIR/strait-aarch64` is not there
          `DIR/strait-static` is not there
        make one with scripts/build-static and put it beside strait, or name it with --proxy-binary
        ");

        let content = static_elf(abi::EM_X86_64);
        let at = |path: &Path| find(None, path, "amd64").expect("found").path().to_owned();
        let last = folder.file("strait-static", &content);
        assert_eq!(at(&own), last);
        let named = folder.file("strait-x86_64", &content);
        folder.file("strait-aarch64", &content);
        assert_eq!(at(&own), named);
        folder.file("strait", &content);
        assert_eq!(at(&own), own);

        let choice = folder.file("choice", &content);
        let found = find(Some(&choice), &own, "amd64").expect("found");
        assert_eq!((found.path(), &found.content), (choice.as_path(), &content));
        let error = find(Some(&choice), &own, "arm64").expect_err("another machine");
        insta::assert_snapshot!(error.to_string().replace(&place, "DIR"), @"`DIR/choice`, given by --proxy-binary, is for another architecture; give a static strait for arm64, as scripts/build-static makes it");
        let missing = folder.0.join("missing");
        let error = find(Some(&missing), &own, "amd64").expect_err("not there");
        assert!(error.to_string().contains("is not there"), "{error}");
        let error = find(Some(&folder.0), &own, "amd64").expect_err("a folder");
        assert!(error.to_string().contains("is no regular file"), "{error}");
        let error = find(Some(&choice), &own, "riscv64").expect_err("unknown");
        assert!(matches!(error, ProgramError::Architecture(_)));
    }

    #[test]
    fn a_copy_is_named_by_its_content_and_put_right_on_every_use() {
        let folder = Folder::new();
        let copy = || private_copy(&program(b"content"), &folder.0).expect("a copy");
        let path = copy();
        // sha256sum of "content".
        let digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
        assert_eq!(path, folder.0.join("strait/program").join(digest));
        let mode = |path: &Path| {
            let found = fs::symlink_metadata(path).expect("there");
            (found.is_file(), found.mode() & 0o7777)
        };
        let inode = || fs::metadata(&path).expect("there").ino();
        let is_right = || {
            assert_eq!(fs::read(&path).expect("read"), b"content");
            assert_eq!(mode(&path), (true, 0o555));
        };
        is_right();
        let first = inode();
        assert_eq!((copy(), inode()), (path.clone(), first), "left as it is");

        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
        };
        chmod(&path, 0o755);
        fs::write(&path, b"CONTENT").expect("changed");
        chmod(&path, 0o555);
        copy();
        is_right();
        chmod(&path, 0o777);
        copy();
        is_right();
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder");
        copy();
        is_right();
        let elsewhere = folder.file("elsewhere", b"content");
        chmod(&elsewhere, 0o555);
        fs::remove_file(&path).expect("removed");
        symlink(&elsewhere, &path).expect("a link");
        copy();
        is_right();
        let programs = folder.0.join("strait/program");
        chmod(&programs, 0o777);
        copy();
        assert_eq!(mode(&programs), (false, 0o700));
        let left = fs::read_dir(&programs).expect("a folder").count();
        assert_eq!(left, 1, "no temporary file");
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let folder = Folder::new();
        folder.file("file", b"");
        let copy = |cache: &Path| private_copy(&program(b"content"), cache);
        let error = copy(&folder.0.join("file")).expect_err("no folder");
        assert!(matches!(error, ProgramError::Copy { .. }), "{error}");
        assert!(error.to_string().contains("XDG_CACHE_HOME"), "{error}");
        let error = copy(Path::new("/proc")).expect_err("nothing can be made there");
        assert!(matches!(error, ProgramError::Copy { .. }), "{error}");

        fs::create_dir(folder.0.join("strait")).expect("a folder");
        symlink(&folder.0, folder.0.join("strait/program")).expect("a link");
        let error = copy(&folder.0).expect_err("a link");
        assert!(matches!(error, ProgramError::Folder(_)), "{error}");
        fs::remove_file(folder.0.join("strait/program")).expect("removed");
        folder.file("strait/program", b"");
        let error = copy(&folder.0).expect_err("a file");
        assert!(matches!(error, ProgramError::Folder(_)), "{error}");
    }

    #[test]
    fn launches_at_once_have_one_copy() {
        let folder = Folder::new();
        let content: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[0]).collect();
        let program = program(&content);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let path = private_copy(&program, &folder.0).expect("a copy");
                    assert_eq!(fs::read(path).expect("read"), content);
                });
            }
        });
        let programs = fs::read_dir(folder.0.join("strait/program")).expect("a folder");
        assert_eq!(programs.count(), 1);
    }
}
