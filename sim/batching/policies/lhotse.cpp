#include "sim/batching/policies/lhotse.h"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

/// What a batch holds so far.
class Filling {
 public:
  explicit Filling(const LhotseLimit& limit) : limit_(&limit) {}

  void add(std::int64_t duration) {
    auto effective = static_cast<double>(duration);
    if (limit_->quadratic_duration) {
      effective += effective * effective / *limit_->quadratic_duration;
    }
    longest_ = std::max(longest_, effective);
    ++cuts_;
  }
  [[nodiscard]] bool close_to_limit() const {
    return (limit_->max_cuts && cuts_ >= *limit_->max_cuts) ||
           (limit_->max_duration &&
            static_cast<double>(cuts_ + 1) * longest_ > *limit_->max_duration);
  }

 private:
  const LhotseLimit* limit_;
  std::int64_t cuts_ = 0;
  double longest_ = 0;
};

/// Cuts in order of arrival, removed from anywhere, mostly from the front.
class CutQueue {
 public:
  [[nodiscard]] std::size_t size() const { return cuts_.size() - first_; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const { return cuts_[first_ + i]; }
  [[nodiscard]] auto begin() const { return cuts_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] auto end() const { return cuts_.end(); }
  void push_back(std::int64_t cut) { cuts_.push_back(cut); }

  void remove(std::vector<std::uint32_t> positions) {
    std::ranges::sort(positions);
    if (positions.back() + 1 == positions.size()) {
      first_ += positions.size();
    } else {
      close_gaps(positions);
    }
    if (2 * first_ > cuts_.size()) {
      cuts_.erase(cuts_.begin(), begin());
      first_ = 0;
    }
  }

 private:
  void close_gaps(const std::vector<std::uint32_t>& positions) {
    std::size_t kept = first_ + positions.front();
    auto next = positions.begin();
    for (std::size_t i = kept; i < cuts_.size(); ++i) {
      if (next != positions.end() && first_ + *next == i) {
        ++next;
      } else {
        cuts_[kept++] = cuts_[i];
      }
    }
    cuts_.resize(kept);
  }

  SampleIds cuts_;
  std::size_t first_ = 0;  ///< What stands before it is gone.
};

/// Draws batches from buckets that are refilled from `order`.
class Bucketer {
 public:
  Bucketer(std::span<const std::int64_t> order,
           std::span<const std::int64_t> durations,
           const LhotseBucketing& options,
           int ranks)
      : order_(order),
        durations_(durations),
        options_(options),
        ranks_(static_cast<std::size_t>(ranks)),
        buckets_(options.bins.size() + 1),
        random_(options.seed) {
    fill(options.buffer_size);
  }

  [[nodiscard]] Batches all() {
    Batches batches;
    for (auto bucket = next_bucket(batches.size()); bucket; bucket = next_bucket(batches.size())) {
      batches.push_back(draw(*bucket));
      fill(static_cast<std::int64_t>(batches.back().size()));
    }
    return batches;
  }

 private:
  struct Bucket {
    CutQueue cuts;
    bool ready = false;  ///< They fill a batch in order of arrival.
  };

  void fill(std::int64_t count) {
    for (; count > 0 && next_ < order_.size(); --count, ++next_) {
      const std::int64_t duration = durations_[static_cast<std::size_t>(order_[next_])];
      const auto index = static_cast<std::size_t>(
          std::lower_bound(options_.bins.begin(), options_.bins.end(), duration) -
          options_.bins.begin());
      buckets_[index].cuts.push_back(order_[next_]);
      if (!buckets_[index].ready) {
        update(index);
      }
    }
  }

  void update(std::size_t index) {
    Filling filling(limit(index));
    Bucket& bucket = buckets_[index];
    bucket.ready = std::ranges::any_of(bucket.cuts, [&](std::int64_t cut) {
      filling.add(durations_[static_cast<std::size_t>(cut)]);
      return filling.close_to_limit();
    });
  }

  [[nodiscard]] const LhotseLimit& limit(std::size_t index) const {
    return options_.limits.size() == 1 ? options_.limits.front() : options_.limits[index];
  }

  /// The bucket of the next batch; nothing at the end of the epoch.
  std::optional<std::size_t> next_bucket(std::size_t drawn) {
    const auto is_ready = [this](std::size_t i) { return buckets_[i].ready; };
    const auto is_filled = [this](std::size_t i) { return !buckets_[i].cuts.empty(); };
    if (!options_.sync_buckets) {
      return chosen(is_ready);
    }
    if (drawn % ranks_ == 0) {
      first_choice_ = static_cast<std::size_t>(choices_.below(buckets_.size()));
    }
    auto found = nearest(is_ready);
    if (!found && !options_.drop_last) {
      found = nearest(is_filled);
    }
    return found;
  }

  /// A ready bucket at random; when there is none any bucket, of which an empty one ends the epoch.
  template <typename Ready>
  std::optional<std::size_t> chosen(Ready is_ready) {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (is_ready(i)) {
        candidates.push_back(i);
      }
    }
    if (!candidates.empty()) {
      return candidates[static_cast<std::size_t>(random_.below(candidates.size()))];
    }
    if (options_.drop_last) {
      return std::nullopt;
    }
    const auto any = static_cast<std::size_t>(random_.below(buckets_.size()));
    return buckets_[any].cuts.empty() ? std::nullopt : std::optional(any);
  }

