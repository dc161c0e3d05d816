#include "calibrate/measure/measure_rank.h"

#include <algorithm>
#include <cassert>
#include <map>

#include <nlohmann/json.hpp>

#include "calibrate/measure/clock.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr std::size_t kPointsPerSentinel = 10;
constexpr int kCollectiveWarmUps = 2;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

RankCollectiveTimes measure_collective(Backend& backend,
                                       const RankPass& pass,
                                       const CollectiveTask& task) {
  RankCollectiveTimes times;
  times.task = task;
  backend.barrier();
  const int repetitions = collective_repetitions(task, pass.bucket_bytes);
  for (int i = -kCollectiveWarmUps; i < repetitions; ++i) {
    const CollectiveTimes once =
        backend.time_collective(task.kind, Bytes(task.bytes), collective_calls(task));
    if (i >= 0) {
      times.arrival.push_back(once.arrival);
      times.end.push_back(once.end);
      times.sound.push_back(once.sound);
    }
  }
  return times;
}

}  // namespace

int collective_repetitions(const CollectiveTask& task,
                           const std::vector<std::int64_t>& bucket_bytes) {
  if (task.kind == CollectiveKind::AllReduce && !task.pipelined &&
      std::ranges::find(bucket_bytes, task.bytes) != bucket_bytes.end()) {
    return 16;
  }
  return task.bytes <= kMiB ? 4 : (task.bytes <= 16 * kMiB ? 3 : 2);
}

int collective_calls(const CollectiveTask& task) {
  return !task.pipelined ? 1 : (task.bytes < kMiB ? 20 : 5);
}

void StepTimes::time_elements() {
  const std::vector<Op>& ops = backend_.ops().ops;
  for (std::size_t kind = 0; kind < ops.size(); ++kind) {
    if (ops[kind].rows == RowUnit::Elements) {
      elements_[kind] = backend_.time_op(ops[kind], {1});
    }
  }
}

std::optional<std::vector<double>> StepTimes::at(const BatchLengths& lengths) {
  const std::vector<Op>& ops = backend_.ops().ops;
  std::vector<double> seconds;
  for (std::size_t kind = 0; kind < ops.size(); ++kind) {
    const bool is_fixed = ops[kind].rows == RowUnit::Elements;
    const std::optional<double> one =
        is_fixed ? elements_[kind] : backend_.time_op(ops[kind], lengths);
    if (!one) {
      return std::nullopt;
    }
    seconds.push_back(*one);
  }
  return seconds;
}

std::optional<double> StepTimes::sum_at(const BatchLengths& lengths) {
  const std::optional<std::vector<double>> seconds = at(lengths);
  if (!seconds) {
    return std::nullopt;
  }
  double sum = 0;
  for (std::size_t kind = 0; kind < seconds->size(); ++kind) {
    sum += backend_.ops().counts[kind] * (*seconds)[kind];
  }
  return sum;
}

std::optional<double> time_sentinel(Backend& backend, const BatchLengths& lengths) {
  StepTimes times(backend);
  std::vector<double> sums;
  for (int i = -1; i < kSentinelRepetitions; ++i) {
    backend.barrier();
    times.time_elements();
    const std::optional<double> sum = times.sum_at(lengths);
    if (i >= 0 && sum) {
      sums.push_back(*sum);
    }
  }
  return sums.empty() ? std::nullopt : std::optional(median(sums));
}

std::vector<GridPoint> prepare_points(Backend& backend,
                                      const RankPass& pass,
                                      const SendLine& send) {
  // The sentinel is prepared with the points, as the last.
  std::vector<BatchLengths> batches = mapped(
      pass.points, [&pass](const GridPoint& point) { return point_lengths(point, pass.padded); });
  batches.push_back(pass.sentinel);
  const double start = clock_seconds();
  const std::vector<RefusedBatch> refused = backend.prepare(batches);
  const bool leads = pass.rank == 0;
  if (leads && !backend.prepared_plans().empty()) {
    send(prepared_line(pass.pass, clock_seconds() - start, backend.prepared_plans()));
  }
  std::vector<GridPoint> points;
  auto next = refused.begin();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (next == refused.end() || next->index != i) {
      if (i < pass.points.size()) {
        points.push_back(pass.points[i]);
      }
      continue;
    }
    if (i == pass.points.size()) {
      throw EnvironmentFault("the sentinel step of {} x {} tokens cannot run here: {}",
                             pass.sentinel.size(),
                             pass.sentinel.front(),
                             next->why);
    }
    if (leads) {
      send(refused_line(pass.pass, {pass.points[i], next->why}));
    }
    ++next;
  }
  return points;
}

