// Tables that people write by hand: tensors of a model, step times, and parameters for buckets
// (JSON).

#include <cmath>

#include "calibrate/cli/cli.h"
#include "costmodel/model/tensor_list.h"
#include "costmodel/records/profile.h"
#include "sim/cli/questions.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

void enter_tensors(const std::string& path) {
  const TransformerConfig model = tensor_chain("model", read_tensor_list(path).tensors);
  check(model);
  require(parameter_count(model) > 0, "a model without parameters");
  const double flops = training_flops(model, 4, 4);
  require(std::isfinite(flops) && flops >= 0, "no number of operations");
  const Answer answer = ask(question_named("buckets"),
                            std::vector<std::string>{source_path("scenarios/bucket_valley.toml"),
                                                     "--set",
                                                     "model={kind=\"blocks\"}",
                                                     "--set",
                                                     "model.tensors=" + path});
  require(!answer.text({}).empty(), "no report");
}

}  // namespace

void enter_tables(std::string_view input) {
  const std::string path = file_with("table.csv", input);
  (void)accepts([&] { enter_tensors(path); });
  (void)accepts([&] {
    const Answer answer =
        ask(question_named("buckets"), std::vector<std::string>{"--params", path});
    require(!answer.json_text().empty(), "no report");
  });
  const std::string out = path_of("job.json");
  const std::string scenario = path_of("job.toml");
  (void)accepts([&] {
    (void)run_stepcal_command({"import",
                               "step-times",
                               path,
                               "--gradient-bytes",
                               "97 MiB",
                               "--out",
                               out,
                               "--scenario",
                               scenario});
    require(accepts([&] { (void)read_profile(out); }), "a profile of step times that is refused");
    require(accepts([&] { (void)read_scenario(scenario); }), "a scenario that is refused");
  });
}

}  // namespace stepsim::fuzz
