#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/core.h>

#include "calibrate/fit/fit.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr double kNoisyShare = 0.1;

/// The rows of the measured sizes, or of the entries for sizes never measured.
Table rows_table(const std::vector<FitRow>& rows, bool unmeasured) {
  Table table({"op",
               "pass",
               "form",
               "fits",
               "points",
               "measured time",
               "random",
               "block",
               "beyond",
               "bias"});
  for (const FitRow& row : rows) {
    if (row.unmeasured == unmeasured) {
      table.add({std::string(name_of(row.op_class)),
                 std::string(name_of(row.pass)),
                 row.forms,
                 std::to_string(row.entries),
                 std::to_string(row.points),
                 format_duration(row.seconds_lo) + " .. " + format_duration(row.seconds_hi),
                 error_text(row.errors.random),
                 error_text(row.errors.block),
                 error_text(row.errors.beyond),
                 error_text(row.errors.bias, true)});
    }
  }
  return table;
}

void append_interference(const InterferenceProfile& interference, std::string* text) {
  const auto put = [text](const char* name,
                          double value,
                          const std::optional<InterferenceProfile::Interval>& interval) {
    fmt::format_to(std::back_inserter(*text), "  {:<32} {:>6.1f} %", name, value * 100);
    if (interval) {
      fmt::format_to(std::back_inserter(*text),
                     "   (90 %: {:.1f} .. {:.1f})",
                     interval->first * 100,
                     interval->second * 100);
    }
    text->push_back('\n');
  };
  const Interference& value = interference.value;
  fmt::format_to(std::back_inserter(*text),
                 "\ninterference, {} measurements side by side, error left one out, in %: {}\n",
                 interference.samples,
                 error_text(interference.errors.random));
  put("compute beside a collective +", value.compute, interference.compute);
  put("a transfer beside compute +", value.transfer, interference.transfer);
  put("memory bandwidth that it takes", value.memory_share, interference.memory_share);
  if (value.multiprocessors > 0) {
    fmt::format_to(std::back_inserter(*text),
                   "  waves over {} multiprocessors less at most {}, limit {:.0f} %\n",
                   value.multiprocessors,
                   value.max_channels,
                   value.limit * 100);
  }
}

void append_host(const Profile& profile, std::string* text) {
  if (profile.host_is_device || profile.launch_seconds <= 0) {
    return;
  }
  fmt::format_to(std::back_inserter(*text),
                 "\nhost: {} to put an op in{}\n",
                 format_duration(profile.launch_seconds),
                 profile.launch_error > 0
                     ? fmt::format(" (+-{:.0f} % from run to run)", 100 * profile.launch_error)
                     : "");
  for (const ShapeCost& cost : profile.new_shapes) {
    fmt::format_to(
        std::back_inserter(*text),
        "a batch shape that it meets first holds it up by {} in the forward and {} in the "
        "backward\n",
        format_duration(cost.forward_seconds),
        format_duration(cost.backward_seconds));
  }
}

void append_collective(const CollectiveFit& fit, std::string* text) {
  fmt::format_to(std::back_inserter(*text),
                 "\n{} over {} ranks{}, {} sizes, {} .. {}: error left one out, in %\n",
                 fit.cost.kind == "all_reduce" ? "all-reduce" : fit.cost.kind,
                 fit.cost.ranks,
                 fit.cost.nodes > 1 ? fmt::format(" on {} nodes", fit.cost.nodes) : "",
                 fit.cost.knots.size(),
                 format_duration(fit.cost.knots.front().second),
                 format_duration(fit.cost.knots.back().second));
  if (fit.pipelined_floor) {
    fmt::format_to(std::back_inserter(*text),
                   "  floor: {} by itself, {} back to back\n",
                   format_duration(fit.floor),
                   format_duration(*fit.pipelined_floor));
  }
  for (const BandErrors& band : fit.bands) {
    if (band.mean) {
      fmt::format_to(std::back_inserter(*text),
                     "  {:<16} mean {:>5}  worst {:>5}  noise floor {:>5}\n",
                     band.band,
                     error_text(band.mean),
                     error_text(band.worst),
                     error_text(band.spread));
    }
  }
}

}  // namespace

std::string error_text(const std::optional<double>& fraction, bool with_sign) {
  constexpr double kTelling = 10;
  if (!fraction) {
    return "-";
  }
  if (std::abs(*fraction) > kTelling) {
    return fmt::format("> {:.0f} times", kTelling);
  }
  return with_sign ? fmt::format("{:+.1f}", *fraction * 100)
                   : fmt::format("{:.1f}", *fraction * 100);
}

std::string fit_report(const FitResult& result, const Screen& screen) {
  const Profile& profile = result.profile;
  std::string text = fmt::format(
      "profile {}: {}, {} measurements\n", profile.name, profile.device, result.measurements);
  if (!result.rows.empty()) {
    text += "\nmeasured sizes (errors held out, in %)\n" +
            rows_table(result.rows, false).text(screen) +
            "\nsizes never measured (block = one size left out)\n" +
            rows_table(result.rows, true).text(screen);
  }
  for (const CollectiveFit& fit : result.collectives) {
    append_collective(fit, &text);
  }
  if (profile.interference && profile.interference->samples > 0) {
    append_interference(*profile.interference, &text);
  }
  append_host(profile, &text);
  if (result.rows.empty()) {
    return text;
  }
  fmt::format_to(std::back_inserter(text),
                 "\nnoise: one step +-{:.1f} %, drift of the sentinel +-{:.1f} % (sentinel {})\n",
                 profile.noise.step_jitter * 100,
                 profile.noise.drift * 100,
                 format_duration(profile.noise.sentinel_seconds));
  if (std::max(profile.noise.step_jitter, profile.noise.drift) > kNoisyShare) {
    text +=
        "that is much: other programs were running, or the clock changed; measure again on a quiet "
        "machine\n";
  }
  return text;
}

}  // namespace stepsim
