"""RequestScope: ends are counted alike, whether they come as one object or as values."""

from __future__ import annotations

from proxy.metrics.scope import Ended, RequestScope


def test_ends_that_alternate_are_each_counted_where_they_belong() -> None:
    fine, missing, broken = Ended(200, True, "", ""), Ended(404, True, "", ""), Ended(200, False, "", "unclassified")
    scope = RequestScope()
    for how in (fine, fine, missing, fine, broken, broken, missing, Ended(200, True, "", "")):
        scope.count(how)
    scope.ended(200, True)
    assert {status: found.ended for status, found in scope.by_status.items()} == {
        200: {(True, "", ""): 5, (False, "", "unclassified"): 2},
        404: {(True, "", ""): 2},
    }
