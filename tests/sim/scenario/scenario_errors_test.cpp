// The message is a contract: a table of broken scenarios and the whole text that each must print.
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/model/model_presets.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return test::error_of([&] { (void)parse_scenario(text, "s.toml", overrides); });
}

struct BrokenFile {
  std::string from;
  std::string to;
  std::string message;
};

struct BrokenOverride {
  std::string text;
  std::string message;
};

const std::string kCluster =
    "ranks, ranks_per_node, placement, cores, profile, slow_ranks, network_speed, compute_speed, "
    "peak_tflops, skew, jitter, communicator, "
    "topology, all_reduce";
const std::string kTables =
    "scenario, cluster, model, ddp, parallel, optimizer, data, policy, interference, "
    "new_shapes, host, noise, times";
const std::string kLengthsLine = "{ log_uniform = [64, 256], outlier_probability = 0.08 }";

/// The keys of a table as messages list them.
std::string known_keys(const std::string& path) {
  std::string names;
  for (const KeyTable& table : key_tables()) {
    for (const Key& key : table.path == path ? table.keys : std::vector<Key>()) {
      names += (names.empty() ? "" : ", ") + key.name;
    }
  }
  return names;
}

void check_files(const std::vector<BrokenFile>& files) {
  for (const auto& file : files) {
    CAPTURE(file.to);
    CHECK(error_of(replaced(kScenarioText, file.from, file.to)) == file.message);
  }
}

}  // namespace

TEST_CASE("unknown keys and tables are named with the nearest known one") {
  check_files({
      {"ranks = 4",
       "rank = 4",
       "s.toml:9:1: error: cluster: unknown key 'rank'; did you mean 'ranks'? known: " + kCluster +
           "\nrank = 4\n^"},
      {"[cluster]",
       "[clusterr]",
       "s.toml:8:2: error: unknown table 'clusterr'; did you mean 'cluster'? known: " + kTables +
           "\n[clusterr]\n ^"},
      {"[[policy]]",
       "[[polcy]]",
       "s.toml:24:3: error: unknown table 'polcy'; did you mean 'policy'? known: " + kTables +
           "\n[[polcy]]\n  ^"},
      {"factor = 1.2",
       "faktor = 1.2",
       "s.toml:11:27: error: cluster.slow_ranks: unknown key 'faktor'; did you mean 'factor'? "
       "known: rank, factor\nslow_ranks = [{ rank = 1, faktor = 1.2 }]\n"
       "                          ^"},
  });
}

TEST_CASE("an unknown key is reported before a missing one") {
  const std::string text = replaced(kScenarioText, "ranks = 4", "rnaks = 4");
  CHECK(error_of(replaced(text, "name = \"token skew\"", ""))
            .starts_with("s.toml:9:1: error: cluster: unknown key 'rnaks'; did you mean 'ranks'?"));
}

TEST_CASE("a placement that is none, or that contradicts the number of ranks, is refused") {
  check_files({
      {"ranks = 4",
       "placement = \"1+x\"",
       "s.toml:9:13: error: cluster.placement: '1+x' is no placement; expected the ranks of one "
       "node (\"4\"), of each node (\"1+2+4\"), or nodes x ranks (\"2x8\")\n"
       "placement = \"1+x\"\n            ^"},
      {"ranks = 4",
       "placement = [2, 0]",
       "s.toml:9:13: error: cluster.placement: expected the ranks of each node, each 1 or more, as "
       "[1, 2, 4]\nplacement = [2, 0]\n            ^"},
      {"ranks = 4",
       "ranks = 4\nplacement = [1, 2]",
       "s.toml:9:9: error: cluster.ranks: 4 ranks, but the nodes of cluster.placement hold 3; "
       "leave cluster.ranks out\nranks = 4\n        ^"},
      {"ranks = 4",
       "ranks_per_node = 2\nplacement = [2, 2]",
       "s.toml:9:18: error: cluster.ranks_per_node: cluster.placement says it already; write one "
       "of them\nranks_per_node = 2\n                 ^"},
  });
}

