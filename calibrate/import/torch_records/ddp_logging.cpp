#include "calibrate/import/torch_records/ddp_logging.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/trimmed.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

/// A time of the logger in nanoseconds; 0 where it measured none.
double milliseconds(JsonReader& data, const std::string& key) {
  constexpr double kHour = 3.6e6;
  const double ms = data.not_negative_or(key, 0) * 1e-6;
  if (ms > kHour) {
    data.fail(key, fmt::format("{} ms is more than an hour", ms));
  }
  return ms;
}

std::optional<DdpStepTimes> read_times(JsonReader& data, const std::string& lead) {
  const DdpStepTimes times = {
      milliseconds(data, lead + "forward_compute_time"),
      milliseconds(data, lead + "backward_compute_time"),
      milliseconds(data, lead + "backward_comm_time"),
      milliseconds(data, lead + "backward_compute_comm_overlap_time"),
  };
  return times.forward > 0 || times.backward > 0 ? std::optional(times) : std::nullopt;
}

/// "267280, 264704" as numbers.
std::vector<std::int64_t> read_sizes(JsonReader& data, const std::string& key) {
  std::vector<std::int64_t> sizes;
  std::string_view left =
      trimmed(data.get(key).is_string() ? data.get(key).get_ref<const std::string&>() : "");
  while (!left.empty()) {
    const std::size_t comma = left.find(',');
    const std::string word(trimmed(left.substr(0, comma)));
    const auto size = parse_number<std::int64_t>(word);
    if (!size || *size < 0) {
      data.fail(key, fmt::format("'{}' is no size in bytes", printable(word)));
    }
    sizes.push_back(*size);
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
  return sizes;
}

DdpLogging read_one(const std::string& file) {
  const std::string text = read_text(file);
  const Json json = parse_json(text, file);
  if (!json.is_object() || !json.contains("bucket_sizes") || !json.contains("world_size")) {
    throw InputError(SourcePlace{file},
                     "expected what json.dump(ddp._get_ddp_logging_data(), file) writes: an object "
                     "with \"bucket_sizes\" and \"world_size\"");
  }
  constexpr int kMostRanks = 1'000'000;
  JsonReader data(json, file, 0, "", &text);
  DdpLogging one;
  one.file = file;
  one.world_size = data.integer_in("world_size", 1, kMostRanks);
  one.rank = data.integer_in("rank", 0, one.world_size - 1);
  one.backend = data.text_or("backend_name", "");
  one.module = data.text_or("module_name", "");
  one.iteration = data.integer_or("iteration", 0);
  one.last = read_times(data, "");
  one.mean = read_times(data, "avg_");
  one.bucket_cap_bytes = data.integer_or("bucket_cap_bytes", 0);
  one.parameter_bytes = data.integer_or("total_parameter_size_bytes", 0);
  one.tensors = data.integer_or("num_parameter_tensors", 0);
  one.rebuilt = data.integer_or("has_rebuilt_buckets", 0) > 0 && data.has("rebuilt_bucket_sizes");
  one.buckets = read_sizes(data, one.rebuilt ? "rebuilt_bucket_sizes" : "bucket_sizes");
  for (const char* flag : {"find_unused_parameters",
                           "gradient_as_bucket_view",
                           "static_graph",
                           "has_sync_bn",
                           "broadcast_buffers"}) {
    if (data.integer_or(flag, 0) > 0) {
      one.settings.emplace_back(flag);
    }
  }
  return one;
}

std::string ms_text(double ms) {
  return fmt::format("{:.2f}", ms);
}

Json times_json(const std::optional<DdpStepTimes>& times) {
  return times ? Json({{"forward_ms", times->forward},
                       {"backward_ms", times->backward},
                       {"communication_ms", times->communication},
                       {"overlap_ms", times->overlap},
                       {"exposed_ms", times->exposed()}})
               : Json(nullptr);
}

}  // namespace

