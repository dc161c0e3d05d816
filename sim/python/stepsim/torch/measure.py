"""Times the ops of a model family in your own PyTorch: stepsim_measure.py, as a module.

    python3 -m stepsim.torch.measure shapes.json --out samples.jsonl
"""

from .stepsim_job import main
from .stepsim_measure import parse_arguments, measure

if __name__ == "__main__":
    main(measure, parse_arguments())
