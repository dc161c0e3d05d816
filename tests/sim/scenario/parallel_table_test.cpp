// What [parallel] reads, and what it says to those who write it otherwise.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

const std::string kFsdp2 = "parallel.kind=fsdp2";

/// What is wrong with the lab's four ranks under these settings, from the reason on.
std::string refused(const std::vector<std::string>& overrides) {
  const std::string error =
      test::error_of([&] { (void)parse_scenario(test::kScenarioText, "s.toml", overrides); });
  const std::size_t begin = error.rfind("error: ");
  return begin == std::string::npos ? error : error.substr(begin + 7);
}

/// The same for keys of fsdp2.
std::string fsdp2_refused(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kFsdp2);
  return refused(overrides);
}

/// What a key of fsdp2 is read as.
std::string text_of(const std::string& key, const std::string& value) {
  const Scenario scenario =
      parse_scenario(test::kScenarioText,
                     "s.toml",
                     std::vector<std::string>{kFsdp2, "parallel." + key + "=" + value});
  return scenario.parallel_values.text(key);
}

}  // namespace

TEST_CASE("[parallel]: what PyTorch and others write for a value is read as it is meant") {
  for (const char* text : {"true", "True", "\"true\"", "always"}) {
    CAPTURE(text);
    CHECK(text_of("reshard_after_forward", text) == "true");
  }
  for (const char* text : {"false", "False", "never"}) {
    CAPTURE(text);
    CHECK(text_of("reshard_after_forward", text) == "false");
  }
  CHECK(text_of("reshard_after_forward", "None") == "default");
  CHECK(text_of("reshard_after_forward", "2") == "2");
  CHECK(text_of("reshard_after_forward", "\"2\"") == "2");
  CHECK(text_of("param_dtype", "torch.bfloat16") == "bf16");
  CHECK(text_of("param_dtype", "None") == "own");
  CHECK(text_of("reduce_dtype", "float32") == "f32");
  CHECK(text_of("torch", "2.10") == "2.10");
  CHECK(text_of("torch", "2.9.1") == "2.9");
  CHECK(text_of("torch", "newest") == "2.15");
  CHECK(text_of("units", "layers.*; classifier") == "layers.*; classifier");
  const std::string in_file = std::string(test::kScenarioText) +
                              "[parallel]\nkind = \"fsdp2\"\nreshard_after_forward = 2\n";
  CHECK(parse_scenario(in_file, "s.toml").parallel_values.text("reshard_after_forward") == "2");
}

