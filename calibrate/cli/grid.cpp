#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/samples/measure_plan.h"
#include "calibrate/samples/plan_shapes.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/training_ops.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/json_file.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

struct GridOptions {
  std::vector<std::string> plans;
  std::string out;
  int count = 24;
};

constexpr const char* kGridUsage =
    "usage: stepcal grid PLAN… --out SHAPES\n\n"
    "Chooses few batch shapes (samples and padded length) that cover what the plans' policies\n"
    "run: the corners, the middle batch of each policy, and the batches farthest from those.\n"
    "Those near which most planned batches are run more often.\n"
    "calibrate/torch/stepsim_measure.py times the ops of the plans' model on them in PyTorch,\n"
    "calibrate/torch/stepsim_calibrate.py whole steps of your own model; with the Python package\n"
    "they are python3 -m stepsim.torch.measure and stepsim.torch.calibrate.\n\n"
    "examples:\n"
    "  stepsim plan SCENARIO.toml --out-dir plans\n"
    "  stepcal grid plans/*.jsonl --out shapes.json\n"
    "  python3 -m stepsim.torch.measure shapes.json --out samples.jsonl\n"
    "  python3 -m stepsim.torch.calibrate my_model.py --shapes shapes.json --out mine\n";

/// Whether Stepsim knows the ops of the model one by one.
bool is_known(const TransformerConfig& model) {
  return model.family != ModelFamily::Blocks;
}

/// The plan of a samples file for these shapes.
MeasurePlan plan_of(const std::vector<Plan>& plans, const std::vector<PlanShape>& shapes) {
  const Plan& first = plans.front();
  MeasurePlan plan;
  plan.model = first.model;
  plan.ranks = first.ranks;
  plan.box = box_of_plans(plans);
  plan.points = mapped(shapes, [](const PlanShape& shape) {
    return GridPoint{shape.samples, shape.length};
  });
  plan.collectives = {CollectiveKind::AllReduce};
  plan.buckets = first.buckets;
  plan.collective_bytes = collective_sizes(plan.model, plan.buckets, plan.ranks);
  return plan;
}

/// Adds "pass", a samples file's list of the distinct ops of a step, and "ops", all ops in
/// execution order: name, pass, and the place among the distinct ones.
void describe_ops(const TransformerConfig& model, Json* header) {
  // DDP copies each gradient out of its bucket by itself.
  const auto single =
      mapped(ready_order(model), [](int parameter) { return std::vector<int>{parameter}; });
  const std::vector<Op> ops = training_ops(model, single);
  const StepOpKinds kinds = distinct_ops(ops);
  Json list = Json::array();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    list.push_back({ops[i].name, name_of(ops[i].pass), kinds.kind_of[i]});
  }
  (*header)["pass"] = pass_json(0, kinds);
  (*header)["ops"] = std::move(list);
}

/// What stepsim_measure.py has to know of the model that plans train. "plan" is the plan of a
/// samples file.
void describe_model(const std::vector<Plan>& plans,
                    const std::vector<PlanShape>& shapes,
                    Json* header) {
  const Plan& first = plans.front();
  const MeasurePlan plan = plan_of(plans, shapes);
  (*header)["plan"] = plan_json(plan);
  (*header)["optimizer"] = first.optimizer;
  (*header)["set_to_none"] = first.ddp ? first.ddp->set_to_none : true;
  if (first.ddp) {
    (*header)["bucket_limits"] = first.ddp->bucket_limits;
  }
  (*header)["bucket_bytes"] = bucket_bytes(plan.model, plan.buckets);
  (*header)["parameters"] = mapped(parameters(plan.model), [](const Parameter& parameter) -> Json {
    return {parameter.name, parameter.shape};
  });
  describe_ops(plan.model, header);
}

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
  if (is_known(plans.front().model)) {
    describe_model(plans, shapes, &header);
  }
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

std::string chosen_text(const std::vector<Plan>& plans,
                        const std::vector<PlanShape>& shapes,
                        const Screen& screen) {
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
      table.text(screen),
      distance.median,
      distance.largest);
}

/// What to run on the shapes. The plans of a preset's kind can be measured op by op, and a
/// config.json's model can be made of it.
std::string next_text(const std::vector<Plan>& plans, const std::string& out) {
  const std::string shapes = shell_word(out);
  if (plans.front().model.family == ModelFamily::Transformers) {
    return fmt::format("next: python3 -m stepsim.torch.calibrate --shapes {} --out mine\n", shapes);
  }
  const std::string own =
      fmt::format("python3 -m stepsim.torch.calibrate my_model.py --shapes {} --out mine", shapes);
  if (!is_known(plans.front().model)) {
    return fmt::format("next: {}\n", own);
  }
  return fmt::format(
      "next: python3 -m stepsim.torch.measure {} --out samples.jsonl\n"
      "  or your own model: {}\n",
      shapes,
      own);
}

Answer ask_grid(const CommandRequest& request, const GridOptions& options) {
  if (options.plans.empty()) {
    request.fail("no plan given; make some: stepsim plan SCENARIO.toml --out-dir plans");
  }
  if (options.count < 1) {
    request.fail("--count: at least 1");
  }
  const std::vector<Plan> plans = mapped(options.plans, read_plan);
  const std::vector<PlanShape> shapes =
      choose_plan_shapes(plans, static_cast<std::size_t>(options.count));
  require_given(request, options.out, "file for the shapes (--out)");
  write_text_atomically(options.out, shapes_text(plans, shapes));
  Answer answer;
  answer.text = [=, out = options.out](const Screen& screen) {
    return fmt::format("{}wrote {}\n{}",
                       chosen_text(plans, shapes, screen),
                       printable(out),
                       next_text(plans, out));
  };
  return answer;
}

}  // namespace

StepcalCommand grid_command() {
  return question_row(
      "grid",
      "the batch shapes to calibrate your own model on",
      kGridUsage,
      {option("plans", &GridOptions::plans, "PLAN…: plans of one scenario").positional(-1),
       option("out", &GridOptions::out, "SHAPES or -: the shapes to write (JSON)").written(),
       option(
           "count", &GridOptions::count, "NUMBER: how many shapes; the corners come in any case")},
      ask_grid);
}

}  // namespace stepsim
