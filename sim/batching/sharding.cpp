#include "sim/batching/sharding.h"

#include <algorithm>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

/// The samples of the first `count` batches, repeated until there are at least `least`.
SampleIds repeated_head(const Batches& batches, std::size_t count, std::size_t least) {
  SampleIds head;
  for (std::size_t i = 0; i < std::min(count, batches.size()); ++i) {
    head.insert(head.end(), batches[i].begin(), batches[i].end());
  }
  while (!head.empty() && head.size() < least) {
    const auto size = static_cast<std::ptrdiff_t>(head.size());
    head.reserve(2 * head.size());
    std::copy_n(head.begin(), size, std::back_inserter(head));
  }
  return head;
}

void deal_rounds(const Batches& batches, std::size_t rounds, EpochBatches& result) {
  for (std::size_t i = 0; i < rounds * result.size(); ++i) {
    result[i % result.size()].push_back(batches[i]);
  }
}

EpochBatches whole_batches(const Batches& batches,
                           std::size_t ranks,
                           const AccelerateShard& options) {
  const auto size = static_cast<std::size_t>(options.batch_size);
  EpochBatches result(ranks);
  std::size_t rounds = batches.size() / ranks;
  if (rounds > 0 && batches.size() % ranks == 0 && batches.back().size() != size) {
    --rounds;
  }
  deal_rounds(batches, rounds, result);
  const std::size_t tail = rounds * ranks;
  if (tail == batches.size() || options.drop_last) {
    return result;
  }
  const SampleIds head = repeated_head(batches, ranks, ranks * size);
  auto next = head.begin();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SampleIds batch = tail + rank < batches.size() ? batches[tail + rank] : SampleIds();
    if (options.even_batches && batch.size() < size) {
      const auto missing = static_cast<std::ptrdiff_t>(size - batch.size());
      batch.insert(batch.end(), next, next + missing);
      next += missing;
    }
    if (!batch.empty()) {
      result[rank].push_back(std::move(batch));
    }
  }
  return result;
}

EpochBatches split_batches(const Batches& batches,
                           std::size_t ranks,
                           const AccelerateShard& options) {
  const auto size = static_cast<std::size_t>(options.batch_size);
  if (size % ranks != 0) {
    throw InputError(
        "split_batches: {} ranks do not divide a batch of {} samples", ranks, options.batch_size);
  }
  EpochBatches result(ranks);
  for (SampleIds batch : batches) {
    if (batch.size() < size && options.drop_last) {
      continue;
    }
    if (batch.size() < size && options.even_batches) {
      const SampleIds head = repeated_head(batches, 1, size);
      batch.insert(batch.end(), head.begin(), head.end());
    }
    const std::size_t part = size / ranks;
    for (std::size_t rank = 0; rank < ranks && rank * part < batch.size(); ++rank) {
      const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(rank * part);
      const std::size_t count = std::min(part, batch.size() - rank * part);
      result[rank].emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
  }
  return result;
}

}  // namespace

EpochBatches accelerate_shards(const Batches& batches, int ranks, const AccelerateShard& options) {
  const auto count = static_cast<std::size_t>(ranks);
  return options.split_batches ? split_batches(batches, count, options)
                               : whole_batches(batches, count, options);
}

Batches fairseq_shuffled(Batches batches, int ranks, std::uint64_t seed, bool grouped) {
  NumpyRandom random(static_cast<std::uint32_t>(seed));
  if (!grouped) {
    random.shuffle(std::span(batches));
    return batches;
  }
  const auto group = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> order;
  for (std::size_t first = 0; first + group <= batches.size(); first += group) {
    order.push_back(first);
  }
  random.shuffle(std::span(order));
  Batches shuffled;
  for (const std::size_t first : order) {
    for (std::size_t i = 0; i < group; ++i) {
      shuffled.push_back(std::move(batches[first + i]));
    }
  }
  return shuffled;
}

EpochBatches fairseq_shards(const Batches& batches, int ranks) {
  EpochBatches result(static_cast<std::size_t>(ranks));
  const std::size_t rounds = (batches.size() + result.size() - 1) / result.size();
  for (std::size_t i = 0; i < rounds * result.size(); ++i) {
    result[i % result.size()].push_back(i < batches.size() ? batches[i] : SampleIds());
  }
  return result;
}

EpochBatches lhotse_shards(const Batches& batches, int ranks, bool drop_last) {
  EpochBatches result = truncated_shards(batches, ranks);
  const std::size_t count = result.size();
  SampleIds rest;
  for (std::size_t i = batches.size() / count * count; i < batches.size(); ++i) {
    rest.insert(rest.end(), batches[i].begin(), batches[i].end());
  }
  if (rest.empty() || drop_last) {
    return result;
  }
  for (std::size_t i = 0; rest.size() < count; ++i) {
    rest.push_back(rest[i]);
  }
  auto begin = rest.begin();
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::size_t size = rest.size() / count + (rank < rest.size() % count ? 1 : 0);
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    result[rank].emplace_back(begin, end);
    begin = end;
  }
  return result;
}

EpochBatches truncated_shards(const Batches& batches, int ranks) {
  EpochBatches result(static_cast<std::size_t>(ranks));
  deal_rounds(batches, batches.size() / result.size(), result);
  return result;
}

EpochBatches contiguous_parts(const Batches& batches, int ranks) {
  EpochBatches result(static_cast<std::size_t>(ranks));
  for (const SampleIds& batch : batches) {
    if (batch.size() % result.size() != 0) {
      throw InputError("{} ranks do not divide a batch of {} samples", ranks, batch.size());
    }
    const auto part = static_cast<std::ptrdiff_t>(batch.size() / result.size());
    auto begin = batch.begin();
    for (Batches& rank : result) {
      rank.emplace_back(begin, begin + part);
      begin += part;
    }
  }
  return result;
}

EpochBatches strided_samples(const Batches& batches, int ranks) {
  EpochBatches result(static_cast<std::size_t>(ranks));
  for (const SampleIds& batch : batches) {
    if (batch.size() < result.size()) {
      throw InputError(
          "a batch of {} samples cannot be dealt out to {} ranks", batch.size(), ranks);
    }
    for (Batches& rank : result) {
      rank.emplace_back();
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      result[i % result.size()].back().push_back(batch[i]);
    }
  }
  return result;
}

}  // namespace stepsim
