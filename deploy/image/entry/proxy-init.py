#!/usr/bin/python3 -IB
import sys

from proxy.cli.redirect import proxy_init

sys.exit(proxy_init(sys.argv[1:]))
