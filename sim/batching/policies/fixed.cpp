#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

/// PyTorch's default: sampler order, BatchSampler(batch_size, drop_last), padded by the collator.
class FixedPolicy : public BatchingPolicy {
 public:
  explicit FixedPolicy(std::int64_t batch_size) : batch_size_(batch_size) {}

  [[nodiscard]] EpochBatches epoch(const PolicyInput& input) const override {
    EpochBatches result;
    const auto count = static_cast<std::int64_t>(input.lengths.size());
    for (const auto& order : rank_orders(input.sampler, count, input.ranks, input.epoch)) {
      result.push_back(chunk(order.samples, batch_size_, input.sampler.drop_last));
    }
    return result;
  }

 private:
  std::int64_t batch_size_;
};

}  // namespace

std::unique_ptr<BatchingPolicy> make_fixed(const PolicySpec& spec) {
  return std::make_unique<FixedPolicy>(spec.batch_size);
}

}  // namespace stepsim