TEST_CASE("missing keys and tables are named at their table") {
  check_files({
      {"ranks = 4\n", "", "s.toml:8:1: error: cluster.ranks: missing\n[cluster]\n^"},
      {"name = \"budget\"\n", "", "s.toml:29:1: error: policy.name: missing\n[[policy]]\n^"},
      {"preset = \"tiny-classifier\"",
       "",
       "s.toml:13:1: error: model: expected preset = \"gpt2-small\", or kind with layers, hidden, "
       "heads and vocab" +
           other_models_hint() + "\n[model]\n^"},
      {"max_tokens = 1280\n",
       "",
       "s.toml:29:1: error: policy.budget: policy kind 'token_budget' needs max_tokens (at least "
       "1)\n[[policy]]\n^"},
      {"samples = 3072\n", "", "s.toml:19:1: error: data.samples: missing\n[data]\n^"},
      {"lengths = " + kLengthsLine, "", "s.toml:19:1: error: data.lengths: missing\n[data]\n^"},
  });
  CHECK(error_of("[scenario]\nname = \"x\"\nsteps = 1\n") ==
        "s.toml: error: missing table [cluster]");
  const std::string text = kScenarioText;
  CHECK(error_of(text.substr(0, text.find("[[policy]]"))) ==
        "s.toml: error: no policy: add a [[policy]] table");
}

TEST_CASE("lengths to pad to ascend, stand alone and belong to attention that pads") {
  const std::string place = "s.toml:33:18: error: policy.budget.pad_to_lengths: ";
  const auto with = [](const std::string& lines) {
    return error_of(replaced(kScenarioText, "max_tokens = 1280", "max_tokens = 1280\n" + lines));
  };
  CHECK(with("pad_to_lengths = [64, 256]") == "no error");
  CHECK(with("pad_to_lengths = [256, 64]") ==
        place +
            "64 follows 256; expected each length once, ascending\n"
            "pad_to_lengths = [256, 64]\n                 ^");
  CHECK(with("pad_to_lengths = [64, 64]").starts_with(place + "64 follows 64; expected each"));
  CHECK(with("pad_to_lengths = []").starts_with(place + "the list is empty; expected one length"));
  CHECK(with("pad_to_lengths = [0, 64]").starts_with(place + "expected a list of integers from 1"));
  CHECK(with("pad_to_lengths = 64").starts_with(place + "expected a list, got an integer"));
  CHECK(with("pad_to_lengths = [64]\npad_to_multiple_of = 1")
            .starts_with(place + "does not go with pad_to_multiple_of; give one of them"));
  CHECK(with("pad_to_lengths = [64]\nattention = \"varlen\"")
            .starts_with(place + "attention = \"varlen\" pads nothing"));
}

