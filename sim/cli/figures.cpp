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

Answer figures_command(const Request& request) {
  OptionParser parser("figures", kFiguresUsage, request);
  parser.add_common();
  if (!parser.parse()) {
    return {};
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  const std::vector<FigureCheck> checks = check_figures(scenario);
  const bool unexplained =
      std::ranges::any_of(checks, [](const FigureCheck& check) { return check.unexplained(); });
  Answer answer;
  answer.status = unexplained ? kAnswerIsNo : kDone;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) { return figures_text(scenario, checks, screen); };
  answer.json = [=] { return figures_json(scenario, checks); };
  answer.csv = [=] { return figures_csv(checks); };
  return answer;
}

}  // namespace stepsim
