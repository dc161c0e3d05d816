"""Measures what training steps of your own model cost: stepsim_calibrate.py, as a module.

    torchrun --nproc_per_node 2 -m stepsim.torch.calibrate my_model.py --shapes shapes.json --out mine

>>> from stepsim.torch.calibrate import calibrate
>>> calibrate(make_model, make_batch, shapes="shapes.json", out="mine")      # on all ranks
"""

import sys

from .stepsim_calibrate import BadInput, UserError, calibrate, main

__all__ = ["BadInput", "UserError", "calibrate"]

if __name__ == "__main__":
    sys.exit(main())
