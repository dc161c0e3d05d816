// Prices of the collectives of sharded training where nobody measured their groups.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/report/notes.h"
#include "tests/approx.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/source_root.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// 8 blocks of 1 ms forward and 2 ms backward, 64 MB each; two nodes of eight H100.
const std::string kShardedText = R"(
[scenario]
name = "sharded"
steps = 4
warmup_steps = 1
[cluster]
placement = "2x8"
profile = "PROFILE"
topology = { algorithm = "nccl", channels = 16, intra_latency = "3 us", intra_bandwidth = "360 GB/s", inter_latency = "15 us", inter_bandwidth = "50 GB/s" }
[times]
forward = "8 ms"
backward = "16 ms"
optimizer = "1 ms"
[model]
kind = "blocks"
layers = 8
block_elements = 16_000_000
[parallel]
kind = "fsdp2"
[data]
samples = 4096
lengths = { constant = 8 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
)";

Prediction sharded(const std::vector<std::string>& overrides) {
  std::string text = kShardedText;
  text.replace(
      text.find("PROFILE"), 7, test::source_root() + "/scenarios/profiles/h100_8x_published.json");
  return test::predict_quietly(parse_scenario(text, "sharded.toml", overrides));
}

double sharded_ms(const std::vector<std::string>& overrides) {
  return sharded(overrides).summary.step_time_ms.mean;
}

std::set<std::string> sharded_origins(const std::vector<std::string>& overrides) {
  std::set<std::string> texts;
  for (const CollectiveOrigin& origin : sharded(overrides).collective_origins) {
    texts.insert(origin.text);
  }
  return texts;
}

}  // namespace

TEST_CASE("sharded: measured groups by their table, others by NCCL's model over the links") {
  // 16 ranks on two nodes are not in the profile.
  for (const std::string& text : sharded_origins({})) {
    CAPTURE(text);
    const bool gathers = text.starts_with("all_gather: NCCL 2.28.9 tuning model: Ring/");
    CHECK((gathers || text.starts_with("reduce_scatter: NCCL 2.28.9 tuning model: Ring/")));
  }
  // Shards inside a node are, as all-reduces; pairs of ranks on two nodes are not.
  const std::string measured = ": all_reduce by the bytes on a ring: measured table, 8 ranks";
  const std::set<std::string> hybrid = sharded_origins({"parallel.replicas=2"});
  CHECK(hybrid.contains("all_gather" + measured));
  CHECK(hybrid.contains("reduce_scatter" + measured));
  CHECK(std::ranges::any_of(hybrid, [](const std::string& text) {
    return text.starts_with("all_reduce: NCCL 2.28.9 tuning model");
  }));
  const auto notes = note_texts(sharded({"parallel.replicas=2"}));
  CHECK(std::ranges::any_of(notes, [](const std::string& note) {
    return note.starts_with("not measured: ") &&
           note.find("all_reduce: NCCL 2.28.9 tuning model") != std::string::npos;
  }));
}

TEST_CASE("sharded: HSDP keeps gathers inside the nodes, which pays where links between are slow") {
  const std::string slow = "cluster.topology.inter_bandwidth=3 GB/s";
  CHECK(sharded_ms({slow, "parallel.replicas=2"}) < sharded_ms({slow}));
  // One rank a shard group: nothing is gathered, and each unit is all-reduced.
  CHECK(sharded_origins({"parallel.replicas=16"}).size() == 1);
}

TEST_CASE("sharded: one replica is plain FSDP2") {
  const StepTimeSummary plain = sharded({}).summary.step_time_ms;
  CHECK(sharded_ms({"parallel.replicas=1"}) == Approx(plain.mean).epsilon(1e-12));
}

TEST_CASE("sharded: offload takes device memory for time") {
  const Prediction plain = sharded({});
  const std::vector<std::string> offload = {
      "parallel.offload=true", "host.copy_bandwidth=25 GB/s", "host.cpu_optimizer=1.5 ms"};
  const auto with_offload = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = offload;
    all.insert(all.end(), more.begin(), more.end());
    return sharded(all);
  };
  const Prediction host = with_offload({});
  CHECK(host.summary.step_time_ms.mean > plain.summary.step_time_ms.mean);
  CHECK(host.summary.peak_memory_mib < plain.summary.peak_memory_mib);
  // A rank's 8 million parameters, at 1.5 ms a million; no optimizer runs on the device.
  CHECK(host.summary.optimizer_ms == Approx(8 * 1.5).epsilon(0.05));
  CHECK(with_offload({"host.copy_bandwidth=5 GB/s"}).summary.step_time_ms.mean >
        host.summary.step_time_ms.mean);
  CHECK(with_offload({"host.cpu_optimizer=3 ms"}).summary.step_time_ms.mean ==
        Approx(host.summary.step_time_ms.mean + 12).epsilon(0.01));
  const auto notes = note_texts(host);
  CHECK(std::ranges::any_of(
      notes, [](const std::string& note) { return note.starts_with("with offload each rank"); }));
}

