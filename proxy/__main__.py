"""`python -m proxy` is `sponson`."""

from __future__ import annotations

from proxy.cli import main

main()
