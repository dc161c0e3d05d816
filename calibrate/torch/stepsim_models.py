"""The model families that Stepsim knows, as PyTorch modules: what a plan's "model" describes. Parameters
stand in the order, and have the shapes, of the published models (Hugging Face, nanochat, the token-skew
lab). stepsim_measure.py and stepsim_live.py import it; it needs only torch.

    model = make_model(plan["model"], device)
    loss = model(*make_batch(plan["model"], lengths, width, device))

Each op's end is marked: model.mark(name, tensor, …) is called with the op's name, such as
"layer3.qkv", and its outputs. It does nothing unless somebody puts a function there.
"""

import contextlib
import math

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {
    **{"f32": torch.float32, "tf32": torch.float32, "f64": torch.float64},
    **{"bf16": torch.bfloat16, "f16": torch.float16},
}
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
INIT_STD = 0.02  # As published. N(0, 1) makes a tied head's softmax underflow to subnormal numbers.


class CannotTrain(Exception):
    """The message says what of a model is not here, and what to do."""


def varlen_attention():
    """PyTorch's attention over packed documents, or None where this PyTorch has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    return varlen_attn


def check(config, device):
    """Raises CannotTrain: a family, optimizer or attention that cannot run here."""
    family = config["family"]
    if family not in FAMILIES:
        raise CannotTrain(
            f"the ops of a model of family {family!r} are not known one by one. Known: "
            f"{', '.join(FAMILIES)}. Any other model is calibrated by whole steps: "
            "stepsim_calibrate.py, or python3 -m stepsim.torch.calibrate"
        )
    if config.get("sparse_embeddings"):
        raise CannotTrain("sparse_embeddings: AdamW takes no sparse gradients")
    if config["attention"] == "varlen" and (device.type != "cuda" or varlen_attention() is None):
        raise CannotTrain(
            f"attention = \"varlen\" runs in PyTorch on CUDA devices, from version 2.10 on; this is "
            f"{torch.__version__} on {device.type}. Calibrate your own model by whole steps in its "
            "place (stepsim_calibrate.py)"
        )


def make_optimizer(kind, parameters):
    """Raises CannotTrain for a kind that is not known."""
    if kind not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise CannotTrain(f"optimizer {kind!r} is not known here; known: {known}")
    return OPTIMIZERS[kind](parameters, lr=1e-6)


def make_model(config, device):
    """Returns the module in its parameters' dtype on `device`. Raises CannotTrain."""
    check(config, device)
    if config["dtype"] == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(1)
    # Random numbers for large models take a CPU minutes. PyTorch 1.13 has no such context.
    with device if hasattr(device, "__enter__") else contextlib.nullcontext():
        model = FAMILIES[config["family"]](config)
    return model.to(device, DTYPES[config["parameter_dtype"]])


def autocast(config, device):
    """The context of forward and loss: computes in `dtype` where parameters have another one."""
    dtype = DTYPES[config["dtype"]]
    if dtype not in (torch.bfloat16, torch.float16) or config["parameter_dtype"] == config["dtype"]:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def make_batch(config, lengths, width, device):
    """Random tokens of samples of these lengths, padded to `width` (varlen: one after the other), and
    labels. Drawn on the host and copied, as a loader with pinned memory does; nothing in the forward
    waits for the device.

    Returns (tokens [samples][width] or [1][tokens], lengths as a list, lengths [samples] on the device,
    labels [samples])."""
    if config["attention"] == "varlen":
        tokens = torch.randint(1, config["vocab"], (1, sum(lengths)))
    else:
        tokens = torch.randint(1, config["vocab"], (len(lengths), width))
        if min(lengths) < width:
            tokens *= torch.arange(width) < torch.tensor(lengths)[:, None]
    labels = torch.randint(0, config["classes"] or config["hidden"], (len(lengths),))
    counts = torch.tensor(lengths)
    if device.type == "cuda":
        tokens, counts, labels = (
            one.pin_memory().to(device, non_blocking=True) for one in (tokens, counts, labels)
        )
    return tokens, list(lengths), counts, labels


def sentinel_shape(config):
    """The batch that is trained again and again, to see the machine drift: (lengths, width)."""
    width = min(128, config["max_length"] or 128)
    return [width] * 8, width


def unmarked(_name, *_tensors):
    """Stands where nobody marks ops."""


