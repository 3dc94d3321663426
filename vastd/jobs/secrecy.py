"""Which files look like secrets and therefore stay home unless they are named.

A file kept by mistake is reported and can be named; a leaked one cannot be called back. So
data files are judged by any suspicious part of their name, while source code is held back
only when its whole name says secret: `keypoints.py` must reach the machine.
"""

import re
from pathlib import PurePosixPath
from typing import Final

_SECRET_DIRS: Final = frozenset(
    {".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker", ".gcloud", ".secrets", "secrets"}
)
_SECRET_NAMES: Final = frozenset(
    {
        ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".dockercfg",
        ".git-credentials", ".vault-token", ".vast_api_key", "kubeconfig", "known_hosts",
        "authorized_keys", "terraform.tfstate", ".s3cfg", ".boto",
    }
)  # fmt: skip
_SECRET_SUFFIXES: Final = frozenset(
    {
        ".pem", ".key", ".p12", ".pfx", ".p8", ".jks", ".keystore", ".kdbx", ".ppk", ".gpg", ".asc",
        ".env", ".ovpn", ".tfvars",
    }
)  # fmt: skip
_SOURCE_SUFFIXES: Final = frozenset(
    {
        ".py", ".pyi", ".pyx", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs",
        ".go", ".java", ".js", ".jsx", ".ts", ".tsx", ".jl", ".r", ".m", ".lua", ".rb", ".swift",
        ".md", ".rst", ".html", ".css", ".scss", ".ipy", ".sql", ".proto",
    }
)  # fmt: skip
# Ordinary words with "key" in them, as seen in data sets and configurations.
_HARMLESS: Final = re.compile(
    r"keypoints?|keywords?|keyboards?|keyframes?|keystrokes?|keynotes?|keymaps?|keyed|"
    r"monkeys?|donkeys?|turkeys?|hockey|jockeys?|whiskey|tokeniz\w*"
)
_SUSPICIOUS: Final = re.compile(r"key|credential|secret|passw(or)?d|service[-_. ]?account")
_SECRET_SOURCE: Final = re.compile(
    r"(?:(?:my|local|dev|prod|aws|gcp|azure|app)[-_.]?)?"
    r"(?:secrets?|credentials?|passwords?|passwd|(?:api|private|secret|access|ssh)[-_]?keys?)"
)
_SECRET_CONTENT: Final = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|\"type\"\s*:\s*\"service_account\""
)
SNIFF_BYTES: Final = 4096  # a key's header comes first; guess for wrapped JSON


def looks_secret(path: str) -> bool:
    """Judge a relative path by its names alone."""
    pure = PurePosixPath(path.lower())
    if any(part in _SECRET_DIRS for part in pure.parts[:-1]):
        return True
    name, suffix = pure.name, pure.suffix
    # Shell habits: .env, .env.local, .envrc, prod.env.bak
    if name.startswith(".env") or ".env." in name or name in _SECRET_NAMES:
        return True
    if suffix in _SECRET_SUFFIXES:
        return True
    if re.match(r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)", name) or (name[:3] == "id_" and not suffix):
        return True
    if suffix in _SOURCE_SUFFIXES:
        return _SECRET_SOURCE.fullmatch(pure.stem) is not None
    return _SUSPICIOUS.search(_HARMLESS.sub("", name)) is not None


def may_hold_secret(path: str, size: int) -> bool:
    """Tell whether the first bytes are worth a look: small, and not source code."""
    suffix = PurePosixPath(path.lower()).suffix
    return size <= 64 * 1024 and suffix not in _SOURCE_SUFFIXES  # private keys have < 10 kB


def holds_secret(head: bytes) -> bool:
    """Judge the first `SNIFF_BYTES` of a file: private keys and Google service accounts."""
    return _SECRET_CONTENT.search(head) is not None
