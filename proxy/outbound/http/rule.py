"""RuleStage: what a route's rule does with a request that it matched."""

from __future__ import annotations

from typing import Final, Protocol

from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.policy.routes.redirect import Match


class BackendPlace:
    """A rule's way into a backend; a Place."""

    __slots__ = ("context", "within")

    def __init__(self, context: str, within: str) -> None:
        self.context: Final = context
        self.within: Final = within
        """The text that goes between the backend's name and the failure in an error: the name of a balancer, or
        nothing.
        """


class RuleStage(Protocol):
    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        """Send this head on for the exchange; `match` is the one that chose the rule."""

    @property
    def is_ready(self) -> bool:
        """Whether some backend takes requests; if none does, requests are shed."""