TEST_CASE("values of a wrong type or unit are shown with a caret") {
  check_files({
      {"\"25 MiB\"",
       "\"25 MB\"",
       "s.toml:17:14: error: ddp.bucket_cap: unknown unit 'MB'; use KiB, MiB, GiB or bytes without "
       "unit\nbucket_cap = \"25 MB\"\n             ^"},
      {"\"25 MiB\"",
       "25.5",
       "s.toml:17:14: error: ddp.bucket_cap: expected a size such as \"25 MiB\", or bytes as an "
       "integer, got a real number\nbucket_cap = 25.5\n             ^"},
      {"\"25 MiB\"",
       "25",
       "s.toml:17:14: error: ddp.bucket_cap: 25 without a unit counts bytes; did you mean \"25 "
       "MiB\"? Write \"25 B\" if it is bytes\nbucket_cap = 25\n             ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = [\"1 MiB\", \"25\"]",
       "s.toml:19:25: error: ddp.bucket_caps: 25 without a unit counts bytes; did you mean \"25 "
       "MiB\"? Write \"25 B\" if it is bytes\nbucket_caps = [\"1 MiB\", \"25\"]\n"
       "                        ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\nbucket_caps = [\"1 MiB\"]",
       "s.toml:18:15: error: ddp.bucket_caps: a limit for each bucket (bucket_cap_mb_list of "
       "PyTorch 2.11) needs torch = \"newest\"\nbucket_caps = [\"1 MiB\"]\n"
       "              ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"newest\"\nbucket_rule = \"single\"\nbucket_caps = [\"1 MiB\"]",
       "s.toml:20:15: error: ddp.bucket_caps: a limit for each bucket needs bucket_rule = "
       "\"pytorch\"\nbucket_caps = [\"1 MiB\"]\n              ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = [\"1 MiB\", 2.5]",
       "s.toml:19:25: error: ddp.bucket_caps: expected a list of sizes as \"1 MiB\", or of bytes "
       "as "
       "integers, got a real number\nbucket_caps = [\"1 MiB\", 2.5]\n                        ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = [\"0 B\"]",
       "s.toml:19:16: error: ddp.bucket_caps: a size of 0 bytes; expected at least 1\n"
       "bucket_caps = [\"0 B\"]\n               ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = []",
       "s.toml:19:15: error: ddp.bucket_caps: expected at least one size\nbucket_caps = []\n"
       "              ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\ntorch = \"1.13\"\noptimize_ddp = \"ddp_optimizer\"",
       "s.toml:19:16: error: ddp.optimize_ddp: torch.compile needs torch = \"2.4\" or \"newest\"\n"
       "optimize_ddp = \"ddp_optimizer\"\n               ^"},
      {"\"25 MiB\"",
       "\"25 MiB\"\nzero_stage = 3\noptimize_ddp = \"no_optimization\"",
       "s.toml:19:16: error: ddp.optimize_ddp: needs DDP's reducer: bucket_rule = \"pytorch\", "
       "zero_stage 0 to 2\noptimize_ddp = \"no_optimization\"\n               ^"},
      {"\"25 MiB\"",
       "\"512 KiB\"\noptimize_ddp = \"ddp_optimizer\"",
       "s.toml:18:16: error: ddp.optimize_ddp: DDPOptimizer fails with a bucket_cap below 1 MiB, "
       "the "
       "limit of its first graph\noptimize_ddp = \"ddp_optimizer\"\n               ^"},
      {"ranks = 4",
       "ranks = \"4\"",
       "s.toml:9:9: error: cluster.ranks: expected an integer, got a string\nranks = \"4\"\n"
       "        ^"},
      {"name = \"token skew\"",
       "name = 5",
       "s.toml:2:8: error: scenario.name: expected a string in quotes, got an integer\nname = 5\n"
       "       ^"},
      {"lengths = " + kLengthsLine,
       "lengths = 128",
       "s.toml:21:11: error: data.lengths: expected a table, got an integer\nlengths = 128\n"
       "          ^"},
      {"[64, 256]",
       "[64]",
       "s.toml:21:27: error: data.lengths.log_uniform: expected [shortest, longest], two integers\n"
       "lengths = { log_uniform = [64], outlier_probability = 0.08 }\n"
       "                          ^"},
      {"[model]",
       "[[model]]",
       "s.toml:13:1: error: model: expected a table, got a list\n[[model]]\n^"},
      {"factor = 1.2",
       "factor = inf",
       "s.toml:11:36: error: cluster.slow_ranks.factor: expected a finite number\n"
       "slow_ranks = [{ rank = 1, factor = inf }]\n                                   ^"},
      {"seed = 2043",
       "shuffle = 1",
       "s.toml:22:40: error: data.sampler.shuffle: expected true or false, got an integer\n"
       "sampler = { kind = \"python\", shuffle = 1 }\n"
       "                                       ^"},
  });
}

