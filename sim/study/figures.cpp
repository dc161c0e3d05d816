#include "sim/study/figures.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/memory.h"
#include "costmodel/network/communication_hook.h"

namespace stepsim {
namespace {

double ring_volume(const Scenario& scenario, const PublishedFigure& figure) {
  const auto bytes =
      static_cast<double>(figure.parameters * element_size(scenario.model.parameter_dtype));
  return ring_bytes_per_rank(CollectiveKind::AllReduce, bytes, figure.ranks);
}

double memory_of_states(const Scenario& scenario, const PublishedFigure& figure) {
  MemoryOptions options;
  options.optimizer_bytes_per_parameter = figure.optimizer_bytes;
  options.zero_stage = figure.zero_stage;
  options.ranks = figure.ranks;
  const MemoryUse use = state_memory(figure.parameters, scenario.model.parameter_dtype, options);
  return static_cast<double>(use.total().value());
}

double compressed_volume(const Scenario& scenario, const PublishedFigure& figure) {
  std::vector<std::vector<std::int64_t>> shapes;
  if (hook_info(figure.hook).reads_shapes) {
    for (const Parameter& parameter : parameters(scenario.model)) {
      shapes.push_back(parameter.shape);
    }
  } else {
    shapes.push_back({figure.parameters});
  }
  const std::int64_t size = element_size(scenario.model.parameter_dtype);
  return bytes_on_wire_per_rank(
      hook_collectives(figure.hook, figure.hook_options, shapes, size, figure.ranks, 0));
}

double bucket_count(const Scenario& scenario, const PublishedFigure& figure) {
  const auto buckets = rebuilt_buckets(bucket_parameters(scenario.model),
                                       ready_order(scenario.model),
                                       scenario.ddp.first_bucket_cap.value(),
                                       figure.bucket_cap.value());
  return static_cast<double>(buckets.size());
}

double attention_scores(const PublishedFigure& figure) {
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(figure.samples), figure.length);
  return batch_shape(lengths).sum_squares;
}

/// Returns by how much attention shrinks when each sample attends to itself only: the scores of the
/// samples' tokens packed into full rows over the scores of the samples.
double attention_saving(const PublishedFigure& figure) {
  const std::int64_t tokens = figure.samples * figure.length;
  const auto rows = static_cast<double>(tokens) / static_cast<double>(figure.row_length);
  const auto row = static_cast<double>(figure.row_length);
  return rows * row * row / attention_scores(figure);
}

double compute(const Scenario& scenario, const PublishedFigure& figure) {
  switch (figure.kind) {
    case FigureKind::RingVolume:
      return ring_volume(scenario, figure);
    case FigureKind::AllReduceTime:
      return ring_volume(scenario, figure) / figure.bytes_per_s;
    case FigureKind::StateMemory:
      return memory_of_states(scenario, figure);
    case FigureKind::CompressedVolume:
      return compressed_volume(scenario, figure);
    case FigureKind::BucketCount:
      return bucket_count(scenario, figure);
    case FigureKind::ComputeTime:
      return training_flops(scenario.model, figure.samples, figure.length) / figure.speed.value;
    case FigureKind::StepTokens:
      return static_cast<double>(figure.ranks) * figure.accumulation_steps *
             static_cast<double>(figure.samples) * static_cast<double>(figure.length);
    case FigureKind::AttentionScores:
      return attention_scores(figure);
    case FigureKind::AttentionSaving:
      return attention_saving(figure);
  }
  return 0;
}

std::string condition_text(const std::string& key, const PublishedFigure& figure) {
  if (key == "ranks") {
    return fmt::format("{} GPU{}", figure.ranks, figure.ranks == 1 ? "" : "s");
  }
  if (key == "parameters") {
    return fmt::format("{:.4g} B parameters", static_cast<double>(figure.parameters) * 1e-9);
  }
  if (key == "bandwidth") {
    return fmt::format("{:g} GB/s", figure.bytes_per_s * 1e-9);
  }
  if (key == "zero_stage") {
    return figure.zero_stage == 0 ? "not sharded" : fmt::format("ZeRO-{}", figure.zero_stage);
  }
  if (key == "optimizer_bytes") {
    return fmt::format("optimizer {:g} B", figure.optimizer_bytes);
  }
  if (key == "hook") {
    return std::string(name_of(figure.hook));
  }
  if (key == "powersgd_rank") {
    return fmt::format("rank {}", figure.hook_options.rank);
  }
  if (key == "topk_fraction") {
    return fmt::format("{:g} %", figure.hook_options.topk_fraction * 100);
  }
  if (key == "bucket_cap") {
    return "cap " + format_bytes(figure.bucket_cap);
  }
  if (key == "accumulation_steps") {
    return fmt::format(
        "{} micro-batch{}", figure.accumulation_steps, figure.accumulation_steps == 1 ? "" : "es");
  }
  if (key == "samples") {
    return fmt::format("{} sample{}", figure.samples, figure.samples == 1 ? "" : "s");
  }
  if (key == "row_length") {
    return fmt::format("rows of {}", figure.row_length);
  }
  if (key == "length") {
    return fmt::format("{} tokens each", figure.length);
  }
  return figure.speed.text;
}

/// Tells whether the condition has an effect on this figure.
bool matters(const std::string& key, const PublishedFigure& figure) {
  if (key == "powersgd_rank") {
    return takes_option(figure.hook, "rank");
  }
  if (key == "topk_fraction") {
    return takes_option(figure.hook, "topk_fraction");
  }
  if (key == "parameters") {
    return !hook_info(figure.hook).reads_shapes;
  }
  return key != "ranks" || figure.kind != FigureKind::StateMemory || figure.zero_stage > 0;
}

std::string conditions_of(const PublishedFigure& figure) {
  std::vector<std::string> texts;
  for (const std::string& key : figure_info(figure.kind).keys) {
    if (matters(key, figure)) {
      texts.push_back(condition_text(key, figure));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::vector<FigureCheck> check_figures(const Scenario& scenario) {
  if (scenario.published.empty()) {
    throw InputError(SourcePlace{scenario.path}, "no published figure: add a [[published]] table");
  }
  std::vector<FigureCheck> checks;
  for (const PublishedFigure& figure : scenario.published) {
    FigureCheck check;
    check.published = figure;
    check.conditions = conditions_of(figure);
    check.computed = compute(scenario, figure);
    const double difference = figure.value.value - check.computed;
    if (check.computed > 0) {
      check.published_off = difference / check.computed;
    }
    // Published digits are decimal, so half a unit of the last one is not exact in binary.
    constexpr double kSlack = 1 + 1e-9;
    check.agrees = std::abs(difference) <= figure.value.half_unit * kSlack;
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace stepsim
