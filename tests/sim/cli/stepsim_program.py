"""What the tests of the stepsim program share: the program itself, scenarios, and how it is run."""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
SKEW = str(ROOT / "scenarios" / "token_skew.toml")
PAIR = str(ROOT / "scenarios" / "token_skew_2ranks.toml")
PACKING = str(ROOT / "scenarios" / "packing.toml")
SHARD_1B = str(ROOT / "scenarios" / "shard_1b.toml")
VALLEY = str(ROOT / "scenarios" / "bucket_valley.toml")


def run(*arguments, status=0, **keywords):
    """Runs stepsim, checks its exit status and returns the finished process."""
    return small_runner.run(STEPSIM, *arguments, status=status, **keywords)


class Blocks:
    """A scenario file of equal blocks by measured times; needs no profile."""

    def __init__(self, *changes, name="blocks.toml"):
        self.changes, self.name = changes, name

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        text = (ROOT / "tests" / "sim" / "scenario" / "blocks.toml").read_text(encoding="utf-8")
        for old, new in self.changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path = pathlib.Path(self.folder.name) / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def __exit__(self, *error):
        self.folder.cleanup()
