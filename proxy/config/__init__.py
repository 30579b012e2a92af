"""The environment as a frozen Config: LINKERD2_PROXY_* and our SPONSON_* (docs/linkerd/configuration.md).

A mapping goes in, a Config or one ConfigError that names every bad value
comes out; the process environment is never looked at.
"""

from proxy.config.model import Config as Config
from proxy.config.model import Http2Server as Http2Server
from proxy.config.ports import PortSet as PortSet
from proxy.config.reading.parse import EX_USAGE as EX_USAGE
from proxy.config.reading.parse import ConfigError as ConfigError
from proxy.config.reading.parse import parse as parse
from proxy.config.workers import available_cpus as available_cpus
from proxy.config.workers import worker_count as worker_count
from proxy.core.address.control_addr import ControlAddr as ControlAddr
