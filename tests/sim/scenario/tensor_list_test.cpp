// Models given as a list of tensors with their share of measured times.
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/transformer_json.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

const std::string kList =
    "name,shape,forward,backward\n"
    "conv.weight,512x512,3,5\n"
    "norm.weight,512,0,0\n"
    "norm.bias,512,1,2\n"
    "fc.weight,1024x512,4,1\n";

const std::string kTimes = "[times]\nforward = \"8 ms\"\nbackward = \"16 ms\"\n";

/// A scenario of two ranks and free all-reduces in a fresh folder, beside the list `tensors.csv`.
Scenario listed(const std::string& list,
                const std::string& times = kTimes,
                const std::string& model = "kind = \"blocks\"\ntensors = \"tensors.csv\"\n") {
  const std::string folder = test::fresh_folder();
  std::ofstream(folder + "/tensors.csv") << list;
  const std::string text =
      "[scenario]\nname = \"list\"\nsteps = 3\nwarmup_steps = 2\n"
      "[cluster]\nranks = 2\n"
      "all_reduce = { sizes = [\"1 KiB\", \"1 GiB\"], times = [\"1 us\", \"1 us\"] }\n"
      "[model]\n" +
      model + times +
      "[ddp]\nbucket_cap = \"1 MiB\"\ngradient_as_bucket_view = true\n"
      "[data]\nsamples = 64\nlengths = { constant = 1 }\n"
      "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 1\n";
  return parse_scenario(text, folder + "/s.toml");
}

std::string tensor_list_error(const std::string& list, const std::string& times = kTimes) {
  return test::error_of([&] { (void)listed(list, times); });
}

bool says(const std::string& message, const std::string& part) {
  INFO(message);
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "a list of tensors: each has its share of forward and backward, the last is ready first") {
  const Scenario scenario = listed(kList);
  CHECK(parameter_count(scenario.model) == 512 * 512 + 2 * 512 + 1024 * 512);
  CHECK(ready_order(scenario.model) == std::vector<int>{3, 2, 1, 0});
  const Prediction run = predict(scenario,
                                 scenario.policies.front(),
                                 scenario_profile(scenario),
                                 {.noise_runs = 0, .keep_timelines = true});
  const StepTimeline& step = run.timelines.back();
  const RankTimeline& rank = step.ranks.front();
  CHECK(to_ms(rank.forward_end - rank.data_end) == Approx(8));
  // Buckets of 2 MiB (fc) and 1 MiB and a little (the rest): ready after 1 and all 8 shares of 16
  // ms.
  REQUIRE(rank.ready_at.size() == 2);
  CHECK(to_ms(rank.ready_at[0] - rank.forward_end) == Approx(2));
  CHECK(to_ms(rank.ready_at[1] - rank.forward_end) == Approx(16));
}

TEST_CASE("a list of tensors survives JSON, where plans keep it") {
  const TransformerConfig model = listed(kList).model;
  REQUIRE(model.tensors.size() == 4);
  CHECK(model.tensors[0].shape == std::vector<std::int64_t>{512, 512});
  const Json json = to_json(model);
  JsonReader reader(json, "m", 1, "model");
  CHECK(transformer_from_json(reader) == model);
}

TEST_CASE("a list of tensors: what is wrong is shown at its place") {
  CHECK(says(tensor_list_error("name,shape,forward\nw,4,1\n"), "tensors.csv:1"));
  CHECK(says(tensor_list_error("name,shape,forward\nw,4,1\n"), "column 'backward' is missing"));
  for (const char* shape : {"", "4x", "x4", "4y4", "0", "4x-1"}) {
    const std::string line = std::string("w,") + shape + ",1,1";
    CHECK(says(tensor_list_error("name,shape,forward,backward\n" + line + "\n"),
               "tensors.csv:2:3: error: shape: expected sizes as 512x256x3x3\n" + line));
  }
  CHECK(says(tensor_list_error("name,shape,forward,backward\nw,4,-1,1\n"),
             "forward: must be from 0 to"));
  CHECK(says(tensor_list_error("name,shape,forward,backward\nw,4,1,1\nw,4,1,1\n"),
             "the name 'w' is empty or used twice"));
  CHECK(says(tensor_list_error("name,shape,forward,backward\nw,4,1,0\n"), "no work at all"));
  CHECK(says(tensor_list_error("name,shape,forward,backward\nw,1048576x1048576x2,1,1\n"),
             "w has a size outside 1..1099511627776"));
  CHECK(says(tensor_list_error(kList, ""), "give [times] as well"));
  CHECK_THROWS_WITH_AS(
      (void)listed(kList, kTimes, "kind = \"blocks\"\ntensors = \"tensors.csv\"\nlayers = 4\n"),
      doctest::Contains("the list in tensors has its own"),
      InputError);
  CHECK_THROWS_WITH_AS(
      (void)listed(kList, kTimes, "preset = \"bert-base\"\ntensors = \"tensors.csv\"\n"),
      doctest::Contains("only for kind = \"blocks\""),
      InputError);
}

