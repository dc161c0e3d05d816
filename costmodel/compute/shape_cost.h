#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stepsim {

/// What tells one shape from another in a cache of the framework.
enum class ShapeKey : std::uint8_t {
  SamplesAndLength,  ///< The batch size and the padded length.
  Length,            ///< The padded length alone.
  Samples,           ///< The batch size alone.
  Tokens,            ///< The padded tokens of the batch.
  Largest            ///< Whether the batch has more padded tokens than every one before.
};
/// "samples_length", "length", "samples", "tokens", "largest": in the order of ShapeKey.
[[nodiscard]] std::span<const std::string> shape_key_names();

/// Which entry a full cache gives up for a new one.
enum class Eviction : std::uint8_t { LeastRecent, Oldest, None };
/// "least_recent", "oldest", "none".
[[nodiscard]] std::span<const std::string> eviction_names();

/// How torch.compile treats sizes that change.
enum class CompileMode : std::uint8_t {
  None,       ///< Not a compiler: every key is an entry of its own.
  Static,     ///< dynamic=False: a graph for every shape.
  Automatic,  ///< The default: a size that changes becomes symbolic. A size of 1 is never that.
  Dynamic     ///< dynamic=True: symbolic from the start, but for a size of 1.
};
/// "none", "static", "automatic", "dynamic".
[[nodiscard]] std::span<const std::string> compile_mode_names();

/// What a framework or a library spends when it meets a shape for the first time: a plan is built,
/// a graph compiled, candidates are tried.
struct ShapeCost {
  std::string mechanism;  ///< "attention_plan", "compile", …: how output calls it.
  ShapeKey key = ShapeKey::SamplesAndLength;
  /// Batches without padding need no mask and are told from padded ones of the same sizes.
  bool mask_in_key = false;
  std::int64_t round_to = 1;  ///< The length in the key is rounded up to a multiple of this.
  /// The length in the key is rounded up to a power of two; with mask_in_key of unpadded batches.
  bool to_power_of_two = false;
  double forward_seconds = 0;         ///< The host is busy for so long before the forward pass,
  double backward_seconds = 0;        ///< and before the backward pass.
  double forward_device_seconds = 0;  ///< The device is busy, as with trial runs of kernels.
  double backward_device_seconds = 0;
  double relative_error = 0;  ///< Standard deviation of all of these together.
  std::int64_t entries = 0;   ///< What the cache holds; 0: it never gives anything up.
  Eviction eviction = Eviction::LeastRecent;
  bool shared = false;  ///< What one rank has met, all find from their next batch on.
  CompileMode compile = CompileMode::None;
  std::int64_t recompile_limit = 8;  ///< Graphs after which a compiler gives up.
  double uncompiled_factor = 1;      ///< How much longer passes then take.

  [[nodiscard]] double seconds() const {
    return forward_seconds + backward_seconds + forward_device_seconds + backward_device_seconds;
  }
  bool operator==(const ShapeCost&) const = default;
};

}  // namespace stepsim