class Batch:
    """What attention and loss have to know of a batch.

    bias: [samples or 1][1][length or 1][length], added to dense scores; None: nothing is hidden.
    mask: the same as true and false, for fused attention.
    """

    def __init__(self, config, tokens, lengths, counts):
        self.config, device = config, tokens.device
        self.is_packed = config["attention"] == "varlen"
        self.bias = self.mask = None
        if self.is_packed:
            self.longest, total = max(lengths), sum(lengths)
            ends = F.pad(counts.cumsum(0), (1, 0))
            self.ends = ends.to(torch.int32)
            numbers = torch.arange(len(lengths), device=device)
            # With its size told, nothing is asked of the device.
            self.owner = torch.repeat_interleave(numbers, counts, output_size=total)
            self.positions = torch.arange(total, device=device) - ends[self.owner]
            return
        length = tokens.shape[1]
        self.positions = torch.arange(length, device=device)
        is_padded = min(lengths) < length
        is_decoder = config["family"] in ("gpt2", "llama", "nanochat")
        self.useful = None
        if is_padded or config["family"] == "token_classifier":
            self.useful = self.positions < counts[:, None]
        if config["causal"] or config["window"]:
            self.mask = self.banded(length, device)
        elif self.useful is not None and is_padded and not is_decoder:
            self.mask = self.useful[:, None, None, :]
        if config["attention"] == "dense" and self.mask is not None:
            dtype = DTYPES[config["dtype"]]
            least = -1e9 if dtype == torch.float32 else torch.finfo(dtype).min
            self.bias = torch.zeros(self.mask.shape, device=device, dtype=dtype)
            self.bias.masked_fill_(~self.mask, least)

    def banded(self, length, device):
        """None where attention is causal without a window: that is an argument of its own."""
        if self.config["attention"] != "dense" and not self.config["window"]:
            return None
        apart = self.positions[:, None] - self.positions[None, :]
        seen = torch.ones(length, length, dtype=torch.bool, device=device)
        if self.config["causal"]:
            seen &= apart >= 0
        if self.config["window"]:
            seen &= apart.abs() < self.config["window"]
        return seen[None, None]

    def targets(self, tokens):
        """The next token at each place, -100 where there is none."""
        if self.is_packed:
            targets = tokens.roll(-1, dims=1)
            targets[0, self.ends[1:].long() - 1] = -100
            return targets
        last = self.positions >= self.positions.shape[0] - 1
        targets = tokens.roll(-1, dims=1).masked_fill(last, -100)
        if self.useful is not None:
            targets = targets.masked_fill(~self.useful.roll(-1, dims=1), -100)
        return targets

    def first_rows(self, rows):
        """Each sample's first row."""
        return rows[0, self.ends[:-1].long()] if self.is_packed else rows[:, 0]


class Attention:
    """Scores, softmax and context, or one fused kernel: no parameters."""

    def __init__(self, config):
        self.config = config
        self.dim = config["hidden"] // config["heads"]
        self.groups = config["heads"] // config["kv_heads"]

    def split(self, rows):
        """[samples][length][heads x dim] as [samples][heads][length][dim]."""
        samples, length, width = rows.shape
        return rows.view(samples, length, width // self.dim, self.dim).transpose(1, 2)

    def __call__(self, mark, query, key, value, batch):
        """Takes what split() returns; returns [samples][length][hidden]."""
        if batch.is_packed:
            context = self.packed(query, key, value, batch)
        elif self.config["attention"] == "dense":
            context = self.dense(mark, query, *self.repeated(key, value), batch)
        else:
            context = self.fused(query, key, value, batch)
        if self.config["attention"] != "dense":
            mark("attention", context)
        samples, _, length, _ = query.shape
        return context.transpose(1, 2).reshape(samples, length, -1)

    def repeated(self, key, value):
        if self.groups == 1:
            return key, value
        return tuple(one.repeat_interleave(self.groups, dim=1) for one in (key, value))

    def dense(self, mark, query, key, value, batch):
        scores = query @ key.transpose(2, 3) / math.sqrt(self.dim)
        if batch.bias is not None:
            scores = scores + batch.bias
        mark("scores", scores)
        weights = F.softmax(scores, dim=-1)
        mark("softmax", weights)
        context = weights @ value
        mark("context", context)
        return context

    def fused(self, query, key, value, batch):
        causal = self.config["causal"] and batch.mask is None
        key, value = self.repeated(key, value)
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=batch.mask, is_causal=causal
            )
        scores = query @ key.transpose(2, 3) / math.sqrt(self.dim)  # PyTorch 1.13.
        mask = batch.mask
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1) @ value

    def packed(self, query, key, value, batch):
        query, key, value = (one.transpose(1, 2)[0] for one in (query, *self.repeated(key, value)))
        more = {"is_causal": True} if self.config["causal"] else {}
        context = varlen_attention()(
            query, key, value, batch.ends, batch.ends, batch.longest, batch.longest, **more
        )
        return context[None].transpose(1, 2)


