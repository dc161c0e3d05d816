#include "sim/report/csv.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace stepsim {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') {
      quoted += '"';
    }
  }
  return quoted + "\"";
}

std::string summary_csv(const std::vector<Prediction>& predictions) {
  std::string text =
      "policy,step_ms_mean,step_ms_p50,step_ms_p95,step_ms_p99,step_ms_max,step_ms_low90,"
      "step_ms_high90,"
      "useful_tokens_per_s,padded_tokens_per_s,samples_per_s,"
      "useful_tokens_per_step,padded_tokens_per_step,padding_ratio,rank_token_spread,"
      "step_ms_std_over_ranks,padded_tokens_std_over_ranks,peak_memory_mib_std_over_ranks,data_ms,"
      "forward_ms,backward_ms,optimizer_ms,communication_ms,exposed_communication_ms,"
      "overlap_fraction,scaling_efficiency,peak_memory_mib\n";
  for (const Prediction& prediction : predictions) {
    const PredictionSummary& s = prediction.summary;
    const std::vector<double> values = {s.step_time_ms.mean,
                                        s.step_time_ms.p50,
                                        s.step_time_ms.p95,
                                        s.step_time_ms.p99,
                                        s.step_time_ms.max,
                                        s.step_time_ms.low90,
                                        s.step_time_ms.high90,
                                        s.useful_tokens_per_s(),
                                        s.padded_tokens_per_s(),
                                        s.samples_per_s(),
                                        s.useful_tokens_per_step,
                                        s.padded_tokens_per_step,
                                        s.padding_ratio(),
                                        s.rank_token_spread,
                                        s.step_time_std_over_ranks,
                                        s.padded_tokens_std_over_ranks,
                                        s.peak_memory_std_over_ranks,
                                        s.data_ms,
                                        s.forward_ms,
                                        s.backward_ms,
                                        s.optimizer_ms,
                                        s.communication_ms,
                                        s.exposed_communication_ms,
                                        s.overlap_fraction,
                                        s.scaling_efficiency(),
                                        s.peak_memory_mib};
    text += fmt::format("{},{}\n", csv_field(prediction.policy), fmt::join(values, ","));
  }
  return text;
}

std::string steps_csv(const std::vector<Prediction>& predictions) {
  std::string text =
      "policy,step,rank,samples,max_length,useful_tokens,padded_tokens,start_ms,data_ms,forward_ms,"
      "backward_ms,exposed_communication_ms,optimizer_ms,step_ms,peak_memory_mib\n";
  for (const Prediction& prediction : predictions) {
    for (const RankStepResult& row : prediction.steps) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                          csv_field(prediction.policy),
                          row.step,
                          row.rank,
                          row.samples,
                          row.max_length,
                          row.useful_tokens,
                          row.padded_tokens,
                          row.start_ms,
                          row.data_ms,
                          row.forward_ms,
                          row.backward_ms,
                          row.exposed_ms,
                          row.optimizer_ms,
                          row.step_ms,
                          row.peak_memory_mib);
    }
  }
  return text;
}

}  // namespace stepsim
