#include "calibrate/measure/measure_probe.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "calibrate/measure/clock.h"
#include "calibrate/measure/measure_rank.h"
#include "calibrate/ranks/launched_group.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr std::int64_t kSmallBytes = 1024;
constexpr std::int64_t kLargeBytes = std::int64_t{4} << 20U;

std::vector<std::string> kind_names(const std::vector<CollectiveKind>& kinds) {
  return mapped(kinds, [&](const CollectiveKind kind) { return std::string(name_of(kind)); });
}

/// Median seconds on this rank, waiting for the other ranks included.
double time_all_reduce(Backend& backend, std::int64_t bytes) {
  constexpr int kRepetitions = 5;
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const CollectiveTimes times =
        backend.time_collective(CollectiveKind::AllReduce, Bytes(bytes), 1);
    seconds.push_back(times.end - times.arrival);
  }
  return median(seconds);
}

Json host_json(const std::optional<HostCosts>& costs) {
  if (!costs) {
    return nullptr;
  }
  const Json copies = mapped(costs->host_to_device, [](const auto& copy) -> Json {
    return {{"bytes", copy.first}, {"us", copy.second * 1e6}};
  });
  return {{"launch_us", costs->launch_seconds * 1e6},
          {"kernel_floor_us", costs->kernel_floor_seconds * 1e6},
          {"queue_depth", costs->queue_depth},
          {"host_to_device", copies}};
}

/// Median seconds that it takes to time the ops of a batch: at least their own, and all that is
/// done around them.
double wall_seconds(Backend& backend, const BatchLengths& lengths) {
  constexpr int kRepetitions = 2;
  StepTimes times(backend);
  times.time_elements();
  std::vector<double> seconds;
  for (int i = -1; i < kRepetitions; ++i) {
    backend.barrier();
    const double start = clock_seconds();
    const double ops = sum_of(times.at(lengths).value_or(std::vector<double>{}));
    if (i >= 0) {
      seconds.push_back(std::max(clock_seconds() - start, ops));
    }
  }
  return median(seconds);
}

void prepare_one(Backend& backend, const BatchLengths& lengths) {
  for (const RefusedBatch& refused : backend.prepare({&lengths, 1})) {
    throw EnvironmentFault("a step of {} x {} tokens cannot run here: {}",
                           lengths.size(),
                           lengths.front(),
                           refused.why);
  }
}

Json probe_rank(const RankContext& context,
                const MeasureRequest& request,
                const BackendFactory& factory,
                const BatchLengths& small,
                const BatchLengths& large) {
  const double start = clock_seconds();
  const std::unique_ptr<Backend> backend = factory(context, request.model, request.buckets);
  // The first shape loads libraries, which counts as the start; the second tells what a shape
  // costs.
  prepare_one(*backend, small);
  const double started = clock_seconds();
  prepare_one(*backend, large);
  const double prepared = clock_seconds();
  const double large_step = wall_seconds(*backend, large);
  Json line = {{"start", started - start},
               {"prepare", std::max(0.0, prepared - started - large_step)},
               {"cores", std::thread::hardware_concurrency()},
               {"local_ranks", std::max(1, context.ranks() / context.nodes())},
               {"large", large_step},
               {"small", wall_seconds(*backend, small)},
               {"collectives", kind_names(backend->collectives())},
               {"times_ops", !backend->ops().ops.empty()},
               {"small_reduce", time_all_reduce(*backend, kSmallBytes)},
               {"large_reduce", time_all_reduce(*backend, kLargeBytes)}};
  line["host"] = host_json(backend->host_costs());
  line["description"] = backend->description();
  return line;
}

}  // namespace

Probe probe(const MeasureRequest& request, const BackendFactory& factory) {
  const BatchLengths large = sentinel_lengths(request.model);
  const BatchLengths small(2, std::max<std::int64_t>(1, large.front() / 8));
  Json answer;
  run_ranks(
      request.ranks,
      [&](const RankContext& context) {
        context.send(probe_rank(context, request, factory, small, large).dump());
      },
      [&](int rank, const std::string& line) {
        if (rank == 0) {
          answer = parse_json(line, "probe");
        }
      },
      request.launched);
  if (request.launched != nullptr && !request.launched->leads()) {
    return {};
  }
  const auto flops = [&](const std::vector<std::int64_t>& lengths) {
    return training_flops(
        request.model, static_cast<std::int64_t>(lengths.size()), lengths.front());
  };
  const auto seconds = [&answer](const char* key) { return answer.at(key).get<double>(); };
  Probe result;
  result.description = answer.at("description");
  result.host = answer.at("host");
  StepEstimate& estimate = result.estimate;
  estimate.start_seconds = seconds("start");
  // All ranks of a machine build at once, on its cores.
  estimate.prepare_cores = std::max(1.0, seconds("cores")) / seconds("local_ranks");
  estimate.prepare_seconds = seconds("prepare") * std::min(1.0, estimate.prepare_cores);
  estimate.seconds_per_flop =
      std::max(0.0, seconds("large") - seconds("small")) / (flops(large) - flops(small));
  estimate.fixed_seconds =
      std::max(0.0, seconds("small") - estimate.seconds_per_flop * flops(small));
  estimate.times_ops = answer.at("times_ops").get<bool>();
  estimate.collective_latency = seconds("small_reduce");
  estimate.collective_seconds_per_byte =
      std::max(0.0, seconds("large_reduce") - seconds("small_reduce")) /
      static_cast<double>(kLargeBytes - kSmallBytes);
  estimate.collectives.clear();
  for (const auto& name : answer.at("collectives")) {
    estimate.collectives.push_back(parse_collective_kind(name.get<std::string>()));
  }
  return result;
}

std::vector<std::string> not_measured(int ranks) {
  return ranks > 1 ? std::vector<std::string>{}
                   : std::vector<std::string>{"times of collectives",
                                              "stretch of a transfer beside compute",
                                              "skew between ranks"};
}

Json samples_header(const MeasureRequest& request, const MeasurePlan& plan, const Probe& probe) {
  const auto host_memory =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const Json& description = *probe.description;
  Json header = {
      {"format", "stepsim-samples/1"},
      {"device", description.value("device", std::string("unknown device"))},
      {"versions", description},
      {"memory_bytes_per_rank", description.value("memory_bytes", host_memory / request.ranks)},
      {"started_at", request.date},
      {"command", request.command},
      {"sentinel_lengths", sentinel_lengths(request.model)},
      {"not_measured", not_measured(request.ranks)},
      {"plan", plan_json(plan)}};
  if (description.contains("multiprocessors")) {
    header["multiprocessors"] = description.at("multiprocessors");
  }
  if (!probe.host->is_null()) {
    header["host"] = *probe.host;
  }
  return header;
}

void require_same_request(const SampleFile& file,
                          const MeasureRequest& request,
                          const Json& header) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, bool same) {
    if (!same) {
      differences.emplace_back(what);
    }
  };
  compare("model", file.plan.model == request.model);
  compare("ranks", file.plan.ranks == request.ranks);
  compare("device", file.header->value("device", "") == header.at("device").get<std::string>());
  compare("range of batches", file.plan.box == request.box);
  compare("buckets", file.plan.buckets == request.buckets);
  compare("budget", file.plan.budget_seconds == request.budget_seconds);
  compare("seed", file.plan.seed == request.seed);
  if (differences.empty()) {
    return;
  }
  throw InputError(SourcePlace{request.out},
                   "holds measurements of another request (different: {}); choose "
                   "another file with --out, or remove this one",
                   fmt::join(differences, ", "));
}

}  // namespace stepsim
