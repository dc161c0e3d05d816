"""What a training spends on shapes that it meets for the first time, planted to be found again."""

import json
import pathlib
import time


class PlantedCosts:
    """Two mechanisms: a plan for each pair of samples and length, which every rank builds for
    itself (it sleeps before forward and backward), and a graph for each length, which all ranks
    share through files in `folder` (it keeps the processor busy before the forward).

    plan_ms: forward and backward, each. graph_ms: forward.
    """

    def __init__(self, plan_ms, graph_ms, folder):
        self.plan_ms = plan_ms
        self.graph_ms = graph_ms
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plans = set()
        self.builds_backward = False
        self.spent = {"forward": [], "backward": [], "graph": []}  # Seconds, as a clock says.

    def before_forward(self, samples, length):
        self.builds_backward = (samples, length) not in self.plans
        self.plans.add((samples, length))
        if self.builds_backward:
            self.sleep("forward")
        graph = self.folder / str(length)
        if not graph.exists():
            start = time.perf_counter()
            while time.perf_counter() < start + self.graph_ms / 1e3:
                pass
            graph.touch()
            self.spent["graph"].append(time.perf_counter() - start)

    def before_backward(self, loss):
        if self.builds_backward:
            loss.register_hook(lambda gradient: self.sleep("backward"))

    def sleep(self, what):
        start = time.perf_counter()
        time.sleep(self.plan_ms / 1e3)
        self.spent[what].append(time.perf_counter() - start)

    def close(self, rank):
        (self.folder / f"spent_{rank}.json").write_text(json.dumps(self.spent), "utf-8")


class Nothing:
    def before_forward(self, samples, length):
        pass

    def before_backward(self, loss):
        pass

    def close(self, rank):
        pass


NOTHING = Nothing()


def of(spec):
    """Returns PlantedCosts of its arguments, or what plants nothing."""
    return PlantedCosts(**spec) if spec else NOTHING
