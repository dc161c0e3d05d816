"""Pairs of records that real runs make: one half against the other, and with a part made longer.

A run of several passes over the same batches falls into two halves by blocks of four steps, the other
way round in every second pass, so that both have the same batches and saw the machine in the same
state: nothing differs. Then one part of one rank is made longer in the second half, and all else as
that makes it: the other ranks wait, and the step ends later.

    python3 tests/live/diff_halves.py build/sim/stepsim         # prints the counts of DIFF.md
"""

import collections
import copy
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

RECORDS = pathlib.Path(__file__).resolve().parent / "records"
ARCHIVES = ("token_skew_2ranks", "token_skew_4ranks", "distilbert_tiny", "gpt2_small",
            "distilbert_tiny_4ranks_net60", "h100", "h200_gpt2_medium")
PARTS = ("forward", "backward", "optimizer")
SHARES = (0.01, 0.03, 0.10)
BLOCK = 4
FEWEST_STEPS = 32
FEWEST_PLANTED = 64


def steps_of(rows):
    return len({(row["repeat"], row["step"]) for row in rows})


def records(archive):
    """Yields (name, header, rows) of each run record in an archive."""
    with tarfile.open(RECORDS / f"{archive}.tar.xz") as files:
        for member in files:
            if not member.name.endswith(".jsonl"):
                continue
            first, *lines = files.extractfile(member).read().decode("utf-8").splitlines()
            header = json.loads(first)
            if header.get("format") == "stepsim-run-record/1":
                yield member.name, header, [json.loads(line) for line in lines]


def halves(rows):
    sides = ([], [])
    for row in rows:
        sides[(row["step"] // BLOCK + row["repeat"]) % 2].append(copy.deepcopy(row))
    return sides


def plant(rows, part, rank, share):
    """Makes a part of a rank longer, with its processor time, and the steps by as much: as where that
    rank is the last. The others wait, in `wait_ms` where their buckets were recorded, else in the
    backward."""
    steps = collections.defaultdict(list)
    for row in rows:
        steps[row["repeat"], row["step"]].append(row)
    for ranks in steps.values():
        own = next(row for row in ranks if row["rank"] == rank)
        longer = share * own[f"{part}_ms"]
        own[f"{part}_ms"] += longer
        if own.get(f"{part}_cpu_ms"):
            own[f"{part}_cpu_ms"] *= 1 + share
        for row in ranks:
            row["step_ms"] += longer
            for bucket in row["buckets"] if part != "optimizer" else []:
                bucket["end_ms"] += longer
                bucket["launch_ms"] += longer if row is own else 0
            if row is not own:
                row["wait_ms" if row["buckets"] else "backward_ms"] += longer


class Pairs:
    """Asks about pairs."""

    def __init__(self, stepsim, folder):
        self.stepsim, self.folder = stepsim, pathlib.Path(folder)

    def write(self, name, header, rows):
        path = self.folder / name
        path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n", "utf-8")
        return str(path)

    def diff(self, header, before, after):
        files = [self.write("a.jsonl", header, before), self.write("b.jsonl", header, after)]
        done = subprocess.run([self.stepsim, "diff", *files, "--json", "-"], capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)

    def same(self, archives=ARCHIVES):
        """Yields (name, what is found) of halves of each run."""
        for archive in archives:
            for name, header, rows in records(archive):
                if steps_of(rows) >= FEWEST_STEPS:
                    yield name, self.diff(header, *halves(rows))

    def planted(self, archives=ARCHIVES):
        """Yields (kind, share, part, whether it is named with its rank, other parts that are)."""
        for archive in archives:
            for _, header, rows in records(archive):
                if steps_of(rows) < FEWEST_PLANTED:
                    continue
                before, after = halves(rows)
                rank = header["world_size"] - 1
                for share in SHARES:
                    for part in PARTS:
                        changed = copy.deepcopy(after)
                        plant(changed, part, rank, share)
                        causes = self.diff(header, before, changed)["causes"]
                        named = [rank] if header["world_size"] > 1 else []
                        hits = [one for one in causes if one["part"] == part and one["change_ms"] > 0
                                and one["ranks"] in (named, [rank])]
                        kind = "one GPU" if header["world_size"] == 1 else "processors"
                        yield kind, share, part, bool(hits), len(causes) - len(hits)


def main():
    with tempfile.TemporaryDirectory() as folder:
        pairs = Pairs(sys.argv[1], folder)
        found = [diff for _, diff in pairs.same()]
        quiet = sum(diff["verdict"] == "no difference" for diff in found)
        print(f"halves of the same run: no difference in {quiet} of {len(found)}; parts named, all of "
              f"them false alarms, in {sum(bool(diff['causes']) for diff in found)}")
        table = collections.defaultdict(lambda: [0, 0, 0])
        for kind, share, part, hit, others in pairs.planted():
            cell = table[kind, part, share]
            cell[0] += hit
            cell[1] += 1
            cell[2] += others
        print("| runs | part | +1 % | +3 % | +10 % | other parts named |\n|---|---|---|---|---|---|")
        for kind, part in sorted({key[:2] for key in table}):
            cells = [table[kind, part, share] for share in SHARES]
            print(f"| {kind} | {part} | " + " | ".join(f"{hits} of {n}" for hits, n, _ in cells) +
                  f" | {sum(cell[2] for cell in cells)} of {sum(cell[1] for cell in cells)} |")


if __name__ == "__main__":
    main()
