#!/usr/bin/env python3
"""What stepsim_units.py makes of times that are known."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "calibrate" / "torch")]
import small_runner  # noqa: E402  (needs the path above)
from torch_store import torch_or_skip  # noqa: E402


def units():
    torch_or_skip()
    import stepsim_units  # pylint: disable=import-outside-toplevel

    return stepsim_units


def near(found, expected):
    assert abs(found - expected) < 1e-9 * max(1, abs(expected)), (found, expected)


def test_what_copies_take_by_the_byte_is_found():
    module = units()
    times = {"forward_s": 1e-3, "forward_tensor_s": 2e-5, "backward_s": 3e-3, "backward_tensor_s": 4e-5}
    unit = 4 * 6 * 1000  # Bytes. Three units, two of which are gathered again.
    gathers, reductions = 3 * unit * 3, 3 * unit * 2
    again = 2 * unit * 3
    seconds = [3e-3 + 18 * 2e-5 + 5e-9 * gathers, 9e-3 + 18 * 4e-5 + 5e-9 * (again + reductions), 1.0]
    near(module.byte_seconds(seconds, times, (3, 6, 1000)), 5e-9)
    near(module.byte_seconds([1e-3, 1e-3, 1.0], times, (3, 6, 1000)), 0)  # Less than the hooks alone.


def test_each_unit_works_in_forward_and_in_backward_behind_which_hooks_are_timed():
    module = units()
    import torch  # pylint: disable=import-outside-toplevel

    products = []

    class Matrix:
        def __matmul__(self, other):
            products.append(other)

    before, module.matrix_of_work = module.matrix_of_work, Matrix
    try:
        loss = module.Unit(2, [module.Unit(1), module.Unit(1)])(torch.ones(module.ROWS, requires_grad=True)).sum()
        assert len(products) == 3, products
        loss.backward()
        assert len(products) == 6, products
    finally:
        module.matrix_of_work = before


def test_the_times_of_units_and_tensors_are_found():
    module = units()
    found = module.times_of({
        (n, p): (1e-3 * n + 2e-5 * n * p, 3e-3 * n + 4e-5 * n * p, 7e-3 + 5e-4 * n * p)
        for n, p in module.SIZES
    })
    expected = {
        "forward_s": 1e-3,
        "forward_tensor_s": 2e-5,
        "backward_s": 3e-3,
        "backward_tensor_s": 4e-5,
        "optimizer_tensor_s": 5e-4,  # What a step of the optimizer begins with is no tensor's.
    }
    assert found.keys() == expected.keys(), found
    for name, seconds in expected.items():
        near(found[name], seconds)


def test_no_time_is_negative():
    module = units()
    unit, tensor = module.fit([(2, 2, 2.0), (2, 20, 1.9), (8, 8, 8.0), (8, 80, 7.0)])
    assert unit > 0 and tensor == 0, (unit, tensor)
    unit, tensor = module.fit([(2, 2, 1.0), (2, 20, 20.0), (8, 8, 2.0), (8, 80, 90.0)])
    assert unit == 0 and tensor > 0, (unit, tensor)
    assert module.fit([(2, 2, -1.0), (8, 8, 0.0)]) == (0.0, 0.0)
    assert module.fit_tensors([(1, 3.0), (4, 2.0)]) == (2.5, 0.0)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
