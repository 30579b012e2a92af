"""When an exchange is over: whatever counts or classifies it, or releases its endpoint, learns of the end once, and
not before it.
"""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.headers import field
from tests.kit.streams import FakeClient, FakeObserver, FakeServer, FakeStage, request_head, response_head


class Story:
    """A request that has ended and is attached to a client stream; `told` has the calls that its observer got."""

    def __init__(self) -> None:
        observer = FakeObserver()
        self.told = observer.told
        self.client = FakeClient()
        self.server = FakeServer()
        self.exchange = Exchange(self.server, request_head(), 0.0)
        self.exchange.observers = (observer,)
        self.exchange.request_head(FakeStage(lambda exchange: exchange.attach(self.client)), True)


@pytest.mark.acceptance("EOS-01")
class TestEnd:
    def test_of_an_empty_body_is_told_with_its_head(self) -> None:
        story = Story()
        story.exchange.response_head(response_head(204, 0), True)
        assert story.told == ["began", "COMPLETE"]

    def test_of_data_is_told_after_the_last_frame(self) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        assert story.told == []
        story.exchange.response_data(b"hello", False)
        assert story.told == ["began"]
        story.exchange.response_data(b"world", True)
        assert story.told == ["began", "COMPLETE"] and story.server.body == b"helloworld"

    def test_of_data_and_trailers_is_told_after_the_trailers(self) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        story.exchange.response_data(b"hello", False)
        story.exchange.response_data(b"world", False)
        assert story.told == ["began"]
        story.exchange.response_trailers([field(b"key", b"value")])
        assert story.told == ["began", "COMPLETE"]

    def test_of_trailers_alone_is_told_after_them(self) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        story.exchange.response_trailers([field(b"key", b"value")])
        assert story.told == ["began", "COMPLETE"]

    @pytest.mark.parametrize("sizes", [[], [5], [5, 5]])
    def test_that_comes_alone_counts_too(self, sizes: list[int]) -> None:
        """An end that comes without data counts too: HTTP/2's empty last frame, the last chunk, FIN."""
        story = Story()
        story.exchange.response_head(response_head(), False)
        for size in sizes:
            story.exchange.response_data(b"x" * size, False)
        assert "COMPLETE" not in story.told
        story.exchange.response_data(b"", True)
        assert story.told == ["began", "COMPLETE"]

    @pytest.mark.parametrize("has_data", [False, True])
    def test_a_client_that_goes_early_ends_it(self, has_data: bool) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        if has_data:
            story.exchange.response_data(b"hello", False)
        story.exchange.request_reset(Reason.PEER_RESET)
        assert story.told == ["began"] * has_data + ["PEER_RESET"] and story.client.reset_by == [Reason.PEER_RESET]

    @pytest.mark.parametrize("has_data", [False, True])
    def test_an_error_in_the_body_ends_it(self, has_data: bool) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        if has_data:
            story.exchange.response_data(b"hello", False)
        story.exchange.response_reset(Reason.CONNECTION_RESET)
        assert story.told == ["began"] * has_data + ["CONNECTION_RESET"]
        assert story.server.reset_by == [Reason.CONNECTION_RESET]

    def test_is_told_once(self) -> None:
        story = Story()
        story.exchange.response_head(response_head(), False)
        story.exchange.response_data(b"hello", True)
        story.exchange.request_reset(Reason.PEER_RESET)
        story.exchange.response_reset(Reason.CONNECTION_RESET)
        story.exchange.cancel(Reason.SHUTDOWN)
        assert story.told == ["began", "COMPLETE"]
