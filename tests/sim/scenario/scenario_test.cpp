#include "sim/scenario/scenario.h"

#include <filesystem>
#include <iterator>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

Scenario parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_scenario(text, "folder/s.toml", overrides);
}

Scenario changed(const std::string& from, const std::string& to) {
  return parsed(replaced(kScenarioText, from, to));
}

Scenario overridden(const std::vector<std::string>& overrides) {
  return parsed(kScenarioText, overrides);
}

}  // namespace

TEST_CASE("the subgroups of post-local SGD are the nodes, however these are stated") {
  const auto subgroup = [](const std::string& nodes, const std::string& hook) {
    const std::string text = replaced(kScenarioText, "ranks = 4", nodes);
    return parsed(replaced(text, "[ddp]", "[ddp]\ncommunication_hook = " + hook))
        .ddp.hook_options.subgroup_ranks;
  };
  for (const std::string hook : {"\"post_local_sgd\"", "{ kind = \"post_local_sgd\" }"}) {
    CAPTURE(hook);
    CHECK(subgroup("ranks = 4", hook) == 4);
    CHECK(subgroup("ranks = 4\nranks_per_node = 2", hook) == 2);
    CHECK(subgroup("ranks = 4\nranks_per_node = 8", hook) == 4);
    CHECK(subgroup("placement = \"2x2\"", hook) == 2);
    CHECK_THROWS_AS((void)subgroup("placement = [1, 3]", hook), InputError);
  }
  CHECK(subgroup("placement = [1, 3]", "{ kind = \"post_local_sgd\", subgroup_ranks = 2 }") == 2);
  CHECK(subgroup("ranks = 4", "{ kind = \"post_local_sgd\", subgroup_ranks = 0 }") == 0);
  // Other hooks have no subgroups.
  CHECK(subgroup("ranks = 4\nranks_per_node = 3", "{ kind = \"power_sgd\" }") == 0);
}

TEST_CASE("every part of a scenario arrives") {
  const Scenario scenario = parsed(kScenarioText);
  CHECK(scenario.path == "folder/s.toml");
  CHECK(scenario.name == "token skew");
  CHECK(scenario.question == "What does padding cost?");
  CHECK(scenario.seed == 2026);
  CHECK(scenario.steps == 12);
  CHECK(scenario.warmup_steps == 2);
  CHECK(scenario.ranks == 4);
  CHECK(scenario.profile == "folder/profiles/lab.json");
  REQUIRE(scenario.slow_ranks.size() == 1);
  CHECK(scenario.slow_ranks[0].rank == 1);
  CHECK(scenario.slow_ranks[0].factor == 1.2);
  CHECK(scenario.model.name == "tiny-classifier");
  CHECK(scenario.ddp.bucket_cap == Bytes(25 << 20));
  CHECK(scenario.samples == 3072);
  CHECK(scenario.lengths.kind == LengthSource::Kind::LogUniform);
  CHECK(scenario.lengths.min == 64);
  CHECK(scenario.lengths.max == 256);
  CHECK(scenario.lengths.outlier_probability == 0.08);
  CHECK(scenario.sampler.kind == SamplerSpec::Kind::Python);
  CHECK(scenario.sampler.seed == 2043);
  REQUIRE(scenario.policies.size() == 2);
  CHECK(scenario.policies[0].parameters().integer("batch_size") == 8);
  CHECK(scenario.policies[1].name() == "budget");
  CHECK(scenario.policies[1].kind().name == "token_budget");
  CHECK(scenario.policies[1].parameters().integer("max_tokens") == 1280);
  CHECK(scenario.policies[1].weighting() == LossWeighting::Token);
}

