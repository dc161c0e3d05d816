// What FSDP2's keys make of a model: units by name, prefetches, versions.
#include "sim/parallel/fsdp2/fsdp2_keys.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/model_presets.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/named_units.h"
#include "sim/parallel/fsdp2/shard_sequence.h"
#include "tests/costmodel/helpers.h"

namespace stepsim {
namespace {

const std::vector<std::string> kModules = {
    "tok", "layers", "layers.0", "layers.0.mlp", "layers.1", "layers.1.mlp", "norm", "head"};

std::vector<std::string> unit_names(const std::string& text) {
  return mapped(named_units(text, kModules), &NamedUnit::name);
}

std::string unit_error(const std::string& text) {
  return test::error_of([&] { (void)named_units(text, kModules); });
}

/// The model of a preset with units.
TrainedModel model_with(const std::string& preset, const UnitChoice& choice) {
  const TransformerConfig config = model_preset(preset);
  const StepOps ops = step_ops(config);
  TrainedModel model = trained_model(config, ops, {});
  add_model_units(config, ops, choice, model);
  return model;
}

std::string choice_error(const std::string& preset, const std::string& text) {
  return test::error_of([&] { (void)model_with(preset, UnitChoice{UnitRule::Named, text}); });
}

/// A job of GPT-2 with few layers under fsdp2; the test sets keys.
struct Fsdp2Job {
  explicit Fsdp2Job(int layers = 4, int ranks = 8) {
    config.layers = layers;
    job_ranks = ranks;
    for (const OwnKey& key : fsdp2_keys()) {
      own.set(key.name, key.fallback);
    }
  }

