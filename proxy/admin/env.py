"""/env.json: the variables that configure the proxy, all of them or the names that the query gives (docs/linkerd/admin-tap-tracing-shutdown.md, section 2).

Nothing else of the environment is shown, because a container's may hold anything; other variables look as if they were not
set. No variable of ours holds a secret itself; one whose value looks like a secret is left out all the same. Text that is
not Unicode is shown with replacement characters; a variable that is not set is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.admin.answer import ONLY_GET, Answer, as_json, json_error
from proxy.http.head import RequestHead

_PREFIXES: Final = ("LINKERD2_PROXY_", "SPONSON_")
_OTHERS: Final = frozenset({"OTEL_RESOURCE_ATTRIBUTES", "NO_COLOR"})
_SECRET_WORDS: Final = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "CREDENTIALS"})
_PLACES: Final = ("_FILE", "_DIR", "_PATH")
_ACCEPTED = (b"application/json", b"application/*", b"*/*")


def shown_of(env: Mapping[str, str]) -> dict[str, str]:
    """The part of a process's environment (in the form of os.environ) that may be shown. It is computed once, so that
    a request costs less.
    """
    return {_lossy(name): _lossy(value) for name, value in env.items() if configures(name, value)}


def env_json(request: RequestHead, query: bytes | None, shown: Mapping[str, str]) -> Answer:
    """`query` is the text behind the question mark, None if there is none."""
    if request.method != b"GET":
        return ONLY_GET
    accept = next((one.value for one in request.fields if one.name == b"accept"), None)
    if accept is not None:
        if _unicode_or_none(accept) is None:
            return json_error(400, "Accept header must be UTF-8")
        if not any(kind in accept for kind in _ACCEPTED):
            return Answer(406, b"application/json")
    if query is None:
        return as_json(shown)
    if b"=" in query:
        return json_error(400, "env.json query parameters may not contain key-value pairs")
    names = query.decode("utf-8", "replace").split("&")
    return as_json({name: shown.get(name) for name in names})


def configures(name: str, value: str) -> bool:
    """Whether the proxy reads this variable, and any client of the admin port may see it."""
    if not name.startswith(_PREFIXES) and name not in _OTHERS:
        return False
    is_secret = not _SECRET_WORDS.isdisjoint(name.split("_")) and not name.endswith(_PLACES)
    return not is_secret and "PRIVATE KEY-----" not in value


def _lossy(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _unicode_or_none(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