TEST_CASE("a policy has the parameters of its kind: lists, numbers, texts and flags") {
  const std::string text = replaced(kScenarioText,
                                    "kind = \"fixed\"\nbatch_size = 8",
                                    "kind = \"lhotse_dynamic_bucketing\"\nmax_duration = 512.5\n"
                                    "sync_buckets = false");
  const PolicyParameters lhotse = parsed(text).policies[0].parameters();
  CHECK(lhotse.number("max_duration") == 512.5);
  CHECK_FALSE(lhotse.flag("sync_buckets"));
  CHECK_FALSE(lhotse.has("max_cuts"));
  const std::string buckets =
      replaced(kScenarioText,
               "kind = \"fixed\"\nbatch_size = 8",
               "kind = \"tf_bucket_by_sequence_length\"\nbucket_boundaries = [64]\n"
               "bucket_batch_sizes = [16, 4]");
  CHECK(parsed(buckets).policies[0].parameters().integers("bucket_batch_sizes") ==
        std::vector<std::int64_t>{16, 4});
}

TEST_CASE("what is left out has its documented default") {
  const Scenario scenario = changed("sampler = { kind = \"python\", seed = 2043 }", "");
  CHECK(scenario.ranks_per_node == 0);
  CHECK_FALSE(scenario.jitter);
  CHECK(scenario.ddp.first_bucket_cap == Bytes(1 << 20));
  CHECK(scenario.ddp.torch == DdpRules::Torch24);
  CHECK(scenario.ddp.set_to_none);
  CHECK_FALSE(scenario.ddp.gradient_as_bucket_view);
  CHECK_FALSE(scenario.ddp.find_unused_parameters);
  CHECK(scenario.optimizer == OptimizerKind::AdamW);
  CHECK(scenario.optimizer_bytes_per_parameter == 8);
  CHECK(scenario.checkpointing == Checkpointing{});
  CHECK_FALSE(scenario.loss_in_own_dtype);
  CHECK(scenario.sampler.kind == SamplerSpec::Kind::Distributed);
  CHECK(scenario.sampler.shuffle);
  CHECK_FALSE(scenario.sampler.drop_last);
  CHECK(scenario.policies[0].weighting() == LossWeighting::None);
  CHECK_FALSE(scenario.policies[0].lengths());
}

TEST_CASE("seeds that are left out are the scenario's") {
  const Scenario scenario = changed("seed = 2043", "shuffle = true");
  CHECK(scenario.sampler.seed == 2026);
  CHECK(scenario.lengths.seed == 2026);
  CHECK(overridden({"scenario.seed=7"}).lengths.seed == 7);
  CHECK(overridden({"scenario.seed=7"}).sampler.seed == 2043);
}

TEST_CASE("a model may be given by its sizes") {
  const Scenario scenario = changed("preset = \"tiny-classifier\"",
                                    "kind = \"llama\"\nlayers = 2\nhidden = 64\nheads = 4\n"
                                    "kv_heads = 2\nffn = 128\nvocab = 1000\nmax_length = 512\n"
                                    "dtype = \"bf16\"\nattention = \"flash\"\nwindow = 128\n"
                                    "kernels = \"fused\"\n"
                                    "checkpointing = true\nname = \"small\"");
  const TransformerConfig& model = scenario.model;
  CHECK(model.family == ModelFamily::Llama);
  CHECK(model.name == "small");
  CHECK(model.layers == 2);
  CHECK(model.hidden == 64);
  CHECK(model.heads == 4);
  CHECK(model.kv_heads == 2);
  CHECK(model.ffn == 128);
  CHECK(model.vocab == 1000);
  CHECK(model.max_length == 512);
  CHECK(model.window == 128);
  CHECK(model.causal);
  CHECK_FALSE(model.tied_embeddings);
  CHECK(model.dtype == Dtype::Bf16);
  CHECK(model.parameter_dtype == Dtype::F32);
  CHECK(model.attention == AttentionKind::Flash);
  CHECK(model.kernels == KernelChoice::Fused);
  CHECK(scenario.checkpointing.kind == CheckpointKind::Full);
}

TEST_CASE("keys beside a preset change only what they name") {
  const Scenario plain = parsed(kScenarioText);
  const Scenario scenario = changed("preset = \"tiny-classifier\"",
                                    "preset = \"tiny-classifier\"\nlayers = 3\nheads = 6");
  CHECK(scenario.model.layers == 3);
  CHECK(scenario.model.heads == 6);
  CHECK(scenario.model.kv_heads == 6);
  CHECK(scenario.model.hidden == plain.model.hidden);
  CHECK(scenario.model.vocab == plain.model.vocab);
}

