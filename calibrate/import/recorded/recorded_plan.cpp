#include "calibrate/import/recorded/recorded_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/recorded_batches.h"

namespace stepsim {
namespace {

/// The buckets that the last micro-batch of the step launched.
std::span<const BucketRecord> last_buckets(const StepRecord& step) {
  const std::span<const BucketRecord> all = step.buckets;
  return reduces_every_micro_batch(step)
             ? all.last(all.size() / static_cast<std::size_t>(step.micro_batches))
             : all;
}

/// Shares are whole numbers; a whole backward is divided into so many.
constexpr double kBackwardShares = 1e9;

class RecordReader {
 public:
  RecordReader(const RunRecord& record, const std::string& file) : record_(record), file_(file) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(SourcePlace{file_}, message);
  }

  /// The model as a chain of its trained tensors, without shares of the backward.
  [[nodiscard]] TransformerConfig model() const {
    if (!record_.training->contains("model")) {
      fail(
          "does not describe its model; record with Recorder(…, model=ddp), or give --plan, the "
          "plan that it ran");
    }
    JsonReader described((*record_.training)["model"], file_, 1, "model");
    TransformerConfig model;
    model.family = ModelFamily::Blocks;
    model.name = described.text("name");
    model.hidden = model.heads = model.kv_heads = model.ffn = model.vocab = 1;
    model.max_length = std::int64_t{1} << 20;
    std::string dtype;
    for (JsonReader& parameter : described.objects("parameters")) {
      if (parameter.boolean_or("frozen", false)) {
        continue;
      }
      model.tensors.push_back({parameter.text("name"), parameter.integers("shape"), 1, 1});
      const std::string own = parameter.text("dtype");
      if (!dtype.empty() && own != dtype) {
        fail(
            fmt::format("parameters of {} and {}; only models of one dtype are known", dtype, own));
      }
      dtype = own;
    }
    if (model.tensors.empty()) {
      fail("its model has no parameter that trains");
    }
    model.layers = static_cast<std::int64_t>(model.tensors.size());
    model.parameter_dtype = parse_dtype(dtype);
    model.dtype = model.parameter_dtype;
    model.attention = is_packed() ? AttentionKind::Varlen : AttentionKind::Dense;
    try {
      check(model);
    } catch (const FieldError& error) {
      fail(error.what());
    }
    for (TensorBlock& tensor : model.tensors) {
      tensor.forward = tensor.backward = elements_of(tensor.shape);
    }
    return model;
  }

  /// Parameters by bucket, in launch order, filled from the last registered one on: to the recorded
  /// sizes, or where no step of rank 0 after the first has bucket times, as DDP fills them to its
  /// caps. Empty when the record has neither.
  [[nodiscard]] std::vector<std::vector<int>> buckets(const TransformerConfig& model) const {
    const StepRecord* step = steady_step();
    const std::vector<std::int64_t> full_at =
        step != nullptr ? mapped(last_buckets(*step), &BucketRecord::bytes) : bucket_caps();
    const std::int64_t size = element_size(model.parameter_dtype);
    std::vector<std::vector<int>> buckets;
    auto next = static_cast<int>(model.tensors.size());
    while (!full_at.empty() && (step != nullptr ? buckets.size() < full_at.size() : next > 0)) {
      const bool takes_all = step != nullptr && buckets.size() + 1 == full_at.size();
      const std::int64_t full = full_at[std::min(buckets.size(), full_at.size() - 1)];
      buckets.emplace_back();
      std::int64_t bytes = 0;
      while (next > 0 && (takes_all || bytes < full)) {
        buckets.back().push_back(--next);
        bytes += size * elements_of(model.tensors[at(next)].shape);
      }
      if (buckets.back().empty()) {
        fail("its buckets hold more bytes than its model's parameters");
      }
    }
    return buckets;
  }

  /// Shares the backward out as the buckets were launched, on the mean of all steady steps.
  void share_backward(const std::vector<std::vector<int>>& buckets,
                      TransformerConfig& model) const {
    if (steady_step() == nullptr) {
      return;
    }
    double before = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const bool last = b + 1 == buckets.size();
      const double until = last ? 1 : std::max(before, launch_place(b, buckets.size()));
      double all = 0;
      for (const int tensor : buckets[b]) {
        all += static_cast<double>(elements_of(model.tensors[at(tensor)].shape));
      }
      for (const int tensor : buckets[b]) {
        TensorBlock& block = model.tensors[at(tensor)];
        const double share = (until - before) * static_cast<double>(elements_of(block.shape)) / all;
        block.backward = std::llround(kBackwardShares * share);
      }
      before = until;
    }
  }

