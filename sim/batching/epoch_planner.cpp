#include "sim/batching/epoch_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "costmodel/base/content_id.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/batch_shape.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/varlen_epoch.h"

namespace stepsim {
namespace {

void check_lengths(std::span<const std::int64_t> lengths, int ranks) {
  if (lengths.empty()) {
    throw InputError("there are no samples");
  }
  if (std::ssize(lengths) > kMaxSampleCount) {
    throw InputError("{} samples, but at most {} are taken", lengths.size(), kMaxSampleCount);
  }
  const auto wrong = std::ranges::find_if(
      lengths, [](std::int64_t length) { return length < 1 || length > kMaxSampleLength; });
  if (wrong != lengths.end()) {
    throw InputError("sample {} has length {}; expected 1 to {} tokens",
                     wrong - lengths.begin(),
                     *wrong,
                     kMaxSampleLength);
  }
  if (ranks < 1 || static_cast<std::size_t>(ranks) > lengths.size()) {
    throw InputError(
        "{} ranks for {} samples: there must be at least one a rank", ranks, lengths.size());
  }
}

}  // namespace

PlannedEpoch::PlannedEpoch(const BatchingPolicy& policy,
                           std::span<const std::int64_t> lengths,
                           EpochPlan epoch,
                           UnevenRanks uneven)
    : policy_(&policy), lengths_(lengths), epoch_(std::move(epoch)), uneven_(uneven) {
  const std::vector<std::int64_t> batches = batches_by_rank();
  const auto [fewest, most] = std::ranges::minmax(batches);
  if (fewest == 0) {
    throw InputError(
        "rank {} has no batch at all: of {} samples over {} ranks the policy keeps too few; they "
        "are longer than it takes, or do not fill a step",
        std::ranges::find(batches, 0) - batches.begin(),
        lengths.size(),
        batches.size());
  }
  steps_ = uneven == UnevenRanks::Drop ? fewest : most;
}

std::vector<std::int64_t> PlannedEpoch::batches_by_rank() const {
  return mapped(epoch_.batches, [](const Batches& own) { return std::ssize(own); });
}

RankEpoch PlannedEpoch::rank(int rank) const {
  RankEpoch result;
  std::size_t samples = 0;
  for (std::int64_t step = 0; step < steps_; ++step) {
    samples += batch(at(rank), step).size();
  }
  result.samples.reserve(samples);
  result.offsets.push_back(0);
  const auto units = [&](std::size_t of_rank, std::int64_t step) {
    const std::vector<std::int64_t>& ids = batch(of_rank, step);
    if (policy_->weighting() == LossWeighting::Sample) {
      return static_cast<double>(ids.size());
    }
    return static_cast<double>(sum_of(ids, [&](std::int64_t id) {
      return epoch_.pieces.empty() ? lengths_[at(id)] : epoch_.pieces[at(id)].length;
    }));
  };
  const bool weighted = policy_->weighting() != LossWeighting::None;
  const auto ranks = epoch_.batches.size();
  for (std::int64_t step = 0; step < steps_; ++step) {
    std::int64_t longest = 0;
    std::int64_t tokens = 0;
    for (const std::int64_t id : batch(at(rank), step)) {
      const Piece piece =
          epoch_.pieces.empty() ? Piece{id, 0, lengths_[at(id)]} : epoch_.pieces[at(id)];
      result.samples.push_back(piece.sample);
      if (!epoch_.pieces.empty()) {
        result.starts.push_back(piece.offset);
        result.lengths.push_back(piece.length);
      }
      longest = std::max(longest, piece.length);
      tokens += piece.length;
    }
    result.offsets.push_back(std::ssize(result.samples));
    result.useful_tokens.push_back(tokens);
    result.padded_lengths.push_back(policy_->is_varlen() ? longest
                                                         : policy_->padded_length(longest, epoch_));
    double all = 0;
    for (std::size_t other = 0; weighted && other < ranks; ++other) {
      all += units(other, step);
    }
    result.all_units.push_back(all);
    result.loss_scales.push_back(
        weighted
            ? loss_scale(policy_->weighting(), units(at(rank), step), all, static_cast<int>(ranks))
            : 1);
  }
  return result;
}

std::vector<Piece> PlannedEpoch::visits(int rank) const {
  std::vector<Piece> result;
  for (std::int64_t step = 0; step < steps_; ++step) {
    const std::vector<Piece> own = epoch_.pieces_of(batch(at(rank), step), lengths_);
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

std::vector<std::int64_t> PlannedEpoch::left_after(std::int64_t steps) const {
  const bool whole = epoch_.pieces.empty();
  std::vector<bool> seen(whole ? lengths_.size() : epoch_.pieces.size());  // [id]
  std::vector<bool> is_left(lengths_.size());                              // [sample]
  for (const bool later : {false, true}) {
    for (std::size_t rank = 0; rank < epoch_.batches.size(); ++rank) {
      // A second time round shows a rank nothing new.
      const std::int64_t own = std::min(steps_, std::ssize(epoch_.batches[rank]));
      const std::int64_t first = later ? std::min(steps, own) : 0;
      const std::int64_t end = later ? own : std::min(steps, own);
      for (std::int64_t step = first; step < end; ++step) {
        for (const std::int64_t id : batch(rank, step)) {
          if (!later) {
            seen[at(id)] = true;
          } else if (!seen[at(id)]) {
            is_left[at(whole ? id : epoch_.pieces[at(id)].sample)] = true;
          }
        }
      }
    }
  }
  std::vector<std::int64_t> left;
  for (std::int64_t sample = 0; sample < std::ssize(is_left); ++sample) {
    if (is_left[at(sample)]) {
      left.push_back(sample);
    }
  }
  return left;
}

std::string PlannedEpoch::check_value() const {
  std::vector<std::int64_t> words = {steps_};
  for (const Batches& own : epoch_.batches) {
    words.push_back(std::ssize(own));
    for (const std::vector<std::int64_t>& ids : own) {
      words.push_back(std::ssize(ids));
      words.insert(words.end(), ids.begin(), ids.end());
    }
  }
  for (const Piece& piece : epoch_.pieces) {
    words.insert(words.end(), {piece.sample, piece.offset, piece.length});
  }
  words.insert(words.end(), epoch_.pad_to_lengths.begin(), epoch_.pad_to_lengths.end());
  return content_id(
      {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::int64_t)});
}

EpochPlanner::EpochPlanner(BatchingPolicy policy,
                           std::vector<std::int64_t> lengths,
                           PlannerOptions options)
    : policy_(std::move(policy)), drawn_(std::move(lengths)), options_(std::move(options)) {
  if (policy_.played() != nullptr) {
    throw InputError("policy '{}' plays the batches of a file, which has lengths of its own",
                     printable(policy_.name()));
  }
  check_lengths(drawn_, options_.ranks);
  lengths_ =
      policy_.is_varlen() && !policy_.cuts() ? cut_lengths(drawn_, policy_.varlen()) : drawn_;
}

PlannedEpoch EpochPlanner::epoch(int number) const {
  PolicyInput input;
  input.lengths = lengths_;
  input.sampler = options_.sampler;
  input.ranks = options_.ranks;
  input.epoch = number;
  input.step_cost = options_.step_cost;
  input.shape_seconds = options_.shape_seconds;
  EpochPlan epoch = policy_.epoch(input);
  if (policy_.is_varlen()) {
    (void)fit_into_slots(epoch, drawn_, policy_.varlen(), true);
  }
  return {policy_, lengths_, std::move(epoch), options_.uneven};
}

}  // namespace stepsim
