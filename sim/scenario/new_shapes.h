#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// What a scenario says about shapes that a rank meets for the first time.
struct NewShapes {
  /// They replace the profile's; empty: new shapes cost nothing. Absent: the profile's hold.
  std::optional<std::vector<ShapeCost>> mechanisms;
  bool warm_up = false;  ///< All shapes of the run are met before its first step.
};

/// A version such as "2.11.0". Raises InputError.
[[nodiscard]] std::vector<int> parse_version(std::string_view text);

/// What decides whether torch's scaled_dot_product_attention builds plans with cuDNN.
struct AttentionSetup {
  std::optional<std::vector<int>> torch;
  std::optional<std::vector<int>> cudnn;
  std::optional<std::vector<int>> compute_capability;
  bool asked_for = false;  ///< sdpa_kernel([CUDNN_ATTENTION]) or the like.
};

/// Why this setup builds no attention plans, and which one would; empty: it does, or nobody says.
/// Rules: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of torch 2.5.0, 2.5.1 and 2.11, and
/// https://github.com/pytorch/pytorch/pull/138522.
[[nodiscard]] std::string why_no_attention_plans(const AttentionSetup& setup);

}  // namespace stepsim
