// Measuring and fitting with the CUDA backend on emulated devices, one a forked rank.
#include "calibrate/measure/measure.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/cuda/cuda_backend.h"
#include "calibrate/fit/fit.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/samples.h"
#include "costmodel/model/model_presets.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"

namespace stepsim {
namespace {

TransformerConfig measured_model() {
  TransformerConfig model = model_preset("tiny-classifier");
  model.layers = 1;
  model.hidden = 32;
  model.ffn = 48;
  model.vocab = 64;
  model.max_length = 8;
  return model;
}

std::unique_ptr<Backend> emulated_backend(const RankContext& context,
                                          const TransformerConfig& model,
                                          const std::vector<std::vector<int>>& buckets) {
  cuda::RankPlace place;
  place.overlap.channels = {2};
  place.overlap.tokens = 32;
  place.overlap.copy_elements = 4096;
  place.overlap.repetitions = 1;
  place.rank = context.rank();
  place.ranks = context.ranks();
  if (place.ranks > 1) {
    place.unique_id = context.broadcast(context.rank() == 0 ? cuda::nccl_unique_id() : "");
  }
  return std::make_unique<cuda::CudaBackend>(model, buckets, place);
}

std::string temporary_file(const char* name) {
  std::string folder = (std::filesystem::temp_directory_path() / "stepsim-test-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  return folder + "/" + name;
}

}  // namespace

TEST_CASE("an emulated device is measured, the samples fitted") {
  MeasureRequest request;
  request.model = measured_model();
  request.ranks = 1;
  request.device = DeviceKind::Cuda;
  request.box = box_of_limits(request.model, 4, 8);
  request.buckets = buckets_by_cap(request.model, Bytes(4096), Bytes(16384));
  request.budget_seconds = 1;
  request.out = temporary_file("samples.jsonl");
  request.date = "2024-01-01T00:00:00Z";
  CHECK(measure(request, emulated_backend, {}) > 0);
  const SampleSet samples = read_samples(request.out, nullptr);
  CHECK(samples.plan.device == "cuda");
  CHECK(samples.header->contains("host"));
  CHECK(samples.header->contains("multiprocessors"));
  FitOptions options;
  options.name = "emulated";
  const FitResult fit = fit_profile(samples, options);
  CHECK(fit.profile.backend == "cuda");
  CHECK_FALSE(fit.profile.host_is_device);
  CHECK(fit.profile.launch_seconds > 0);
  CHECK(!fit.profile.ops.empty());
}

TEST_CASE("shapes that cannot run are skipped, named in file and profile, and not tried again") {
  const cuda::emulated::LimitsLifted lifted;
  MeasureRequest request;
  request.model = measured_model();
  request.model.dtype = Dtype::Bf16;
  request.model.attention = AttentionKind::Flash;
  request.device = DeviceKind::Cuda;
  request.box = {3, 6, 1, 4, 3, 24, 1};
  request.buckets = buckets_by_cap(request.model, Bytes(4096), Bytes(16384));
  request.budget_seconds = 1;
  request.out = temporary_file("samples.jsonl");
  request.date = "2024-01-01T00:00:00Z";
  cuda::emulated::length_without_plan = 6;
  measure(request, emulated_backend, {});
  const SampleFile file = read_sample_file(request.out, nullptr);
  const auto refusals = [&request] {
    std::ifstream lines(request.out);
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.find(R"("kind":"refused")") != std::string::npos ? 1 : 0;
    }
    return count;
  };
  const int refused = refusals();
  REQUIRE(refused > 0);
  CHECK(file.log.refused().size() == static_cast<std::size_t>(refused));  // In the first pass only.
  for (const GridPoint& point : file.plan.points) {
    CHECK(file.log.is_refused(point) == (point.length == 6));
    CHECK(file.log.has_all_ranks(point, 0, 1) == (point.length != 6));
  }
  // A second run goes on where the first one stopped, and does not try again what would run now.
  cuda::emulated::length_without_plan = 0;
  request.budget_seconds = 1;
  measure(request, emulated_backend, {});
  CHECK(refusals() == refused);
  const FitResult fit = fit_profile(read_samples(request.out, nullptr), {});
  const std::string lacks = fit.profile.provenance->at("not_measured").dump();
  CHECK(lacks.find("x 6: no fused attention kernel for bf16") != std::string::npos);
  CHECK(std::ranges::count_if(fit.warnings, [](const std::string& warning) {
          return warning.starts_with("not measured, batches of ");
        }) == refused);
}

}  // namespace stepsim
