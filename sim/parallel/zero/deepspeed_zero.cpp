#include "sim/parallel/zero/deepspeed_zero.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"
#include "sim/parallel/zero/leaf_modules.h"
#include "sim/parallel/zero/zero_program.h"

namespace stepsim {
namespace {

constexpr const char* kStage = "stage";
constexpr const char* kPrefetchBucket = "stage3_prefetch_bucket_size";
constexpr const char* kPersistence = "stage3_param_persistence_threshold";
constexpr const char* kMaxLive = "stage3_max_live_parameters";
constexpr const char* kMaxReuse = "stage3_max_reuse_distance";
constexpr const char* kReduceBucket = "reduce_bucket_size";
constexpr const char* kOverlap = "overlap_comm";
constexpr const char* kZeroParamDtype = "param_dtype";
constexpr const char* kZeroReduceDtype = "reduce_dtype";

std::optional<Dtype> zero_dtype_of(const OwnValues& own, const char* key) {
  const std::string& name = own.text(key);
  return name == "own" ? std::nullopt : std::optional(parse_dtype(name));
}

ZeroOptions zero_options(const ParallelJob& job) {
  ZeroOptions options;
  options.ranks = job.ranks;
  options.prefetch_bucket = job.own.integer(kPrefetchBucket);
  options.persistence_threshold = job.own.integer(kPersistence);
  options.max_live = job.own.integer(kMaxLive);
  options.max_reuse = job.own.integer(kMaxReuse);
  options.reduce_bucket = job.own.integer(kReduceBucket);
  options.overlaps = job.own.flag(kOverlap);
  options.param_dtype = zero_dtype_of(job.own, kZeroParamDtype);
  options.reduce_dtype = zero_dtype_of(job.own, kZeroReduceDtype);
  return options;
}

TrainedModel modular_model(const ParallelJob& job, const StepOps& ops) {
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  add_leaf_modules(job.model, ops, model);
  return model;
}

/// Elements that a micro-batch gathers.
std::int64_t gathered_elements(const TrainedModel& model, const ZeroOptions& options) {
  const ModuleTrace trace = module_trace(model, module_runs(model), options, true);
  return sum_of(trace.fetches, [&](const ModuleFetch& fetch) {
    const auto elements = [&](int parameter) { return model.elements(parameter); };
    return sum_of(fetch.fetched, elements) + sum_of(fetch.prefetched, elements);
  });
}

/// Whether a shorter reuse distance than DeepSpeed's frees less than it would without prefetches.
bool keeps_passed_over(const ParallelJob& job) {
  ZeroOptions options = zero_options(job);
  if (job.ranks == 1 || job.model_is_unknown || options.max_reuse >= ZeroOptions{}.max_reuse) {
    return false;
  }
  const TrainedModel model = modular_model(job, step_ops(job.model));
  const std::int64_t gathered = gathered_elements(model, options);
  options.prefetch_bucket = 0;
  return gathered < gathered_elements(model, options);
}

/// `hidden`: what transformers puts in the place of "auto".
OwnKey size_key(const char* name, std::string meaning, std::int64_t fallback, std::string hidden) {
  OwnKey key{name, std::move(meaning), fallback};
  key.meant = [hidden = std::move(hidden)](const std::string& text) -> std::string {
    if (text == "auto") {
      throw InputError("\"auto\" is transformers': {}; write that number", hidden);
    }
    throw InputError("'{}': expected a number of elements, such as 50000000", printable(text));
  };
  return key;
}

}  // namespace

std::vector<OwnKey> DeepSpeedZero::keys() const {
  const std::vector<OwnKey> of_fsdp2 = fsdp2_keys();
  const auto shared = [&](const char* name) {
    return *std::ranges::find(of_fsdp2, name, &OwnKey::name);
  };
  OwnKey stage{kStage, "DeepSpeed's `stage`: 3; 1 and 2 are `ddp.zero_stage`", std::int64_t{3}};
  stage.most = 3;
  stage.meant = [](const std::string& text) -> std::string {
    throw InputError(
        "'{}': DeepSpeed has no {} for its stage; write 3, which shards all, or kind = "
        "\"ddp\" and ddp.zero_stage = 1 or 2",
        printable(text),
        text == "auto" ? "\"auto\"" : "such word");
  };
  OwnKey bucket = size_key(
      kReduceBucket,
      "DeepSpeed: gradients are reduce-scattered together up to so many elements; a larger one is "
      "alone",
      500'000'000,
      "hidden_size * hidden_size");
  bucket.least = 1;
  std::vector<OwnKey> keys = {
      stage,
      size_key(kPrefetchBucket,
               "DeepSpeed: elements of later modules that a module gathers ahead; 0: none",
               50'000'000,
               "0.9 * hidden_size * hidden_size"),
      size_key(kPersistence,
               "DeepSpeed: parameters of at most so many elements stay on all ranks, and are "
               "gathered once a step, after the optimizer",
               100'000,
               "10 * hidden_size"),
      size_key(kMaxLive,
               "DeepSpeed: nothing is gathered ahead where so many elements are gathered",
               1'000'000'000,
               "1e9, the default"),
      size_key(
          kMaxReuse,
          "DeepSpeed: a parameter that is used again within so many elements is not freed, nor "
          "is one that a prefetch has passed over since it was there",
          1'000'000'000,
          "1e9, the default"),
      bucket,
      OwnKey{kOverlap,
             "DeepSpeed: gathers and reductions have streams of their own; false: their copies, "
             "and waits for reductions, are on the compute stream",
             true}};
  keys.push_back(shared(kZeroParamDtype));
  keys.push_back(shared(kZeroReduceDtype));
  return keys;
}

std::optional<KeyRefusal> DeepSpeedZero::refusal(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  const std::int64_t stage = job.own.integer(kStage);
  const char* const of_ddp = "belongs to DDP's reducer; zero has none";
  return first_refusal(
      {{stage == 0, kStage, "0 shards nothing: write kind = \"ddp\""},
       {stage != 3,
        kStage,
        fmt::format("{} is not simulated as DeepSpeed runs it; write kind = \"ddp\" and "
                    "ddp.zero_stage = {}",
                    stage,
                    stage)},
       {ddp.zero_stage > 0, "zero_stage", "belongs to DDP; zero is stage 3 by itself"},
       {ddp.hook != CommunicationHook::None, "communication_hook", of_ddp},
       {!ddp.join_steps.empty(),
        "join",
        "DeepSpeed has no join(): ranks with fewer steps hang the others"},
       {ddp.optimizer_in_backward, "optimizer_in_backward", of_ddp},
       {ddp.mixed_param_dtype.has_value(),
        "mixed_precision",
        "is DDP's; say param_dtype and reduce_dtype in [parallel]"},
       {ddp.optimize_ddp != OptimizeDdp::Eager, "optimize_ddp", of_ddp},
       {!ddp.unused_parameters.empty(), "unused_parameters", of_ddp}});
}

ParallelFacts DeepSpeedZero::facts(const ParallelJob& job) const {
  ParallelFacts facts;
  facts.iterations.rebuilds = false;
  facts.alike = true;
  facts.first_steps =
      (kUnknownBatches + job.ddp.accumulation_steps - 1) / job.ddp.accumulation_steps;
  Communicator all;
  if (job.gloo) {
    all.workers = 2;
    all.shares_links = true;
  }
  facts.communicators = {all};
  facts.fixed_units =
      "parallel.kind = \"zero\" gathers by module and reduces by parallel.reduce_bucket_size";
  return facts;
}

/// What is reduced together.
BucketLists DeepSpeedZero::buckets(const ParallelJob& job) const {
  const TrainedModel model = modular_model(job, step_ops(job.model));
  BucketLists lists;
  for (std::vector<int>& bucket : reduce_buckets(model, zero_options(job).reduce_bucket)) {
    lists.initial.push_back({std::move(bucket), 0});
  }
  lists.rebuilt = lists.initial;
  return lists;
}

ParallelParts DeepSpeedZero::parts(const ParallelJob& job, const StepOps& ops) const {
  ParallelParts parts;
  parts.model = modular_model(job, ops);
  parts.buckets = buckets(job);
  std::int64_t own = 0;
  for (int parameter = 0; parameter < static_cast<int>(parts.model.parameters.size());
       ++parameter) {
    own += padded_to_ranks(parts.model.elements(parameter), job.ranks) / job.ranks;
  }
  parts.owned.assign(at(job.ranks), own);
  return parts;
}

StepProgram DeepSpeedZero::program(const ParallelJob& job,
                                   const ParallelParts& parts,
                                   const StepHost& host,
                                   const StepPrices& prices,
                                   const StepWork& step) const {
  return zero_program(parts.model, zero_options(job), host, prices, step);
}

/// A bound. Of each element of the shard as much as where parameters, gradients and moments have
/// the model's type: with `param_dtype = "bf16"` DeepSpeed has fp32 parameters and moments, and
/// parameters and gradients of bf16, which is the same 16 bytes. Beside it: what is gathered at a
/// time, by the trace, and the copies of one gather; parameters that stay; the gradients of one
/// module; the buffer of the bucket, which is there whatever the model's size, and the copies that
/// one reduction makes of it.
MemoryOptions DeepSpeedZero::memory(const ParallelJob& job) const {
  MemoryOptions memory;
  memory.optimizer_shards = memory.gradient_shards = memory.parameter_shards = job.ranks;
  memory.gradient_as_bucket_view = true;
  const ZeroOptions options = zero_options(job);
  const TrainedModel model = modular_model(job, step_ops(job.model));
  const std::int64_t gathered =
      options.param_dtype ? element_size(*options.param_dtype) : model.element_bytes;
  const std::int64_t reduced =
      options.reduce_dtype ? element_size(*options.reduce_dtype) : gathered;
  memory.casts_weights = gathered > 2;
  if (job.ranks == 1) {
    return memory;
  }
  const ModuleTrace trace = module_trace(model, module_runs(model), options, true);
  std::int64_t persistent = 0;
  for (int parameter = 0; parameter < static_cast<int>(model.parameters.size()); ++parameter) {
    persistent += is_persistent(model, options, parameter) ? model.elements(parameter) : 0;
  }
  const auto elements_of = [&](const std::vector<int>& parameters) {
    return sum_of(parameters, [&](int parameter) { return model.elements(parameter); });
  };
  const std::int64_t module = max_of(model.units, elements_of, std::int64_t{0});
  const std::int64_t bucket =
      max_of(reduce_buckets(model, options.reduce_bucket), elements_of, std::int64_t{0});
  const std::int64_t casts = reduced == gathered ? 1 : 2;
  memory.gathered = Bytes((trace.most_live + trace.largest_gather + persistent) * gathered +
                          (module + options.reduce_bucket) * gathered + casts * bucket * reduced);
  return memory;
}

std::vector<TunedKey> DeepSpeedZero::tuned_keys(const ParallelJob& job) const {
  if (job.ranks == 1) {
    return {};
  }
  return {{std::string("parallel.") + kPrefetchBucket,
           {std::to_string(job.own.integer(kPrefetchBucket)), "50000000", "500000000"}}};
}

std::vector<std::string> DeepSpeedZero::assumptions(const ParallelJob& job) const {
  std::vector<std::string> all = {
      "zero follows the sources of DeepSpeed 0.19.6, and no run has confirmed it; the host's own "
      "time in its hooks counts as nothing, and memory is a bound"};
  const int first = facts(job).first_steps;
  const int counted = std::min(first, job.steps) - job.warmup_steps;
  if (job.ranks > 1 && counted > 0) {
    all.push_back(fmt::format(
        "{} of the steps that the mean is made of come before DeepSpeed knows the order of the "
        "modules, and gather nothing ahead: scenario.warmup_steps = {} leaves them out",
        counted,
        first));
  }
  if (keeps_passed_over(job)) {
    all.push_back(fmt::format(
        "parameters stay gathered beyond {} = {}, since prefetches have passed over their next use "
        "while they were there, as in DeepSpeed: a smaller {}, or {} = 0, frees them",
        kMaxReuse,
        job.own.integer(kMaxReuse),
        kMaxLive,
        kPrefetchBucket));
  }
  return all;
}

std::vector<GradientWork> DeepSpeedZero::gradient_work(const ParallelJob& /*job*/,
                                                       const StepOps& /*ops*/) const {
  return {};
}

const Parallelism& deepspeed_zero() {
  static const DeepSpeedZero kDeepSpeedZero;
  return kDeepSpeedZero;
}

}  // namespace stepsim
