#include "calibrate/measure_start.h"

#include <algorithm>

#include <fmt/core.h>
#include <unistd.h>

#include "calibrate/measure_rank.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

Json host_json(const std::optional<HostCosts>& costs) {
  if (!costs) {
    return nullptr;
  }
  Json copies = Json::array();
  for (const auto& [bytes, seconds] : costs->host_to_device) {
    copies.push_back({{"bytes", bytes}, {"us", seconds * 1e6}});
  }
  return {{"launch_us", costs->launch_seconds * 1e6},
          {"kernel_floor_us", costs->kernel_floor_seconds * 1e6},
          {"queue_depth", costs->queue_depth},
          {"host_to_device", copies}};
}

}  // namespace

Probe probe(const MeasureRequest& request, const BackendFactory& factory) {
  const std::vector<std::int64_t> large = sentinel_lengths(request.model);
  const std::vector<std::int64_t> small(2, std::max<std::int64_t>(1, large.front() / 8));
  Json answer;
  run_ranks(
      request.ranks,
      [&](const RankContext& context) {
        const std::unique_ptr<Backend> backend = factory(context, request.model, request.buckets);
        Json line = {{"large", time_steps(*backend, large, 2)},
                     {"small", time_steps(*backend, small, 2)}};
        line["host"] = host_json(backend->host_costs());
        line["description"] = backend->description();
        context.send(line.dump());
      },
      [&](int rank, const std::string& line) {
        if (rank == 0) {
          answer = parse_json(line, "probe");
        }
      });
  const auto flops = [&](const std::vector<std::int64_t>& lengths) {
    return training_flops(
        request.model, static_cast<std::int64_t>(lengths.size()), lengths.front());
  };
  Probe result;
  result.description = answer.at("description");
  result.host = answer.at("host");
  const double difference = answer.at("large").get<double>() - answer.at("small").get<double>();
  StepEstimate& estimate = result.estimate;
  estimate.seconds_per_flop = std::max(0.0, difference) / (flops(large) - flops(small));
  estimate.fixed_seconds =
      std::max(0.0, answer.at("small").get<double>() - estimate.seconds_per_flop * flops(small));
  return result;
}

Json samples_header(const MeasureRequest& request, const MeasurePlan& plan, const Probe& probe) {
  const auto host_memory =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const Json& description = probe.description;
  Json header = {
      {"format", "stepsim-samples/1"},
      {"device", description.value("device", std::string("unknown device"))},
      {"versions", description},
      {"memory_bytes_per_rank", description.value("memory_bytes", host_memory / request.ranks)},
      {"started_at", request.date},
      {"command", request.command},
      {"sentinel_lengths", sentinel_lengths(request.model)},
      {"plan", plan_json(plan)}};
  if (description.contains("multiprocessors")) {
    header["multiprocessors"] = description.at("multiprocessors");
  }
  if (!probe.host.is_null()) {
    header["host"] = probe.host;
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
  compare("device", file.header.value("device", "") == header.at("device").get<std::string>());
  compare("range of batches", file.plan.box == request.box);
  compare("buckets", file.plan.buckets == request.buckets);
  compare("budget", file.plan.budget_seconds == request.budget_seconds);
  compare("seed", file.plan.seed == request.seed);
  if (differences.empty()) {
    return;
  }
  std::string list;
  for (const std::string& difference : differences) {
    list += (list.empty() ? "" : ", ") + difference;
  }
  throw InputError(fmt::format(
      "{}: error: holds measurements of another request (different: {}); choose another file with "
      "--out, or remove this one",
      request.out,
      list));
}

}  // namespace stepsim
