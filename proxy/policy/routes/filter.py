"""What the filters of a route do to heads (docs/linkerd/inbound.md, section 6, "Filters"; docs/linkerd/outbound.md, section 8.1).

When a policy arrives, the filters of each rule and each backend are compiled into `Filters`: at most one callable for the
request and one for the response, whatever the filters are. No callable edits the head it is given: it returns that head or
another one, so that the request as it came can be sent again, filtered anew. What a filter answers instead of a head is a
value, which the side that serves the request turns into a response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import random
from typing import Final, assert_never

from proxy.core.log import logger
from proxy.http.grpc import FAILED_PRECONDITION, NAMES, UNKNOWN
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import COOKIE, DATE, HOST, L5D, PLAIN, Field, field, kind_of
from proxy.policy.routes.redirect import InvalidRedirectError, Match, location
from proxy.policy.routes.route import FailureInjector, Filter, HeaderModifier, Redirect, Unusable

_log: Final = logger(__name__)


class Redirection:
    """The client is sent to `location`."""

    __slots__ = ("status", "location")

    def __init__(self, status: int, location: bytes) -> None:
        self.status: Final = status
        self.location: Final = location


class InjectedFailure:
    """The policy makes the request fail; a gRPC client gets `grpc_code`, any other `status`."""

    __slots__ = ("status", "grpc_code", "message")

    def __init__(self, status: int, grpc_code: int, message: str) -> None:
        self.status: Final = status
        self.grpc_code: Final = grpc_code
        self.message: Final = message


class InvalidRedirection:
    """The redirection makes no location of this request; `text` says why."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text: Final = text


FilterAnswer = Redirection | InjectedFailure | InvalidRedirection | Unusable
"""What a filter answers instead of letting the request pass."""

RequestFilter = Callable[[RequestHead, Match], RequestHead | FilterAnswer]
ResponseFilter = Callable[[ResponseHead], ResponseHead]


class Filters:
    """The filters of one rule or one backend, ready to be called."""

    __slots__ = ("on_request", "on_response")

    def __init__(self, on_request: RequestFilter | None, on_response: ResponseFilter | None) -> None:
        self.on_request: Final = on_request
        """None if every request passes as it is."""
        self.on_response: Final = on_response
        """None if every response passes as it is."""


def compile_filters(filters: Sequence[Filter]) -> Filters:
    """The filters in their order; the first that answers a request is the last that sees it."""
    on_request: list[RequestFilter] = []
    on_response: list[ResponseFilter] = []
    for one in filters:
        if isinstance(one, HeaderModifier):
            edit = HeaderEdit(one)
            if one.on_response:
                on_response.append(edit.of_response)
            else:
                on_request.append(edit.of_request)
        elif isinstance(one, Redirect):
            on_request.append(Redirecting(one).of_request)
        elif isinstance(one, FailureInjector):
            on_request.append(Injecting(one).of_request)
        elif isinstance(one, Unusable):
            on_request.append(Refusing(one).of_request)
        else:
            assert_never(one)
    return Filters(request_chain(on_request), response_chain(on_response))


def request_chain(filters: Sequence[RequestFilter]) -> RequestFilter | None:
    """All of them as one; None if there are none."""
    if not filters:
        return None
    return filters[0] if len(filters) == 1 else RequestChain(filters).of_request


def response_chain(filters: Sequence[ResponseFilter]) -> ResponseFilter | None:
    """All of them as one; None if there are none."""
    if not filters:
        return None
    return filters[0] if len(filters) == 1 else ResponseChain(filters).of_response


class RequestChain:
    __slots__ = ("_filters",)

    def __init__(self, filters: Sequence[RequestFilter]) -> None:
        self._filters: Final = tuple(filters)

    def of_request(self, head: RequestHead, match: Match) -> RequestHead | FilterAnswer:
        for one in self._filters:
            found = one(head, match)
            if not isinstance(found, RequestHead):
                return found
            head = found
        return head


class ResponseChain:
    __slots__ = ("_filters",)

    def __init__(self, filters: Sequence[ResponseFilter]) -> None:
        self._filters: Final = tuple(filters)

    def of_response(self, head: ResponseHead) -> ResponseHead:
        for one in self._filters:
            head = one(head)
        return head


# ---- header modifiers

