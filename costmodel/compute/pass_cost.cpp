#include "costmodel/compute/pass_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/model/op_flops.h"

namespace stepsim {
namespace {

constexpr std::string_view kPairs = "tokens*length";
constexpr std::string_view kSampleSegment = "samples:";
constexpr std::string_view kTokenSegment = "tokens:";

std::int64_t tokens_of(const BatchShape& batch, bool varlen) {
  return varlen ? batch.useful_tokens : batch.padded_tokens();
}

double pairs_of(const BatchShape& batch, bool varlen) {
  return varlen
             ? batch.sum_squares
             : static_cast<double>(batch.padded_tokens()) * static_cast<double>(batch.max_length);
}

/// Returns the bounds of "NAME:A-B", of which B may be left out; nothing when that is no such
/// feature.
std::optional<std::pair<double, double>> bounds_of(std::string_view feature,
                                                   std::string_view name) {
  const std::size_t dash = feature.find('-');
  if (!feature.starts_with(name) || dash == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view until = feature.substr(dash + 1);
  const auto low = parse_number<double>(feature.substr(name.size(), dash - name.size()));
  const auto high = until.empty() ? std::optional(std::numeric_limits<double>::infinity())
                                  : parse_number<double>(until);
  if (!low || !high || *low < 0 || !(*high > *low)) {
    return std::nullopt;
  }
  return std::pair(*low, *high);
}

/// Returns how far a value lies outside a range, as a factor; at most 1 inside.
double beyond(double value, const std::pair<double, double>& range) {
  return std::max(value / range.second, value > 0 ? range.first / value : 1);
}

}  // namespace

PassFeature::PassFeature(std::string_view name) {
  if (name == "1") {
    kind_ = Kind::One;
    return;
  }
  if (name == "samples") {
    kind_ = Kind::Samples;
    return;
  }
  if (name == "tokens") {
    kind_ = Kind::Tokens;
    return;
  }
  if (name == kPairs) {
    kind_ = Kind::Pairs;
    return;
  }
  if (name.size() > kPairs.size() + 1 && name.starts_with(kPairs) && name[kPairs.size()] == '>') {
    const auto from = parse_number<double>(name.substr(kPairs.size() + 1));
    if (from && *from >= 0) {
      kind_ = Kind::PairsAbove;
      low_ = *from;
      return;
    }
  }
  if (const auto samples = bounds_of(name, kSampleSegment)) {
    kind_ = Kind::SamplesBetween;
    std::tie(low_, high_) = *samples;
    return;
  }
  if (const auto part = bounds_of(name, kTokenSegment); part && std::isfinite(part->second)) {
    kind_ = Kind::TokensBetween;
    std::tie(low_, high_) = *part;
    return;
  }
  throw InputError(
      "unknown feature '{}' of a pass; known: 1, samples, samples:A-B, tokens, tokens:A-B, "
      "tokens*length, tokens*length>X",
      printable(std::string(name)));
}

double PassFeature::of(const BatchShape& batch, bool varlen) const {
  switch (kind_) {
    case Kind::One:
      return batch.samples > 0 ? 1 : 0;
    case Kind::Samples:
      return static_cast<double>(batch.samples);
    case Kind::Tokens:
      return static_cast<double>(tokens_of(batch, varlen));
    case Kind::Pairs:
      return pairs_of(batch, varlen);
    case Kind::PairsAbove:
      return std::max(0.0, pairs_of(batch, varlen) - low_);
    case Kind::SamplesBetween:
      return std::clamp(static_cast<double>(batch.samples), low_, high_) - low_;
    case Kind::TokensBetween:
      break;
  }
  const auto tokens = static_cast<double>(tokens_of(batch, varlen));
  return (std::clamp(tokens, low_, high_) - low_) * std::max(1.0, tokens / high_);
}

double pass_feature(std::string_view feature, const BatchShape& batch, bool varlen) {
  return PassFeature(feature).of(batch, varlen);
}

PassSeconds::PassSeconds(const PassCost& cost, std::span<const double> coefficients) {
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    if (coefficients[i] != 0) {  // Of a fit's features most are not in it.
      terms_.emplace_back(coefficients[i], cost.features[i]);
    }
  }
}

double PassSeconds::of(const BatchShape& batch, bool varlen) const {
  return sum_of(terms_,
                [&](const auto& term) { return term.first * term.second.of(batch, varlen); });
}

double pass_seconds(const PassCost& cost,
                    std::span<const double> coefficients,
                    const BatchShape& batch,
                    bool varlen) {
  return PassSeconds(cost, coefficients).of(batch, varlen);
}

std::vector<double> draw_ratios(const PassCost& cost,
                                std::span<const BatchShape> batches,
                                bool varlen) {
  std::vector<double> sums(cost.features.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (const BatchShape& batch : batches) {
      sums[i] += pass_feature(cost.features[i], batch, varlen);
    }
  }
  const auto total = [&](const std::vector<double>& coefficients) {
    double seconds = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      seconds += coefficients[i] * sums[i];
    }
    return seconds;
  };
  const double fitted = total(cost.coefficients);
  return mapped(cost.draws,
                [&](const auto& draw) { return fitted > 0 ? total(draw) / fitted : 1; });
}

