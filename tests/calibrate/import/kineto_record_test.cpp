// Do the shapes and times of a trace become the steps of a run record?
#include "calibrate/import/kineto/kineto_record.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/recorded/recorded_plan.h"
#include "tests/approx.h"
#include "tests/calibrate/import/kineto_text.h"

namespace stepsim {
namespace {

using stepsim::test::Approx;
using test::row;

using HostRows = std::vector<std::string>;

/// An op of the host that takes tensors of these sizes.
std::string shaped(const std::string& name, int start, const std::string& dims, int thread = 1) {
  return row("cpu_op",
             name,
             std::to_string(start),
             "5",
             fmt::format(R"("Input Dims":{},"Input type":["float"])", dims),
             thread);
}

std::string annotation(const std::string& name, int start, int length) {
  return row("user_annotation", name, std::to_string(start), std::to_string(length));
}

std::string node(int start, int length) {
  return row("cpu_op",
             "autograd::engine::evaluate_function: AddmmBackward0",
             std::to_string(start),
             std::to_string(length));
}

std::string gloo(int start, int length, int elements) {
  return row("user_annotation",
             "gloo:all_reduce",
             std::to_string(start),
             std::to_string(length),
             fmt::format(R"("Input Dims":[[{}]],"Input type":["float"])", elements),
             9);
}

/// A step of a CPU of 1000 us: 100 of data, 300 of forward, 400 of backward, 50 of waiting.
HostRows cpu_step(int number, const HostRows& forward, int elements = 20) {
  const int zero = 1000 * number;
  HostRows rows = {annotation(fmt::format("ProfilerStep#{}", number), zero, 1000),
                   annotation("DistributedDataParallel.forward", zero + 100, 200),
                   node(zero + 400, 300),
                   shaped("torch::autograd::AccumulateGrad", zero + 410, "[[4]]"),
                   shaped("torch::autograd::AccumulateGrad", zero + 420, "[[]]"),
                   node(zero + 700, 100),
                   shaped("torch::autograd::AccumulateGrad", zero + 710, "[[4,4]]"),
                   gloo(zero + 790, 60, elements)};
  rows.insert(rows.end(), forward.begin(), forward.end());
  // A gradient that is not there has a row without a type.
  rows[4].replace(rows[4].find(R"(["float"])"), 9, R"([""])");
  return rows;
}

HostRows joined(const std::vector<HostRows>& parts) {
  HostRows all;
  for (const HostRows& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

KinetoTrace trace_of(const HostRows& rows, int rank = 0, int ranks = 1) {
  return read_kineto(test::write_file(
      fmt::format("record{}.json", rank),
      test::trace_text(
          rows,
          fmt::format(R"("distributedInfo":{{"rank":{},"world_size":{},"backend":"gloo"}},)",
                      rank,
                      ranks))));
}

KinetoRecord record_of(const std::vector<KinetoTrace>& traces, std::optional<bool> first = {}) {
  return kineto_record(traces, match_collectives(traces), first, "box");
}

/// The batches of a CPU's step number 1 with these ops in its forward pass, or the problem.
std::string batches_of(const HostRows& forward, std::optional<bool> first = {}) {
  const KinetoRecord made = record_of({trace_of(cpu_step(1, forward))}, first);
  if (!made.record) {
    return made.problem;
  }
  const StepRecord& step = made.record->steps.at(0);
  return fmt::format("{} x {}", step.samples, step.max_length);
}

std::string all_of(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, "\n"));
}

}  // namespace

TEST_CASE("a CPU's step becomes a row with the times that a recorder would take") {
  std::vector<KinetoTrace> traces;
  for (const int rank : {0, 1}) {
    traces.push_back(trace_of(
        joined({cpu_step(4, {shaped("aten::embedding", 4110, "[[50,8],[3,7],[]]")}),
                cpu_step(5,
                         {shaped("aten::embedding",
                                 5110,
                                 rank == 0 ? "[[50,8],[2,9],[]]" : "[[50,8],[6,2],[]]")})}),
        rank,
        2));
  }
  const KinetoRecord made = record_of(traces);
  CHECK(made.problem.empty());
  REQUIRE(made.record);
  const RunRecord& record = *made.record;
  CHECK(record.world_size == 2);
  CHECK(record.device == "box");
  REQUIRE(record.steps.size() == 4);
  const StepRecord& last = record.steps[3];
  CHECK(last.step == 1);
  CHECK(last.rank == 1);
  CHECK(last.samples == 6);
  CHECK(last.padded_tokens == 12);
  CHECK(last.lengths == std::vector<std::int64_t>(6, 2));
  CHECK(last.start_ms == Approx(1));
  CHECK(last.data_ms == Approx(0.1));
  CHECK(last.forward_ms == Approx(0.3));
  CHECK(last.backward_ms == Approx(0.4));
  CHECK(last.wait_ms == Approx(0.05));
  CHECK(last.optimizer_ms == Approx(0.15));
  CHECK(last.step_ms == Approx(1));
  REQUIRE(last.buckets.size() == 1);
  CHECK(last.buckets[0].bytes == 80);
  CHECK(last.buckets[0].launch_ms == Approx(0.79));
  CHECK(last.buckets[0].end_ms == Approx(0.85));
  // The last gradient is that of the tensor which was registered first.
  const Plan plan = recorded_plan(record, "trace");
  REQUIRE(plan.model.tensors.size() == 2);
  CHECK(plan.model.tensors[0].shape == std::vector<std::int64_t>{4, 4});
  CHECK(plan.buckets == std::vector<std::vector<int>>{{1, 0}});
  CHECK(all_of(made.notes).find("aten::embedding's indices, [samples, length]") !=
        std::string::npos);
  CHECK(all_of(made.notes).find("--dims length,samples") != std::string::npos);
  CHECK(all_of(made.notes).find("3 different batches, samples x length: 2 x 9, 3 x 7, 6 x 2") !=
        std::string::npos);
}

TEST_CASE("the first op that takes a batch tells its shape") {
  const auto indices = [](const std::string& dims, int start = 1110) {
    return shaped("aten::embedding", start, "[[50,8]," + dims + ",[]]");
  };
  CHECK(batches_of({indices("[3,7]")}) == "3 x 7");
  CHECK(batches_of({indices("[3,7]"), indices("[5,9]", 1150)}) == "3 x 7");  // A decoder's target.
  CHECK(batches_of({indices("[7]"), indices("[3,7]", 1150)}) == "3 x 7");  // Positions come first.
  CHECK(batches_of({indices("[1,7]"), indices("[3,7]", 1150)}) == "3 x 7");
  CHECK(batches_of({indices("[1,7]"), indices("[1,7]", 1150)}) == "1 x 7");
  CHECK(batches_of({shaped("aten::conv2d", 1110, "[[2,3,224,224],[8,3,7,7]]")}) == "2 x 196");
  CHECK(batches_of({shaped("aten::conv2d", 1110, "[[2,3,8,8],[8,3,7,7]]")}) == "2 x 1");
  CHECK(batches_of({shaped("aten::conv1d", 1110, "[[2,80,300],[8,80,3]]")}) == "2 x 300");
  CHECK(batches_of({shaped("aten::linear", 1110, "[[16,13],[4,13]]")}) == "16 x 1");
  CHECK(batches_of({shaped("aten::linear", 1110, "[[3,7,13],[4,13]]")}) == "3 x 7");
  // Before the forward pass, after it began to go back, and on another thread nothing counts.
  CHECK(batches_of({indices("[9,9]", 1050), indices("[3,7]"), indices("[9,9]", 1450)}) == "3 x 7");
  CHECK(batches_of({shaped("aten::embedding", 1105, "[[50,8],[9,9],[]]", 2), indices("[3,7]")}) ==
        "3 x 7");
}

TEST_CASE("attention tells the length from the samples") {
  const std::string indices = shaped("aten::embedding", 1110, "[[50,8],[3,7],[]]");
  const auto product = [](const std::string& dims) { return shaped("aten::bmm", 1200, dims); };
  CHECK(batches_of({indices, product("[[12,7,16],[12,16,7]]")}) == "3 x 7");
  CHECK(batches_of({indices, product("[[28,3,16],[28,16,3]]")}) == "7 x 3");
  CHECK(
      batches_of({indices,
                  shaped("aten::scaled_dot_product_attention", 1200, "[[7,4,3,16],[7,4,3,16]]")}) ==
      "7 x 3");
  CHECK(batches_of({indices, shaped("aten::baddbmm", 1200, "[[28,3,3],[28,3,16],[28,16,3]]")}) ==
        "7 x 3");
  CHECK(batches_of({indices, product("[[28,3,16],[28,16,3]]")}, false) == "3 x 7");
  CHECK(batches_of({indices}, true) == "7 x 3");
  const std::vector<KinetoTrace> both = {
      trace_of(joined({cpu_step(1, {indices, product("[[12,7,16],[12,16,7]]")}),
                       cpu_step(2,
                                {shaped("aten::embedding", 2110, "[[50,8],[3,7],[]]"),
                                 shaped("aten::bmm", 2200, "[[28,3,16],[28,16,3]]")})}))};
  CHECK(record_of(both).problem.find("say it with --dims") != std::string::npos);
  CHECK(record_of(both, true).record);
}

TEST_CASE("what cannot be told is said") {
  CHECK(batches_of({}).find("no op of the forward pass takes a batch") != std::string::npos);
  CHECK(batches_of({shaped("aten::embedding", 1110, "[[50,8],[31],[]]")})
            .find("a tensor of [31], which does not tell samples from length (a packed batch)") !=
        std::string::npos);
  CHECK(batches_of({shaped("aten::lstm", 1110, "[[9,3,7]]")}).find("tensor of [9, 3, 7], which") !=
        std::string::npos);
  for (const char* dims : {"[[50,8],[0,7],[]]", "[[50,8],[900000000000,1],[]]"}) {
    CHECK(batches_of({shaped("aten::embedding", 1110, dims)}).find("are no batch") !=
          std::string::npos);
  }
  const std::string indices = shaped("aten::embedding", 1110, "[[50,8],[3,7],[]]");
  const auto problem = [](const HostRows& rows) { return record_of({trace_of(rows)}).problem; };
  CHECK(problem(cpu_step(1, {indices}, 19)) ==
        "step 1: gradients have 80 bytes and its buckets 76: is a communication hook or several "
        "reductions a step at work?");
  CHECK(problem({annotation("ProfilerStep#1", 0, 100)}) == "step 1: it has no backward pass");
  CHECK(problem({annotation("x", 0, 100)}) ==
        "there is no ProfilerStep: give torch.profiler.profile a schedule, and call "
        "profiler.step() once a step");
  CHECK(problem(joined({cpu_step(1, {indices}), {node(1050, 10)}}))
            .find("backward pass begins before its forward pass") != std::string::npos);
  CHECK(problem(joined({cpu_step(1, {indices}),
                        {annotation("DistributedDataParallel.forward", 1850, 50)}}))
            .find("2 of its 2 forward passes has no backward pass") != std::string::npos);
  // Without record_shapes.
  HostRows plain = cpu_step(1, {row("cpu_op", "aten::embedding", "1110", "5")});
  std::erase_if(plain, [](const std::string& one) { return one.find("Accumulate") != one.npos; });
  CHECK(problem(plain).find("record_shapes=True") != std::string::npos);
  const KinetoRecord of_two = record_of({trace_of(cpu_step(1, {indices}), 0, 2)});
  REQUIRE(of_two.record);
  CHECK(of_two.record->world_size == 2);
  CHECK(of_two.record->steps.size() == 1);
  CHECK(all_of(of_two.warnings).find("only rank 0 of 2 has a trace here") != std::string::npos);
  const std::vector<KinetoTrace> differ = {trace_of(cpu_step(1, {indices}, 20), 0, 2),
                                           trace_of(cpu_step(1, {indices}, 19), 1, 2)};
  CHECK(record_of(differ).problem == "the ranks do not have the same buckets");
  const std::string twice = annotation("ProfilerStep#1", 2000, 10);
  CHECK(problem(joined({cpu_step(1, {indices}), {twice}})) ==
        "step 1: the trace of rank 0 does not hold it once");
  KinetoTrace lost = trace_of(cpu_step(1, {indices}), 3, 1);
  CHECK(record_of({lost}).problem ==
        "rank 3 of 1 ranks: the traces do not say how many there were");
  HostRows mixed = cpu_step(1, {indices});
  mixed[3].replace(mixed[3].find(R"(["float"])"), 9, R"(["double"])");
  CHECK(problem(mixed) ==
        "gradients are of float64 and float32; only models of one type are known");
}

TEST_CASE("steps with other buckets or without passes are left out") {
  const auto step = [](int number, int elements) {
    return cpu_step(
        number, {shaped("aten::embedding", 1000 * number + 110, "[[50,8],[3,7],[]]")}, elements);
  };
  HostRows rows = joined({step(0, 10), step(1, 20), step(2, 20)});
  rows.push_back(annotation("ProfilerStep#3", 3000, 1000));
  const KinetoRecord made = record_of({trace_of(rows)});
  REQUIRE(made.record);
  CHECK(made.record->steps.size() == 2);
  const std::string warnings = all_of(made.warnings);
  CHECK(warnings.find("step 0: other buckets, or in another order, than in most steps; left out") !=
        std::string::npos);
  CHECK(warnings.find("step 3: it has no backward pass; left out") != std::string::npos);
  CHECK(warnings.find("all batches of the traces are alike (3 x 7, samples x length)") !=
        std::string::npos);
}

TEST_CASE("the buckets of most steps count, also where the last step has others") {
  const auto step = [](int number, int elements) {
    return cpu_step(
        number, {shaped("aten::embedding", 1000 * number + 110, "[[50,8],[3,7],[]]")}, elements);
  };
  const KinetoRecord made = record_of({trace_of(joined({step(1, 20), step(2, 20), step(3, 10)}))});
  REQUIRE(made.record);
  CHECK(made.record->steps.size() == 2);
  CHECK(all_of(made.warnings).find("step 3: other buckets") != std::string::npos);
}

TEST_CASE("micro-batches are told apart") {
  HostRows rows = cpu_step(1, {shaped("aten::embedding", 1110, "[[50,8],[3,7],[]]")});
  // A second forward from 1860 on and a backward, in which nothing is reduced, from 1900 to 1950.
  const HostRows second = {annotation("DistributedDataParallel.forward", 1860, 10),
                           shaped("aten::embedding", 1865, "[[50,8],[2,4],[]]"),
                           node(1900, 50),
                           shaped("torch::autograd::AccumulateGrad", 1905, "[[20]]")};
  rows.insert(rows.end(), second.begin(), second.end());
  const KinetoRecord made = record_of({trace_of(rows)});
  REQUIRE(made.record);
  const StepRecord& step = made.record->steps.at(0);
  CHECK(step.micro_batches == 2);
  CHECK(step.micro_batch_samples == std::vector<std::int64_t>{3, 2});
  CHECK(step.micro_batch_max_lengths == std::vector<std::int64_t>{7, 4});
  CHECK(step.padded_tokens == 29);
  CHECK(step.forward_ms == Approx(0.4));  // What is between the micro-batches, too.
  CHECK(step.backward_ms == Approx(0.45));
}

TEST_CASE("a GPU's step becomes the time in which it worked for each pass") {
  const auto rows = [](int factor) {
    HostRows all = {annotation("ProfilerStep#1", 0, 1000),
                    annotation("DistributedDataParallel.forward", 100, 100),
                    shaped("aten::embedding", 110, "[[50,8],[3,7],[]]"),
                    node(300, 200),
                    shaped("torch::autograd::AccumulateGrad", 410, "[[25]]"),
                    row("cuda_runtime", "cudaLaunchKernel", "420", "2", R"("correlation":77)", 2),
                    test::kernel("ncclDevKernel_AllReduce_Sum_f32",
                                 77,
                                 std::to_string(600 * factor),
                                 std::to_string(1250 - 600 * factor),
                                 R"(,"In msg nelems":25,"dtype":"Float")",
                                 9)};
    // Launches before the forward, in it, after it (the loss), in the backward before and after the
    // bucket, and in the optimizer.
    int correlation = 0;
    for (const int time : {50, 150, 250, 350, 450, 600}) {
      all.push_back(test::launch(++correlation, std::to_string(time), time == 350 ? 2 : 1));
      all.push_back(test::kernel("gemm",
                                 correlation,
                                 std::to_string(time + 200 * correlation),
                                 std::to_string(10 * factor * correlation)));
    }
    return all;
  };
  const std::vector<KinetoTrace> traces = {trace_of(rows(1), 0, 2), trace_of(rows(2), 1, 2)};
  const KinetoRecord made = record_of(traces);
  CHECK(made.problem.empty());
  REQUIRE(made.record);
  REQUIRE(made.record->steps.size() == 2);
  const StepRecord& slow = made.record->steps[1];
  CHECK(slow.data_ms == 0);
  CHECK(slow.forward_ms == Approx(0.12));  // 20 + 40 + 60 us.
  CHECK(slow.backward_ms == Approx(0.18));
  CHECK(slow.optimizer_ms == Approx(0.12));
  REQUIRE(slow.buckets.size() == 1);
  CHECK(slow.buckets[0].launch_ms == Approx(0.2));
  CHECK(made.record->steps[0].buckets[0].launch_ms == Approx(0.1));
  for (const StepRecord& step : made.record->steps) {
    CHECK(step.buckets[0].end_ms == Approx(0.25));  // The transfer: 1250 - 1200 us.
  }
  CHECK(all_of(made.warnings).find("the GPU stood still in 78 %") != std::string::npos);
}

TEST_CASE("gradients of a real trace are those that its buckets reduce") {
  const auto file =
      test::data_file("traces/dlrm_8xV100/kineto/worker0_step_12.1694128201545.pt.trace.json.gz");
  if (!file) {
    return;
  }
  KinetoTrace trace = read_kineto(*file);
  trace.header.world_size = 1;  // The others are not there.
  for (KinetoCollective& one : trace.collectives) {
    one.group_size = 1;
  }
  const KinetoRecord made = record_of({trace});
  CHECK(made.problem.empty());
  REQUIRE(made.record);
  REQUIRE(made.record->steps.size() == 1);
  const StepRecord& step = made.record->steps[0];
  CHECK(step.samples == 16);
  CHECK(step.max_length == 1);
  CHECK(step.buckets.size() == 3);
  CHECK(step.forward_ms > 0.1);
  const Plan plan = recorded_plan(*made.record, *file);
  CHECK(plan.model.tensors.size() == 15);
  std::int64_t elements = 0;
  for (const TensorBlock& tensor : plan.model.tensors) {
    elements += elements_of(tensor.shape);
  }
  CHECK(elements * 4 == 1576964 + 448 + 907840);
}

}  // namespace stepsim
