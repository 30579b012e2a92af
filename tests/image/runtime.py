#!/usr/bin/env python3
"""runc as a kubelet's runtime uses it: no ambient and no inheritable capabilities.

podman gives a container that is not root the capabilities that were added as ambient ones, which a script then has. In
Kubernetes it has none: a program gets them only from its own file. This stands between podman and runc and takes them away.
"""

import json
import os
import sys
from pathlib import Path

arguments = sys.argv[1:]
if "create" in arguments:
    file = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
    config = json.loads(file.read_text())
    capabilities = config["process"].get("capabilities", {})
    bounding = capabilities.get("bounding", [])
    config["process"]["capabilities"] = {"bounding": bounding, "effective": bounding, "permitted": bounding}
    file.write_text(json.dumps(config))
os.execvp("runc", ["runc", *arguments])
