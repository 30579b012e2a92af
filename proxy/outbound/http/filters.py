"""The answers that filters of a route or backend give in place of an endpoint (docs/linkerd/outbound.md, section 10)."""

from __future__ import annotations

from typing import assert_never

from proxy.http.exchange import Exchange
from proxy.outbound.http.rescue import UNEXPECTED, Failure, Rescue
from proxy.policy.routes.filter import FilterAnswer, InjectedFailure, InvalidRedirection, Redirection
from proxy.policy.routes.route import Unusable


def answer(rescue: Rescue, exchange: Exchange, given: FilterAnswer) -> None:
    """`exchange.context` names the rule or the backend whose filter it is."""
    if isinstance(given, Redirection):
        rescue.redirect(exchange, given.status, given.location)
    elif isinstance(given, InjectedFailure):
        rescue.fail(exchange, Failure(given.status, given.grpc_code, False, ""), given.message)
    elif isinstance(given, InvalidRedirection | Unusable):
        rescue.fail(exchange, UNEXPECTED, given.text)
    else:
        assert_never(given)
