// Every key of the scenario file is documented, limited and refused where it does not apply.
#include "sim/scenario/key_table.h"

#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

std::string readme() {
  std::ifstream file(source_root() + "/scenarios/README.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The rows that scenarios/README.md has for a table; keys without a meaning stand in examples.
std::vector<std::string> documented_rows(const KeyTable& table) {
  std::vector<std::string> rows;
  for (const Key& key : table.keys) {
    if (!key.meaning.empty()) {
      rows.push_back("| `" + key.name + "` | " + key.meaning + " |" +
                     (key.fallback.empty() ? "" : " " + key.fallback) + " |\n");
    }
  }
  return rows;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  return lines;
}

std::string override_error(const std::vector<std::string>& overrides) {
  return test::error_of([&] { (void)parse_scenario(kScenarioText, "s.toml", overrides); });
}

}  // namespace

TEST_CASE("scenarios/README.md has the rows of every table of keys, in their order") {
  const std::string text = readme();
  for (const KeyTable& table : key_tables()) {
    std::string block;
    for (const std::string& row : documented_rows(table)) {
      block += row;
    }
    INFO("[", table.path, "] expects these rows:\n", block);
    CHECK(text.find(block) != std::string::npos);
  }
}

TEST_CASE("scenarios/README.md describes no key that does not exist") {
  std::set<std::string> known;
  for (const KeyTable& table : key_tables()) {
    for (const std::string& row : documented_rows(table)) {
      known.insert(row);
    }
  }
  bool in_table = false;
  int rows = 0;
  for (const std::string& line : lines_of(readme())) {
    if (line.starts_with("| key | value | default")) {
      in_table = true;
    } else if (!line.starts_with("|")) {
      in_table = false;
    } else if (in_table && !line.starts_with("|---")) {
      CAPTURE(line);
      CHECK(known.count(line) == 1);
      ++rows;
    }
  }
  CHECK(rows > 100);
}

TEST_CASE("scenarios/README.md names every key and every choice") {
  const std::string text = readme();
  for (const KeyTable& table : key_tables()) {
    for (const Key& key : table.keys) {
      CAPTURE(table.path);
      CAPTURE(key.name);
      CHECK(text.find(key.name) != std::string::npos);
      for (const std::string& choice : key.choices) {
        CAPTURE(choice);
        CHECK(key.meaning.find("`\"" + choice + "\"`") != std::string::npos);
      }
    }
  }
}

TEST_CASE("scenarios/README.md has a row for every communication hook") {
  std::string block;
  for (const HookInfo& info : communication_hooks()) {
    std::string options;
    for (const std::string& option : info.options) {
      options += (options.empty() ? "`" : ", `") + option + "`";
    }
    block += "| `" + std::string(info.name) + "` | " + std::string(info.help) + " |" +
             (options.empty() ? "" : " " + options) + " |\n";
  }
  INFO("the hooks' rows:\n", block);
  CHECK(readme().find("| hook | each bucket is | options |\n|---|---|---|\n" + block + "\n") !=
        std::string::npos);
}

TEST_CASE("the options of the hooks are the keys of ddp.communication_hook") {
  std::set<std::string> taken = {"kind"};
  for (const HookInfo& info : communication_hooks()) {
    CHECK(&hook_info(info.hook) == &info);
    taken.insert(info.options.begin(), info.options.end());
  }
  const auto& tables = key_tables();
  const auto table = std::find_if(tables.begin(), tables.end(), [](const KeyTable& one) {
    return one.path == "ddp.communication_hook";
  });
  REQUIRE(table != tables.end());
  std::set<std::string> keys;
  for (const Key& key : table->keys) {
    keys.insert(key.name);
  }
  CHECK(keys == taken);
}

TEST_CASE("an option that the communication hook does not take is refused") {
  CHECK(
      override_error({"ddp.communication_hook={kind=\"power_sgd\", rank=4, start_iteration=0}"}) ==
      "no error");
  CHECK(override_error({"ddp.communication_hook={kind=\"fp16\", rank=4}"}) ==
        "--set ddp.communication_hook={kind=\"fp16\", rank=4}: error: "
        "ddp.communication_hook.rank: does not apply to communication hook 'fp16'; power_sgd, "
        "batched_power_sgd take it");
  CHECK(override_error({"ddp.communication_hook={kind=\"power_sgd\", topk_fraction=0.1}"}) ==
        "--set ddp.communication_hook={kind=\"power_sgd\", topk_fraction=0.1}: error: "
        "ddp.communication_hook.topk_fraction: does not apply to communication hook 'power_sgd'; "
        "top_k takes it");
}

TEST_CASE("sizes and bandwidths have limits that no product of them exceeds") {
  const auto last_of = [](const std::string& text) {
    return text.substr(text.rfind("error: ") + 7);
  };
  CHECK(override_error({"host.copy_bandwidth=1 kB/s"}) == "no error");
  CHECK(last_of(override_error({"host.copy_bandwidth=1e-9 B/s"})) ==
        "1e-09 B/s is too slow; expected at least 1 kB/s");
  CHECK(last_of(override_error({"model.buffers={f32=9000000000000000000}"})) ==
        "model.buffers.f32: 9000000000000000000 is too large; expected at most 1000000000000");
  CHECK(last_of(
            override_error({"model={kind=\"blocks\", layers=1, block_elements=1000000000001}"})) ==
        "model.block_elements: 1000000000001 is too large; expected at most 1000000000000");
}

TEST_CASE("a single time is at most one hour") {
  const std::string loading = "data.loading={batch=\"1 ms\"}";
  const std::string times = "times={forward=\"1 ms\", backward=\"1 ms\"}";
  const std::string varlen = "model.attention=varlen";
  struct Case {
    std::string key;
    std::vector<std::string> with;
  };
  const std::vector<Case> cases = {{"host.launch", {}},
                                   {"host.enqueue", {}},
                                   {"host.hook", {}},
                                   {"host.python_hook", {}},
                                   {"host.unit_forward", {}},
                                   {"host.unit_forward_tensor", {}},
                                   {"host.unit_backward", {}},
                                   {"host.unit_backward_tensor", {}},
                                   {"host.sharded_tensor", {}},
                                   {"host.cpu_optimizer", {}},
                                   {"host.traversal_per_op", {}},
                                   {"host.sync", {}},
                                   {"noise.stall", {"noise.stall_probability=0.1"}},
                                   {"noise.loader_stall", {"noise.loader_stall_probability=0.1"}},
                                   {"data.loading.batch", {loading}},
                                   {"data.loading.per_token", {loading}},
                                   {"data.loading.plan", {loading, "data.loading.plan_every=4"}},
                                   {"times.forward", {times}},
                                   {"times.backward", {times}},
                                   {"times.optimizer", {times}}};
  for (const Case& item : cases) {
    CAPTURE(item.key);
    std::vector<std::string> overrides = item.with;
    overrides.push_back(item.key + "=1 h");
    CHECK(override_error(overrides).starts_with("--set " + item.key +
                                                "=1 h: error: unknown unit 'h'"));
    overrides.back() = item.key + "=60 min";
    CHECK(override_error(overrides) == "no error");
    overrides.back() = item.key + "=3600.001 s";
    CHECK(override_error(overrides) ==
          "--set " + item.key +
              "=3600.001 s: error: '3600.001 s' is too long; expected at "
              "most 1 hour");
    overrides.back() = item.key + "=1e7 s";
    CHECK(override_error(overrides) ==
          "--set " + item.key + "=1e7 s: error: '1e7 s' is too long; expected at most 1 hour");
  }
  CHECK(override_error({varlen, "model.varlen={empty_block=\"3601 s\"}"})
            .ends_with("model.varlen.empty_block: too long; expected at most 1 hour"));
  CHECK(
      override_error({"cluster.topology={intra_bandwidth=\"1 GB/s\", intra_latency=\"2 min\"}"}) ==
      "no error");
  CHECK(
      override_error({"cluster.topology={intra_bandwidth=\"1 GB/s\", intra_latency=\"2000 min\"}"})
          .ends_with("cluster.topology.intra_latency: '2000 min' is too long; expected at most 1 "
                     "hour"));
  CHECK(override_error(
            {"cluster.all_reduce={sizes=[\"1 MiB\", \"2 MiB\"], times=[\"1 s\", \"2e4 s\"]}"})
            .ends_with("cluster.all_reduce.times: '2e4 s' is too long; expected at most 1 hour"));
}
