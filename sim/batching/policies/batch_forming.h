#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/batching/algorithms/samples.h"
#include "sim/batching/epoch_plan.h"

// Steps that several policies share: the order of the samples, and how a run of them is cut.

namespace stepsim {

/// [rank] The sampler's shares of the data set.
[[nodiscard]] std::vector<RankOrder> rank_shares(const PolicyInput& input);

/// [rank] What `form` makes of each rank's share, which it takes by value: so that it is gone
/// before the next rank's batches are made. Of very many samples the shares fill the memory.
template <typename Form>
[[nodiscard]] EpochBatches form_shares(const PolicyInput& input, Form form) {
  EpochBatches result;
  for (RankOrder& share : rank_shares(input)) {
    result.push_back(form(std::move(share)));
  }
  return result;
}

/// Cuts `samples` in their order into batches of `batch_size`. The last one may be smaller, unless
/// drop_last leaves it out.
[[nodiscard]] Batches chunk(std::span<const std::int64_t> samples,
                            std::int64_t batch_size,
                            bool drop_last);

/// The order of the whole data set that the sampler deals out.
[[nodiscard]] std::vector<std::int64_t> sample_order(const PolicyInput& input);

/// torch.randperm(seed + epoch) of the whole data set; 0, 1, … without the sampler's shuffle.
[[nodiscard]] std::vector<std::int64_t> torch_order(const PolicyInput& input);

/// Closes a batch before the sample that would take samples * longest above `max_tokens`; a sample
/// above it runs alone. With max_batch_size, also before the sample beyond it.
[[nodiscard]] Batches fill_padded(std::span<const std::int64_t> samples,
                                  std::span<const std::int64_t> lengths,
                                  std::int64_t max_tokens,
                                  std::optional<std::int64_t> max_batch_size = {});

}  // namespace stepsim