TEST_CASE("numbers out of their range are refused") {
  check_files({
      {"\"25 MiB\"",
       "0",
       "s.toml:17:14: error: ddp.bucket_cap: a size of 0 bytes; expected at least 1\n"
       "bucket_cap = 0\n             ^"},
      {"\"25 MiB\"",
       "\"-3 MiB\"",
       "s.toml:17:14: error: ddp.bucket_cap: '-3 MiB' is negative\nbucket_cap = \"-3 MiB\"\n"
       "             ^"},
      {"ranks = 4",
       "ranks = 0",
       "s.toml:9:9: error: cluster.ranks: 0 is too small; expected at least 1\nranks = 0\n"
       "        ^"},
      {"steps = 12",
       "steps = 0",
       "s.toml:5:9: error: scenario.steps: 0 is too small; expected at least 1\nsteps = 0\n"
       "        ^"},
      {"steps = 12",
       "steps = 2000000",
       "s.toml:5:9: error: scenario.steps: 2000000 is too large; expected at most 1000000\n"
       "steps = 2000000\n        ^"},
      {"warmup_steps = 2",
       "warmup_steps = 12",
       "s.toml:6:16: error: scenario.warmup_steps: 12 warm-up steps of 12 steps leave none to "
       "report; expected less than 12\nwarmup_steps = 12\n               ^"},
      {"rank = 1",
       "rank = 4",
       "s.toml:11:24: error: cluster.slow_ranks.rank: rank 4 is out of range: the ranks are 0 .. "
       "3\n"
       "slow_ranks = [{ rank = 4, factor = 1.2 }]\n                       ^"},
      {"factor = 1.2",
       "factor = 0",
       "s.toml:11:36: error: cluster.slow_ranks.factor: 0 is no factor; expected more than 0, at "
       "most 1000000, as 1.2 for 20 % slower\nslow_ranks = [{ rank = 1, factor = 0 }]\n"
       "                                   ^"},
      {"ranks = 4",
       "ranks = 4\nnetwork_speed = 1e7",
       "s.toml:10:17: error: cluster.network_speed: 10000000 is out of range; expected 0.000001 to "
       "1000000, as 2 for twice as fast\nnetwork_speed = 1e7\n                ^"},
      {"ranks = 4",
       "ranks = 4\nskew = 2e6",
       "s.toml:10:8: error: cluster.skew: 2000000 is out of range; expected 0 to 1000000, as 0.2 "
       "for 20 % more work on the last rank\nskew = 2e6\n       ^"},
      {"ranks = 4",
       "ranks = 4\ncores = 70000",
       "s.toml:10:9: error: cluster.cores: 70000 is out of range; expected 0, or 1 to 65536\n"
       "cores = 70000\n        ^"},
      {"samples = 3072",
       "samples = 3",
       "s.toml:20:11: error: data.samples: 3 samples for 4 ranks: every rank needs at least one\n"
       "samples = 3\n          ^"},
      {"batch_size = 8",
       "batch_size = -8",
       "s.toml:27:14: error: policy.fixed 8.batch_size: -8 is too small; expected at least 1\n"
       "batch_size = -8\n             ^"},
      {"0.08",
       "1.5",
       "s.toml:21:60: error: data.lengths.outlier_probability: 1.5 is no probability; expected 0 "
       ".. "
       "1\nlengths = { log_uniform = [64, 256], outlier_probability = 1.5 }\n"
       "                                                           ^"},
      {"[64, 256]",
       "[64, 1024]",
       "s.toml:21:27: error: data.lengths.log_uniform: samples of up to 1024 tokens, but the model "
       "takes 256 (model.max_length)\n"
       "lengths = { log_uniform = [64, 1024], outlier_probability = 0.08 }\n"
       "                          ^"},
      {"[64, 256]",
       "[64, 32]",
       "s.toml:21:27: error: data.lengths.log_uniform: the shortest length is above the longest\n"
       "lengths = { log_uniform = [64, 32], outlier_probability = 0.08 }\n"
       "                          ^"},
  });
}

