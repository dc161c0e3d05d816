"""Builds and installs the Python package as users do: the newest tools and Debian's, fresh
environments, one without a compiler, NumPy 1 and 2. It builds twice and needs the network.

usage: pip_test.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

# Debian's tools belong to Debian's Python, which need not be the first one on the PATH.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
FOLDER = tempfile.TemporaryDirectory()
SOURCES = pathlib.Path(FOLDER.name) / "sources"
WHEELS = pathlib.Path(FOLDER.name) / "wheels"
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("MESON", "STEPSIM", "PYTHON"))}

# Below the environment's folder; those of each kind stand for the others.
FILES = [
    "bin/stepsim",
    "bin/stepcal",
    "share/stepsim/scenarios/token_skew.toml",
    "share/stepsim/scenarios/profiles/h100_8x_published.json",
    "share/stepsim/stepsim_recorder.py",
    "share/stepsim/stepsim_calibrate.py",
    "share/stepsim/stepsim_measure.py",
    "share/stepsim/stepsim_live.py",
    "share/stepsim/all_reduce.py",
    "share/stepsim/host_copies.py",
    "share/man/man1/stepsim.1",
    "share/man/man1/stepsim-advise.1",
    "share/man/man1/stepcal-import-kineto.1",
    "share/bash-completion/completions/stepsim.bash",
    "share/bash-completion/completions/stepcal.bash",
    "share/zsh/site-functions/_stepsim",
]

# Every sample once: 600 of them divide by two ranks, and PyTorch's own order is checked elsewhere.
EVERY_SAMPLE_ONCE = """
import collections, numpy
from stepsim.torch import BatchSampler
lengths = numpy.random.default_rng(5).integers(1, 65, 600)
found = collections.Counter()
for rank in range(2):
    sampler = BatchSampler(lengths, "fixed", batch_size=4, rank=rank, world_size=2)
    found.update(sample for batch in sampler for sample in batch)
