#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/terminal/table.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/bucket_lists.h"

namespace stepsim {

namespace {

constexpr const char* kBucketsUsage =
    "usage: stepsim buckets SCENARIO [options]\n"
    "       stepsim buckets --params FILE [--json FILE|-]\n\n"
    "Prints the gradient buckets that PyTorch DDP makes: those of the first iteration and those\n"
    "after the rebuild, in launch order. --params reads parameter lists of the form {\"cases\": "
    "[{\"name\", \"params\":\n"
    "[{\"bytes\", \"dtype\", \"sparse\"}], \"ready_order\", \"first_bucket_bytes\", "
    "\"cap_bytes\"}]}.\n\n"
    "examples:\n"
    "  stepsim buckets scenarios/bucket_valley.toml --set ddp.bucket_cap=\"100 MiB\"\n"
    "  stepsim buckets --params my_model.json --json -\n";

/// One parameter list of a --params file.
struct BucketCase {
  std::string name;
  std::vector<BucketParameter> parameters;
  std::vector<int> ready_order;
  std::int64_t first_bytes = kDefaultFirstBucketBytes;
  std::int64_t cap_bytes = kDefaultBucketCapBytes;
};

void require_permutation(const JsonReader& reader, const BucketCase& bucket_case) {
  std::vector<bool> seen(bucket_case.parameters.size(), false);
  for (const int index : bucket_case.ready_order) {
    if (index < 0 || static_cast<std::size_t>(index) >= seen.size() ||
        seen[static_cast<std::size_t>(index)]) {
      reader.fail("ready_order", "must hold every parameter index exactly once");
    }
    seen[static_cast<std::size_t>(index)] = true;
  }
  if (bucket_case.ready_order.size() != seen.size()) {
    reader.fail("ready_order", "must hold every parameter index exactly once");
  }
}

BucketCase read_case(const Json& entry, const std::string& file, const std::string& place) {
  JsonReader reader(entry, file, 0, place);
  BucketCase result;
  result.name = reader.text("name");
  const Json& list = reader.get("params");
  if (!list.is_array() || list.empty()) {
    reader.fail("params", "expected a list of parameters");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonReader parameter(list[i], file, 0, place + ".params[" + std::to_string(i) + "]");
    BucketParameter one;
    one.bytes = parameter.integer("bytes");
    if (one.bytes <= 0) {
      parameter.fail("bytes", "must be positive");
    }
    one.dtype = parameter.text_or("dtype", "f32");
    one.sparse = parameter.boolean_or("sparse", false);
    result.parameters.push_back(std::move(one));
  }
  result.first_bytes = reader.integer_or("first_bucket_bytes", kDefaultFirstBucketBytes);
  result.cap_bytes = reader.integer_or("cap_bytes", kDefaultBucketCapBytes);
  if (result.first_bytes <= 0 || result.cap_bytes <= 0) {
    reader.fail("cap_bytes", "limits must be positive");
  }
  if (reader.has("ready_order")) {
    for (const Json& index : reader.get("ready_order")) {
      if (!index.is_number_integer()) {
        reader.fail("ready_order", "expected parameter indices");
      }
      result.ready_order.push_back(index.get<int>());
    }
    require_permutation(reader, result);
  } else {
    for (std::size_t i = result.parameters.size(); i-- > 0;) {
      result.ready_order.push_back(static_cast<int>(i));
    }
  }
  return result;
}

std::vector<BucketCase> read_cases(const std::string& path) {
  const Json file = parse_json(read_text(path), path);
  JsonReader reader(file, path, 0, "");
  const Json& list = reader.get("cases");
  if (!list.is_array()) {
    reader.fail("cases", "expected a list");
  }
  std::vector<BucketCase> cases;
  for (std::size_t i = 0; i < list.size(); ++i) {
    cases.push_back(read_case(list[i], path, "cases[" + std::to_string(i) + "]"));
  }
  return cases;
}

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

Answer buckets_of_file(const OptionParser& parser) {
  Json result = Json::object();
  std::string text;
  for (const BucketCase& one : read_cases(parser.text("params"))) {
    const auto initial = initial_buckets(one.parameters, false, one.first_bytes, one.cap_bytes);
    const auto limited = initial_buckets(one.parameters, true, one.first_bytes, one.cap_bytes);
    const auto rebuilt =
        rebuilt_buckets(one.parameters, one.ready_order, one.first_bytes, one.cap_bytes);
    result[one.name] = {{"initial", lists_json(initial)},
                        {"initial_find_unused", lists_json(limited)},
                        {"rebuilt", lists_json(rebuilt)},
                        {"rebuilt_bytes", bytes_json(rebuilt, one.parameters)}};
    text += fmt::format("{}: {} tensors; rebuilt buckets in bytes: {}\n",
                        printable(one.name),
                        one.parameters.size(),
                        bytes_text(rebuilt, one.parameters));
  }
  Answer answer;
  answer.outputs = parser.outputs();
  answer.text = [=](const Screen&) { return text; };
  answer.json = [=] { return result; };
  return answer;
}

std::string table_text(const std::vector<Bucket>& buckets,
                       const std::vector<BucketParameter>& sizes,
                       const std::vector<Parameter>& tensors,
                       const Screen& screen) {
  Table table({"bucket", "bytes", "size", "tensors", "first ready", "last ready"});
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

/// "cap 25 MiB", or "caps 1 MiB, 25 MiB".
std::string caps_text(const DdpOptions& ddp) {
  if (ddp.bucket_caps.empty()) {
    return "cap " + format_bytes(ddp.bucket_cap);
  }
  return fmt::format("caps {}", fmt::join(mapped(ddp.bucket_caps, format_bytes), ", "));
}

}  // namespace

Answer buckets_command(const Request& request) {
  OptionParser parser("buckets", kBucketsUsage, request);
  parser.add_common();
  parser.add({{"params", option_text(), "FILE or -: parameter lists (JSON)"}});
  if (!parser.parse()) {
    return {};
  }
  if (parser.has("params")) {
    if (parser.has("scenario")) {
      parser.fail("give a scenario or --params, not both");
    }
    return buckets_of_file(parser);
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  if (scenario.model_is_unknown) {
    throw InputError("model.kind: {} is not there yet, and it holds the model",
                     printable(scenario.profile));
  }
  const DdpBuckets lists = bucket_lists(scenario);
  const auto sizes = bucket_parameters(scenario.model);
  const auto tensors = parameters(scenario.model);
  Answer answer;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return fmt::format(
        "{}: {} tensors, {} parameters, {}\n\nfirst iteration\n{}\n"
        "rebuilt, from the second iteration on\n{}",
        scenario.model.name,
        tensors.size(),
        parameter_count(scenario.model),
        caps_text(scenario.ddp),
        table_text(lists.initial, sizes, tensors, screen),
        table_text(lists.rebuilt, sizes, tensors, screen));
  };
  answer.json = [=]() -> Json {
    return {{"model", scenario.model.name},
            {"initial", lists_json(lists.initial)},
            {"initial_bytes", bytes_json(lists.initial, sizes)},
            {"rebuilt", lists_json(lists.rebuilt)},
            {"rebuilt_bytes", bytes_json(lists.rebuilt, sizes)}};
  };
  answer.csv = [=] {
    std::string csv = "bucket,bytes,tensors\n";
    for (std::size_t b = 0; b < lists.rebuilt.size(); ++b) {
      csv += fmt::format("{},{},{}\n",
                         b,
                         bucket_bytes(lists.rebuilt[b], sizes),
                         lists.rebuilt[b].parameters.size());
    }
    return csv;
  };
  return answer;
}

}  // namespace stepsim
