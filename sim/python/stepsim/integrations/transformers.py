"""Batches by any policy, the recorder and the advisor inside Hugging Face's Trainer and trl's SFTTrainer."""

import contextlib
import itertools
import math

import torch
import torch.distributed as dist
import transformers
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import BatchRebalanceSampler

from ..errors import InputError
from ..torch import BatchSampler
from ._versions import Parts
from ._watch import Watch, padded_size

TESTED = ["5.20", "5.24"]
_PARTS = Parts("transformers", TESTED, [
    (transformers.Trainer, "_get_train_sampler", ["train_dataset"]),
    (transformers.Trainer, "_get_dataloader", ["sampler_fn"]),
    (transformers.Trainer, "_run_epoch",
     ["epoch", "steps_in_epoch", "num_update_steps_per_epoch", "epochs_trained", "resume_from_checkpoint",
      "steps_trained_in_current_epoch"]),
    (transformers.Trainer, "_init_training_state", []),
    (transformers.Trainer, "_prepare_for_training", []),
    (transformers.Trainer, "_maybe_log_save_evaluate", []),
    (transformers.Trainer, "set_initial_training_values", ["args", "dataloader"]),
    (transformers.Trainer, "get_batch_samples", ["epoch_iterator", "num_batches", "device"]),
    (transformers.Trainer, "compute_loss", ["model", "inputs", "num_items_in_batch"]),
    (transformers.Trainer, "loss_is_scaled_for_ga", []),
])
_KEY = "stepsim_lengths"  # Of a batch: the tokens of its samples.
_WEIGHTINGS = ("labels", "samples", "trainer")


class _Batches(BatchRebalanceSampler):
    """What Trainer takes for one of its own samplers, and hands to the loader as it is: of others it
    would take samples, and accelerate would deal their batches out once more."""

    def __init__(self, sampler):  # pylint: disable=super-init-not-called
        self.own = sampler

    def set_epoch(self, epoch):
        """Does nothing: a loader counts epochs from 0, also in a training that was resumed. The mix-in
        sets the epoch."""

    def __len__(self):
        return len(self.own)

    def __iter__(self):
        return iter(self.own)


class _Collate:
    """A collate function that also tells the tokens of each sample."""

    def __init__(self, collate, name):
        self._collate, self._name = collate, name

    def __call__(self, samples):
        lengths = [_length(sample, self._name) for sample in samples]
        batch = self._collate(samples)
        if hasattr(batch, "keys"):
            batch[_KEY] = lengths
        return batch


def _length(sample, name):
    """Returns the tokens of a sample; 1 where it has none, as an image."""
    held = sample.get(name) if hasattr(sample, "get") else None
    return len(held) if hasattr(held, "__len__") else 1


class _Hooks(transformers.TrainerCallback, ExportableState):
    """Ends the steps and the training, and writes the place among the batches into checkpoints."""

    def __init__(self, trainer):
        self._trainer = trainer

    def on_step_end(self, args, state, control, **others):
        self._trainer.stepsim_watch.end()

    def on_train_end(self, args, state, control, **others):
        self._trainer.stepsim_watch.close()

    def state(self):
        return {"args": {}, "attributes": self._trainer._stepsim_state()}


