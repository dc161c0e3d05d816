#include "sim/batching/policies/automodel.h"

#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/sharding.h"

namespace stepsim {

EpochBatches automodel_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  std::vector<std::int64_t> order;
  for (auto& window : chunk(torch_order(input), parameters.integer("sort_window"), false)) {
    sort_descending(window, input.lengths);
    order.insert(order.end(), window.begin(), window.end());
  }
  return truncated_shards(fill_padded(order,
                                      input.lengths,
                                      parameters.integer("max_tokens"),
                                      parameters.maybe_integer("max_batch_size")),
                          input.ranks);
}

SortWindow automodel_window(const PolicyParameters& parameters, std::int64_t /*samples*/) {
  return {"sort_window", parameters.integer("sort_window"), 1};
}

}  // namespace stepsim
