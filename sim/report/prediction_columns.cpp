#include "sim/report/prediction_columns.h"

namespace stepsim {

namespace {

using Summary = PredictionSummary;
using Format = FigureFormat;

// clang-format off
constexpr Column<PredictionSummary> kSummaryColumns[] = {
    {"step_time_ms/mean", "step_ms_mean", [](const Summary& s) -> Cell { return s.step_time_ms.mean; },
     "step ms", Format::MeanMilliseconds, 10,
     [](const Summary& s) -> Cell { return s.step_time_ms.width90(); }},
    {"step_time_ms/p50", "step_ms_p50", [](const Summary& s) -> Cell { return s.step_time_ms.p50; }},
    {"step_time_ms/p95", "step_ms_p95", [](const Summary& s) -> Cell { return s.step_time_ms.p95; },
     "p95 ms", Format::Milliseconds, 30, nullptr, true, nullptr, false, if_wide<Summary>},
    {"step_time_ms/p99", "step_ms_p99", [](const Summary& s) -> Cell { return s.step_time_ms.p99; }},
    {"step_time_ms/max", "step_ms_longest_of_run", [](const Summary& s) -> Cell { return s.step_time_ms.max; }},
    {"step_time_ms/interval90/0", "step_ms_low90",
     [](const Summary& s) -> Cell { return s.step_time_ms.low90; },
     "90 % interval", Format::Interval, 20,
     [](const Summary& s) -> Cell { return s.step_time_ms.high90; }},
    {"step_time_ms/interval90/1", "step_ms_high90",
     [](const Summary& s) -> Cell { return s.step_time_ms.high90; }},
    {"step_time_ms/interval90_same_hour/0", "step_ms_same_hour_low90",
     [](const Summary& s) -> Cell { return s.step_time_ms.same_hour_low90; }},
    {"step_time_ms/interval90_same_hour/1", "step_ms_same_hour_high90",
     [](const Summary& s) -> Cell { return s.step_time_ms.same_hour_high90; }},
    {"useful_tokens_per_s", "useful_tokens_per_s",
     [](const Summary& s) -> Cell { return s.useful_tokens_per_s(); },
     "useful tokens/s", Format::Whole, 40},
    {"padded_tokens_per_s", "padded_tokens_per_s",
     [](const Summary& s) -> Cell { return s.padded_tokens_per_s(); }},
    {"samples_per_s", "samples_per_s", [](const Summary& s) -> Cell { return s.samples_per_s(); }},
    {"tokens_per_sample", "tokens_per_sample",
     [](const Summary& s) -> Cell { return s.tokens_per_sample; }},
    {"useful_tokens_per_step", "useful_tokens_per_step",
     [](const Summary& s) -> Cell { return s.useful_tokens_per_step; }},
    {"padded_tokens_per_step", "padded_tokens_per_step",
     [](const Summary& s) -> Cell { return s.padded_tokens_per_step; }},
    {"padding_ratio", "padding_ratio", [](const Summary& s) -> Cell { return s.padding_ratio(); },
     "padding", Format::Percent, 50},
    {"rank_token_spread", "rank_token_spread",
     [](const Summary& s) -> Cell { return s.rank_token_spread; },
     "rank token spread", Format::Tenths, 60, nullptr, true, nullptr, false, if_wide<Summary>},
    {"std_over_ranks/step_time_ms", "step_ms_std_over_ranks",
     [](const Summary& s) -> Cell { return s.step_time_std_over_ranks; }},
    {"std_over_ranks/padded_tokens", "padded_tokens_std_over_ranks",
     [](const Summary& s) -> Cell { return s.padded_tokens_std_over_ranks; }},
    {"std_over_ranks/peak_memory_mib", "peak_memory_mib_std_over_ranks",
     [](const Summary& s) -> Cell { return s.peak_memory_std_over_ranks; }},
    {"data_ms", "data_ms", [](const Summary& s) -> Cell { return s.data_ms; }},
    {"forward_ms", "forward_ms", [](const Summary& s) -> Cell { return s.forward_ms; }},
    {"backward_ms", "backward_ms", [](const Summary& s) -> Cell { return s.backward_ms; }},
    {"optimizer_ms", "optimizer_ms", [](const Summary& s) -> Cell { return s.optimizer_ms; }},
    {"communication_ms", "communication_ms", [](const Summary& s) -> Cell { return s.communication_ms; }},
    {"exposed_communication_ms", "exposed_communication_ms",
     [](const Summary& s) -> Cell { return s.exposed_communication_ms; }},
    {"exposed_transfer_ms", "exposed_transfer_ms",
     [](const Summary& s) -> Cell { return s.exposed_transfer_ms(); },
     "exposed ms", Format::Milliseconds, 70, nullptr, true, nullptr, false, if_wide<Summary>},
    {"waiting_for_ranks_ms", "waiting_for_ranks_ms",
     [](const Summary& s) -> Cell { return s.waiting_for_ranks_ms; },
     "waiting ms", Format::Milliseconds, 75},
    {"overlap_fraction", "overlap_fraction", [](const Summary& s) -> Cell { return s.overlap_fraction; },
     "overlap", Format::Percent, 80, nullptr, false},
    {"scaling_efficiency", "scaling_efficiency",
     [](const Summary& s) -> Cell { return s.scaling_efficiency(); },
     "efficiency", Format::Percent, 90, nullptr, true, nullptr, false, if_wide<Summary>},
    {"peak_memory_mib", "peak_memory_mib", [](const Summary& s) -> Cell { return s.peak_memory_mib; },
     "memory", Format::Memory, 100, nullptr, true, nullptr, false, if_wide<Summary>},
};
// clang-format on

constexpr StepColumn kStepColumns[] = {{"step", &RankStepResult::step},
                                       {"rank", &RankStepResult::rank},
                                       {"samples", &RankStepResult::samples},
                                       {"max_length", &RankStepResult::max_length},
                                       {"useful_tokens", &RankStepResult::useful_tokens},
                                       {"padded_tokens", &RankStepResult::padded_tokens},
                                       {"start_ms", &RankStepResult::start_ms},
                                       {"data_ms", &RankStepResult::data_ms},
                                       {"forward_ms", &RankStepResult::forward_ms},
                                       {"backward_ms", &RankStepResult::backward_ms},
                                       {"exposed_communication_ms", &RankStepResult::exposed_ms},
                                       {"waiting_for_ranks_ms", &RankStepResult::waiting_ms},
                                       {"optimizer_ms", &RankStepResult::optimizer_ms},
                                       {"step_ms", &RankStepResult::step_ms},
                                       {"peak_memory_mib", &RankStepResult::peak_memory_mib}};

}  // namespace

std::span<const Column<PredictionSummary>> summary_columns() {
  return kSummaryColumns;
}

std::span<const StepColumn> step_columns() {
  return kStepColumns;
}

}  // namespace stepsim
