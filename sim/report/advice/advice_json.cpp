#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_optional.h"
#include "sim/report/advice/advice_report.h"
#include "sim/report/advice/sampler_code.h"
#include "sim/report/blame_report.h"
#include "sim/report/json.h"
#include "sim/study/recommendation.h"

namespace stepsim {

Json advice_options_json(const Advice& advice) {
  constexpr double kTera = 1e12;
  return mapped(advice.options, [](const AdviceOption& option) -> Json {
    const PredictionSummary& summary = option.prediction.summary;
    return {{"change", option.change},
            {"policy", option.prediction.policy},
            {"bucket_cap", option.cap.value()},
            {"setting", setting_of(option)},
            {"step_ms", summary.step_time_ms.mean},
            {"interval90_ms", {summary.step_time_ms.low90, summary.step_time_ms.high90}},
            {"data_ms", summary.data_ms},
            {"forward_ms", summary.forward_ms},
            {"backward_ms", summary.backward_ms},
            {"exposed_communication_ms", summary.exposed_communication_ms},
            {"waiting_for_ranks_ms", summary.waiting_for_ranks_ms},
            {"optimizer_ms", summary.optimizer_ms},
            {"useful_tokens_per_s", summary.useful_tokens_per_s()},
            {"tflops_per_rank", option.rank_flops ? Json(*option.rank_flops / kTera) : Json()},
            {"mfu", or_null(option.mfu)},
            {"gain", option.gain.gain},
            {"gain_interval90", {option.gain.interval.first, option.gain.interval.second}},
            {"verdict", verdict_of(option)}};
  });
}

Json advice_json(const Scenario& scenario, const Advice& advice) {
  const Prediction* first = recommended(scenario, advice.predictions, advice.recorded);
  const BatchingPolicy* best = first == nullptr ? nullptr : &find_policy(scenario, first->policy);
  Json json = {
      {"format", "stepsim-advice/1"},
      {"answer", advice_lines(scenario, advice)},
      {"options", advice_options_json(advice)},
      {"kind", best == nullptr ? Json() : Json(best->kind().name)},
      {"python",
       best == nullptr ? Json::array() : Json(sampler_code(*best, scenario.seed, scenario.path))},
      {"recommendation",
       recommendation_json(recommend(scenario, advice.predictions, advice.recorded))},
      {"predictions", prediction_json(advice.predictions, StepRows::None)},
      {"blame", blame_json(advice.blame)}};
  const CapAdvice& caps = advice.caps;
  json["bucket_cap"] = {{"own", caps.own.value()},
                        {"best", caps.best.value()},
                        {"gain", caps.gain.gain},
                        {"gain_interval90", {caps.gain.interval.first, caps.gain.interval.second}},
                        {"certain", caps.gain.is_certain()},
                        {"caps", mapped(caps.caps, [](const CapStep& cap) -> Json {
                           Json row = {{"bucket_cap", cap.cap.value()}};
                           if (cap.not_priced.empty()) {
                             row["step_time_ms"] = cap.step_ms;
                           } else {
                             row["not_priced"] = cap.not_priced;
                           }
                           return row;
                         })}};
  if (scenario.parallel != parallelisms().front()) {  // Nothing has buckets.
    json.erase("bucket_cap");
    json["shardings"] = mapped(advice.shardings, [](const ShardingStep& step) -> Json {
      if (!step.not_priced.empty()) {
        return {{"name", step.name}, {"not_priced", step.not_priced}};
      }
      return {{"name", step.name},
              {"step_time_ms", step.step_ms},
              {"peak_memory_mib", step.memory_mib},
              {"fits", step.fits},
              {"gain", step.gain.gain},
              {"gain_interval90", {step.gain.interval.first, step.gain.interval.second}},
              {"certain", step.gain.is_certain()}};
    });
  }
  json["epochs"] = mapped(advice.predictions, [&](const Prediction& prediction) -> Json {
    const EpochTime time = epoch_time(advice, prediction);
    Json row = {{"policy", prediction.policy}, {"steps", time.steps}, {"hours", time.hours}};
    if (advice.price_per_hour) {
      row["price"] = time.hours * *advice.price_per_hour;
    }
    return row;
  });
  return json;
}

}  // namespace stepsim
