"""What the programs of the adapters' tests share: samples that tell their number, models, and what a
training did, told by rank 0 as JSON."""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F

LENGTHS = torch.randint(3, 41, (241,), generator=torch.Generator().manual_seed(3)).tolist()
VOCABULARY = 64
_DIGIT = 30


def tokens_of(number):
    """Returns the tokens of a sample, of which the first two tell its number."""
    draw = torch.Generator().manual_seed(number)
    tokens = torch.randint(1, VOCABULARY, (LENGTHS[number],), generator=draw)
    tokens[0], tokens[1] = 1 + number % _DIGIT, 1 + number // _DIGIT
    return tokens


def label_of(number):
    return number % 3


def numbers_of(rows):
    """Returns the numbers of the samples whose tokens begin these rows."""
    return [int(row[0]) - 1 + _DIGIT * (int(row[1]) - 1) for row in rows]


def numbers_in(inputs):
    """Returns the numbers of the samples of a batch, which may be packed: (1, tokens)."""
    rows, positions = inputs["input_ids"], inputs.get("position_ids")
    if positions is not None and len(rows) == 1:
        begins = (positions[0] == 0).nonzero().flatten().tolist()
        return numbers_of([rows[0, begin : begin + 2] for begin in begins])
    return numbers_of(rows)


def collated(numbers, classifies):
    """Returns a padded batch of these samples, as Hugging Face's models take it."""
    rows = [tokens_of(number) for number in numbers]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    batch["labels"] = torch.tensor(list(map(label_of, numbers))) if classifies else ids.masked_fill(ids == 0, -100)
    return batch


def make_model(name):
    import transformers

    torch.manual_seed(1)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2, "max_position_embeddings": 512}
    if name == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, pad_token_id=0))
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **dropout, num_labels=3))


def gradient_of(model, numbers, classifies):
    """Returns the gradient of the mean loss over all labels of these samples, one by one in one
    process, as one vector."""
    model.zero_grad()
    total, count = 0.0, 0
    for number in numbers:
        tokens = tokens_of(number)[None]
        logits = model(input_ids=tokens).logits
        target = torch.tensor([label_of(number)]) if classifies else tokens[0, 1:]
        total = total + F.cross_entropy(logits if classifies else logits[0, :-1], target, reduction="sum")
        count += len(target)
    (total / count).backward()
    return gradients(model)


def gradients(model):
    return torch.cat([one.grad.flatten().clone() for one in model.parameters() if one.grad is not None])


def weights(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def relative(own, reference):
    return float((own - reference).norm() / reference.norm())


def from_all(item):
    """Returns [rank] the item of every rank."""
    items = [None] * dist.get_world_size()
    dist.all_gather_object(items, item)
    return items


class Told:
    """What a rank did: [epoch][step][micro-batch] the numbers of its samples.

    begin_epoch(), batch(…) and end_step() are called by the loop.
    """

    def __init__(self):
        self.epochs, self._step = [], []

    def begin_epoch(self):
        self.epochs.append([])

    def batch(self, numbers):
        self._step.append(numbers)

    def last(self):
        return self._step[-1]

    def end_step(self):
        if self._step:
            self.epochs[-1].append(self._step)
        self._step = []

    def result(self, **more):
        """Returns what all ranks did, and `more` of this one."""
        return {"ranks": from_all(self.epochs), **more}


def idle_batches(sampler, epochs):
    """Returns [epoch] the batches of all ranks that do not count."""
    counts = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        steps = map(sampler.step_at, range(sampler.steps_of(epoch)))
        counts.append(sum(from_all(sum(step.useful_tokens == 0 for step in steps))))
    return counts


def advised(watcher):
    """Returns what an Advisor said."""
    advice = getattr(watcher, "advice", None)
    shares = {} if advice is None else {name: getattr(advice.options[0], name) for name in ("data_ms", "step_ms")
                                        if hasattr(advice.options[0], name)}
    return {"advice": None if advice is None else advice.lines, "now": shares,
            "advisor_error": getattr(watcher, "error", None)}


def main(train):
    """Trains every spec of SPECS.json, and writes {name: what came of it} to OUT.json on rank 0."""
    torch.set_num_threads(1)
    specs, out = sys.argv[1:]
    results = {}
    for name, spec in json.loads(pathlib.Path(specs).read_text(encoding="utf-8")).items():
        try:
            results[name] = train(spec)
        except Exception as error:  # pylint: disable=broad-except
            if "raises" not in spec:
                raise
            results[name] = {"raised": f"{type(error).__name__}: {error}"}
    if not dist.is_initialized() or dist.get_rank() == 0:
        pathlib.Path(out).write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()


def of_step(epochs):
    """Returns the numbers of all ranks' samples in their first step; `epochs`: of this rank."""
    return [number for own in from_all(epochs[0][0]) for batch in own for number in batch]
