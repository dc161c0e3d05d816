#include "calibrate/import/step_times/step_time_job.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "calibrate/import/recorded/recorded_buckets.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/host_floor.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {
namespace {

/// The expected largest of `count` standard normal numbers, by quadrature over the distribution of
/// the maximum.
double expected_maximum(int count) {
  constexpr double kReach = 8;
  constexpr int kIntervals = 400;
  constexpr double kStep = 2 * kReach / kIntervals;
  double sum = 0;
  double before = 0;
  for (int i = 1; i <= kIntervals; ++i) {
    const double x = -kReach + i * kStep;
    const double below = std::pow(0.5 * std::erfc(-x / std::sqrt(2.0)), count);
    sum += (below - before) * (x - kStep / 2);
    before = below;
  }
  return sum;
}

using Key = std::pair<std::int64_t, std::int64_t>;  ///< Batch and length.

/// How much longer a micro-batch's passes are on the slowest of these ranks, as a fraction. Between
/// the micro-batches nobody waits: the ranks' sums differ, of batches that are independent.
double lateness(double spread, int ranks, std::int64_t micro_batches) {
  return spread > 0 && ranks > 1
             ? spread * expected_maximum(ranks) / std::sqrt(static_cast<double>(micro_batches))
             : 0;
}

/// The passes of one micro-batch, without the optimizer, in parts of a batch's compute.
double passes_of_compute() {
  return 1 - step_time_priors()[kOptimizer].mean;
}

/// The micro-batches of a row as batches of a rank alone: one has the optimizer.
double whole_batches(const StepTimeRow& row) {
  return 1 + static_cast<double>(row.micro_batches - 1) * passes_of_compute();
}

/// Raises InputError where waiting for data, and what a rank alone shows as exposed, leave nothing.
void check_parts(const StepTimeTable& table, const StepTimeRow& row) {
  const bool alone = row.placement.ranks() == 1;
  const double data = row.data_s.value_or(0);
  const double sync = alone ? row.sync_s.value_or(0) : 0;
  if (!(row.step_s > data + sync)) {
    throw InputError(
        SourcePlace{table.path, row.line},
        fmt::format("{}: of a step of {:g} s, {:g} s of waiting for data{} leave "
                    "nothing for compute; correct them, which are parts of the step",
                    configuration_of(row, table.has_lengths),
                    row.step_s,
                    data,
                    alone ? fmt::format(" and {:g} s of exposed communication", sync) : ""));
  }
}

/// Tokens of a batch, by which the compute of other batches is guessed.
double tokens_of(const ComputePoint& point) {
  return static_cast<double>(point.batch) * static_cast<double>(point.length);
}

/// The compute of a point that was not timed: in proportion to the tokens of the nearest one that
/// was; on the line through two, where batches have one length. 0 where none was.
double neighbours_compute(const ComputePoint& point, const std::vector<ComputePoint>& all) {
  std::vector<const ComputePoint*> timed;
  for (const ComputePoint& other : all) {
    if (other.timed) {
      timed.push_back(&other);
    }
  }
  if (timed.empty()) {
    return 0;
  }
  const double tokens = tokens_of(point);
  std::ranges::sort(timed, {}, [&](const ComputePoint* other) {
    return std::abs(std::log(tokens_of(*other) / tokens));
  });
  const ComputePoint& nearest = *timed.front();
  const double in_proportion = nearest.seconds * tokens / tokens_of(nearest);
  const bool one_length = std::ranges::all_of(
      all, [&](const ComputePoint& other) { return other.length == point.length; });
  if (timed.size() == 1 || !one_length) {
    return in_proportion;
  }
  // The neighbours: one to either side, or the two nearest ends.
  std::ranges::sort(timed, {}, [](const ComputePoint* other) { return other->batch; });
  std::size_t above = 1;
  while (above + 1 < timed.size() && timed[above]->batch < point.batch) {
    ++above;
  }
  const ComputePoint& low = *timed[above - 1];
  const ComputePoint& high = *timed[above];
  const double slope =
      std::max(0.0, (high.seconds - low.seconds) / (tokens_of(high) - tokens_of(low)));
  const double on_line = low.seconds + slope * (tokens - tokens_of(low));
  // Below all of them noise may make the line steeper than proportion, which nothing is.
  return point.batch < low.batch ? std::max(on_line, in_proportion) : on_line;
}

/// What a token's compute is taken to be where no rank was timed alone, and the standard deviation
/// of its logarithm.
struct ComputeGuess {
  double seconds = 0;
  double deviation = 0;
};

/// From the row in which a token takes least. On the published T4, whose ranks were timed alone,
/// too, compute is 0.89 to 0.98 of such a step on one node, and 0.43 to 0.94 of one on several.
ComputeGuess guessed_of_token(const StepTimeTable& table) {
  constexpr ComputeGuess kOneNode = {0.93, 0.15};
  constexpr ComputeGuess kSeveralNodes = {2.0 / 3, 0.5};
  double least = 0;
  const StepTimeRow* of = nullptr;
  for (const StepTimeRow& row : table.rows) {
    const double seconds =
        step_of_each(row) / (static_cast<double>(row.batch) * static_cast<double>(row.length));
    if (of == nullptr || seconds < least) {
      least = seconds;
      of = &row;
    }
  }
  const ComputeGuess& part = of->placement.nodes() == 1 ? kOneNode : kSeveralNodes;
  return {part.seconds * least, part.deviation};
}

void add_compute(const StepTimeTable& table, StepTimeJob& job) {
  std::map<Key, std::vector<double>> alone;
  std::map<Key, double> shortest;
  std::vector<double> rests;
  std::vector<double> waits;
  for (const StepTimeRow& row : table.rows) {
    if (row.placement.ranks() == 1) {
      rests.push_back(row.sync_s.value_or(0));
      waits.push_back(row.data_s.value_or(0));
    }
  }
  job.rest_s = rests.empty() ? 0 : median(rests);
  job.data_s = waits.empty() ? 0 : median(waits);
  for (const StepTimeRow& row : table.rows) {
    check_parts(table, row);
    const Key key = {row.batch, row.length};
    const double step = step_of_each(row);
    const auto known = shortest.try_emplace(key, step).first;
    known->second = std::min(known->second, step);
    if (row.placement.ranks() == 1) {
      alone[key].push_back(step - row.sync_s.value_or(0) / whole_batches(row));
    }
  }
  for (const auto& [key, step] : shortest) {
    const auto timed = alone.find(key);
    job.compute.push_back({key.first,
                           key.second,
                           timed == alone.end() ? 0 : median(timed->second),
                           timed != alone.end()});
  }
  const ComputeGuess of_token = guessed_of_token(table);
  double smallest = 1e300;  // Tokens of a batch that was timed alone.
  for (const ComputePoint& point : job.compute) {
    smallest = point.timed ? std::min(smallest, tokens_of(point)) : smallest;
  }
  job.sample_deviation = of_token.deviation;
  const auto guess = [&](ComputePoint& point) {
    const double known = neighbours_compute(point, job.compute);
    point.seconds = known > 0 ? known : of_token.seconds * tokens_of(point);
    if (tokens_of(point) < smallest) {
      point.host_s = HostFloor::kOfTensor * static_cast<double>(parameters(job.model).size());
    }
  };
  for (ComputePoint& point : job.compute) {
    if (!point.timed) {
      guess(point);
    }
  }
  const ComputePoint& first = job.compute.front();
  for (std::int64_t batch = 1; !first.timed && batch < first.batch; batch *= 2) {
    job.below.push_back({batch, first.length});
    guess(job.below.back());
  }
}

void add_points(const StepTimeTable& table, StepTimeJob& job) {
  std::map<std::tuple<std::size_t, double, std::int64_t, std::vector<int>>, std::size_t> known;
  for (const StepTimeRow& row : table.rows) {
    const StepTimePoint point = {
        compute_point(job, row), row.placement, work_spread(row), row.micro_batches};
    const auto nodes = row.placement.node_ranks();
    const auto [place, is_new] = known.try_emplace(
        {point.compute, point.spread, point.micro_batches, {nodes.begin(), nodes.end()}},
        job.points.size());
    if (is_new) {
      job.points.push_back(point);
    }
    job.point_of_row.push_back(place->second);
  }
}

}  // namespace

