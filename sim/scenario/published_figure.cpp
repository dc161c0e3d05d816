#include "sim/scenario/published_figure.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/row_named.h"
#include "costmodel/base/trimmed.h"

namespace stepsim {
namespace {

using Units = std::vector<std::pair<std::string, double>>;

const Units& units_of(Dimension dimension) {
  static const Units kBytes = {{"B", 1},
                               {"kB", 1e3},
                               {"MB", 1e6},
                               {"GB", 1e9},
                               {"TB", 1e12},
                               {"KiB", 0x1p10},
                               {"MiB", 0x1p20},
                               {"GiB", 0x1p30},
                               {"TiB", 0x1p40}};
  static const Units kSeconds = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  static const Units kNumber = {{"", 1}};
  static const Units kCount = {{"", 1}, {"Ki", 0x1p10}, {"Mi", 0x1p20}};
  static const Units kSpeeds = {{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
  switch (dimension) {
    case Dimension::Size:
      return kBytes;
    case Dimension::Time:
      return kSeconds;
    case Dimension::Number:
      return kNumber;
    case Dimension::Count:
      return kCount;
    case Dimension::Speed:
      return kSpeeds;
  }
  return kNumber;
}

}  // namespace

Quantity parse_quantity(std::string_view text, Dimension dimension) {
  const std::string_view whole = trimmed(text);
  const bool rough = whole.starts_with('~');
  const std::string_view digits = whole.substr(rough ? 1 : 0);
  double number = 0;
  const auto [end, error] = std::from_chars(
      digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number <= 0) {
    throw InputError("'{}' does not start with a number above 0", printable(text));
  }
  const auto length = static_cast<std::size_t>(end - digits.data());
  Quantity result;
  result.text = std::string(whole);
  result.unit = std::string(trimmed(digits.substr(length)));
  const std::size_t dot = digits.substr(0, length).find('.');
  result.decimals = dot == std::string_view::npos ? 0 : static_cast<int>(length - dot - 1);
  const Units& units = units_of(dimension);
  const auto found =
      std::ranges::find_if(units, [&](const auto& u) { return u.first == result.unit; });
  if (found == units.end()) {
    const std::vector<std::string> names =
        mapped(units, [](const auto& unit) { return unit.first.empty() ? "none" : unit.first; });
    throw InputError(dimension == Dimension::Number
                         ? fmt::format("'{}': expected a number without unit", printable(text))
                         : fmt::format("unknown unit '{}' in '{}'; use one of {}",
                                       printable(result.unit),
                                       printable(text),
                                       fmt::join(names, ", ")));
  }
  double digit = std::pow(10.0, -result.decimals);
  if (rough) {
    digit = std::max(digit, std::pow(10.0, std::floor(std::log10(number)) - 1));
  }
  result.unit_size = found->second;
  result.value = number * found->second;
  result.half_unit = 0.5 * digit * found->second;
  return result;
}

std::string format_like(const Quantity& like, double value) {
  std::string number = fmt::format("{:.{}f}", value / like.unit_size, like.decimals + 2);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') {
    number.pop_back();
  }
  return like.unit.empty() ? number : number + " " + like.unit;
}

const std::vector<FigureInfo>& figure_table() {
  static const std::vector<FigureInfo> kFigures = {
      {FigureKind::RingVolume,
       "ring_volume",
       Dimension::Size,
       {"ranks", "parameters"},
       {},
       "2(n-1)/n x bytes of all gradients"},
      {FigureKind::AllReduceTime,
       "all_reduce_time",
       Dimension::Time,
       {"ranks", "parameters", "bandwidth"},
       {"bandwidth"},
       "ring_volume / bandwidth, without latency"},
      {FigureKind::StateMemory,
       "state_memory",
       Dimension::Size,
       {"ranks", "parameters", "zero_stage", "optimizer_bytes"},
       {},
       "weights + gradients + optimizer, of which ZeRO 1 splits the last over n ranks, 2 the last "
       "two, 3 all"},
      {FigureKind::CompressedVolume,
       "compressed_volume",
       Dimension::Size,
       {"ranks", "parameters", "hook", "powersgd_rank", "topk_fraction"},
       {"hook"},
       "what the hook's collectives send in a ring, past its start; PowerSGD from the model's "
       "tensors, the others from the number of parameters, as one bucket"},
      {FigureKind::BucketCount,
       "bucket_count",
       Dimension::Number,
       {"bucket_cap"},
       {},
       "buckets after the rebuild, from the model's tensors"},
      {FigureKind::ComputeTime,
       "compute_time",
       Dimension::Time,
       {"samples", "length", "speed"},
       {"samples", "length", "speed"},
       "operations of forward and backward of the model / speed: less is not possible"},
      {FigureKind::StepTokens,
       "step_tokens",
       Dimension::Count,
       {"ranks", "accumulation_steps", "samples", "length"},
       {"samples", "length"},
       "ranks x accumulation steps x samples x length"},
      {FigureKind::AttentionScores,
       "attention_scores",
       Dimension::Count,
       {"samples", "length"},
       {"samples", "length"},
       "samples x length^2, one head, without a mask"},
      {FigureKind::AttentionSaving,
       "attention_saving",
       Dimension::Number,
       {"samples", "length", "row_length"},
       {"samples", "length", "row_length"},
       "scores of full rows / scores of the samples that fill them = row_length / length"}};
  return kFigures;
}

const FigureInfo& figure_info(FigureKind kind) {
  return figure_table()[static_cast<std::size_t>(kind)];
}

const FigureInfo& figure_info(std::string_view name) {
  return row_named(figure_table(), &FigureInfo::name, "figure", name);
}

}  // namespace stepsim
