"""TLS contexts for destinations, one per trusted CA. Reads the system's CA store; no other I/O.

Called by the dialer. Verification is always on: there is no switch.
"""

import ssl
from collections import OrderedDict

MAX_TLS_CONTEXTS = 64
MAX_CA_CHARS = 262_144


class BadCa(ValueError):
    """The text is no CA certificate. The message does not repeat it."""


class TlsContexts:
    """Builds a context on first use and keeps the latest used; building one costs tens of milliseconds."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[str | None, ssl.SSLContext] = OrderedDict()

    def get(self, ca_pem: str | None) -> ssl.SSLContext:
        """The context that trusts this CA alone, or the system's CAs for None. Raises BadCa."""
        context = self._contexts.get(ca_pem)
        if context is None:
            context = _build(ca_pem)
            self._contexts[ca_pem] = context
            if len(self._contexts) > MAX_TLS_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(ca_pem)
        return context


def _build(ca_pem: str | None) -> ssl.SSLContext:
    if ca_pem is not None and not 0 < len(ca_pem) <= MAX_CA_CHARS:
        raise BadCa(f"it must have 1 to {MAX_CA_CHARS} characters")
    if ca_pem is not None and not ca_pem.isascii():
        raise BadCa("it is not PEM")
    try:
        context = ssl.create_default_context(cadata=ca_pem)
    except ssl.SSLError as error:
        raise BadCa("it is not PEM, or holds no certificate") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