namespace {

/// One rank's share of a pass under way.
class RankMeasurement {
 public:
  RankMeasurement(Backend& backend, const RankPass& pass, const SendLine& send)
      : backend_(backend), pass_(pass), send_(send) {}

  void time_ops() {
    if (pass_.rank == 0) {
      send_(pass_json(pass_.pass, backend_.ops()).dump());
    }
    const std::vector<GridPoint> points = prepare_points(backend_, pass_, send_);
    StepTimes times(backend_);
    for (int repetition = 0; repetition < pass_.repetitions; ++repetition) {
      times.time_elements();
      for (std::size_t i = 0; i < points.size(); ++i) {
        if (i % kPointsPerSentinel == 0 && repetition == 0) {
          sentinel();
        }
        time_point(points[i], times);
      }
    }
  }

  void time_collectives() {
    for (const CollectiveTask& task : pass_.collectives) {
      send_(rank_times_line(measure_collective(backend_, pass_, task)));
    }
    if (!pass_.overlaps_kept) {
      return;
    }
    const std::int64_t largest = *std::ranges::max_element(pass_.bucket_bytes);
    const std::vector<OverlapSample> samples = backend_.overlaps(Bytes(largest));
    for (std::size_t i = *pass_.overlaps_kept; pass_.rank == 0 && i < samples.size(); ++i) {
      send_(overlap_line(pass_.pass, samples[i]));
    }
  }

  void sentinel() {
    if (const auto seconds = time_sentinel(backend_, pass_.sentinel)) {
      send_(sentinel_line(pass_.pass, pass_.rank, now(), *seconds));
    }
  }

  void tell_disturbances() {
    const Disturbances now = backend_.disturbances();
    if (now != told_) {
      send_(disturbed_line(pass_.pass,
                           pass_.rank,
                           {now.dropped - told_.dropped,
                            now.throttled - told_.throttled,
                            now.cooled_seconds - told_.cooled_seconds}));
      told_ = now;
    }
  }

 private:
  [[nodiscard]] double now() const { return clock_seconds() + pass_.clock_offset; }

  void time_point(const GridPoint& point, StepTimes& times) {
    const BatchLengths lengths = point_lengths(point, pass_.padded);
    const std::optional<std::vector<double>> seconds = times.at(lengths);
    tell_disturbances();
    if (seconds) {
      send_(step_line(pass_.pass, pass_.rank, now(), batch_shape(lengths), {*seconds}));
    }
  }

  Backend& backend_;
  const RankPass& pass_;
  const SendLine& send_;
  Disturbances told_;
};

}  // namespace

void measure_rank_pass(Backend& backend, const RankPass& pass, const SendLine& send) {
  RankMeasurement measurement(backend, pass, send);
  const bool times_ops = !backend.ops().ops.empty();
  if (times_ops) {
    measurement.time_ops();
  }
  measurement.time_collectives();
  if (times_ops) {
    measurement.sentinel();
  }
  measurement.tell_disturbances();
}

Json rank_pass_json(const RankPass& pass) {
  const Json points = mapped(pass.points, [](const GridPoint& point) -> Json {
    return {point.samples, point.length};
  });
  const Json collectives = mapped(pass.collectives, [](const CollectiveTask& task) -> Json {
    return {name_of(task.kind), task.bytes, task.pipelined};
  });
  return {{"pass", pass.pass},
          {"ranks", pass.ranks},
          {"repetitions", pass.repetitions},
          {"points", points},
          {"padded", pass.padded},
          {"collectives", collectives},
          {"bucket_bytes", pass.bucket_bytes},
          {"buckets", pass.buckets},
          {"sentinel", pass.sentinel},
          {"overlaps_kept", pass.overlaps_kept ? Json(*pass.overlaps_kept) : Json(nullptr)}};
}