TEST_CASE("only the newest torch lets the first bucket follow a cap that the user has set") {
  const std::string cap = "bucket_cap = \"25 MiB\"";
  CHECK(changed(cap, cap + "\ntorch = \"newest\"").ddp.first_bucket_cap == Bytes(25 << 20));
  CHECK(changed(cap, cap + "\ntorch = \"1.13\"").ddp.first_bucket_cap == Bytes(1 << 20));
  CHECK(changed(cap, "torch = \"newest\"").ddp.first_bucket_cap == Bytes(1 << 20));
  CHECK(changed(cap, cap + "\ntorch = \"newest\"\nfirst_bucket_cap = 4096").ddp.first_bucket_cap ==
        Bytes(4096));
}

TEST_CASE("a list of caps is the cap of its largest entry, whatever else is stated") {
  const std::string cap = "bucket_cap = \"25 MiB\"";
  const std::string list = "\ntorch = \"newest\"\nbucket_caps = [\"4 MiB\", 73400320, \"1 MiB\"]";
  for (const std::string& stated : {cap + list, cap + "\nfirst_bucket_cap = 4096" + list}) {
    const DdpOptions ddp = changed(cap, stated).ddp;
    CHECK(ddp.bucket_caps == std::vector<Bytes>{Bytes(4 << 20), Bytes(70 << 20), Bytes(1 << 20)});
    CHECK(ddp.bucket_cap == Bytes(70 << 20));
    CHECK(ddp.first_bucket_cap == Bytes(70 << 20));
    CHECK(memory_options(changed(cap, stated + "\nzero_stage = 2")).working_bucket ==
          Bytes(70 << 20));
  }
}

TEST_CASE("plain SGD keeps no state unless the scenario says so") {
  CHECK(changed("[data]", "[optimizer]\nkind = \"sgd\"\n[data]").optimizer_bytes_per_parameter ==
        0);
  CHECK(changed("[data]", "[optimizer]\nkind = \"sgd\"\nstate_bytes_per_parameter = 4\n[data]")
            .optimizer_bytes_per_parameter == 4);
}

TEST_CASE("AdamW's moments have the type of the parameters, unless the scenario says so") {
  const std::string bf16 = "parameter_dtype = \"bf16\"\n";
  CHECK(changed("[model]\n", "[model]\n" + bf16).optimizer_bytes_per_parameter == 4);
  CHECK(changed("[data]", "[optimizer]\nkind = \"adamw\"\n[data]").optimizer_bytes_per_parameter ==
        8);
  const std::string stated = "[optimizer]\nstate_bytes_per_parameter = 8\n[model]\n";
  CHECK(changed("[model]\n", stated + bf16).optimizer_bytes_per_parameter == 8);
}

TEST_CASE("a policy may state the samples of a step in place of those of a rank") {
  const auto with = [](const std::string& policy, int accumulation) {
    std::string text =
        test::replaced(test::kBlocksText,
                       "[ddp]\n",
                       fmt::format("[ddp]\naccumulation_steps = {}\n", accumulation));
    text = text.substr(0, text.find("[[policy]]")) + "[[policy]]\nname = \"p\"\n" + policy;
    const std::vector<std::string> four = {"cluster.ranks=4"};
    return parse_scenario(text, "b.toml", four).policies.front();
  };
  CHECK(with("kind = \"fixed\"\nglobal_batch = 64\n", 1).batch_size() == 16.0);
  CHECK(with("kind = \"fixed\"\nglobal_batch = 64\n", 8).batch_size() == 2.0);
  CHECK(with("kind = \"fixed\"\nbatch_size = 3\nglobal_batch = 64\n", 2).batch_size() == 8.0);
  CHECK_THROWS_AS((void)with("kind = \"fixed\"\nglobal_batch = 66\n", 1), InputError);
  CHECK_THROWS_AS((void)with("kind = \"fixed\"\nglobal_batch = 4\n", 2), InputError);
  CHECK_THROWS_AS((void)with("kind = \"token_budget\"\nmax_tokens = 9\nglobal_batch = 64\n", 1),
                  InputError);
  // Tokens, not samples.
  CHECK_THROWS_AS((void)with("kind = \"tensor2tensor\"\nglobal_batch = 64\n", 1), InputError);
  const std::string pool = "kind = \"torchtext_pool\"\nglobal_batch = 64\nbatch_type = ";
  CHECK_THROWS_AS((void)with(pool + "\"tokens\"\n", 1), InputError);
  CHECK(with(pool + "\"sents\"\n", 1).batch_size() == 16.0);
  // The kind has the parameter itself, of all ranks in a step.
  CHECK(with("kind = \"min_max\"\nglobal_batch = 64\n", 2).parameters().integer("global_batch") ==
        64);
}

