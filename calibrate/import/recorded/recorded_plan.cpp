#include "calibrate/import/recorded/recorded_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
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

/// Shares are whole numbers; a whole backward is divided into so many.
constexpr double kBackwardShares = 1e9;

/// Takes tensors of `bytes` in all from the front of `order`: gradients become ready nearly in that
/// order, so that a few of the tensors near the end may belong to the next bucket instead. Takes at
/// least one, leaves one for each of the `after` buckets behind, and where no choice gives just
/// `bytes`, the first ones that reach it.
std::vector<int> take_bucket(std::vector<int>& order,
                             std::int64_t bytes,
                             std::size_t after,
                             const std::function<std::int64_t(int)>& bytes_of) {
  constexpr std::size_t kNear = 16;
  const std::size_t most = order.size() - after;
  std::size_t reached = 0;
  std::int64_t sum = 0;
  while (reached < most && (reached == 0 || sum < bytes)) {
    sum += bytes_of(order[reached++]);
  }
  const auto taken = [&](std::size_t end, std::size_t a, std::size_t b) {
    std::vector<int> bucket;
    std::vector<int> rest;
    for (std::size_t i = 0; i < order.size(); ++i) {
      (i < end && i != a && i != b ? bucket : rest).push_back(order[i]);
    }
    order = std::move(rest);
    return bucket;
  };
  const std::size_t none = order.size();
  // Up to two tensors too many, within `kNear` of the end.
  std::int64_t all = 0;
  for (std::size_t end = 1; end <= std::min(order.size(), reached + kNear); ++end) {
    all += bytes_of(order[end - 1]);
    if (end > most + 2 || all < bytes) {
      continue;
    }
    if (all == bytes && end <= most) {
      return taken(end, none, none);
    }
    for (std::size_t near = 1; near <= std::min(end, kNear); ++near) {
      const std::size_t a = end - near;
      const std::int64_t without = all - bytes_of(order[a]);
      if (without == bytes && end - 1 <= most && end > 1) {
        return taken(end, a, none);
      }
      for (std::size_t b = a + 1; b < end && end > 2 && end - 2 <= most; ++b) {
        if (without - bytes_of(order[b]) == bytes) {
          return taken(end, a, b);
        }
      }
    }
  }
  return taken(reached, none, none);
}

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
        add_frozen(parameter, model);
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

  /// A frozen parameter counts in memory only. Quantized weights are as many bytes in halves.
  void add_frozen(JsonReader& parameter, TransformerConfig& model) const {
    const std::vector<std::int64_t> shape = parameter.integers("shape");
    const std::string own = parameter.text("dtype");
    if (elements_of(shape) == 0) {
      return;
    }
    const bool quantized = own.ends_with("8") || own.find("8_") != std::string::npos;
    if (quantized) {
      model.frozen.push_back({parameter.text("name"), {(elements_of(shape) + 1) / 2}, Dtype::F16});
    } else {
      model.frozen.push_back({parameter.text("name"), shape, parse_dtype(own)});
    }
  }

  /// Parameters by bucket, in launch order, filled from the last registered one on: to the recorded
  /// sizes, or where no step of rank 0 after the first has bucket times, as DDP fills them to its
  /// caps. Empty when the record has neither.
  [[nodiscard]] std::vector<std::vector<int>> buckets(const TransformerConfig& model) const {
    const std::int64_t size = element_size(model.parameter_dtype);
    const auto bytes_of = [&](int tensor) {
      return size * elements_of(model.tensors[at(tensor)].shape);
    };
    std::vector<int> order(model.tensors.size());
    std::iota(order.rbegin(), order.rend(), 0);
    std::vector<std::vector<int>> buckets;
    if (const StepRecord* step = steady_step()) {
      const std::vector<std::int64_t> sizes = mapped(last_buckets(*step), &BucketRecord::bytes);
      if (sizes.size() > order.size()) {
        fail(fmt::format("has {} buckets for {} trained tensors", sizes.size(), order.size()));
      }
      if (sum_of(sizes, std::identity()) > sum_of(order, bytes_of)) {
        fail("its buckets hold more bytes than its model's parameters");
      }
      while (buckets.size() + 1 < sizes.size()) {
        const std::size_t after = sizes.size() - buckets.size() - 1;
        buckets.push_back(take_bucket(order, sizes[buckets.size()], after, bytes_of));
        close_with_last(sizes[buckets.size() - 1], buckets.size() - 1, bytes_of, buckets.back());
      }
      buckets.push_back(order);
      return buckets;
    }
    const std::vector<std::int64_t> caps = bucket_caps();
    for (std::int64_t bytes = 0; const int tensor : order) {
      if (caps.empty()) {
        break;
      }
      if (buckets.empty() || bytes >= caps[std::min(buckets.size(), caps.size()) - 1]) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(tensor);
      bytes += bytes_of(tensor);
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
    if (ddp.has("bucket_cap_list_bytes") && !ddp.get("bucket_cap_list_bytes").is_null()) {
      return mapped(ddp.numbers("bucket_cap_list_bytes"),
                    [](double cap) { return static_cast<std::int64_t>(cap); });
    }
    for (const char* key : {"first_bucket_bytes", "bucket_cap_bytes"}) {
      if (ddp.has(key) && ddp.get(key).is_number_integer() && ddp.integer(key) > 0) {
        caps.push_back(ddp.integer(key));
      }
    }
    return caps;
  }

  /// A bucket closes with the tensor that reaches its limit. Which one that was is not recorded;
  /// where it cannot be the last one, since those before it reach the limit, the largest is put
  /// last: any limit that closed the bucket there still does.
  void close_with_last(std::int64_t bytes,
                       std::size_t number,
                       const std::function<std::int64_t(int)>& bytes_of,
                       std::vector<int>& bucket) const {
    const std::vector<std::int64_t> caps = bucket_caps();
    if (!caps.empty() &&
        bytes - bytes_of(bucket.back()) >= caps[std::min(number, caps.size() - 1)]) {
      std::ranges::iter_swap(std::ranges::max_element(bucket, {}, bytes_of), bucket.end() - 1);
    }
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

  /// Milliseconds that the earlier micro-batches waited for their buckets, of which each has
  /// `count`.
  [[nodiscard]] static double waits_before(const StepRecord& step, std::size_t count) {
    double sum = 0;
    for (std::size_t first = 0; first + count < step.buckets.size(); first += count) {
      double end = 0;
      for (std::size_t b = first; b < first + count; ++b) {
        end = std::max(end, step.buckets[b].end_ms);
      }
      sum += end - step.buckets[first + count - 1].launch_ms;
    }
    return sum;
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
        const double in_backwards = launched_at - waits_before(step, count);
        sum += std::clamp(parts * in_backwards / step.backward_ms - (parts - 1), 0.0, 1.0);
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

/// Whether DDP fills its buckets in the order in which gradients become ready.
bool rebuilds_buckets(const RunRecord& record) {
  const Json& training = *record.training;
  const auto is_set = [&](const char* flag) {
    return training.contains("ddp") && training["ddp"].value(flag, Json()) == true;
  };
  return is_set("static_graph") || !is_set("find_unused_parameters");
}

/// Reorders the tensors so that gradients become ready, from the last tensor on, as they lie in
/// `buckets`. [tensor as before]: its new number.
std::vector<int> order_by_readiness(const std::vector<std::vector<int>>& buckets,
                                    TransformerConfig& model) {
  std::vector<int> places(model.tensors.size());
  std::vector<TensorBlock> tensors(model.tensors.size());
  int next = static_cast<int>(places.size());
  for (const auto& bucket : buckets) {
    for (const int tensor : bucket) {
      places[at(tensor)] = --next;
      tensors[at(next)] = std::move(model.tensors[at(tensor)]);
    }
  }
  model.tensors = std::move(tensors);
  return places;
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
  // One model for all: each tensor's share of the backward is the mean of what records tell.
  const Plan from = plans[static_cast<std::size_t>(timed - files.begin())];
  TransformerConfig shared = from.model;
  for (std::size_t t = 0; t < shared.tensors.size(); ++t) {
    double sum = 0;
    double steps = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (has_bucket_times(files[i]) && differ_in_shares(from.model, plans[i].model)) {
        const auto weight = static_cast<double>(files[i].record.steps.size());
        sum += weight * static_cast<double>(plans[i].model.tensors[t].backward);
        steps += weight;
      }
    }
    shared.tensors[t].backward = std::llround(sum / steps);
  }
  std::vector<int> places(shared.tensors.size());
  std::iota(places.begin(), places.end(), 0);
  if (rebuilds_buckets(timed->record)) {
    places = order_by_readiness(from.buckets, shared);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (differ_in_shares(from.model, plans[i].model)) {
      plans[i].model = shared;
      if (!has_bucket_times(files[i])) {
        plans[i].buckets = from.buckets;
      }
      for (auto& bucket : plans[i].buckets) {
        for (int& tensor : bucket) {
          tensor = places[at(tensor)];
        }
      }
    }
  }
  return plans;
}

}  // namespace stepsim
