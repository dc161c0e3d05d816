#include "sim/study/recommendation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {

namespace {

constexpr double kSure = 0.9;   // From this share of the draws on nothing needs to be measured.
constexpr double kRival = 0.1;  // From this share of the draws on a policy is worth measuring.

/// Returns the share of the speeds below `speed`; equal ones count half.
double share_below(const std::vector<double>& speeds, double speed) {
  const auto [first, last] = std::equal_range(speeds.begin(), speeds.end(), speed);
  const auto below = static_cast<double>(first - speeds.begin());
  return (below + static_cast<double>(last - first) / 2) / static_cast<double>(speeds.size());
}

/// Returns the share of all combinations of the policies' draws in which `policy` is the fastest.
double first_share(const std::vector<std::vector<double>>& speeds, std::size_t policy) {
  double share = 0;
  for (const double speed : speeds[policy]) {
    double all = 1;
    for (std::size_t other = 0; other < speeds.size(); ++other) {
      all *= other == policy ? 1 : share_below(speeds[other], speed);
    }
    share += all / static_cast<double>(speeds[policy].size());
  }
  return share;
}

std::vector<double> gains_of(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> gains;
  for (const double a : first) {
    for (const double b : second) {
      gains.push_back(gain_over(a, b));
    }
  }
  return gains;
}

Gain gain_of(const Prediction& first, const Prediction& second, std::vector<double> drawn) {
  Gain result;
  result.gain =
      gain_over(first.summary.useful_tokens_per_s(), second.summary.useful_tokens_per_s());
  result.interval = {result.gain, result.gain};
  result.faster_share = result.gain > 0 ? 1 : 0;
  result.unconfirmed = first.unconfirmed || second.unconfirmed;
  if (!drawn.empty()) {
    // Draws can all lie on one side of what the costs as they stand come to: nobody says what
    // overlap costs, which counts as nothing, or the profile leaves collectives' errors that only
    // lengthen a step. The interval then reaches from the one to the others, as that of a step.
    result.interval = {std::min(result.gain, quantile(drawn, 0.05)),
                       std::max(result.gain, quantile(drawn, 0.95))};
    std::ranges::sort(drawn);
    result.faster_share = 1 - share_below(drawn, 0);
  }
  return result;
}

/// Returns a name for use in a sentence: quoted when it holds a comma.
std::string in_sentence(const std::string& policy) {
  return policy.find(',') == std::string::npos ? policy : "'" + policy + "'";
}

/// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& names) {
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

/// Returns "; 79 % likely to be the fastest", and what to benchmark when that is not enough.
std::string certainty(const Recommendation& recommendation) {
  const std::vector<Choice>& choices = recommendation.choices;
  const std::size_t alike = recommendation.alike();
  const double share = recommendation.alike_share();
  std::string text =
      fmt::format("; {} {}",
                  likelihood_text(share, recommendation.unconfirmed),
                  alike > 1 ? "that one of them is the fastest" : "to be the fastest");
  if (share >= kSure) {
    return text;
  }
  std::vector<Choice> rivals(choices.begin() + static_cast<std::ptrdiff_t>(alike), choices.end());
  std::ranges::stable_sort(rivals, std::greater<>(), &Choice::first_share);
  std::vector<std::string> names = {in_sentence(choices.front().policy),
                                    in_sentence(rivals.front().policy)};
  for (std::size_t i = 1; i < rivals.size() && rivals[i].first_share >= kRival; ++i) {
    names.push_back(in_sentence(rivals[i].policy));
  }
  return text + "; benchmark " + listed(names);
}

/// Where all choices are alike.
std::string flat_text(const Recommendation& recommendation) {
  const std::vector<Choice>& choices = recommendation.choices;
  const Choice& slowest = *std::ranges::min_element(choices, {}, &Choice::useful_tokens_per_s);
  constexpr double kShown = 0.0005;
  const double most = recommendation.gain_of_fastest(slowest);
  return fmt::format(
      "Nothing to gain here: {} ({}: {:.0f} useful tokens/s).",
      most < kShown
          ? std::string("all policies are as fast")
          : fmt::format("no policy is more than {:.1f} % faster than another", most * 100),
      in_sentence(choices.front().policy),
      choices.front().useful_tokens_per_s);
}

}  // namespace

double gain_over(double first, double second) {
  return first > 0 && second > 0 ? first / second - 1 : 0;
}

std::string likelihood_text(double share, bool unconfirmed) {
  constexpr double kNearlyAll = 0.995;
  return fmt::format("{}{} likely",
                     unconfirmed ? "by the profile's own errors " : "",
                     share >= kNearlyAll ? "more than 99 %" : fmt::format("{:.0f} %", share * 100));
}

std::string certainty_text(const Gain& gain, const char* what) {
  return fmt::format("90 % interval {:+.1f} to {:+.1f} %, {} to be {}",
                     gain.interval.first * 100,
                     gain.interval.second * 100,
                     likelihood_text(gain.faster_share, gain.unconfirmed),
                     what);
}

