// Profiles: read, written and read again, then a small scenario is priced with them.

#include "costmodel/records/profile.h"

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "sim/predict/predict.h"
#include "sim/report/text.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

constexpr const char* kPriced = R"(
[scenario]
name = "priced"
steps = 3
warmup_steps = 1
[cluster]
ranks = 2
topology = { intra_latency = "3 us", intra_bandwidth = "300 GB/s" }
[model]
kind = "gpt2"
layers = 1
hidden = 16
heads = 2
vocab = 64
max_length = 64
[data]
samples = 16
lengths = { uniform = [4, 32] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2
)";

}  // namespace

void enter_profile(std::string_view input) {
  const std::string path = file_with("profile.json", input);
  const Profile profile = read_profile(path);
  const std::string copy = path_of("copy.json");
  write_profile(copy, profile);
  require(read_profile(copy) == profile, "another profile after writing");
  for (const char* model : {"model.kind=gpt2", "model.kind=recorded"}) {
    const bool recorded = std::string_view(model).ends_with("recorded");
    if (recorded && !profile.recorded) {
      continue;
    }
    (void)accepts([&] {
      std::string text = kPriced;
      if (recorded) {
        const std::size_t from = text.find("kind = \"gpt2\"");
        const std::size_t to = text.find("[data]");
        text.replace(from, to - from, "kind = \"recorded\"\n");
      }
      const std::string set = "cluster.profile=" + path;
      const Scenario scenario = parse_scenario(text, path_of("scenario.toml"), {&set, 1});
      PredictOptions options;
      options.noise_runs = 2;
      options.threads = 1;
      const Prediction prediction = predict(scenario, find_policy(scenario, ""), profile, options);
      const double step = prediction.summary.step_time_ms.mean;
      require(step >= 0, "a step of negative time, or of none that is a number");
      (void)run_text(scenario, prediction, {});
    });
  }
}

}  // namespace stepsim::fuzz