assert set(found) == set(range(600)) and set(found.values()) == {1}, found.most_common(3)
print("every sample once, NumPy", numpy.__version__)
"""


def run(*command, **keywords):
    here = {"cwd": FOLDER.name, "env": ENVIRONMENT, "timeout": None}
    return small_runner.output(*command, **{**here, **keywords})


def online():
    """Skips a test where there is no package index."""
    if not hasattr(online, "error"):
        done = subprocess.run([PYTHON, "-m", "pip", "download", "--no-deps", "--quiet", "--dest",
                               FOLDER.name, "packaging"], capture_output=True, text=True,
                              check=False)
        online.error = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    if online.error is not None:
        raise small_runner.Skip(f"pip finds no package index: {' '.join(online.error)}")


def sources():
    """A copy of the files that git would take, so that no build of the checkout is seen."""
    if not SOURCES.exists():
        names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (SOURCES / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, SOURCES / name)
    return SOURCES


def environment(name, *options):
    """Makes a virtual environment with the newest pip. Returns its folder."""
    folder = pathlib.Path(FOLDER.name) / name
    run(PYTHON, "-m", "venv", *options, folder)
    return folder


def timed(what, *command, **keywords):
    begun = time.monotonic()
    text = run(*command, **keywords)
    print(f"{what}: {time.monotonic() - begun:.0f} s", flush=True)
    return text


def check_installed(folder):
    """Every kind of file in its place, listed by pip, and found by the programs."""
    shown = run(folder / "bin" / "pip", "show", "-f", "stepsim")
    assert "License: Apache-2.0\n" in shown, shown[:500]
    assert ".dist-info/licenses/LICENSE" in shown, shown
    for name in FILES:
        assert (folder / name).is_file() and f"../{name}\n" in shown, name
    path = {**ENVIRONMENT, "PATH": str(folder / "bin")}
    assert "usage: stepsim" in run(folder / "bin" / "stepsim", "--help", env=path)
    assert "bucketing" in run(folder / "bin" / "stepsim", "compare", "token_skew", env=path)
    code = 'import stepsim; print(stepsim.Scenario("token_skew").file)'
    found = run(folder / "bin" / "python", "-c", code, env=path).split()
    assert found == [f"{folder}/share/stepsim/scenarios/token_skew.toml"]
    completion = folder / "share" / "bash-completion" / "completions" / "stepsim.bash"
    assert "stepsim" in run("bash", "-c", f'. "{completion}" && complete -p stepsim')
    if shutil.which("man"):
        manuals = {**ENVIRONMENT, "MANPATH": str(folder / "share" / "man")}
        assert run("man", "-w", "stepsim", env=manuals) == f"{folder}/share/man/man1/stepsim.1\n"


def distributed():
    """Returns the wheel that sim/python/wheel makes."""
    online()
    if not WHEELS.exists():
        WHEELS.mkdir()  # One that could not be made is not tried again.
        timed("sim/python/wheel", sources() / "sim" / "python" / "wheel", WHEELS,
              env={**ENVIRONMENT, "PYTHON": PYTHON})
    wheels = list(WHEELS.glob("*.whl"))
    assert len(wheels) == 1, f"no wheel was made, see above: {wheels}"
    return wheels[0]


def test_a_wheel_for_other_machines_holds_no_shared_library_but_simdjson():
    wheel = distributed()
    names = zipfile.ZipFile(wheel).namelist()
    print(f"{wheel.name}: {wheel.stat().st_size >> 20} MiB, {len(names)} files")
    assert "-manylinux_2_" in wheel.name, wheel.name
    core, *others = sorted((name for name in names if ".so" in name), key=lambda name: "libs/" in name)
    assert core.startswith("stepsim/_core."), core
    # Debian has simdjson as a shared library only; auditwheel packs it.
    assert len(others) == 1 and others[0].startswith("stepsim.libs/libsimdjson-"), others
    assert any(one.endswith(".data/scripts/stepsim") for one in names), names


def test_the_metadata_before_the_build_are_those_of_the_wheel():
    wheel = distributed()
    folder = environment("hooks")
    run(folder / "bin" / "pip", "install", "--quiet", "meson-python")
    code = "import sys; sys.path.insert(0, 'sim/python'); import build_backend as b; "
    code += f"print(b.prepare_metadata_for_build_wheel({FOLDER.name!r}))"
    name = run(folder / "bin" / "python", "-c", code, cwd=sources()).strip()
    before = pathlib.Path(FOLDER.name, name, "METADATA").read_bytes()
    assert before == zipfile.ZipFile(wheel).read(f"{name}/METADATA")


def check_without_compiler(numpy):
    """Installs the wheel where the PATH has no compiler."""
    wheel = distributed()
    folder = environment("numpy_" + "".join(filter(str.isalnum, numpy)))
    path = {**ENVIRONMENT, "PATH": str(folder / "bin")}
    run(folder / "bin" / "pip", "install", "--quiet", "--only-binary", ":all:", wheel, numpy,
        env=path)
    print(run(folder / "bin" / "python", "-c", EVERY_SAMPLE_ONCE, env=path).strip(), flush=True)
    check_installed(folder)


def test_the_wheel_under_numpy_2():
    check_without_compiler("numpy>=2")


def test_the_wheel_under_numpy_1():
    version = run(PYTHON, "-c", "import sys; print(*sys.version_info[:2])").split()
    if int(version[1]) > 11:
        raise small_runner.Skip(f"NumPy 1.24 is not made for Python {'.'.join(version)}")
    check_without_compiler("numpy==1.24.*")


def debians():
    """Returns an environment with Debian's Python modules in which its tools have installed."""
    folder = pathlib.Path(FOLDER.name) / "debian"
    code = "import mesonpy, numpy; print(mesonpy.__version__, numpy.__version__)"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise small_runner.Skip("python3-mesonpy or python3-numpy is not installed")
    if not folder.exists():
        environment("debian", "--system-site-packages")
        timed(f"pip install --no-build-isolation (meson-python, NumPy: {done.stdout.strip()})",
              folder / "bin" / "pip", "install", "--no-build-isolation", sources())
    return folder


def test_debians_tools_install_it():
    folder = debians()
    print(run(folder / "bin" / "python", "-c", EVERY_SAMPLE_ONCE).strip(), flush=True)
    check_installed(folder)


def test_debians_pybind11_is_refused_under_numpy_2():
    folder = debians()
    code = "import stepsim._core as core; print(core.pybind11_version)"
    version = run(folder / "bin" / "python", "-c", code).strip()
    if tuple(map(int, version.split("."))) >= (2, 12):
        raise small_runner.Skip(f"pybind11 {version} knows NumPy 2")
    online()
    run(folder / "bin" / "pip", "install", "--quiet", "numpy>=2")
    said = run(folder / "bin" / "python", "-c", "import stepsim", status=1).strip()
    print(said.splitlines()[-1])
    assert f"built with pybind11 {version}, which cannot read the arrays of NumPy 2" in said, said


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