  [[nodiscard]] ParallelJob job() const {
    return {config, ddp, own, no_buffers, job_ranks, 10, 2, false};
  }
  [[nodiscard]] std::vector<ShardUnit> units() const {
    const StepOps ops = step_ops(config);
    TrainedModel model = trained_model(config, ops, {});
    add_model_units(config, ops, rule_of(own), model);
    return units_of(job(), model);
  }
  /// Gathers, frees and reductions of a step, "gather 1 free 1", in host order.
  [[nodiscard]] std::string events(bool backward) const {
    const std::vector<ShardUnit> all = units();
    ShardSequence sequence(all, options_of(job()).mesh);
    sequence.begin_forward();
    sequence.enter(0);
    for (int unit = 1; unit < static_cast<int>(all.size()); ++unit) {
      sequence.enter(unit);
      sequence.leave(unit);
    }
    sequence.leave(0);
    if (backward) {
      sequence.clear_events();
      sequence.backward();
    }
    const std::map<ShardAct, std::string> names = {{ShardAct::Unshard, "gather"},
                                                   {ShardAct::Reshard, "free"},
                                                   {ShardAct::ReduceScatter, "reduce"}};
    std::vector<std::string> texts;
    for (const ShardEvent& event : sequence.events()) {
      if (const auto name = names.find(event.act); name != names.end()) {
        texts.push_back(fmt::format("{} {}", name->second, event.unit));
      }
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  TransformerConfig config = model_preset("gpt2-small");
  DdpOptions ddp;
  OwnValues own;
  std::vector<std::int64_t> no_buffers;
  int job_ranks = 8;
};

TEST_CASE("fsdp2 keys: a text of calls of fully_shard") {
  using Names = std::vector<std::string>;
  CHECK(unit_names("layers.*; norm + head ;tok") ==
        Names{"layers.0", "layers.1", "norm + head", "tok"});
  CHECK(unit_names("layers.?.mlp") == Names{"layers.0.mlp", "layers.1.mlp"});
  CHECK(unit_names("layers.[1-9]") == Names{"layers.1"});
  CHECK(unit_names("layers.* + norm") == Names{"layers.0 + layers.1 + norm"});
  // A star is no dot, and of a list PyTorch takes the outer modules.
  CHECK(unit_names("*") == Names{"tok", "layers", "norm", "head"});
  CHECK(unit_names("layers.0 + layers.0.mlp + tok") == Names{"layers.0 + tok"});
  CHECK(module_names(std::vector<std::string>{"tok.weight", "layers.0.mlp.up.weight", "scale"}) ==
        Names{"tok", "layers", "layers.0", "layers.0.mlp", "layers.0.mlp.up"});
}

TEST_CASE("fsdp2 keys: what is wrong with a text of calls is said") {
  CHECK(
      unit_error("layer.*") ==
      "unknown module 'layer.*'; did you mean 'layers.*'? known: blocks, ends, model, tok, layers, "
      "layers.*, "
      "layers.*.mlp, norm, head");
  // A name without the modules around it, whatever its number.
  CHECK(unit_error("mlp").find("did you mean 'layers.*.mlp'?") != std::string::npos);
  CHECK(unit_error("0.mlp").find("did you mean 'layers.*.mlp'?") != std::string::npos);
  CHECK(unit_error("layers.0; layers.*") ==
        "the parameters of 'layers.0' are in two units, 'layers.0' and 'layers.*'; fully_shard "
        "takes a module once, so name it in one of them");
  CHECK(unit_error("norm + head; tok + head") ==
        "the parameters of 'head' are in two units, 'norm + head' and 'tok + head'; fully_shard "
        "takes a module once, so name it in one of them");
  for (const char* text : {"", " ", "layers.*;", "; tok", "norm + ; tok", "norm ++ head"}) {
    CAPTURE(text);
    CHECK(unit_error(text).starts_with("an empty entry in '"));
  }
}

TEST_CASE("fsdp2 keys: torchtitan's units by name are those of \"ends\"") {
  const TrainedModel named = model_with(
      "llama3-8b",
      UnitChoice{UnitRule::Named, "model.layers.*; model.norm + lm_head; model.embed_tokens"});
  const TrainedModel ends = model_with("llama3-8b", {UnitRule::Ends});
  CHECK(named.forward_unit == ends.forward_unit);
  CHECK(named.backward_unit == ends.backward_unit);
  CHECK(named.units == ends.units);
  CHECK(named.unit_names.at(1) == "model.embed_tokens");
  CHECK(named.unit_names.back() == "model.norm + lm_head");
  CHECK(ends.unit_names.at(2) == "model.layers.0");
  CHECK(ends.unit_names.back() == "head");
  const TrainedModel blocks = model_with("llama3-8b", {UnitRule::Blocks});
  CHECK(model_with("llama3-8b", UnitChoice{UnitRule::Named, "model.layers.*"}).units ==
        blocks.units);
}

TEST_CASE("fsdp2 keys: inner units take their parameters from those around them") {
  const TrainedModel model =
      model_with("gpt2-small", UnitChoice{UnitRule::Named, "transformer.h.*.mlp; transformer.h.*"});
  REQUIRE(model.unit_names.size() == 1 + 2 * 12);
  CHECK(model.unit_names.at(1) == "transformer.h.0");
  CHECK(model.unit_names.at(2) == "transformer.h.0.mlp");
  CHECK(model.unit_parent.at(2) == 1);
  CHECK(model.unit_parent.at(1) == 0);
  CHECK(model.units.at(1).size() == 8);
  CHECK(model.units.at(2).size() == 4);
  const std::vector<ShardUnit> units = shard_units(model);
  CHECK_FALSE(units.at(1).returns_inner_output);  // The sum with its input follows the MLP.
  CHECK(units.at(1).own_parameters_first);
}

TEST_CASE("fsdp2 keys: every unit with parameters computes, however fine the units are") {
  for (const char* preset :
       {"tiny-classifier", "distilbert", "bert-base", "gpt2-small", "llama3-8b", "nanochat-d24"}) {
    CAPTURE(preset);
    const auto tensors = mapped(parameters(model_preset(preset)), &Parameter::name);
    std::set<std::string> modules;
    for (const std::string& tensor : tensors) {
      modules.insert(tensor.substr(0, tensor.rfind('.')));
    }
    const bool tied = model_preset(preset).tied_embeddings;
    modules.erase(tied ? "transformer.wte" : "");
    const TrainedModel model = model_with(
        preset, UnitChoice{UnitRule::Named, fmt::format("{}", fmt::join(modules, "; "))});
    CHECK(model.units.size() == modules.size() + 1);
    for (std::size_t unit = 1; unit < model.units.size(); ++unit) {
      CAPTURE(model.unit_names[unit]);
      CHECK(std::ranges::count(model.forward_unit, static_cast<int>(unit)) > 0);
      CHECK(std::ranges::count(model.backward_unit, static_cast<int>(unit)) > 0);
      CHECK_FALSE(model.units[unit].empty());
    }
  }
}

TEST_CASE("fsdp2 keys: a shared embedding and head are in one unit") {
  CHECK(choice_error("gpt2-small", "transformer.h.*; transformer.wte") ==
        "the embedding and the head share one weight, which would be in two units, "
        "'transformer.wte' and 'the root'; name both in one entry, as \"transformer.wte + "
        "lm_head\", or neither");
  CHECK(choice_error("gpt2-small", "lm_head").starts_with("the embedding and the head share"));
  const TrainedModel model = model_with(
      "gpt2-small",
      UnitChoice{UnitRule::Named, "transformer.h.*; transformer.wte + transformer.ln_f + lm_head"});
  CHECK(model.unit_names.at(1) == "transformer.wte + transformer.ln_f + lm_head");
  CHECK(model.units.at(1).size() == 3);
  CHECK(model.forward_unit.front() == 1);
  CHECK(model.forward_unit.back() == 1);
}

TEST_CASE("fsdp2 keys: units of a model that is known by its tensors") {
  TransformerConfig recorded;
  recorded.family = ModelFamily::Blocks;
  for (const char* name :
       {"emb.weight", "h.0.a.weight", "h.0.b.1.bias", "h.1.a.weight", "norm.bias", "scale"}) {
    recorded.tensors.push_back({name, {4, 4}, 1, 1});
  }
  recorded.layers = 6;
  recorded.hidden = recorded.heads = recorded.kv_heads = recorded.ffn = recorded.vocab = 1;
  recorded.max_length = 1024;
  const StepOps ops = step_ops(recorded);
  TrainedModel model = trained_model(recorded, ops, {});
  add_model_units(recorded, ops, UnitChoice{UnitRule::Named, "h.*; emb + norm; h.0.b.*"}, model);
  CHECK(model.unit_names ==
        std::vector<std::string>{"root", "emb + norm", "h.0", "h.0.b.1", "h.1"});
  CHECK(model.units == std::vector<std::vector<int>>{{5}, {0, 4}, {1}, {2}, {3}});
  CHECK(model.forward_unit == std::vector<int>{1, 2, 3, 4, 1, 0});
  CHECK(model.backward_unit == std::vector<int>{0, 1, 4, 3, 2, 1});
  CHECK(model.unit_parent == std::vector<int>{0, 0, 0, 2, 0});
  CHECK(last_forward_ops(model) == std::vector<int>{-1, 4, 2, 2, 3});
}

TEST_CASE("fsdp2 keys: units that stay gathered, by name") {
  Fsdp2Job job;
  job.own.set("units", std::string("transformer.h.*; transformer.wpe"));
  job.own.set("kept_units", std::string("transformer.h.3"));
  const auto frees = [&] { return mapped(job.units(), &ShardUnit::reshard_after_forward); };
  CHECK(frees() == std::vector<bool>{false, true, true, true, true, false});
  job.own.set("reshard_after_forward", std::string("true"));
  job.own.set("kept_units", std::string("root; transformer.wpe"));
  CHECK(frees() == std::vector<bool>{false, false, true, true, true, true});
  const std::vector<std::string> names = {"root", "layers.0", "layers.1", "norm + head"};
  using Kept = std::vector<bool>;
  CHECK(kept_units("", names) == Kept{false, false, false, false});
  CHECK(kept_units("layers.*", names) == Kept{false, true, true, false});
  CHECK(kept_units("head + norm", names) == Kept{false, false, false, true});
  CHECK(kept_units("head", names) == Kept{false, false, false, true});
  CHECK(test::error_of([&] { (void)kept_units("heads", names); }) ==
        "unknown unit 'heads'; known: root, layers.*, norm + head");
}

TEST_CASE("fsdp2 keys: an integer is passed to every call, as true is") {
  Fsdp2Job job;
  const auto reshard = [&](const std::string& text) {
    job.own.set("reshard_after_forward", text);
    const Reshard value = reshard_of(job.job());
    return std::tuple(value.root, value.units, value.slice_ranks);
  };
  CHECK(reshard("default") == std::tuple(false, true, 0));
  CHECK(reshard("true") == std::tuple(true, true, 0));
  CHECK(reshard("false") == std::tuple(false, false, 0));
  CHECK(reshard("2") == std::tuple(true, true, 2));
  CHECK(reshard("8") == reshard("true"));
  CHECK(reshard("1") == reshard("false"));
  job.own.set("replicas", std::int64_t{2});
  CHECK(reshard("4") == reshard("true"));
  // Before PyTorch 2.8 the root was kept, whatever was asked.
  job.own.set("torch", std::string("2.7"));
  CHECK(reshard("true") == std::tuple(false, true, 0));
  CHECK(reshard("2") == std::tuple(false, true, 2));
}

TEST_CASE("fsdp2 keys: explicit prefetches have PyTorch's order") {
  Fsdp2Job job;
  CHECK(job.events(false) ==
        "gather 0, gather 1, free 1, gather 2, free 2, gather 3, free 3, gather 4, free 4");
  job.own.set("forward_prefetch", std::int64_t{2});
  CHECK(job.events(false) ==
        "gather 0, gather 1, gather 2, gather 3, free 1, gather 4, free 2, free 3, free 4");
  const std::string by_itself =
      "gather 4, gather 3, free 4, reduce 4, gather 2, free 3, reduce 3, gather 1, free 2, "
      "reduce 2, free 1, reduce 1, free 0, reduce 0";
  CHECK(job.events(true) == by_itself);
  job.own.set("backward_prefetch", std::int64_t{1});
  CHECK(job.events(true) == by_itself);
  job.own.set("backward_prefetch", std::int64_t{2});
  CHECK(job.events(true) ==
        "gather 4, gather 3, gather 2, free 4, reduce 4, gather 1, free 3, reduce 3, free 2, "
        "reduce 2, free 1, reduce 1, free 0, reduce 0");
}

TEST_CASE("fsdp2 keys: the type of the reduction goes by PyTorch's version") {
  Fsdp2Job job;
  job.own.set("param_dtype", std::string("bf16"));
  const auto type = [&](const char* torch) {
    job.own.set("torch", std::string(torch));
    return reduced_buffer(job.units().at(1), 8).dtype;
  };
  CHECK(type("2.15") == Dtype::F32);
  CHECK(type("2.14") == Dtype::Bf16);
  job.own.set("reduce_dtype", std::string("f32"));
  CHECK(type("2.14") == Dtype::F32);
}

TEST_CASE("fsdp2 keys: one shard rank ran its collectives before PyTorch 2.8") {
  Fsdp2Job job(2, 1);
  CHECK(job.events(true).find("reduce") == std::string::npos);
  job.own.set("torch", std::string("2.7"));
  CHECK(job.events(true).ends_with("reduce 1, free 0, reduce 0"));
  CHECK(options_of(job.job()).mesh.single_gathers);
}

}  // namespace
}  // namespace stepsim
