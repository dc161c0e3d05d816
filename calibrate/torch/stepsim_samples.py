"""The samples file, which stepsim_measure.py writes and `stepcal fit` reads. It needs only torch and, beside
it, stepsim_models.py, stepsim_ranks.py and stepsim_recorder.py.
"""

import contextlib
import datetime
import json
import os
import platform
import statistics
import sys

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_models
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_models

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput = stepsim_ranks.BadInput

FORMAT = "stepsim-samples/1"
TELLING = (  # Variables that change what steps take.
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD"),
    *("TORCH_CUDNN_SDPA_DEPRIORITIZED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "NVIDIA_TF32_OVERRIDE"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
)


class Samples:
    """The samples file on rank 0: a line a measurement, appended and flushed. A file that is there
    goes on, if it is of the same request on the same machine."""

    def __init__(self, path, header):
        self.path, self.rounds, self.totals = path, 0, {}
        kept = b""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            kept = file.read()
        whole = kept[: kept.rfind(b"\n") + 1]
        if whole:
            self.resume(whole, header)
        self.file = open(path, "r+b" if whole else "wb")
        self.file.truncate(len(whole))
        self.file.seek(len(whole))
        if not whole:
            self.write([header])

    def resume(self, whole, header):
        """Takes in what is there. Raises BadInput."""
        try:
            lines = [json.loads(line) for line in whole.decode().splitlines()]
            kept = lines[0]
            if kept.get("format") != FORMAT or "plan" not in kept:
                raise ValueError(f"no samples file (format {kept.get('format')!r})")
        except (ValueError, AttributeError) as error:
            raise BadInput(f"{self.path}: {error}; choose another --out, or remove it") from error
        told = {"plan": "shapes, model or ranks", "versions": "PyTorch, device or threads"}
        apart = [text for key, text in told.items() if kept.get(key) != header[key]]
        if apart:
            old, new = kept.get("versions", {}).get("torch"), header["versions"]["torch"]
            more = f": PyTorch {old} there, {new} here" if old != new else ""
            raise BadInput(
                f"{self.path} holds measurements of another request ({'; '.join(apart)}{more}); choose "
                "another --out, or remove it"
            )
        counts = [1]
        for line in lines[1:]:
            if line["kind"] == "pass":
                counts = [op["count"] for op in line["ops"]]
            elif line["kind"] == "step":
                self.add(line, counts)
            elif line["kind"] == "pass_end":
                self.rounds = line["pass"] + 1

    def add(self, line, counts):
        for times in line["op_us"]:
            total = sum(count * one for count, one in zip(counts, times))
            self.totals.setdefault((line["samples"], line["max_length"]), []).append(total)

    def write(self, lines):
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self.file.write(text.encode())
        self.file.flush()

    def error(self, shapes):
        """The relative standard error of the median step that nine tenths of the shapes keep; 1 where
        one has no three repeats."""
        errors = []
        for lengths, width in shapes:
            times = self.totals.get((len(lengths), width), [])
            if len(times) < 3:
                return 1.0
            middle = statistics.median(times)
            spread = 1.4826 * statistics.median(abs(one - middle) for one in times)
            errors.append(1.2533 * spread / len(times) ** 0.5 / middle)
        return sorted(errors)[int(0.9 * (len(errors) - 1))]

    @property
    def measurements(self):
        return sum(map(len, self.totals.values()))


def processor_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe(request, ranks):
    """The samples file's header."""
    is_cuda = ranks.device.type == "cuda"
    name = torch.cuda.get_device_name(ranks.device) if is_cuda else processor_name()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ranks.count
    more = {}
    if is_cuda:
        properties = torch.cuda.get_device_properties(ranks.device)
        memory = properties.total_memory
        more["multiprocessors"] = properties.multi_processor_count
    versions = {
        **{"measured_by": "pytorch", "torch": torch.__version__, "device": name},
        **{"backend": ranks.device.type, "threads_per_rank": torch.get_num_threads()},
        "collectives": dist.get_backend() if ranks.distributed else "none",
        **{name: os.environ[name] for name in TELLING if name in os.environ},
    }
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    plan = {**request["plan"], "ranks": ranks.count, "device": ranks.device.type}
    lengths, _ = stepsim_models.sentinel_shape(request["plan"]["model"])
    return {
        **{"format": FORMAT, "device": name, "backend": ranks.device.type, "versions": versions},
        **{"memory_bytes_per_rank": memory, "started_at": now},
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        **{"sentinel_lengths": lengths, "not_measured": [], "plan": plan},
        **more,
    }
