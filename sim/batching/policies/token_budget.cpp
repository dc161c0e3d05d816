#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

/// As many samples as fit into `max_tokens` padded tokens, in ascending length, as in the
/// token-skew lab. A sample longer than the budget forms a batch alone.
///
/// Ranks have different numbers of batches, so their second shuffles differ: only the budget keeps
/// them similar. drop_last has no further effect here: a batch has no set size to fall short of.
class TokenBudgetPolicy : public BatchingPolicy {
 public:
  explicit TokenBudgetPolicy(std::int64_t max_tokens) : max_tokens_(max_tokens) {}

  [[nodiscard]] EpochBatches epoch(const PolicyInput& input) const override {
    EpochBatches result;
    const auto count = static_cast<std::int64_t>(input.lengths.size());
    for (auto& order : rank_orders(input.sampler, count, input.ranks, input.epoch)) {
      sort_by_length(order.samples, input.lengths);
      auto batches = fill(order.samples, input.lengths);
      if (input.sampler.shuffle) {
        order.random.shuffle(std::span(batches));
      }
      result.push_back(std::move(batches));
    }
    return result;
  }

 private:
  /// `samples` ascend in length, so a batch is as long as its last sample.
  [[nodiscard]] Batches fill(std::span<const std::int64_t> samples,
                             std::span<const std::int64_t> lengths) const {
    Batches batches;
    std::vector<std::int64_t> current;
    for (const std::int64_t sample : samples) {
      const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
      const auto rows = static_cast<std::int64_t>(current.size()) + 1;
      if (!current.empty() && length * rows > max_tokens_) {
        batches.push_back(std::move(current));
        current.clear();
      }
      current.push_back(sample);
    }
    if (!current.empty()) {
      batches.push_back(std::move(current));
    }
    return batches;
  }

  std::int64_t max_tokens_;
};

}  // namespace

std::unique_ptr<BatchingPolicy> make_token_budget(const PolicySpec& spec) {
  return std::make_unique<TokenBudgetPolicy>(spec.max_tokens);
}

}  // namespace stepsim