TEST_CASE("a scenario says which activations are computed again") {
  const auto with = [](const std::string& keys) {
    return changed("[model]\n", "[model]\n" + keys + "\n").checkpointing;
  };
  CHECK(with("checkpointing = false") == Checkpointing{});
  CHECK(with("checkpointing = true") == Checkpointing{CheckpointKind::Full, 2});
  CHECK(with("checkpointing = \"full\"") == Checkpointing{CheckpointKind::Full, 2});
  CHECK(with("checkpointing = \"ops\"") == Checkpointing{CheckpointKind::Ops, 2});
  CHECK(with("checkpointing = \"ops\"\ncheckpoint_every = 0") ==
        Checkpointing{CheckpointKind::Ops, 0});
  CHECK(with("checkpointing = \"layers\"\ncheckpoint_every = 4") ==
        Checkpointing{CheckpointKind::Layers, 4});
  CHECK_THROWS_AS((void)with("checkpointing = \"layers\"\ncheckpoint_every = 0"), InputError);
  CHECK_THROWS_AS((void)with("checkpointing = \"blocks\""), InputError);
  CHECK_THROWS_AS((void)with("checkpointing = 2"), InputError);
  CHECK(changed("[model]\n", "[model]\nloss_dtype = \"own\"\n").loss_in_own_dtype);
  CHECK_FALSE(changed("[model]\n", "[model]\nloss_dtype = \"f32\"\n").loss_in_own_dtype);
}

TEST_CASE("every source of lengths can be written") {
  const auto lengths = [](const std::string& text) {
    return changed("{ log_uniform = [64, 256], outlier_probability = 0.08 }", text).lengths;
  };
  CHECK(lengths("{ constant = 128 }").constant == 128);
  CHECK(lengths("{ uniform = [3, 9], seed = 5, cap = 7 }").cap == 7);
  CHECK(lengths("{ uniform = [3, 9], seed = 5 }").seed == 5);
  const LengthSource normal =
      lengths("{ log_normal = { mu = 4, sigma = 0.5, min = 2, max = 200 } }");
  CHECK(normal.kind == LengthSource::Kind::LogNormal);
  CHECK(normal.mu == 4);
  CHECK(normal.sigma == 0.5);
  CHECK(normal.min == 2);
  CHECK(normal.max == 200);
  CHECK(lengths("{ histogram = \"lengths/x.json\", seed = 5 }").file == "folder/lengths/x.json");
  CHECK(lengths("{ file = \"/data/x.txt\" }").file == "/data/x.txt");
}

TEST_CASE("a file or histogram of lengths brings its own number of samples") {
  const std::string text = replaced(replaced(kScenarioText, "samples = 3072\n", ""),
                                    "{ log_uniform = [64, 256], outlier_probability = 0.08 }",
                                    "{ file = \"x.txt\" }");
  CHECK(parsed(text).samples == 0);
}

TEST_CASE("a policy may have lengths of its own") {
  const Scenario scenario =
      changed("batch_size = 8", "batch_size = 8\nlengths = { constant = 99 }");
  REQUIRE(scenario.policies[0].lengths());
  CHECK(scenario.policies[0].lengths()->constant == 99);
  CHECK_FALSE(scenario.policies[1].lengths());
}