double SeveralRanks::at(int ranks, int fullest) const {
  if (ranks == 1) {
    return 1;
  }
  const double of_job = 1 + per_doubling * std::log2(static_cast<double>(ranks));
  return factor * of_job *
         std::pow(1 + per_doubling_of_node, std::log2(static_cast<double>(fullest)));
}

RecordedModel at_ranks(RecordedModel recorded, int ranks, int fullest) {
  if (!recorded.several_ranks) {
    return recorded;
  }
  const auto scale = [](std::vector<double>& seconds, double factor) {
    for (double& one : seconds) {
      one *= factor;
    }
  };
  const double fitted = recorded.several_ranks->at(ranks, fullest);
  for (PassCost* pass : {&recorded.forward, &recorded.backward}) {
    scale(pass->coefficients, fitted);
    for (std::size_t i = 0; i < pass->draws.size(); ++i) {
      scale(pass->draws[i], recorded.several_ranks_draws[i].at(ranks, fullest));
    }
  }
  recorded.optimizer_seconds *= fitted;
  recorded.several_ranks.reset();
  recorded.several_ranks_draws.clear();
  return recorded;
}

bool same_model(const TransformerConfig& a, const TransformerConfig& b) {
  TransformerConfig renamed = a;
  renamed.name = b.name;
  renamed.tokens_unknown = b.tokens_unknown;
  return renamed == b;
}

double op_weight(const Op& op, const BatchShape& batch, double operations_per_byte) {
  return op_flops(op, batch) + operations_per_byte * op_bytes(op, batch);
}

PassCostModel::PassCostModel(RecordedModel recorded,
                             bool host_is_device,
                             double max_extrapolation,
                             const std::optional<HostFloor>& floor)
    : recorded_(std::move(recorded)),
      varlen_(recorded_.model.attention == AttentionKind::Varlen),
      host_is_device_(host_is_device),
      max_extrapolation_(max_extrapolation),
      ops_(step_ops(recorded_.model)),
      elements_(static_cast<double>(parameter_count(recorded_.model))) {
  if (floor) {
    const auto timed = [&](const PassCost& pass) {
      return pass_seconds(pass, pass.coefficients, floor->smallest, varlen_);
    };
    least_ = {floor->forward(1, timed(recorded_.forward)),
              floor->backward(1, timed(recorded_.backward))};
  }
}

const std::array<double, 2>& PassCostModel::total_weights(const BatchShape& batch) const {
  const auto at =
      std::lower_bound(totals_.begin(), totals_.end(), batch, [](const auto& known, const auto& b) {
        return known.first < b;
      });
  if (at != totals_.end() && at->first == batch) {
    return at->second;
  }
  std::array<double, 2> total = {0, 0};
  for (const Op& op : ops_.forward) {
    total[0] += op_weight(op, batch, recorded_.operations_per_byte);
  }
  for (const Op& op : ops_.backward) {
    total[1] += op_weight(op, batch, recorded_.operations_per_byte);
  }
  return totals_.emplace(at, batch, total)->second;
}

Cost PassCostModel::cost_of(const PassCost& pass, const BatchShape& batch) const {
  Cost cost;
  cost.seconds = pass_seconds(pass, pass.coefficients, batch, varlen_);
  cost.relative_error = pass.errors.random.value_or(0);
  // All batches of a size that the fit has not seen are wrong in the same direction, so that none
  // of the block error averages out.
  cost.shared_error = pass.errors.block.value_or(cost.relative_error);
  if (batch.samples == 0) {
    return cost;
  }
  const auto tokens = static_cast<double>(tokens_of(batch, varlen_));
  const auto length = static_cast<double>(batch.max_length);
  cost.extrapolation = std::max({1.0, beyond(tokens, pass.tokens), beyond(length, pass.length)});
  const double above = std::max(tokens / pass.tokens.second, length / pass.length.second);
  cost.smaller = cost.extrapolation > std::max(1.0, above);
  if (above > max_extrapolation_) {
    throw InputError(
        "a batch of {} x {} tokens is {:.2f} times the largest recorded one in tokens or length, "
        "and more than {:g} times is refused: record steps of such batches",
        batch.samples,
        batch.max_length,
        above,
        max_extrapolation_);
  }
  return cost;
}

Cost PassCostModel::op(const Op& op, const BatchShape& batch) const {
  switch (op.op_class) {
    case OpClass::Collate:
      return cost_of(recorded_.data, batch);
    case OpClass::Optimizer: {
      Cost cost;
      cost.seconds = recorded_.optimizer_seconds * static_cast<double>(op.n) / elements_;
      return cost;
    }
    case OpClass::ZeroGradient:
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
      return {};
    default:
      break;
  }
  const bool forward = op.pass == Pass::Forward;
  Cost cost = cost_of(forward ? recorded_.forward : recorded_.backward, batch);
  cost.group = forward ? kForwardPass : kBackwardPass;
  if (batch.samples > 0) {
    cost.seconds = std::max(cost.seconds, least_[forward ? 0 : 1]);
  }
  const double all = total_weights(batch)[forward ? 0 : 1];
  cost.seconds *= all > 0 ? op_weight(op, batch, recorded_.operations_per_byte) / all : 0;
  return cost;
}

}  // namespace stepsim
