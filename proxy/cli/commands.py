"""The commands of `sponson`: their names, their lines of help, and the modules that they are in."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Final, Protocol

COMMANDS: Final = {
    "run": "run the proxy of one workload, configured by LINKERD2_PROXY_* variables",
    "mesh": "serve a control plane from a directory of manifests, and set up workloads for it",
    "demo": "a whole mesh on this machine, with traffic and a live table",
    "up": "run one app in a mesh: sidecar, manifest and control plane in one command",
    "inject": "add the sidecar to Kubernetes manifests",
    "redirect": "send an application's connections to its sidecar: install, show or remove the kernel's rules",
    "await": "wait until the proxy is ready, then run a command",
    "validate-network": "check that connections are redirected, before the proxy is there",
    "bench": "what the proxy costs beside others (in a checkout of the project)",
    "completion": "print what makes bash, zsh or fish complete this command line",
}
HELP: Final = "help"
ROOMS: Final = {
    "describe": "show",
    "get": "show",
    "status": "show",
    "invite": "identity",
    "join": "identity",
    "revoke": "identity",
    "rotate": "identity",
    "token": "identity",
}
"""The folder of `proxy/cli/mesh` that an action's module is in; the other actions' modules are beside it."""


class Command(Protocol):
    """The shape of a command's module."""

    __doc__: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def module_of(words: Sequence[str]) -> str:
    """The module of a command, or of an action of one. `await` is a keyword of Python, and a module's name has no
    hyphen.
    """
    rooms = [ROOMS[word] for word in words[1:] if word in ROOMS]
    names = [word.replace("-", "_") for word in (*words[:1], *rooms, *words[1:])]
    return ".".join(("proxy.cli", *(f"{name}_" if iskeyword(name) else name for name in names)))


def loaded(module: str) -> ModuleType:
    """Import the module with the garbage collector off, and out of its sight from then on: modules live as long as the process,
    and dozens of collections would visit them, each in as much time as a tenth of the import takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()