class BatchingMixin:
    """Put in front of Trainer, or of a class that is made of it, it batches by a policy, weighs the
    gradients of unequal batches right, and records or advises.

        class Trainer(BatchingMixin, transformers.Trainer):
            pass

        trainer = Trainer(model, args, train_dataset=dataset, data_collator=collator,
                          batching={"policy": "token_budget", "max_tokens": 4096}, advisor=True)
        trainer.train()

    Epochs may have different numbers of steps; the schedule and max_steps are of their sum. A
    training resumes inside an epoch with the batches that it would have had.

    Args:
        batching: The arguments of stepsim.torch.BatchSampler but lengths and ranks; or a function
            that takes lengths and returns a sampler. None: Trainer's own batches.
        lengths: [sample] The tokens of each; None: the column `length_column_name` of the dataset
            where there is one, else the length of each sample's input_ids.
        weighting: "labels": the gradient is that of the mean over all labels (but -100) of a step, of
            all ranks and accumulated batches, for every model whose loss is a mean over its labels,
            whether it heeds num_items_in_batch or not. "samples": over all samples. "trainer": as
            Trainer does it, and always so with a compute_loss_func.
        recorder: The path of a run record without suffix, or a dict of Recorder's arguments.
        advisor: True, or a dict of Advisor's arguments.

    Attributes:
        batches: The BatchSampler, once the loader was made; None without `batching`.
        advice: The results.Advice when it is ready, on rank 0.

    Raises InputError: transformers lacks a part that this takes hold of, a setting of Trainer deals
    batches out in another way, or a checkpoint is of other batches.
    """

    # The mix-in's weights hold for all accumulated batches of a step.
    loss_is_scaled_for_ga = None

    def __init__(self, *args, batching=None, lengths=None, weighting="labels", recorder=None,
                 advisor=None, **others):
        _PARTS.check()
        if weighting not in _WEIGHTINGS:
            raise InputError(f"weighting: expected one of {', '.join(_WEIGHTINGS)}, not {weighting!r}")
        if batching is not None and not callable(batching) and not isinstance(batching, dict):
            raise InputError(
                "batching: expected a dict of BatchSampler's arguments as {\"policy\": \"token_budget\", "
                f"\"max_tokens\": 4096}}, or a function that takes lengths, not {batching!r}"
            )
        self.batches = None
        self.stepsim_watch = Watch(recorder, advisor)
        self._stepsim_batching, self._stepsim_lengths = batching, lengths
        self._stepsim_weighting = weighting
        self._stepsim_place = self._stepsim_drawn = 0  # Batches of the epoch that were trained, and drawn.
        self._stepsim_shares = self._stepsim_waiting = None  # Of the step, and for the next loss.
        super().__init__(*args, **others)
        self._stepsim_check_settings()
        if self._stepsim_weighs():
            self.loss_is_scaled_for_ga = True
        self.add_callback(_Hooks(self))

    @property
    def advice(self):
        return getattr(self.stepsim_watch.own, "advice", None)

    def _stepsim_check_settings(self):
        if self.args.n_gpu > 1:
            raise InputError(
                f"one process trains on {self.args.n_gpu} GPUs by DataParallel, which splits every batch: "
                "start one process for each GPU with torchrun"
            )
        if self._stepsim_batching is None:
            return
        for name in ("split_batches", "dispatch_batches"):
            if getattr(self.accelerator, name, None):
                raise InputError(
                    f"accelerator_config: {name}=True deals the batches out in another way; leave it out "
                    "with batching="
                )
        sizes = [getattr(self, f"get_{name}_size", lambda: 1)() for name in ("tp", "cp", "sp")]
        if max(sizes) > 1:
            raise InputError("batching= is for data parallelism alone: tensor, context or sequence "
                             f"parallelism of {max(sizes)} ranks gives several ranks the same batch")

    # ---- batches ----------------------------------------------------------------------------

    def _stepsim_input_name(self):
        names = getattr(self.processing_class, "model_input_names", None)
        return names[0] if names else "input_ids"

    def _stepsim_lengths_of(self, dataset):
        if self._stepsim_lengths is not None:
            return self._stepsim_lengths
        columns = getattr(dataset, "column_names", None) or []
        if self.args.length_column_name in columns:
            return dataset[self.args.length_column_name]
        name = self._stepsim_input_name()
        samples = ({name: row} for row in dataset[name]) if name in columns else (
            dataset[number] for number in range(len(dataset)))
        first, samples = itertools.tee(samples)
        one = next(first, None)
        if not hasattr(one, "get") or not hasattr(one.get(name), "__len__"):
            raise InputError(f"lengths: the samples of the training have no {name} to take them from; give "
                             "the tokens of each sample as lengths=")
        return [len(sample[name]) for sample in samples]

    def _stepsim_sampler(self, lengths):
        if callable(self._stepsim_batching):
            return self._stepsim_batching(lengths)
        given = {"seed": self.args.seed if self.args.data_seed is None else self.args.data_seed,
                 "drop_last": self.args.dataloader_drop_last,
                 "uneven": "idle" if self._stepsim_weighs() else "repeat", **self._stepsim_batching}
        return BatchSampler(lengths, rank=self.args.process_index, world_size=self.args.world_size, **given)

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self._stepsim_batching is None:
            return super()._get_train_sampler(train_dataset)
        if not hasattr(dataset, "__len__"):
            raise InputError("batching= needs a dataset with a length and lengths of its samples; this one, a "
                             f"{type(dataset).__name__}, is read in its own order")
        # The loader's dataset may have lost the column of lengths.
        self._stepsim_lengths = list(self._stepsim_lengths_of(self.train_dataset))
        self.batches = self._stepsim_sampler(self._stepsim_lengths)
        if self.batches.cuts and hasattr(dataset, "column_names"):
            raise InputError(f"policy {self.batches.policy} cuts samples, which a datasets.Dataset cannot: take "
                             "a dataset whose __getitem__ takes a stepsim.torch.Piece")
        return _Batches(self.batches)

    def get_train_dataloader(self):
        collate = self.data_collator
        self.data_collator = _Collate(collate, self._stepsim_input_name())
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = collate

    # ---- epochs -----------------------------------------------------------------------------

    def _stepsim_updates(self, epoch):
        """Returns the optimizer steps of an epoch."""
        return math.ceil(self.batches.steps_of(epoch) / self.args.gradient_accumulation_steps)

    def set_initial_training_values(self, args, dataloader):
        values = list(super().set_initial_training_values(args, dataloader))
        if self.batches is None:
            return tuple(values)
        if args.max_steps > 0:
            total = values[0] = 0
            while total < args.max_steps:
                total += self._stepsim_updates(values[0])
                values[0] += 1
        else:
            whole = int(args.num_train_epochs)
            part = args.num_train_epochs - whole
            values[6] = sum(map(self._stepsim_updates, range(whole)))
            if part > 0:
                values[6] += math.ceil(part * self._stepsim_updates(whole))
        return tuple(values)

    def _init_training_state(self, *args, **others):
        places = super()._init_training_state(*args, **others)
        if self.batches is None:
            return places
        epoch, left = 0, self.state.global_step
        while left >= self._stepsim_updates(epoch):
            left -= self._stepsim_updates(epoch)
            epoch += 1
        if self.state.global_step > 0:
            self._stepsim_check_checkpoint()
        done = 0 if self.args.ignore_data_skip else left * self.args.gradient_accumulation_steps
        return epoch, done

    def _stepsim_state(self):
        """Returns what a checkpoint tells of the batches."""
        if self.batches is None:
            return {}
        steps = min(self._stepsim_place, self.batches.steps_of(self.batches.epoch))
        return {"batches": self.batches.state_dict(steps=steps),
                "gradient_accumulation_steps": self.args.gradient_accumulation_steps}

    def _stepsim_check_checkpoint(self):
        """Raises InputError where the checkpoint was written with other batches than these."""
        if self.args.ignore_data_skip:
            return
        told = self.state.stateful_callbacks.get(_Hooks.__name__) or {}
        told = told[0] if isinstance(told, list) else told  # Of callbacks of one name there are several.
        told = told.get("attributes") or {}
        if "batches" not in told:
            raise InputError("the checkpoint was written without these batches; ignore_data_skip=True begins the "
                             "epoch anew with them")
        wrong = []
        accumulation = self.args.gradient_accumulation_steps
        if told["gradient_accumulation_steps"] != accumulation:
            wrong.append(f"gradient_accumulation_steps={told['gradient_accumulation_steps']}, now {accumulation}")
        for ranks, _, _ in told["batches"]["segments"]:
            if ranks != self.args.world_size:
                wrong.append(f"{ranks} ranks, now {self.args.world_size}")
        if wrong:
            raise InputError(f"the checkpoint was written with {' and '.join(wrong)}: the steps of its epochs are "
                             "others; ignore_data_skip=True begins the epoch anew")
        self._stepsim_sampler(self._stepsim_lengths).load_state_dict(told["batches"])

    def _run_epoch(self, *args, **others):
        if self.batches is None:
            return super()._run_epoch(*args, **others)
        epoch = others["epoch"]
        steps = others["steps_in_epoch"] = self.batches.steps_of(epoch)
        others["num_update_steps_per_epoch"] = self._stepsim_updates(epoch)
        self.batches.set_epoch(epoch)
        resumes = others["resume_from_checkpoint"] is not None and epoch == others["epochs_trained"]
        self._stepsim_place = others["steps_trained_in_current_epoch"] if resumes else 0
        self._stepsim_drawn = self._stepsim_place
        super()._run_epoch(*args, **others)
        stopped = self.control.should_epoch_stop or self.control.should_training_stop
        if self._stepsim_place != steps and not stopped:
            raise InputError(f"epoch {epoch} has {steps} batches on each rank, but {self._stepsim_place} were "
                             "trained: something between the sampler and the loop takes batches away")
        return None

    # ---- steps ------------------------------------------------------------------------------

    def _stepsim_weighs(self):
        return self._stepsim_weighting != "trainer" and self.compute_loss_func is None

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches = list(itertools.islice(epoch_iterator, num_batches))
        lengths = [batch.pop(_KEY, None) if hasattr(batch, "keys") else None for batch in batches]
        steps = [None] * len(batches)
        if self.batches is not None:
            steps = [self.batches.step_at(self._stepsim_drawn + number) for number in range(len(batches))]
            lengths = [step.lengths for step in steps]
            self._stepsim_drawn += len(batches)
        # The step begins here: what ranks wait for each other's counts is no loading of data.
        if batches:
            self.stepsim_watch.begin([_size(*both) for both in zip(batches, lengths)])
        if not self._stepsim_weighs():
            return super().get_batch_samples(iter(batches), len(batches), device)
        if batches:
            counts = [self._stepsim_count(*three) for three in zip(batches, steps, lengths)]
            self._stepsim_shares = _Shares(counts, device)
        return batches, None

    def _stepsim_count(self, batch, step, lengths):
        """Returns over how many labels or samples the loss of a batch is a mean."""
        if step is not None and step.useful_tokens == 0:
            return 0  # A rank that has no batch takes part with one that does not count.
        labels = batch.get("shift_labels", batch.get("labels")) if hasattr(batch, "get") else None
        if self._stepsim_weighting == "samples" or not torch.is_tensor(labels):
            return len(lengths) if lengths is not None else len(next(iter(batch.values())))
        if "shift_labels" not in batch and getattr(self, "_loss_shifts_labels", False):
            labels = labels[..., 1:]
        return labels.ne(-100).sum()

    def training_step(self, model, inputs, *args, **others):
        self._stepsim_place += 1
        self._stepsim_waiting = self._stepsim_shares
        try:
            return super().training_step(model, inputs, *args, **others)
        finally:
            self._stepsim_waiting = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        shares, self._stepsim_waiting = self._stepsim_waiting, None
        if shares is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs,
                                        num_items_in_batch=num_items_in_batch)
        result = super().compute_loss(model, inputs, return_outputs=return_outputs)
        share = shares.next()
        if return_outputs:
            return result[0] * share, result[1]
        return result * share

    # ---- recorder and advisor ---------------------------------------------------------------

    def _prepare_for_training(self, *args, **others):
        model, loader = super()._prepare_for_training(*args, **others)
        if self.batches is not None and self.args.world_size > 1:
            self.batches.verify()
        policy, lengths = "" if self.batches is None else self.batches.policy, self._stepsim_lengths
        if lengths is None and self.stepsim_watch.advises:
            with contextlib.suppress(Exception):  # The advice is then on the recorded steps' lengths.
                lengths = self._stepsim_lengths_of(self.train_dataset)
        self.stepsim_watch.start(model, self.optimizer, loader, policy, lengths)
        if not hasattr(self.accelerator.backward, "stepsim_times"):
            self.accelerator.backward = _timed(self.accelerator.backward, self.stepsim_watch)
        return model, loader

    def _maybe_log_save_evaluate(self, *args, **others):
        control = self.control
        held_up = control.should_log or control.should_evaluate or control.should_save
        super()._maybe_log_save_evaluate(*args, **others)
        if held_up:
            self.stepsim_watch.resume()


