#include "sim/batching/rank_schedule.h"

#include <algorithm>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/packing.h"
#include "sim/batching/algorithms/partition.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

/// The fullest batch of several samples, the last of equals, loses its lighter half to a new batch
/// at the end.
void halve_fullest(Packs& batches, std::span<const std::int64_t> lengths) {
  std::size_t fullest = batches.size();
  std::int64_t most = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::int64_t tokens = tokens_of(lengths, batches[i]);
    if (batches[i].size() > 1 && tokens >= most) {
      fullest = i;
      most = tokens;
    }
  }
  if (fullest == batches.size()) {
    throw InputError(fmt::format("{} micro-batches of one sample each cannot be dealt out evenly",
                                 batches.size()));
  }
  const Parts halves = longest_processing_time(lengths_of(lengths, batches[fullest]), 2);
  const auto samples_of = [&](std::vector<std::int64_t> half) {
    for (auto& index : half) {
      index = batches[fullest][static_cast<std::size_t>(index)];
    }
    return half;
  };
  std::vector<std::int64_t> right = samples_of(halves[1]);
  batches[fullest] = samples_of(halves[0]);
  batches.push_back(std::move(right));
}

Packs micro_batches(std::span<const std::int64_t> lengths, const SlimeSchedule& options) {
  const auto order = all_samples(lengths.size());
  const auto ranks = static_cast<std::size_t>(options.ranks);
  if (options.max_tokens) {
    Packs batches = pack_first_fit(order, lengths, {*options.max_tokens, {}, {}});
    while (batches.size() % ranks != 0) {
      halve_fullest(batches, lengths);
    }
    return batches;
  }
  Packs batches;
  const auto size = static_cast<std::size_t>(options.micro_batch_size);
  for (std::size_t begin = 0; begin < order.size(); begin += size) {
    batches.emplace_back(
        order.begin() + static_cast<std::ptrdiff_t>(begin),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), begin + size)));
  }
  if (batches.size() % ranks != 0) {
    throw InputError(
        fmt::format("{} micro-batches do not divide over {} ranks", batches.size(), ranks));
  }
  return batches;
}

}  // namespace

std::int64_t decoder_operations(const DecoderSizes& sizes, std::int64_t tokens) {
  const std::int64_t inner = sizes.heads * sizes.head_size;
  const std::int64_t projected = 2 * tokens * sizes.hidden * inner +
                                 4 * tokens * sizes.hidden * sizes.query_groups * sizes.head_size;
  const std::int64_t attention = 2 * inner * tokens * tokens;
  const std::int64_t dense =
      2 * tokens * sizes.hidden * sizes.hidden + 6 * tokens * sizes.hidden * sizes.feed_forward;
  return sizes.layers * (projected + attention + dense) +
         2 * tokens * sizes.hidden * sizes.vocabulary;
}

RankMicroBatches slime_schedule(std::span<const std::int64_t> lengths,
                                const SlimeSchedule& options) {
  Packs batches = micro_batches(lengths, options);
  const auto ranks = static_cast<std::size_t>(options.ranks);
  RankMicroBatches result(ranks);
  if (!options.balance) {
    for (std::size_t i = 0; i < batches.size(); ++i) {
      result[i % ranks].push_back(std::move(batches[i]));
    }
    return result;
  }
  std::vector<std::int64_t> operations;
  for (const auto& batch : batches) {
    std::int64_t sum = 0;
    for (const std::int64_t sample : batch) {
      sum += decoder_operations(*options.balance, length_of(lengths, sample));
    }
    operations.push_back(sum);
  }
  const Parts parts = karmarkar_karp(operations, options.ranks, true);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const std::int64_t batch : parts[rank]) {
      result[rank].push_back(std::move(batches[static_cast<std::size_t>(batch)]));
    }
  }
  return result;
}

StreamedRows stream_rows(std::span<const std::int64_t> order,
                         std::span<const std::int64_t> lengths,
                         int ranks,
                         std::int64_t token_budget) {
  struct Row {
    std::vector<std::int64_t> samples;
    std::int64_t tokens = 0;
    std::int64_t squares = 0;
  };
  StreamedRows result;
  std::vector<Row> rows(static_cast<std::size_t>(ranks));
  const auto samples_of = [&rows] {
    std::vector<std::vector<std::int64_t>> all;
    for (Row& row : rows) {
      all.push_back(std::move(row.samples));
    }
    return all;
  };
  for (const std::int64_t sample : order) {
    const std::int64_t length = length_of(lengths, sample);
    if (length > token_budget) {
      result.dropped.push_back(sample);
      continue;
    }
    Row* best = nullptr;
    for (Row& row : rows) {
      if (row.tokens + length <= token_budget && (best == nullptr || row.squares < best->squares)) {
        best = &row;
      }
    }
    if (best == nullptr) {
      result.steps.push_back(samples_of());
      rows.assign(rows.size(), Row());
      best = &rows.front();
    }
    best->samples.push_back(sample);
    best->tokens += length;
    best->squares += length * length;
  }
  result.unfinished = samples_of();
  return result;
}

std::vector<std::vector<std::int64_t>> sorted_groups(std::span<const std::int64_t> lengths,
                                                     std::int64_t size) {
  auto order = all_samples(lengths.size());
  std::stable_sort(order.begin(), order.end(), [lengths](std::int64_t a, std::int64_t b) {
    return length_of(lengths, a) < length_of(lengths, b);
  });
  std::vector<std::vector<std::int64_t>> groups;
  for (auto begin = order.begin(); order.end() - begin >= size; begin += size) {
    groups.emplace_back(begin, begin + size);
  }
  return groups;
}

std::vector<std::int64_t> cumulative_lengths(std::span<const std::int64_t> lengths,
                                             std::optional<std::int64_t> slots) {
  std::vector<std::int64_t> ends = {0};
  for (const std::int64_t length : lengths) {
    ends.push_back(ends.back() + length);
  }
  if (slots) {
    const auto most = static_cast<std::size_t>(*slots);
    if (ends.size() > most) {
      throw InputError(fmt::format(
          "{} documents need {} slots; there are {}", lengths.size(), ends.size(), most));
    }
    ends.resize(most, ends.back());
  }
  return ends;
}

std::int64_t document_slots(std::int64_t documents, std::int64_t step) {
  return (documents + step - 1) / step * step;
}

}  // namespace stepsim