  /// The first that fits of i, i - 1, i + 1, i - 2, … around the first choice.
  template <typename Fits>
  [[nodiscard]] std::optional<std::size_t> nearest(Fits fits) const {
    for (std::size_t distance = 0; distance < buckets_.size(); ++distance) {
      if (distance <= first_choice_ && fits(first_choice_ - distance)) {
        return first_choice_ - distance;
      }
      if (first_choice_ + distance < buckets_.size() && fits(first_choice_ + distance)) {
        return first_choice_ + distance;
      }
    }
    return std::nullopt;
  }

  SampleIds draw(std::size_t index) {
    CutQueue& cuts = buckets_[index].cuts;
    std::vector<std::uint32_t> positions(cuts.size());
    std::iota(positions.begin(), positions.end(), 0U);
    if (options_.shuffle) {
      random_.shuffle(std::span(positions));
    }
    Filling filling(limit(index));
    SampleIds batch;
    for (const std::uint32_t position : positions) {
      batch.push_back(cuts[position]);
      filling.add(durations_[static_cast<std::size_t>(cuts[position])]);
      if (filling.close_to_limit()) {
        break;
      }
    }
    positions.resize(batch.size());
    cuts.remove(std::move(positions));
    update(index);
    return batch;
  }

  std::span<const std::int64_t> order_;
  std::span<const std::int64_t> durations_;
  const LhotseBucketing& options_;
  std::size_t ranks_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;          ///< Position in order_ of the next cut.
  PythonRandom choices_{1234};    ///< Draws buckets; equal on all ranks (worker 0).
  std::size_t first_choice_ = 0;  ///< The bucket that the step tries first.
  PythonRandom random_;
};

LhotseLimit limit_of(const PolicyParameters& parameters) {
  return {parameters.maybe_number("max_duration"),
          parameters.maybe_integer("max_cuts"),
          parameters.maybe_number("quadratic_duration")};
}

}  // namespace

LhotseBucketing lhotse_bucketing(const PolicyParameters& parameters, const PolicyInput& input) {
  LhotseBucketing options;
  options.buffer_size = parameters.integer("buffer_size");
  options.sync_buckets = parameters.flag("sync_buckets");
  options.shuffle = input.sampler.shuffle;
  options.drop_last = input.sampler.drop_last;
  options.seed = input.sampler.seed + static_cast<std::uint64_t>(input.epoch);
  return options;
}

Batches lhotse_cuts(std::span<const std::int64_t> order,
                    std::span<const std::int64_t> durations,
                    const LhotseLimit& limit,
                    bool drop_last) {
  Batches batches;
  SampleIds batch;
  Filling filling(limit);
  for (const std::int64_t cut : order) {
    batch.push_back(cut);
    filling.add(durations[static_cast<std::size_t>(cut)]);
    if (filling.close_to_limit()) {
      batches.push_back(std::move(batch));
      batch.clear();
      filling = Filling(limit);
    }
  }
  if (!batch.empty() && !drop_last) {
    batches.push_back(std::move(batch));
  }
  return batches;
}

SampleIds lhotse_duration_bins(SampleIds durations, std::int64_t num_buckets) {
  std::ranges::sort(durations);
  const double sum =
      static_cast<double>(std::accumulate(durations.begin(), durations.end(), std::int64_t{0}));
  const double per_bucket = sum / static_cast<double>(num_buckets);
  SampleIds bins;
  double total = 0;
  for (const std::int64_t duration : durations) {
    if (total > per_bucket) {
      bins.push_back(duration);
      total = 0;
    }
    total += static_cast<double>(duration);
  }
  return bins;
}

Batches lhotse_buckets(std::span<const std::int64_t> order,
                       std::span<const std::int64_t> durations,
                       const LhotseBucketing& options,
                       int ranks) {
  return Bucketer(order, durations, options, ranks).all();
}

EpochBatches lhotse_dynamic_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const bool drop_last = input.sampler.drop_last;
  const Batches batches =
      lhotse_cuts(sample_order(input), input.lengths, limit_of(parameters), drop_last);
  return lhotse_shards(batches, input.ranks, drop_last);
}

EpochBatches lhotse_bucketing_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  LhotseBucketing options = lhotse_bucketing(parameters, input);
  const auto estimated = static_cast<std::size_t>(parameters.integer("num_cuts_for_bins_estimate"));
  const auto sample = input.lengths.first(std::min(estimated, input.lengths.size()));
  options.bins = lhotse_duration_bins(SampleIds(sample.begin(), sample.end()),
                                      parameters.integer("num_buckets"));
  options.limits = {limit_of(parameters)};
  return lhotse_shards(
      lhotse_buckets(all_samples(input.lengths.size()), input.lengths, options, input.ranks),
      input.ranks,
      options.drop_last);
}

void check_lhotse(const PolicyParameters& parameters) {
  if (!parameters.has("max_duration") && !parameters.has("max_cuts")) {
    throw InputError("neither max_duration nor max_cuts is given");
  }
}

}  // namespace stepsim
