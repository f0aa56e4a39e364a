"""Paths that look like secrets. A capture of uncommitted work refuses to add or change them (SENSITIVE_PATH)."""

from __future__ import annotations

import fnmatch

# Pattern of the file name (or, with a slash, of the end of the path), and what it usually holds.
SENSITIVE: tuple[tuple[str, str], ...] = (
    (".env", "environment files hold passwords"),
    (".env.*", "environment files hold passwords"),
    ("*.env", "environment files hold passwords"),
    (".envrc", "environment files hold passwords"),
    ("*.pem", "may be a private key"),
    ("*.key", "may be a private key"),
    ("*.p12", "a key store"),
    ("*.pfx", "a key store"),
    ("*.jks", "a key store"),
    ("*.keystore", "a key store"),
    ("*.kdbx", "a password store"),
    ("*.ppk", "a private ssh key"),
    ("id_rsa", "a private ssh key"),
    ("id_dsa", "a private ssh key"),
    ("id_ecdsa", "a private ssh key"),
    ("id_ecdsa_sk", "a private ssh key"),
    ("id_ed25519", "a private ssh key"),
    ("id_ed25519_sk", "a private ssh key"),
    (".netrc", "login data"),
    ("_netrc", "login data"),
    (".pgpass", "login data"),
    (".git-credentials", "login data"),
    (".htpasswd", "login data"),
    (".npmrc", "may hold a registry token"),
    (".pypirc", "holds registry passwords"),
    (".aws/credentials", "login data"),
    (".docker/config.json", "login data"),
    (".kube/config", "login data"),
    ("credentials.json", "login data"),
    ("service-account*.json", "login data"),
    ("terraform.tfstate", "state files hold secrets in the clear"),
    ("terraform.tfstate.backup", "state files hold secrets in the clear"),
)

# Templates of such files, meant to be shared.
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "*.example.env")


def sensitive_reason(path: str) -> str | None:
    """Why the path looks like a secret, or None. Letter case does not matter."""
    lowered = path.lower()
    name = lowered.rsplit("/", 1)[-1]
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in HARMLESS):
        return None
    for pattern, reason in SENSITIVE:
        if "/" in pattern:
            if lowered == pattern or lowered.endswith("/" + pattern):
                return reason
        elif fnmatch.fnmatchcase(name, pattern):
            return reason
    return None
