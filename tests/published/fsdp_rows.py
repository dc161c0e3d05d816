"""What others measured of FSDP, as scenarios: each row holds what its source states, and no more.

Everything that a source leaves open is assumed in one place, ASSUMED, or in the row's own note.
"""

import csv
import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "scenarios" / "shard_8b.toml"

LLAMA_8B = {"model.preset": "llama3-8b"}
LLAMA_13B = {**LLAMA_8B, "model.layers": 40, "model.hidden": 5120, "model.heads": 40, "model.ffn": 17920}
LLAMA2_7B = {"model.preset": "llama2-7b"}
LLAMA2_70B = {"model.preset": "llama2-70b", "model.vocab": 128256, "model.max_length": 8192}
SMOLLM3 = {
    **LLAMA_8B,
    "model.layers": 36,
    "model.hidden": 2048,
    "model.heads": 16,
    "model.kv_heads": 4,
    "model.ffn": 11008,
    "model.tied_embeddings": "true",
}
GPT2_LARGE = {"model.preset": "gpt2-large", "model.attention": "flash", "model.dtype": "bf16"}
# MPT of llm-foundry: (layers, hidden, heads); learned positions, tied head, vocabulary 50,368.
MPT = {
    "125m": (12, 768, 12),
    "760m": (24, 1536, 12),
    "3b": (32, 2560, 20),
    "13b": (40, 5120, 40),
    "70b": (80, 8192, 64),
}
SELECTIVE = {"model__checkpointing": "ops"}  # torchtitan's policy.


def titan_2024(layers):
    """fully_shard as torchtitan's parallelize_llama.py had it from August 2024 (004b3148) to the turn of the
    year (582fe7d1): each block, whose last stays gathered, and the model, which PyTorch before 2.8 keeps."""
    return {"parallel__units": "blocks", "parallel__kept_units": f"model.layers.{layers - 1}", "parallel__torch": "2.6"}


# Adapters of a node in GB/s, links inside in GB/s a direction.
LINKS = {
    "h100": {"inter": 400, "intra": 450, "gpu": "hopper"},
    "h200": {"inter": 400, "intra": 450, "gpu": "hopper"},
    "a100": {"inter": 200, "intra": 300, "gpu": "ampere"},
}
ASSUMED = """Kernels have the published prices of `h100_8x_published` (also for the H200) or `a100_8x_published`, scaled by one
factor where a row of the same source gives it. Attention is cuDNN's of 2025 in these prices; where a source on the H100 says that
it ran FlashAttention-2 (llm-foundry, whose `submit_benchmarks.py` installs `gpu-flash2`, and fms-fsdp), it has 35 % of the card's
989 TFLOP/s, as the abstract of FlashAttention-3 states (arXiv 2407.08608). Links: NVLink by its data sheet (450 and 300 GB/s a
direction), between nodes 400 Gbit/s a GPU on H100 and H200 (not stated for KempnerForge and for llm-foundry's H100), 1600 Gbit/s a
node on llm-foundry's A100, 400 Gbit/s a node for fms-fsdp's A100 and 800 Gbit/s for its H100. 16 channels. FSDP1 is priced as
FSDP2 with one unit a block: it has no copies out of a gather, which FSDP2 pays."""


# Operations a second of attention's kernels where the source says which they were; the profiles have cuDNN's of 2025.
# FlashAttention-2 reaches 35 % of an H100's 989 TFLOP/s (the abstract of FlashAttention-3, arXiv 2407.08608).
FLASH_2_ON_H100 = 0.35 * 989e12


@dataclasses.dataclass
class Row:
    name: str
    published_ms: float
    settings: dict
    attention: float | None = None  # Operations a second; None: the profile's.


@dataclasses.dataclass
class Group:
    """Rows of one source; `base` gives the factor on all kernels, or is None."""

    title: str
    source: str
    proves: str
    base: Row | None
    rows: list


def settings(card, nodes, per_node, batch, length, model, accumulation=1, **more):
    """Keys of a run; `more` has dots as double underscores."""
    links = LINKS[card]
    keys = {
        "cluster.profile": ROOT / f"scenarios/profiles/{'a100' if card == 'a100' else 'h100'}_8x_published.json",
        "cluster.placement": f"{nodes}x{per_node}" if nodes > 1 else per_node,
        "cluster.topology.intra_bandwidth": f"{links['intra']} GB/s",
        "cluster.topology.inter_bandwidth": f"{links['inter'] / 8} GB/s",
        "cluster.topology.gpu": links["gpu"],
        "policy.fixed.batch_size": batch,
        "data.lengths": f"{{constant={length}}}",
        "data.samples": nodes * per_node * batch * accumulation * 4,
        "ddp.accumulation_steps": accumulation,
        "scenario.steps": 2,  # All steps after the first are alike.
        "scenario.warmup_steps": 1,
        **model,
    }
    if card == "a100":
        keys["model.dtype"] = "f16"  # Its published kernels; bf16 has the same peak.
    keys.update({key.replace("__", "."): value for key, value in more.items()})
    return keys


def of_tokens(tokens, per_s):
    return 1e3 * tokens / per_s


