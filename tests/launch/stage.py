"""What the cases share: a runtime with its images, our program on it, and a world with a name server and origins.

The origins and the name server are in the runtime's `host.world`, behind the machine's uplink, at addresses that are
public to everybody who asks; nothing of it leaves the machine. See host.py.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import ssl
import sys
import threading

import host
import images
import runtimes
import session
from session import eventually

# The doctor's cases have an address of their own, and a name server on port 53 (test_doctor.py).
ORIGIN, RESOLVER = "93.184.216.60", ("93.184.216.53", 5353)
LISTED, UNLISTED, PRIVATE = "listed.example.com", "unlisted.example.com", "private.example.com"
# Where an image that nobody has could be.
NOWHERE = f"registry.example.com/missing@sha256:{'1' * 64}"

# Parts of the other lane that know nothing of its networks: certificates, and the scripted name server.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import certificates  # noqa: E402
import toy_dns  # noqa: E402


class Skip(Exception):
    """The case has nothing to say about this runtime, or cannot be run here; says why."""


class Stage:
    """Made for a runtime that runs; `close()` ends what it started in the runtime's world."""

    def __init__(self, runtime, binary):
        self.runtime = runtime
        self.binary = runtime.folder / "program" / "strait"
        self.binary.parent.mkdir(mode=0o755)
        # Where an ordinary user can run it, and where a process is known by its folder.
        shutil.copyfile(binary, self.binary)
        self.binary.chmod(0o755)
        self._count, self._before, self._closing = 0, None, contextlib.ExitStack()
        self._loaded = set()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        self.certificates = certificates.make(self.folder("certificates"), [LISTED, UNLISTED, PRIVATE])
        shutil.copy(self.certificates.authority, self.folder("trusted/certificates") / "authority.pem")
        self.own(self.runtime.home / "trusted")
        self.trusted = self.runtime.home / "trusted"
        self.world = World(self.runtime.host, self.certificates.origin)
        self._closing.callback(self.world.close)
        # Once, so that what a runtime starts for good (rootless podman's pause process) is here already.
        with self.launch(images.busybox(), "--allow", LISTED, audit=None) as first:
            first.say_back()
            assert first.end() == 0, first.errors.text()
        self._before = self._around()
        self._volumes_before = self.volumes()

    def close(self):
        self._closing.close()

    # -- the machine -----------------------------------------------------------------------------

    @property
    def name(self):
        return self.runtime.name

    @property
    def kind(self):
        """The word for --runtime."""
        return "docker" if self.name == "docker" else "podman"

    @property
    def is_docker(self):
        return self.kind == "docker"

    @property
    def is_rootless(self):
        return self.name == "rootless"

    def folder(self, name=None):
        """A folder of the runtime's user, empty unless it was named before."""
        if name is None:
            self._count += 1
            name = f"case-{self._count}"
        path = self.runtime.home / name
        path.mkdir(parents=True, exist_ok=True)
        self.own(path)
        return path

    def own(self, *paths):
        """Gives files to the runtime's user, with what is in them."""
        if self.is_rootless:
            for path in paths:
                for each in [path, *path.rglob("*")]:
                    os.chown(each, self.runtime.uid, self.runtime.gid, follow_symlinks=False)

    def volumes(self):
        return set(self.runtime.must("volume", "ls", "--quiet").split())

    def names(self):
        """The names of the containers that run."""
        return sorted(self.runtime.must("ps", "--format", "{{.Names}}").split())

    def container(self, part, of=None):
        """The name of the container that is a launch's proxy or server, once it runs."""
        def found():
            return [name for name in self.names() if name.endswith(f"-{part}") and (of is None or f"-{of}-" in name)]

        return eventually(found, f"a container that is a {part}")[0]

    def left(self):
        """What of launches is still there, in words."""
        found = [f"container {each}" for each in self.runtime.containers()]
        found += [f"network {each}" for each in self.runtime.networks()]
        found += [f"volume {each}" for each in self.volumes() - self._volumes_before]
        found += [f"interface {link}" for link in self.runtime.host.links() if link != "docker0"]
        return found + sorted(self._around() - self._before)

    def _around(self):
        """What the runtime has on the machine, but for docker's daemon, which may have been started again."""
        daemon = re.compile(r"process \d+: \S*(dockerd|containerd) --")
        return {line for line in self.runtime.leftovers() if not daemon.match(line)}

    def nothing_is_left(self, seconds=10):
        """Whatever a launch made has gone, or goes now."""
        eventually(lambda: not self.left(), lambda: f"nothing is left; there is {self.left()}", seconds)

    def clear(self):
        """After a case that failed, so that the next one begins as if nothing had been."""
        with contextlib.suppress(Exception):
            ours = [pid for pid in runtimes.pids() if str(self.binary) in runtimes.command_line(pid)]
            host.end(ours, at_once=True)
            self.runtime.remove_all()
            stray = self.volumes() - self._volumes_before
            if stray:
                self.runtime.run("volume", "rm", "--force", *stray)
            self.nothing_is_left()

    def id_of(self, image):
        """The id of an image, which is loaded when it is first asked for."""
        if image.id not in self._loaded:
            self.runtime.load(image.archive)
            self._loaded.add(image.id)
        return image.id

    # -- strait ----------------------------------------------------------------------------------

    def words(self, image, *flags, audit=None, arguments=()):
        """The command line of a launch by flags. Without `audit` nothing is recorded."""
        name = self.id_of(image) if isinstance(image, images.Image) else image
        given = [self.binary, "launch", f"--runtime={self.kind}", f"--image={name}"]
        given += [f"--audit={audit or 'none'}"]
        if "--allow" in flags:
            address, port = RESOLVER
            given += [f"--resolver={address}:{port}"]
        return [*given, *flags, *(["--", *arguments] if arguments else [])]

    def launch(self, image, *flags, audit=None, arguments=(), extra_env=None, **options):
        """A session with a server that is launched by flags."""
        words = self.words(image, *flags, audit=audit, arguments=arguments)
        return session.Session(self.runtime.popen(words, extra_env=extra_env, **options))

    def strait(self, *words, extra_env=None, **options):
        """A session with any command of ours."""
        return session.Session(self.runtime.popen([self.binary, *words], extra_env=extra_env, **options))

    def ran(self, *words, extra_env=None, seconds=session.PATIENCE, **options):
        """Exit code, standard output and standard error of any command of ours, which reads nothing."""
        with self.strait(*words, extra_env=extra_env, **options) as it:
            code = it.end(seconds)
            return code, it.out.rest().decode(), it.errors.rest().decode()

    def refuses(self, image, *flags, code, **options):
        """A launch that must fail with this code, leave nothing, and put nothing on standard output."""
        with self.launch(image, *flags, **options) as it:
            got = it.end()
            errors, output = it.errors.rest().decode(), it.out.rest()
        assert got == code, f"exit {got} and not {code}: {errors}"
        assert output == b"", output
        assert "panicked" not in errors, errors
        self.nothing_is_left()
        return errors

    def trusting(self):
        """Flags and variables with which a Python server trusts the world's certificates."""
        flags = ["--workspace", self.trusted, "--mount", "certificates:read", "--env", "SSL_CERT_FILE"]
        return flags, {"SSL_CERT_FILE": "/workspace/certificates/authority.pem"}