class _Shares:
    """What the losses of a step's batches are multiplied by, so that the sum over the batches of their
    means, averaged over the ranks, is the mean over all: ranks x own / all.

    Args:
        counts: [batch] Over how many labels or samples the loss of each batch of this rank is a mean.
    """

    def __init__(self, counts, device):
        self._own = torch.stack([torch.as_tensor(count, device=device) for count in counts]).to(torch.int64)
        self._all, self._work, self._next = self._own.sum(), None, 0
        self._ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if self._ranks > 1:  # Under way during the first forward.
            self._work = dist.all_reduce(self._all, async_op=True)

    def next(self):
        """Returns the factor of the next batch, a tensor."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        number, self._next = self._next, self._next + 1
        return self._ranks * self._own[number] / self._all.clamp(min=1)


def _size(batch, lengths):
    """Returns what the recorder takes of a batch: lengths, the length padded to, tokens computed."""
    tokens = batch.get("input_ids") if hasattr(batch, "get") else None
    lengths = [] if lengths is None else lengths
    return (lengths, *padded_size(getattr(tokens, "shape", None), lengths))


def _timed(backward, watch):
    def timed(loss, **others):
        watch.forward_done()
        backward(loss, **others)
        watch.backward_done()

    timed.stepsim_times = True
    return timed