def torchtitan_h100():
    def row(name, nodes, per_s, **more):
        keys = {**SELECTIVE, **titan_2024(32), **more}
        return Row(name, of_tokens(2 * 8192, per_s), settings("h100", nodes, 8, 2, 8192, LLAMA_8B, **keys))

    long = Row(
        "8 GPUs, 1 x 32768, full checkpointing",
        8423.65,
        settings("h100", 1, 8, 1, 32768, {**LLAMA_8B, "model.max_length": 32768}, **titan_2024(32)),
    )
    groups = []
    for kind, few, many in [("eager", 5762, 5605), ("compiled", 6667, 6514), ("compiled, fp8", 8532, 8380)]:
        groups.append(
            Group(
                f"1. Llama 3.1 8B on 128 H100 from 8, {kind}",
                "torchtitan@b5bcd76, llama3_h100_202412: 96 GB cards of 2.4 TB/s and 500 W, 400 Gbit/s a GPU, batch 2 x 8192, "
                "selective checkpointing of ops, blocks and root as units, the last block and the root kept",
                "Only the ratio of 128 to 8 GPUs: that communication is hidden. Its level is that of the row on 8."
                + (" The long sequence: what attention makes of the level." if kind.endswith("fp8") else ""),
                row("8 GPUs", 1, few),
                [row("128 GPUs", 16, many)] + ([long] if kind.endswith("fp8") else []),
            )
        )
    return groups


def torchtitan_others():
    full = {"model__checkpointing": "true"}
    layers = {"model__checkpointing": "layers"}  # Every second one: which is not stated.
    return [
        Group(
            "4. Llama 3 8B and 70B on 64 A100, batch 1",
            "torchtitan, docs/performance of 2024: 64 A100 80 GB, batch 1; sequences of 8192 by the configuration; "
            "checkpointing of layers (8B) and in full (70B)",
            "The level: kernels of published tables alone, no row of the source is used. Links between nodes are not stated.",
            None,
            [
                Row("8B", of_tokens(8192, 2904), settings("a100", 8, 8, 1, 8192, LLAMA_8B, **layers, **titan_2024(32))),
                Row("70B", of_tokens(8192, 331), settings("a100", 8, 8, 1, 8192, LLAMA2_70B, **full, **titan_2024(80))),
            ],
        ),
        Group(
            "5. Llama 3.1 8B on 64 H200 from 32, compiled, fp8",
            "torchtitan@b5bcd76, llama3-8b_h200_202506: batch 2, fp8 all-gathers (priced as bf16), selective checkpointing by the "
            "configuration's default",
            "The ratio of 64 to 32 GPUs.",
            Row("32 GPUs", of_tokens(2 * 8192, 10938), settings("h200", 4, 8, 2, 8192, LLAMA_8B, **SELECTIVE)),
            [Row("64 GPUs", of_tokens(2 * 8192, 10753), settings("h200", 8, 8, 2, 8192, LLAMA_8B, **SELECTIVE))],
        ),
    ]


def kempnerforge():
    kept = {"parallel__units": "blocks", "parallel__reshard_after_forward": "true", "parallel__accumulation": "no_sync"}

    def row(name, nodes, per_node, batch, accumulation, ms, model=LLAMA_8B):
        return Row(name, ms, settings("h200", nodes, per_node, batch, 4096, model, accumulation, **kept))

    return [
        Group(
            "6. KempnerForge on H200, four a node: FSDP from one GPU",
            "KempnerInstitute/KempnerForge@5666d0d, mfu_scaling and config_validation: sequences of 4096, full checkpointing, "
            "blocks and root freed, gradients reduced with the last micro-batch, compiled (13B: not)",
            "What FSDP adds to one GPU's step inside a node (12 and 7 % published) and on 8 nodes; 13B is another model and is "
            "not compiled, so its level is not known from the base.",
            row("7B, 1 GPU, 2 x 4", 1, 1, 2, 4, 3129.41),
            [
                row("7B, 2 GPUs, 2 x 4", 1, 2, 2, 4, 3499.36),
                row("7B, 4 GPUs, 4 x 2", 1, 4, 4, 2, 3362.29),
                row("7B, 4 GPUs, 8 x 4", 1, 4, 8, 4, 13492.4),
                row("7B, 32 GPUs, 4 x 4", 8, 4, 4, 4, 7052),
                row("13B, 8 GPUs, 4 x 4", 2, 4, 4, 4, 14808.3, LLAMA_13B),
            ],
        )
    ]