_EDITABLE: Final = frozenset((PLAIN, HOST, L5D, DATE, COOKIE))
"""The kinds of fields that a policy may edit. The others say where a message ends or concern one connection only: they are
the codecs' business, and a policy that sets them would make one message look like two to the next hop."""


class HeaderEdit:
    """A HeaderModifier: fields are added, then set, then removed."""

    __slots__ = ("_dropped", "_appended", "_edits_host", "_edits_date", "_adds_l5d")

    def __init__(self, modifier: HeaderModifier) -> None:
        added, set_ = _fields_of(modifier.add), _fields_of(modifier.set)
        names = {one.name for one in set_}
        names_removed = [one.lower().encode() for one in modifier.remove]
        removed = {name for name in names_removed if _may_edit(name, kind_of(name, b""))}
        appended = [one for one in added if one.name not in names] + set_
        hosts = [one for one in appended if one.kind == HOST]
        if hosts:  # a request has one Host, so one that is added replaces it
            names.add(b"host")
            appended = [one for one in appended if one.kind != HOST] + hosts[-1:]
        self._dropped: Final = frozenset(names | removed)
        self._appended: Final = [one for one in appended if one.name not in removed]
        self._edits_host: Final = b"host" in self._dropped
        self._edits_date: Final = b"date" in self._dropped
        self._adds_l5d: Final = any(one.kind == L5D for one in self._appended)

    def of_request(self, head: RequestHead, match: Match) -> RequestHead:
        edited = head.with_fields(self._edited(head.fields))
        if self._edits_host:
            edited.has_host = any(one.kind == HOST for one in edited.fields)
        if self._adds_l5d:
            edited.has_l5d = True
        return edited

    def of_response(self, head: ResponseHead) -> ResponseHead:
        edited = head.with_fields(self._edited(head.fields))
        if self._edits_date:
            edited.has_date = False  # if none is left the codec adds one
        return edited

    def _edited(self, fields: list[Field]) -> list[Field]:
        dropped = self._dropped
        if not dropped:
            return fields + self._appended
        return [one for one in fields if one.name not in dropped] + self._appended


def _fields_of(pairs: Sequence[tuple[str, bytes]]) -> list[Field]:
    fields = [field(name.lower().encode(), value.strip(b" \t")) for name, value in pairs]
    return [one for one in fields if _may_edit(one.name, one.kind)]


def _may_edit(name: bytes, kind: int) -> bool:
    if kind in _EDITABLE:
        return True
    _log.warning("A filter of the policy may not edit the field %r in this way; this part of it is ignored", name)
    return False


# ---- failures


class Injecting:
    """A FailureInjector: of `denominator` requests `numerator` fail, by chance."""

    __slots__ = ("_failure", "_numerator", "_denominator")

    def __init__(self, injector: FailureInjector) -> None:
        status, code = (200, _code_of(injector.status)) if injector.is_grpc else (injector.status, FAILED_PRECONDITION)
        self._failure: Final = InjectedFailure(status, code, injector.message)
        self._numerator: Final = injector.numerator
        self._denominator: Final = injector.denominator

    def of_request(self, head: RequestHead, match: Match) -> RequestHead | FilterAnswer:
        return self._failure if random() * self._denominator < self._numerator else head


def _code_of(number: int) -> int:
    """Linkerd's controller gives 500 for a backend that it does not know; clients get the code for what is no code."""
    return number if 0 <= number < len(NAMES) else UNKNOWN


class Refusing:
    """A filter that cannot be carried out: no request passes it."""

    __slots__ = ("_answer",)

    def __init__(self, unusable: Unusable) -> None:
        self._answer: Final = unusable

    def of_request(self, head: RequestHead, match: Match) -> RequestHead | FilterAnswer:
        return self._answer


# ---- redirections


class Redirecting:
    """A Redirect. A request that it would redirect to its own location passes."""

    __slots__ = ("_redirect",)

    def __init__(self, redirect: Redirect) -> None:
        self._redirect: Final = redirect

    def of_request(self, head: RequestHead, match: Match) -> RequestHead | FilterAnswer:
        try:
            place = location(self._redirect, head, match)
        except InvalidRedirectError as error:
            return InvalidRedirection(str(error))
        return head if place is None else Redirection(self._redirect.status, place)