def gelu_new(rows):
    """GPT-2's activation as Hugging Face writes it: one kernel an operator."""
    cubic = rows + 0.044715 * torch.pow(rows, 3.0)
    return 0.5 * rows * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * cubic))


class Conv1D(nn.Module):
    """A linear layer with its weight as [in][out], as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=INIT_STD)

    def forward(self, rows):
        flat = torch.addmm(self.bias, rows.reshape(-1, rows.shape[-1]), self.weight)
        return flat.view(*rows.shape[:-1], -1)


class LlamaNorm(nn.Module):
    """RMS norm as Hugging Face writes it for Llama."""

    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, rows):
        wide = rows.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(rows.dtype)


def plain_norm(rows):
    """RMS norm without parameters, as nanochat's."""
    if hasattr(F, "rms_norm"):
        return F.rms_norm(rows, (rows.shape[-1],))
    return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotary_tables(batch, dim, dtype):
    """Cosines and sines: [1][1][length][dim]."""
    device = batch.positions.device
    rates = 10000.0 ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angles = batch.positions.float()[:, None] * rates
    angles = torch.cat([angles, angles], dim=-1)[None, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(rows, tables):
    half = rows.shape[-1] // 2
    turned = torch.cat([-rows[..., half:], rows[..., :half]], dim=-1)
    return rows * tables[0] + turned * tables[1]


def next_token_loss(logits, tokens, batch):
    """As Hugging Face: in 32 bits."""
    return F.cross_entropy(
        logits.float().flatten(0, 1), batch.targets(tokens).flatten(), ignore_index=-100
    )


def embedding(rows, width):
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, std=INIT_STD)
    return table


class Family(nn.Module):
    """What all families share: the config, attention, and marks with the layer's name before them."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.attend = Attention(config)
        self.mark = unmarked

    def layer_mark(self, layer):
        if self.mark is unmarked:
            return unmarked
        return lambda name, *tensors: self.mark(f"layer{layer}.{name}", *tensors)


class PreNormBlock(nn.Module):
    """Attention and MLP with the norms before them: `linear` is nn.Linear or Conv1D."""

    def __init__(self, c, linear, activation):
        super().__init__()
        self.activation = activation
        self.norm1 = nn.LayerNorm(c["hidden"])
        self.qkv = linear(c["hidden"], 3 * c["hidden"])
        self.proj = linear(c["hidden"], c["hidden"])
        self.norm2 = nn.LayerNorm(c["hidden"])
        self.fc1 = linear(c["hidden"], c["ffn"])
        self.fc2 = linear(c["ffn"], c["hidden"])

    def forward(self, rows, attend, mark, batch):
        normed = self.norm1(rows)
        mark("attention_norm", normed)
        packed = self.qkv(normed)
        mark("qkv", packed)
        context = attend(mark, *(attend.split(one) for one in packed.chunk(3, dim=-1)), batch)
        output = self.proj(context)
        mark("attention_output", output)
        rows = rows + output
        mark("attention_residual", rows)
        normed = self.norm2(rows)
        mark("mlp_norm", normed)
        wide = self.fc1(normed)
        mark("mlp_up", wide)
        wide = self.activation(wide)
        mark("activation", wide)
        output = self.fc2(wide)
        mark("mlp_down", output)
        rows = rows + output
        mark("mlp_residual", rows)
        return rows


class TokenClassifier(Family):
    """The token-skew lab's classifier: pre-norm blocks, a masked mean over the tokens."""

    def __init__(self, config):
        super().__init__(config)
        self.embedding = embedding(config["vocab"], config["hidden"])
        self.layers = nn.ModuleList(
            PreNormBlock(config, nn.Linear, F.gelu) for _ in range(config["layers"])
        )
        if config["classes"]:
            self.classifier = nn.Linear(config["hidden"], config["classes"])

    def forward(self, tokens, lengths, counts, labels):
        batch = Batch(self.config, tokens, lengths, counts)
        rows = self.embedding(tokens)
        self.mark("embedding", rows)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, self.attend, self.layer_mark(number), batch)
        if batch.is_packed:
            sums = torch.zeros(len(lengths), rows.shape[-1], device=rows.device, dtype=rows.dtype)
            rows = sums.index_add(0, batch.owner, rows[0]) / counts[:, None]
        else:
            weights = batch.useful[:, :, None].to(rows.dtype)
            rows = (rows * weights).sum(dim=1) / weights.sum(dim=1)
        self.mark("pooling", rows)
        if self.config["classes"]:
            rows = self.classifier(rows)
            self.mark("classifier", rows)
        loss = F.cross_entropy(rows, labels)
        self.mark("loss", loss)
        return loss


