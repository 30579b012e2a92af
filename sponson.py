"""The command `sponson`, and `python -m sponson`: looks whose package `proxy` is before it uses it.

The import package is called `proxy`, and so are other people's. One of them in the same environment, or in front of ours on
the path, would end in an ImportError that says nothing; here it is recognised, named, and what to do about it is said.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # built in: until `main` runs, Ctrl-C in a module that loads shows a traceback
import sys

_OURS = '"""Sponson: '
"""How our package's __init__.py begins."""

EX_CONFIG = 78
"""Of sysexits.h: something is set up wrongly."""


def main() -> None:
    """Raises SystemExit with the command's status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # nothing is there to be cleaned up until a command runs (proxy.cli)
    place = stranger()
    if place:
        raise SystemExit(_say(f"the package `proxy` at {place} is not Sponson's{_of_whom()}", _ELSEWHERE))
    try:
        from proxy.cli import main as run
    except ImportError as error:
        raise SystemExit(_say(f"this installation is not whole: {error}", _AGAIN)) from None
    run()


def stranger(path: list[str] | None = None) -> str:
    """Where the package `proxy` lies that would be imported, if it is somebody else's; empty if it is ours."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("proxy", path)
    if spec is None:
        return ""  # an editable installation finds it by itself
    if spec.origin is None:
        return ", ".join(dict.fromkeys(spec.submodule_search_locations or ()))  # a directory without __init__.py
    try:
        with open(spec.origin, encoding="utf-8", errors="replace") as file:
            return "" if file.read(len(_OURS)) == _OURS else spec.origin
    except OSError:
        return ""  # in an archive, or gone: importing it tells


_ELSEWHERE = (
    "Both cannot be in one environment. Install Sponson in its own: pipx install sponson, or python3 -m venv and pip."
)
_AGAIN = "Install it again: pip install --force-reinstall sponson, or make in a checkout."


def _of_whom() -> str:
    """The distribution that has a package of that name, if it can be told."""
    from importlib.metadata import packages_distributions

    names = sorted({name for name in packages_distributions().get("proxy", ()) if name != "sponson"})
    return f" but belongs to {', '.join(names)}" if names else ""


def _say(what: str, advice: str) -> int:
    sys.stderr.write(f"sponson: {what}. {advice}\n")
    return EX_CONFIG


if __name__ == "__main__":
    main()
