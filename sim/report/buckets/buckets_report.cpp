#include "sim/report/buckets/buckets_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/table.h"
#include "sim/predict/bucket_lists.h"

namespace stepsim {

namespace {

Json lists_json(const std::vector<Bucket>& buckets) {
  return mapped(buckets, &Bucket::parameters);
}

Json bytes_json(const std::vector<Bucket>& buckets,
                const std::vector<BucketParameter>& parameters) {
  return mapped(buckets, [&](const Bucket& bucket) { return bucket_bytes(bucket, parameters); });
}

std::string bytes_text(const std::vector<Bucket>& buckets,
                       const std::vector<BucketParameter>& parameters) {
  std::string text;
  for (const Bucket& bucket : buckets) {
    text += (text.empty() ? "" : ", ") + std::to_string(bucket_bytes(bucket, parameters));
  }
  return text;
}

std::vector<Bucket> rebuilt_of(const BucketCase& one) {
  return rebuilt_buckets(one.parameters, one.ready_order, one.limits(), false);
}

std::string table_text(const std::vector<Bucket>& buckets,
                       const std::vector<BucketParameter>& sizes,
                       const std::vector<Parameter>& tensors,
                       const Screen& screen,
                       const char* what = "bucket") {
  Table table({what, "bytes", "size", "tensors", "first ready", "last ready"});
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t bytes = bucket_bytes(buckets[b], sizes);
    const auto& list = buckets[b].parameters;
    table.add({std::to_string(b),
               std::to_string(bytes),
               format_bytes(Bytes(bytes)),
               std::to_string(list.size()),
               tensors[static_cast<std::size_t>(list.front())].name,
               tensors[static_cast<std::size_t>(list.back())].name});
  }
  return table.text(screen);
}

/// "cap 25 MiB", or "caps 1 MiB, 25 MiB"; or the rule that needs none.
std::string caps_text(const DdpOptions& ddp) {
  if (ddp.bucket_rule == BucketRule::PerParameter) {
    return "a bucket for each tensor";
  }
  if (ddp.bucket_rule == BucketRule::Single) {
    return "one bucket for all";
  }
  if (ddp.bucket_caps.empty()) {
    return "cap " + format_bytes(ddp.bucket_cap);
  }
  return fmt::format("caps {}", fmt::join(mapped(ddp.bucket_caps, format_bytes), ", "));
}

/// The lists of the first iterations and of those after the rebuild, where there is one.
std::string lists_text(const DdpOptions& ddp,
                       const std::string& initial,
                       const std::string& rebuilt) {
  switch (first_rebuilt(ddp)) {
    case 0:
      return fmt::format(
          "every iteration{}\n{}",
          ddp.find_unused_parameters ? ": with find_unused_parameters nothing is rebuilt" : "",
          initial);
    case 2:
      return fmt::format(
          "first iteration\n{}\nrebuilt, from the second iteration on\n{}", initial, rebuilt);
    default:
      return fmt::format(
          "first two iterations\n{}\nrebuilt, from the third iteration on (static_graph)\n{}",
          initial,
          rebuilt);
  }
}

}  // namespace

std::string buckets_text(const Scenario& scenario, const BucketLists& lists, const Screen& screen) {
  const auto sizes = bucket_parameters(scenario.model);
  const auto tensors = parameters(scenario.model);
  if (!scenario.parallel->units_sweep().empty()) {
    return fmt::format(
        "{}: {} tensors, {} parameters, {} units, in the order of their reduction\n\n{}",
        scenario.model.name,
        tensors.size(),
        parameter_count(scenario.model),
        lists.rebuilt.size(),
        table_text(lists.rebuilt, sizes, tensors, screen, "unit"));
  }
  return fmt::format("{}: {} tensors, {} parameters, {}\n\n{}",
                     scenario.model.name,
                     tensors.size(),
                     parameter_count(scenario.model),
                     caps_text(scenario.ddp),
                     lists_text(scenario.ddp,
                                table_text(lists.initial, sizes, tensors, screen),
                                table_text(lists.rebuilt, sizes, tensors, screen)));
}

Json buckets_json(const Scenario& scenario, const BucketLists& lists) {
  const auto sizes = bucket_parameters(scenario.model);
  const int from = first_rebuilt(scenario.ddp);
  return {{"model", scenario.model.name},
          {"initial", lists_json(lists.initial)},
          {"initial_bytes", bytes_json(lists.initial, sizes)},
          {"rebuilt", lists_json(lists.rebuilt)},
          {"rebuilt_bytes", bytes_json(lists.rebuilt, sizes)},
          {"rebuilt_from_iteration", from > 0 ? Json(from) : Json(nullptr)}};
}

std::string buckets_csv(const Scenario& scenario, const BucketLists& lists) {
  const auto sizes = bucket_parameters(scenario.model);
  std::string csv = "bucket,bytes,tensors\n";
  for (std::size_t b = 0; b < lists.rebuilt.size(); ++b) {
    csv += fmt::format(
        "{},{},{}\n", b, bucket_bytes(lists.rebuilt[b], sizes), lists.rebuilt[b].parameters.size());
  }
  return csv;
}

std::string bucket_cases_text(const std::vector<BucketCase>& cases) {
  std::string text;
  for (const BucketCase& one : cases) {
    text += fmt::format("{}: {} tensors; rebuilt buckets in bytes: {}\n",
                        printable(one.name),
                        one.parameters.size(),
                        bytes_text(rebuilt_of(one), one.parameters));
  }
  return text;
}

Json bucket_cases_json(const std::vector<BucketCase>& cases) {
  Json result = Json::object();
  for (const BucketCase& one : cases) {
    const auto limits = one.limits();
    // A list of limits holds from the first iteration on.
    const auto initial = initial_buckets(one.parameters, !one.cap_list.empty(), limits);
    const auto limited = initial_buckets(one.parameters, true, limits);
    const auto rebuilt = rebuilt_of(one);
    result[one.name] = {{"initial", lists_json(initial)},
                        {"initial_find_unused", lists_json(limited)},
                        {"rebuilt", lists_json(rebuilt)},
                        {"rebuilt_bytes", bytes_json(rebuilt, one.parameters)}};
  }
  return result;
}

}  // namespace stepsim
