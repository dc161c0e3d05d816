// What newer versions of PyTorch write: numbered collectives, functional ones, compiled graphs.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "calibrate/import/kineto/kineto_batches.h"
#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_names.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "tests/calibrate/import/kineto_text.h"

namespace stepsim {
namespace {

using test::kernel;
using test::launch;
using test::row;
using test::trace_text;
using test::write_file;

constexpr const char* kReduceKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)";

/// A collective: its number and elements, from 100 us times its number on, for 50 us.
struct NumberedReduce {
  int number = 0;
  int elements = 1000;
};

std::vector<KinetoTrace> numbered_ranks(const std::vector<NumberedReduce>& first,
                                        const std::vector<NumberedReduce>& second,
                                        const std::string& second_communicator = "77") {
  std::vector<KinetoTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> rows = {row("user_annotation", "ProfilerStep#3", "0", "5000")};
    int correlation = 1;
    for (const NumberedReduce& made : rank == 0 ? first : second) {
      rows.push_back(launch(correlation, std::to_string(90 * made.number)));
      rows.push_back(kernel(
          kReduceKernel,
          correlation++,
          std::to_string(100 * made.number),
          "50",
          fmt::format(
              R"(,"Collective name":"allreduce","In msg nelems":{},"dtype":"Float","Seq":{},"Comms Id":"{}")",
              made.elements,
              made.number,
              rank == 0 ? "77" : second_communicator)));
    }
    traces.push_back(read_kineto(write_file(
        fmt::format("{}.json", rank),
        trace_text(rows,
                   fmt::format(R"("distributedInfo":{{"rank":{},"world_size":2}},)", rank)))));
  }
  return traces;
}

}  // namespace

TEST_CASE("collectives with numbers are matched by them") {
  // The second rank's trace begins one collective later: by order each would meet another one.
  const std::vector<KinetoTrace> traces = numbered_ranks({{1}, {2}, {3}, {4}}, {{2}, {3}, {4}});
  const KinetoMatches found = match_collectives(traces);
  REQUIRE(found.matches.size() == 4);
  CHECK(found.matches[0].ranks == std::vector<int>{0});
  CHECK_FALSE(found.matches[0].complete);
  for (std::size_t i = 1; i < 4; ++i) {
    CHECK(found.matches[i].complete);
    CHECK(found.matches[i].skew_ns == 0);
    CHECK(found.matches[i].transfer_ns == 50'000);
  }
  REQUIRE(found.unmatched.size() == 1);
  CHECK(found.unmatched[0].find("rank 1 has 3 collectives, others up to 4") != std::string::npos);
}

TEST_CASE("a numbered collective that differs leaves the others matched") {
  const KinetoMatches found =
      match_collectives(numbered_ranks({{1}, {2}, {3}}, {{1}, {2, 500}, {3}}));
  CHECK(found.matches.size() == 2);
  REQUIRE(found.unmatched.size() == 1);
  CHECK(found.unmatched[0].find("part at collective 2") != std::string::npos);
  CHECK(found.unmatched[0].find("from there on") == std::string::npos);
}

TEST_CASE("without a number in common, or with one twice, the order counts") {
  const KinetoMatches other = match_collectives(numbered_ranks({{1}, {2}}, {{1}, {2}}, "own"));
  REQUIRE(other.matches.size() == 2);
  CHECK(std::ranges::all_of(other.matches, &KinetoMatch::complete));
  const KinetoMatches twice = match_collectives(numbered_ranks({{1}, {1}}, {{1}, {1}}));
  REQUIRE(twice.matches.size() == 2);
  CHECK(std::ranges::all_of(twice.matches, &KinetoMatch::complete));
}

TEST_CASE("gloo's functional reduce-scatters and gathers are told from all-reduces") {
  const auto op = [](const char* name, const char* start, const char* dims) {
    return row("cpu_op", name, start, "5", fmt::format(R"("Input Dims":{})", dims));
  };
  const auto gloo = [](const char* name, const char* start, int elements) {
    return row("user_annotation",
               name,
               start,
               "10",
               fmt::format(R"("Input Dims":[[{}]],"Input type":["float"])", elements),
               2);
  };
  const KinetoTrace trace = read_kineto(write_file(
      "gloo.json",
      trace_text({op("c10d::allgather_into_tensor_coalesced_", "10", "[[[80]],[[40]],[],[]]"),
                  gloo("gloo:all_gather", "12", 40),
                  op("c10d::reduce_scatter_tensor_coalesced_",
                     "30",
                     "[[[40],[8]],[[80],[16]],[],[],[],[]]"),
                  gloo("gloo:all_reduce", "32", 80),
                  gloo("gloo:all_reduce", "44", 16),
                  op("c10d::allreduce_", "60", "[[[80]],[],[],[],[],[]]"),
                  gloo("gloo:all_reduce", "62", 80)},
                 R"("distributedInfo":{"backend":"gloo","rank":0,"world_size":2},)")));
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const KinetoCollective& one : trace.collectives) {
    found.emplace_back(one.kind, one.bytes.value_or(-1));
  }
  std::ranges::sort(found);
  CHECK(found == std::vector<std::pair<std::string, std::int64_t>>{{"all_gather", 320},
                                                                   {"all_reduce", 320},
                                                                   {"reduce_scatter", 64},
                                                                   {"reduce_scatter", 320}});
}

