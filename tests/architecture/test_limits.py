"""A limit is in core/limits.py and nowhere else: a number that bounds what a peer, a client, a server or the control plane can
make a sidecar hold or do.

A constant elsewhere that is named like a limit is none, for the reason that is written down here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from proxy.core import limits

ROOT = Path(__file__).parents[2]
SIDECAR = (
    "admin",
    "balance",
    "control",
    "core",
    "http",
    "inbound",
    "metrics",
    "outbound",
    "policy",
    "tls",
    "transport",
)

EXCEPTIONS: dict[str, str] = {
    "core/log/writer.py:_BATCH_BYTES": "what is written at once",
    "core/small_file.py:_PIECE_BYTES": "what one read asks for; the caller says how much may come",
    "control/convert/accrual.py:_MAX_MIN_REQUESTS": "Linkerd's range of values",
    "balance/beyond/tuned.py:_LEAST": "the least share of a slow start",
    "control/convert/fields.py:_MAX_JITTER": "Linkerd's range of values",
    "control/convert/client.py:_MAX_PROBE_SHARE": "the range of values of our own annotation",
    "control/convert/client.py:_MAX_RETRIES": "the range of the message's values",
    "control/convert/client.py:_MAX_SLOW_START_S": "the range of values of our own annotation",
    "control/convert/profile.py:_MOST_PER_S": "Linkerd's range of values",
    "control/convert/profile.py:_MOST_RATIO": "Linkerd's range of values",
    "http/h1/pool.py:MAX_IDLE": "stands for none; the configuration sets it",
    "http/h1/refusal.py:_SHOWN_BYTES": "what one log line shows",
    "http/h2/frames/frame.py:WINDOW_LIMIT": "the protocol's",
    "http/h2/frames/settings.py:MAX_CONCURRENT_STREAMS": "the number of a setting",
    "http/h2/frames/settings.py:MAX_FRAME_SIZE": "the number of a setting",
    "http/h2/frames/settings.py:MAX_HEADER_LIST_SIZE": "the number of a setting",
    "http/h2/hpack/decoder.py:TABLE_BYTES": "the protocol's default",
    "http/h2/hpack/decoder.py:_BLOCK_BYTES": "what remembering one costs, for the budget",
    "http/h2/hpack/encoder.py:_ENTRY_BYTES": "what remembering one costs, for the budget",
    "http/h2/hpack/encoder.py:_LEAST_LIST_BYTES": "what a peer cannot forbid",
    "http/h2/stream/backlog.py:STREAM_BYTES": "what a stream costs, for the backlog",
    "http/h2/stream/backlog.py:_READ_BYTES": "what a read brings, for the backlog",
    "http/pool.py:_MOST_PATIENCE": "how many calls pass between two looks",
    "inbound/connection/arrival.py:_LOOKED_AT_BYTES": "more than HELLO_BYTES, which is all that was peeked at",
    "outbound/http/accrual/penalty.py:_MAX_DIGITS": "of a number in 64 bits",
    "outbound/http/retry/overrides.py:_MOST_RETRIES": "the range of the message's values",
    "policy/routes/program.py:_INSTRUCTION_BYTES": "what an instruction holds, for PROGRAMS_BYTES",
    "policy/routes/program.py:_OBJECT_BYTES": "what a program holds, for PROGRAMS_BYTES",
    "tls/connection.py:_BUFFER_BYTES": "the buffer that all connections share",
    "tls/connection.py:_RECORD_BYTES": "the protocol's",
    "tls/hello.py:_RECORD_BYTES": "the protocol's",
    "transport/connection.py:_LONG_READ_BYTES": "which reads tell that more is there",
    "transport/detection/detect.py:_LONGEST_BYTES": "what Linkerd looks at, which decides what is HTTP",
    "transport/detection/detect.py:_SHORTEST_BYTES": "the length of a text",
    "transport/orig_dst.py:_SOCKADDR_IN6_BYTES": "the kernel's",
    "transport/orig_dst.py:_SOCKADDR_IN_BYTES": "the kernel's",
    "transport/splice.py:SPLICE_AFTER_BYTES": "from where on splicing is cheaper",
    "transport/splice.py:_PIPE_BYTES": "the kernel's buffer; one for each direction that splices",
}

_LIKE_A_LIMIT = re.compile(r"(^|_)(BYTES|MOST|MAX|LEAST|LIMIT|CAPACITY|PER_TURN|PER_STEP|PER_WAKE_UP)(_|$)")
_IN_CAPITALS = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")


def named_like_limits(text: str) -> list[str]:
    """The constants of a module that are plain numbers and named like a limit; not those that are made from others."""
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            parts = [one for one in ast.walk(node.value) if isinstance(one, ast.expr)]
            is_number = all(
                isinstance(one, ast.BinOp) or (isinstance(one, ast.Constant) and isinstance(one.value, int | float))
                for one in parts
            )
            if isinstance(target, ast.Name) and is_number and _LIKE_A_LIMIT.search(target.id):
                found.append(target.id)
    return found


def elsewhere() -> set[str]:
    return {
        f"{path.relative_to(ROOT / 'proxy')}:{name}"
        for package in SIDECAR
        for path in (ROOT / "proxy" / package).rglob("*.py")
        if path != ROOT / "proxy" / "core" / "limits.py"
        for name in named_like_limits(path.read_text())
    }


def test_limits_stand_in_one_place() -> None:
    found = elsewhere()
    assert sorted(found - set(EXCEPTIONS)) == []
    assert sorted(set(EXCEPTIONS) - found) == [], "exceptions that nothing needs"


def test_what_is_named_like_a_limit_is_seen() -> None:
    text = """
A_BYTES: Final = 10
_MOST: Final = 1 << 20
_MAX_X = 5
SHARE_BYTES: Final = A_BYTES // 2
OPEN: Final = 3
MOST_TEXT: Final = str(3)
TEXT_LIMIT = b"limit"
"""
    assert named_like_limits(text) == ["A_BYTES", "_MOST", "_MAX_X"]


def test_every_limit_that_the_design_names_is_there() -> None:
    """docs/design.md says what each limit bounds; from the sections about bounds on, a name in capitals is a limit."""
    text = (ROOT / "docs" / "design.md").read_text().partition("### What bounds one turn")[2].partition("\n## ")[0]
    names = set(_IN_CAPITALS.findall(text))
    assert len(names) > 30
    assert sorted(name for name in names if not hasattr(limits, name)) == []


def test_every_limit_is_used_and_says_what_it_is() -> None:
    body = ast.parse((ROOT / "proxy" / "core" / "limits.py").read_text()).body
    names = {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    texts = [path.read_text() for path in (ROOT / "proxy").rglob("*.py") if path.name != "limits.py"]
    used = {name for text in texts for name in re.findall(r"[A-Z][A-Z0-9_]+", text)}
    assert names and sorted(names - used) == []
    says = {
        node.target.id
        for node, following in zip(body, body[1:], strict=False)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(following, ast.Expr | ast.AnnAssign)
    }
    assert names == says
