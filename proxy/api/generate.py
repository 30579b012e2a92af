"""`make api`: write the *_pb2.py and *_pb2.pyi of every .proto beside this file.

Deterministic for one version of grpcio-tools; what is committed is what
this writes (tests/api checks that its descriptors are those of the .proto files).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

HERE: Final = Path(__file__).parent

_IMPORT: Final = re.compile(r"^import (\w+_pb2) as ", re.MULTILINE)
_VERSION_CHECK: Final = re.compile(
    r"^from google\.protobuf import runtime_version as _runtime_version\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\([^)]*\)\n"
    r"|^# Protobuf Python Version: .*\n",
    re.MULTILINE,
)


def protos() -> list[str]:
    return sorted(path.name for path in HERE.glob("*.proto"))


def compile_protos(*outputs: str) -> None:
    """Run protoc over all files; `outputs` are its `--…_out=` arguments. RuntimeError if it fails."""
    from grpc_tools import protoc

    built_in = str(files("grpc_tools") / "_proto")
    code = protoc.main(["protoc", f"-I{HERE}", f"-I{built_in}", *outputs, *protos()])
    if code:
        raise RuntimeError(f"protoc failed with {code}")


def generated() -> Iterator[tuple[str, str]]:
    """Name and text of every generated file."""
    with TemporaryDirectory() as scratch:
        compile_protos(f"--python_out={scratch}", f"--pyi_out={scratch}")
        for path in sorted(Path(scratch).iterdir()):
            yield path.name, _settled(path.read_text())


def _settled(text: str) -> str:
    """Imports by package instead of by search path; and no check that the installed
    protobuf is as new as the generator, which would bind users to a release for no reason."""
    return _VERSION_CHECK.sub("", _IMPORT.sub(r"from proxy.api import \1 as ", text))


def main() -> int:
    count = 0
    for name, text in generated():
        (HERE / name).write_text(text)
        count += 1
    sys.stdout.write(f"{count} files from {len(protos())} .proto files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