TEST_CASE("ranks are placed on nodes by number, as a list or as a text") {
  CHECK(parsed(kScenarioText).placement == Placement({4}));
  CHECK(changed("ranks = 4", "ranks = 4\nranks_per_node = 3").placement == Placement({3, 1}));
  CHECK(changed("ranks = 4", "placement = [1, 2]").placement == Placement({1, 2}));
  CHECK(changed("ranks = 4", "placement = [1, 2]").ranks == 3);
  CHECK(changed("ranks = 4", "ranks = 3\nplacement = \"1+2\"").ranks == 3);
  CHECK(changed("ranks = 4", "placement = \"2x8\"").placement == Placement({8, 8}));
  // From the command line it replaces what the file says of ranks.
  CHECK(overridden({"cluster.placement=2+3"}).ranks == 5);
  CHECK(overridden({"cluster.placement=2"}).placement == Placement({2}));
  CHECK(overridden({"cluster.placement=[1, 2]"}).placement == Placement({1, 2}));
}

TEST_CASE("an override replaces a value of the file, or adds one") {
  CHECK(overridden({"ddp.bucket_cap=50 MiB"}).ddp.bucket_cap == Bytes(50 << 20));
  CHECK(overridden({"ddp.bucket_cap = 4096"}).ddp.bucket_cap == Bytes(4096));
  CHECK(overridden({"ddp.set_to_none=false"}).ddp.set_to_none == false);
  CHECK(overridden({"optimizer.kind=sgd"}).optimizer == OptimizerKind::Sgd);
  CHECK(overridden({"cluster.jitter=0.02"}).jitter == 0.02);
  CHECK(overridden({"cluster.jitter=0"}).jitter == 0.0);
  CHECK(overridden({"cluster.slow_ranks=[]"}).slow_ranks.empty());
  CHECK(overridden({"data.lengths={constant=128}"}).lengths.constant == 128);
  CHECK(overridden({"data.sampler.seed=3"}).sampler.seed == 3);
  CHECK(overridden({"cluster.ranks=2", "cluster.ranks=3"}).ranks == 3);
}

TEST_CASE("an override of a text may look like a number") {
  CHECK(overridden({"scenario.name=5"}).name == "5");
  CHECK(overridden({"ddp.torch=2.4"}).ddp.torch == DdpRules::Torch24);
  CHECK(overridden({"scenario.name=\"quoted\""}).name == "quoted");
}

TEST_CASE("an override finds its policy by name, the longest that fits") {
  CHECK(
      overridden({"policy.fixed 8.batch_size=16"}).policies[0].parameters().integer("batch_size") ==
      16);
  const std::string text =
      replaced(replaced(kScenarioText, "\"fixed 8\"", "\"a\""), "\"budget\"", "\"a.lengths\"");
  const Scenario scenario =
      parsed(text, {"policy.a.lengths.max_tokens=640", "policy.a.batch_size=4"});
  CHECK(scenario.policies[1].parameters().integer("max_tokens") == 640);
  CHECK(scenario.policies[0].parameters().integer("batch_size") == 4);
}

TEST_CASE("a path from the command line stands as it is") {
  CHECK(overridden({"cluster.profile=mine/p.json"}).profile == "mine/p.json");
}

TEST_CASE("a policy is found by name, the first without one") {
  const Scenario scenario = parsed(kScenarioText);
  CHECK(find_policy(scenario, "").name() == "fixed 8");
  CHECK(find_policy(scenario, "budget").name() == "budget");
  CHECK_THROWS_WITH_AS(
      (void)find_policy(scenario, "budgt"),
      "folder/s.toml: error: unknown policy 'budgt'; did you mean 'budget'? known: "
      "fixed 8, budget",
      InputError);
}

TEST_CASE("every shipped scenario reads") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_root() + "/scenarios")) {
    if (entry.path().extension() == ".toml") {
      CAPTURE(entry.path().string());
      const Scenario scenario = read_scenario(entry.path().string());
      CHECK_FALSE(scenario.question.empty());
      ++count;
    }
  }
  CHECK(count > 0);
}
