"""Each recorded policy of our own campaign predicts the others of its configuration, by this program."""

import pathlib
import sys

from row import Row, intervals

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "live"))
import cross  # noqa: E402  (needs the path above)


def rows(stepcal, stepsim):
    return [
        Row(f"live: each policy from another, {cross.ranks_of(one)} ranks", "this project", one["group"],
            f"{one['policy']} from {one['source']}", one["measured_ms"], one["predicted_ms"], **intervals(one["intervals"]),
            three_terms=one["three_terms_ms"], licence="Apache-2.0", given="one policy's record, and a sweep of all-reduces")
        for one in sorted(cross.all_rows(stepcal, stepsim), key=lambda one: (one["group"], one["source"], one["policy"]))
    ]  # fmt: skip
