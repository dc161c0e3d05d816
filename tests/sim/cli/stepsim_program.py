"""What the tests of the stepsim program share: the program itself, scenarios, and how it is run."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))  # for small_runner

STEPSIM = os.path.abspath(sys.argv[1])
SKEW = str(ROOT / "scenarios" / "token_skew.toml")
PAIR = str(ROOT / "scenarios" / "token_skew_2ranks.toml")
PACKING = str(ROOT / "scenarios" / "packing.toml")
VALLEY = str(ROOT / "scenarios" / "bucket_valley.toml")


def run(*arguments, status=0, **keywords):
    """Runs stepsim, checks its exit status and returns the finished process."""
    done = subprocess.run(
        [STEPSIM, *arguments], capture_output=True, text=True, check=False, timeout=120, **keywords
    )
    assert done.returncode == status, (
        f"stepsim {' '.join(arguments)}: status {done.returncode}, not {status}\n"
        f"{done.stdout}{done.stderr}"
    )
    return done


BLOCKS = '''[scenario]
name = "blocks"
steps = 6
warmup_steps = 3
[cluster]
ranks = 4
topology = { algorithm = "ring", intra_latency = "10 us", intra_bandwidth = "1 GB/s" }
[times]
forward = "12 ms"
backward = "24 ms"
optimizer = "1.5 ms"
tokens = 128
[model]
kind = "blocks"
layers = 12
block_elements = 250_000
[ddp]
gradient_as_bucket_view = true
[data]
samples = 1024
lengths = { constant = 128 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
'''


class Blocks:
    """A scenario file of equal blocks by measured times; needs no profile."""

    def __init__(self, *changes, name="blocks.toml"):
        self.changes, self.name = changes, name

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        text = BLOCKS
        for old, new in self.changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path = pathlib.Path(self.folder.name) / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def __exit__(self, *error):
        self.folder.cleanup()
