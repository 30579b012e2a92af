"""/env.json: the process's environment, all of it or the names that the query gives (docs/linkerd/admin-tap-tracing-shutdown.md, section 2).

What is no Unicode is shown with replacement characters; what is not set is null.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.admin.answer import METHOD_NOT_ALLOWED, Answer, as_json, json_error
from proxy.http.head import RequestHead

_ACCEPTED = (b"application/json", b"application/*", b"*/*")


def env_json(request: RequestHead, query: bytes | None, env: Mapping[str, str]) -> Answer:
    """`query` is what stands behind the question mark, None without one; `env` as os.environ gives it."""
    if request.method != b"GET":
        return METHOD_NOT_ALLOWED
    accept = next((one.value for one in request.fields if one.name == b"accept"), None)
    if accept is not None:
        if _unicode_or_none(accept) is None:
            return json_error(400, "Accept header must be UTF-8")
        if not any(kind in accept for kind in _ACCEPTED):
            return Answer(406, b"application/json")
    if query is None:
        return as_json({_lossy(name): _lossy(value) for name, value in env.items()})
    if b"=" in query:
        return json_error(400, "env.json query parameters may not contain key-value pairs")
    names = query.decode("utf-8", "replace").split("&")
    return as_json({name: _lossy(env[name]) if name in env else None for name in names})


def _lossy(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _unicode_or_none(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