TEST_CASE("[parallel]: kinds of others are answered with what to write") {
  const auto kind = [](const std::string& name) { return refused({"parallel.kind=" + name}); };
  CHECK(kind("fsdp") ==
        "unknown value 'fsdp'; write \"fsdp2\", PyTorch's fully_shard, or \"fsdp1\", its "
        "FullyShardedDataParallel");
  CHECK(kind("FULL_SHARD") ==
        "unknown value 'FULL_SHARD'; write \"fsdp2\", or \"fsdp1\", which has sharding_strategy");
  CHECK(kind("SHARD_GRAD_OP") ==
        "unknown value 'SHARD_GRAD_OP'; write \"fsdp1\" and sharding_strategy = "
        "\"SHARD_GRAD_OP\", or \"fsdp2\" and reshard_after_forward = false");
  for (const std::string name : {"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}) {
    CHECK(kind(name) == "unknown value '" + name +
                            "'; write \"fsdp1\", sharding_strategy and replicas, or \"fsdp2\" and "
                            "replicas");
  }
  CHECK(kind("hsdp") == "unknown value 'hsdp'; write \"fsdp2\" and replicas");
  CHECK(kind("NO_SHARD") == "unknown value 'NO_SHARD'; write \"ddp\"");
  CHECK(kind("zero2") ==
        "unknown value 'zero2'; write \"fsdp2\" and reshard_after_forward = false, or \"ddp\" and "
        "ddp.zero_stage = 2");
  CHECK(kind("zero1") == "unknown value 'zero1'; write \"ddp\" and ddp.zero_stage = 1");
  for (const std::string name : {"deepspeed", "DeepSpeed", "ZeRO-3", "stage3"}) {
    CHECK(kind(name) == "unknown value '" + name + "'; write \"zero\", DeepSpeed's ZeRO-3");
  }
}

TEST_CASE("[parallel], [ddp]: keys of others are answered with what to write") {
  const std::string fsdp =
      "FSDP is a kind of parallelism: write parallel.kind = \"fsdp2\" (fully_shard) or \"fsdp1\" "
      "(FullyShardedDataParallel); their keys are those of [parallel]";
  CHECK(refused({"ddp.fsdp=true"}).ends_with("unknown key 'fsdp'; " + fsdp));
  CHECK(refused({"fsdp.units=blocks"}).ends_with("unknown key 'fsdp'; " + fsdp));
  CHECK(refused({"ddp.strategy=FULL_SHARD"})
            .ends_with("unknown key 'strategy'; the strategy is parallel.kind: \"ddp\" (NO_SHARD), "
                       "\"fsdp1\", which has sharding_strategy, or \"fsdp2\", with "
                       "reshard_after_forward = false (SHARD_GRAD_OP) or replicas (HYBRID_SHARD)"));
  const auto key = [](const std::string& text) { return fsdp2_refused({"parallel." + text}); };
  CHECK(key("sharding_strategy=SHARD_GRAD_OP")
            .find("does not apply to kind 'fsdp2'; the strategy is parallel.kind") !=
        std::string::npos);
  CHECK(key("mesh=[2, 2]")
            .ends_with("unknown key 'mesh'; the mesh is replicas x shards: write "
                       "parallel.replicas; the shards are the ranks over them"));
  CHECK(key("slice_ranks=2")
            .ends_with("unknown key 'slice_ranks'; write reshard_after_forward "
                       "with that integer, as in PyTorch; kept_units = \"root\" "
                       "keeps the root"));
  CHECK(key("mp_policy=bf16")
            .ends_with("unknown key 'mp_policy'; write param_dtype and "
                       "reduce_dtype"));
  CHECK(key("auto_wrap_policy=x").ends_with("write units: \"blocks\", or the names of modules"));
  CHECK(key("use_orig_params=true").ends_with("leave it out"));
  CHECK(key("replica=2").find("did you mean 'replicas'?") != std::string::npos);
  CHECK(key("backward_prefetch=BACKWARD_PRE") == "no error");
  CHECK(key("backward_prefetch=BACKWARD_POST") ==
        "'BACKWARD_POST': fully_shard gathers the unit before by itself, as BACKWARD_PRE does: 0; "
        "an integer n is an explicit list of the n units before");
}

TEST_CASE("[parallel]: units that are none") {
  CHECK(fsdp2_refused({"parallel.units=layer.*"}) ==
        "unknown module 'layer.*'; did you mean 'layers.*'? known: blocks, ends, model, embedding, "
        "layers, layers.*, "
        "layers.*.norm1, layers.*.qkv, layers.*.proj, layers.*.norm2, layers.*.fc1, layers.*.fc2, "
        "classifier");
  CHECK(fsdp2_refused({"parallel.units=layers.*; layers.0"}) ==
        "the parameters of 'layers.0' are in two units, 'layers.*' and 'layers.0'; fully_shard "
        "takes a module once, so name it in one of them");
  CHECK(fsdp2_refused({"parallel.units=layers.*;"}) ==
        "an empty entry in 'layers.*;'; ';' stands between units and '+' between modules of one "
        "unit, as in \"layers.*; norm + lm_head\"");
  CHECK(
      fsdp2_refused({"parallel.kept_units=head"}).starts_with("unknown unit 'head'; known: root"));
  CHECK(fsdp2_refused({"parallel.kept_units=root", "parallel.reshard_after_forward=false"}) ==
        "has no effect: reshard_after_forward keeps all units");
  // Keys of one kind mean nothing to another.
  CHECK(refused({"parallel.kind=ddp", "parallel.units=ends"}) == "does not apply to kind 'ddp'");
  // Nor do their defaults.
  for (const std::string key : {"units=blocks", "use_orig_params=false", "offload=false"}) {
    CHECK(refused({"parallel.kind=ddp", "parallel." + key})
              .starts_with("does not apply to kind 'ddp'"));
  }
}

TEST_CASE("[parallel]: a mesh and slices that do not fit the ranks") {
  CHECK(fsdp2_refused({"parallel.replicas=3"}) ==
        "3 replicas do not divide the 4 ranks, which are replicas times shards; expected 1, 2 or "
        "4");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=3"}) ==
        "3 does not divide the 4 shard ranks; expected 1, 2 or 4 (4 is true, 1 is false)");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=4", "parallel.replicas=2"}) ==
        "4 does not divide the 2 shard ranks; expected 1 or 2 (2 is true, 1 is false)");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=0"}).starts_with("0 does not divide"));
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=sometimes"}) ==
        "unknown value 'sometimes'; known: default, true, false, an integer");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=2"}) == "no error");
}