double untimed_compute(double device, double host) {
  constexpr double kSharp = 4;  // The larger, the nearer to the longer of both.
  return std::pow(std::pow(device, kSharp) + std::pow(host, kSharp), 1 / kSharp);
}

double step_of_last(const StepTimeRow& row, double compute) {
  const double step = row.step_s - row.data_s.value_or(0);
  if (row.micro_batches == 1) {
    return step;
  }
  const auto others = static_cast<double>(row.micro_batches - 1);
  const double late = lateness(work_spread(row), row.placement.ranks(), row.micro_batches);
  const double rest = step - others * passes_of_compute() * compute * (1 + late);
  return std::max(rest, std::min(compute, step));
}

double step_of_each(const StepTimeRow& row) {
  return (row.step_s - row.data_s.value_or(0)) / whole_batches(row);
}

double work_spread(const StepTimeRow& row) {
  return row.length_sd / static_cast<double>(row.length);
}

StepTimeJob step_time_job(const StepTimeTable& table,
                          const TransformerConfig& model,
                          std::int64_t first_bucket_bytes,
                          std::int64_t bucket_cap_bytes) {
  StepTimeJob job;
  job.model = model;
  add_compute(table, job);
  add_points(table, job);
  job.shortest_s = std::ranges::min(mapped(job.compute, &ComputePoint::seconds));
  const std::vector<BucketParameter> parameters = bucket_parameters(model);
  const std::vector<Bucket> buckets =
      rebuilt_buckets(parameters, ready_order(model), first_bucket_bytes, bucket_cap_bytes);
  Plan plan;
  plan.model = model;
  plan.buckets = mapped(buckets, &Bucket::parameters);
  const ComputePoint& middle = job.compute[job.compute.size() / 2];
  const std::vector<std::int64_t> lengths(1, middle.length);
  BatchShape batch = batch_shape(lengths);
  batch.samples = middle.batch;
  batch.useful_tokens = batch.padded_tokens();
  batch.sum_squares = static_cast<double>(batch.useful_tokens) * static_cast<double>(middle.length);
  // A chain's tensors state their work; the ops of other models have operations and bytes.
  const bool chain = model.family == ModelFamily::Blocks;
  job.operations_per_byte = chain ? 0 : RecordedModel{}.operations_per_byte;
  job.ready = launch_shares(plan, step_ops(model).backward, batch, job.operations_per_byte);
  job.bucket_bytes = mapped(buckets, [&](const Bucket& bucket) {
    return static_cast<double>(bucket_bytes(bucket, parameters));
  });
  return job;
}