RankPass rank_pass_from_json(const Json& json) {
  RankPass pass;
  json.at("pass").get_to(pass.pass);
  json.at("ranks").get_to(pass.ranks);
  json.at("repetitions").get_to(pass.repetitions);
  pass.points = mapped(json.at("points"), [](const Json& point) {
    return GridPoint{point.at(0).get<std::int64_t>(), point.at(1).get<std::int64_t>()};
  });
  json.at("padded").get_to(pass.padded);
  pass.collectives = mapped(json.at("collectives"), [](const Json& task) {
    return CollectiveTask{parse_collective_kind(task.at(0).get<std::string>()),
                          task.at(1).get<std::int64_t>(),
                          task.at(2).get<bool>()};
  });
  json.at("bucket_bytes").get_to(pass.bucket_bytes);
  json.at("buckets").get_to(pass.buckets);
  json.at("sentinel").get_to(pass.sentinel);
  if (!json.at("overlaps_kept").is_null()) {
    pass.overlaps_kept = json.at("overlaps_kept").get<std::size_t>();
  }
  return pass;
}

std::string prepared_line(int pass, double seconds, const std::vector<PreparedPlan>& plans) {
  const Json list = mapped(plans, [](const PreparedPlan& plan) -> Json {
    return {{"shape", plan.shape},
            {"forward_engine", plan.forward_engine},
            {"backward_engine", plan.backward_engine},
            {"workspace_bytes", plan.workspace_bytes},
            {"seconds", plan.seconds}};
  });
  const Json line = {{"kind", "prepared"}, {"pass", pass}, {"seconds", seconds}, {"plans", list}};
  return line.dump();
}

std::string disturbed_line(int pass, int rank, const Disturbances& since) {
  const Json line = {{"kind", "disturbed"},
                     {"pass", pass},
                     {"rank", rank},
                     {"dropped", since.dropped},
                     {"throttled", since.throttled},
                     {"cooled_seconds", since.cooled_seconds}};
  return line.dump();
}

std::string rank_times_line(const RankCollectiveTimes& times) {
  const Json line = {{"kind", "rank_times"},
                     {"op", name_of(times.task.kind)},
                     {"bytes", times.task.bytes},
                     {"pipelined", times.task.pipelined},
                     {"arrival_seconds", times.arrival},
                     {"end_seconds", times.end},
                     {"sound", times.sound}};
  return line.dump();
}

RankCollectiveTimes rank_times_from_json(const Json& line) {
  return {{parse_collective_kind(line.at("op").get<std::string>()),
           line.at("bytes").get<std::int64_t>(),
           line.at("pipelined").get<bool>()},
          line.at("arrival_seconds").get<std::vector<double>>(),
          line.at("end_seconds").get<std::vector<double>>(),
          line.at("sound").get<std::vector<bool>>()};
}

std::vector<double> combine_ranks(const std::vector<RankCollectiveTimes>& ranks) {
  const int calls = collective_calls(ranks.front().task);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < ranks.front().arrival.size(); ++i) {
    double arrival = ranks.front().arrival[i];
    double end = ranks.front().end[i];
    if (!std::ranges::all_of(ranks,
                             [i](const RankCollectiveTimes& times) { return times.sound[i]; })) {
      continue;
    }
    for (const RankCollectiveTimes& times : ranks) {
      assert(times.task == ranks.front().task && times.end.size() > i);
      arrival = std::max(arrival, times.arrival[i]);
      end = std::max(end, times.end[i]);
    }
    seconds.push_back(std::max(0.0, end - arrival) / calls);
  }
  return seconds;
}

}  // namespace stepsim