TEST_CASE("[parallel]: what a version of PyTorch lacks") {
  const auto with = [](const std::string& torch, const std::string& key) {
    return fsdp2_refused({"parallel.torch=" + torch, "parallel." + key});
  };
  const std::string group = "separate_reduce_group=true";
  CHECK(with("2.12", group) ==
        "set_separate_reduce_scatter_group came with PyTorch 2.13, and parallel.torch is \"2.12\"");
  CHECK(with("2.13", group) == "no error");
  CHECK(with("2.12", "reduce_buffers=2") ==
        "set_reduce_scatter_max_input_buffers came with PyTorch 2.13, and parallel.torch is "
        "\"2.12\"");
  CHECK(with("2.12", "reduce_buffers=1") == "no error");
  CHECK(with("2.5", "async_unshard=true") ==
        "_set_unshard_async_op came with PyTorch 2.6, and parallel.torch is \"2.5\"");
  CHECK(with("2.6", "async_unshard=true") == "no error");
  CHECK(with("2.4", "replicas=2") == "no error");  // HSDP came with the first fully_shard.
  CHECK(fsdp2_refused({"parallel.torch=2.3"}) ==
        "PyTorch 2.3 has no fully_shard, which came with 2.4");
  CHECK(fsdp2_refused({"parallel.torch=1.13"}) ==
        "PyTorch 1.13 has no fully_shard, which came with 2.4");
  CHECK(fsdp2_refused({"parallel.torch=3"}).starts_with("unknown value '3'"));
  CHECK(fsdp2_refused({"parallel.torch=2.16"}) ==
        "PyTorch 2.16 is newer than 2.15, the newest whose fully_shard is known here: write "
        "\"2.15\" or \"newest\", by whose rules it is simulated");
  CHECK(fsdp2_refused({"parallel.torch=3.0.1"}).starts_with("PyTorch 3.0.1 is newer than 2.15"));
  CHECK(fsdp2_refused({"parallel.torch=2.6", "cluster.communicator=gloo"}) ==
        "fully_shard over gloo came with PyTorch 2.7, and parallel.torch is \"2.6\"");
  // That is the rule by which DDP fills buckets, and none of fully_shard's version.
  CHECK(fsdp2_refused({"ddp.torch=1.13"}) == "no error");
}

TEST_CASE("[parallel]: what fsdp2 cannot do is said, with what to do instead") {
  const std::string no_offload =
      "offload to the host is not simulated: leave it out, and shards and the optimizer stay on "
      "the device";
  CHECK(refused({"parallel.kind=fsdp1", "parallel.offload=true"}).ends_with(no_offload));
  CHECK(fsdp2_refused({"parallel.offload_policy=cpu"}).ends_with(no_offload));
  CHECK(refused({"ddp.cpu_offload=true"}).ends_with(no_offload));
  const std::string needs = fsdp2_refused({"parallel.offload=true", "host.cpu_optimizer=1.5 ms"});
  CHECK(
      needs.starts_with("copies shards to the device, and gradients back: say "
                        "host.copy_bandwidth"));
  CHECK(needs.find("python3 -m stepsim.torch.host_copies") != std::string::npos);
  CHECK(fsdp2_refused({"parallel.offload=true", "host.copy_bandwidth=25 GB/s"})
            .starts_with("runs the optimizer on the CPU: say host.cpu_optimizer"));
  const std::vector<std::string> priced = {
      "parallel.offload=true", "host.copy_bandwidth=25 GB/s", "host.cpu_optimizer=1.5 ms"};
  CHECK(fsdp2_refused(priced) == "no error");
  CHECK(fsdp2_refused({priced[0], priced[1], priced[2], "cluster.communicator=gloo"})
            .starts_with("moves shards from a GPU to its host, and gloo is that of a CPU"));
  CHECK(fsdp2_refused({"ddp.join=[12, 12, 12, 8]"}) ==
        "fsdp2 has no join(): ranks with different numbers of steps hang, those with more of them "
        "in an all-gather until its timeout; give all ranks the same number of steps");
  const std::string unused =
      fsdp2_refused({"ddp.unused_parameters=[\"classifier.bias\"]", "ddp.static_graph=true"});
  CHECK(unused.find("a parameter that one rank alone does not use ends the training in a "
                    "connection error, unless set_reduce_scatter_unused_params(True)") !=
        std::string::npos);
  CHECK(fsdp2_refused({"parallel.accumulation=no_all_reduce"}) ==
        "\"no_all_reduce\" needs replicas");
}

