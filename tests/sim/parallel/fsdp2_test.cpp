// What fully_shard makes, gathers and reduces.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/model/model_presets.h"
#include "sim/parallel/fsdp2/model_units.h"
#include "sim/parallel/fsdp2/shard_sequence.h"
#include "tests/sim/parallel/fsdp2_cases.h"
#include "tests/source_root.h"
#include "tests/test_data.h"

namespace stepsim {
namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

ShardUnit unit_of(const std::string& name, const Shapes& shapes, bool reshard = true) {
  ShardUnit unit;
  unit.name = name;
  unit.reshard_after_forward = reshard;
  for (const auto& shape : shapes) {
    unit.tensors.push_back({"", shape});
  }
  return unit;
}

/// A root that is kept and blocks; the root computes before and after its blocks.
std::vector<ShardUnit> root_and_blocks(int blocks,
                                       const Shapes& root = {{4, 4}},
                                       const Shapes& block = {{8, 4}, {8}, {4, 8}, {4}}) {
  std::vector<ShardUnit> units = {unit_of("root", root, false)};
  for (int i = 0; i < blocks; ++i) {
    units.push_back(unit_of("block", block));
  }
  return units;
}

void forward(ShardSequence& sequence, int units) {
  sequence.begin_forward();
  sequence.enter(0);
  for (int unit = 1; unit < units; ++unit) {
    sequence.enter(unit);
    sequence.leave(unit);
  }
  sequence.leave(0);
}

/// Events of steps of `switches.size()` micro-batches each.
std::vector<ShardEvent> steps(const std::vector<ShardUnit>& units,
                              ShardMesh mesh,
                              const std::vector<ShardSwitches>& switches = {{}},
                              int count = 1) {
  ShardSequence sequence(units, mesh);
  for (int step = 0; step < count; ++step) {
    for (const ShardSwitches& micro_batch : switches) {
      forward(sequence, static_cast<int>(units.size()));
      sequence.backward(micro_batch);
    }
  }
  return sequence.events();
}

int count_of(const std::vector<ShardEvent>& events, ShardAct act) {
  return static_cast<int>(std::ranges::count(events, act, &ShardEvent::act));
}

/// Gathers and reduce-scatters.
std::pair<int, int> counts_of(const std::vector<ShardEvent>& events) {
  return {count_of(events, ShardAct::Unshard), count_of(events, ShardAct::ReduceScatter)};
}

std::vector<ShardSwitches> no_sync(int micro_batches) {
  std::vector<ShardSwitches> switches(static_cast<std::size_t>(micro_batches));
  for (std::size_t i = 0; i + 1 < switches.size(); ++i) {
    switches[i].gradient_sync = false;
  }
  return switches;
}

/// Asks for all of a root and of its blocks.
void reshard_all(std::vector<ShardUnit>& units, bool reshard) {
  for (ShardUnit& unit : units) {
    unit.reshard_after_forward = reshard;
  }
}

TEST_CASE("fsdp2: rows are padded to the same number on each rank") {
  CHECK(padded_elements({10}, 4) == 12);
  CHECK(padded_elements({3, 5}, 4) == 20);
  CHECK(padded_elements({8, 8}, 4) == 64);
  CHECK(padded_elements({2, 3, 5}, 8) == 8 * 15);  // Fewer rows than ranks.
  const ShardUnit unit = unit_of("odd", {{10}, {3, 5}, {8, 8}});
  CHECK(gathered_buffer(unit, 4).elements == 96);
  CHECK(gathered_buffer(unit, 4).bytes() == 384);
  CHECK(padded_elements({4096, 4096}, 8) == 4096 * 4096);
}

TEST_CASE("fsdp2: frozen parameters are gathered and not reduced") {
  ShardUnit unit = unit_of("block", {{8, 4}, {8}});
  unit.tensors[0].trainable = false;
  CHECK(gathered_buffer(unit, 2).elements == 40);
  CHECK(reduced_buffer(unit, 2).elements == 8);
  unit.tensors[1].used = false;
  CHECK(reduced_buffer(unit, 2).elements == 0);
  unit.reduces_unused = true;
  CHECK(reduced_buffer(unit, 2).elements == 8);
}

TEST_CASE("fsdp2: types of buffers") {
  ShardUnit unit = unit_of("block", {{8, 4}, {8}});
  for (ShardedTensor& tensor : unit.tensors) {
    tensor.gathered = Dtype::Bf16;
  }
  CHECK(gathered_buffer(unit, 2).bytes() == 80);
  CHECK(reduced_buffer(unit, 2).dtype == Dtype::F32);  // PyTorch 2.15.
  CHECK(reduced_buffer(unit, 2, false).dtype == Dtype::Bf16);
  unit.reduce_dtype = Dtype::F32;
  CHECK(reduced_buffer(unit, 2, false).bytes() == 160);
  // Gathered as bytes where types differ.
  unit.tensors[1].gathered = Dtype::F32;
  CHECK_FALSE(gathered_buffer(unit, 2).dtype.has_value());
  CHECK(gathered_buffer(unit, 2).elements == 32 * 2 + 8 * 4);
}

TEST_CASE("fsdp2: bytes of a step are DDP's with bf16 parameters and fp32 reductions") {
  std::vector<ShardUnit> units = root_and_blocks(3);
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  for (ShardUnit& unit : units) {
    for (ShardedTensor& tensor : unit.tensors) {
      tensor.gathered = Dtype::Bf16;
    }
    unit.reduce_dtype = Dtype::F32;
  }
  for (const ShardEvent& event : steps(units, {2, 1, false})) {
    const ShardUnit& unit = units[static_cast<std::size_t>(event.unit)];
    bytes += event.act == ShardAct::Unshard         ? gathered_buffer(unit, 2).bytes()
             : event.act == ShardAct::ReduceScatter ? reduced_buffer(unit, 2).bytes()
                                                    : 0;
  }
  for (const ShardUnit& unit : units) {
    elements += gathered_buffer(unit, 2).elements;
  }
  const std::int64_t root = gathered_buffer(units.front(), 2).bytes();
  CHECK(bytes == 8 * elements - root);  // The root is kept in the backward.
}

TEST_CASE("fsdp2: counts of gathers and reduce-scatters") {
  const ShardMesh mesh = {8, 1, false};
  std::vector<ShardUnit> units = root_and_blocks(5);
  CHECK(counts_of(steps(units, mesh)) == std::pair(11, 6));
  CHECK(counts_of(steps(units, mesh, std::vector<ShardSwitches>(3))) == std::pair(33, 18));
  CHECK(counts_of(steps(units, mesh, no_sync(3))) == std::pair(33, 6));
  reshard_all(units, true);
  CHECK(counts_of(steps(units, mesh)) == std::pair(12, 6));
  reshard_all(units, false);
  CHECK(counts_of(steps(units, mesh)) == std::pair(6, 6));
  // Kept between micro-batches: gathered in the first alone.
  std::vector<ShardSwitches> keep = no_sync(3);
  keep[0].reshard_after_backward = keep[1].reshard_after_backward = false;
  CHECK(counts_of(steps(units, mesh, keep)) == std::pair(6, 6));
  // Kept after the backward, though not after the forward.
  reshard_all(units, true);
  for (ShardSwitches& micro_batch : keep) {
    micro_batch = {.reshard_after_backward = false};
  }
  CHECK(counts_of(steps(root_and_blocks(3), mesh, keep)).first == 4 + 3 * 3);
}

TEST_CASE("fsdp2: counts of a public profile of 40 blocks") {
  // KempnerForge's profile of a 13B model: 4 micro-batches, no_sync, 5 steps, the root freed.
  std::vector<ShardUnit> units = root_and_blocks(40);
  reshard_all(units, true);
  CHECK(counts_of(steps(units, {6, 1, false}, no_sync(4), 5)) == std::pair(1640, 205));
}

TEST_CASE("fsdp2: replicas add an all-reduce to each reduce-scatter") {
  const std::vector<ShardUnit> units = root_and_blocks(3);
  const auto plain = steps(units, {2, 2, true});
  CHECK(count_of(plain, ShardAct::AllReduce) == 4);
  std::vector<ShardSwitches> late(3);
  late[0].all_reduce = late[1].all_reduce = false;
  const auto delayed = steps(units, {2, 2, true}, late);
  CHECK(count_of(delayed, ShardAct::ReduceScatter) == 12);
  CHECK(count_of(delayed, ShardAct::AllReduce) == 4);
  // One shard: a DDP whose buckets are the units.
  const auto replicated = steps(units, {1, 4, true});
  CHECK(count_of(replicated, ShardAct::ReduceScatter) == 0);
  CHECK(count_of(replicated, ShardAct::AllReduce) == 4);
}

TEST_CASE("fsdp2: gathers come before the reduction of the unit behind") {
  std::vector<std::pair<ShardAct, int>> collectives;
  for (const ShardEvent& event : steps(root_and_blocks(3), {2, 1, false})) {
    if (event.act == ShardAct::Unshard || event.act == ShardAct::ReduceScatter) {
      collectives.emplace_back(event.act, event.unit);
    }
  }
  using enum ShardAct;
  CHECK(collectives == std::vector<std::pair<ShardAct, int>>{{Unshard, 0},
                                                             {Unshard, 1},
                                                             {Unshard, 2},
                                                             {Unshard, 3},
                                                             {Unshard, 3},
                                                             {Unshard, 2},
                                                             {ReduceScatter, 3},
                                                             {Unshard, 1},
                                                             {ReduceScatter, 2},
                                                             {ReduceScatter, 1},
                                                             {ReduceScatter, 0}});
}

/// [unit] Tensors.
std::vector<std::size_t> tensors_of(const std::string& preset, UnitRule rule) {
  const TransformerConfig config = model_preset(preset);
  const StepOps ops = step_ops(config);
  TrainedModel model = trained_model(config, ops, {});
  add_model_units(config, ops, {rule}, model);
  std::vector<std::size_t> counts;
  for (const ShardUnit& unit : shard_units(model)) {
    counts.push_back(unit.tensors.size());
  }
  return counts;
}

TEST_CASE("fsdp2: the units of a model") {
  // GPT-2: 12 tensors a block; embeddings of tokens and positions, and the last norm's two.
  std::vector<std::size_t> gpt2(13, 12);
  gpt2.front() = 4;
  CHECK(tensors_of("gpt2-small", UnitRule::Blocks) == gpt2);
  CHECK(tensors_of("gpt2-small", UnitRule::Model) == std::vector<std::size_t>{148});
  CHECK(tensors_of("gpt2-small", UnitRule::Ends) == gpt2);  // Its head is the embedding.
  // Llama 3: 9 tensors a block; an embedding, and the last norm with the head.
  std::vector<std::size_t> llama(35, 9);
  llama.front() = 0;
  llama[1] = 1;
  llama.back() = 2;
  CHECK(tensors_of("llama3-8b", UnitRule::Ends) == llama);
  // A model that is known by its tensors: modules of lists are blocks.
  TransformerConfig recorded;
  recorded.family = ModelFamily::Blocks;
  for (const char* name :
       {"emb.weight", "h.0.a.weight", "h.0.b.1.bias", "h.1.a.weight", "norm.bias"}) {
    recorded.tensors.push_back({name, {4, 4}, 1, 1});
  }
  recorded.layers = 5;
  recorded.hidden = recorded.heads = recorded.kv_heads = recorded.ffn = recorded.vocab = 1;
  recorded.max_length = 1024;
  const StepOps ops = step_ops(recorded);
  TrainedModel named = trained_model(recorded, ops, {});
  add_model_units(recorded, ops, {UnitRule::Blocks}, named);
  CHECK(named.units == std::vector<std::vector<int>>{{0, 4}, {1, 2}, {3}});
  // A unit without parameters gathers and reduces nothing.
  std::vector<ShardUnit> units = root_and_blocks(3);
  units.front().tensors.clear();
  CHECK(counts_of(steps(units, {2, 1, false})) == std::pair(6, 3));
}

TEST_CASE("fsdp2: counts and sizes at 3, 8 and 64 ranks are PyTorch's") {
  const auto path = test::data_file("fsdp2/cases/fake_cases.jsonl");
  if (!path) {
    return;
  }
  // The root has an embedding and a head of 49 to 51 rows, which all pad alike, and a norm.
  constexpr std::int64_t kRows = 50;
  std::ifstream lines(*path);
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    const auto expected = nlohmann::json::parse(line);
    const std::string name = expected.at("name");
    CAPTURE(name);
    const Shapes block = expected.at("block_shapes");
    const std::int64_t width = block.front().back();
    const int ranks = expected.at("N");
    const bool kempner = name.starts_with("KempnerForge");
    const int layers = kempner ? 40 : name.find("L3") != std::string::npos ? 3 : 4;
    const bool root_freed = kempner || name.find("root True") != std::string::npos;
    std::vector<ShardUnit> units =
        root_and_blocks(layers, {{kRows, width}, {width}, {width}, {kRows, width}}, block);
    units.front().reshard_after_forward = root_freed;
    if (name.starts_with("all False")) {
      reshard_all(units, false);
    }
    if (name.find("bf16") != std::string::npos) {
      for (ShardUnit& unit : units) {
        for (ShardedTensor& tensor : unit.tensors) {
          tensor.gathered = Dtype::Bf16;
        }
      }
    }
    const int micro_batches = name.find("m4") != std::string::npos ? 4 : 1;
    const bool syncs = name.find("no sync") == std::string::npos && !kempner;
    const auto events =
        steps(units,
              {ranks, 1, false},
              syncs ? std::vector<ShardSwitches>(micro_batches) : no_sync(micro_batches),
              kempner ? 5 : 1);
    CHECK(count_of(events, ShardAct::Unshard) == expected.at("counts").at("AG"));
    CHECK(count_of(events, ShardAct::ReduceScatter) == expected.at("counts").at("RS"));
    CHECK(gathered_buffer(units.back(), ranks).elements ==
          expected.at("padded_by_rule").at("block"));
    CHECK(reduced_buffer(units.front(), ranks).elements ==
          expected.at("padded_by_rule").at("root"));
    for (const auto& kind : expected.at("distinct")) {
      const bool gathers = kind.at(0) == "AG";
      const Dtype dtype = kind.at(2) == "bfloat16" ? Dtype::Bf16 : Dtype::F32;
      const auto buffer = gathers ? gathered_buffer : +[](const ShardUnit& unit, int count) {
        return reduced_buffer(unit, count);
      };
      const bool known = std::ranges::any_of(units, [&](const ShardUnit& unit) {
        const ShardBuffer own = buffer(unit, ranks);
        return own.elements == kind.at(1) && own.dtype == dtype;
      });
      CHECK(known);
    }
  }
  CHECK(seen == 32);
}

TEST_CASE("fsdp2: the events of recorded programs are PyTorch's") {
  const auto folder = test::data_file("fsdp2/cases");
  if (!folder) {
    return;
  }
  const auto result = test::compare_fsdp2_cases(
      *folder, test::source_root() + "/tests/sim/parallel/fsdp2_programs.json");
  CHECK(result.cases >= 58);
  for (const std::string& difference : result.differences) {
    FAIL_CHECK(difference);
  }
}

}  // namespace
}  // namespace stepsim
