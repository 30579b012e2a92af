"""Which builder makes the image, and what it is given; each builder here is a program that only prints that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy/image/build.sh"
if not SCRIPT.exists():
    pytest.skip("the script is in a checkout", allow_module_level=True)
pytestmark = pytest.mark.no_image

NEEDED = ("bash", "env", "sed", "git", "dirname")


def build(
    folder: Path, builders: tuple[str, ...], *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script where these builders are on PATH and no others."""
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name in builders:
        program = folder / name
        program.write_text(
            f'#!{shutil.which("bash")}\necho "{name} buildkit=${{DOCKER_BUILDKIT:-}}"\nprintf "%s\\n" "$@"\n'
        )
        program.chmod(0o755)
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, cwd=folder, env={"PATH": str(folder), **variables}
    )


@pytest.mark.parametrize(("builders", "first"), [
    (("podman", "buildah", "docker"), "podman"), (("buildah", "docker"), "buildah"), (("docker",), "docker"),
])  # fmt: skip
def test_the_first_builder_that_is_there_gets_the_whole_build(
    tmp_path: Path, builders: tuple[str, ...], first: str
) -> None:
    done = build(
        tmp_path, builders, "registry.example/sponson:1", "--no-cache", BASE="debian@sha256:0", COMPILE="0",
        REVISION="abc", SOURCE_DATE_EPOCH="7", PIP_CERT=str(SCRIPT),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    named, verb, *given = done.stdout.splitlines()
    assert named == f"{first} buildkit={'1' if first == 'docker' else ''}"
    assert verb == "build" and given[-2:] == ["--no-cache", "."]
    assert given[given.index("--tag") + 1] == "registry.example/sponson:1"
    values = {value for flag, value in zip(given, given[1:], strict=False) if flag == "--build-arg"}
    assert {"REVISION=abc", "BASE=debian@sha256:0", "COMPILE=0"} < values
    # What docker does not know ends its build before the first step.
    has_flags_of_podman = {flag for flag in ("--timestamp", "--volume") if flag in given}
    assert has_flags_of_podman == (set() if first == "docker" else {"--timestamp", "--volume"})
    assert ("PIP_CERT=/etc/build-ca.pem" in values) == (first != "docker")


def test_a_builder_may_be_chosen_by_name_or_by_path(tmp_path: Path) -> None:
    for name in ("docker", str(tmp_path / "folder" / "docker")):
        folder = tmp_path / name.replace("/", "_")
        folder.mkdir()
        (tmp_path / "folder").mkdir(exist_ok=True)
        chosen = tmp_path / "folder" / "docker"
        chosen.write_text(f'#!{shutil.which("bash")}\necho "docker buildkit=${{DOCKER_BUILDKIT:-}}"\necho "$@"\n')
        chosen.chmod(0o755)
        done = build(folder, ("podman", "docker"), BUILDER=name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("docker buildkit=1\n") and "--timestamp" not in done.stdout
        assert "sponson" in done.stdout


def test_without_any_builder_the_error_names_them(tmp_path: Path) -> None:
    done = build(tmp_path, ())
    assert done.returncode == 1
    assert done.stderr == "an image takes podman, buildah or docker\n"