TEST_CASE("[parallel]: DeepSpeed's keys are read as in its configuration, and only beside it") {
  const auto zero = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), "parallel.kind=zero");
    return refused(overrides);
  };
  const auto read = [](const std::string& text) {
    return parse_scenario(test::kScenarioText,
                          "s.toml",
                          std::vector<std::string>{"parallel.kind=zero",
                                                   "parallel.reduce_bucket_size=" + text})
        .parallel_values.integer("reduce_bucket_size");
  };
  CHECK(read("5e7") == 50'000'000);
  CHECK(read("16777216") == 16'777'216);
  const auto bucket = [&](const std::string& text) {
    return zero({"parallel.reduce_bucket_size=" + text});
  };
  CHECK(bucket("0") == "0 is too small; expected at least 1");
  CHECK(bucket("0.0") == "0 is too small");
  CHECK(bucket("1.5").find("an integer") != std::string::npos);
  CHECK(bucket("auto") ==
        "\"auto\" is transformers': hidden_size * hidden_size; write that number");
  CHECK(bucket("large") == "'large': expected a number of elements, such as 50000000");
  CHECK(zero({"parallel.stage3_param_persistence_threshold=auto"}).find("10 * hidden_size") !=
        std::string::npos);
  CHECK(bucket("1e30") == "1e+30 is too large; expected 1 to 9007199254740992");
  CHECK(zero({"parallel.communication_data_type=bf16"})
            .ends_with("'communication_data_type'; it is the type that gradients are reduced in: "
                       "write parallel.reduce_dtype"));
  CHECK(zero({"parallel.stage=auto"})
            .starts_with("'auto': DeepSpeed has no \"auto\" for its stage; write 3"));
  CHECK(zero({"parallel.stage=3"}) == "no error");
  CHECK(zero({"parallel.stage=2"}) ==
        "2 is not simulated as DeepSpeed runs it; write kind = \"ddp\" and ddp.zero_stage = 2");
  CHECK(zero({"parallel.stage=0"}) == "0 shards nothing: write kind = \"ddp\"");
  CHECK(zero({"ddp.zero_stage=2"}) == "belongs to DDP; zero is stage 3 by itself");
  CHECK(fsdp2_refused({"parallel.stage3_prefetch_bucket_size=5e7"})
            .ends_with("; it is DeepSpeed's: write it in [parallel], beside kind = \"zero\""));
  // Nobody who writes one of them means DDP.
  CHECK(refused({"parallel.stage=3"})
            .starts_with("does not apply to kind 'ddp'; DeepSpeed's ZeRO-3 is parallel.kind"));
  const std::string what =
      "DeepSpeed's ZeRO-3 is parallel.kind = \"zero\", with its keys, such as "
      "stage3_prefetch_bucket_size, in [parallel]; stages 1 and 2 are ddp.zero_stage";
  CHECK(refused({"zero_optimization.stage3_prefetch_bucket_size=5e7"}).ends_with(what));
  CHECK(refused({"ddp.deepspeed=true"}).ends_with(what));
  CHECK(zero({"parallel.allgather_bucket_size=5e8"})
            .ends_with("stage 3 gathers by parallel.stage3_prefetch_bucket_size"));
  CHECK(zero({"parallel.offload_optimizer=cpu"}).find("offload to the host is not simulated") !=
        std::string::npos);
  CHECK(zero({"parallel.zero_hpz_partition_size=8"}).find("reshard_after_forward") !=
        std::string::npos);
}