 private:
  /// Whether all batches ran without padding although their lengths differ.
  [[nodiscard]] bool is_packed() const {
    bool differ = false;
    for (const StepRecord& step : record_.steps) {
      if (step.padded_tokens != step.useful_tokens) {
        return false;
      }
      differ = differ || step.useful_tokens != step.samples * step.max_length;
    }
    return differ;
  }

  /// The bytes at which DDP closes its first bucket and all others; empty where the record does not
  /// say.
  [[nodiscard]] std::vector<std::int64_t> bucket_caps() const {
    if (!record_.training->contains("ddp")) {
      return {};
    }
    JsonReader ddp((*record_.training)["ddp"], file_, 1, "ddp");
    std::vector<std::int64_t> caps;
    for (const char* key : {"first_bucket_bytes", "bucket_cap_bytes"}) {
      if (ddp.has(key) && ddp.get(key).is_number_integer() && ddp.integer(key) > 0) {
        caps.push_back(ddp.integer(key));
      }
    }
    return caps;
  }

  /// DDP rebuilds its buckets after the first step, which tells nothing of the later ones.
  [[nodiscard]] bool is_steady(const StepRecord& step) const {
    return step.step > 0 && step.step >= record_.warmup_steps;
  }

  [[nodiscard]] const StepRecord* steady_step() const {
    for (const StepRecord& step : record_.steps) {
      if (is_steady(step) && !step.buckets.empty()) {
        return &step;
      }
    }
    return nullptr;
  }

  /// The mean fraction of the backward after which bucket `b` of `count` was launched.
  [[nodiscard]] double launch_place(std::size_t b, std::size_t count) const {
    double sum = 0;
    double steps = 0;
    for (const StepRecord& step : record_.steps) {
      const std::span<const BucketRecord> recorded = last_buckets(step);
      if (is_steady(step) && recorded.size() == count && step.backward_ms > 0) {
        const double launched_at = recorded[b].launch_ms - step.data_ms - step.forward_ms;
        // The times are sums over the micro-batches, of which the last one launched these.
        const auto parts = static_cast<double>(step.micro_batches);
        sum += std::clamp(parts * launched_at / step.backward_ms - (parts - 1), 0.0, 1.0);
        steps += 1;
      }
    }
    return steps > 0 ? sum / steps : 0;
  }

  const RunRecord& record_;
  const std::string& file_;
};

bool has_bucket_times(const RecordFile& file) {
  return std::ranges::any_of(file.record.steps,
                             [](const StepRecord& step) { return !step.buckets.empty(); });
}

/// Whether the models differ in nothing but their tensors' shares of the passes.
bool differ_in_shares(const TransformerConfig& a, TransformerConfig b) {
  if (a.tensors.size() != b.tensors.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    b.tensors[i].forward = a.tensors[i].forward;
    b.tensors[i].backward = a.tensors[i].backward;
  }
  b.name = a.name;
  return a == b;
}

}  // namespace

Plan recorded_plan(const RunRecord& record, const std::string& file) {
  const RecordReader reader(record, file);
  Plan plan;
  plan.scenario = record.scenario;
  plan.policy = record.policy;
  plan.ranks = record.world_size;
  plan.warmup_steps = record.warmup_steps;
  plan.model = reader.model();
  plan.buckets = reader.buckets(plan.model);
  reader.share_backward(plan.buckets, plan.model);
  for (const StepRecord& step : record.steps) {
    plan.steps = std::max(plan.steps, step.step + 1);
    if (step.repeat == 0) {
      std::ranges::move(micro_batches_of(step, file), std::back_inserter(plan.micro_batches));
    }
  }
  return plan;
}

std::vector<Plan> recorded_plans(std::span<const RecordFile> files) {
  std::vector<Plan> plans =
      mapped(files, [](const RecordFile& file) { return recorded_plan(file.record, file.file); });
  const auto timed = std::ranges::find_if(files, has_bucket_times);
  if (timed == files.end()) {
    return plans;
  }
  const Plan& from = plans[static_cast<std::size_t>(timed - files.begin())];
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!has_bucket_times(files[i]) && differ_in_shares(from.model, plans[i].model)) {
      plans[i].model = from.model;
      plans[i].buckets = from.buckets;
    }
  }
  return plans;
}

}  // namespace stepsim
