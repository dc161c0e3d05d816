#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stepsim {

struct RunRecord;
struct StepRecord;

/// A part of a rank's step.
enum class StepPart {
  Data,  ///< Up to the forward: the loader, and all else that the loop does there.
  Forward,
  Backward,         ///< Its compute; all of it, where nothing tells the wait apart.
  WaitingForRanks,  ///< Until the last rank has launched the last bucket.
  Communication,    ///< Exposed: from then on.
  Waiting,          ///< Both, where the record does not tell them apart.
  Optimizer,
  Other,
  Host,  ///< What the host of a GPU took to launch the step, beside the rest.
};

/// One row: what a part is called, and what it is.
struct StepPartRow {
  StepPart part;
  const char* key;    ///< In JSON and CSV.
  const char* words;  ///< "forward"
  bool waits;         ///< A rank waits there for others or for the network.
  bool adds;          ///< It is one of those that sum to the step.
};

[[nodiscard]] const StepPartRow& row_of(StepPart part);

/// How the backward of records is told from waiting; the same for both sides of a comparison.
enum class WaitReading {
  Buckets,    ///< By the launches of the last bucket on all ranks.
  Waits,      ///< By the recorded wait.
  Processor,  ///< Compute is the thread's processor time; the rest waits.
  OneRank,    ///< Nothing waits.
  Together,   ///< Not at all.
};

/// The best reading that all steps of all records allow.
[[nodiscard]] WaitReading wait_reading(const std::vector<const RunRecord*>& records);

/// The parts that steps have with this reading; `on_gpu`: host times were recorded.
[[nodiscard]] std::vector<StepPart> parts_of(WaitReading reading, bool on_gpu);

/// [rank][part] milliseconds of one step, as `parts` has them. `ranks` are the step's rows.
[[nodiscard]] std::vector<std::vector<double>> part_times(
    const std::vector<const StepRecord*>& ranks,
    WaitReading reading,
    const std::vector<StepPart>& parts);

}  // namespace stepsim
