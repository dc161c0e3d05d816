// [model] kind = "recorded": the model of the profile.
#include <string>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"
#include "costmodel/records/profile.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

PassCost constant_pass(double seconds) {
  PassCost cost;
  cost.features = {"1"};
  cost.coefficients = {seconds};
  cost.tokens = {1, 1000};
  cost.length = {1, 100};
  cost.samples = 20;
  return cost;
}

/// A profile of two tensors: the second one's gradient is ready after a quarter of the backward.
Profile profile_of_own_model() {
  Profile profile;
  profile.name = "recorded";
  profile.backend = "cpu";
  RecordedModel recorded;
  TransformerConfig& model = recorded.model;
  model.family = ModelFamily::Blocks;
  model.name = "Net";
  model.hidden = model.heads = model.kv_heads = model.ffn = model.vocab = 1;
  model.max_length = 1 << 20;
  model.layers = 2;
  model.tensors = {{"a", {1 << 18}, 1, 3}, {"b", {1 << 18}, 1, 1}};
  recorded.operations_per_byte = 0;
  recorded.forward = constant_pass(10e-3);
  recorded.backward = constant_pass(20e-3);
  recorded.data = constant_pass(0);
  recorded.optimizer_seconds = 5e-3;
  profile.recorded = recorded;
  return profile;
}

Scenario recorded_scenario(const std::string& profile, const std::string& more = "") {
  const std::string text =
      "[scenario]\nname = \"own\"\nsteps = 3\nwarmup_steps = 2\n"
      "[cluster]\nranks = 2\n" +
      (profile.empty() ? "" : "profile = \"" + profile + "\"\n") +
      "all_reduce = { sizes = [\"1 KiB\", \"1 GiB\"], times = [\"8 ms\", \"8 ms\"] }\n"
      "[model]\nkind = \"recorded\"\n" +
      more +
      "[ddp]\nbucket_cap = \"1 MiB\"\n"
      "[data]\nsamples = 64\nlengths = { constant = 10 }\n"
      "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 1\n";
  return parse_scenario(text, "own.toml");
}

std::string recorded_error(const std::string& profile, const std::string& more = "") {
  return test::error_of([&] { (void)recorded_scenario(profile, more); });
}

}  // namespace

TEST_CASE("a recorded model is that of the profile, and its step is of the recorded times") {
  const std::string path = test::fresh_folder() + "/profile.json";
  write_profile(path, profile_of_own_model());
  const Scenario scenario = recorded_scenario(path);
  CHECK(scenario.model.name == "Net");
  CHECK(scenario.model.tensors.size() == 2);
  const PredictionSummary summary = predict_quietly(scenario).summary;
  CHECK(summary.forward_ms == Approx(10));
  CHECK(summary.backward_ms == Approx(20));
  CHECK(summary.optimizer_ms == Approx(5));
  // Tensors of 1 MiB fill a bucket each. The first is reduced from 5 to 13 ms of the backward, the
  // second for 8 ms after its end.
  CHECK(summary.exposed_communication_ms == Approx(8));
  CHECK(summary.step_time_ms.mean == Approx(43));
}

TEST_CASE("a recorded model needs a profile that holds one, and takes no other keys") {
  CHECK(recorded_error("").find("model.kind: the model of the profile's record; name it as "
                                "cluster.profile") != std::string::npos);
  Profile plain;
  plain.name = "plain";
  plain.backend = "cpu";
  const std::string folder = test::fresh_folder();
  write_profile(folder + "/plain.json", plain);
  CHECK(recorded_error(folder + "/plain.json").find("holds no recorded model; make one: stepcal") !=
        std::string::npos);
  write_profile(folder + "/own.json", profile_of_own_model());
  CHECK(recorded_error(folder + "/own.json", "layers = 3\n")
            .find("model.layers: the recorded model has its own") != std::string::npos);
}

TEST_CASE("a config.json takes the times of a profile that was recorded from its model") {
  const std::string folder = test::fresh_folder();
  const std::string config =
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
          "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32})";
  write_text_atomically(folder + "/config.json", config);
  Profile profile = profile_of_own_model();
  TransformerConfig& recorded = profile.recorded->model;
  recorded.name = "LlamaForCausalLM";
  recorded.tensors.clear();
  for (const Parameter& parameter : parameters(transformers_model(config, "", "config.json"))) {
    recorded.tensors.push_back({parameter.name, parameter.shape, 1, 1});
  }
  recorded.layers = std::ssize(recorded.tensors);
  write_profile(folder + "/same.json", profile);
  recorded.tensors.front().shape = {31, 8};
  write_profile(folder + "/other.json", profile);
  const auto scenario_with = [&](const std::string& name, const std::string& more = "") {
    const std::string text =
        "[scenario]\nname = \"own\"\nsteps = 3\nwarmup_steps = 2\n"
        "[cluster]\nranks = 2\nprofile = \"" +
        folder + "/" + name +
        "\"\nall_reduce = { sizes = [\"1 KiB\", \"1 GiB\"], times = [\"8 ms\", \"8 ms\"] }\n"
        "[model]\nconfig = \"" +
        folder + "/config.json\"\n" + more +
        "[data]\nsamples = 64\nlengths = { constant = 10 }\n"
        "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 1\n";
    return parse_scenario(text, "own.toml");
  };
  CHECK(scenario_with("same.json").model.family == ModelFamily::Blocks);
  CHECK(predict_quietly(scenario_with("same.json")).summary.forward_ms == Approx(10));
  CHECK(scenario_with("other.json").model.family == ModelFamily::Transformers);
  CHECK(scenario_with("not_there.json").model.family == ModelFamily::Transformers);
  CHECK(test::error_of([&] {
          (void)scenario_with("same.json", "attention = \"flash\"\n");
        }).find("model.attention: the profile was recorded from this model") != std::string::npos);
}

TEST_CASE("batches can be planned before the profile of a recorded model is there") {
  const std::string path = test::fresh_folder() + "/later.json";
  const Scenario scenario = recorded_scenario(path);
  CHECK(scenario.model_is_unknown);
  CHECK(scenario.profile == path);
  CHECK(recorded_error(path, "layers = 3\n").find("the recorded model has its own") !=
        std::string::npos);
  // By padded tokens where times are asked for only if they are known.
  PolicySpec spec;
  spec.name = spec.kind = "planner";
  spec.parameters.set("batch_size", std::int64_t{2});
  CHECK_FALSE(planning_cost(scenario, make_policy(spec)).batch);
  spec.parameters.set("cost", std::string("step_time"));
  CHECK_THROWS_AS((void)planning_cost(scenario, make_policy(spec)), InputError);
  write_profile(path, profile_of_own_model());
  CHECK_FALSE(recorded_scenario(path).model_is_unknown);
}
