// What cuDNN offers for our graphs, without a GPU: devices described in JSON and a stub of the
// driver are enough for its heuristics, and with the fake driver it compiles, too.
#include <algorithm>

#include <doctest/doctest.h>

#include "calibrate/cuda/attention/sdpa_passes.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "tests/calibrate/cuda/described_card.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

const Card kCards[] = {kA100, kH200, kB200};

SdpaShape shape_of(std::int64_t length, std::int64_t head_dim, std::int64_t kv_heads = 16) {
  SdpaShape shape{.dtype = Dtype::Bf16,
                  .samples = 2,
                  .length = length,
                  .heads = 16,
                  .kv_heads = kv_heads,
                  .head_dim = head_dim};
  shape.q_stride = shape.kv_stride = (16 + 2 * kv_heads) * head_dim;
  shape.o_stride = 16 * head_dim;
  return shape;
}

/// Full, causal, windowed; padded, masked, packed; grouped.
std::vector<SdpaShape> kinds(std::int64_t length) {
  std::vector<SdpaShape> shapes;
  for (const std::int64_t kv_heads : {16, 4}) {
    for (int padding = 0; padding < 3; ++padding) {
      for (int visible = 0; visible < 4; ++visible) {
        SdpaShape shape = shape_of(length, 64, kv_heads);
        shape.masked = padding == 1;
        shape.packed = padding == 2;
        shape.causal = visible % 2 == 1;
        shape.window = visible / 2 == 1 ? 128 : 0;
        shapes.push_back(shape);
      }
    }
    shapes.push_back(shape_of(length, 64, kv_heads));
    shapes.back().biased = true;
  }
  return shapes;
}

std::vector<CudnnEngine> engines(const SdpaGraph& graph, const CudnnDescriptor& device) {
  return CudnnGraph(graph).engines(device);
}

/// Each once, in the order of their first configuration.
Engines distinct(const std::vector<CudnnEngine>& found) {
  Engines indices;
  for (const CudnnEngine& engine : found) {
    if (std::find(indices.begin(), indices.end(), engine.index) == indices.end()) {
      indices.push_back(engine.index);
    }
  }
  return indices;
}

/// Whether cuDNN proposes anything here; prints why the test is skipped.
bool has_heuristics() {
  const CudnnDescriptor device = device_of(kCards[1]);
  if (engines(sdpa_forward_graph(shape_of(512, 64)), device).empty()) {
    test::skip("cuDNN's heuristics return nothing: no libcuda.so.1, not even the toolkit's stub");
    return false;
  }
  return true;
}

bool is_version_of_table() {
  if (cudnnGetVersion() / 100 != 919) {
    test::skip("the engines are known for cuDNN 9.19, this is " + cudnn_version());
    return false;
  }
  return true;
}

/// The table's engines; on Hopper and later packed batches have no second backward.
Engines expected_backward(const Card& card, const SdpaShape& shape) {
  return shape.packed ? Engines{card.backward.front()} : card.backward;
}

}  // namespace

TEST_CASE("cuDNN recognises every kind of attention graph as its fused kernels") {
  if (!has_heuristics() || !is_version_of_table()) {
    return;
  }
  for (const Card& card : kCards) {
    const CudnnDescriptor device = device_of(card);
    for (const SdpaShape& shape : kinds(512)) {
      CAPTURE(card.name);
      CAPTURE(describe(shape));
      CHECK(distinct(engines(sdpa_forward_graph(shape), device)) == card.forward);
      CHECK(distinct(engines(sdpa_backward_graph(shape), device)) ==
            expected_backward(card, shape));
    }
  }
}

TEST_CASE("fused kernels exist for head dimensions that are multiples of 8, backward by card") {
  if (!has_heuristics() || !is_version_of_table()) {
    return;
  }
  for (const Card& card : kCards) {
    const CudnnDescriptor device = device_of(card);
    for (const std::int64_t head_dim : {8, 40, 64, 80, 96, 128}) {
      CAPTURE(card.name);
      CAPTURE(head_dim);
      CHECK_FALSE(engines(sdpa_forward_graph(shape_of(512, head_dim)), device).empty());
      CHECK_FALSE(engines(sdpa_backward_graph(shape_of(512, head_dim)), device).empty());
    }
    CHECK_FALSE(engines(sdpa_forward_graph(shape_of(512, 256)), device).empty());
    const bool has_wide_backward = card.version == 900;
    CHECK(engines(sdpa_backward_graph(shape_of(512, 256)), device).empty() != has_wide_backward);
    CHECK(engines(sdpa_forward_graph(shape_of(512, 60)), device).empty());
    CHECK(engines(sdpa_backward_graph(shape_of(512, 320)), device).empty());
  }
}

TEST_CASE("a mask that is a tensor changes no engine, whatever the length of its rows") {
  if (!has_heuristics()) {
    return;
  }
  for (const Card& card : kCards) {
    const CudnnDescriptor device = device_of(card);
    for (const std::int64_t length : {2, 13, 64, 130, 511, 1024}) {
      const SdpaShape plain = shape_of(length, 64);
      SdpaShape biased = plain;
      biased.biased = true;
      CAPTURE(card.name);
      CAPTURE(length);
      for (const auto& graph_of : {sdpa_forward_graph, sdpa_backward_graph}) {
        const Engines found = distinct(engines(graph_of(biased), device));
        CHECK_FALSE(found.empty());
        CHECK(found == distinct(engines(graph_of(plain), device)));
      }
    }
  }
}