std::string nothing_to_gain_text(const Gain& fastest) {
  constexpr double kShown = 0.0005;
  const double most = std::max(fastest.gain, fastest.interval.second);
  if (fastest.gain <= 0 || most < kShown) {
    return "Nothing to gain here";
  }
  return fmt::format("Nothing {}to gain here, at most {:.1f} %",
                     most < kSmallestGain + kShown ? "" : "certain ",
                     most * 100);
}

bool Gain::is_certain() const {
  return gain >= kSmallestGain && faster_share >= kSure;
}

Gain paired_gain(const Prediction& first, const Prediction& second) {
  const double work = first.summary.useful_tokens_per_step / second.summary.useful_tokens_per_step;
  const std::size_t draws = std::min(first.paired_step_ms.size(), second.paired_step_ms.size());
  std::vector<double> gains;
  for (std::size_t i = 0; i < draws; ++i) {
    gains.push_back(gain_over(work * second.paired_step_ms[i], first.paired_step_ms[i]));
  }
  return gain_of(first, second, std::move(gains));
}

Gain unpaired_gain(const Prediction& first, const Prediction& second) {
  return gain_of(first, second, gains_of(drawn_speeds(first), drawn_speeds(second)));
}

bool is_reference(const Scenario& scenario, const std::string& policy) {
  return find_policy(scenario, policy).is_reference();
}

std::vector<double> drawn_speeds(const Prediction& prediction) {
  std::vector<double> speeds = mapped(prediction.draws, [&](const MeanDraw& draw) {
    return draw.step_ms > 0
               ? prediction.summary.useful_tokens_per_step * 1e3 * draw.drift / draw.step_ms
               : 0;
  });
  std::ranges::sort(speeds);
  return speeds;
}

std::size_t Recommendation::alike() const {
  return static_cast<std::size_t>(std::ranges::count(choices, true, &Choice::alike));
}

double Recommendation::gain_of_fastest(const Choice& choice) const {
  const double fastest =
      std::ranges::max_element(choices, {}, &Choice::useful_tokens_per_s)->useful_tokens_per_s;
  return gain_over(fastest, choice.useful_tokens_per_s);
}

double Recommendation::alike_share() const {
  return sum_of(choices,
                [](const Choice& choice) { return choice.alike ? choice.first_share : 0; });
}

Recommendation recommend(const Scenario& scenario,
                         const std::vector<Prediction>& predictions,
                         const std::string& kept) {
  std::vector<const Prediction*> ranked;
  for (const Prediction& prediction : predictions) {
    if (!is_reference(scenario, prediction.policy) && !prediction.out_of_memory) {
      ranked.push_back(&prediction);
    }
  }
  std::ranges::stable_sort(ranked, [](const Prediction* a, const Prediction* b) {
    return a->summary.useful_tokens_per_s() > b->summary.useful_tokens_per_s();
  });
  const auto is_alike = [fastest =
                             ranked.empty() ? nullptr : ranked.front()](const Prediction& one) {
    return gain_over(fastest->summary.useful_tokens_per_s(), one.summary.useful_tokens_per_s()) <
           kSmallestGain;
  };
  if (const auto own = std::ranges::find(
          ranked, kept, [](const Prediction* one) -> const std::string& { return one->policy; });
      own != ranked.end() && is_alike(**own)) {
    std::rotate(ranked.begin(), own, own + 1);
  }
  Recommendation result;
  result.only_references = std::ranges::all_of(predictions, [&](const Prediction& prediction) {
    return is_reference(scenario, prediction.policy);
  });
  std::vector<std::vector<double>> speeds;
  for (const Prediction* prediction : ranked) {
    result.choices.push_back(
        {prediction->policy, prediction->summary.useful_tokens_per_s(), 0, is_alike(*prediction)});
    speeds.push_back(drawn_speeds(*prediction));
    result.unconfirmed = result.unconfirmed || prediction->unconfirmed;
  }
  if (ranked.size() < 2) {
    return result;
  }
  result.gain =
      gain_over(result.choices[0].useful_tokens_per_s, result.choices[1].useful_tokens_per_s);
  const std::size_t alike = result.alike();
  if (!result.is_flat()) {
    result.clear_gain =
        gain_over(result.choices[0].useful_tokens_per_s, result.choices[alike].useful_tokens_per_s);
  }
  result.drawn =
      std::ranges::none_of(speeds, [](const std::vector<double>& s) { return s.empty(); });
  if (result.drawn) {
    for (std::size_t i = 0; i < speeds.size(); ++i) {
      result.choices[i].first_share = first_share(speeds, i);
    }
    const std::vector<double> gains = gains_of(speeds[0], speeds[1]);
    result.gain_interval = {quantile(gains, 0.05), quantile(gains, 0.95)};
    if (!result.is_flat()) {
      const std::vector<double> clear = gains_of(speeds[0], speeds[alike]);
      result.clear_interval = {quantile(clear, 0.05), quantile(clear, 0.95)};
    }
  }
  return result;
}