std::size_t compute_point(const StepTimeJob& job, const StepTimeRow& row) {
  const auto found =
      std::ranges::lower_bound(job.compute, Key(row.batch, row.length), {}, [](const auto& point) {
        return Key(point.batch, point.length);
      });
  return static_cast<std::size_t>(found - job.compute.begin());
}

SeveralRanks several_ranks_of(const StepTimeCoefficients& coefficients) {
  return {std::exp(coefficients.several_ranks),
          coefficients.per_doubling,
          coefficients.per_doubling_of_node};
}

StepTimeParts step_time(const StepTimeJob& job,
                        const StepTimeCoefficients& coefficients,
                        double compute,
                        const Placement& placement,
                        double spread,
                        std::int64_t micro_batches) {
  const int ranks = placement.ranks();
  const double optimizer = coefficients.optimizer_share * job.shortest_s;
  const auto others = static_cast<double>(micro_batches - 1);
  if (ranks == 1) {
    return {compute + others * std::max(compute - optimizer, 0.0) + job.rest_s, job.rest_s};
  }
  const double factor = several_ranks_of(coefficients).at(ranks, placement.fullest());
  const double mean_passes = std::max(compute - optimizer, 0.0) * factor;
  const double passes = mean_passes * (1 + lateness(spread, ranks, micro_batches));
  const double backward = (1 - coefficients.forward_share) * passes;
  double now = 0;
  double done = 0;
  double busy_until = 0;
  StepTimeParts parts;
  for (std::size_t bucket = 0; bucket < job.ready.size(); ++bucket) {
    const double wanted = job.ready[bucket] * backward;
    // Compute is slower while a collective runs.
    const double slowed =
        std::min(wanted - done, std::max(busy_until - now, 0.0) / (1 + coefficients.interference));
    now += slowed * (1 + coefficients.interference) + (wanted - done - slowed);
    done = wanted;
    const double seconds = fitted_collective_time(coefficients.links,
                                                  CollectiveKind::AllReduce,
                                                  job.bucket_bytes[bucket],
                                                  ranks,
                                                  placement.nodes());
    busy_until = std::max(now, busy_until) + seconds;
  }
  const double end = std::max(now, busy_until);
  // A rank of mean work waits for the slowest one, too.
  parts.sync = end - now + (others + 1) * (passes - mean_passes) + job.rest_s;
  parts.step = others * passes + passes - backward + end + job.rest_s + optimizer * factor;
  return parts;
}

}  // namespace stepsim
