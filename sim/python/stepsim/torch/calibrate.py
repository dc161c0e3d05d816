"""Measures what training steps of your own model cost: stepsim_calibrate.py, as a module.

    python3 -m stepsim.torch.calibrate my_model.py --shapes shapes.json --out mine

>>> from stepsim.torch.calibrate import calibrate
>>> calibrate(make_model, make_batch, shapes="shapes.json", out="mine")      # on all ranks
"""

from .stepsim_calibrate import BadInput, UserError, calibrate, parse_arguments, run
from .stepsim_job import main

__all__ = ["BadInput", "UserError", "calibrate"]

if __name__ == "__main__":
    main(run, parse_arguments())