class World:
    """Origins that answer GET over TLS (443) and in plain HTTP (80), and a name server that knows them."""

    def __init__(self, machine, certificate):
        self._host, self.requests = machine, []
        machine.publish(ORIGIN, RESOLVER[0])
        zone = {name: {"A": [ORIGIN]} for name in (LISTED, UNLISTED)} | {PRIVATE: {"A": ["10.0.0.5"]}}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._servers = [self._serve(443, context), self._serve(80, None)]
        with machine.inside(machine.world):
            self.dns = toy_dns.Server(zone, *RESOLVER)

    def close(self):
        self.dns.close()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _serve(self, port, context):
        requests = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                if context:
                    # Here, in the connection's own thread: a client that stops in the middle holds up nobody else.
                    self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_GET(self):
                requests.append((self.headers["Host"], self.path))
                found = self.path != "/robots.txt"
                content = f"<html><body><p>the answer of {self.headers['Host']}</p></body></html>".encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content) if found else 0))
                self.end_headers()
                self.wfile.write(content if found else b"")

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # A client that goes in the middle is no business of this side.

        server = Server((ORIGIN, port), Handler, bind_and_activate=False)
        server.socket.close()
        server.socket = self._host.listen(ORIGIN, port, namespace=self._host.world)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def audit_lines(path):
    """The lines of an audit file, parsed."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def said(errors):
    """What strait itself said on standard error, without who says it."""
    return [line.removeprefix("strait: ") for line in errors.splitlines() if line.startswith("strait: ")]


def of_server(errors):
    """Standard error without what strait says of this machine: rootless podman has no limits everywhere."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"strait: no limit on .* is in force: podman has no", line))
