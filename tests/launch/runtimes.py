"""podman as root, podman as an ordinary user, and docker: started by the tests, gone without a trace afterwards.

    for kind in runtimes.KINDS:
        with kind() as runtime:                 # raises Unavailable where it cannot be had
            image = runtime.import_image(tar, "localhost/toy:test")
            runtime.must("run", "--rm", image, "/bin/true")
            process = runtime.popen([strait, "launch", ...])

Each has a `host.Host` of its own: a network namespace that plays the machine it runs on. Each has a folder of its own
for images, containers, networks and settings, and shares nothing with a runtime that is used on this machine.

What stands in the way, and what is done about it here:

* No systemd, control groups v1, open-files limits that may not be raised (as on many CI machines): podman gets runc,
  `cgroupfs`, a file for its events, and limits that are low enough to be allowed.
* podman as root keeps its locks in one shared memory file for the whole machine and frees all of them when it sees a
  new run folder: a second storage would break the first one's. Hence `lock_type = "file"`.
* `static_dir` is not set: the clean-up that conmon starts takes it from the image folder, the two then look into
  different databases, and every container takes 20 s to end.
* podman picks its network backend by what it finds, and remembers it: it is named.
* podman mounts its image folder onto itself and leaves it so: unmounted here.
* The ordinary user needs a runtime folder (nobody logs in, so nobody makes /run/user/UID), ranges of uids, and
  /dev/net/tun: Debian's udev opens it to everybody, a machine without udev does not. Without it the first network
  fails, and leaves a half-made folder with which every later one fails too ("failed to mount runtime directory for
  rootless netns").
* Its settings are in its home and its runtime folder where podman looks for it, so that a `strait` whose environment
  was stripped by an MCP client finds the same runtime. For podman as root that cannot be: it has `CONTAINERS_CONF`,
  `CONTAINERS_STORAGE_CONF` and `CONTAINERS_REGISTRIES_CONF` in its environment instead.
* Debian starts dockerd where its package is installed. A policy-rc.d forbids that for the time of the installation;
  the tests' own daemon has a socket, folders and a mount namespace of its own, and ends when the tests do.
* A docker client newer than the daemon may stand first in PATH. The one of the daemon's own version is put before
  it; `Docker.clients()` lists both.
"""

import contextlib
import copy
import importlib.util
import json
import os
import pathlib
import pwd
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time

import host as hosts
from host import PREFIX, alive, end

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
BUSYBOX = "/bin/busybox"

# Seconds: for a command of a runtime; for dockerd to answer, or to end; for an installation.
COMMAND, DAEMON, INSTALL = 60, 30, 300

_PROGRAMS = {
    "podman": "podman", "runc": "runc", "newuidmap": "uidmap", "slirp4netns": "slirp4netns",
    "/usr/lib/podman/netavark": "netavark", "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "/usr/sbin/dockerd": "docker.io", "/usr/bin/docker": "docker.io", "docker-registry": "docker-registry",
    BUSYBOX: "busybox-static", "iptables": "iptables", "ip": "iproute2", "nsenter": "util-linux",
    "useradd": "passwd", "node": "nodejs", "npm": "npm", "/usr/bin/python3": "python3", "ldd": "libc-bin",
}
_SERVICES = {
    "docker.io": ["docker.service", "docker.socket", "containerd.service"],
    "docker-registry": ["docker-registry.service"],
}

_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=10000:10000"]

[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
{engine}
[network]
network_backend = "{backend}"
{network}"""


class Unavailable(Exception):
    """The runtime cannot be had on this machine; says why."""


class Failed(AssertionError):
    """A runtime's command that had to succeed did not."""


def install():
    """Installs what is missing (Debian, as root); what could not be is found missing where it is needed."""
    wanted = _missing()
    if not wanted or shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]
    add = [*apt, "install", "--yes", "--no-install-recommends"]
    with _no_services_started():
        if _quiet([*add, *wanted], env=environment) != 0:
            _quiet([*apt, "update"], env=environment)
            # One package that this release lacks must not keep the others away.
            if _quiet([*add, *wanted], env=environment) != 0:
                for package in wanted:
                    _quiet([*add, package], env=environment)
    if shutil.which("systemctl"):
        # Nor may one that these tests brought come up at the next boot.
        for service in [service for package in wanted for service in _SERVICES.get(package, ())]:
            _quiet(["systemctl", "disable", service])


