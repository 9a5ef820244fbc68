"""The real servers of the lane, all in the namespace `net`: unbound, nginx, git's own HTTP backend."""

import os
import pathlib
import shutil
import socket
import subprocess

from network import ORIGIN, ORIGIN_V6, PROXY_ADDRESS, RESOLVER, BLACK_HOLE, BLACK_HOLE_V6, UNREACHABLE
from network import SCRIPTED_ORIGIN
from processes import Service

# Enough that the answer does not fit any UDP answer and has to come over TCP.
CROWD_SIZE = 100
_CROWD = [f"203.0.113.{128 + number}" for number in range(CROWD_SIZE)]

# What the resolver answers, by name under example.com. Anything else does not exist.
ZONE = {
    "api": [ORIGIN],
    "www": [ORIGIN],
    "git": [ORIGIN],
    "dual": [ORIGIN_V6, ORIGIN],
    "six": [ORIGIN_V6],
    "raw": [SCRIPTED_ORIGIN],
    "alias": "CNAME hop1",
    "hop1": "CNAME hop2",
    "hop2": "CNAME api",
    "crowd": _CROWD,
    "crowd-mixed": [*_CROWD, "10.0.0.5"],
    "empty": "TXT nothing-to-dial",
    "alias-nowhere": "CNAME no-such-name",
    "blackhole": [BLACK_HOLE],
    "unreachable": [UNREACHABLE],
    "broken-six": [BLACK_HOLE_V6, ORIGIN],
    "half-dead": [BLACK_HOLE, ORIGIN],
    "mixed": [ORIGIN, "10.0.0.5"],
    "mixed-six": [ORIGIN, "::1"],
    "private": ["10.0.0.5"],
    "alias-private": "CNAME inside.corp.example.net.",
    "loopback": ["127.0.0.1"],
    "loopback-six": ["::1"],
    "mapped-loopback": ["::ffff:127.0.0.1"],
    "mapped-metadata": ["::ffff:169.254.169.254"],
    "nat64-metadata": ["64:ff9b::a9fe:a9fe"],
    "sixtofour-metadata": ["2002:a9fe:a9fe::1"],
    "metadata": ["169.254.169.254"],
    "metadata-six": ["fd00:ec2::254"],
    "cloud-metadata": ["100.100.100.200"],
    "carrier": ["100.64.0.1"],
    "linklocal-six": ["fe80::1"],
    "unspecified": ["0.0.0.0"],
    "multicast": ["224.0.0.1"],
    "broadcast": ["255.255.255.255"],
    "unopened": ["198.18.0.1"],
    "self": [PROXY_ADDRESS],
}


class Servers:
    """unbound, nginx and fcgiwrap, configured from nothing but this file, until `stop`."""

    def __init__(self, network, folder, certificates):
        self.www, self.uploads = folder / "www", folder / "www" / "upload"
        self.uploads.mkdir(parents=True)
        self._services = []
        try:
            self._start_unbound(network, folder)
            self._start_git_backend(network, folder)
            self._start_nginx(network, folder, certificates)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for service in reversed(self._services):
            service.stop()

    def _start_unbound(self, network, folder):
        zone = folder / "example.com.zone"
        zone.write_text(_zone("example.com.", ZONE))
        other = folder / "corp.example.net.zone"
        other.write_text(_zone("corp.example.net.", {"inside": ["10.0.0.5"]}))
        config = folder / "unbound.conf"
        # A resolver that follows CNAMEs and caches by TTL as any other, its authorities two zone files.
        # Answers above 512 bytes must be fetched again over TCP.
        config.write_text(f"""
server:
    interface: {RESOLVER}
    access-control: 0.0.0.0/0 allow
    max-udp-size: 512
    module-config: "iterator"
    directory: "{folder}"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    do-daemonize: no
auth-zone:
    name: "example.com."
    zonefile: "{zone}"
    for-downstream: no
auth-zone:
    name: "corp.example.net."
    zonefile: "{other}"
    for-downstream: no
remote-control:
    control-enable: no
""")
        self._start(network, folder, "unbound", [_program("unbound"), "-d", "-c", config], (RESOLVER, 53))

    def _start_git_backend(self, network, folder):
        socket_path = folder / "git.sock"
        self._start(
            network, folder, "fcgiwrap", [_program("fcgiwrap"), "-c", "2", "-s", f"unix:{socket_path}"], socket_path
        )

    def _start_nginx(self, network, folder, certificates):
        git_backend = pathlib.Path(_output("git", "--exec-path")) / "git-http-backend"
        config = folder / "nginx.conf"
        config.write_text(f"""
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path {folder}/nginx-body;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    proxy_temp_path {folder}/nginx-proxy;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    ssl_certificate {certificates.origin};
    ssl_certificate_key {certificates.origin};
    client_max_body_size 0;
    server {{
        listen 80;
        listen [::]:80 ipv6only=on;
        listen 443 ssl;
        listen [::]:443 ssl ipv6only=on;
        root {self.www};
        location /upload/ {{ dav_methods PUT; }}
        location = /nothing {{ return 204; }}
        location ~ ^/git(/.*)$ {{
            fastcgi_pass unix:{folder}/git.sock;
            fastcgi_param SCRIPT_FILENAME {git_backend};
            fastcgi_param GIT_PROJECT_ROOT {folder}/git;
            fastcgi_param GIT_HTTP_EXPORT_ALL 1;
            fastcgi_param PATH_INFO $1;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
            fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol;
        }}
    }}
}}
""")
        argv = [_program("nginx"), "-e", "stderr", "-c", config]
        self._start(network, folder, "nginx", argv, (ORIGIN, 443))

    def _start(self, network, folder, name, argv, ready_at):
        def ready():
            return ready_at.exists() if isinstance(ready_at, pathlib.Path) else answers(network, *ready_at)

        argv = network.command("net", *argv)
        self._services.append(Service(argv, folder / f"{name}.log", ready, _environment()))


def answers(network, address, port):
    """Whether something in `net` accepts connections there."""
    try:
        with network.inside("net"):
            socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def _zone(origin, names):
    lines = [f"$ORIGIN {origin}", "$TTL 60", "@ SOA ns hostmaster 1 3600 600 86400 1", "@ NS ns", "ns A 192.0.2.53"]
    for name, records in names.items():
        if isinstance(records, str):
            lines.append(f"{name} {records}")
        else:
            lines += [f"{name} {'AAAA' if ':' in address else 'A'} {address}" for address in records]
    return "\n".join(lines) + "\n"


def _program(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")
    if not path:
        raise FileNotFoundError(name)
    return path


def _output(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def _environment():
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
