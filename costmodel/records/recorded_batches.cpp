#include "costmodel/records/recorded_batches.h"

#include <algorithm>
#include <numeric>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

std::vector<MicroBatch> micro_batches_of(const StepRecord& step,
                                         const std::string& file,
                                         std::int64_t first_sample) {
  if (step.micro_batches > 1 && step.micro_batch_samples.empty()) {
    throw InputError(SourcePlace{file},
                     "step {}, rank {}: {} micro-batches; give --plan, which tells them apart, or "
                     "record with this version's stepsim_recorder.py",
                     step.step,
                     step.rank,
                     step.micro_batches);
  }
  if (std::ssize(step.lengths) != step.samples) {
    throw InputError(SourcePlace{file},
                     "step {}, rank {}: {} samples and {} lengths; record with step(lengths=…)",
                     step.step,
                     step.rank,
                     step.samples,
                     step.lengths.size());
  }
  std::vector<MicroBatch> batches;
  std::int64_t first = 0;
  for (std::int64_t m = 0; m < step.micro_batches; ++m) {
    const bool whole = step.micro_batches == 1;
    const std::int64_t samples = whole ? step.samples : step.micro_batch_samples[at(m)];
    const std::int64_t padded = whole ? step.max_length : step.micro_batch_max_lengths[at(m)];
    MicroBatch batch;
    batch.step = step.step;
    batch.rank = step.rank;
    batch.micro_batch = static_cast<int>(m);
    batch.samples.resize(at(samples));
    std::iota(batch.samples.begin(), batch.samples.end(), first_sample + first);
    batch.lengths.assign(step.lengths.begin() + first, step.lengths.begin() + first + samples);
    first += samples;
    const bool longer = samples > 0 && padded > std::ranges::max(batch.lengths);
    batch.padded_length = longer ? padded : 0;
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace stepsim
