"""When a certificate is valid, for the texts of errors: a "not yet valid" without times does not say whose clock is wrong."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from time import gmtime, strftime, time
from typing import Final

from proxy.tls.certificate.der import SEQUENCE, content, elements

_NOT_YET_VALID: Final = 9
_HAS_EXPIRED: Final = 10
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def verify_text(error: ssl.SSLCertVerificationError, chain: Iterable[bytes] = ()) -> str:
    """What OpenSSL says of a certificate that it refused. If that is about the time, the clock's is added, and that of the
    certificate of `chain` that is out of it; a peer's certificate cannot be looked at once it has been refused."""
    text = error.verify_message
    if error.verify_code not in (_NOT_YET_VALID, _HAS_EXPIRED):
        return text
    now = strftime("%Y%m%d%H%M%SZ", gmtime(time()))
    for each in chain:
        since, until = _validity(each)
        if error.verify_code == _NOT_YET_VALID and now < since:
            return f"{text}: it is valid from {_spelled(since)}, and the clock here says {_spelled(now)}"
        if error.verify_code == _HAS_EXPIRED and now > until:
            return f"{text}: it was valid until {_spelled(until)}, and the clock here says {_spelled(now)}"
    return f"{text}: the clock here says {_spelled(now)}"


def _validity(certificate_der: bytes) -> tuple[str, str]:
    """From when until when (RFC 5280, section 4.1.2.5), as YYYYMMDDHHMMSSZ, of a certificate that OpenSSL has read."""
    fields = elements(content(content(certificate_der, 0, SEQUENCE), 0, SEQUENCE))
    if fields[0][0] == _VERSION:
        del fields[0]
    since, until = [_with_century(tag, value.decode("ascii", "replace")) for tag, value in elements(fields[3][1])]
    return since, until


def _with_century(tag: int, text: str) -> str:
    if tag != _UTC_TIME:
        return text
    return ("19" if text[:2] >= "50" else "20") + text


def _spelled(text: str) -> str:
    return f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:14]}Z"
