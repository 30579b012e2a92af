"""Filters of routes and of their backends, as the model that proxies use (policy.route)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.mesh.kinds.routes.matching import FIELD_NAME
from proxy.mesh.manifests.schema import ANYTHING, NAME, PORT, TEXT, ListOf, Number, Record, Text
from proxy.mesh.manifests.value import Value
from proxy.policy.routes.route import Filter, HeaderModifier, Redirect

_FIELDS: Final = ListOf(Record({"name": FIELD_NAME, "value": Text(longest=4096)}, "name", "value"))
_MODIFIER: Final = Record({"set": _FIELDS, "add": _FIELDS, "remove": ListOf(FIELD_NAME)})
_REDIRECT: Final = Record(
    {
        "scheme": Text("http", "https"),
        "hostname": NAME,
        "path": Record(
            {
                "type": Text("ReplaceFullPath", "ReplacePrefixMatch"),
                "replaceFullPath": TEXT,
                "replacePrefixMatch": TEXT,
            },
            "type",
        ),
        "port": PORT,
        "statusCode": Number(300, 399),
    }
)
_UNSUPPORTED: Final = ("RequestMirror", "URLRewrite", "ExtensionRef", "CORS", "ExternalAuth")
_KEYS: Final = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestRedirect": "requestRedirect",
}

FILTERS: Final = ListOf(
    Record(
        {
            "type": Text(*_KEYS, *_UNSUPPORTED),
            "requestHeaderModifier": _MODIFIER,
            "responseHeaderModifier": _MODIFIER,
            "requestRedirect": _REDIRECT,
            **dict.fromkeys(("requestMirror", "urlRewrite", "extensionRef", "cors", "externalAuth"), ANYTHING),
        },
        "type",
    )
)


def filters(value: Value) -> Iterator[Filter]:
    """The filters of a rule or of a backend; ManifestError for one that proxies cannot carry out, because it must not
    be left out silently.
    """
    for item in value.items("filters"):
        kind = item.need("type")
        key = _KEYS.get(kind.text())
        if key is None:
            raise kind.error(f"the filter {kind.text()} is not supported, neither here nor by Linkerd")
        yield (
            _redirect(item.need(key))
            if key == "requestRedirect"
            else _modifier(item.need(key), key.startswith("response"))
        )


def _modifier(value: Value, on_response: bool) -> HeaderModifier:
    return HeaderModifier(
        _fields(value, "add"),
        _fields(value, "set"),
        tuple(one.text().lower() for one in value.items("remove")),
        on_response,
    )


def _fields(value: Value, key: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((one.need("name").text().lower(), _field_value(one.need("value"))) for one in value.items(key))


def _field_value(value: Value) -> bytes:
    text = value.text().encode()
    if any((octet < 0x20 and octet != 0x09) or octet == 0x7F for octet in text):
        raise value.error("has a character that no header field may have")
    return text


def _redirect(value: Value) -> Redirect:
    path = value.get("path")
    full = prefix = None
    if path is not None:
        is_full = path.need("type").text() == "ReplaceFullPath"
        replacement = path.need("replaceFullPath" if is_full else "replacePrefixMatch")
        if not replacement.text().startswith("/"):
            raise replacement.error("does not begin with /")
        full, prefix = (replacement.text(), None) if is_full else (None, replacement.text())
    port, status = value.get("port"), value.get("statusCode")
    return Redirect(
        value.text_of("scheme"),
        value.text_of("hostname"),
        port.port() if port is not None else 0,
        full,
        prefix,
        status.number(300, 399) if status is not None else 302,
    )
