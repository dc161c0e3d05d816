#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/cli.h"
#include "calibrate/cli/options.h"
#include "calibrate/samples/plan_shapes.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr int kDefaultShapes = 24;

constexpr const char* kGridUsage =
    "usage: stepcal grid PLAN… --out SHAPES\n\n"
    "Chooses few batch shapes (samples and padded length) that cover what the plans' policies\n"
    "run: the corners, the middle batch of each policy, and the batches farthest from those.\n"
    "Those near which most planned batches are run more often.\n"
    "calibrate/torch/stepsim_calibrate.py measures your own model on them.\n\n"
    "examples:\n"
    "  stepsim plan SCENARIO.toml --out-dir plans\n"
    "  stepcal grid plans/*.jsonl --out shapes.json\n"
    "  torchrun --nproc_per_node 2 stepsim_calibrate.py my_model.py --shapes shapes.json --out "
    "mine\n";

/// One line a shape.
std::string shapes_text(const std::vector<Plan>& plans, const std::vector<PlanShape>& shapes) {
  Json header;
  header["format"] = "stepsim-shapes/1";
  header["scenario"] = plans.front().scenario;
  header["policies"] = Json::array();
  for (const Plan& plan : plans) {
    header["policies"].push_back(plan.policy);
  }
  header["ranks"] = plans.front().ranks;
  std::string text = header.dump();
  text.pop_back();
  text += ",\"shapes\":[";
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const PlanShape& shape = shapes[i];
    text += fmt::format("{}\n{}",
                        i > 0 ? "," : "",
                        Json{{"samples", shape.samples},
                             {"length", shape.length},
                             {"runs", shape.runs},
                             {"policy", shape.policy},
                             {"lengths", shape.lengths}}
                            .dump());
  }
  return text + "\n]}\n";
}

std::string chosen_text(const std::vector<Plan>& plans, const std::vector<PlanShape>& shapes) {
  Table table({"samples", "length", "tokens", "runs", "policy"});
  for (const PlanShape& shape : shapes) {
    table.add({fmt::format("{}", shape.samples),
               fmt::format("{}", shape.length),
               fmt::format("{}", shape.tokens()),
               fmt::format("{}", shape.runs),
               printable(shape.policy)});
  }
  const ShapeDistance distance = distance_to(shapes, plans);
  return fmt::format(
      "{}\nthe planned batches are within a factor of {:.2f} of one of these in samples and length "
      "(median; largest {:.2f})\n",
      table.text(output_screen()),
      distance.median,
      distance.largest);
}

}  // namespace

int grid_command(const std::vector<std::string>& arguments) {
  OptionParser parser("grid", kGridUsage);
  parser.add({{"plans", option_value<std::vector<std::string>>(), "PLAN…: plans of one scenario"},
              {"out", option_text(), "SHAPES or -: the shapes to write (JSON)", true},
              {"count",
               option_value<int>(kDefaultShapes),
               "NUMBER: how many shapes; the corners come in any case"}});
  parser.positional("plans", -1);
  if (!parser.parse(arguments)) {
    return kDone;
  }
  if (parser.list("plans").empty()) {
    parser.fail("no plan given; make some: stepsim plan SCENARIO.toml --out-dir plans");
  }
  const int count = parser.get<int>("count");
  if (count < 1) {
    parser.fail("--count: at least 1");
  }
  std::vector<Plan> plans;
  for (const std::string& path : parser.list("plans")) {
    plans.push_back(read_plan(path));
  }
  const std::vector<PlanShape> shapes = choose_plan_shapes(plans, static_cast<std::size_t>(count));
  const std::string out = parser.required("out", "file for the shapes (--out)");
  write_text_atomically(out, shapes_text(plans, shapes));
  if (out != "-") {
    print_report(
        fmt::format("{}wrote {}\nnext: torchrun --nproc_per_node {} stepsim_calibrate.py "
                    "my_model.py --shapes {} --out mine\n",
                    chosen_text(plans, shapes),
                    printable(out),
                    plans.front().ranks,
                    shell_word(out)));
  }
  return kDone;
}

}  // namespace stepsim
