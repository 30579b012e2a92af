"""The table of endings is complete: it has a line for every reason, and so has each role that overrides some of them."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.ending import endings
from proxy.http.ending.endings import ENDINGS, Failure, code_of, overridden
from proxy.inbound.http import rescue as inbound
from proxy.outbound.http import rescue as outbound


def test_no_reason_is_left_out() -> None:
    assert set(ENDINGS) == set(Reason)
    assert {one.fault for one in ENDINGS.values()} == {
        endings.NONE, endings.CLIENT, endings.ENDPOINT, endings.PROXY,
    }  # fmt: skip


@pytest.mark.parametrize("table", [inbound._FAILURES, outbound._FAILURES], ids=["inbound", "outbound"])
def test_a_role_answers_every_reason_with_a_text(table: dict[Reason, Failure]) -> None:
    assert set(table) == set(Reason)
    assert all(400 <= one.status < 600 and one.text for one in table.values())


def test_what_a_role_says_goes_before_the_table() -> None:
    made = overridden({Reason.SHUTDOWN: Failure(599, 2, text="closing")})
    assert made[Reason.SHUTDOWN] == Failure(599, 2, text="closing")
    assert made[Reason.CONNECT_TIMEOUT] == Failure(504, 4, text=Reason.CONNECT_TIMEOUT.value)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.COMPLETE, 0),
        (Reason.PROTOCOL_ERROR, 1),
        (Reason.SHUTDOWN, 7),
        (Reason.CANCELLED, 8),
        (Reason.RESET_FLOOD, 11),
    ],
)
def test_codes_of_http_2(reason: Reason, code: int) -> None:
    assert code_of(reason) == code
