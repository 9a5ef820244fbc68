"""The official MCP client (Python SDK) at work on a server: handshake, tools, calls, and its own way to end it.

    report = mcp.talk(runtime.argv("run", "--rm", "-i", image.id), runtime.env,
                      calls=[("echo", {"message": "hello"})])
    report.tools, report.text(0), report.seconds["handshake"], report.errors

The client starts the command itself, as an MCP host would; nothing of it is ours. It ends the server as the protocol
says: closes its standard input, waits 2 s, SIGTERM to its process group, 2 s more, SIGKILL.
"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

import images
import runtimes

HERE = pathlib.Path(__file__).parent
# Seconds: for a conversation, and on top of it for the client to say what came of it.
CONVERSATION, CLOSING = 60, 15


class Report:
    """What came of a conversation. `errors` is the server's standard error."""

    def __init__(self, said, errors):
        self.greeting, self.tools, self.calls = said.get("greeting"), said.get("tools"), said["calls"]
        self.seconds, self.error, self.errors = said["seconds"], said["error"], errors

    def text(self, call):
        """The text of the answer to a call, by its number."""
        answer = self.calls[call]
        if "error" in answer:
            raise AssertionError(f"{answer['name']}: {answer['error']}")
        return "".join(part.get("text", "") for part in answer["result"]["content"])

    def json(self, call):
        return json.loads(self.text(call))

    def __repr__(self):
        return f"{self.error or 'ok'} {self.seconds} tools={self.tools} calls={self.calls}\n{self.errors[-2000:]}"


def talk(command, env, calls=(), modern=False, timeout=CONVERSATION, cwd="/"):
    """`env` is all that the command gets. With `modern`, server/discover instead of initialize."""
    with tempfile.TemporaryDirectory(prefix=f"{runtimes.PREFIX}{os.getpid()}-") as folder:
        errors = pathlib.Path(folder, "stderr")
        errors.touch()
        wanted = {
            "command": [str(word) for word in command], "env": dict(env), "cwd": cwd, "modern": modern,
            "timeout": timeout, "stderr": str(errors),
            "calls": [{"name": name, "arguments": arguments} for name, arguments in calls],
        }
        # -I: this module's name is the client's too.
        ran = subprocess.run(
            [client_python(), "-I", HERE / "mcp_driver.py"], input=json.dumps(wanted), capture_output=True, text=True,
            timeout=timeout + CLOSING, env={"PATH": os.environ.get("PATH", os.defpath)})
        if ran.returncode != 0:
            raise AssertionError(f"the MCP client: exit {ran.returncode}: {ran.stderr.strip()[-500:]}")
        return Report(json.loads(ran.stdout), errors.read_text(errors="replace"))


def client_python():
    """The Python that has the client; its environment is made once per machine."""
    made = images.cache() / f"client-{images.digest(images.PYTHON_PACKAGES.read_text(), sys.version, sys.executable)}"
    with open(images.cache() / "client.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            venv.create(made, with_pip=True)
            images.registry([made / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                             "--no-deps", "--only-binary=:all:", "-r", images.PYTHON_PACKAGES])
            (made / "complete").touch()
    return str(made / "bin/python")