class Runtime:
    """What the three have in common."""

    name = program = None
    # For `rm --force`: podman asks nicely first, and waits 10 s.
    _at_once = ()

    def __init__(self):
        self.host = hosts.Host(self.name)
        self.folder = self.home = None
        self.env = {}
        self._running = False

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    # -- life ------------------------------------------------------------------------------------

    def start(self):
        """Raises Unavailable when the runtime cannot be started, or starts no container."""
        why = hosts.why_not()
        if why:
            raise Unavailable(why)
        sweep()
        for program in self._needs():
            if shutil.which(program, path=SYSTEM_PATH) is None:
                raise Unavailable(f"{program} is not installed")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._running = True
        # An ordinary user passes through; it sees no names.
        self.folder.chmod(0o711)
        self.home = self.folder / "home"
        self.home.mkdir()
        self.env = {
            "PATH": SYSTEM_PATH, "HOME": str(self.home), "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh",
            "TERM": "dumb", "LANG": "C.UTF-8",
        }
        self.host.start()
        self._start()
        self._prove()

    def stop(self):
        """Each step stands alone: what fails does not keep the next from being done. Returns what is left."""
        if self._running:
            self._running = False
            with contextlib.suppress(Failed, subprocess.SubprocessError, OSError):
                self.remove_all()
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                self._stop()
            # What was started for the folder, wherever it is now (conmon and containers outlive the command).
            end(self._processes(), at_once=True)
            _remove_namespaces(self.folder)
            _remove_folder(self.folder)
        self.host.stop()
        return self.leftovers()

    def remove_all(self):
        """Removes every container, with its volumes, and every network."""
        containers = self.containers()
        if containers:
            self.must("rm", "--force", "--volumes", *self._at_once, *containers)
        networks = self.networks()
        if networks:
            self.must("network", "rm", *networks)

    def leftovers(self):
        """What this runtime has left on the machine, in words; to be empty after `stop`."""
        left = [f"process {pid}: {command_line(pid)}" for pid in self._processes()]
        left += [f"mount {mount}" for mount in mounts_under(self.folder)]
        if self.folder and self.folder.exists():
            left.append(f"folder {self.folder}")
        run = pathlib.Path("/run/netns")
        left += [f"network namespace {each.name}" for each in run.glob(f"{self.host.name}*")]
        return left

    def _processes(self):
        """Ids of the processes that belong to this runtime, by folder or by namespace."""
        found = {pid for pid in pids() if self.folder and _is_of(pid, self.folder)}
        if pathlib.Path(f"/run/netns/{self.host.name}").exists():
            found |= set(self.host.processes())
        return sorted(pid for pid in found if alive(pid) and pid != os.getpid())

    def _prove(self):
        """A container on a network runs a program; there is no other way to know."""
        tag, network = "localhost/strait-proof:1", "strait-proof"
        tar = self.folder / "proof.tar"
        with tarfile.open(tar, "w") as written:
            entry = tarfile.TarInfo("busybox")
            entry.mode = 0o755
            with open(BUSYBOX, "rb") as program:
                entry.size = os.fstat(program.fileno()).st_size
                written.addfile(entry, program)
        try:
            self.import_image(tar, tag)
            self.must("network", "create", "--internal", network)
            self.must("run", "--rm", f"--network={network}", tag, "/busybox", "true")
            self.must("network", "rm", network)
            self.must("rmi", tag)
        except (Failed, subprocess.SubprocessError) as error:
            raise Unavailable(f"{self.name} starts no container: {error}") from None
        tar.unlink()

    def _needs(self):
        return [self.program, "runc", "nsenter", "ip", "iptables", BUSYBOX]

    def _start(self):
        raise NotImplementedError

    def _stop(self):
        pass

    # -- use -------------------------------------------------------------------------------------

    def command(self, *argv):
        """The full command line with which `argv` runs as this runtime's user, on its host."""
        return self.host.command(*argv)

    def argv(self, *words):
        """The full command line of the runtime's own program."""
        return self.command(self.program, *words)

    def popen(self, argv, extra_env=None, **options):
        """Any program (`strait`) as this runtime's user, with its environment and nothing else; pipes in bytes.

        A value of None in `extra_env` takes the variable away. The process has a session of its own.
        """
        for stream in "stdin", "stdout", "stderr":
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault("cwd", self.home)
        options.setdefault("start_new_session", True)
        return subprocess.Popen(self.command(*argv), env=self.environment(extra_env), **options)

    def environment(self, extra_env=None):
        merged = {**self.env, **(extra_env or {})}
        return {name: str(value) for name, value in merged.items() if value is not None}

    def run(self, *words, timeout=COMMAND, extra_env=None, **options):
        """The runtime's program, waited for; standard input is empty unless `input` is given."""
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("text", True)
        return subprocess.run(self.argv(*words), capture_output=True, timeout=timeout, cwd=self.home,
                              env=self.environment(extra_env), **options)

    def must(self, *words, **options):
        """The same, to succeed; returns its standard output."""
        ran = self.run(*words, **options)
        if ran.returncode != 0:
            shown = " ".join(map(str, words))
            raise Failed(f"{self.program} {shown}: exit {ran.returncode}: {_last_line(ran.stderr)}")
        return ran.stdout

    def json(self, *words, **options):
        """The one JSON value on its standard output."""
        return json.loads(self.must(*words, **options))

    def import_image(self, tar, tag, changes=()):
        """An image from the tar of a root file system; returns its id, `sha256:` and 64 digits.

        `changes` are lines of a Containerfile. docker and podman know CMD, ENTRYPOINT, ENV, LABEL, USER, VOLUME and
        WORKDIR here; for anything else, and for an id known before, `images.archive` and `load`.
        """
        flags = [word for change in changes for word in ("--change", change)]
        self.must("import", *flags, self.readable(tar), tag, timeout=INSTALL)
        return self.image_id(tag)

    def load(self, archive):
        """The images of an archive (`images.archive`)."""
        return self.must("load", "--input", self.readable(archive), timeout=INSTALL)

    def image_id(self, name):
        """`sha256:` and 64 digits, which both runtimes take as an image's name."""
        found = self.must("image", "inspect", "--format", "{{.Id}}", name).strip()
        return found if found.startswith("sha256:") else f"sha256:{found}"

    def containers(self, *filters):
        """Ids of all containers, running or not."""
        flags = [f"--filter={each}" for each in filters]
        return self.must("ps", "--all", "--quiet", "--no-trunc", *flags).split()

    def networks(self, *filters):
        """Names of the networks that somebody made."""
        flags = [f"--filter={each}" for each in filters]
        named = self.must("network", "ls", "--format", "{{.Name}}", *flags).split()
        return [name for name in named if name not in ("podman", "bridge", "host", "none")]

    def version(self):
        """In one line: of the client, and of the daemon where there is one."""
        return self.must("version", "--format", "{{.Client.Version}}").strip()

    def readable(self, path):
        """A file as this runtime's user can read it."""
        return path

    def clients(self):
        """The programs with which this runtime can be used."""
        return [self.program]


