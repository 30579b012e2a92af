"""Invitation: one line of text with all that a machine needs to join: where, the trust anchors, and a token for a while.

Anyone who has it can join with it until the token expires, so it must be handled like a password.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

from proxy.core.address.addr import Addr, parse_addr

_MARK: Final = "sponson-invitation-1."
_MAX_CHARACTERS: Final = 200_000


class InvitationError(Exception):
    """The text is not an invitation."""


class Invitation(NamedTuple):
    server: Addr
    trust_anchors: str
    """PEM."""
    token: str

    def text(self) -> str:
        said = {"server": str(self.server), "trust_anchors": self.trust_anchors, "token": self.token}
        return _MARK + urlsafe_b64encode(json.dumps(said).encode()).decode()


def read_invitation(text: str) -> Invitation:
    """InvitationError if the text is not an invitation, or was cut off."""
    stripped = "".join(text.split())  # a terminal may have broken the line
    if not stripped.startswith(_MARK) or len(stripped) > _MAX_CHARACTERS:
        raise InvitationError("that is no invitation: `sponson mesh invite` makes one, on the control plane's machine")
    try:
        said = json.loads(urlsafe_b64decode(stripped.removeprefix(_MARK)))
        return Invitation(parse_addr(said["server"]), str(said["trust_anchors"]), str(said["token"]))
    except (Base64Error, ValueError, KeyError, TypeError):
        raise InvitationError("the invitation is not whole") from None
