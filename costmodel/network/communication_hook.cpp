#include "costmodel/network/communication_hook.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

using Hook = CommunicationHook;

constexpr std::array<std::pair<Hook, std::string_view>, 11> kHooks = {
    {{Hook::None, "none"},
     {Hook::AllReduce, "allreduce"},
     {Hook::Fp16, "fp16"},
     {Hook::Bf16, "bf16"},
     {Hook::PowerSgd, "power_sgd"},
     {Hook::BatchedPowerSgd, "batched_power_sgd"},
     {Hook::TopK, "top_k"},
     {Hook::QuantizePerTensor, "quantize_per_tensor"},
     {Hook::QuantizePerChannel, "quantize_per_channel"},
     {Hook::PostLocalSgd, "post_local_sgd"},
     {Hook::Noop, "noop"}}};

constexpr double kHalfSize = 2;
constexpr double kIndexSize = 4;
constexpr double kScaleSize = 8;  ///< A scale and a zero point, fp32 each.
constexpr std::int64_t kChannel = 512;

std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  return elements;
}

void check(const HookOptions& options) {
  const auto refuse = [](const char* option, double value, const char* expected) {
    throw InputError(fmt::format("{}: {} is out of range; expected {}", option, value, expected));
  };
  if (options.rank < 1) {
    refuse("rank", options.rank, "at least 1");
  }
  if (!(options.min_compression_rate > 0)) {
    refuse("min_compression_rate", options.min_compression_rate, "more than 0");
  }
  if (!(options.topk_fraction > 0 && options.topk_fraction <= 1)) {
    refuse("topk_fraction", options.topk_fraction, "more than 0 and at most 1");
  }
  if (options.period < 1) {
    refuse("period", static_cast<double>(options.period), "at least 1");
  }
}

/// A bucket and who reduces it.
struct Bucket {
  std::span<const std::vector<std::int64_t>> shapes;
  std::int64_t elements = 0;
  double element_size = 0;
  int ranks = 1;

  [[nodiscard]] double bytes() const { return static_cast<double>(elements) * element_size; }
  [[nodiscard]] HookCollective all_reduce(double bytes) const {
    return {CollectiveKind::AllReduce, bytes, ranks};
  }
  /// Of this many bytes from each rank.
  [[nodiscard]] HookCollective all_gather(double bytes) const {
    return {CollectiveKind::AllGather, bytes * ranks, ranks};
  }
};

std::vector<HookCollective> power_sgd(const Bucket& bucket, const HookOptions& options) {
  double uncompressed = 0;
  double first_factors = 0;
  double second_factors = 0;
  for (const auto& shape : bucket.shapes) {
    const auto elements = static_cast<double>(elements_of(shape));
    const double n = shape.empty() ? 1 : static_cast<double>(shape.front());
    const double m = elements / n;
    const double rank = std::min({n, m, static_cast<double>(options.rank)});
    if (shape.size() > 1 && (n + m) * rank * options.min_compression_rate < elements) {
      first_factors += n * rank;
      second_factors += m * rank;
    } else {
      uncompressed += elements;
    }
  }
  return {bucket.all_reduce(uncompressed * bucket.element_size),
          bucket.all_reduce(first_factors * bucket.element_size),
          bucket.all_reduce(second_factors * bucket.element_size)};
}

std::vector<HookCollective> batched_power_sgd(const Bucket& bucket, const HookOptions& options) {
  const double side = std::ceil(std::sqrt(static_cast<double>(bucket.elements)));
  const HookCollective factor = bucket.all_reduce(side * options.rank * bucket.element_size);
  return {factor, factor};
}

std::vector<HookCollective> top_k(const Bucket& bucket, const HookOptions& options) {
  const double sent = std::ceil(options.topk_fraction * static_cast<double>(bucket.elements));
  return {bucket.all_gather(sent * bucket.element_size), bucket.all_gather(sent * kIndexSize)};
}

std::vector<HookCollective> quantized(const Bucket& bucket, bool per_channel) {
  const std::int64_t filled = bucket.elements + kChannel - bucket.elements % kChannel;
  const std::int64_t elements = per_channel ? filled : bucket.elements;
  const auto scales = static_cast<double>(per_channel ? filled / kChannel : 1);
  return {bucket.all_gather(scales * kScaleSize), bucket.all_gather(static_cast<double>(elements))};
}

std::vector<HookCollective> local_sgd(const Bucket& bucket, const HookOptions& options) {
  if (options.subgroup_ranks <= 0) {
    return {};
  }
  Bucket local = bucket;
  local.ranks = std::min(bucket.ranks, options.subgroup_ranks);
  return {local.all_reduce(local.bytes())};
}

}  // namespace

std::string_view name_of(CommunicationHook hook) {
  const auto found = std::find_if(
      kHooks.begin(), kHooks.end(), [&](const auto& one) { return one.first == hook; });
  return found->second;
}

CommunicationHook parse_communication_hook(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [hook, hook_name] : kHooks) {
    if (hook_name == name) {
      return hook;
    }
    known.emplace_back(hook_name);
  }
  throw InputError(unknown_name("communication hook", name, known));
}

std::vector<HookCollective> hook_collectives(CommunicationHook hook,
                                             const HookOptions& options,
                                             std::span<const std::vector<std::int64_t>> shapes,
                                             std::int64_t element_size,
                                             int ranks,
                                             std::int64_t iteration) {
  check(options);
  Bucket bucket{shapes, 0, static_cast<double>(element_size), ranks};
  for (const auto& shape : shapes) {
    bucket.elements += elements_of(shape);
  }
  const bool started = iteration >= options.start_iteration;
  const std::vector<HookCollective> plain = {bucket.all_reduce(bucket.bytes())};
  switch (hook) {
    case Hook::None:
    case Hook::AllReduce:
      return plain;
    case Hook::Fp16:
    case Hook::Bf16:
      return {bucket.all_reduce(static_cast<double>(bucket.elements) * kHalfSize)};
    case Hook::PowerSgd:
      return started ? power_sgd(bucket, options) : plain;
    case Hook::BatchedPowerSgd:
      return started ? batched_power_sgd(bucket, options) : plain;
    case Hook::TopK:
      return top_k(bucket, options);
    case Hook::QuantizePerTensor:
      return quantized(bucket, false);
    case Hook::QuantizePerChannel:
      return quantized(bucket, true);
    case Hook::PostLocalSgd:
      return started ? local_sgd(bucket, options) : plain;
    case Hook::Noop:
      return {};
  }
  return plain;
}

double bytes_on_wire_per_rank(std::span<const HookCollective> collectives) {
  double bytes = 0;
  for (const HookCollective& one : collectives) {
    bytes += ring_bytes_per_rank(one.kind, one.bytes, one.ranks);
  }
  return bytes;
}

bool averages_parameters(CommunicationHook hook,
                         const HookOptions& options,
                         std::int64_t iteration) {
  return hook == Hook::PostLocalSgd && iteration >= options.start_iteration &&
         (iteration - options.start_iteration) % options.period == 0;
}

}  // namespace stepsim
