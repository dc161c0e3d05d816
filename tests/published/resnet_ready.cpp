// When the buckets of ResNet-50 are ready, from what its layers have to do.
#include <array>

#include <fmt/core.h>

#include "costmodel/io/json_file.h"
#include "tests/published/predicted.h"
#include "tests/published/resnet.h"
#include "tests/published/temporary_file.h"
#include "tests/published/validation.h"

namespace stepsim::published {

namespace {

constexpr int kFirstSteadyStep = 103;  // Before it the CPU runs ahead of the GPU.
constexpr double kMillisecond = 1e-3;  // In microseconds of the file.

struct Ready {
  std::vector<double> ms;  ///< [bucket] from the start of the backward, mean of the steady steps.
  double backward_ms = 0;
};

Ready read_ready(const std::string& path) {
  constexpr std::size_t kBuckets = 5;
  const CsvTable table(path);
  const auto step = table.column("step");
  const auto ready = table.column("gpu_ready_us_from_bwd_start");
  const auto backward = table.column("bwd_gpu_us");
  Ready result{std::vector<double>(kBuckets), 0};
  double rows = 0;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.integer(row, step, 0, 1'000'000) >= kFirstSteadyStep) {
      result.ms[row % kBuckets] += number(table, row, ready) * kMillisecond;
      result.backward_ms += number(table, row, backward) * kMillisecond;
      ++rows;
    }
  }
  for (double& time : result.ms) {
    time *= kBuckets / rows;
  }
  result.backward_ms /= rows;
  return result;
}

/// [bucket] milliseconds from the start of the backward.
std::vector<double> predicted_ready(const std::string& tensors, double backward_ms) {
  const Prediction run = predicted("resnet50_v100.toml",
                                   {"model.tensors=" + tensors,
                                    "interference.strength=0",
                                    fmt::format("times.backward={:.6f} ms", backward_ms)});
  const StepTimeline& step = run.timelines.back();
  const RankTimeline& rank = step.ranks.front();
  std::vector<double> result;
  for (std::size_t c = 0; c < rank.ready_at.size(); ++c) {
    if (step.collectives[c].kind == CollectiveKind::AllReduce) {
      result.push_back(to_ms(rank.ready_at[c] - rank.forward_end));
    }
  }
  return result;
}

}  // namespace

Validation resnet_bucket_ready(const std::string& data) {
  const Ready measured = read_ready(data + "/traces/resnet50_1xV100/bucket_ready.csv");
  Validation result;
  result.title = "ResNet-50 on one V100: when each bucket is ready, from the start of the backward";
  result.source =
      "facebookresearch/HolisticTraceAnalysis@f4d0062, tests/data/ns_resolution_trace, mean of "
      "steps "
      "103 to 105; the backward's length is given";
  result.unit = "ms";
  result.variants = {"by bytes", "by operations", "by peaks"};
  result.decimals = 2;
  result.whole = measured.backward_ms;
  result.proves =
      "When a gradient is ready has little to do with its size: shares by bytes are off by up to "
      "half of the backward, by operations by an eighth, by data-sheet peaks (the longer of "
      "operations and bytes, nothing fitted) by 4 %.";
  result.cannot =
      "The length of the backward itself, which is measured; and how other cards divide it.";
  constexpr std::array kWeightings = {Weighting::Bytes, Weighting::Flops, Weighting::Roofline};
  const auto tensors = resnet_tensors(resnets().front(), 32);
  std::vector<std::vector<double>> ready;
  const TemporaryFile file("tensors.csv");
  for (const Weighting weighting : kWeightings) {
    write_text_atomically(file.path(), tensors_csv(tensors, weighting));
    ready.push_back(predicted_ready(file.path(), measured.backward_ms));
  }
  for (std::size_t bucket = 0; bucket < measured.ms.size(); ++bucket) {
    Figure figure{fmt::format("bucket {}", bucket), measured.ms[bucket], {}};
    for (const auto& times : ready) {
      figure.predicted.emplace_back(times.at(bucket));
    }
    result.figures.push_back(std::move(figure));
  }
  return result;
}

}  // namespace stepsim::published
