#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/predict/prediction.h"

namespace stepsim {

/// The note as the sentence of a warning.
[[nodiscard]] std::string note_text(const Note& note);

/// Several collectives without a measured table in few words: "all_reduce: NCCL 2.28.9 tuning
/// model: Ring/LL128 and Tree/LL128; broadcast: analytic: flat ring, 2 nodes x 8".
[[nodiscard]] std::string collectives_text(std::span<const CollectiveNotMeasured> notes);

/// What to do about them: "stepcal measure or all_reduce.py measures it".
[[nodiscard]] std::string measured_by(std::span<const CollectiveNotMeasured> notes);

/// "step 3, rank 0: needs 41.2 GiB of 40.0 GiB"
[[nodiscard]] std::string out_of_memory_text(const OutOfMemory& what);

/// The notes of one prediction.
[[nodiscard]] std::vector<std::string> note_texts(const Prediction& prediction);

/// The notes of all predictions, each once; out of memory with the policy's name.
[[nodiscard]] std::vector<std::string> note_texts(std::span<const Prediction> predictions);

/// The same, a line each: "warning: …".
[[nodiscard]] std::string warnings_text(std::span<const Prediction> predictions);

/// A prediction that holds nothing but notes, for results that keep these alone; they show no
/// memory, and leave out what is said of it (ActivationsNotCounted).
[[nodiscard]] std::vector<Prediction> noted(const std::vector<Note>& notes);

}  // namespace stepsim
