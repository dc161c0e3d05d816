#include <algorithm>
#include <iterator>

#include <fmt/core.h>

#include "calibrate/fit/fit.h"
#include "costmodel/parse_units.h"

namespace stepsim {
namespace {

constexpr double kNoisy = 0.1;

std::string percent(const std::optional<double>& fraction, bool with_sign = false) {
  if (!fraction) {
    return "-";
  }
  return with_sign ? fmt::format("{:+.1f}", *fraction * 100)
                   : fmt::format("{:.1f}", *fraction * 100);
}

void append_rows(const std::vector<FitRow>& rows, bool general, std::string* text) {
  for (const FitRow& row : rows) {
    if (row.general != general) {
      continue;
    }
    fmt::format_to(std::back_inserter(*text),
                   "{:<18} {:<9} {:<26} {:>4} {:>6}  {:>10} .. {:<10} {:>7} {:>6} {:>7} {:>6}\n",
                   name_of(row.op_class),
                   name_of(row.pass),
                   row.forms,
                   row.entries,
                   row.points,
                   format_duration(row.seconds_lo),
                   format_duration(row.seconds_hi),
                   percent(row.errors.random),
                   percent(row.errors.block),
                   percent(row.errors.beyond),
                   percent(row.errors.bias, true));
  }
}

void append_head(const char* title, std::string* text) {
  fmt::format_to(std::back_inserter(*text),
                 "{}\n{:<18} {:<9} {:<26} {:>4} {:>6}  {:<24} {:>7} {:>6} {:>7} {:>6}\n",
                 title,
                 "op",
                 "pass",
                 "form",
                 "fits",
                 "points",
                 "     measured time",
                 "random",
                 "block",
                 "beyond",
                 "bias");
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
  for (const BandErrors& band : fit.bands) {
    if (band.mean) {
      fmt::format_to(std::back_inserter(*text),
                     "  {:<16} mean {:>5}  worst {:>5}  noise floor {:>5}\n",
                     band.band,
                     percent(band.mean),
                     percent(band.worst),
                     percent(band.spread));
    }
  }
}

}  // namespace

std::string fit_report(const FitResult& result) {
  const Profile& profile = result.profile;
  std::string text = fmt::format(
      "profile {}: {}, {} measurements\n", profile.name, profile.device, result.measurements);
  if (!result.rows.empty()) {
    text += "\n";
    append_head("measured sizes (errors held out, in %)", &text);
    append_rows(result.rows, false, &text);
    text += "\n";
    append_head("sizes never measured (block = one size left out)", &text);
    append_rows(result.rows, true, &text);
  }
  for (const CollectiveFit& fit : result.collectives) {
    append_collective(fit, &text);
  }
  if (result.rows.empty()) {
    return text;
  }
  fmt::format_to(std::back_inserter(text),
                 "\nnoise: one step +-{:.1f} %, drift of the sentinel +-{:.1f} % (sentinel {})\n",
                 profile.noise.step_jitter * 100,
                 profile.noise.drift * 100,
                 format_duration(profile.noise.sentinel_seconds));
  if (std::max(profile.noise.step_jitter, profile.noise.drift) > kNoisy) {
    text +=
        "that is much: other programs were running, or the clock changed; measure again on a quiet "
        "machine\n";
  }
  return text;
}

}  // namespace stepsim
