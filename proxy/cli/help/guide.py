"""Guide: examples and exit statuses of every command, shown below its help and in the man page.

Each example is a command line that the parser accepts; a test tries them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.cli.process.guard import INTERRUPTED

Statuses = tuple[tuple[int, str], ...]


class Guide(NamedTuple):
    examples: tuple[tuple[str, str], ...]
    """The command line after `sponson`, and its purpose."""
    statuses: Statuses = ()
    """Statuses beside 2, and 0 and 130 where they have a special meaning."""


_FAILED: Final[Statuses] = ((1, "it cannot be done; stderr says why"),)
_NONSENSE: Final[Statuses] = ((2, "the command line makes no sense"),)
_INTERRUPTED: Final[Statuses] = ((INTERRUPTED, "ended by Ctrl-C"),)
_TAKES_CTRL_C: Final = frozenset({"run", "demo", "up", "validate-network", "mesh serve"})
"""Commands that handle Ctrl-C themselves."""

GUIDES: Final = {
    "run": Guide(
        (
            ("run", "with the variables of the environment, as in a pod"),
            ("run --env-file /var/lib/sponson/web-0/sidecar.env", "of a workload that has joined"),
            ("run --log warn,linkerd_app_inbound=debug", "and say more of the inbound side"),
        ),
        ((0, "drained, or a second signal came"), (1, "a port cannot be bound, or the proxy cannot start"), (64, "the configuration cannot be used")),
    ),
    "demo": Guide(
        (
            ("demo", "until Ctrl-C"),
            ("demo --kill 10s", "kill a replica now and then: it is taken out, and comes back"),
            ("demo --explain --keep", "say what each part is, and keep its files"),
            ("demo --duration 10s --json", "for a script"),
            ("demo --transparent", "as root: apps that know of no proxy"),
        ),
        ((1, "a request failed although no replica was killed, or the mesh could not be set up"),),
    ),
    "up": Guide(
        (
            ("up --name web --port 8080 -- ./web-server", "serves http://web.default.svc.cluster.local/"),
            ("up --name web --port auto -- ./web-server", "finds a free port, and passes it to the app as $PORT"),
            ("up --name client -- curl http://web.default.svc.cluster.local/", "a client"),
        ),
        ((1, "the app cannot be run in a mesh; else the app's own status"),),
    ),
    "inject": Guide(
        (
            ("inject --trust-anchors ca.crt app.yaml", "print it, for kubectl apply -f -"),
            ("inject --linkerd --image registry.example/sponson app.yaml", "only ask Linkerd's injector"),
        ),
        ((1, "a manifest cannot be read or injected: nothing is printed"),),
    ),
    "redirect": Guide(
        (
            ("redirect install", "iptables, the rules of Linkerd's init container"),
            ("redirect install --nftables --dry-run --inbound-ports-to-ignore 22", "print a table of nftables"),
            ("redirect show", ""),
            ("redirect remove", ""),
        ),
        ((1, "it cannot be done; of show: nothing is installed"),),
    ),
    "await": Guide(
        (
            ("await -- my-app --flag", "becomes my-app when the proxy is ready"),
            ("await --shutdown -- my-job", "runs my-job, then ends the proxy too"),
        ),
        ((69, "the proxy was not ready within --timeout"), (71, "CMD cannot be run; else CMD's own status")),
    ),
    "validate-network": Guide(
        (
            ("validate-network", "while no sidecar runs"),
            ("validate-network --timeout 2s --log-format json", ""),
        ),
        ((95, "connections are not redirected, or a signal ended it"),),
    ),
    "bench": Guide((("bench --quick --json", "a few minutes, for a script"),), _FAILED),
    "completion": Guide(
        (
            ("completion bash", "as in: eval \"$(sponson completion bash)\""),
            ("completion zsh", "in ~/.zshrc, behind compinit: eval \"$(sponson completion zsh)\""),
            ("completion fish", "sponson completion fish > ~/.config/fish/completions/sponson.fish"),
        ),
    ),
    "mesh": Guide((("mesh serve --dir manifests", ""), ("help mesh serve", "tells of one action"))),
    "mesh serve": Guide(
        (
            ("mesh serve --dir manifests", "on 127.0.0.1:8086"),
            ("mesh serve --dir manifests --addr 10.0.0.5:8086", "for other machines, by TLS"),
        ),
        ((1, "it cannot start: a port, a CA, or manifests that may not be left out"),),
    ),
    "mesh token": Guide((("mesh token --service-account web --workload web-0", ""),), _FAILED),
    "mesh env": Guide(
        (
            ("mesh env --service-account web --workload web-0 -- sponson run", "run a sidecar"),
            ("mesh env --service-account web --format env-file", "for docker --env-file and systemd"),
        ),
        ((1, "the state directory cannot be used"), (126, "the command cannot be run"), (127, "there is no such command")),
    ),
    "mesh invite": Guide((("mesh invite --service-account web --workload web-0 --address 10.0.0.7", ""),), _FAILED),
    "mesh join": Guide(
        (
            ("mesh join --dir /var/lib/sponson/web-0 --invitation web-0.invitation", ""),
            ("mesh join --dir /var/lib/sponson/web-0 --renew", "a token for the token, as a timer does"),
        ),
        _FAILED,
    ),
    "mesh status": Guide((("mesh status", ""), ("mesh status --json", "")), ((1, "no control plane runs"),)),
    "mesh get": Guide((("mesh get services", ""), ("mesh get endpoints --namespace default --json", "")), _FAILED),
    "mesh describe": Guide((("mesh describe service web", ""),), _FAILED),
    "mesh validate": Guide(
        (("mesh validate manifests", ""), ("mesh validate --strict --json manifests", "for CI")),
        ((1, "something is wrong: it would be left out, or the start refused"),),
    ),
    "mesh schema": Guide((("mesh schema", "of all kinds"), ("mesh schema Service HTTPRoute", "")), _FAILED),
    "mesh revoke": Guide((("mesh revoke --service-account web", ""),), _FAILED),
    "mesh rotate": Guide(
        (("mesh rotate", "which step is next, and when it is safe"), ("mesh rotate begin", "")),
        ((1, "the step is not safe yet, or cannot be taken"),),
    ),
}  # fmt: skip


def statuses_of(words: str) -> Statuses:
    own = GUIDES[words].statuses
    success: Statuses = () if any(status == 0 for status, _ in own) else ((0, "done"),)
    interrupted = () if words in _TAKES_CTRL_C else _INTERRUPTED
    return tuple(sorted((*success, *own, *_NONSENSE, *interrupted)))


def epilog_of(words: str) -> str:
    """Examples and exit statuses, for the end of a command's help."""
    examples = GUIDES[words].examples
    lines = ["examples:"]
    for line, what in examples:
        lines += [f"  # {what}"] if what else []
        lines.append(f"  sponson {line}")
    lines += ["", "exit status:"]
    lines += [f"  {status:>3}  {meaning}" for status, meaning in statuses_of(words)]
    return "\n".join(lines)
