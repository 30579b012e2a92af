"""The answers that filters of a route give in place of the app (docs/linkerd/inbound.md, sections 6 and 11)."""

from __future__ import annotations

from typing import assert_never

from proxy.http.exchange import Exchange
from proxy.inbound.http.rescue import INVALID_POLICY, InboundRescue
from proxy.policy.routes.filter import FilterAnswer, InjectedFailure, InvalidRedirection, Redirection
from proxy.policy.routes.route import Unusable


def answer(rescue: InboundRescue, exchange: Exchange, given: FilterAnswer) -> None:
    if isinstance(given, Redirection):
        rescue.redirect(exchange, given.status, given.location)
    elif isinstance(given, InjectedFailure):
        # Linkerd's inbound side has no answer for an injected failure but this one.
        rescue.unexpected(exchange, f"injected failure {given.status}: {given.message}")
    elif isinstance(given, InvalidRedirection):
        rescue.unexpected(exchange, f"invalid redirect: {given.text}")
    elif isinstance(given, Unusable):
        rescue.fail(exchange, INVALID_POLICY, given.text)
    else:
        assert_never(given)
