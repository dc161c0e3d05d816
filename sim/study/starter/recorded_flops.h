#pragma once

#include <optional>
#include <string>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// What a user says of the FLOPs of a recorded model; it comes before what the record says.
struct StatedFlops {
  std::string config;                 ///< The file of its config.json; empty: none.
  std::optional<double> per_token;    ///< Forward and backward of a mean useful token.
  std::optional<double> peak_tflops;  ///< Dense, of a rank's device in the type it computes in.
};

/// By what the FLOPs of a recorded model are counted: a config.json, or a number; none where
/// neither record nor user says enough.
struct RecordedFlops {
  std::string config_json;   ///< The text of a config.json that makes the recorded tensors.
  std::string architecture;  ///< The class of transformers that it is of.
  std::optional<double> per_token;
  std::string formula;  ///< Where `per_token` comes from, for a comment.
  std::optional<double> peak_tflops;
  std::string peak_source;  ///< Where `peak_tflops` comes from.
};

/// In this order: the number that the user states; the config.json of the user or of the record,
/// where transformers makes the recorded tensors of it; 6 FLOPs a token for each weight that is
/// multiplied, 4 for a frozen one, and 12 x layers x width x length for attention where the record
/// tells its layers. No number for models whose weights do not all meet each token once: those with
/// experts, convolutions or quantized weights, and records that do not tell embeddings apart.
/// Under 16-bit autocast the peak is the maker's, of a known card.
/// Source of the formula: "PaLM: Scaling Language Modeling with Pathways", appendix B.
///
/// Args:
///     mean_length: Tokens of the sample of a mean token: the squared lengths over the lengths.
///
/// Raises:
///     InputError: the user's config.json cannot be read, or makes other tensors.
[[nodiscard]] RecordedFlops recorded_flops(const RunRecord& record,
                                           const StatedFlops& stated,
                                           double mean_length);

}  // namespace stepsim