class Podman(Runtime):
    """As root. `backend` is "netavark", or "cni" as where netavark is not installed or came later.

    CNI keeps which addresses are taken in /var/lib/cni, for everybody; so it is not what the tests use.
    """

    name = program = "podman"
    _at_once = ("--time=0",)

    def __init__(self, backend="netavark"):
        super().__init__()
        self._backend = backend

    def _start(self):
        conf = self.folder / "containers.conf"
        conf.write_text(_CONTAINERS_CONF.format(
            backend=self._backend,
            engine=f'lock_type = "file"\ntmp_dir = "{self.folder}/libpod"\n'
                   f'volume_path = "{self.folder}/volumes"\n',
            network=f'network_config_dir = "{self.folder}/networks"\n',
        ))
        storage = self.folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder}/storage"\nrunroot = "{self.folder}/run"\n')
        registries = self.folder / "registries.conf"
        registries.write_text("")
        self.env |= {
            "CONTAINERS_CONF": str(conf), "CONTAINERS_STORAGE_CONF": str(storage),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        }

    def trust_registry(self, address):
        """Plain HTTP to this registry from now on, for whoever has this runtime's settings."""
        _add_insecure(self.folder / "registries.conf", address)


class Rootless(Runtime):
    """podman as an ordinary user that is made for it."""

    name, program = "rootless", "podman"
    _at_once = ("--time=0",)

    def __init__(self):
        super().__init__()
        self.user = f"{PREFIX}{os.getpid()}"
        self.uid = self.gid = None

    def command(self, *argv):
        # The namespace first: entering it takes root.
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--"]
        return self.host.command(*become, *map(str, argv))

    def readable(self, path):
        """Copied where the user can read it, unless it can already."""
        path = pathlib.Path(path).resolve()
        test = subprocess.run(self.command("test", "-r", path), capture_output=True, timeout=COMMAND, env=self.env)
        if test.returncode == 0:
            return path
        copied = self.home / f"copy-{path.name}"
        shutil.copyfile(path, copied)
        copied.chmod(0o644)
        return copied

    def trust_registry(self, address):
        _add_insecure(self.home / ".config/containers/registries.conf", address)

    def _needs(self):
        return [*super()._needs(), "newuidmap", "slirp4netns", "useradd", "setpriv"]

    def _start(self):
        if not pathlib.Path("/dev/net/tun").exists():
            raise Unavailable("no /dev/net/tun, which slirp4netns needs")
        made = subprocess.run(
            ["useradd", "--no-create-home", "--home-dir", self.home, "--shell", "/bin/sh", "--user-group", self.user],
            capture_output=True, text=True, timeout=COMMAND)
        if made.returncode != 0:
            raise Unavailable(f"no user can be made: {_last_line(made.stderr)}")
        entry = pwd.getpwnam(self.user)
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        if not any(_subordinate(self.user)):
            start = 100000 + 65536 * (self.uid % 1000)
            ranges = f"{start}-{start + 65535}"
            subprocess.run(["usermod", "--add-subuids", ranges, "--add-subgids", ranges, self.user], timeout=COMMAND)
        self._open_tun()

        runtime_folder = pathlib.Path(f"/run/user/{self.uid}")
        runtime_folder.parent.mkdir(mode=0o755, exist_ok=True)
        _remove_folder(runtime_folder)
        runtime_folder.mkdir(mode=0o700)
        settings = self.home / ".config/containers"
        settings.mkdir(parents=True)
        (settings / "containers.conf").write_text(_CONTAINERS_CONF.format(backend="netavark", engine="", network=""))
        # Named, because podman falls back to copying whole layers where it cannot tell.
        (settings / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
        (settings / "registries.conf").write_text("")
        for path in runtime_folder, self.home, *self.home.rglob("*"):
            os.chown(path, self.uid, self.gid)
        self.env |= {"USER": self.user, "LOGNAME": self.user, "XDG_RUNTIME_DIR": str(runtime_folder)}

    def _stop(self):
        # Before the user: with it goes the list of its uids. conmon starts podman when a container has ended, which
        # would make folders in /tmp where its runtime folder is gone.
        for _ in range(10):
            if not (found := self._processes()):
                break
            end(found, at_once=True)
        if self.uid is not None:
            _remove_traces(self.uid)
        _delete_user(self.user)
        _close_tun(self.folder)

    def leftovers(self):
        left = super().leftovers()
        if any(entry.pw_name == self.user for entry in pwd.getpwall()):
            left.append(f"user {self.user}")
        if self.uid is not None:
            left += [f"folder {path}" for path in _traces(self.uid) if path.exists()]
        return left

    def _processes(self):
        mine = set(super()._processes())
        if self.uid is not None:
            mine |= set(_processes_of(self.user, self.uid))
        return sorted(mine)

    def _open_tun(self):
        mode = stat.S_IMODE(os.stat("/dev/net/tun").st_mode)
        if mode & 0o006 != 0o006:
            (self.folder / "tun-mode").write_text(f"{mode:o}")
            os.chmod("/dev/net/tun", 0o666)


class Docker(Runtime):
    """A daemon of its own. `client` is the program to talk to it with; the daemon's own version when not named."""

    name = "docker"

    def __init__(self, client="/usr/bin/docker"):
        super().__init__()
        self.program = client
        self._daemon = self._log = None

    def clients(self):
        """Those on this machine, the one of the daemon's own version first."""
        found = ["/usr/bin/docker"]
        for folder in os.environ.get("PATH", "").split(":") + ["/usr/local/bin"]:
            program = shutil.which("docker", path=folder)
            if program and not any(os.path.samefile(program, each) for each in found if os.path.exists(each)):
                found.append(program)
        return [program for program in found if os.access(program, os.X_OK)]

    def with_client(self, client):
        """The same running daemon, with another client; only the original is to be stopped."""
        other = copy.copy(self)
        other.program = client
        other.env = {**self.env, "PATH": self._path(client)}
        return other

    def version(self):
        return self.must("version", "--format", "client {{.Client.Version}}, server {{.Server.Version}}").strip()

    @property
    def socket(self):
        return self.folder / "docker.sock"

    @property
    def log(self):
        """What the daemon has said."""
        return (self.folder / "dockerd.log").read_text(errors="replace")

    @property
    def daemon_pid(self):
        """dockerd's process id: its mount namespace is its own."""
        return self._daemon.pid

    def stop_daemon(self):
        """As when it crashes: containers and networks stay where they are."""
        if self._daemon:
            end([self._daemon.pid])
            self._daemon.wait(DAEMON)
            self._daemon = None

    def start_daemon(self):
        (self.folder / "daemon.json").write_text("{}\n")
        words = [
            "--config-file", self.folder / "daemon.json", "--host", f"unix://{self.socket}",
            "--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
            "--pidfile", self.folder / "docker.pid",
        ]
        # Its mounts are its own, and it does not outlive the tests, however they end.
        words = ["unshare", "--mount", "--propagation=slave", "--", "setpriv", "--pdeathsig=TERM", "--",
                 "/usr/sbin/dockerd", *words]
        # Of a containerd that ends with its daemon. A zombie, where nobody waits for it, looks alive to dockerd.
        with contextlib.suppress(OSError, ValueError):
            left = self.folder / "exec/containerd/containerd.pid"
            if not end([int(left.read_text())]):
                left.unlink()
        # Where containerd leaves its stacks when it is ended while it starts.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        with open(self.folder / "dockerd.log", "ab") as log:
            self._daemon = subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env={**self.env, "PATH": SYSTEM_PATH, "TMPDIR": str(temporary)}, start_new_session=True)
        deadline = time.monotonic() + DAEMON
        while self.run("version").returncode != 0:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"dockerd does not answer: {_last_line(self.log)}")
            time.sleep(0.05)

    def trust_registry(self, address):
        """Nothing to do: docker takes every registry on loopback as it is."""

    def _needs(self):
        return [*super()._needs(), "/usr/sbin/dockerd", "containerd", "unshare", "setpriv"]

    def _path(self, client):
        """A PATH where `docker` is this client."""
        folder = self.folder / f"bin-{client.replace('/', '-').strip('-')}"
        folder.mkdir(exist_ok=True)
        link = folder / "docker"
        if not link.is_symlink():
            link.symlink_to(client)
        return f"{folder}:{SYSTEM_PATH}"

    def _start(self):
        self.env |= {"PATH": self._path(self.program), "DOCKER_HOST": f"unix://{self.socket}"}
        self.start_daemon()

    def _stop(self):
        self.stop_daemon()


