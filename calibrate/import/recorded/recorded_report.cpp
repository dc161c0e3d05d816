
#include <fmt/format.h>

#include "calibrate/fit/fit.h"
#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim {
namespace {

std::string percent(const std::optional<double>& value) {
  const std::string text = error_text(value);
  return text == "-" || text.ends_with("times") ? text : text + " %";
}

/// Microseconds for what a feature counts.
std::string terms(const PassCost& cost) {
  std::string text;
  double bends = 0;
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    if (cost.features[i].find('>') != std::string::npos) {
      bends += cost.coefficients[i];
      continue;
    }
    if (cost.coefficients[i] > 0) {
      text += fmt::format("{}{:.3g} us x {}",
                          text.empty() ? "" : " + ",
                          cost.coefficients[i] * 1e6,
                          cost.features[i]);
    }
  }
  return bends > 0 ? text + fmt::format(" (up to + {:.3g} us x tokens*length of the longest)",
                                        bends * 1e6)
                   : text;
}

std::string noise_text(const NoiseProfile& noise) {
  const auto& quantiles = noise.step_quantiles;
  if (quantiles.empty()) {
    return fmt::format("drift, with the spread of single steps: {:.1f} %\n", noise.drift * 100);
  }
  return fmt::format(
      "jitter: 90 % of the steps within {:.2f} to {:.2f} of the fit, correlation between ranks "
      "{:.2f}; drift {:.1f} %\n",
      quantiles.at(2),
      quantiles.at(quantiles.size() - 3),
      noise.rank_correlation,
      noise.drift * 100);
}

}  // namespace

std::string recorded_report(const RecordedCosts& costs) {
  const PassCost& forward = costs.model.forward;
  std::string text = fmt::format(
      "{} steps of {} ranks; batches of {:.0f} to {:.0f} tokens, padded to {:.0f} to {:.0f}\n\n"
      "pass       scattered     by size    cost\n",
      costs.steps,
      costs.ranks,
      forward.tokens.first,
      forward.tokens.second,
      forward.length.first,
      forward.length.second);
  std::vector<std::pair<const char*, const PassCost*>> passes = {
      {"forward", &costs.model.forward}, {"backward", &costs.model.backward}};
  if (costs.whole) {
    passes = {{"both", &*costs.whole}};
  }
  passes.emplace_back("data", &costs.model.data);
  for (const auto& [name, pass] : passes) {
    text += fmt::format("{:<8}  {:>10}  {:>10}    {}\n",
                        name,
                        percent(pass->errors.random),
                        percent(pass->errors.block),
                        terms(*pass));
  }
  text += fmt::format(
      "optimizer {:>10}  {:>10}    {:.3g} us\n\n", "", "", costs.model.optimizer_seconds * 1e6);
  text +=
      "scattered: mean |error| of steps held out; by size: |error| of a fifth of the sizes held "
      "out\n";
  for (const CollectiveSample& sample : costs.all_reduces) {
    text += fmt::format("all-reduce of {} bytes: {:.1f} us +- {:.0f} %, {} times\n",
                        sample.bytes,
                        sample.seconds * 1e6,
                        sample.noise * 100,
                        sample.repetitions);
  }
  text += noise_text(costs.noise);
  for (const std::string& note : costs.notes) {
    text += "note: " + note + "\n";
  }
  for (const std::string& warning : costs.warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

}  // namespace stepsim