std::string recommendation_text(const Recommendation& recommendation) {
  const std::vector<Choice>& choices = recommendation.choices;
  if (choices.empty()) {
    return recommendation.only_references
               ? "All policies of this scenario are reference cases: there is none to choose."
               : "No policy of this scenario fits into memory on its own data; stepsim sweep with "
                 "--over parallel=ddp,zero1,fsdp2 says which sharding does.";
  }
  if (recommendation.is_flat()) {
    return flat_text(recommendation);
  }
  const Choice& best = choices.front();
  const std::size_t alike = recommendation.alike();
  std::string text = fmt::format(
      "Use {}: {:.0f} useful tokens/s", in_sentence(best.policy), best.useful_tokens_per_s);
  if (choices.size() > 1) {
    if (alike > 1) {
      std::vector<std::string> names;
      for (std::size_t i = 1; i < alike; ++i) {
        names.push_back(in_sentence(choices[i].policy));
      }
      text += fmt::format(", as {} within {:.0f} %", listed(names), kSmallestGain * 100);
    }
    const Choice& second = choices[alike];
    text += fmt::format(
        ", {:+.1f} % over {}", recommendation.clear_gain * 100, in_sentence(second.policy));
    if (recommendation.drawn) {
      text += fmt::format(" (90 % interval {:+.1f} to {:+.1f} %)",
                          recommendation.clear_interval.first * 100,
                          recommendation.clear_interval.second * 100);
    }
    if (choices.size() > alike + 1) {
      text +=
          fmt::format(" and {:+.1f} % over {}",
                      gain_over(best.useful_tokens_per_s, choices.back().useful_tokens_per_s) * 100,
                      in_sentence(choices.back().policy));
    }
    text += recommendation.drawn ? certainty(recommendation) : "";
  }
  return text + ".";
}

std::string recommendation_text(const Scenario& scenario,
                                const std::vector<Prediction>& predictions,
                                const std::string& kept) {
  return recommendation_text(recommend(scenario, predictions, kept));
}

const Prediction* recommended(const Scenario& scenario,
                              const std::vector<Prediction>& predictions,
                              const std::string& kept) {
  const Recommendation recommendation = recommend(scenario, predictions, kept);
  const auto is_first = [&](const Prediction& prediction) {
    return !recommendation.choices.empty() &&
           prediction.policy == recommendation.choices.front().policy;
  };
  const auto found = std::ranges::find_if(predictions, is_first);
  return found == predictions.end() ? nullptr : &*found;
}

std::vector<std::string> training_needs(const Scenario& scenario, const Prediction& prediction) {
  std::vector<std::string> needs;
  if (!prediction.training) {
    return needs;
  }
  const TrainingEffects& effects = *prediction.training;
  if (effects.fewest_steps < effects.most_steps && scenario.ddp.join_steps.empty()) {
    needs.push_back(fmt::format(
        "ranks have {} to {} batches an epoch, and a plain DDP loop hangs when the first rank is "
        "through: stepsim.torch.BatchSampler gives every rank as many; join() goes on without "
        "those that are through (ddp.join prices it)",
        effects.fewest_steps,
        effects.most_steps));
  }
  constexpr double kUneven = 1.001;
  if (effects.sample_skew > kUneven &&
      find_policy(scenario, prediction.policy).weighting() == LossWeighting::None) {
    needs.emplace_back(
        "ranks hold different numbers of samples: multiply each rank's loss by ranks x own / all "
        "samples of the step, as BatchSampler's steps() and a plan have it (loss_scale)");
  }
  if (effects.lost_samples > 0) {
    needs.push_back(fmt::format(
        "{} of {} samples are in no batch of an epoch", effects.lost_samples, effects.samples));
  }
  return needs;
}

Json recommendation_json(const Recommendation& recommendation) {
  Json choices = mapped(recommendation.choices, [&](const Choice& choice) -> Json {
    return {{"policy", choice.policy},
            {"useful_tokens_per_s", choice.useful_tokens_per_s},
            {"first_share", recommendation.drawn ? Json(choice.first_share) : Json(nullptr)},
            {"alike", choice.alike}};
  });
  Json json = {{"policy", nullptr}, {"choices", std::move(choices)}};
  if (!recommendation.choices.empty()) {
    json["policy"] = recommendation.choices.front().policy;
  }
  if (recommendation.choices.size() > 1) {
    json["gain"] = recommendation.gain;
    json["nothing_to_gain"] = recommendation.is_flat();
  }
  if (recommendation.drawn) {
    json["gain_interval90"] = {recommendation.gain_interval.first,
                               recommendation.gain_interval.second};
  }
  return json;
}

}  // namespace stepsim
