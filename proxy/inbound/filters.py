"""Filters: what a rule does to a permitted request, in order (docs/linkerd/inbound.md, section 6).

A filter changes the request's head or answers the exchange; after an
answer nothing more happens to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import Protocol

from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.replies import redirect
from proxy.inbound.rescue import INVALID_POLICY, Failure
from proxy.policy.filter import InvalidRedirectError, location, modify
from proxy.policy.route import FailureInjector, Filter, GrpcMatch, HeaderModifier, HttpMatch, Redirect


class Answers(Protocol):
    """The part of rescue.InboundRescue that filters use."""

    is_meshed: bool

    def fail(self, exchange: Exchange, failure: Failure, text: str) -> None: ...

    def unexpected(self, exchange: Exchange, text: str) -> None: ...


def apply_filters(
    exchange: Exchange, filters: Sequence[Filter], match: HttpMatch | GrpcMatch | None, answers: Answers
) -> bool:
    """True if the request goes on; otherwise it is answered."""
    request = exchange.request
    for one in filters:
        if isinstance(one, HeaderModifier):
            if not one.on_response:
                request.fields = modify(request.fields, one)
        elif isinstance(one, Redirect):
            if _redirects(exchange, one, match, answers):
                return False
        elif isinstance(one, FailureInjector):
            if random() * one.denominator < one.numerator:
                # Linkerd's inbound side has no answer for an injected failure but this one.
                answers.unexpected(exchange, f"injected failure {one.status}: {one.message}")
                return False
        else:
            answers.fail(exchange, INVALID_POLICY, one.text)
            return False
    return True


def _redirects(exchange: Exchange, filter_: Redirect, match: HttpMatch | GrpcMatch | None, answers: Answers) -> bool:
    request = exchange.request
    try:
        place = location(filter_, request, match)
    except InvalidRedirectError as error:
        answers.unexpected(exchange, f"invalid redirect: {error}")
        return True
    if place is None:
        return False
    head = redirect(request, filter_.status, place, "request redirected", answers.is_meshed)
    exchange.reply(head, Reason.COMPLETE)
    return True
