"""What filters of a route or backend do to responses, and the answers that they give in place of an endpoint (docs/linkerd/outbound.md, section 10)."""

from __future__ import annotations

from typing import assert_never

from proxy.http.exchange import Exchange
from proxy.http.head import ResponseHead
from proxy.outbound.http.rescue import UNEXPECTED, Failure, Rescue
from proxy.policy.routes.filter import FilterAnswer, InjectedFailure, InvalidRedirection, Redirection, ResponseFilter
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


class FilteredResponse:
    """A ResponseEditor: the backend's filters, then the route's."""

    __slots__ = ("_filter",)

    def __init__(self, filter_: ResponseFilter) -> None:
        self._filter = filter_

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> ResponseHead:
        return self._filter(head)
