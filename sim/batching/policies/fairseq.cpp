#include "sim/batching/policies/fairseq.h"

#include <algorithm>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

/// SampleIds in a row and the longest of them.
struct Group {
  SampleIds samples;
  std::int64_t longest = 0;

  void add(std::int64_t sample, std::int64_t length) {
    samples.push_back(sample);
    longest = std::max(longest, length);
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
};

/// A batch, and behind it samples that join it only when the multiple is reached.
class BatchBySize {
 public:
  BatchBySize(std::span<const std::int64_t> lengths, const FairseqBatching& options)
      : lengths_(lengths), options_(options) {}

  void add(std::int64_t sample) {
    const std::int64_t length = lengths_[static_cast<std::size_t>(sample)];
    tail_.add(sample, length);
    const std::int64_t size = batch_.size() + tail_.size();
    const std::int64_t longest = std::max(batch_.longest, tail_.longest);
    if (above(options_.max_sentences, size) || above(options_.max_tokens, size * longest)) {
      close(sample, length);
    } else if (size < options_.multiple || size % options_.multiple == 0) {
      batch_.samples.insert(batch_.samples.end(), tail_.samples.begin(), tail_.samples.end());
      batch_.longest = longest;
      tail_ = {};
    }
  }

  [[nodiscard]] Batches finish() {
    emit(std::move(batch_));
    emit(std::move(tail_));
    return std::move(batches_);
  }

 private:
  static bool above(const std::optional<std::int64_t>& limit, std::int64_t value) {
    return limit && value > *limit;
  }

  void close(std::int64_t sample, std::int64_t length) {
    emit(std::move(batch_));
    if (above(options_.max_tokens, tail_.size() * tail_.longest)) {
      tail_.samples.pop_back();
      emit(std::move(tail_));
      tail_ = {};
      tail_.add(sample, length);
    }
    batch_ = std::move(tail_);
    tail_ = {};
  }

  void emit(Group group) {
    if (!group.samples.empty()) {
      batches_.push_back(std::move(group.samples));
    }
  }

  std::span<const std::int64_t> lengths_;
  const FairseqBatching& options_;
  Batches batches_;
  Group batch_;
  Group tail_;
};

SampleIds ascending_order(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  SampleIds order;
  if (input.sampler.shuffle) {
    order = numpy_permutation(count, input.sampler.seed);
  } else {
    order = all_samples(input.lengths.size());
  }
  if (!input.targets.empty()) {
    sort_by_length(order, input.targets);
  }
  sort_by_length(order, input.lengths);
  return order;
}

/// [sample] the longer of its lengths.
SampleIds sizes_of(const PolicyInput& input) {
  SampleIds sizes(input.lengths.begin(), input.lengths.end());
  for (std::size_t i = 0; i < input.targets.size(); ++i) {
    sizes[i] = std::max(sizes[i], input.targets[i]);
  }
  return sizes;
}

EpochBatches dealt(Batches batches, const PolicyInput& input, bool grouped) {
  if (input.sampler.shuffle) {
    const std::uint64_t seed = input.sampler.seed + static_cast<std::uint64_t>(input.epoch) + 1;
    batches = fairseq_shuffled(std::move(batches), input.ranks, seed, grouped);
  }
  return input.sampler.drop_last ? truncated_shards(batches, input.ranks)
                                 : fairseq_shards(batches, input.ranks);
}

std::vector<std::pair<std::int64_t, std::int64_t>> shapes_of(const PolicyParameters& parameters) {
  const auto& sizes = parameters.integers("shape_batch_sizes");
  const auto& lengths = parameters.integers("shape_lengths");
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    shapes.emplace_back(sizes[i], lengths[i]);
  }
  return shapes;
}

void check_longest(const SampleIds& sizes, std::int64_t limit, std::string_view what) {
  const auto longest = std::ranges::max_element(sizes);
  if (longest != sizes.end() && *longest > limit) {
    throw InputError(
        "sample {} is {} tokens long, above {} {}", longest - sizes.begin(), *longest, what, limit);
  }
}

}  // namespace

Batches fairseq_batch_by_size(std::span<const std::int64_t> order,
                              std::span<const std::int64_t> lengths,
                              const FairseqBatching& options) {
  BatchBySize batches(lengths, options);
  for (const std::int64_t sample : order) {
    batches.add(sample);
  }
  return batches.finish();
}

void drop_ragged_batch(Batches& batches, std::int64_t multiple) {
  if (!batches.empty() && static_cast<std::int64_t>(batches.back().size()) % multiple != 0) {
    batches.pop_back();
  }
}

Batches fairseq_fixed_shapes(std::span<const std::int64_t> order,
                             std::span<const std::int64_t> lengths,
                             std::span<const std::pair<std::int64_t, std::int64_t>> shapes) {
  Batches batches;
  SampleIds batch;
  std::int64_t longest = 0;
  for (const std::int64_t sample : order) {
    longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
    const auto size = static_cast<std::int64_t>(batch.size()) + 1;
    const bool fits = std::ranges::any_of(
        shapes, [&](const auto& shape) { return shape.first >= size && shape.second >= longest; });
    if (!fits) {
      batches.push_back(std::move(batch));
      batch.clear();
      longest = 0;
    }
    batch.push_back(sample);
  }
  if (!batch.empty()) {
    batches.push_back(std::move(batch));
  }
  return batches;
}

EpochBatches fairseq_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  FairseqBatching options;
  options.max_tokens = parameters.maybe_integer("max_tokens");
  options.max_sentences = parameters.maybe_integer("max_sentences");
  options.multiple = parameters.integer("required_batch_size_multiple");
  const SampleIds sizes = sizes_of(input);
  if (options.max_tokens) {
    check_longest(sizes, *options.max_tokens, "max_tokens");
  }
  Batches batches = fairseq_batch_by_size(ascending_order(input), sizes, options);
  drop_ragged_batch(batches, options.multiple);
  return dealt(std::move(batches), input, parameters.flag("grouped_shuffling"));
}

void check_fairseq(const PolicyParameters& parameters) {
  if (!parameters.has("max_tokens") && !parameters.has("max_sentences")) {
    throw InputError("neither max_tokens nor max_sentences is given");
  }
}

EpochBatches fairseq_fixed_shapes_epoch(const PolicyParameters& parameters,
                                        const PolicyInput& input) {
  const auto shapes = shapes_of(parameters);
  std::int64_t longest = 0;
  for (const auto& [size, length] : shapes) {
    longest = std::max(longest, length);
  }
  const SampleIds sizes = sizes_of(input);
  check_longest(sizes, longest, "the longest of shape_lengths");
  return dealt(fairseq_fixed_shapes(ascending_order(input), sizes, shapes),
               input,
               parameters.flag("grouped_shuffling"));
}

void check_fairseq_fixed_shapes(const PolicyParameters& parameters) {
  const std::size_t sizes = parameters.integers("shape_batch_sizes").size();
  const std::size_t lengths = parameters.integers("shape_lengths").size();
  if (sizes == 0 || sizes != lengths) {
    throw InputError(
        "shape_batch_sizes has {} entries and shape_lengths {}; a shape is one of each",
        sizes,
        lengths);
  }
}

}  // namespace stepsim
