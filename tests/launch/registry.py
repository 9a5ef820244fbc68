"""A container registry on the runtime's own loopback, for what starts with a pull.

    with registry.Registry(runtime) as local:
        name = local.push(image)             # 127.0.0.1:5000/name@sha256:…
        runtime.must("pull", name)

It is Debian's docker-registry with settings and a data folder of its own, in the network namespace of the runtime's
host. Plain HTTP: docker takes a registry on loopback as it is; podman's private registries.conf is told to
(`runtime.trust_registry`), so that `strait pull` needs no flag either.
"""

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import runtimes
from host import PREFIX, end

PORT = 5000
# Seconds.
READY = 15

_MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
)

_SETTINGS = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  delete: {{enabled: true}}
http: {{addr: "{address}"}}
"""


class Registry:
    """There between `start()` and `stop()`, or in a `with` block."""

    def __init__(self, runtime, port=PORT):
        self._runtime = runtime
        self.address = f"127.0.0.1:{port}"
        self._folder = self._process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        program = shutil.which("docker-registry", path=runtimes.SYSTEM_PATH)
        if program is None:
            raise runtimes.Unavailable("docker-registry is not installed")
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        settings = self._folder / "config.yml"
        settings.write_text(_SETTINGS.format(folder=self._folder, address=self.address))
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                self._runtime.host.command("setpriv", "--pdeathsig=TERM", "--", program, "serve", settings),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
                # No exporter of telemetry that the environment may ask for.
                env={"PATH": runtimes.SYSTEM_PATH})
        deadline = time.monotonic() + READY
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise runtimes.Unavailable(f"docker-registry does not answer: {self.log[-300:]}")
            time.sleep(0.05)
        self._runtime.trust_registry(self.address)

    def stop(self):
        if self._process:
            end([self._process.pid])
            self._process.wait(READY)
            self._process = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def log(self):
        return (self._folder / "log").read_text(errors="replace")

    def push(self, image, name="server"):
        """Pushes a loaded image; returns the name by which it can be pulled, with its digest.

        The local names that pushing took are removed again; the image itself stays under its first name.
        """
        repository = f"{self.address}/{name}"
        tagged = f"{repository}:pushed"
        self._runtime.must("tag", getattr(image, "id", image), tagged)
        self._runtime.must("push", tagged)
        self._runtime.must("rmi", tagged)
        return f"{repository}@{self.digest(name)}"

    def digest(self, name, tag="pushed"):
        """The digest of the manifest that the registry holds."""
        answer = self._get(f"/v2/{name}/manifests/{tag}", {"Accept": ", ".join(_MANIFESTS)})
        return answer.getheader("Docker-Content-Digest")

    def repositories(self):
        return json.loads(self._get("/v2/_catalog").read())["repositories"]

    def _get(self, path, headers=None):
        # urllib would look at the proxies of the environment.
        with self._runtime.host.inside():
            connection = http.client.HTTPConnection(self.address, timeout=READY)
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"{self.address}{path}: {answer.status}")
        return answer

    def _answers(self):
        try:
            return self._get("/v2/").status == 200
        except (OSError, AssertionError):
            return False
