"""Identities of clients, as policies name them: exactly, by a suffix (`*.ns.…`), all (`*`), or by a service account."""

from __future__ import annotations

import re
from typing import Final

from proxy.mesh.manifests.schema import is_dns_name, shown
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import IDENTITY_SUFFIX

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://[!-~]+")

ANY_IDENTITY: Final = "*"


def identity(value: Value) -> str:
    """The identity as it was written, in lower case unless it is a URI; ManifestError if no client could have it."""
    text = value.text()
    if _URI.fullmatch(text):
        return text
    name = text.lower()
    if name != ANY_IDENTITY and not is_dns_name(name.removeprefix("*.")):
        raise value.error(f"{shown(text)} is neither an identity nor *, nor a suffix such as *.ns.{IDENTITY_SUFFIX}")
    return name


def namespace_identities(namespace: str) -> str:
    """The pattern of all service accounts of a namespace."""
    return f"*.{namespace}.{IDENTITY_SUFFIX}"
