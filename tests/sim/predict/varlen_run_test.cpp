// Varlen attention and packed rows in whole runs: slots, empty blocks, what the plan says.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/predict/predict.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/text.h"
#include "tests/approx.h"
#include "tests/sim/predict/plan_of.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// 2 ranks, 2 layers of 4 heads; four documents of 16 tokens a batch.
const std::string kDocuments = replaced(kDecoderText,
                                        {{"steps = 12", "steps = 4"},
                                         {"max_length = 128", "max_length = 64"},
                                         {"vocab = 100", "vocab = 100\nattention = \"flash\""},
                                         {"{ uniform = [4, 60] }", "{ constant = 16 }"}}) +
                               R"([[policy]]
name = "rows"
kind = "packed_next_fit"
capacity = 64
row_length = 32
[[policy]]
name = "varlen"
kind = "packed_next_fit"
capacity = 64
attention = "varlen"
varlen = { max_num_docs = 6, max_seq_len = 32, block_rows = 8 }
)";

Scenario documents(const std::vector<std::string>& overrides = {}) {
  return parse_scenario(kDocuments, "s.toml", overrides);
}

std::string error_of(const std::vector<std::string>& overrides) {
  return test::error_of([&] {
    const Scenario scenario = documents(overrides);
    (void)predict_quietly(scenario, "varlen");
  });
}

}  // namespace

TEST_CASE("a batch packed into rows is attended row by row") {
  const Scenario scenario = documents();
  const Plan plan = plan_of(scenario, find_policy(scenario, "rows"));
  for (const MicroBatch& batch : plan.micro_batches) {
    CHECK(batch.lengths == std::vector<std::int64_t>{16, 16, 16, 16});
    CHECK(batch.sequences == std::vector<std::int64_t>{32, 32});
    CHECK(batch.shape().sum_squares == 2 * 32 * 32);
  }
  const Prediction rows = predict_quietly(scenario, "rows");
  CHECK(rows.steps.front().samples == 4);
  CHECK(rows.steps.front().padded_tokens == 64);
  // The last row of 64 tokens in rows of 24 holds 16 and is padded.
  const Scenario uneven = documents({"policy.rows.row_length=24"});
  const Plan padded = plan_of(uneven, find_policy(uneven, "rows"));
  CHECK(padded.micro_batches.front().sequences == std::vector<std::int64_t>{24, 24, 16});
  CHECK(padded.micro_batches.front().shape().padded_tokens() == 72);
}

TEST_CASE("an empty block takes its time in every head, layer and pass") {
  // 6 slots of 4 blocks of 8 rows, of which 4 documents fill two each: 16 are empty.
  const Prediction free = predict_quietly(documents(), "varlen");
  const Prediction slow =
      predict_quietly(documents({"policy.varlen.varlen.empty_block=2 us"}), "varlen");
  const double forward_ms = 16 * 4 * 2 * 2e-3;
  CHECK(slow.steps.front().forward_ms - free.steps.front().forward_ms ==
        Approx(forward_ms).epsilon(1e-4));
  CHECK(slow.steps.front().backward_ms - free.steps.front().backward_ms ==
        Approx(forward_ms).epsilon(1e-4));
  CHECK(free.steps.front().padded_tokens == 64);
  const auto says = [](const Prediction& prediction) {
    return std::any_of(prediction.notes.begin(), prediction.notes.end(), [](const Note& note) {
      return std::holds_alternative<EmptyBlocksFree>(note);
    });
  };
  CHECK(says(free));
  CHECK(note_text(EmptyBlocksFree{})
            .starts_with("the empty blocks of varlen attention's grid cost nothing here"));
  CHECK(!says(slow));
  CHECK(!says(predict_quietly(documents(), "rows")));
}

TEST_CASE("a profile that prices empty blocks comes before the scenario's time") {
  const Scenario scenario = documents({"policy.varlen.varlen.empty_block=2 us"});
  Profile profile = scenario_profile(scenario);
  CHECK(!prices_empty_blocks(profile));
  OpCost cost;
  cost.op_class = OpClass::Attention;
  cost.form = CostForm::Features;
  cost.features = {"empty_blocks"};
  cost.coefficients = {1e-6};
  profile.ops.push_back(cost);
  CHECK(prices_empty_blocks(profile));
  const Prediction priced =
      predict(scenario, find_policy(scenario, "varlen"), profile, {.noise_runs = 0});
  // [times] prices the ops of this scenario, so no empty block takes any time.
  CHECK(priced.steps.front().forward_ms ==
        predict_quietly(documents(), "varlen").steps.front().forward_ms);
  CHECK(note_texts(priced).front() ==
        "varlen.empty_block is not used: the profile prices empty blocks itself");
  BatchShape batch{4, 16, 64, 1024};
  batch.empty_blocks = 16;
  Op op;
  op.op_class = OpClass::Attention;
  op.heads = 4;
  op.head_dim = 16;
  op.varlen = true;
  CHECK(ProfileCostModel(profile).op(op, batch).seconds == Approx(16 * 4 * 1e-6));
}