class Encoder(Family):
    """BERT and DistilBERT: post-norm blocks, a head on the first token."""

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.query = nn.Linear(c["hidden"], c["hidden"])
            self.key = nn.Linear(c["hidden"], c["hidden"])
            self.value = nn.Linear(c["hidden"], c["hidden"])
            self.dense = nn.Linear(c["hidden"], c["hidden"])
            self.attention_norm = nn.LayerNorm(c["hidden"])
            self.up = nn.Linear(c["hidden"], c["ffn"])
            self.down = nn.Linear(c["ffn"], c["hidden"])
            self.mlp_norm = nn.LayerNorm(c["hidden"])

        def forward(self, rows, attend, mark, batch):
            query = self.query(rows)
            mark("q", query)
            key = self.key(rows)
            mark("k", key)
            value = self.value(rows)
            mark("v", value)
            context = attend(mark, *(attend.split(one) for one in (query, key, value)), batch)
            output = self.dense(context)
            mark("attention_output", output)
            output = output + rows
            mark("attention_residual", output)
            rows = self.attention_norm(output)
            mark("attention_norm", rows)
            wide = self.up(rows)
            mark("mlp_up", wide)
            wide = F.gelu(wide)
            mark("activation", wide)
            output = self.down(wide)
            mark("mlp_down", output)
            output = output + rows
            mark("mlp_residual", output)
            rows = self.mlp_norm(output)
            mark("mlp_norm", rows)
            return rows

    def __init__(self, config):
        super().__init__(config)
        hidden, classes = config["hidden"], config["classes"]
        self.is_bert = config["family"] == "bert"
        self.words = embedding(config["vocab"], hidden)
        self.positions = embedding(config["max_length"], hidden)
        if self.is_bert:
            self.types = embedding(2, hidden)
        self.embedding_norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(self.Block(config) for _ in range(config["layers"]))
        if self.is_bert or classes:
            self.pooler = nn.Linear(hidden, hidden)
        if classes:
            self.classifier = nn.Linear(hidden, classes)

    def forward(self, tokens, lengths, counts, labels):
        batch = Batch(self.config, tokens, lengths, counts)
        rows = self.words(tokens)
        self.mark("embedding", rows)
        if self.is_bert:
            types = self.types(torch.zeros_like(tokens))
            self.mark("token_type_embedding", types)
            rows = rows + types
        positions = self.positions(batch.positions)
        self.mark("position_embedding", positions)
        rows = rows + positions
        self.mark("embedding_add", rows)
        rows = self.embedding_norm(rows)
        self.mark("embedding_norm", rows)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, self.attend, self.layer_mark(number), batch)
        rows = batch.first_rows(rows)
        self.mark("pooling", rows)
        if hasattr(self, "pooler"):
            rows = self.pooler(rows)
            self.mark("pooler" if self.is_bert else "pre_classifier", rows)
            rows = torch.tanh(rows) if self.is_bert else F.relu(rows)
            self.mark("head_activation", rows)
        if self.config["classes"]:
            rows = self.classifier(rows)
            self.mark("classifier", rows)
        loss = F.cross_entropy(rows, labels)
        self.mark("loss", loss)
        return loss