TEST_CASE("sharded: more bandwidth is never slower") {
  for (const std::string replicas : {"1", "2", "4", "16"}) {
    for (const std::string& key :
         {std::string("inter_bandwidth"), std::string("intra_bandwidth")}) {
      double before = 1e9;
      for (const int gb_per_s : {1, 2, 5, 12, 25, 50, 100, 200, 400, 800}) {
        CAPTURE(replicas);
        CAPTURE(key);
        CAPTURE(gb_per_s);
        const double now =
            sharded_ms({"parallel.replicas=" + replicas,
                        "cluster.topology." + key + "=" + std::to_string(gb_per_s) + " GB/s"});
        CHECK(now <= before);
        before = now;
      }
    }
  }
}

TEST_CASE("sharded: the communication of a rank is that of its own groups") {
  // Two groups of eight gather and reduce side by side what one alone does.
  const double alone = sharded({"cluster.placement=8"}).summary.communication_ms;
  const double both = sharded({"parallel.replicas=2",
                               "cluster.topology.inter_bandwidth=100000 GB/s",
                               "cluster.topology.node_bandwidth=800000 GB/s",
                               "cluster.topology.inter_latency=0 us",
                               "cluster.topology.intra_bandwidth=100000 GB/s"})
                          .summary.communication_ms;
  CHECK(both > alone);
  CHECK(both < 1.2 * alone);  // The small all-reduces between the nodes come on top.
}

TEST_CASE("sharded: one rank communicates nothing") {
  const Prediction alone = sharded({"cluster.placement=1"});
  CHECK(alone.summary.communication_ms == 0);
  CHECK(alone.summary.exposed_communication_ms == 0);
  CHECK(alone.collective_origins.empty());
}

TEST_CASE("sharded: without links a group that nobody measured is refused, and named") {
  std::string text = kShardedText;
  const std::size_t begin = text.find("topology");
  text.erase(begin, text.find('\n', begin) - begin);
  text.replace(
      text.find("PROFILE"), 7, test::source_root() + "/scenarios/profiles/h100_8x_published.json");
  const Scenario scenario =
      parse_scenario(text, "sharded.toml", std::vector<std::string>{"parallel.replicas=2"});
  std::string message;
  try {
    (void)test::predict_quietly(scenario);
  } catch (const InputError& error) {
    message = error.what();
  }
  CHECK(message.find("has no all_reduce of 2 ranks on 2 nodes") != std::string::npos);
  CHECK(message.find("[cluster.topology]") != std::string::npos);
  CHECK(message.find("algorithm = \"nccl\"") != std::string::npos);
}

TEST_CASE("sharded: the host's time in a step stays where DDP's copies are not launched") {
  const std::string text = R"(
[scenario]
name = "launched"
steps = 4
warmup_steps = 1
[cluster]
ranks = 8
profile = ")" + test::source_root() +
                           R"(/scenarios/profiles/h100_8x_published.json"
[host]
unit_forward = "0 s"
unit_forward_tensor = "0 s"
unit_backward = "0 s"
unit_backward_tensor = "0 s"
sharded_tensor = "0 s"
[model]
preset = "gpt2-small"
dtype = "bf16"
attention = "flash"
[data]
samples = 4096
lengths = { constant = 8 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
)";
  const auto step_ms = [&](const std::string& kind, double launched_copies) {
    const std::vector<std::string> overrides = {"parallel.kind=" + kind};
    const Scenario scenario = parse_scenario(text, "launched.toml", overrides);
    Profile profile = scenario_profile(scenario);
    profile.launch_seconds = 1e-3;  // The host decides the step.
    profile.launched_copies = launched_copies;
    return predict(scenario, find_policy(scenario, "fixed"), profile, {.noise_runs = 0})
        .summary.step_time_ms.mean;
  };
  CHECK(step_ms("ddp", 0.5) == step_ms("ddp", 0));
  for (const std::string kind : {"fsdp2", "fsdp1"}) {
    CHECK(step_ms(kind, 0.5) == Approx(2 * step_ms(kind, 0)).epsilon(0.01));
  }
}