TEST_CASE("names that do not exist or exist twice are refused") {
  check_files({
      {"\"budget\"",
       "\"fixed 8\"",
       "s.toml:30:8: error: policy.name: two policies are called 'fixed 8'\nname = \"fixed 8\"\n"
       "       ^"},
      {"\"token_budget\"",
       "\"token_buget\"",
       "s.toml:31:8: error: policy.budget.kind: unknown policy kind 'token_buget'; did you mean "
       "'token_budget'?\nkind = \"token_buget\"\n       ^"},
      {"\"token\"",
       "\"tokens\"",
       "s.toml:33:13: error: policy.budget.weighting: unknown value 'tokens'; did you mean "
       "'token'? "
       "known: none, sample, token\nweighting = \"tokens\"\n            ^"},
      {"max_tokens = 1280",
       "batch_size = 8",
       "s.toml:32:14: error: policy.budget.batch_size: does not apply to policy kind "
       "'token_budget', which takes max_tokens\nbatch_size = 8\n             ^"},
      {"\"python\"",
       "\"pyhton\"",
       "s.toml:22:20: error: data.sampler.kind: unknown value 'pyhton'; did you mean 'python'? "
       "known: distributed, python\nsampler = { kind = \"pyhton\", seed = 2043 }\n"
       "                   ^"},
      {"outlier_probability = 0.08",
       "constant = 128",
       "s.toml:21:27: error: data.lengths.log_uniform: two sources of lengths, constant and "
       "log_uniform; give one\nlengths = { log_uniform = [64, 256], constant = 128 }\n"
       "                          ^"},
      {"log_uniform = [64, 256]",
       "constant = 128",
       "s.toml:21:51: error: data.lengths.outlier_probability: does not apply to constant lengths\n"
       "lengths = { constant = 128, outlier_probability = 0.08 }\n"
       "                                                  ^"},
      {"preset = \"tiny-classifier\"",
       "preset = \"tiny-classifier\"\nheads = 5",
       "s.toml:15:9: error: model.heads: 5 do not divide hidden 48\nheads = 5\n        ^"},
  });
}

TEST_CASE("a policy's parameter of the wrong type or range is shown at its value") {
  const std::string kind = "kind = \"fixed\"\nbatch_size = 8";
  const std::string lhotse = "kind = \"lhotse_dynamic_bucketing\"\n";
  const std::string tf = "kind = \"tf_bucket_by_sequence_length\"\nbucket_batch_sizes = [4, 2]\n";
  check_files({
      {kind,
       lhotse + "max_duration = 0",
       "s.toml:27:16: error: policy.fixed 8.max_duration: 0 is too small; expected a number above "
       "0\nmax_duration = 0\n               ^"},
      {kind,
       lhotse + "max_duration = \"long\"",
       "s.toml:27:16: error: policy.fixed 8.max_duration: expected a number, got a "
       "string\nmax_duration = \"long\"\n               ^"},
      {kind,
       lhotse + "sync_buckets = 1",
       "s.toml:27:16: error: policy.fixed 8.sync_buckets: expected true or false, got an "
       "integer\nsync_buckets = 1\n               ^"},
      {kind,
       tf + "bucket_boundaries = [0]",
       "s.toml:28:21: error: policy.fixed 8.bucket_boundaries: expected a list of integers from 1 "
       "to 1073741824\nbucket_boundaries = [0]\n                    ^"},
      {kind,
       tf + "bucket_boundaries = [64, 8]",
       "s.toml:24:1: error: policy.fixed 8: bucket_boundaries: expected lengths that "
       "ascend\n[[policy]]\n^"},
      {kind,
       "kind = \"opennmt\"\nbatch_type = \"token\"",
       "s.toml:27:14: error: policy.fixed 8.batch_type: unknown value 'token'; did you mean "
       "'tokens'? known: sents, tokens\nbatch_type = \"token\"\n             ^"},
  });
}

TEST_CASE("text that is not TOML is shown where it breaks") {
  check_files({
      {"ranks = 4\n",
       "ranks = 4\nranks = 5\n",
       "s.toml:10:9: error: not valid TOML: cannot redefine existing integer 'ranks'\nranks = 5\n"
       "        ^"},
      {"[cluster]",
       "[cluster",
       "s.toml:8:9: error: not valid TOML: expected ']', saw '\\n'\n[cluster\n        ^"},
  });
  CHECK(error_of(std::string(1 << 21, ' ')) ==
        "s.toml: error: 2097152 bytes are too many for a scenario (at most 1048576)");
  CHECK(error_of(std::string(2000, '.')) == "s.toml:1:1: error: more than 1000 dots on one line");
  CHECK(error_of("") == "s.toml: error: missing table [scenario]");
  CHECK(error_of("x = \"\xff\"").starts_with("s.toml:1:"));
}

