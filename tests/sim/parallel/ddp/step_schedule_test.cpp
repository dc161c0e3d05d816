// Which programs the recurrence plays, and that it plays what they hold.
#include "sim/parallel/step_schedule.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/model_presets.h"
#include "tests/oracles/reducer.h"
#include "tests/sim/parallel/ddp/ddp_fixture.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// A case whose labels say what work is, and whose times are zero.
DdpCase numbered() {
  DdpCase work({400, 4000, 4000, 400});
  work.compute(Duration(0), Duration(0));
  work.reduce = [](double) { return Duration(0); };
  return work;
}

/// The schedule of rank 0. Memory-bound kernels of any size have no number, as in a real run.
std::optional<StepSchedule> schedule(const DdpCase& work) {
  StepProgram program = work.play().program;
  for (Instruction& in : program.program.ranks.front()) {
    in.label = in.label == kMemory ? -1 : in.label;
  }
  return schedule_of(program, work.host);
}

}  // namespace

TEST_CASE("the schedule of a plain step is the program's: copies, launches in order, copy-outs") {
  const auto plain = schedule(numbered());
  REQUIRE(plain);
  using Work = std::vector<std::int32_t>;
  CHECK(plain->forward == Work{kForwardOp});
  // Gradients become ready from the last parameter to the first; the first bucket closes at 1000
  // bytes, which the second gradient passes, and the second one at 10000.
  CHECK(plain->collectives == std::vector<CollectiveUse>{{CollectiveKind::AllReduce, 4400, 0},
                                                         {CollectiveKind::AllReduce, 4400, 1}});
  CHECK(plain->backward == std::vector<Work>{{kBackwardOp, kCopyIn, kBackwardOp, kCopyIn},
                                             {kBackwardOp, kCopyIn, kBackwardOp, kCopyIn},
                                             {}});
  CHECK(plain->copy_out == std::vector<Work>{{kCopyOut, kCopyOut}, {kCopyOut, kCopyOut}});
  CHECK(plain->optimizer == Work{kOptimizer});
  CHECK(plain->kernels == 14);
}

TEST_CASE("a host that computes, views and zeroed gradients are plain as well") {
  DdpCase work = numbered();
  work.host.is_device = true;
  CHECK(schedule(work));
  work.options.gradient_as_bucket_view = true;
  CHECK(schedule(work)->copy_out[0].empty());
  work.options.set_to_none = false;
  CHECK(schedule(work)->forward == std::vector<std::int32_t>{kZeroing, kForwardOp});
}

TEST_CASE("a program that holds anything else is no plain step") {
  using Change = std::function<void(DdpCase&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"enqueue", [](DdpCase& work) { work.prices.enqueue = Duration(1); }},
      {"hook time", [](DdpCase& work) { work.prices.hook = Duration(1); }},
      {"sync", [](DdpCase& work) { work.host.syncs_each_step = true; }},
      {"gloo", [](DdpCase& work) { work.host.waits_for_collectives = true; }},
      {"all-reduce hook", [](DdpCase& work) { work.options.hook = CommunicationHook::AllReduce; }},
      {"fp16 hook", [](DdpCase& work) { work.options.hook = CommunicationHook::Fp16; }},
      {"ZeRO 1", [](DdpCase& work) { work.options.zero_stage = 1; }},
      {"ZeRO 2", [](DdpCase& work) { work.options.zero_stage = 2; }},
      {"ZeRO 3",
       [](DdpCase& work) {
         work.options.zero_stage = 3;
         work.model.units = {{0, 1, 2, 3}};
       }},
      {"batched copy", [](DdpCase& work) { work.options.batched_grad_copy = true; }},
      {"optimizer in the backward",
       [](DdpCase& work) { work.options.optimizer_in_backward = true; }},
      {"mixed precision", [](DdpCase& work) { work.options.mixed_param_dtype = Dtype::F16; }},
      {"rebuild", [](DdpCase& work) { work.step.iterations[0].rebuilds = true; }},
      {"bitmap", [](DdpCase& work) { work.step.iterations[0].sends_bitmap = true; }},
      {"no launches", [](DdpCase& work) { work.step.iterations[0].synchronises = false; }},
      {"join", [](DdpCase& work) { work.step.joining = true; }},
      {"buffers",
       [](DdpCase& work) {
         work.step.iterations[0].broadcasts_buffers = true;
         work.model.buffer_bytes = {8};
       }},
      {"sparse gradients", [](DdpCase& work) { work.model.parameters[1].sparse = true; }},
      {"two micro-batches",
       [](DdpCase& work) {
         work.step.iterations.push_back(work.step.iterations[0]);
         work.compute(Duration(0), Duration(0));
       }},
      {"loader workers", [](DdpCase& work) { work.batch(0).ready = time_at(1); }},
      {"loading time", [](DdpCase& work) { work.batch(0).collate = Duration(1); }},
      {"copy to the device", [](DdpCase& work) { work.batch(0).copy_input.work = Duration(1); }},
  };
  for (const auto& [name, change] : changes) {
    const auto& at_name = name;  // Clang 14 captures no structured bindings.
    CAPTURE(at_name);
    DdpCase work = numbered();
    REQUIRE(schedule(work));
    change(work);
    CHECK_FALSE(schedule(work));
  }
}

TEST_CASE("buckets launch after the op that the reducer's definition says") {
  const TransformerConfig config = model_preset("gpt2-small");
  const TrainedModel model = trained_model(config, step_ops(config), {});
  std::vector<int> ready;
  for (const std::vector<int>& completed : model.completes) {
    ready.insert(ready.end(), completed.begin(), completed.end());
  }
  BucketLists buckets;
  buckets.initial = buckets.rebuilt = rebuilt_buckets(model.parameters, ready, 1 << 20, 25 << 20);
  constexpr std::int32_t kCopies = 1'000'000;
  StepPrices prices;
  prices.transfer = [](CollectiveKind, double, const RankGroup&) { return Duration(0); };
  StepWork step;
  step.iterations.resize(1);
  step.ranks.resize(1);
  MicroBatchWork& batch = step.ranks[0].micro_batches.emplace_back();
  batch.backward.resize(model.completes.size());
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    batch.backward[op].label = static_cast<std::int32_t>(op);
  }
  prices.elements = [](OpClass, std::int64_t, double) {
    Kernel kernel;
    kernel.label = kCopies;  // No op of the model.
    return kernel;
  };
  const StepHost host;
  const auto schedule =
      schedule_of(ddp_program(model, buckets, DdpOptions{}, host, prices, step), host);
  REQUIRE(schedule);
  std::vector<std::vector<int>> lists;
  for (const Bucket& bucket : buckets.rebuilt) {
    lists.push_back(bucket.parameters);
  }
  const auto launches = launch_after(step_ops(config).backward, lists);
  REQUIRE(schedule->backward.size() == launches.size() + 1);
  std::int32_t last = -1;
  for (std::size_t b = 0; b < launches.size(); ++b) {
    for (const std::int32_t label : schedule->backward[b]) {
      last = label < kCopies ? label : last;
    }
    CHECK(last == static_cast<std::int32_t>(launches[b]));
  }
}
