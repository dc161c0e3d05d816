#include "sim/predict/memory_need.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/memory_limit.h"
#include "costmodel/base/parse_units.h"
#include "sim/predict/draws/noise_runs.h"

namespace stepsim {
namespace {

// Bytes, as sizeof and measured peaks have them.
constexpr double kNumberBytes = 8;
constexpr double kBatchBytes = 40;     // A vector and its block on the heap, without the samples.
constexpr double kRunBatchBytes = 20;  // Run: number, factor; DrawPlayer: kind.
constexpr double kDifferentBatchBytes = 800;  // A RunBatch, its prices and its folded numbers.
constexpr double kMicroBatchBytes = 200;      // A MicroBatch and its blocks on the heap.
constexpr double kPlanLineBytes = 130;        // In the text of the file, and of each sample in it.
constexpr double kPlanSampleBytes = 12;
constexpr double kRowBytes = 112;
constexpr double kRankBytes = 5000;  // Its generator, its work in a step, its lanes.
// Where each kernel has a time of its own: about so many of them, forward and backward.
constexpr double kKernelBytes = 250;
constexpr double kModelKernels = 200;
constexpr double kLayerKernels = 45;
constexpr double kStepTimeCopies = 3.5;  // Copies of the times of all runs with noise.
constexpr double kProgramBytes = 20e6;

/// About the mean length of the samples; 1 where only a file knows it.
double typical_length(const LengthSource& source) {
  const auto longest = static_cast<double>(longest_length(source));
  const double shortest =
      source.kind == LengthSource::Kind::Constant ? longest : static_cast<double>(source.min);
  return std::max(1.0, (shortest + longest) / 2);
}

/// About how many samples a batch holds.
double samples_per_batch(const BatchingPolicy& policy, const LengthSource& source) {
  constexpr double kUnknown = 4;
  if (const auto tokens = policy.token_budget()) {
    return std::max(1.0, *tokens / typical_length(source));
  }
  return policy.batch_size().value_or(kUnknown);
}

/// About how many different batches a run has: those of an epoch, or with padded batches no more
/// than there are pairs of a longest sample and a sum of lengths.
double different_batches(const BatchingPolicy& policy,
                         const LengthSource& source,
                         double of_epoch,
                         double of_run) {
  if (source.kind == LengthSource::Kind::Constant) {
    return 1;
  }
  const double all = std::min(of_epoch, of_run);
  const auto longest = static_cast<double>(longest_length(source));
  constexpr double kSums = 4;
  return policy.is_varlen() || longest == 0 ? all : std::min(all, kSums * longest * longest);
}

std::string size_text(double bytes) {
  constexpr double kMost = 9e18;
  return format_bytes(Bytes(static_cast<std::int64_t>(std::min(bytes, kMost))));
}

[[noreturn]] void refuse(const std::string& who,
                         const MemoryNeed& need,
                         Bytes limit,
                         const Scenario& scenario,
                         std::int64_t samples) {
  throw InputError(
      "{} needs about {} of memory and may take {}: {} for {} samples and the batches of "
      "an epoch, {} for what is kept of {} ranks in {} steps, {} for the times of the runs with "
      "noise and the work of one step; take fewer steps (--steps), samples (--set "
      "data.samples=NUMBER) or ranks,{} or raise the limit (--memory-limit)",
      who,
      size_text(need.total()),
      format_bytes(limit),
      size_text(need.program + need.samples),
      samples,
      size_text(need.micro_batches + need.plan_text),
      scenario.ranks,
      scenario.steps,
      size_text(need.step_times + need.ranks),
      memory_shares() > 1 ? " do less at once (--threads, --policy)," : "");
}

}  // namespace

MemoryNeed memory_need(const Scenario& scenario,
                       const BatchingPolicy& policy,
                       const MemoryUseOptions& options,
                       std::int64_t samples) {
  const LengthSource& source = policy.lengths() ? *policy.lengths() : scenario.lengths;
  const auto count = static_cast<double>(std::max(scenario.samples, samples));
  const double steps = scenario.steps;
  const double of_run = steps * scenario.ranks * scenario.ddp.accumulation_steps;
  const double per_batch = samples_per_batch(policy, source);

  MemoryNeed need;
  // The lengths as they are drawn and as they run, and second ones.
  const double lengths = 1 + (policy.is_varlen() ? 1 : 0) + (scenario.targets ? 1 : 0);
  const double batches =
      kNumberBytes + kBatchBytes / per_batch + (policy.cuts() ? 3 * kNumberBytes : 0);
  // The sampler's order and the ranks' shares of it make room for the batches; the uses of samples
  // are sorted beside them.
  const double orders = 2 * kNumberBytes;
  const double effects = options.training_effects ? 4 * kNumberBytes : 0;
  need.program = kProgramBytes;
  need.samples = count * (lengths * kNumberBytes + std::max(orders, batches + effects));

  double of_batch = kRunBatchBytes;
  if (options.kept == KeptRows::Samples) {
    of_batch = kMicroBatchBytes + 2 * kNumberBytes * per_batch;
    need.plan_text = of_run * (kPlanLineBytes + kPlanSampleBytes * per_batch);
  } else if (options.kept != KeptRows::None) {
    of_batch += kRowBytes / scenario.ddp.accumulation_steps;
  }
  need.micro_batches =
      of_run * of_batch +
      (options.kept == KeptRows::Samples
           ? 0
           : kDifferentBatchBytes * different_batches(policy, source, count / per_batch, of_run));
  need.step_times =
      steps * kNumberBytes * kStepTimeCopies * affordable_plain_runs(of_run, options.noise_runs);
  const bool of_kernels = scenario.noise.op_jitter > 0 && !scenario.times;
  const auto layers = static_cast<double>(scenario.model.layers);
  const double kernels = of_kernels ? kModelKernels + kLayerKernels * layers : 0;
  const double in_step = kernels * scenario.ddp.accumulation_steps;
  need.ranks = (kRankBytes + kKernelBytes * in_step) * scenario.ranks;
  return need;
}

void check_memory(const Scenario& scenario,
                  const BatchingPolicy& policy,
                  const MemoryUseOptions& options,
                  std::int64_t samples) {
  MemoryNeed need = memory_need(scenario, policy, options, samples);
  const std::optional<Bytes> limit = memory_limit();
  const auto shares = static_cast<double>(memory_shares());
  need.program /= shares;
  if (limit && need.total() > static_cast<double>(limit->value())) {
    refuse(fmt::format("policy '{}'", printable(policy.name())),
           need,
           *limit,
           scenario,
           std::max(scenario.samples, samples));
  }
}

void check_memory_of_plans(const Scenario& scenario) {
  MemoryNeed all;
  for (const BatchingPolicy& policy : scenario.policies) {
    const MemoryNeed need = memory_need(scenario, policy, {KeptRows::Samples});
    all.program = need.program;
    all.micro_batches += need.micro_batches;
    all.samples = std::max(all.samples, need.samples);
    all.plan_text = std::max(all.plan_text, need.plan_text);
    all.ranks = std::max(all.ranks, need.ranks);
  }
  const std::optional<Bytes> limit = memory_limit();
  if (limit && all.total() > static_cast<double>(limit->value())) {
    refuse(
        fmt::format("planning {} policies at once (--policy plans one)", scenario.policies.size()),
        all,
        *limit,
        scenario,
        scenario.samples);
  }
}

}  // namespace stepsim
