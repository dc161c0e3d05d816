#include "sim/predict/draws/folded_steps.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

FoldedSteps::FoldedSteps(
    const Run& run, const PlainStep& step, std::size_t first, std::size_t last, DrawnRanges ranges)
    : run_(run), step_(step), ranges_(std::move(ranges)), first_(first), added_(1) {
  find_kinds(last);
  const StepSchedule& schedule = step.schedule;
  forward_ = pass(schedule.forward, HeldUp::ByForward);
  for (std::size_t b = 0; b < schedule.backward.size(); ++b) {
    const std::vector<std::int32_t>& work = schedule.backward[b];
    backward_.push_back(b == 0 ? pass(work, HeldUp::ByBackward)
                               : std::vector<FoldedSpan>{span(work, HeldUp::No)});
  }
  model_suffixes_ = suffixes_.size();
  copy_out_ = mapped(schedule.copy_out,
                     [&](const std::vector<std::int32_t>& work) { return span(work, HeldUp::No); });
  optimizer_ = span(schedule.optimizer, HeldUp::No);
  fill_rows();
}

bool FoldedSteps::copies_nothing() const {
  return std::ranges::all_of(copy_out_, [](const FoldedSpan& span) { return span.suffixes == 0; });
}

void FoldedSteps::find_kinds(std::size_t last) {
  std::unordered_map<const PricedBatch*, std::uint32_t> known;
  for (std::size_t i = first_; i < last; ++i) {
    const PricedBatch* batch = &run_.priced_batch(i);
    const auto [place, is_new] =
        known.emplace(batch, static_cast<std::uint32_t>(different_.size()));
    if (is_new) {
      different_.push_back(batch);
    }
    kinds_.push_back(place->second);
  }
}

std::vector<FoldedSteps::FoldedSpan> FoldedSteps::pass(const std::vector<std::int32_t>& work,
                                                       HeldUp by) {
  // What holds up a pass holds up its first op of the model, as in StepLowering::fold().
  const auto held =
      std::ranges::find_if(work, [&](std::int32_t one) { return run_.pricer().is_of_model(one); });
  if (run_.loads().shape_stalls.empty() || held == work.end()) {
    return {span(work, HeldUp::No)};
  }
  return {span({work.begin(), held}, HeldUp::No),
          span({*held}, by),
          span({held + 1, work.end()}, HeldUp::No)};
}

FoldedSteps::FoldedSpan FoldedSteps::span(const std::vector<std::int32_t>& work, HeldUp held_up) {
  FoldedSpan span;
  span.first_suffix = suffixes_.size();
  span.launches = static_cast<double>(work.size());
  span.held_up = held_up;
  if (work.empty()) {
    return span;
  }
  const bool launches = run_.pricer().launch_seconds() > 0;
  std::map<std::size_t, std::vector<bool>> critical;  // [op][kind]
  critical[0].assign(different_.size(), true);
  for (std::size_t kind = 0; launches && kind < different_.size(); ++kind) {
    for (const std::size_t start : critical_starts(*different_[kind], work)) {
      critical[start].resize(different_.size());
      critical[start][kind] = true;
    }
  }
  for (const auto& [start, of_kinds] : critical) {
    suffixes_.push_back(suffix(work, start));
    critical_.push_back(of_kinds);
    ++span.suffixes;
  }
  return span;
}

/// Compares each start with the one that was kept last: by the work in between, which only the
/// earlier one has, and the launches, of which the later one has more.
std::vector<std::size_t> FoldedSteps::critical_starts(const PricedBatch& batch,
                                                      const std::vector<std::int32_t>& work) const {
  const double launch = run_.pricer().launch_seconds();
  std::size_t kept = 0;
  double least_work = 0;
  double most_work = 0;
  const auto keep = [&](std::size_t start) {
    kept = start;
    least_work = 0;
    most_work = 0;
  };
  std::vector<std::size_t> starts;
  for (std::size_t i = 1; i < work.size(); ++i) {
    const std::int32_t before = work[i - 1];
    const FactorRange& group = ranges_.groups[run_.pricer().group_of(before)];
    const bool loaded = run_.pricer().is_of_model(before);
    const double seconds = run_.pricer().seconds_of(batch, before);
    least_work +=
        seconds * ranges_.slowness.least * group.least * (loaded ? ranges_.load.least : 1);
    most_work += seconds * ranges_.slowness.most * group.most * (loaded ? ranges_.load.most : 1);
    const auto launches = static_cast<double>(i - kept) * launch;
    if (least_work >= launches * ranges_.host.most) {
      continue;  // The earlier start is never behind this one.
    }
    if (most_work > launches * ranges_.host.least) {
      starts.push_back(kept);  // Either can be ahead.
    }
    keep(i);
  }
  starts.push_back(kept);
  return starts;
}

FoldedSteps::Suffix FoldedSteps::suffix(const std::vector<std::int32_t>& work, std::size_t start) {
  Suffix result;
  result.launched = static_cast<double>(start + 1);
  std::map<std::size_t, std::size_t> column_of_group;
  std::map<std::size_t, double> ddp_of_group;
  for (std::size_t i = start; i < work.size(); ++i) {
    const std::size_t group = run_.pricer().group_of(work[i]);
    if (!run_.pricer().is_of_model(work[i])) {
      ddp_of_group[group] += run_.pricer().seconds_of({}, work[i]);
      continue;
    }
    const auto [place, is_new] = column_of_group.emplace(group, added_.size());
    if (is_new) {
      added_.emplace_back();
      result.model.push_back({group, place->second});
    }
    added_[place->second].push_back(work[i]);
  }
  for (const auto& [group, seconds] : ddp_of_group) {
    if (seconds > 0) {
      result.ddp.push_back({group, seconds});
    }
  }
  return result;
}

void FoldedSteps::fill_rows() {
  columns_ = added_.size();
  rows_.reserve(different_.size() * columns_);
  for (const PricedBatch* batch : different_) {
    rows_.push_back(batch->collate);
    for (std::size_t column = 1; column < columns_; ++column) {
      rows_.push_back(sum_of(added_[column], [&](std::int32_t work) {
        return run_.pricer().seconds_of(*batch, work);
      }));
    }
  }
}

}  // namespace stepsim
