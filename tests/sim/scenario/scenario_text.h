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

/// Twelve equal blocks of 1 MB of gradients by measured times, on four ranks around a ring; no
/// profile is needed.
inline constexpr const char* kBlocksText = R"([scenario]
name = "blocks"
steps = 6
warmup_steps = 3
[cluster]
ranks = 4
topology = { algorithm = "ring", intra_latency = "10 us", intra_bandwidth = "1 GB/s" }
[times]
forward = "12 ms"
backward = "24 ms"
optimizer = "1.5 ms"
[model]
kind = "blocks"
layers = 12
block_elements = 250_000
[ddp]
gradient_as_bucket_view = true
[data]
samples = 1024
lengths = { constant = 128 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
[[policy]]
name = "fixed.two"
kind = "fixed"
batch_size = 2
)";

/// A small decoder on two ranks by measured times, with [new_shapes]: replace MECHANISMS.
inline const std::string kShapesScenario = R"([scenario]
name = "s"
steps = 40
warmup_steps = 0
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "0 us", intra_bandwidth = "4 GB/s" }
[host]
step_sync = true
launch = "10 us"
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
samples = 320
lengths = { uniform = [4, 60] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
[new_shapes]
mechanisms = [MECHANISMS]
)";

}  // namespace stepsim::test
