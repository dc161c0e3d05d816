#include "sim/study/starter/recorded_settings.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_lines.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/cap_lists.h"

namespace stepsim {

Json told(const RunRecord& record, const char* table, const char* member) {
  const Json& training = *record.training;
  return training.contains(table) && training[table].is_object()
             ? training[table].value(member, Json())
             : Json();
}

namespace {

using Limits = std::vector<std::int64_t>;

/// The version from which on a stated cap limits the first bucket, too.
constexpr std::pair kFirstCapFollows{2, 11};

bool told_true(const RunRecord& record, const char* table, const char* member) {
  const Json value = told(record, table, member);
  return value.is_boolean() && value.get<bool>();
}

/// A limit of DDP's buckets as the record states it; nothing where that is none.
std::optional<Bytes> told_cap(const RunRecord& record, const char* key) {
  const Json cap = told(record, "ddp", key);
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 60U;
  const bool is_cap = cap.is_number_unsigned() && cap.get<std::uint64_t>() > 0 &&
                      cap.get<std::uint64_t>() <= kLargest;
  return is_cap ? std::optional(Bytes(cap.get<std::int64_t>())) : std::nullopt;
}

/// {2, 4} for "2.4.1+cu121"; nothing when the record names no version.
std::pair<int, int> torch_version(const RunRecord& record) {
  const Json& versions = *record.versions;
  std::pair<int, int> version{0, 0};
  if (versions.is_object() && versions.contains("torch") && versions["torch"].is_string()) {
    const auto text = versions["torch"].get<std::string>();
    const char* end = text.data() + text.size();
    const auto major = std::from_chars(text.data(), end, version.first);
    if (major.ptr < end) {
      std::from_chars(major.ptr + 1, end, version.second);
    }
  }
  return version;
}

/// The version of DDP's rules, as `ddp.torch` names it.
const char* rules_of(std::pair<int, int> version) {
  if (version == std::pair{0, 0}) {
    return "2.4";
  }
  if (version < std::pair{1, 13}) {
    return "1.8";
  }
  if (version < std::pair{2, 0}) {
    return "1.13";
  }
  return version < kFirstCapFollows ? "2.4" : "newest";
}

/// Sizes of the buckets of the first step after DDP has rebuilt them; empty where none has any.
Limits recorded_sizes(const RunRecord& record) {
  for (const StepRecord& step : record.steps) {
    if (step.step > 0 && step.step >= record.warmup_steps && !step.buckets.empty()) {
      return mapped(last_buckets(step), &BucketRecord::bytes);
    }
  }
  return {};
}

/// The gradients of a record, and what DDP does with them.
struct Gradients {
  std::vector<BucketParameter> parameters;
  bool rebuilt = true;  ///< False: the buckets stay those in order of registration.