TEST_CASE("kernels of torch.compile have the class of what they are, not of what they follow") {
  for (const auto& [name, expected] :
       {std::pair("triton_poi_fused_convolution_relu_0", KinetoClass::Elementwise),
        std::pair("triton_poi_fused__softmax_3", KinetoClass::Elementwise),
        std::pair("triton_poi_fused_embedding_native_layer_norm_1", KinetoClass::Elementwise),
        std::pair("triton_red_fused__log_softmax_nll_loss_forward_2", KinetoClass::Softmax),
        std::pair("triton_per_fused_native_layer_norm_5", KinetoClass::Norm),
        std::pair("triton_red_fused_add_sum_7", KinetoClass::Reduction),
        std::pair("triton_tem_fused_addmm_relu_4", KinetoClass::Gemm),
        std::pair("triton_tem_fused_convolution_2", KinetoClass::Convolution),
        std::pair("triton_tem_fused_flex_attention_0", KinetoClass::Attention),
        std::pair("triton_mm", KinetoClass::Gemm),
        std::pair("triton_for_fused_2", KinetoClass::Optimizer),
        std::pair("triton_mine", KinetoClass::Other)}) {
    CAPTURE(name);
    CHECK(class_of_kernel(name) == expected);
  }
}

TEST_CASE("the tokens that a compiled graph takes are its batch") {
  const std::string args =
      R"("Input type":["float","long int","long int"],"Input Dims":[[512,128],[8],[6,40]])";
  const KinetoTrace trace = read_kineto(
      write_file("compiled.json",
                 trace_text({row("user_annotation", "ProfilerStep#3", "0", "1000"),
                             row("user_annotation", "DistributedDataParallel.forward", "5", "90"),
                             row("cpu_op", "CompiledFunction", "10", "80", args),
                             row("cpu_op", "CompiledFunction", "92", "2", args)})));
  REQUIRE(trace.tensors.size() == 2);
  CHECK(trace.tensors[0].of == KinetoTensorOf::Compiled);
  CHECK(trace.tensors[0].dims == std::vector<std::int64_t>{6, 40});
  const KinetoForward forward = {&trace, trace.tensors[0].thread, {5'000, 100'000, 200'000}};
  const KinetoBatches batches = kineto_batches(std::vector{forward}, std::nullopt);
  REQUIRE(batches.batches.size() == 1);
  CHECK(batches.batches[0].samples == 6);
  CHECK(batches.batches[0].length == 40);
  CHECK(batches.source.find("CompiledFunction") != std::string::npos);
}

TEST_CASE("buckets of a compiled DDP are known by its reducer's copies") {
  const auto trace_with = [](const char* op) {
    return read_kineto(write_file(
        "reducer.json",
        trace_text({row("user_annotation", "ProfilerStep#3", "0", "1000"),
                    row("cpu_op", op, "300", "5", "", 2),
                    row("cuda_runtime", "cudaLaunchKernel", "310", "5", R"("correlation":1)", 2),
                    kernel(kReduceKernel,
                           1,
                           "320",
                           "50",
                           R"(,"Collective name":"allreduce","In msg nelems":10,"dtype":"Float")")},
                   R"("distributedInfo":{"rank":0,"world_size":2},)")));
  };
  CHECK(trace_with("torch.distributed.ddp.reducer::copy_bucket_to_grad").collectives.at(0).bucket);
  CHECK_FALSE(trace_with("aten::copy_").collectives.at(0).bucket);
}

}  // namespace stepsim