class Gpt2(Family):
    """GPT-2 of Hugging Face."""

    def __init__(self, config):
        super().__init__(config)
        self.wte = embedding(config["vocab"], config["hidden"])
        self.wpe = embedding(config["max_length"], config["hidden"])
        self.layers = nn.ModuleList(
            PreNormBlock(config, Conv1D, gelu_new) for _ in range(config["layers"])
        )
        self.ln_f = nn.LayerNorm(config["hidden"])
        if not config["tied_embeddings"]:
            self.lm_head = nn.Linear(config["hidden"], config["vocab"], bias=False)

    def forward(self, tokens, lengths, counts, _labels):
        batch = Batch(self.config, tokens, lengths, counts)
        rows = self.wte(tokens)
        self.mark("embedding", rows)
        positions = self.wpe(batch.positions)
        self.mark("position_embedding", positions)
        rows = rows + positions
        self.mark("embedding_add", rows)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, self.attend, self.layer_mark(number), batch)
        rows = self.ln_f(rows)
        self.mark("final_norm", rows)
        head = self.wte if self.config["tied_embeddings"] else self.lm_head
        logits = F.linear(rows, head.weight)
        self.mark("lm_head", logits)
        loss = next_token_loss(logits, tokens, batch)
        self.mark("loss", loss)
        return loss


class Rotary(Family):
    """Llama of Hugging Face and nanochat's GPT: rotary positions, no biases, and a norm before each
    half of a block."""

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.is_llama = c["family"] == "llama"
            hidden = c["hidden"]
            kv_width = c["kv_heads"] * (hidden // c["heads"])
            self.q = nn.Linear(hidden, hidden, bias=False)
            self.k = nn.Linear(hidden, kv_width, bias=False)
            self.v = nn.Linear(hidden, kv_width, bias=False)
            self.o = nn.Linear(hidden, hidden, bias=False)
            if self.is_llama:
                self.gate = nn.Linear(hidden, c["ffn"], bias=False)
            self.up = nn.Linear(hidden, c["ffn"], bias=False)
            self.down = nn.Linear(c["ffn"], hidden, bias=False)
            self.norm1 = LlamaNorm(hidden) if self.is_llama else plain_norm
            self.norm2 = LlamaNorm(hidden) if self.is_llama else plain_norm

        def forward(self, rows, attend, mark, batch, tables):
            normed = self.norm1(rows)
            mark("attention_norm", normed)
            query = self.q(normed)
            mark("q", query)
            key = self.k(normed)
            mark("k", key)
            value = self.v(normed)
            mark("v", value)
            query, key = (rotate(attend.split(one), tables) for one in (query, key))
            if not self.is_llama:
                query, key = plain_norm(query), plain_norm(key)
            mark("rotary", query, key)
            output = self.o(attend(mark, query, key, attend.split(value), batch))
            mark("attention_output", output)
            rows = rows + output
            mark("attention_residual", rows)
            normed = self.norm2(rows)
            mark("mlp_norm", normed)
            rows = rows + self.mlp(normed, mark)
            mark("mlp_residual", rows)
            return rows

        def mlp(self, normed, mark):
            if self.is_llama:
                gate = self.gate(normed)
                mark("mlp_gate", gate)
            wide = self.up(normed)
            mark("mlp_up", wide)
            wide = F.silu(gate) * wide if self.is_llama else F.relu(wide).square()
            mark("activation", wide)
            output = self.down(wide)
            mark("mlp_down", output)
            return output

    def __init__(self, config):
        super().__init__(config)
        self.is_llama = config["family"] == "llama"
        self.tokens = embedding(config["vocab"], config["hidden"])
        self.layers = nn.ModuleList(self.Block(config) for _ in range(config["layers"]))
        self.final_norm = LlamaNorm(config["hidden"]) if self.is_llama else plain_norm
        if not config["tied_embeddings"]:
            self.lm_head = nn.Linear(config["hidden"], config["vocab"], bias=False)

    def forward(self, tokens, lengths, counts, _labels):
        batch = Batch(self.config, tokens, lengths, counts)
        rows = self.tokens(tokens)
        self.mark("embedding", rows)
        if not self.is_llama:
            rows = plain_norm(rows)
            self.mark("embedding_norm", rows)
        tables = rotary_tables(batch, self.attend.dim, rows.dtype)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, self.attend, self.layer_mark(number), batch, tables)
        rows = self.final_norm(rows)
        self.mark("final_norm", rows)
        head = self.tokens if self.config["tied_embeddings"] else self.lm_head
        logits = F.linear(rows, head.weight)
        if not self.is_llama:
            logits = 15 * torch.tanh(logits / 15)
        self.mark("lm_head", logits)
        loss = next_token_loss(logits, tokens, batch)
        self.mark("loss", loss)
        return loss


FAMILIES = {
    "token_classifier": TokenClassifier,
    "distilbert": Encoder,
    "bert": Encoder,
    "gpt2": Gpt2,
    "llama": Rotary,
    "nanochat": Rotary,
}