TEST_CASE("no plan's workspace grows with the square of the length") {
  if (!has_heuristics()) {
    return;
  }
  for (const Card& card : kCards) {
    const CudnnDescriptor device = device_of(card);
    const std::vector<SdpaShape> shorter = kinds(1024);
    const std::vector<SdpaShape> longer = kinds(4096);
    for (std::size_t i = 0; i < shorter.size(); ++i) {
      CAPTURE(card.name);
      CAPTURE(describe(longer[i]));
      for (const auto& graph_of : {sdpa_forward_graph, sdpa_backward_graph}) {
        const auto few = engines(graph_of(shorter[i]), device);
        const auto many = engines(graph_of(longer[i]), device);
        REQUIRE_FALSE(few.empty());
        REQUIRE_FALSE(many.empty());
        CHECK(many[0].workspace_bytes <= 4 * few[0].workspace_bytes + 65536);
      }
    }
  }
}

TEST_CASE("shapes that cuDNN has no kernel for are refused by name, before anything is compiled") {
  if (!has_heuristics()) {
    return;
  }
  const CudnnDescriptor device = device_of(kCards[1]);
  SdpaShape wide = shape_of(512, 320);
  wide.causal = true;
  CHECK_THROWS_WITH_AS(static_cast<void>(sdpa_passes(wide, device)),
                       "cuDNN has no fused attention kernel for bf16, 2 x 512 tokens, 16 heads "
                       "(16 kv) of 320, causal",
                       EnvironmentFault);
  CHECK_THROWS_WITH_AS(static_cast<void>(sdpa_passes(shape_of(512, 60), device)),
                       doctest::Contains("no fused attention kernel"),
                       EnvironmentFault);
  SdpaShape single = shape_of(512, 64);
  single.dtype = Dtype::F32;
  CHECK_THROWS_WITH_AS(static_cast<void>(sdpa_passes(single, device)),
                       doctest::Contains("no fused attention kernel for f32"),
                       EnvironmentFault);
}

TEST_CASE("cuDNN compiles both directions of every kind of padding") {
  if (!has_heuristics()) {
    return;
  }
  const CudnnDescriptor device = device_of(kH200);
  for (int padding = 0; padding < 3; ++padding) {
    SdpaShape shape = shape_of(200, 64);
    shape.biased = padding == 0;
    shape.masked = padding == 1;
    shape.packed = padding == 2;
    shape.causal = !shape.biased;
    CAPTURE(describe(shape));
    try {
      const SdpaPasses passes = sdpa_passes(compiled_shape(shape), device);
      CHECK(passes.forward.engine().index == kH200.forward[0]);
      CHECK(passes.backward.engine().index == kH200.backward[0]);
    } catch (const EnvironmentFault& fault) {
      FAIL_CHECK(fault.what());
    }
  }
}

TEST_CASE("an engine that does not compile or run gives way to the next, until there is none") {
  if (!has_heuristics() || !is_version_of_table()) {
    return;
  }
  const CudnnDescriptor device = device_of(kCards[1]);
  const SdpaShape shape = shape_of(512, 64);
  const SdpaGraph graph = sdpa_backward_graph(shape);
  const auto in_order = mapped(engines(graph, device), &CudnnEngine::index);
  REQUIRE(in_order.size() > 2);
  // A plan is not compiled without a driver: an empty one stands for it, and the second engine
  // cannot be had.
  int tries = 0;
  const auto compile = [&tries](const CudnnEngine&, const CudnnTarget&) {
    if (++tries == 2) {
      throw EnvironmentFault("not this one");
    }
    return CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  };
  SdpaPass pass(graph, shape, device, compile);
  CHECK(pass.engine().index == in_order[0]);
  for (std::size_t i = 2; i < in_order.size(); ++i) {
    CHECK(pass.use_next_plan(device));
    CHECK(pass.engine().index == in_order[i]);
  }
  CHECK_FALSE(pass.use_next_plan(device));
  CHECK(pass.engine().index == in_order.back());
  CHECK_THROWS_WITH_AS(
      SdpaPass(graph,
               shape,
               device,
               [](const CudnnEngine&, const CudnnTarget&) -> CudnnDescriptor {
                 throw EnvironmentFault("none at all");
               }),
      doctest::Contains("cuDNN could not compile fused attention for bf16, 2 x 512 tokens"),
      EnvironmentFault);
}

TEST_CASE("a plan of the device's description that does not run is made by the handle first") {
  if (!has_heuristics() || !is_version_of_table()) {
    return;
  }
  const CudnnDescriptor device = device_of(kCards[1]);
  const SdpaShape shape = shape_of(512, 64);
  const SdpaGraph graph = sdpa_backward_graph(shape);
  const auto in_order = mapped(engines(graph, device), &CudnnEngine::index);
  REQUIRE(in_order.size() > 2);
  int nothing = 0;
  const CudnnTarget handle(reinterpret_cast<cudnnHandle_t>(&nothing));  // It is not read.
  std::vector<std::pair<std::int64_t, bool>> compiled;  // The engine, and whether by the handle.
  const auto compile = [&compiled](const CudnnEngine& engine, const CudnnTarget& target) {
    compiled.emplace_back(engine.index, target.device == nullptr);
    return CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  };
  SdpaPass pass(graph, shape, device, compile);
  CHECK(pass.use_next_plan(handle));
  CHECK(pass.engine().index == in_order[0]);
  CHECK(pass.use_next_plan(handle));
  CHECK(pass.engine().index == in_order[1]);
  CHECK(compiled ==
        decltype(compiled){{in_order[0], false}, {in_order[0], true}, {in_order[1], true}});
}

TEST_CASE("packed batches share kernels up to 64 tokens apart") {
  SdpaShape shape = shape_of(65, 64);
  CHECK(compiled_shape(shape) == shape);
  shape.packed = true;
  CHECK(compiled_shape(shape).length == 128);
  shape.length = 128;
  CHECK(compiled_shape(shape) == shape);
  shape.length = 129;
  CHECK(compiled_shape(shape).length == 192);
}