KINDS = (Podman, Rootless, Docker)


# --- the machine ----------------------------------------------------------------------------------


def sweep():
    """Removes what a run that was killed outright has left: its process id is in every name."""
    hosts.sweep()
    for entry in pwd.getpwall():
        if _is_dead(entry.pw_name):
            end(_processes_of(entry.pw_name, entry.pw_uid), at_once=True)
            _remove_traces(entry.pw_uid)
            _delete_user(entry.pw_name)
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if _is_dead(folder.name):
            end([pid for pid in pids() if _is_of(pid, folder)], at_once=True)
            _remove_namespaces(folder)
            _close_tun(folder)
            _remove_folder(folder)


def mounts_under(folder):
    """Mount points at or below a folder, in the order they were mounted."""
    if folder is None:
        return []
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    return [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]


def _is_dead(name):
    found = re.match(rf"{PREFIX}(\d+)\b", name)
    return found is not None and not pathlib.Path(f"/proc/{found[1]}").exists()


def _delete_user(name):
    # By force, because a process that has ended and was not waited for yet counts as one that uses the name.
    subprocess.run(["userdel", "--force", name], capture_output=True, timeout=COMMAND)


def _processes_of(name, uid):
    """Processes of a user, and of the uids it lends to its containers."""
    ranges = [range(uid, uid + 1), *_subordinate(name)]
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            owner = os.stat(f"/proc/{pid}").st_uid
            if any(owner in each for each in ranges) and alive(pid):
                found.append(pid)
    return found


