#include "sim/report/columns.h"

#include <type_traits>

#include <fmt/core.h>

#include "sim/report/csv.h"
#include "sim/report/number_text.h"

namespace stepsim {
namespace {

template <typename T>
inline constexpr bool kIsNothing = std::is_same_v<std::decay_t<T>, std::monostate>;

/// The number of a cell that holds one.
double number_in(const Cell& cell) {
  const auto* whole = std::get_if<std::int64_t>(&cell);
  const auto* real = std::get_if<double>(&cell);
  return whole != nullptr ? static_cast<double>(*whole) : real != nullptr ? *real : 0;
}

}  // namespace

const char* name_of(FigureFormat format) {
  switch (format) {
    case FigureFormat::Words:
      return "words";
    case FigureFormat::Milliseconds:
      return "milliseconds";
    case FigureFormat::SignedMilliseconds:
      return "signed_milliseconds";
    case FigureFormat::Whole:
      return "whole";
    case FigureFormat::MeanMilliseconds:
      return "milliseconds";  // Pages show what they are given, and intervals beside it.
    case FigureFormat::Memory:
      return "memory";
    case FigureFormat::Tenths:
      return "tenths";
    case FigureFormat::Hundredths:
      return "hundredths";
    case FigureFormat::WholePercent:
      return "whole_percent";
    case FigureFormat::Percent:
      return "percent";
    case FigureFormat::SignedPercent:
      return "signed_percent";
    case FigureFormat::Interval:
      return "interval";
    case FigureFormat::TenthsInterval:
      return "tenths_interval";
    case FigureFormat::SignedPercentInterval:
      return "signed_percent_interval";
  }
  return "";
}

std::string figure_text(FigureFormat format, double value, double high) {
  switch (format) {
    case FigureFormat::Words:
      return fmt::format("{}", value);
    case FigureFormat::Milliseconds:
      return fmt::format("{:.3f}", value);
    case FigureFormat::SignedMilliseconds:
      return fmt::format("{:+.3f}", value);
    case FigureFormat::Whole:
      return fmt::format("{:.0f}", value);
    case FigureFormat::Memory:
      return memory_text(value);
    case FigureFormat::Tenths:
      return fmt::format("{:.1f}", value);
    case FigureFormat::Hundredths:
      return fmt::format("{:.2f}", value);
    case FigureFormat::WholePercent:
      return fmt::format("{:.0f} %", value * 100);
    case FigureFormat::Percent:
      return percent(value);
    case FigureFormat::SignedPercent:
      return signed_percent(value);
    case FigureFormat::MeanMilliseconds:
      return mean_text(value, high);
    case FigureFormat::Interval:
      return interval(value, high);
    case FigureFormat::TenthsInterval:
      return fmt::format("{:.1f} to {:.1f}", value, high);
    case FigureFormat::SignedPercentInterval:
      return fmt::format("{:+.1f} to {}", value * 100, signed_percent(high));
  }
  return "";
}

void put_cell(const char* key, const Cell& cell, Json& json) {
  std::visit(
      [&](const auto& value) {
        if constexpr (!kIsNothing<decltype(value)>) {
          json[Json::json_pointer(std::string("/") + key)] = value;
        }
      },
      cell);
}

std::string csv_cell(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> std::string {
        if constexpr (kIsNothing<decltype(value)>) {
          return "";
        } else {
          return csv_field(fmt::format("{}", value));
        }
      },
      cell);
}

std::string table_cell(FigureFormat format, const Cell& cell, const Cell& upper) {
  if (std::holds_alternative<std::monostate>(cell)) {
    return "-";
  }
  if (const auto* words = std::get_if<std::string>(&cell)) {
    return *words;
  }
  return format == FigureFormat::Words ? csv_cell(cell)
                                       : figure_text(format, number_in(cell), number_in(upper));
}

}  // namespace stepsim