  [[nodiscard]] std::vector<Bucket> buckets(const Limits& limits) const {
    if (!rebuilt) {
      return initial_buckets(parameters, true, limits);
    }
    std::vector<int> order(parameters.size());
    std::iota(order.rbegin(), order.rend(), 0);
    return rebuilt_buckets(parameters, order, limits, false);
  }
  [[nodiscard]] Limits sizes(const Limits& limits) const {
    return mapped(buckets(limits),
                  [&](const Bucket& bucket) { return bucket_bytes(bucket, parameters); });
  }
};

/// They are taken to become ready in reverse order of registration. None where the record does not
/// describe its model.
Gradients recorded_gradients(const RunRecord& record) {
  const Json described = told(record, "model", "parameters");
  Gradients result;
  result.rebuilt = told_true(record, "ddp", "static_graph") ||
                   !told_true(record, "ddp", "find_unused_parameters");
  if (!described.is_array()) {
    return result;
  }
  for (const Json& parameter : described) {
    if (!parameter.is_object() || parameter.value("frozen", Json(false)) == true) {
      continue;
    }
    const Json shape = parameter.value("shape", Json());
    const Json dtype = parameter.value("dtype", Json());
    if (!shape.is_array() || !dtype.is_string()) {
      return {};
    }
    try {
      std::int64_t bytes = element_size(parse_dtype(dtype.get<std::string>()));
      for (const Json& extent : shape) {
        bytes *= extent.get<std::int64_t>();
      }
      result.parameters.push_back({bytes, dtype.get<std::string>(), false});
    } catch (const std::exception&) {
      return {};  // The import says what is wrong with it.
    }
  }
  return result;
}

/// A list of limits that makes buckets of these sizes, of round numbers where they do; none where
/// no list does.
std::optional<Limits> limits_that_make(const Gradients& gradients, const Limits& sizes) {
  const auto ranges = limit_ranges(gradients.parameters, gradients.buckets(sizes));
  if (!ranges) {
    return std::nullopt;
  }
  const Limits limits = mapped(
      *ranges, [](const CapRange& range) { return parse_bytes(mib_text(range) + " MiB").value(); });
  return gradients.sizes(limits) == sizes ? std::optional(limits) : std::nullopt;
}

/// The list of limits that the header states; empty where it states none.
Limits told_list(const RunRecord& record) {
  const Json list = told(record, "ddp", "bucket_cap_list_bytes");
  const auto is_limit = [](const Json& limit) {
    return limit.is_number_integer() && limit.get<std::int64_t>() > 0;
  };
  return list.is_array() && std::ranges::all_of(list, is_limit) ? list.get<Limits>() : Limits();
}

/// Whether buckets of these sizes have reached their limits, whatever the order of the gradients;
/// the last one need not.
bool may_have_made(const Limits& limits, const Limits& sizes) {
  for (std::size_t b = 0; b + 1 < sizes.size(); ++b) {
    if (sizes[b] < limits[std::min(b, limits.size() - 1)]) {
      return false;
    }
  }
  return true;
}

/// DDP's bucket_cap_mb_list, or the limits of the first bucket and of all others.
struct BucketLimits {
  Limits limits;
  bool is_list = false;
};

BucketLimits limits_of(const RunRecord& record, bool newest) {
  if (Limits list = told_list(record); !list.empty()) {
    return {std::move(list), true};
  }
  const std::int64_t cap =
      told_cap(record, "bucket_cap_bytes").value_or(Bytes(kDefaultBucketCapBytes)).value();
  const std::int64_t first =
      told_cap(record, "first_bucket_bytes").value_or(Bytes(kDefaultFirstBucketBytes)).value();
  // Recorders that did not know of lists wrote 1 MiB for the first bucket, whatever it was.
  const Json& training = *record.training;
  const bool says_first = training.contains("ddp") && training["ddp"].is_object() &&
                          training["ddp"].contains("bucket_cap_list_bytes");
  const bool follows = newest && !says_first && cap != kDefaultBucketCapBytes;
  const Limits told_limits = {follows ? cap : first, cap};
  const Limits sizes = recorded_sizes(record);
  const Gradients gradients = recorded_gradients(record);
  if (sizes.empty() || gradients.parameters.empty()) {
    return {told_limits, false};
  }
  for (const Limits& limits :
       {told_limits, Limits{cap, cap}, Limits{kDefaultFirstBucketBytes, cap}}) {
    if (gradients.sizes(limits) == sizes) {
      return {limits, false};
    }
  }
  if (!newest || !gradients.rebuilt || may_have_made(told_limits, sizes)) {
    return {told_limits, false};
  }
  const auto list = limits_that_make(gradients, sizes);
  return {list ? *list : sizes, true};
}

/// Exact, unlike format_bytes(), which rounds.
std::string size_text(std::int64_t bytes) {
  const std::string text = format_bytes(Bytes(bytes));
  return parse_bytes(text) == Bytes(bytes) ? fmt::format("\"{}\"", text)
                                           : fmt::format("\"{} B\"", bytes);
}

std::string limits_text(const RunRecord& record, bool newest) {
  const auto [limits, is_list] = limits_of(record, newest);
  if (is_list) {
    return fmt::format("bucket_caps = [{}]  # bucket_cap_mb_list\n",
                       fmt::join(mapped(limits, size_text), ", "));
  }
  const bool is_told = told_cap(record, "bucket_cap_bytes").has_value();
  const bool is_default =
      limits[0] == kDefaultFirstBucketBytes && limits[1] == kDefaultBucketCapBytes;
  if (newest && is_default) {
    return "# No bucket_cap: DDP's default of 25 MiB, with a first bucket of 1 MiB. A stated one "
           "would "
           "limit\n# the first bucket, too.\n";
  }
  std::string text = fmt::format("bucket_cap = {}{}\n",
                                 size_text(limits[1]),
                                 is_told ? "" : "  # PyTorch's default; the record does not say");
  if (newest ? limits[0] != limits[1] : told_cap(record, "first_bucket_bytes").has_value()) {
    text += fmt::format("first_bucket_cap = {}\n", size_text(limits[0]));
  }
  return text;
}

}  // namespace

std::string ddp_text(const RunRecord& record) {
  const std::pair<int, int> version = torch_version(record);
  std::string text = fmt::format("[ddp]\ntorch = \"{}\"\n", rules_of(version));
  text += limits_text(record, version >= kFirstCapFollows);
  for (const char* flag : {"gradient_as_bucket_view", "static_graph", "find_unused_parameters"}) {
    if (told_true(record, "ddp", flag)) {
      text += fmt::format("{} = true\n", flag);
    }
  }
  const Json broadcast = told(record, "ddp", "broadcast_buffers");
  if (broadcast.is_boolean() && !broadcast.get<bool>()) {
    text += "broadcast_buffers = false\n";
  }
  if (told_true(record, "ddp", "batched_grad_copy") && version >= kFirstCapFollows) {
    text += "batched_grad_copy = true\n";
  }
  if (told_true(record, "ddp", "lazy_bucket_allocation")) {
    text += "# lazy_bucket_allocation: no effect on times; memory is counted without it.\n";
  }
  if (told_true(record, "ddp", "skip_all_reduce_unused_params")) {
    text += "# skip_all_reduce_unused_params: here buckets of unused tensors are reduced.\n";
  }
  if (version != std::pair{0, 0} && version < std::pair{2, 0}) {
    text += "set_to_none = false  # zero_grad()'s default before PyTorch 2.0\n";
  }
  return text;
}

std::string parallel_text(const RunRecord& record) {
  if (!is_sharded(record)) {
    return "";
  }
  std::string text = "[parallel]  # as fully_shard was called\nkind = \"fsdp2\"\n";
  for (const char* key : {"units",
                          "reshard_after_forward",
                          "kept_units",
                          "replicas",
                          "param_dtype",
                          "reduce_dtype"}) {
    const Json value = told(record, "parallel", key);
    if (value.is_string() || value.is_number_integer()) {
      text += fmt::format(
          "{} = {}\n", key, value.is_string() ? json_text(value.get<std::string>()) : value.dump());
    }
  }
  constexpr std::pair kFirst{2, 4};
  constexpr std::pair kNewest{2, 15};  // Its rules are the default, and hold for later ones.
  if (const auto version = torch_version(record); version >= kFirst && version < kNewest) {
    text += fmt::format("torch = \"{}.{}\"\n", version.first, version.second);
  }
  if (const Json notes = told(record, "parallel", "notes"); notes.is_array()) {
    for (const Json& note : notes) {
      text += note.is_string() ? fmt::format("# {}\n", printable(note.get<std::string>())) : "";
    }
  }
  return text;
}

}  // namespace stepsim
