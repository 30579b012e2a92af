"""Add the sidecar to Kubernetes manifests.

With --trust-anchors it adds what Linkerd's injector would add, from the same
annotations and Helm values, to a Pod, Deployment, ReplicaSet, StatefulSet,
DaemonSet, Job or CronJob; the control plane is Linkerd's. Injecting again
replaces what was added. With --linkerd it only sets the annotations that make
Linkerd's own injector use Sponson's image, also on a Namespace. Whatever else
is in the input passes through; comments do not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from proxy.core.limits import CERTIFICATES_BYTES, MANIFESTS_BYTES
from proxy.core.small_file import read_most
from proxy.inject.documents import DocumentError, documents
from proxy.inject.manifest import Manifest, ManifestError, Mesh, ask, each, inject, name_of, namespaces
from proxy.inject.settings import WITHOUT_EFFECT, Settings, SettingsError, assignment

_STDIN: Final = "-"
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class _Read(NamedTuple):
    file: str
    document: Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="*", default=[_STDIN], metavar="FILE", help="manifests; - or nothing is standard input")
    add("--linkerd", action="store_true", help="only set the annotations for Linkerd's own injector")
    add("--image", default="sponson", help="Sponson's image, without its tag (%(default)s)")
    add("--image-version", default="", help="its tag; `linkerd check --proxy` wants it to be Linkerd's version")
    add("--trust-anchors", type=Path, metavar="FILE", help="the mesh's trust anchors, PEM")
    add("--linkerd-namespace", default="linkerd", help="where Linkerd's control plane is (%(default)s)")
    add("--values", type=Path, action="append", default=[], metavar="FILE", help="Helm values of Linkerd's chart")
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="one Helm value, as proxy.logLevel=info")


def run(arguments: argparse.Namespace) -> int:
    try:
        read = [one for file in arguments.files for one in _documents(file)]
        if arguments.linkerd:
            _each(read, lambda manifest, _: ask(manifest, arguments.image, arguments.image_version))
        else:
            mesh = _mesh(arguments)
            spaces: dict[str, dict[str, str]] = {}
            _each(read, lambda manifest, _: _collect(manifest, spaces))
            _each(read, lambda manifest, where: inject(manifest, mesh, spaces, lambda text: _note(f"{where}: {text}")))
    except (DocumentError, ManifestError, SettingsError) as error:
        print(f"sponson inject: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"sponson inject: {error.filename or 'standard input'}: {error.strerror or error}", file=sys.stderr)
        return 1
    made = [one.document for one in read]
    print(yaml.safe_dump_all(made, sort_keys=False, width=2**16, explicit_start=len(made) > 1), end="")
    return 0


def _each(read: list[_Read], act: Any) -> None:
    """Inject every manifest; errors are reported with the file and the object's name."""
    for one in read:
        for manifest in each(one.document):
            where = f"{one.file}: {name_of(manifest)}"
            try:
                was_changed = act(manifest, where)
            except (ManifestError, SettingsError) as error:
                raise ManifestError(f"{where}: {error}") from error
            if not was_changed:
                _note(f"{where}: passed through")


def _collect(manifest: Manifest, spaces: dict[str, dict[str, str]]) -> bool:
    spaces.update(namespaces([manifest]))
    return True


def _note(text: str) -> None:
    print(f"sponson inject: {text}", file=sys.stderr)


def _documents(file: str) -> Iterator[_Read]:
    """DocumentError, OSError."""
    name = "standard input" if file == _STDIN else file
    if file == _STDIN:
        text = read_most(sys.stdin.fileno(), name, MANIFESTS_BYTES)
    else:
        text = _content(file, MANIFESTS_BYTES)
    return (_Read(name, document) for document in documents(text, name))


def _content(file: str | Path, most_bytes: int) -> bytes:
    with open(file, "rb") as opened:  # not read_small: a pipe will do
        return read_most(opened.fileno(), file, most_bytes)


def _mesh(arguments: argparse.Namespace) -> Mesh:
    settings = Settings()
    given: list[tuple[str, Manifest]] = []
    for file in arguments.values:
        given += [(str(file), one.document) for one in _documents(str(file))]
    given += [("--set", assignment(text)) for text in arguments.set]
    settings.set("proxy.image.name", arguments.image)
    settings.set("proxy.image.version", arguments.image_version)
    for source, tree in given:
        for path in settings.merge(tree):
            # A file of values is the whole chart's: only what is given one by one was meant for the sidecar.
            if source == "--set" or path in WITHOUT_EFFECT:
                _note(f"{source}: {path} has no effect on a sidecar")
    if arguments.trust_anchors is not None:
        settings.set("identityTrustAnchorsPEM", _anchors(arguments.trust_anchors))
    if _NAMESPACE.fullmatch(arguments.linkerd_namespace) is None:
        raise SettingsError(f"--linkerd-namespace: {arguments.linkerd_namespace!r} is no name of a namespace")
    return Mesh(settings, arguments.linkerd_namespace)


def _anchors(file: Path) -> str:
    """OSError, SettingsError."""
    try:
        text = _content(file, CERTIFICATES_BYTES).decode()
    except UnicodeDecodeError:
        text = ""
    if _CERTIFICATE not in text:
        raise SettingsError(f"--trust-anchors: {file}: no certificate in PEM is there")
    return text
