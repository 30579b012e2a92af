"""The image's root file system: what runs of Debian's packages, and nothing else. Runs in the build stage.

    python3 collect.py ROOT

copies the files of PACKAGES to ROOT, less what no sidecar needs, keeps each package's copyright file and its entry for
scanners (/var/lib/dpkg/status.d), and fails if any program or library there needs a library that is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

PACKAGES = (
    "base-files",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libssl3t64",
    "libzstd1",
    "libffi8",
    "libexpat1",
    "libbz2-1.0",
    "liblzma5",
    "libuuid1",
    "python3-minimal",
    "python3.13-minimal",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "iptables",
    "libxtables12",
    "libip4tc2",
    "libip6tc2",
    "libnftnl11",
    "libmnl0",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
)
ONLY = {
    "coreutils": ("/usr/bin/sleep",),
    "base-files": ("/usr/lib/os-release", "/etc/os-release", "/etc/debian_version"),
}
"""Of these packages nothing but these files."""

_STDLIB = "/usr/lib/python3.13"
DROPPED = (
    "/usr/share/*", "/etc/init.d/*", "/usr/lib/*/gconv/*", "/usr/lib/*/audit/*", "/usr/lib/python3/*", "/usr/lib/locale/*",
    "/usr/bin/py3*", "/usr/bin/pdb*", "/usr/bin/pydoc*", "/usr/bin/iconv", "/usr/bin/locale*", "/usr/bin/ldd", "/usr/bin/tzselect",
    "/usr/bin/zdump", "/usr/bin/getconf", "/usr/bin/pldd", "/usr/bin/catchsegv", "/usr/bin/c_rehash", "/usr/sbin/nfnl_osf",
    "/usr/sbin/iptables-apply", "/usr/sbin/ip6tables-apply", "/usr/bin/iptables-xml", "/usr/sbin/ld.so", "/usr/bin/ld.so",
    "/usr/sbin/iconvconfig", "/usr/sbin/zic", "/usr/sbin/ldconfig", "/usr/lib/*/engines-3/*", "/usr/lib/*/libgomp*",
    "/usr/sbin/arptables*", "/usr/sbin/ebtables*", "/usr/lib/*/xtables/libarp*", "/usr/lib/*/xtables/libebt*",
    f"{_STDLIB}/idlelib/*", f"{_STDLIB}/test/*", f"{_STDLIB}/turtledemo/*", f"{_STDLIB}/tkinter/*", f"{_STDLIB}/ensurepip/*",
    f"{_STDLIB}/pydoc_data/*", f"{_STDLIB}/config-3.13-*", f"{_STDLIB}/curses/*", f"{_STDLIB}/sqlite3/*", f"{_STDLIB}/venv/*",
    f"{_STDLIB}/dbm/*", f"{_STDLIB}/turtle.py", f"{_STDLIB}/EXTERNALLY-MANAGED",
    f"{_STDLIB}/lib-dynload/_curses*", f"{_STDLIB}/lib-dynload/_dbm*", f"{_STDLIB}/lib-dynload/_gdbm*",
    f"{_STDLIB}/lib-dynload/_sqlite3*", f"{_STDLIB}/lib-dynload/readline*", f"{_STDLIB}/lib-dynload/_tkinter*",
    f"{_STDLIB}/lib-dynload/_test*", f"{_STDLIB}/lib-dynload/_ctypes_test*", f"{_STDLIB}/lib-dynload/xx*", "*/__pycache__*",
)  # fmt: skip

PASSWD = (
    "root:x:0:0:root:/:/sbin/nologin\nsponson:x:2102:2102::/:/sbin/nologin\nnobody:x:65534:65534::/:/sbin/nologin\n"
)
GROUP = "root:x:0:\nsponson:x:2102:\nnogroup:x:65534:\n"
NSSWITCH = "hosts: files dns\n"


def main() -> None:
    root = Path(sys.argv[1])
    for directory in (
        "dev",
        "etc",
        "proc",
        "sys",
        "run",
        "tmp",
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "var/lib/dpkg/status.d",
    ):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "var/run").symlink_to("/run")
    for package in sorted({*PACKAGES, *ONLY}):
        _copy_package(package, root)
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)):
        (root / "etc" / name).write_text(text)
    missing = sorted(_missing_libraries(root))
    if missing:
        raise SystemExit("needed but not collected:\n" + "\n".join(missing))


def _copy_package(package: str, root: Path) -> None:
    only = ONLY.get(package)
    for line in _output("dpkg", "-L", package).splitlines():
        source = Path(line)
        if source.is_dir() and not source.is_symlink():
            continue
        if (line in only) if only else not any(fnmatch(line, pattern) for pattern in DROPPED):
            _copy(source, root)
    # Links that the package's scripts make, not its list of files: /usr/sbin/iptables is one.
    if package == "iptables":
        for name in ("iptables", "ip6tables"):
            for ending in ("", "-save", "-restore"):
                link = root / f"usr/sbin/{name}{ending}"
                link.unlink(missing_ok=True)
                link.symlink_to("xtables-nft-multi")
    copyright_ = Path(f"/usr/share/doc/{package}/copyright")
    if copyright_.exists():
        _copy(copyright_.resolve(), root, copyright_)
    (root / "var/lib/dpkg/status.d" / package).write_text(_output("dpkg-query", "--status", package))


def _copy(source: Path, root: Path, at: Path | None = None) -> None:
    # The directory is resolved, as /lib is a link to /usr/lib; the file itself may be a link.
    at = at or source.parent.resolve() / source.name
    to = root / str(at).lstrip("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    if not to.is_symlink() and not to.exists():
        shutil.copy2(source, to, follow_symlinks=False)


def _missing_libraries(root: Path) -> set[str]:
    found = {path.name for path in root.rglob("*.so*")}
    missing = set()
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        for line in _output("readelf", "-d", str(path)).splitlines():
            if "(NEEDED)" in line:
                name = line.rsplit("[", 1)[1].rstrip("]")
                # Wheels bring libraries of their own beside their modules.
                if name not in found:
                    missing.add(f"{name} by {path.relative_to(root)}")
    return missing


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


main()