TEST_CASE("a key that would have no effect is refused, with the reason") {
  const auto refused = [](const std::vector<std::string>& overrides) {
    const std::string message = error_of(kBlocksText, overrides);
    const std::size_t begin = message.find("error: ");
    return begin == std::string::npos ? message : message.substr(begin + 7);
  };
  // Without the place, which names the last override of each.
  const std::string no_transformer =
      "has no effect: blocks have layers and block_elements, or tensors, and nothing else of a "
      "transformer";
  CHECK(refused({"model.hidden=64"}) == no_transformer);
  CHECK(refused({"model.vocab=64"}) == no_transformer);
  CHECK(refused({"model.max_length=64"}) == no_transformer);
  CHECK(refused({"model.sparse_embeddings=true"}) == no_transformer);
  CHECK(refused({"data.loading={plan=\"20 ms\"}"}) ==
        "data.loading.plan: has no effect without plan_every, which says how many batches are "
        "planned at a time");
  CHECK(refused({"data.loading={plan_every=4}"}) ==
        "data.loading.plan_every: has no effect without plan, which says what planning them takes");
  CHECK(refused({"noise.stall=5 ms"}) ==
        "has no effect without stall_probability, which says how often that happens");
  CHECK(refused({"noise.stall_probability=0.1"}) ==
        "has no effect without stall, which says what it takes longer then");
  CHECK(refused({"noise.loader_stall=5 ms"}).starts_with("has no effect without loader_stall_p"));
  CHECK(refused({"noise.loader_stall_probability=0.1"})
            .starts_with("has no effect without loader_stall,"));
  CHECK(refused({"noise.stall_probability=0.1", "noise.stall=5 ms"}) == "no error");
  CHECK(refused({"ddp.zero_stage=3", "ddp.overlap=false"}) ==
        "has no effect with zero_stage = 3, which reduces the gradients of a layer as soon as they "
        "are ready");
  CHECK(refused({"parallel.kind=zero3", "ddp.overlap=false"}).starts_with("has no effect with"));
  CHECK(refused({"parallel.kind=zero3", "ddp.zero_stage=1"}) ==
        "1 contradicts parallel.kind = \"zero3\": leave one of them out");
  CHECK(refused({"parallel.kind=ddp", "ddp.zero_stage=3"}) ==
        "3 contradicts parallel.kind = \"ddp\": leave one of them out");
  CHECK(refused({"parallel.kind=zero3", "ddp.zero_stage=3"}) == "no error");
  CHECK(refused({"parallel.kind=ddp", "ddp.zero_stage=2"}) == "no error");
  CHECK(refused({"parallel.kind=zeros"}) ==
        "unknown value 'zeros'; did you mean 'zero'? known: ddp, fsdp2, fsdp1, zero, zero3");
  const std::string per_parameter = "ddp.bucket_rule=per_parameter";
  CHECK(refused({per_parameter, "ddp.bucket_cap=1 MiB"}) ==
        "has no effect: with bucket_rule = \"per_parameter\" every tensor has a bucket of its own");
  CHECK(refused({"ddp.bucket_rule=single", "ddp.bucket_cap=1 MiB"}) ==
        "has no effect: with bucket_rule = \"single\" one bucket holds all tensors");
  CHECK(refused({"ddp.bucket_rule=before_cap", "ddp.bucket_cap=1 MiB"}) == "no error");
  CHECK(refused({"ddp.bucket_rule=before_cap", "ddp.first_bucket_cap=1 MiB"}) ==
        "has no effect: only bucket_rule = \"pytorch\" has a limit of the first bucket");
  CHECK(
      error_of(replaced(kScenarioText, "bucket_cap = ", "bucket_rule = \"single\"\nbucket_cap = "))
          .starts_with("s.toml:18:14: error: ddp.bucket_cap: has no effect: with bucket_rule"));
  CHECK(error_of(replaced(kScenarioText,
                          "preset = \"tiny-classifier\"",
                          "preset = \"tiny-classifier\"\nblock_elements = 3"))
            .starts_with("s.toml:15:18: error: model.block_elements: only for kind = \"blocks\""));
}

