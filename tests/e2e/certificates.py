"""A certificate authority of this run, and one certificate for every origin of it."""

import dataclasses
import pathlib
import subprocess


@dataclasses.dataclass
class Certificates:
    """Files in PEM; `origin` holds the certificate and its key."""

    authority: pathlib.Path
    origin: pathlib.Path


def make(folder, names):
    """Makes both in `folder`, good for a day and for `names` only."""
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    origin, origin_key = folder / "origin.pem", folder / "origin.key"
    alternatives = ",".join(f"DNS:{name}" for name in names)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "1"]
    _openssl(
        *("req", "-x509", *new_key, "-keyout", authority_key, "-out", authority),
        *("-subj", "/CN=strait test authority", "-addext", "keyUsage=critical,keyCertSign"),
    )
    _openssl(
        *("req", "-x509", *new_key, "-keyout", origin_key, "-out", origin),
        *("-CA", authority, "-CAkey", authority_key, "-subj", "/CN=origin"),
        *("-addext", f"subjectAltName={alternatives}", "-addext", "basicConstraints=critical,CA:FALSE"),
    )
    with origin.open("ab") as both:
        both.write(origin_key.read_bytes())
    return Certificates(authority, origin)


def _openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
