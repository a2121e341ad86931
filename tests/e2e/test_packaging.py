"""What is shipped works where it is shipped to: the wheel, the unit, the image, the example pod."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config.keys import KEYS
from headwater.server.routes import every_route
from tests.rig.server_process import ServerProcess, clean_environment

pytestmark = pytest.mark.e2e
yaml: Any = pytest.importorskip("yaml", reason="comes with the extra docs")

REPOSITORY = Path(__file__).parents[2]
SITE_PACKAGES = Path(yaml.__file__).parents[1]
SETTINGS = {f"HEADWATER_{key.name.upper()}" for key in KEYS}
EXPOSURE_MAX = 2.0


def run(*words: str, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target), cwd=REPOSITORY
    )
    (found,) = target.glob("*.whl")
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def test_the_wheel_installs_in_a_fresh_environment_and_has_the_command(
    wheel: Path, tmp_path: Path
) -> None:
    """Dependencies are those of the tests, so that no network is needed; the package is not."""
    place = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (site,) = place.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{SITE_PACKAGES}\n", encoding="utf-8")
    # Whoever runs the tests from a checkout may have it on the path: that is not the wheel.
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    there: dict[str, Any] = {"cwd": tmp_path, "env": alone}
    said = run(str(place / "bin" / "headwater"), "--version", **there)
    assert said == f"headwater {headwater.__version__}\n"
    found = run(str(python), "-c", "import headwater; print(headwater.__file__)", **there)
    assert Path(found.strip()).is_relative_to(site)
    said = run(str(python), "-m", "headwater", "completion", "bash", **there)
    assert "_HEADWATER_COMPLETE" in said


def test_the_wheel_has_everything_the_package_has_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "src/headwater", cwd=REPOSITORY).split()
    missing = {name.removeprefix("src/") for name in tracked} - inside
    assert not missing
    assert all(name.startswith("headwater/") for name in inside)
    assert "headwater/py.typed" in inside


def test_the_metadata_tells_licence_dependencies_and_python(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Name"] == "headwater"
    assert told["Version"] == headwater.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"] == "text/markdown"
    needed = {re.split(r"[^\w-]", text)[0] for text in told.get_all("Requires-Dist", [])}
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    for text in declared["project"]["dependencies"]:
        assert re.split(r"[^\w-]", text)[0] in needed


def test_the_changelog_has_a_section_for_this_version_or_what_comes() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{headwater.__version__}]" in text


# ---------------------------------------------------------------------------------------


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    text = (REPOSITORY / "packaging" / "headwater.service").read_text(encoding="utf-8")
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_sets_settings_that_exist_and_stops_the_polite_way() -> None:
    told = unit()
    names = {value.partition("=")[0] for value in told["Environment"]}
    assert names <= SETTINGS
    assert told["KillSignal"] == ["SIGTERM"]
    assert told["RestartPreventExitStatus"] == ["2 4 5"]
    assert told["DynamicUser"] == ["yes"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    text = (REPOSITORY / "packaging" / "headwater.service").read_text(encoding="utf-8")
    here = tmp_path / "headwater.service"
    here.write_text(text.replace("/opt/headwater/bin/headwater", "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = run("systemd-analyze", "security", "--offline=true", str(here))
    level = re.search(r"exposure level for headwater\.service: ([0-9.]+)", said)
    assert level is not None
    assert float(level[1]) <= EXPOSURE_MAX


# ---------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def test_the_image_runs_as_nobody_keeps_a_volume_and_copies_what_is_there() -> None:
    lines = instructions()
    last = dict(lines[max(at for at, (word, _) in enumerate(lines) if word == "FROM") :])
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last["USER"])
    assert last["VOLUME"] == "/data"
    assert last["STOPSIGNAL"] == "SIGTERM"
    names = {word.partition("=")[0] for word in last["ENV"].split()}
    assert {name for name in names if name.startswith("HEADWATER_")} <= SETTINGS
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for word, rest in lines:
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (REPOSITORY / source).exists(), source
                assert f"!{source}" in ignored


def test_what_builds_the_package_is_not_in_the_image_that_runs() -> None:
    lines = instructions()
    (built,) = [rest for word, rest in lines if word == "RUN" and "pip install" in rest]
    (copied,) = [rest for word, rest in lines if word == "COPY" and "--from" in rest]
    place = copied.split()[-1]
    assert f"venv --without-pip {place}" in built
    for step in built.split("&&"):
        if "install" in step and "hatchling" in step:
            assert place not in step


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("packaging") / "data") as server:
        yield server


def test_the_health_check_of_the_image_tells_a_server_from_none(server: ServerProcess) -> None:
    (check,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    options, _, command = check.partition("CMD ")
    # Builders of Debian 12 refuse the whole file for an option they do not know.
    known = {"--interval", "--timeout", "--start-period", "--retries"}
    assert {word.partition("=")[0] for word in options.split()} <= known
    words = yaml.safe_load(command)
    for port, code in ((server.port, 0), (1, 1)):
        asked = [word.replace("4000", str(port)) for word in words[1:]]
        done = subprocess.run([sys.executable, *asked], capture_output=True, check=False)
        assert done.returncode == code


# ---------------------------------------------------------------------------------------


def documents() -> dict[str, dict[str, Any]]:
    text = (REPOSITORY / "packaging" / "kubernetes.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_pod_has_one_owner_probes_that_answer_and_no_service_links() -> None:
    stateful = documents()["StatefulSet"]
    assert stateful["spec"]["replicas"] == 1
    pod = stateful["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["image"] == f"headwater:{headwater.__version__}"
    assert {each["name"] for each in container["env"]} <= SETTINGS
    open_paths = {route.path for route in every_route() if route.is_open}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in open_paths
    mounted = {each["name"] for each in container["volumeMounts"]}
    claims = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted == claims | {each["name"] for each in pod["volumes"]}


def test_the_key_of_the_example_pod_must_be_changed_before_it_starts(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(documents()["Secret"]["stringData"]["keys"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "serve", "--port", "0", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(HEADWATER_API_KEYS=f"@{keys}"),
    )
    assert done.returncode == 2
    assert "at least 8 characters" in done.stderr


# ---------------------------------------------------------------------------------------


def install_block() -> str:
    page = (REPOSITORY / "docs" / "start.md").read_text(encoding="utf-8")
    found = re.search(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_the_install_block_of_the_start_page_gives_a_working_command(tmp_path: Path) -> None:
    """As it stands, but for where the clone comes from; libraries are those of the tests."""
    script = install_block().replace("<this repository>", str(REPOSITORY))
    said = run(
        *("bash", "-euc", script),
        cwd=tmp_path,
        env=clean_environment(
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            PYTHONPATH=str(SITE_PACKAGES),
            PIP_NO_DEPS="1",
            PIP_NO_INDEX="1",
            PIP_NO_BUILD_ISOLATION="0",
        ),
    )
    assert said.endswith(f"headwater {headwater.__version__}\n")