TEST_CASE("frozen parameters of a list have no gradient, and gradients have its dtype") {
  const Scenario lora = listed(
      "name,shape,dtype,requires_grad\n"
      "embed.weight,32000x1024,torch.bfloat16,False\n"
      "q.weight,1024x1024,torch.bfloat16,False\n"
      "q.lora_A.weight,8x1024,torch.float32,True\n"
      "q.lora_B.weight,1024x8,torch.float32,True\n"
      "norm.weight,1024,torch.bfloat16,False\n");
  REQUIRE(lora.model.tensors.size() == 2);
  CHECK(parameter_count(lora.model) == 2 * 8 * 1024);
  CHECK(parameters(lora.model)[0].bytes().value() == 4 * 8 * 1024);
  const Scenario half = listed("name,shape,dtype\nw,512x4,torch.bfloat16\nv,512,bfloat16\n");
  CHECK(parameters(half.model)[0].bytes().value() == 2 * 512 * 4);
  // Those without gradients are in memory.
  const PeakMemory trained(lora.model, {});
  constexpr std::int64_t kFrozen = 2 * (32000 * 1024 + 1024 * 1024 + 1024);
  const MemoryUse use = trained.at({1, 1, 1, 1});
  CHECK(use.parameters.value() == kFrozen + 4 * 2 * 8 * 1024);
  CHECK(use.gradients.value() == 4 * 2 * 8 * 1024);
  // The work of a frozen parameter stays where the forward and the backward do it.
  const Scenario frozen = listed(
      "name,shape,forward,backward,requires_grad\n"
      "first,4x4,1,9,False\nsecond,4x4,2,3,True\nthird,4x4,4,5,false\nfourth,4x4,6,7,true\n");
  REQUIRE(frozen.model.tensors.size() == 2);
  CHECK(frozen.model.tensors[0].forward == 1 + 2 + 4);
  CHECK(frozen.model.tensors[0].backward == 3 + 5);
  CHECK(frozen.model.tensors[1].backward == 7);
}

TEST_CASE("gradients of several types have buckets of their own") {
  const Scenario mixed = listed(
      "name,shape,dtype\na,1024x512,float32\nb,1024,bfloat16\nc,1024x512,float32\nd,512,"
      "bfloat16\n");
  CHECK(mixed.model.parameter_dtype == Dtype::F32);
  const auto tensors = bucket_parameters(mixed.model);
  CHECK(tensors[1].dtype == "bf16");
  CHECK(tensors[1].bytes == 2 * 1024);
  const BucketLists lists = bucket_lists(mixed);
  REQUIRE(lists.rebuilt.size() == 3);
  CHECK(lists.rebuilt.back().parameters == std::vector<int>{3, 1});
  CHECK(PeakMemory(mixed.model, {}).at({1, 1, 1, 1}).gradients.value() ==
        4 * 2 * 1024 * 512 + 2 * (1024 + 512));
  const Json json = to_json(mixed.model);
  JsonReader reader(json, "m", 1, "model");
  CHECK(transformer_from_json(reader) == mixed.model);
}

TEST_CASE("a list of tensors: columns that nobody reads, and what is no list") {
  CHECK(says(tensor_list_error("name,shape,forward,Backward\nw,4,1,1\n"),
             "tensors.csv:1:20: error: unknown column 'Backward'; did you mean 'backward'?"));
  CHECK(says(tensor_list_error("name,shape,bwd\nw,4,1\n"), "unknown column 'bwd'; known: name"));
  CHECK(says(tensor_list_error("name,shape,device\nw,4,cuda\n"), "unknown column 'device'"));
  CHECK(says(tensor_list_error("name,shape,dtype\nw,4,int7\n"), "unknown dtype 'int7'"));
  CHECK(says(tensor_list_error("name,shape,requires_grad\nw,4,maybe\n"), "expected True or False"));
  CHECK(says(tensor_list_error("name,shape,requires_grad\nw,4,False\n"),
             "no parameter has a gradient"));
  const std::string safetensors = std::string("\x10\0\0\0\0\0\0\0", 8) + "{\"w\":{}}";
  const std::string torchinfo =
      "==========\nLayer (type:depth-idx)   Output Shape   Param #\n==========\n"
      "├─Linear: 1-1   [2, 50]   16,050\n";
  CHECK(says(tensor_list_error(torchinfo), "is a table of torchinfo"));
  for (const std::string& text : {std::string("{\"hidden_size\": 1024}"), safetensors, torchinfo}) {
    CAPTURE(text);
    CHECK(says(tensor_list_error(text), "for n, p in model.named_parameters(): print(n,"));
  }
  CHECK_THROWS_WITH_AS((void)listed("name,shape,dtype\nw,512x4,bfloat16\n",
                                    kTimes,
                                    "kind = \"blocks\"\ntensors = \"tensors.csv\"\n"
                                    "parameter_dtype = \"f16\"\n"),
                       doctest::Contains("the list in tensors has its own"),
                       InputError);
}
