"""Label selectors: `matchLabels` and `matchExpressions`, all of which must hold (Kubernetes: labels and selectors)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.mesh.manifests.schema import TEXT, TEXTS, ListOf, Record, Text
from proxy.mesh.manifests.value import Value

_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")

SELECTOR: Final = Record(
    {
        "matchLabels": TEXTS,
        "matchExpressions": ListOf(
            Record(
                {
                    "key": TEXT,
                    "operator": Text("In", "NotIn", *_WITHOUT_VALUES),
                    "values": ListOf(TEXT),
                },
                "key",
                "operator",
            )
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Expression:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        if self.operator == "In":
            return found is not None and found in self.values
        if self.operator == "NotIn":
            return found is None or found not in self.values
        return (found is not None) is (self.operator == "Exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """Without expressions it selects everything."""

    expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(expression.holds(labels) for expression in self.expressions)


def selector(value: Value) -> Selector:
    """ManifestError for an expression whose operator and values do not belong together."""
    found = [Expression(key, "In", frozenset((text,))) for key, text in value.texts("matchLabels").items()]
    for item in value.items("matchExpressions"):
        operator = item.need("operator").text()
        values = frozenset(one.text() for one in item.items("values"))
        if bool(values) is (operator in _WITHOUT_VALUES):
            raise item.error(f"{operator} takes {'no values' if values else 'one value or more'}")
        found.append(Expression(item.need("key").text(), operator, values))
    return Selector(tuple(sorted(found, key=lambda one: (one.key, one.operator, sorted(one.values)))))
