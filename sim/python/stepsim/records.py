"""The files that stepsim and PyTorch exchange: profiles, plans and run records."""

import functools
import html
import json
import os
import pathlib
from typing import Any, Dict, List

from . import _core
from ._ask import tell
from .errors import InputError
from .table import Table


def _paths(files):
    """One path or several, as a list of texts; empty for None."""
    files = [] if files is None else files
    return [os.fspath(one) for one in ([files] if isinstance(files, (str, os.PathLike)) else files)]


class _Rows(Table):
    """A file of rows."""

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def _repr_html_(self):
        return self.to_pandas()._repr_html_()


class RunRecord(_Rows):
    """What a live run measured: a row for each step of each rank.

    Attributes:
        file: Where it was read from.
        scenario, policy, backend, device, started_at: As the run named them; may be empty.
        world_size, repeats, warmup_steps, cores: Numbers; cores is 0 where it is not known.
        columns: {name: array [row]}: repeat, step, rank, samples, max_length, useful_tokens,
            padded_tokens, micro_batches, loss, and times in milliseconds.
    """

    def __init__(self, file, record):
        self.file = file
        self._record = record
        self.scenario = record.scenario
        self.policy = record.policy
        self.world_size = record.world_size
        self.backend = record.backend
        self.device = record.device
        self.started_at = record.started_at
        self.warmup_steps = record.warmup_steps
        self.repeats = record.repeats
        self.cores = record.cores

    @classmethod
    def read(cls, *paths) -> "RunRecord":
        """Reads one record: a file, or the files of all ranks. Raises InputError."""
        records, notes = _core.read_records([os.fspath(path) for path in paths])
        tell(notes, stacklevel=3)
        if len(records) != 1:
            raise InputError(f"these files hold {len(records)} records; read each by itself")
        return cls(*records[0])

    @functools.cached_property
    def columns(self):
        return self._record.columns()

    @property
    def lengths(self):
        """[row] The lengths of the samples; empty lists where they were not recorded."""
        return self._record.lengths()

    @property
    def buckets(self):
        """[row] (bytes, launch_ms, end_ms) of each gradient bucket."""
        return self._record.buckets()

    @property
    def versions(self):
        return json.loads(self._record.versions_json())

    @property
    def training(self):
        """What trained, as the recorder describes it, or None."""
        return json.loads(self._record.training_json())

    def write(self, path):
        """Writes the record. Raises MachineError."""
        self._record.write(os.fspath(path))

    def __eq__(self, other):
        return isinstance(other, RunRecord) and self._record == other._record

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self):
        policy = self.policy or "?"
        return f"<stepsim.RunRecord {policy}: {self.world_size} ranks, {len(self)} rows>"


def record_files(records):
    """Paths of run records that are given as paths or RunRecord objects: one, or several."""
    several = records if isinstance(records, (list, tuple)) else [records]
    return [one.file if isinstance(one, RunRecord) else os.fspath(one) for one in several] or None


class Plan(_Rows):
    """The batches of every step and rank: a row for each micro-batch.

    Attributes:
        scenario, policy, profile: Names. seed, ranks, steps, warmup_steps: Numbers.
        columns: {name: array [row]}: step, rank, micro_batch, samples, max_length, useful_tokens,
            padded_tokens, loss_scale.
    """

    def __init__(self, plan):
        self._plan = plan
        self.scenario = plan.scenario
        self.policy = plan.policy
        self.profile = plan.profile
        self.seed = plan.seed
        self.ranks = plan.ranks
        self.steps = plan.steps
        self.warmup_steps = plan.warmup_steps

    @classmethod
    def read(cls, path) -> "Plan":
        """Reads a plan file. Raises InputError."""
        return cls(_core.read_plan(os.fspath(path)))

    @functools.cached_property
    def columns(self):
        return self._plan.columns()

    @functools.cached_property
    def samples(self):
        """[row] The ids of the samples, in batch order."""
        return self._plan.samples()

    @functools.cached_property
    def lengths(self):
        """[row] The length of each sample, or of its part."""
        return self._plan.lengths()

    @functools.cached_property
    def offsets(self):
        """[row] Where each part starts in its sample; empty: the samples of the row are whole."""
        return self._plan.offsets()

    @property
    def buckets(self):
        """[bucket] Indices of parameters, as DDP rebuilds its buckets."""
        return self._plan.buckets

    def batches(self, rank) -> List[List[int]]:
        """Returns the batches of a rank, [micro-batch] lists of sample ids."""
        rows = (self["rank"] == rank).nonzero()[0]
        return [self.samples[row] for row in rows]

    def to_jsonl(self) -> str:
        """Returns the text of the plan's file."""
        return self._plan.text()

    def write(self, path):
        """Writes the plan's file. Raises MachineError."""
        self._plan.write(os.fspath(path))

    def __eq__(self, other):
        return isinstance(other, Plan) and self._plan == other._plan

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self):
        return f"<stepsim.Plan {self.policy}: {self.steps} steps on {self.ranks} ranks>"