TEST_CASE("merged documents stand in the plan, and in the reports") {
  const std::vector<std::string> overrides = {"policy.varlen.varlen.max_num_docs=3",
                                              "policy.varlen.varlen.overflow=merge"};
  const Scenario scenario = documents(overrides);
  const BatchingPolicy& policy = find_policy(scenario, "varlen");
  for (const MicroBatch& batch : plan_of(scenario, policy).micro_batches) {
    CHECK(batch.lengths == std::vector<std::int64_t>{16, 16, 16, 16});
    CHECK(batch.sequences == std::vector<std::int64_t>{32, 16, 16});
  }
  const VarlenUse use = plan_policy(scenario, policy, {}).varlen.value();
  CHECK(use.batches == 16);
  CHECK(use.most_documents == 4);
  CHECK(use.merged_batches == 16);
  CHECK(use.merged_documents == 32);
  CHECK(use.cross_document_tokens == 16 * 16);
  Prediction prediction = predict_quietly(scenario, "varlen");
  prediction.varlen = use;
  const Json json = prediction_json({prediction}, StepRows::None)["predictions"][0]["varlen"];
  CHECK(json["most_documents"] == 4);
  CHECK(json["cross_document_tokens"] == 256);
  CHECK(run_text(scenario, prediction).find("cross-document tokens") != std::string::npos);
  // What is merged costs (16 + 16)^2.
  CHECK(plan_of(scenario, policy).micro_batches.front().shape().sum_squares ==
        32 * 32 + 2 * 16 * 16);
}

TEST_CASE("a varlen call that documents do not fit into is an error unless asked fallback") {
  CHECK(error_of({}) == "no error");
  CHECK(error_of({"policy.varlen.varlen.max_num_docs=3"}) ==
        "policy 'varlen': rank 0, batch 0: 4 documents for max_num_docs = 3; raise it, or set "
        "overflow = \"merge\" or \"discard\"");
  CHECK(error_of({"policy.varlen.varlen.max_seq_len=15"}) ==
        "policy 'varlen': sample 0 has 16 tokens, above the max_seq_len of 15 of the varlen call; "
        "overflow = \"merge\" or \"discard\" cuts it");
  CHECK(
      error_of({"policy.varlen.varlen.max_num_docs=3", "policy.varlen.varlen.overflow=discard"}) ==
      "policy 'varlen': rank 0: none of its 8 batches fits into max_num_docs = 3");
  const auto found = [](const std::vector<std::string>& overrides, const char* text) {
    const std::string message = error_of(overrides);
    INFO(message);
    return message.find(text) != std::string::npos;
  };
  CHECK(found({"policy.varlen.varlen.max_num_docs=0"}, "max_num_docs"));
  CHECK(found({"policy.varlen.varlen.max_seq_len=-1"}, "max_seq_len"));
  CHECK(found({"policy.varlen.varlen.overflow=drop"}, "unknown value 'drop'"));
  CHECK(found({"policy.varlen.varlen.empty_block=3"}, "empty_block"));
  CHECK(found({"policy.varlen.varlen.max_docs=3"}, "max_num_docs"));
  CHECK(found({"policy.varlen.attention=flash"},
              "policy.varlen.varlen: only applies to attention = \"varlen\""));
  CHECK(found({"policy.varlen.attention=fast"}, "unknown attention 'fast'"));
  CHECK(found({"policy.varlen.row_length=32"}, "attention = \"varlen\" has no rows"));
  CHECK(found({"policy.rows.row_length=65"}, "row_length"));
  CHECK(found({"policy.rows.row_length=0"}, "row_length"));
  CHECK(error_of({"model.varlen={max_num_docs=8}"}) == "no error");
}

TEST_CASE("a varlen table that no policy uses is an error") {
  const std::string dense = kDocuments.substr(0, kDocuments.rfind("[[policy]]"));
  const std::vector<std::string> overrides = {"model.varlen={max_num_docs=8}"};
  CHECK_THROWS_WITH_AS((void)parse_scenario(dense, "s.toml", overrides),
                       "--set model.varlen={max_num_docs=8}: error: only applies to attention = "
                       "\"varlen\", which no policy has",
                       InputError);
}
