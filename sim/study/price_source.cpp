#include "sim/study/price_source.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {

namespace {

bool is_collective(const std::string& op) {
  return std::ranges::find(collective_kind_names(), op) != collective_kind_names().end();
}

/// True: some op, or some collective, is larger than all that the profile knows.
bool goes_beyond(const Prediction& prediction, bool collectives) {
  return std::ranges::any_of(prediction.notes, [&](const Note& note) {
    const auto* beyond = std::get_if<SizesBeyondMeasured>(&note);
    return beyond != nullptr && is_collective(beyond->op) == collectives;
  });
}

bool has_unknown_sizes(const Prediction& prediction) {
  return std::ranges::any_of(prediction.notes, [](const Note& note) {
    return std::holds_alternative<SizesNotMeasured>(note);
  });
}

/// The profile itself, and not one that it was made on, was put together from published figures.
bool is_published(const Profile& profile) {
  return profile.provenance->is_object() && profile.provenance->contains("method");
}

}  // namespace

std::string op_source(const Scenario& scenario,
                      const Profile& profile,
                      const Prediction& prediction) {
  if (has_unknown_sizes(prediction) || goes_beyond(prediction, false)) {
    return "extrapolated";
  }
  if (scenario.times) {
    return "scenario";
  }
  return compute_prices_origin(profile).empty() ? "measured" : "published";
}

std::string collective_source(const Scenario& scenario,
                              const Profile& profile,
                              const Prediction& prediction) {
  // From the most certain to the least.
  constexpr CollectiveSource kOrder[] = {CollectiveSource::OneRank,
                                         CollectiveSource::MeasuredTable,
                                         CollectiveSource::FittedLinks,
                                         CollectiveSource::BeyondFittedLinks,
                                         CollectiveSource::InterpolatedRanks,
                                         CollectiveSource::ExtrapolatedRanks,
                                         CollectiveSource::NcclModel,
                                         CollectiveSource::Analytic};
  const auto place = [&](CollectiveSource source) {
    return std::distance(std::begin(kOrder), std::ranges::find(kOrder, source));
  };
  CollectiveSource worst = CollectiveSource::OneRank;
  for (const CollectiveOrigin& origin : prediction.collective_origins) {
    worst = place(origin.source) > place(worst) ? origin.source : worst;
  }
  switch (worst) {
    case CollectiveSource::OneRank:
      return "none";
    case CollectiveSource::MeasuredTable:
      return goes_beyond(prediction, true)                 ? "extrapolated"
             : scenario.all_reduce_table || scenario.times ? "scenario"
             : is_published(profile)                       ? "published"
                                                           : "measured";
    case CollectiveSource::FittedLinks:
      return "fitted";
    case CollectiveSource::BeyondFittedLinks:
      return "fitted, beyond";
    case CollectiveSource::InterpolatedRanks:
      return goes_beyond(prediction, true) ? "extrapolated" : "interpolated";
    case CollectiveSource::ExtrapolatedRanks:
      return "extrapolated";
    case CollectiveSource::NcclModel:
      return "NCCL model";
    case CollectiveSource::Analytic:
      return "links";
  }
  return "";
}

}  // namespace stepsim