class Profile:
    """The calibration of one machine.

    Args:
        named: The path of a profile, or the name of a shipped one (stepsim.profiles()).

    Attributes:
        file, name, id, device, backend: Texts; `id` is a check value of the file's content.
        has_recorded_model: It prices the model that it was recorded from.
        prices_other_models: It has costs of single ops.
    """

    def __init__(self, named):
        self.file = _core.profile_path(os.fspath(named))
        self._profile = _core.read_profile(self.file)
        self.name = self._profile.name
        self.id = self._profile.id
        self.device = self._profile.device
        self.backend = self._profile.backend
        self.has_recorded_model = self._profile.has_recorded_model
        self.prices_other_models = self._profile.prices_other_models

    @classmethod
    def from_run_record(cls, records, out, base=None, plan=None) -> "Profile":
        """Fits a profile to a few dozen recorded steps of one policy, of any model.

        Args:
            records: The path of a run record, or the paths of all ranks' files.
            out: Where the profile is written.
            base: A profile with all-reduce times, for what the record does not have.
            plan: The plan that ran, for records that do not hold the model.
        """
        return cls._imported(out, _core.import_run_record(
            _paths(records), _paths(plan), os.fspath(base or ""), os.fspath(out)))

    @classmethod
    def from_step_times(cls, table, out, preset=None, tensors=None, record=None,
                        gradient_bytes=None) -> "Profile":
        """Fits a profile to a handful of step times (CSV: placement,batch,step_ms), of a model that
        one of the other arguments names: see `stepcal import step-times --help`."""
        model = [str(one or "") for one in (preset, tensors, record, gradient_bytes)]
        return cls._imported(out, _core.import_step_times(os.fspath(table), *model, os.fspath(out)))

    @classmethod
    def from_nccl_tests(cls, logs, base, out) -> "Profile":
        """Puts the all-reduce times of nccl-tests' logs in place of those of the profile `base`."""
        return cls._imported(out, _core.import_nccl_tests(
            _paths(logs), os.fspath(base), os.fspath(out)))

    @classmethod
    def _imported(cls, out, told):
        """The profile that an import wrote, and told its report and warnings of."""
        report, notes = told
        tell(notes, stacklevel=4)
        profile = cls(out)
        profile.report = report
        return profile

    #: What the fit said of itself, where this object was made by one.
    report = ""

    @property
    def provenance(self):
        return json.loads(self._profile.provenance_json())

    @property
    def all_reduce_ranks(self):
        """The numbers of ranks that its tables of collectives are for."""
        return self._profile.all_reduce_ranks()

    def to_pandas(self):
        """Returns the costs of single ops as a pandas.DataFrame: what each is, the form of its
        cost, how many samples it was fitted to, and the error on those that were held out."""
        import pandas

        rows = []
        for one in self.to_dict()["ops"]:
            what = {name: one.get(name) for name in ("op", "pass", "dtype", "n", "k", "form",
                                                     "samples")}
            rows.append({**what, "error": (one.get("errors") or {}).get("random")})
        return pandas.DataFrame(rows)

    def _repr_html_(self):
        facts = {"device": self.device, "backend": self.backend, "file": self.file,
                 "all-reduces measured on ranks": self.all_reduce_ranks}
        facts.update({name: fact for name, fact in self.provenance.items()
                      if isinstance(fact, (str, int, float))})
        rows = "".join(
            f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(fact)[:300])}</td></tr>"
            for name, fact in facts.items()
        )
        report = f"<pre>{html.escape(self.report)}</pre>" if self.report else ""
        return f"<b>{html.escape(self.name)}</b><table>{rows}</table>{report}"

    def to_dict(self) -> Dict[str, Any]:
        """Returns the content of the file."""
        return json.loads(pathlib.Path(self.file).read_text(encoding="utf-8"))

    def write(self, path):
        """Writes the profile. Raises MachineError."""
        self._profile.write(os.fspath(path))

    def __fspath__(self):
        return self.file

    def __repr__(self):
        return f"<stepsim.Profile {self.name}: {self.device}>"
