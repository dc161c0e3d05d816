// Does the GPU's time go to the part of the step that launched it?
#include "calibrate/import/kineto/kineto_parts.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "calibrate/import/kineto/kineto_trace.h"
#include "tests/calibrate/import/kineto_text.h"

namespace stepsim {
namespace {

using test::row;

std::string span(const std::string& name, int start, int length, int thread = 1) {
  return row("user_annotation", name, std::to_string(start), std::to_string(length), "", thread);
}

/// Launches at the given times; each kernel starts 100 us later and takes 10 us, so that those of
/// neighbouring launches overlap.
KinetoStepTime time_of(std::vector<std::string> rows,
                       const std::vector<std::pair<int, int>>& times_and_threads) {
  rows.push_back(span("ProfilerStep#1", 0, 1000));
  int correlation = 0;
  for (const auto& [time, thread] : times_and_threads) {
    rows.push_back(test::launch(++correlation, std::to_string(time), thread));
    rows.push_back(test::kernel("gemm", correlation, std::to_string(time + 100), "10"));
  }
  const auto steps =
      kineto_step_times(read_kineto(test::write_file("parts.json", test::trace_text(rows))));
  REQUIRE(steps.size() == 1);
  return steps[0];
}

std::string ops_text(const KinetoStepTime& time) {
  return fmt::format(
      "{} {} {} {}", time.parts[0].ops, time.parts[1].ops, time.parts[2].ops, time.parts[3].ops);
}

}  // namespace

TEST_CASE("annotations decide, the backward pass's on all threads") {
  const KinetoStepTime time = time_of(
      {span("DistributedDataParallel.forward", 100, 100),
       span("## backward ##", 300, 200),
       // A node of autograd outside of the annotation.
       row("cpu_op", "autograd::engine::evaluate_function: X", "690", "20"),
       span("Optimizer.step#SGD.step", 600, 100),
       // The optimizer inside of the backward pass.
       span("Optimizer.step#SGD.step", 450, 20, 2)},
      {{50, 1}, {150, 1}, {150, 2}, {300, 1}, {400, 2}, {455, 2}, {460, 1}, {650, 1}, {700, 1}});
  CHECK(ops_text(time) == "1 3 2 3");
}

TEST_CASE("without an annotation the nodes of autograd make the backward pass") {
  const auto node = [](int start, int thread) {
    return row("cpu_op",
               "autograd::engine::evaluate_function: AddmmBackward0",
               std::to_string(start),
               "20",
               "",
               thread);
  };
  const KinetoStepTime time = time_of({node(300, 2), node(350, 2)},
                                      {{100, 1}, {299, 1}, {300, 2}, {330, 1}, {369, 2}, {370, 1}});
  CHECK(ops_text(time) == "2 3 0 1");
}

TEST_CASE("busy time counts once what runs at once; idle is what neither does") {
  const KinetoStepTime time =
      time_of({span("## forward ##", 0, 500),
               row("cuda_runtime", "cudaLaunchKernel", "90", "2", R"("correlation":77)"),
               test::kernel("ncclDevKernel_AllReduce_Sum_f32",
                            77,
                            "208",
                            "12",
                            R"(,"In msg nelems":1,"dtype":"Float")",
                            9)},
              {{100, 1}, {104, 1}, {300, 1}});
  CHECK(time.parts[0].busy_ns == 24'000);  // 200 .. 214 and 400 .. 410.
  CHECK(time.parts[0].elapsed_ns == 210'000);
  CHECK(time.collective_ns == 12'000);
  CHECK(time.both_ns == 6'000);
  CHECK(time.idle_ns() == 180'000);  // 220 .. 400.
}

TEST_CASE("a bucket is ready when what was launched before it has ended") {
  const auto rows = [](const std::string& forward) {
    return std::vector{
        span(forward, 0, 50),
        span("## backward ##", 90, 500),
        row("cuda_runtime", "cudaLaunchKernel", "250", "2", R"("correlation":77)", 2),
        test::kernel("ncclDevKernel_AllReduce_Sum_f32",
                     77,
                     "320",
                     "12",
                     R"(,"In msg nelems":25,"dtype":"Float")",
                     9)};
  };
  const KinetoStepTime time =
      time_of(rows("DistributedDataParallel.forward"), {{100, 2}, {200, 2}, {300, 2}});
  REQUIRE(time.buckets.size() == 1);
  CHECK(time.buckets[0].bytes == 100);
  CHECK(time.buckets[0].ready_ns == 110'000);                                   // From 200 to 310.
  CHECK(time_of(rows("## forward ##"), {{100, 2}, {200, 2}}).buckets.empty());  // No DDP.
}

}  // namespace stepsim
