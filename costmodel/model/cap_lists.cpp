#include "costmodel/model/cap_lists.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/index.h"

namespace stepsim {

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

bool same_buckets(const std::vector<Bucket>& a, const std::vector<Bucket>& b) {
  return std::ranges::equal(a, b, {}, &Bucket::parameters, &Bucket::parameters);
}

/// The largest cap that closes the buckets which `cap` closed; none where it closed none.
std::optional<std::int64_t> last_cap(std::span<const BucketParameter> parameters,
                                     const std::vector<Bucket>& buckets,
                                     std::int64_t cap) {
  std::optional<std::int64_t> last;
  for (const Bucket& bucket : buckets) {
    const std::int64_t bytes = bucket_bytes(bucket, parameters);
    if (bucket.limit == cap && bytes >= cap) {
      last = std::min(last.value_or(bytes), bytes);
    }
  }
  return last;
}

/// The limits of both ranges; empty ones have a largest limit below the smallest.
CapRange both(const CapRange& a, const CapRange& b) {
  CapRange result{std::max(a.smallest, b.smallest), a.largest ? a.largest : b.largest};
  if (a.largest && b.largest) {
    result.largest = std::min(*a.largest, *b.largest);
  }
  return result;
}

bool is_empty(const CapRange& range) {
  return range.largest && *range.largest < range.smallest;
}

/// The limits that close a bucket of these tensors where it ends, or leave it open as the last one.
CapRange closing(std::span<const BucketParameter> parameters, const Bucket& bucket, bool last) {
  const std::int64_t bytes = bucket_bytes(bucket, parameters);
  const std::int64_t before = bytes - parameters[at(bucket.parameters.back())].bytes;
  return {before + 1, last ? std::nullopt : std::optional(bytes)};
}

}  // namespace

std::string mib_text(const CapRange& range) {
  const auto smallest = static_cast<double>(range.smallest);
  const double largest =
      range.largest ? static_cast<double>(*range.largest) : std::numeric_limits<double>::infinity();
  // 2^-20 has twenty decimal places, so that the loop ends at the smallest limit itself.
  double unit = 1;
  for (int places = 0; places < 20; ++places, unit *= 10) {
    const double written = std::ceil(smallest / static_cast<double>(kMebibyte) * unit) / unit;
    const double bytes = written * static_cast<double>(kMebibyte);
    if (bytes >= smallest && bytes <= largest) {
      return fmt::format("{:.{}f}", written, places);
    }
  }
  return fmt::format("{}", smallest / static_cast<double>(kMebibyte));
}

std::vector<CapList> cap_lists(std::span<const BucketParameter> parameters,
                               const std::function<std::vector<Bucket>(std::int64_t)>& fill) {
  std::vector<CapList> lists;
  std::optional<std::int64_t> last;
  for (std::int64_t cap = 1; lists.empty() || last; cap = *last + 1) {
    std::vector<Bucket> buckets = fill(cap);
    last = last_cap(parameters, buckets, cap);
    if (!lists.empty() && same_buckets(lists.back().buckets, buckets)) {
      lists.back().caps.largest = last;
    } else {
      lists.push_back({{cap, last}, std::move(buckets)});
    }
    if (!last) {
      break;
    }
  }
  return lists;
}

std::optional<std::vector<CapRange>> limit_ranges(std::span<const BucketParameter> parameters,
                                                  std::span<const Bucket> buckets) {
  std::map<std::string, std::vector<const Bucket*>> by_dtype;
  for (const Bucket& bucket : buckets) {
    const BucketParameter& first = parameters[at(bucket.parameters.front())];
    if (!first.sparse) {
      by_dtype[first.dtype].push_back(&bucket);
    }
  }
  std::vector<CapRange> ranges;
  for (const auto& [dtype, list] : by_dtype) {
    ranges.resize(std::max(ranges.size(), list.size()));
    for (std::size_t i = 0; i < list.size(); ++i) {
      ranges[i] = both(ranges[i], closing(parameters, *list[i], i + 1 == list.size()));
      if (is_empty(ranges[i])) {
        return std::nullopt;
      }
    }
  }
  while (ranges.size() > 1) {
    const CapRange shared = both(ranges[ranges.size() - 2], ranges.back());
    if (is_empty(shared)) {
      break;
    }
    ranges.pop_back();
    ranges.back() = shared;
  }
  return ranges;
}

}  // namespace stepsim