def _subordinate(name):
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/etc/subuid").read_text().splitlines():
            owner, start, count = line.split(":")
            if owner == name:
                yield range(int(start), int(start) + int(count))


def pids():
    """Of every process on the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid):
    """Of a process, in one line; empty when it is gone, or ended and not waited for."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _is_of(pid, folder):
    """Whether a process was started for a folder: it names it, or its own root file system is in it."""
    if str(folder) in command_line(pid):
        return pid != os.getpid()
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as file:
            return any(line.split()[4] == "/" and f"{folder}/" in line for line in file)
    except OSError:
        return False


def _traces(uid):
    """What podman makes for a user outside its home; in /tmp, where no runtime folder was named."""
    places = [pathlib.Path(place, f"{name}-{uid}") for place in ("/tmp", "/var/tmp")
              for name in ("containers-user", "podman-run", "storage-run")]
    return [pathlib.Path(f"/run/user/{uid}"), pathlib.Path(f"/dev/shm/libpod_rootless_lock_{uid}"), *places]


def _remove_traces(uid):
    for path in _traces(uid):
        if path.is_file():
            path.unlink()
        else:
            _remove_folder(path)


def _close_tun(folder):
    """Gives /dev/net/tun the mode back that it had."""
    with contextlib.suppress(FileNotFoundError):
        os.chmod("/dev/net/tun", int((folder / "tun-mode").read_text(), 8))


