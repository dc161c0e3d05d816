#include "sim/study/figures.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/report/figures_report.h"

namespace stepsim {

namespace {

constexpr const char* kFiguresUsage =
    "usage: stepsim figures SCENARIO [options]\n\n"
    "Compares the published figures of a scenario ([[published]]) with what arithmetic gives:\n"
    "volumes and times of all-reduces, memory by ZeRO stage, volumes of compressed gradients,\n"
    "numbers of buckets. Exit status 1 when a figure differs by more than its rounding and its "
    "note does not\n"
    "say why.\n\n"
    "examples:\n"
    "  stepsim figures scenarios/figures/zero_memory.toml\n"
    "  stepsim figures scenarios/figures/gradient_compression.toml --csv -\n";

}  // namespace

int figures_command(const std::vector<std::string>& arguments) {
  OptionParser parser("figures", kFiguresUsage);
  parser.add_common();
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const std::vector<FigureCheck> checks = check_figures(scenario);
  write_result(
      common,
      figures_text(scenario, checks, output_screen()),
      [&] { return figures_json(scenario, checks); },
      [&] { return figures_csv(checks); });
  const bool unexplained =
      std::ranges::any_of(checks, [](const FigureCheck& check) { return check.unexplained(); });
  return unexplained ? kAnswerIsNo : kDone;
}

}  // namespace stepsim
