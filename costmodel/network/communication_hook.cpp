#include "costmodel/network/communication_hook.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/input_error.h"
#include "costmodel/base/row_named.h"

namespace stepsim {
namespace {

using Hook = CommunicationHook;

constexpr double kIndexSize = 4;
constexpr double kScaleSize = 8;  ///< A scale and a zero point, fp32 each.
constexpr std::int64_t kChannel = 512;

void check(const HookOptions& options) {
  const auto refuse = [](const char* option, double value, const char* expected) {
    throw InputError("{}: {} is out of range; expected {}", option, value, expected);
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

HookCollective all_reduce(const HookBucket& bucket, double bytes) {
  return {CollectiveKind::AllReduce, bytes, bucket.ranks};
}

/// Every rank sends `bytes`.
HookCollective all_gather(const HookBucket& bucket, double bytes) {
  return {CollectiveKind::AllGather, bytes * bucket.ranks, bucket.ranks};
}

std::vector<HookCollective> plain(const HookBucket& bucket, const HookOptions& /*options*/) {
  return {all_reduce(bucket, bucket.bytes())};
}

std::vector<HookCollective> nothing(const HookBucket& /*bucket*/, const HookOptions& /*options*/) {
  return {};
}

std::vector<HookCollective> half(const HookBucket& bucket, const HookOptions& /*options*/) {
  return {all_reduce(bucket, static_cast<double>(bucket.elements * element_size(Dtype::F16)))};
}

std::vector<HookCollective> power_sgd(const HookBucket& bucket, const HookOptions& options) {
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
  return {all_reduce(bucket, uncompressed * bucket.element_size),
          all_reduce(bucket, first_factors * bucket.element_size),
          all_reduce(bucket, second_factors * bucket.element_size)};
}

std::vector<HookCollective> batched_power_sgd(const HookBucket& bucket,
                                              const HookOptions& options) {
  const double side = std::ceil(std::sqrt(static_cast<double>(bucket.elements)));
  const HookCollective factor = all_reduce(bucket, side * options.rank * bucket.element_size);
  return {factor, factor};
}

std::vector<HookCollective> top_k(const HookBucket& bucket, const HookOptions& options) {
  const double sent = std::ceil(options.topk_fraction * static_cast<double>(bucket.elements));
  return {all_gather(bucket, sent * bucket.element_size), all_gather(bucket, sent * kIndexSize)};
}

/// Before its start a hook is a plain all-reduce.
bool waits(CommunicationHook hook, const HookOptions& options, std::int64_t iteration) {
  return takes_option(hook, "start_iteration") && iteration < options.start_iteration;
}

std::vector<HookCollective> quantized(const HookBucket& bucket,
                                      std::int64_t elements,
                                      double scales) {
  return {all_gather(bucket, scales * kScaleSize),
          all_gather(bucket, static_cast<double>(elements))};
}

std::vector<HookCollective> quantized_per_tensor(const HookBucket& bucket,
                                                 const HookOptions& /*options*/) {
  return quantized(bucket, bucket.elements, 1);
}

std::vector<HookCollective> quantized_per_channel(const HookBucket& bucket,
                                                  const HookOptions& /*options*/) {
  const std::int64_t channels = bucket.elements / kChannel + 1;
  return quantized(bucket, channels * kChannel, static_cast<double>(channels));
}

std::vector<HookCollective> local_sgd(const HookBucket& bucket, const HookOptions& options) {
  if (options.subgroup_ranks <= 0) {
    return {};
  }
  HookBucket local = bucket;
  local.ranks = std::min(bucket.ranks, options.subgroup_ranks);
  return {all_reduce(local, local.bytes())};
}

}  // namespace

const std::vector<HookInfo>& communication_hooks() {
  using Schedule = HookSchedule;
  static const std::vector<HookInfo> kHooks = {
      {Hook::None, "none", Schedule::Divided, {}, {}, false, plain, "all-reduced by DDP itself"},
      {Hook::AllReduce,
       "allreduce",
       Schedule::Divided,
       {},
       {},
       false,
       plain,
       "divided by a copy of its own, then all-reduced"},
      {Hook::Fp16,
       "fp16",
       Schedule::Cast,
       {},
       Dtype::F16,
       false,
       half,
       "cast to fp16, all-reduced and cast back"},
      {Hook::Bf16,
       "bf16",
       Schedule::Cast,
       {},
       Dtype::Bf16,
       false,
       half,
       "cast to bf16, all-reduced and cast back"},
      {Hook::PowerSgd,
       "power_sgd",
       Schedule::LowRank,
       {"rank", "start_iteration", "min_compression_rate"},
       {},
       true,
       power_sgd,
       "compressed to low-rank factors, matrix by matrix"},
      {Hook::BatchedPowerSgd,
       "batched_power_sgd",
       Schedule::LowRank,
       {"rank", "start_iteration"},
       {},
       false,
       batched_power_sgd,
       "compressed to low-rank factors, as one square matrix"},
      {Hook::TopK,
       "top_k",
       Schedule::Selected,
       {"topk_fraction"},
       {},
       false,
       top_k,
       "cut to its largest elements, which are gathered with 4-byte indices"},
      {Hook::QuantizePerTensor,
       "quantize_per_tensor",
       Schedule::Quantized,
       {},
       {},
       false,
       quantized_per_tensor,
       "gathered with one byte an element and one scale a bucket"},
      {Hook::QuantizePerChannel,
       "quantize_per_channel",
       Schedule::Quantized,
       {},
       {},
       false,
       quantized_per_channel,
       "gathered with one byte an element and one scale per 512 elements"},
      {Hook::PostLocalSgd,
       "post_local_sgd",
       Schedule::Divided,
       {"start_iteration", "subgroup_ranks", "period"},
       {},
       false,
       local_sgd,
       "all-reduced inside a subgroup; all parameters are averaged now and then"},
      {Hook::Noop, "noop", Schedule::Nothing, {}, {}, false, nothing, "not sent"}};
  return kHooks;
}

const HookInfo& hook_info(CommunicationHook hook) {
  return communication_hooks()[static_cast<std::size_t>(hook)];
}

bool takes_option(CommunicationHook hook, std::string_view key) {
  const auto& options = hook_info(hook).options;
  return std::ranges::find(options, key) != options.end();
}

std::string_view name_of(CommunicationHook hook) {
  return hook_info(hook).name;
}

CommunicationHook parse_communication_hook(std::string_view name) {
  return row_named(communication_hooks(), &HookInfo::name, "communication hook", name).hook;
}

HookSchedule hook_schedule(CommunicationHook hook,
                           const HookOptions& options,
                           std::int64_t iteration) {
  return waits(hook, options, iteration) ? HookSchedule::Divided : hook_info(hook).schedule;
}

std::vector<HookCollective> hook_collectives(CommunicationHook hook,
                                             const HookOptions& options,
                                             std::span<const std::vector<std::int64_t>> shapes,
                                             std::int64_t element_size,
                                             int ranks,
                                             std::int64_t iteration) {
  check(options);
  HookBucket bucket{shapes, 0, static_cast<double>(element_size), ranks};
  for (const auto& shape : shapes) {
    bucket.elements += elements_of(shape);
  }
  return waits(hook, options, iteration) ? plain(bucket, options)
                                         : hook_info(hook).collectives(bucket, options);
}

bool averages_parameters(CommunicationHook hook,
                         const HookOptions& options,
                         std::int64_t iteration) {
  return takes_option(hook, "period") && iteration >= options.start_iteration &&
         (iteration - options.start_iteration) % options.period == 0;
}

}  // namespace stepsim
