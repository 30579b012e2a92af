#!/usr/bin/env python3
"""runc as a kubelet's runtime uses it: no ambient and no inheritable capabilities.

podman adds capabilities as ambient ones to a container that does not run as root, so that a script has them too. In
Kubernetes it has none: a program gets them only from its own file. This program runs between podman and runc and
removes them.
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