def blog():
    f32 = {"parallel__param_dtype": "own", "parallel__reduce_dtype": "own", "model__checkpointing": "false"}
    bf16 = {"model__parameter_dtype": "bf16", **f32, "parallel__units": "blocks"}
    unsharded = {"model__checkpointing": "false", "parallel": "ddp"}
    small = lambda accumulation, ranks, **more: settings(  # noqa: E731
        "h100", 1, ranks, 8, 1024, GPT2_LARGE, accumulation, **f32, parallel__units="blocks", **more
    )
    return [
        Group(
            "8. GPT-2 Large on 2 H100: DDP and FSDP1 from one GPU",
            "daddyofadoggy/blog@db07f840, ddp_fsdp: sequences of 1024, micro-batch 8, 32 sequences a step; 20 steps in 112.3 s "
            "on one GPU; types are not stated (priced as fp32)",
            "That all three are alike where compute decides; no order among them, which is within 1 %.",
            Row("1 GPU", 112300 / 20, small(4, 1)),
            [
                Row("DDP", 58300 / 20, settings("h100", 1, 2, 8, 1024, GPT2_LARGE, 2, **unsharded)),
                Row("FULL_SHARD", 58800 / 20, small(2, 2)),
                Row("SHARD_GRAD_OP", 58600 / 20, small(2, 2, parallel__reshard_after_forward="false")),
            ],
        ),
        Group(
            "9. SmolLM3 3B on 4 H100: parameters freed after the forward, from kept ones",
            "daddyofadoggy/blog@db07f840, fsdp2: bf16 parameters, batch 1 x 8192, blocks and root",
            "The ratio of freeing to keeping (1.024).",
            Row("kept", 974, settings("h100", 1, 4, 1, 8192, SMOLLM3, **bf16, parallel__reshard_after_forward="false")),
            [Row("freed", 997, settings("h100", 1, 4, 1, 8192, SMOLLM3, **bf16))],
        ),
    ]


def fms():
    keys = {"parallel__units": "blocks", "model__checkpointing": "false", "parallel__replicas": "nodes"}
    a100 = {**keys, "cluster__topology__inter_bandwidth": "6.25 GB/s"}
    h100 = {**keys, "cluster__topology__inter_bandwidth": "12.5 GB/s"}
    return [
        Group(
            "10. Llama 2 7B under HSDP on 128 A100 and 96 H100",
            "fms-fsdp: FSDP1, compiled, batch 2 x 4096, no checkpointing; 4,550 and 9,600 tokens/s a GPU (3,700 and 7,500 not "
            "compiled); attention is FlashAttention-2. The batches of its larger models are not stated",
            "The level of HSDP: kernels of published tables alone, no row of the source is used.",
            None,
            [
                Row("A100", of_tokens(8192, 4550), settings("a100", 16, 8, 2, 4096, LLAMA2_7B, **a100)),
                Row(
                    "H100",
                    of_tokens(8192, 9600),
                    settings("h100", 12, 8, 2, 4096, LLAMA2_7B, **h100),
                    FLASH_2_ON_H100,
                ),
            ],
        )
    ]


def groups():
    return torchtitan_h100() + torchtitan_others() + kempnerforge() + blog() + fms()


# llm-foundry


@dataclasses.dataclass
class Foundry:
    """A row of llm-foundry's tables."""

    card: str
    model: str
    gpus: int
    sequence: int
    micro_batch: int
    accumulation: int
    checkpointing: bool
    parameters: int
    per_s_gpu: float
    row: Row

    @property
    def name(self):
        return f"{self.model}, {self.gpus} GPUs, {self.micro_batch} x {self.sequence}" + (
            ", checkpointing" if self.checkpointing else ""
        )

    @property
    def work(self):
        """Operations a token: those of the matrix products and of attention's pairs."""
        layers, hidden, _ = MPT[self.model]
        passes = 4 if self.checkpointing else 3
        return passes * (2 * self.parameters + 2 * layers * hidden * self.sequence)


def foundry_rows(data):
    rows = []
    with open(data / "public_steps" / "llm_foundry_fsdp.csv", encoding="utf-8") as file:
        for cells in csv.DictReader(file):
            if "fp8" in cells["precision"]:
                continue
            layers, hidden, heads = MPT[cells["model"]]
            sequence = int(cells["sequence"])
            model = {
                "model.preset": "gpt2-xl",
                "model.layers": layers,
                "model.hidden": hidden,
                "model.heads": heads,
                "model.kv_heads": heads,
                "model.ffn": 4 * hidden,
                "model.vocab": 50368,
                "model.max_length": sequence,
                "model.attention": "flash",
                "model.dtype": "bf16",
                "model.checkpointing": "true" if cells["activation_checkpointing"] == "1" else "false",
                "parallel.units": "blocks",
                "parallel.reduce_dtype": "bf16" if cells["fsdp_mixed_precision"] == "PURE" else "f32",
                "parallel.reshard_after_forward": "false" if cells["sharding"] == "SHARD_GRAD_OP" else "default",
            }
            gpus, batch, accumulation = int(cells["gpus"]), int(cells["micro_batch"]), int(cells["accumulation"])
            keys = settings(cells["gpu"][:4], gpus // 8, 8, batch, sequence, model, accumulation)
            attention = FLASH_2_ON_H100 if cells["gpu"].startswith("h100") else None
            rows.append(
                Foundry(
                    cells["gpu"],
                    cells["model"],
                    gpus,
                    sequence,
                    batch,
                    accumulation,
                    cells["activation_checkpointing"] == "1",
                    int(cells["parameters"]),
                    float(cells["tokens_per_s_gpu"]),
                    Row("", float(cells["step_ms"]), keys, attention),
                )
            )
    return rows
