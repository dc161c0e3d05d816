#include "sim/parallel/parallelism.h"

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/model_presets.h"
#include "sim/parallel/ddp/ddp_options.h"

using namespace stepsim;

TEST_CASE("every kind of parallelism has a name of its own, and DDP is the default") {
  std::set<std::string_view> names;
  for (const Parallelism* kind : parallelisms()) {
    CHECK(names.insert(kind->name()).second);
    CHECK(&parallelism_named(kind->name()) == kind);
    CHECK_FALSE(kind->meaning().empty());
  }
  CHECK(parallelisms().front()->name() == "ddp");
  CHECK_THROWS_AS((void)parallelism_named("none"), std::logic_error);
}

TEST_CASE("what a kind shards is spread over all ranks, and its parts fit its model") {
  const TransformerConfig config = model_preset("gpt2-small");
  const StepOps ops = step_ops(config);
  const OwnValues own;
  const std::vector<std::int64_t> no_buffers;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    DdpOptions ddp;
    ddp.zero_stage = stage;
    const ParallelJob job{config, ddp, own, no_buffers, 8, 10, 2, false};
    const Parallelism& kind = parallelism_named(stage == 3 ? "zero3" : "ddp");
    CHECK_FALSE(kind.refusal(job));
    const MemoryOptions memory = kind.memory(job);
    CHECK(memory.optimizer_shards == (stage >= 1 ? 8 : 1));
    CHECK(memory.gradient_shards == (stage >= 2 ? 8 : 1));
    CHECK(memory.parameter_shards == (stage >= 3 ? 8 : 1));
    CHECK(memory.working_bucket.has_value() == (stage >= 2));
    CHECK((memory.gathered.value() > 0) == (stage == 3));
    const ParallelParts parts = kind.parts(job, ops);
    CHECK(parts.owned.size() == 8);
    CHECK(parts.model.completes.size() == ops.backward.size());
    CHECK(parts.model.units.size() == (stage == 3 ? 13 : 0));  // The root and twelve layers.
    CHECK(kind.facts(job).fixed_units.empty() == (stage < 3));
  }
}

TEST_CASE("own keys of a kind are told apart by all of their values") {
  OwnValues values;
  CHECK(values.printed().empty());
  values.set("units", std::string("layer"));
  values.set("keep", true);
  values.set("replicas", std::int64_t{2});
  values.set("limit", Bytes(1024));
  CHECK(values.printed() == "keep=true;limit=1024;replicas=2;units=layer;");
  CHECK(values.flag("keep"));
  CHECK(values.integer("replicas") == 2);
  CHECK(values.bytes("limit") == Bytes(1024));
  CHECK(values.text("units") == "layer");
  CHECK_THROWS_AS((void)values.flag("limit"), std::bad_variant_access);
}

TEST_CASE("fsdp2 shards over the ranks of a replica, and refuses what is DDP's") {
  const TransformerConfig config = model_preset("gpt2-small");
  const Parallelism& kind = parallelism_named("fsdp2");
  const std::vector<std::int64_t> no_buffers;
  DdpOptions ddp;
  OwnValues own;
  for (const OwnKey& key : kind.keys()) {
    own.set(key.name, key.fallback);
  }
  const ParallelJob job{config, ddp, own, no_buffers, 8, 10, 2, false};
  CHECK_FALSE(kind.refusal(job));
  CHECK(kind.memory(job).parameter_shards == 8);
  CHECK(kind.parts(job, step_ops(config)).model.units.size() == 13);
  CHECK(kind.facts(job).communicators.size() == 2);
  CHECK(kind.buckets(job).rebuilt.size() == 13);
  const auto peak = [&] { return PeakMemory(config, kind.memory(job)).at({1, 1, 1, 1}).total(); };
  const Bytes freed = peak();

  own.set("reshard_after_forward", std::string("false"));
  CHECK(peak() > freed);
  own.set("reshard_after_forward", std::string("default"));

  own.set("replicas", std::int64_t{2});
  CHECK_FALSE(kind.refusal(job));
  CHECK(kind.memory(job).parameter_shards == 4);
  CHECK(kind.facts(job).communicators.size() == 1 + 2 + 4);
  own.set("separate_reduce_group", true);
  CHECK(kind.facts(job).communicators.size() == 1 + 2 + 2 + 4);
  own.set("replicas", std::int64_t{3});
  CHECK(std::string(kind.refusal(job)->key) == "replicas");
  own.set("replicas", std::int64_t{1});

  own.set("reshard_after_forward", std::string("3"));
  CHECK(std::string(kind.refusal(job)->key) == "reshard_after_forward");
  own.set("reshard_after_forward", std::string("4"));
  CHECK_FALSE(kind.refusal(job));
  // Slices are shared by two groups, beside all ranks and two groups of the shards.
  CHECK(kind.facts(job).communicators.size() == 1 + 1 + 1 + 2);
  own.set("reshard_after_forward", std::string("default"));

  own.set("accumulation", std::string("no_all_reduce"));
  CHECK(std::string(kind.refusal(job)->key) == "accumulation");
  own.set("accumulation", std::string("reduce"));

  ddp.zero_stage = 1;
  CHECK(std::string(kind.refusal(job)->key) == "zero_stage");
  ddp.zero_stage = 0;
  ddp.hook = CommunicationHook::Fp16;
  CHECK(std::string(kind.refusal(job)->key) == "communication_hook");
}
