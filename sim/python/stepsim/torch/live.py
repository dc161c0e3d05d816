"""Trains plans in your own PyTorch under DDP and records every step: stepsim_live.py, as a module.

    python3 -m stepsim.torch.live plans/*.jsonl --out-dir live
"""

from .stepsim_job import main
from .stepsim_live import parse_arguments, run

if __name__ == "__main__":
    main(run, parse_arguments())
