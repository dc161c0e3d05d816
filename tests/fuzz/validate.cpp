// What a prediction is compared with: parts "=== predictions.json", "=== live.jsonl", "===
// steps.csv".

#include <string>
#include <vector>

#include "sim/cli/questions.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

/// As the scenario of the seeds' predictions.
constexpr const char* kValidated = R"(
[scenario]
name = "small"
steps = 3
warmup_steps = 1
[cluster]
ranks = 2
topology = { intra_latency = "3 us", intra_bandwidth = "300 GB/s" }
[times]
forward = "2 ms"
backward = "4 ms"
[model]
kind = "blocks"
layers = 2
block_elements = 1000
[data]
samples = 16
lengths = { constant = 8 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2
)";

}  // namespace

void enter_validate(std::string_view input) {
  const std::string scenario = file_with("validated.toml", kValidated);
  std::vector<std::string> live = {scenario};
  for (const InputPart& part : parts_of(input)) {
    if (part.name == "predictions.json") {
      live.insert(live.end(), {"--predictions", file_with(part.name, part.text)});
    } else if (part.name == "live.jsonl") {
      live.insert(live.end(), {"--live", file_with(part.name, part.text)});
    } else if (part.name == "steps.csv") {
      const std::string steps = file_with(part.name, part.text);
      (void)accepts([&] {
        const Answer answer = ask(question_named("validate"),
                                  std::vector<std::string>{scenario, "--step-times", steps});
        require(!answer.text({}).empty() && !answer.json_text().empty(), "no report");
      });
    }
  }
  const Answer answer = ask(question_named("validate"), live);
  require(!answer.text({}).empty() && !answer.json_text().empty(), "no report");
}

}  // namespace stepsim::fuzz
