#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

/// Length bucketing by a sort inside each rank, as in the token-skew lab.
///
/// Ranks with equal numbers of batches draw the same second shuffle, so they stay aligned in
/// length. Without the sampler's shuffle the batches stay in ascending order.
class BucketedPolicy : public BatchingPolicy {
 public:
  explicit BucketedPolicy(std::int64_t batch_size) : batch_size_(batch_size) {}

  [[nodiscard]] EpochBatches epoch(const PolicyInput& input) const override {
    EpochBatches result;
    const auto count = static_cast<std::int64_t>(input.lengths.size());
    for (auto& order : rank_orders(input.sampler, count, input.ranks, input.epoch)) {
      sort_by_length(order.samples, input.lengths);
      auto batches = chunk(order.samples, batch_size_, input.sampler.drop_last);
      if (input.sampler.shuffle) {
        order.random.shuffle(std::span(batches));
      }
      result.push_back(std::move(batches));
    }
    return result;
  }

 private:
  std::int64_t batch_size_;
};

}  // namespace

std::unique_ptr<BatchingPolicy> make_bucketed(const PolicySpec& spec) {
  return std::make_unique<BucketedPolicy>(spec.batch_size);
}

}  // namespace stepsim