TEST_CASE("a rule of the buckets from the command line replaces the caps of the file") {
  const auto ddp = [](const std::vector<std::string>& overrides) {
    return parse_scenario(kScenarioText, "s.toml", overrides).ddp;
  };
  CHECK(ddp({"ddp.bucket_rule=single"}).bucket_rule == BucketRule::Single);
  CHECK(ddp({"ddp.bucket_rule=before_cap"}).bucket_cap == Bytes(25 << 20));
  const std::string listed = replaced(
      kScenarioText, "\"25 MiB\"", "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = [\"1 MiB\"]");
  const std::vector<std::string> per_parameter = {"ddp.bucket_rule=per_parameter"};
  CHECK(parse_scenario(listed, "s.toml", per_parameter).ddp.bucket_caps.empty());
  CHECK_THROWS_AS((void)ddp({"ddp.bucket_rule=single", "ddp.bucket_cap=2 MiB"}), InputError);
}

TEST_CASE("an error in an override names the command line, not the file") {
  const std::vector<BrokenOverride> overrides = {
      {"ddp.bucket_cap=25 MB",
       "--set ddp.bucket_cap=25 MB: error: unknown unit 'MB'; use KiB, MiB, GiB or bytes without "
       "unit"},
      {"ddp.bucket_capp=25 MiB",
       "--set ddp.bucket_capp: error: unknown key 'bucket_capp'; did you mean 'bucket_cap'? "
       "known: " +
           known_keys("ddp")},
      {"clusterr.ranks=4",
       "--set clusterr.ranks: error: unknown table 'clusterr'; did you mean 'cluster'? known: " +
           kTables},
      {"cluster.ranks=0", "--set cluster.ranks=0: error: 0 is too small; expected at least 1"},
      {"cluster.ranks=four", "--set cluster.ranks=four: error: expected an integer, got a string"},
      {"policy.budgt.max_tokens=3",
       "--set policy.budgt.max_tokens=3: error: unknown policy 'budgt'; did you mean 'budget'? "
       "known: fixed 8, budget"},
      {"policy.budget.max_token=3",
       "--set policy.budget.max_token: error: unknown key 'max_token'; did you mean 'max_tokens'?"},
      {"data.lengths={constant=\"x\"}",
       "--set data.lengths={constant=\"x\"}: error: data.lengths.constant: expected an integer, "
       "got "
       "a string"},
      {"data.lengths.constant=128",
       "--set data.lengths.constant=128: error: two sources of lengths, constant and log_uniform; "
       "give one"},
      {"ddp.bucket_cap.x=3",
       "--set ddp.bucket_cap.x=3: error: 'bucket_cap' is no table: it has no keys below it"},
      {"ddp", "--set ddp: error: expected key=value, as in ddp.bucket_cap=50 MiB"},
      {"ddp..x=3", "--set ddp..x=3: error: a part of the key is empty; expected key=value"},
      {"=3", "--set =3: error: a part of the key is empty; expected key=value"},
      {"scenario.name=a\xff", "--set scenario.name=a\\xff: error: not UTF-8"},
  };
  for (const auto& item : overrides) {
    CAPTURE(item.text);
    CHECK(error_of(kScenarioText, {item.text}) == item.message);
  }
}

TEST_CASE("a damaged scenario raises nothing but the input error") {
  const std::string valid = kScenarioText;
  const std::string pieces = "[]{}=.\"'#\n, 0123456789-+eE_xainf\\u\t\r\x01\x80\xff";
  std::mt19937_64 random(1);
  int rejected = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    std::string text = valid;
    for (std::uint64_t change = random() % 4; change < 4; ++change) {
      const auto at = static_cast<std::size_t>(random() % text.size());
      const auto count = static_cast<std::size_t>(random() % 6);
      const std::string piece(1, pieces[static_cast<std::size_t>(random() % pieces.size())]);
      text.replace(at, count, piece);
    }
    rejected += error_of(text) == "no error" ? 0 : 1;
  }
  CHECK(rejected > 1000);
  CHECK(rejected < 3000);
}
