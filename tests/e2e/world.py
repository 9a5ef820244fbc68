"""Everything a test stands on, made once per run: the network, its servers, a clean place for the clients."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import certificates
import toy_dns
from lane import Skip
from network import Network, SCRIPTED_RESOLVER
from origin import ScriptedOrigin
from servers import Servers
from strait import Proxy
from wire import Wire
from wiretap import Wiretap

BIG = 48 << 20
_PREFIX = "strait-e2e-"


class Ran:
    """What became of a client program."""

    def __init__(self, completed):
        self.code, self.output, self.errors = completed.returncode, completed.stdout, completed.stderr

    @property
    def text(self):
        return self.output.decode("utf-8", "replace")

    @property
    def json(self):
        try:
            return json.loads(self.output)
        except ValueError:
            raise AssertionError(f"exit {self.code}, {self.output!r}, {self.errors.decode()}") from None

    def __repr__(self):
        return f"exit {self.code}\n{self.text[-1000:]}\n{self.errors.decode('utf-8', 'replace')[-1000:]}"


class World:
    """Made by `World(binary, clients)`, gone after `remove()`."""

    def __init__(self, binary, clients):
        _sweep()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        try:
            self.network = Network()
            self.folder.chmod(0o755)
            # A copy that a process without privileges can reach, wherever the build folder is.
            self.binary = self.folder / "strait"
            shutil.copyfile(binary, self.binary)
            self.binary.chmod(0o755)
            self.certificates = certificates.make(self.folder, ["*.example.com"])
            self.servers = Servers(self.network, self.folder, self.certificates)
            self.wiretap = Wiretap(self.network, "proxy", "to-net")
        except BaseException:
            self.remove()
            raise
        self._clients = clients
        self._programs = self._prepare_programs()
        (self.folder / "home").mkdir()
        self._big = self._make_big()

    def remove(self):
        """Collects nothing it cannot undo: each step stands alone."""
        if hasattr(self, "servers"):
            self.servers.stop()
        if hasattr(self, "network"):
            self.network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- the far side ----------------------------------------------------------------------------

    @property
    def big_sha256(self):
        """The checksum of /big, a download of many megabytes."""
        return self._big

    def origin(self, script):
        """An origin at raw.example.com that does what `script(wire)` says."""
        return ScriptedOrigin(self.network, script)

    def resolver(self, zone, ttl=0):
        """A DNS server at SCRIPTED_RESOLVER that answers what `zone` says; see toy_dns."""
        with self.network.inside("net"):
            return Closing(toy_dns.Server(zone, SCRIPTED_RESOLVER, ttl=ttl))

    def publish(self, path, content):
        """A file at every nginx origin."""
        target = self.servers.www / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def uploaded(self, name):
        """What a client has PUT to /upload/."""
        return (self.servers.uploads / name).read_bytes()

    # -- the proxy -------------------------------------------------------------------------------

    def proxy(self, allow=(), **options):
        return Proxy(self, allow, **options)

    # -- the near side ---------------------------------------------------------------------------

    def connect(self, proxy):
        """A bare connection from a client to the proxy."""
        return Wire(self.network.connect(*proxy.address))

    def ask(self, proxy, request, to_head=False):
        """One request in bytes on a connection of its own, and its response."""
        with self.connect(proxy) as wire:
            wire.send(request)
            return wire.read_response(to_head)

    def tunnel(self, proxy, authority):
        """A connection through which a tunnel to `authority` is open."""
        wire = self.connect(proxy)
        wire.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = wire.read_head()
        assert head.status == 200, head.raw
        return wire

    def tunnel_or_refusal(self, proxy, authority):
        """The status of the answer to CONNECT, whichever it is; a tunnel is closed again."""
        with self.connect(proxy) as wire:
            wire.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            return wire.read_head().status

    def curl(self, proxy, *words, **options):
        return self.run("curl", "-sS", "--max-time", "20", "-x", proxy.url, *words, **options)

    def run(self, program, *words, proxy=None, stdin=None, timeout=40, cwd=None):
        """Runs a client where only the proxy can be reached, and waits for it."""
        with self.start(program, *words, proxy=proxy, cwd=cwd, piped_stdin=stdin is not None) as process:
            try:
                output, errors = process.communicate(stdin, timeout)
            except BaseException:
                process.kill()
                raise
            return Ran(subprocess.CompletedProcess(process.args, process.returncode, output, errors))

    def start(self, program, *words, proxy=None, cwd=None, piped_stdin=False):
        """Starts a client; it finds our authority, and the proxy when one is given, in its environment."""
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
        return subprocess.Popen(
            self.network.command("client", program, *words),
            stdin=subprocess.PIPE if piped_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.folder / "home",
            env=self._environment(proxy),
        )

    def python(self, program, *words, proxy):
        """Runs one of clients/*.py with the pinned libraries."""
        return self.run(self.pinned_python(), self._programs / program, *words, proxy=proxy)

    def node(self, program, *words, proxy):
        """Runs one of clients/*.mjs with the pinned packages."""
        if not (self._programs / "node_modules" / "axios").exists():
            raise Skip("the Node clients are not installed")
        return self.run("node", self._programs / program, *words, proxy=proxy)

    def pinned_python(self):
        python = self._clients / "venv" / "bin" / "python"
        if not (self._clients / "venv" / "complete").exists():
            raise Skip("the Python clients are not installed")
        return str(python)

    def program(self, name):
        return self._programs / name

    def file(self, text):
        """A file with this text, readable by everybody."""
        handle, path = tempfile.mkstemp(dir=self.folder)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o644)
        return path

    def _environment(self, proxy):
        authority = str(self.certificates.authority)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }
        # Every client has its own word for the same file.
        for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"):
            environment[name] = authority
        if proxy:
            for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
                environment[name] = proxy.url
        return environment

    def _prepare_programs(self):
        """Node looks for packages above the program that wants them: so both stand in one folder."""
        programs = self.folder / "clients"
        shutil.copytree(pathlib.Path(__file__).parent / "clients", programs)
        if (self._clients / "node" / "complete").exists():
            (programs / "node_modules").symlink_to(self._clients / "node" / "node_modules")
        return programs

    def _make_big(self):
        content = os.urandom(1 << 20) * (BIG >> 20)
        self.publish("big", content)
        self.publish("small", b"a small file\n")
        return hashlib.sha256(content).hexdigest()


def _sweep():
    """Removes the folder of a run that was killed outright: its process, named in it, is gone."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).split("-")[0]
        if process.isdigit() and not pathlib.Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)


class Closing:
    """Hands out a server for a `with` block."""

    def __init__(self, server):
        self._server = server

    def __enter__(self):
        return self._server

    def __exit__(self, *_):
        self._server.close()
