"""The admin port: probes, metrics, log level, environment, shutdown (docs/linkerd/admin-tap-tracing-shutdown.md)."""

from proxy.admin.ready import Latch as Latch
from proxy.admin.ready import Readiness as Readiness
from proxy.admin.scrape import Scrapes as Scrapes
from proxy.admin.server import Admin as Admin
from proxy.admin.server import AdminStage as AdminStage
