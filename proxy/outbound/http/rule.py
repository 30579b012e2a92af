"""RuleStage: what a route's rule does with a request that it matched."""

from __future__ import annotations

from typing import Protocol

from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.policy.redirect import Match


class RuleStage(Protocol):
    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        """Send this head on for the exchange; `match` is the one that chose the rule."""

    @property
    def is_ready(self) -> bool:
        """Some backend takes requests; else they are shed."""
