#include "tests/oracles/published_batching.h"

#include <algorithm>
#include <functional>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/packing.h"
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

SampleIds descending(std::span<const std::int64_t> values) {
  SampleIds order = all_samples(values.size());
  std::stable_sort(order.begin(), order.end(), [values](std::int64_t a, std::int64_t b) {
    return length_of(values, a) > length_of(values, b);
  });
  return order;
}

void check_parts(std::int64_t parts, std::size_t most) {
  if (parts < 1 || parts > static_cast<std::int64_t>(most)) {
    throw InputError(fmt::format("partition: {} values into {} parts", most, parts));
  }
}

/// [part] where the next one begins: `parts` consecutive chunks of 0 .. count - 1 for which the
/// fold of all chunks' values is least. Earlier ends are preferred, from the back.
template <typename Value, typename Fold>
std::vector<std::size_t> best_ends(std::size_t count, std::size_t parts, Value value, Fold fold) {
  // best[p][i]: the first i in p chunks; from[p][i]: where the last of these begins.
  std::vector<std::vector<std::int64_t>> best(parts + 1, SampleIds(count + 1, -1));
  std::vector<std::vector<std::size_t>> from(parts + 1, std::vector<std::size_t>(count + 1));
  best[0][0] = 0;
  for (std::size_t part = 1; part <= parts; ++part) {
    for (std::size_t end = part; end <= count; ++end) {
      for (std::size_t begin = part - 1; begin < end; ++begin) {
        if (best[part - 1][begin] < 0) {
          continue;
        }
        const std::int64_t all = fold(best[part - 1][begin], value(begin, end));
        if (best[part][end] < 0 || all < best[part][end]) {
          best[part][end] = all;
          from[part][end] = begin;
        }
      }
    }
  }
  std::vector<std::size_t> ends(parts);
  std::size_t end = count;
  for (std::size_t part = parts; part > 0; --part) {
    ends[part - 1] = end;
    end = from[part][end];
  }
  return ends;
}

Parts cut(const SampleIds& order, const std::vector<std::size_t>& ends) {
  Parts parts;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return parts;
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

bool first_fit_decreasing_fits(std::span<const std::int64_t> lengths,
                               std::int64_t capacity,
                               std::int64_t packs) {
  SampleIds order = all_samples(lengths.size());
  std::stable_sort(order.begin(), order.end(), [lengths](std::int64_t a, std::int64_t b) {
    return length_of(lengths, a) > length_of(lengths, b);
  });
  const bool too_long = !order.empty() && length_of(lengths, order.front()) > capacity;
  const Packs used = pack_first_fit(order, lengths, {capacity, {}, {}});
  return !too_long && static_cast<std::int64_t>(used.size()) <= packs;
}

Parts chunk_by_sum(std::span<const std::int64_t> values, std::int64_t parts) {
  check_parts(parts, values.size());
  const SampleIds order = descending(values);
  std::vector<std::int64_t> before = {0};  // before[i]: sum of the first i of the order
  for (const std::int64_t index : order) {
    before.push_back(before.back() + length_of(values, index));
  }
  const auto sum = [&before](std::size_t begin, std::size_t end) {
    return before[end] - before[begin];
  };
  const auto larger = [](std::int64_t a, std::int64_t b) { return std::max(a, b); };
  return cut(order, best_ends(order.size(), static_cast<std::size_t>(parts), sum, larger));
}

Parts buckets_of_least_padding(std::span<const std::int64_t> lengths, std::int64_t buckets) {
  check_parts(buckets, lengths.size());
  SampleIds order = all_samples(lengths.size());
  std::stable_sort(order.begin(), order.end(), [lengths](std::int64_t a, std::int64_t b) {
    return length_of(lengths, a) < length_of(lengths, b);
  });
  // Padded tokens: the useful ones are the same in every solution.
  const auto padded = [&](std::size_t begin, std::size_t end) {
    return static_cast<std::int64_t>(end - begin) * length_of(lengths, order[end - 1]);
  };
  return cut(order,
             best_ends(order.size(), static_cast<std::size_t>(buckets), padded, std::plus<>()));
}

}  // namespace stepsim
