#pragma once

#include <string>

#include "tests/costmodel/helpers.h"

namespace stepsim::test {

/// A valid scenario; line numbers in the expected messages of the tests count from its first line.
inline constexpr const char* kScenarioText = R"([scenario]
name = "token skew"
question = "What does padding cost?"
seed = 2026
steps = 12
warmup_steps = 2

[cluster]
ranks = 4
profile = "profiles/lab.json"
slow_ranks = [{ rank = 1, factor = 1.2 }]

[model]
preset = "tiny-classifier"

[ddp]
bucket_cap = "25 MiB"

[data]
samples = 3072
lengths = { log_uniform = [64, 256], outlier_probability = 0.08 }
sampler = { kind = "python", seed = 2043 }

[[policy]]
name = "fixed 8"
kind = "fixed"
batch_size = 8

[[policy]]
name = "budget"
kind = "token_budget"
max_tokens = 1280
weighting = "token"
)";

/// blocks.toml for batches of any length, with a second policy; no profile is needed.
inline const std::string kBlocksText =
    replaced(content(source_root() + "/tests/sim/scenario/blocks.toml"), "tokens = 128\n", "") +
    R"([[policy]]
name = "fixed.two"
kind = "fixed"
batch_size = 2
)";

/// Four blocks with a bucket each on two ranks, all-reduced in 9 ms each; no profile is needed.
inline const std::string kBucketBlocks = R"([scenario]
name = "blocks"
steps = 4
[cluster]
ranks = 2
all_reduce = { sizes = ["1 KiB", "4 MiB"], times = ["9 ms", "9 ms"] }
[model]
kind = "blocks"
layers = 4
block_elements = 262144
[ddp]
bucket_cap = "1 MiB"
[times]
forward = "10 ms"
backward = "20 ms"
[data]
samples = 64
lengths = { constant = 8 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2
)";

/// A small decoder on two ranks by measured times, without a policy.
inline const std::string kDecoderText = R"([scenario]
name = "s"
steps = 12
warmup_steps = 0
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "0 us", intra_bandwidth = "4 GB/s" }
[times]
forward = "10 ms"
backward = "20 ms"
[model]
kind = "gpt2"
layers = 2
hidden = 64
heads = 4
vocab = 100
max_length = 128
[data]
samples = 64
lengths = { uniform = [4, 60] }
)";

/// This is the same job for longer, with [new_shapes]: a test replaces MECHANISMS.
inline const std::string kShapesScenario =
    replaced(kDecoderText, {{"steps = 12", "steps = 40"}, {"samples = 64", "samples = 320"}}) +
    R"([host]
step_sync = true
launch = "10 us"
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
[new_shapes]
mechanisms = [MECHANISMS]
)";

}  // namespace stepsim::test