def _remove_namespaces(folder):
    """Removes the network namespaces of podman's containers, which it does itself unless it was killed."""
    for config in folder.glob("storage/overlay-containers/*/userdata/config.json"):
        with contextlib.suppress(OSError, ValueError):
            for name in re.findall(r'"/(?:var/)?run/netns/(netns-[\w-]+)"', config.read_text()):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=COMMAND)


def _remove_folder(folder):
    for mount in reversed(mounts_under(folder)):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, timeout=COMMAND)
    # Twice, because a file may come while the tree is walked.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)


def _add_insecure(path, address):
    with open(path, "a", encoding="utf-8") as file:
        file.write(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')


def _last_line(text):
    return (text.strip().splitlines() or ["(it said nothing)"])[-1]


def _missing():
    """The packages of what is not there."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    packages = [package for program, package in _PROGRAMS.items() if shutil.which(program, path=path) is None]
    if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        packages.append("ca-certificates")
    if importlib.util.find_spec("ensurepip") is None:
        packages.append("python3-venv")
    return list(dict.fromkeys(packages))


def _quiet(words, **options):
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=INSTALL,
                              **options).returncode
    except (OSError, subprocess.SubprocessError):
        return 1


@contextlib.contextmanager
def _no_services_started():
    policy = pathlib.Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if made:
            policy.unlink()