std::vector<DdpLogging> read_ddp_logging(const std::vector<std::string>& files) {
  std::vector<DdpLogging> ranks;
  for (const std::string& file : files) {
    DdpLogging one = read_one(file);
    const auto same = std::ranges::find(ranks, one.rank, &DdpLogging::rank);
    if (same != ranks.end()) {
      throw InputError(
          SourcePlace{file}, "a second file of rank {}, as {}", one.rank, printable(same->file));
    }
    if (!ranks.empty() &&
        (one.world_size != ranks.front().world_size || one.buckets != ranks.front().buckets)) {
      throw InputError(SourcePlace{file},
                       "other ranks or other buckets than {}: not of one run",
                       printable(ranks.front().file));
    }
    ranks.push_back(std::move(one));
  }
  std::ranges::sort(ranks, {}, &DdpLogging::rank);
  return ranks;
}

std::string ddp_logging_report(std::span<const DdpLogging> ranks, const Screen& screen) {
  Table table(
      {"rank", "", "forward ms", "backward ms", "communication ms", "overlap ms", "exposed ms"});
  for (const DdpLogging& one : ranks) {
    for (const auto& [name, times] : {std::pair("last", one.last), std::pair("mean", one.mean)}) {
      if (times) {
        table.add({std::to_string(one.rank),
                   name,
                   ms_text(times->forward),
                   ms_text(times->backward),
                   ms_text(times->communication),
                   ms_text(times->overlap),
                   ms_text(times->exposed())});
      }
    }
  }
  const DdpLogging& first = ranks.front();
  std::string text = fmt::format("{} of {} ranks, {}, {} at iteration {}\n",
                                 ranks.size(),
                                 first.world_size,
                                 first.backend.empty() ? "?" : printable(first.backend),
                                 first.module.empty() ? "?" : printable(first.module),
                                 first.iteration);
  const bool any =
      std::ranges::any_of(ranks, [](const DdpLogging& one) { return one.last.has_value(); });
  text += any ? table.text(screen) +
                    "last: the step before the last one; mean: of the steps that the logger "
                    "measured. A backward's time holds no wait behind its last gradient, the "
                    "communication holds the wait for other ranks\n"
              : "note: no step was measured: DDP does so in its first ten, later after "
                "ddp._set_ddp_runtime_logging_sample_rate(1)\n";
  text += fmt::format("\n{} gradient bucket{} in the order of their reduction, bytes: {}\n",
                      first.buckets.size(),
                      first.buckets.size() == 1 ? "" : "s",
                      fmt::join(first.buckets, ", "));
  text += fmt::format("of {} tensors, {} bytes; limit {}\n",
                      first.tensors,
                      first.parameter_bytes,
                      format_bytes(Bytes(first.bucket_cap_bytes)));
  if (!first.rebuilt) {
    text += "note: these are the buckets of the first step; DDP rebuilds them after it\n";
  }
  if (!first.settings.empty()) {
    text += fmt::format("on: {}\n", fmt::join(first.settings, ", "));
  }
  const std::optional<DdpStepTimes>& times = first.mean ? first.mean : first.last;
  if (times) {
    text += fmt::format(
        "\n[times] of a scenario with this batch: forward = \"{:.3f} ms\", backward = \"{:.3f} "
        "ms\"; the optimizer is not in it\n",
        times->forward,
        times->backward);
  }
  // A stated limit would be the first bucket's, too.
  constexpr std::int64_t kDefaultCap = std::int64_t{25} << 20U;
  if (first.bucket_cap_bytes > 0 && first.bucket_cap_bytes != kDefaultCap) {
    text += fmt::format("[ddp] bucket_cap = \"{} B\"\n", first.bucket_cap_bytes);
  }
  return text +
         "\nnext: one step's times say nothing of other batches: record some dozens of steps with "
         "stepsim_recorder.py, then stepsim advise RUN.jsonl\n";
}

Json ddp_logging_json(std::span<const DdpLogging> ranks) {
  Json json = {{"format", "stepsim-ddp-logging/1"}, {"ranks", Json::array()}};
  for (const DdpLogging& one : ranks) {
    json["ranks"].push_back({{"rank", one.rank},
                             {"world_size", one.world_size},
                             {"backend", one.backend},
                             {"module", one.module},
                             {"iteration", one.iteration},
                             {"last", times_json(one.last)},
                             {"mean", times_json(one.mean)},
                             {"bucket_cap_bytes", one.bucket_cap_bytes},
                             {"parameter_bytes", one.parameter_bytes},
                             {"tensors", one.tensors},
                             {"rebuilt", one.rebuilt},
                             {"buckets", one.buckets},
                             {"settings", one.settings}});
  }
  return json;
}

}  // namespace stepsim
