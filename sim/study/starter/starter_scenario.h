#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "costmodel/records/record_files.h"
#include "sim/study/starter/recorded_flops.h"

namespace stepsim {

/// A scenario made from run records, as the files that a user goes on to edit.
struct StarterScenario {
  std::string now;          ///< The policy that stands for what was recorded.
  bool plays = false;       ///< It plays the batches of the first record, from `recorded.jsonl`.
  std::string toml;         ///< With comments; names `profile.json` and the lengths beside it.
  std::string config_json;  ///< For a file `config.json`; empty where the scenario names none.
  std::string lengths;      ///< The histogram of the recorded samples, for a file `lengths.json`.
  /// Samples of the data set: the loader's, where the record knows them; else those recorded.
  std::int64_t samples = 0;
  double mean_length = 0;  ///< Tokens of a recorded sample.
};

/// Writes a scenario for the model, DDP settings, loader and lengths of the records: the recorded
/// batches as they are, whatever formed them, and the policies that are worth trying in their place
/// with the same number of samples or of padded tokens a batch. Where a record does not tell the
/// micro-batches of its steps apart, equal batches in the loader's order stand for the recorded
/// ones. Where batches were packed, policies that
/// pack. Policies whose ranks hold different numbers of samples weigh the loss by samples.
///
/// `own_lengths`: the lengths are those of the data set, in its order, in a file `lengths.txt`;
/// only then can a loader take the plans, which name samples by their number. Else they are drawn
/// from the recorded ones.
///
/// Raises InputError that names the file: the records hold no lengths, or come from different
/// numbers of ranks; recorded_flops().
[[nodiscard]] StarterScenario starter_scenario(std::span<const RecordFile> records,
                                               const std::string& name,
                                               bool own_lengths,
                                               const StatedFlops& stated = {});

}  // namespace stepsim
