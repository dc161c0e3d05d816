#include "calibrate/measure/measure_rank.h"

#include <algorithm>
#include <cassert>
#include <map>

#include <nlohmann/json.hpp>

#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "calibrate/training/clock.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr std::size_t kPointsPerSentinel = 10;
constexpr int kCollectiveWarmUps = 2;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// [kind] Mean time over a kind's occurrences in the step.
std::vector<double> mean_by_kind(const StepOpKinds& kinds, const std::vector<double>& seconds) {
  std::vector<double> sums(kinds.ops.size(), 0.0);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    sums[kinds.kind_of[i]] += seconds[i];
  }
  for (std::size_t kind = 0; kind < sums.size(); ++kind) {
    sums[kind] /= kinds.counts[kind];
  }
  return sums;
}

/// Times of the job's own buckets, reduced behind every measured step.
using BucketTimes = std::map<CollectiveTask, RankTimes>;

void keep_times(RankTimes& all, const CollectiveTimes& once) {
  all.arrival.push_back(once.arrival);
  all.end.push_back(once.end);
  all.sound.push_back(once.sound);
}

/// One rank has nothing to reduce.
void reduce_buckets(Backend& backend, const RankPass& pass, BucketTimes* times) {
  if (pass.ranks == 1) {
    return;
  }
  for (const std::int64_t bytes : pass.bucket_bytes) {
    const CollectiveTimes once =
        backend.time_collective(CollectiveKind::AllReduce, Bytes(bytes), 1);
    if (times != nullptr) {
      const CollectiveTask task{CollectiveKind::AllReduce, bytes, false};
      RankTimes& all = (*times)[task];
      all.task = task;
      keep_times(all, once);
    }
  }
}

/// Each behind a training step and before the next one, as in use: between busy ranks the transfer
/// has to wait for a core now and then, and can take several times as long as between idle ones.
RankTimes measure_collective(Backend& backend, const RankPass& pass, const CollectiveTask& task) {
  RankTimes times;
  times.task = task;
  backend.barrier();
  const int repetitions = collective_repetitions(task, pass.bucket_bytes);
  for (int i = -kCollectiveWarmUps; i < repetitions; ++i) {
    static_cast<void>(backend.time_step(pass.sentinel));
    const CollectiveTimes once =
        backend.time_collective(task.kind, Bytes(task.bytes), collective_calls(task));
    if (i >= 0) {
      keep_times(times, once);
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

std::optional<double> time_steps(Backend& backend,
                                 const std::vector<std::int64_t>& lengths,
                                 int repetitions) {
  backend.barrier();
  static_cast<void>(backend.time_step(lengths));
  std::vector<double> totals;
  for (int i = 0; i < repetitions; ++i) {
    backend.barrier();
    const std::vector<double> seconds = backend.time_step(lengths);
    if (!seconds.empty()) {
      totals.push_back(sum_of(seconds));
    }
  }
  return totals.empty() ? std::nullopt : std::optional(median(totals));
}

std::vector<GridPoint> prepare_points(Backend& backend,
                                      const RankPass& pass,
                                      const SendLine& send) {
  // The sentinel is prepared with the points, as the last.
  std::vector<StepBatch> batches = mapped(pass.points, [&pass](const GridPoint& point) {
    return StepBatch{point_lengths(point, pass.padded), 0};
  });
  batches.push_back({pass.sentinel, 0});
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

void measure_rank_pass(Backend& backend, const RankPass& pass, const SendLine& send) {
  const StepOpKinds kinds = distinct_ops(backend.ops());
  const auto sentinel = [&] {
    if (const auto seconds = time_steps(backend, pass.sentinel, kSentinelRepetitions)) {
      send(sentinel_line(pass.pass, pass.rank, clock_seconds() + pass.clock_offset, *seconds));
    }
  };
  Disturbances told;
  const auto tell_disturbances = [&] {
    const Disturbances now = backend.disturbances();
    if (now != told) {
      send(disturbed_line(pass.pass,
                          pass.rank,
                          {now.dropped - told.dropped,
                           now.throttled - told.throttled,
                           now.cooled_seconds - told.cooled_seconds}));
      told = now;
    }
  };
  if (pass.rank == 0) {
    send(pass_line(pass.pass, kinds));
  }
  const std::vector<GridPoint> points = prepare_points(backend, pass, send);
  // The steps are those of a training run: another shape every time, and the gradients reduced in
  // between. One shape again and again would find warmer caches and idler neighbours than a run
  // does.
  BucketTimes bucket_times;
  for (int repetition = -1; repetition < pass.repetitions; ++repetition) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i % kPointsPerSentinel == 0 && repetition == 0) {
        sentinel();
      }
      const std::vector<std::int64_t> lengths = point_lengths(points[i], pass.padded);
      if (repetition < 0) {
        backend.warm_up(lengths);
        reduce_buckets(backend, pass, nullptr);
        continue;
      }
      const std::vector<double> seconds = backend.time_step(lengths);
      reduce_buckets(backend, pass, &bucket_times);
      tell_disturbances();
      if (!seconds.empty()) {
        send(step_line(pass.pass,
                       pass.rank,
                       clock_seconds() + pass.clock_offset,
                       batch_shape(lengths),
                       {mean_by_kind(kinds, seconds)}));
      }
    }
  }
  for (const CollectiveTask& task : pass.collectives) {
    const auto own = bucket_times.find(task);
    send(rank_times_line(own != bucket_times.end() ? own->second
                                                   : measure_collective(backend, pass, task)));
  }
  if (pass.overlaps_kept) {
    const std::int64_t largest = *std::ranges::max_element(pass.bucket_bytes);
    const std::vector<OverlapSample> samples = backend.overlaps(Bytes(largest));
    for (std::size_t i = *pass.overlaps_kept; pass.rank == 0 && i < samples.size(); ++i) {
      send(overlap_line(pass.pass, samples[i]));
    }
  }
  sentinel();
  tell_disturbances();
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

std::string rank_times_line(const RankTimes& times) {
  const Json line = {{"kind", "rank_times"},
                     {"op", name_of(times.task.kind)},
                     {"bytes", times.task.bytes},
                     {"pipelined", times.task.pipelined},
                     {"arrival_seconds", times.arrival},
                     {"end_seconds", times.end},
                     {"sound", times.sound}};
  return line.dump();
}

RankTimes rank_times_from_json(const Json& line) {
  return {{parse_collective_kind(line.at("op").get<std::string>()),
           line.at("bytes").get<std::int64_t>(),
           line.at("pipelined").get<bool>()},
          line.at("arrival_seconds").get<std::vector<double>>(),
          line.at("end_seconds").get<std::vector<double>>(),
          line.at("sound").get<std::vector<bool>>()};
}

std::vector<double> combine_ranks(const std::vector<RankTimes>& ranks) {
  const int calls = collective_calls(ranks.front().task);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < ranks.front().arrival.size(); ++i) {
    double arrival = ranks.front().arrival[i];
    double end = ranks.front().end[i];
    if (!std::ranges::all_of(ranks, [i](const RankTimes& times) { return times.sound[i]; })) {
      continue;
    }
    for (const RankTimes& times : ranks) {
      assert(times.task == ranks.front().task && times.end.size() > i);
      arrival = std::max(arrival, times.arrival[i]);
      end = std::max(end, times.end[i]);
    }
    seconds.push_back(std::max(0.0, end - arrival) / calls);
  }
  return seconds;
}

}  // namespace stepsim
