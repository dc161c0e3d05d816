#include "calibrate/import/step_times/step_time_fitter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/compute/host_floor.h"

namespace stepsim {
namespace {

/// How far links that another job was fitted to may differ for this one, as a fraction: the least
/// with which the links of each of three published models cover the steps of each other one. Rows
/// that find them several times off win over it.
constexpr double kOtherJob = 0.2;

constexpr double kOneConnection = 1.5e9;   // More than a socket moves.
constexpr double kFastestBetween = 100e9;  // A node's InfiniBand adapters together.

/// What a rank computes in a row, if it grows so with each doubling of a node's ranks.
double grown_compute(const StepTimeJob& job, const StepTimeRow& row, double growth) {
  return job.compute[compute_point(job, row)].seconds *
         SeveralRanks{1, 0, growth}.at(row.placement.ranks(), row.placement.fullest());
}

/// What is believed of two nodes against more, where these are no slower: links that several
/// connections fill. Four nodes took 2 to 20 % longer than two on 100 Gbit/s.
StepTimePrior one_speed() {
  StepTimePrior prior = step_time_priors()[kTwoNodes];
  prior.mean = 0;
  prior.deviation = 0.15;
  return prior;
}

/// The speed at which gradients would have to move for the middle row, if a third of its compute
/// did not hide them: where the search for the bandwidth starts. 0 without such rows.
double crude_bandwidth(const StepTimeTable& table,
                       const StepTimeJob& job,
                       bool one_node,
                       double growth) {
  double bytes = 0;
  for (const double bucket : job.bucket_bytes) {
    bytes += bucket;
  }
  std::vector<double> speeds;
  for (const StepTimeRow& row : table.rows) {
    if (!has_several_ranks(row) || (row.placement.nodes() == 1) != one_node) {
      continue;
    }
    const double compute = grown_compute(job, row, growth);
    constexpr double kInFront = 0.35;
    constexpr double kLeast = 0.05;
    const double step = row.micro_batches > 1 ? step_of_last(row, compute) : row.step_s;
    const double seconds = std::max(step - kInFront * compute, kLeast * step);
    speeds.push_back(ring_bytes_per_rank(CollectiveKind::AllReduce, bytes, row.placement.ranks()) /
                     seconds);
  }
  return speeds.empty() ? 0 : quantile(speeds, 0.5);
}

/// Whether compute hid all communication of the rows inside a node, or between nodes: at each batch
/// that a rank was timed with alone, the step exceeds that by no more than several ranks may add.
/// Such rows bound the links' speed from below, and say no more. Nor do those of a table in which
/// no rank was alone.
bool hid_all(const StepTimeTable& table, const StepTimeJob& job, bool one_node, double growth) {
  std::map<std::size_t, std::vector<double>> exposed;  // By batch, as a part of the compute.
  for (const StepTimeRow& row : table.rows) {
    const std::size_t batch = compute_point(job, row);
    const double compute = grown_compute(job, row, growth);
    if (has_several_ranks(row) && (row.placement.nodes() == 1) == one_node &&
        job.compute[batch].timed) {
      const double seconds =
          row.sync_s ? *row.sync_s - job.rest_s : step_of_last(row, compute) - compute;
      exposed[batch].push_back(seconds / compute);
    }
  }
  return !exposed.empty() && std::ranges::all_of(exposed, [](const auto& batch) {
    return quantile(batch.second, 0.5) < step_time_priors()[kSeveral].deviation;
  });
}

/// What is believed of the speed of links whose rows bound it from below: the 90 % interval is from
/// the bound to the fastest links.
StepTimePrior above_bound(const StepTimePrior& prior, double bound, double fastest) {
  constexpr double kFasterYet = 2;  // Than a bound that is beyond the fastest.
  const double low = std::log(bound);
  const double high = std::log(std::max(fastest, kFasterYet * bound));
  return {
      prior.name, (low + high) / 2, std::max(prior.deviation, (high - low) / 2 / kDeviationsOf90)};
}

std::vector<double> as_vector(const LinkSpeeds& links) {
  return {std::log(links.intra_bytes_per_s),
          std::log(std::max(links.intra_half_bytes, 1.0)),
          std::log(links.inter_bytes_per_s),
          std::log(std::max(links.inter_half_bytes, 1.0)),
          std::log(links.two_nodes),
          links.per_doubling_of_nodes,
          links.per_doubling_of_ranks};
}

/// [StepTimeJob::points] What `value` returns for those of several ranks; the others' own.
template <typename Value>
auto of_points(const StepTimeJob& job, Value value) {
  return mapped(job.points, [&](const StepTimePoint& point) {
    return point.placement.ranks() > 1 ? value(point) : decltype(value(point))();
  });
}

}  // namespace

bool has_several_ranks(const StepTimeRow& row) {
  return row.placement.ranks() > 1;
}

std::string kind_of(const Placement& placement) {
  std::vector<int> nodes(placement.node_ranks().begin(), placement.node_ranks().end());
  std::ranges::sort(nodes);
  return text_of(Placement(std::move(nodes)));
}

double node_growth(const StepTimeTable& table, const StepTimeJob& job) {
  std::vector<double> growths;
  for (const StepTimeRow& row : table.rows) {
    const ComputePoint& alone = job.compute[compute_point(job, row)];
    if (has_several_ranks(row) && row.placement.nodes() == 1 && alone.timed) {
      const double ratio = step_of_last(row, alone.seconds) / alone.seconds;
      growths.push_back(std::log(ratio) / std::log2(static_cast<double>(row.placement.ranks())));
    }
  }
  return growths.empty() ? 0 : std::expm1(quantile(growths, 0.5));
}

double communication_share(const StepTimeFit& fit,
                           std::span<const double> vector,
                           std::size_t compute,
                           const Placement& placement,
                           std::int64_t micro_batches) {
  constexpr double kStep = 0.01;
  StepTimeCoefficients coefficients = coefficients_of(fit, vector);
  const double seconds = compute_of(fit, vector, compute);
  const double before = step_time(fit.job, coefficients, seconds, placement, 0, micro_batches).step;
  coefficients.links.intra_bytes_per_s *= std::exp(-kStep);
  coefficients.links.inter_bytes_per_s *= std::exp(-kStep);
  const double slower = step_time(fit.job, coefficients, seconds, placement, 0, micro_batches).step;
  return std::log(slower / before) / kStep;
}

std::vector<double> communication_shares(const StepTimeFit& fit, std::span<const double> vector) {
  return of_points(fit.job, [&](const StepTimePoint& point) {
    return communication_share(fit, vector, point.compute, point.placement, point.micro_batches);
  });
}

std::vector<StepTimeParts> step_times(const StepTimeFit& fit, std::span<const double> vector) {
  const StepTimeCoefficients coefficients = coefficients_of(fit, vector);
  return of_points(fit.job, [&](const StepTimePoint& point) {
    const double compute = compute_of(fit, vector, point.compute);
    return step_time(
        fit.job, coefficients, compute, point.placement, point.spread, point.micro_batches);
  });
}

StepTimeFitter::StepTimeFitter(const StepTimeTable& table,
                               const StepTimeJob& job,
                               StepTimeForm form,
                               double growth)
    : table_(&table), job_(&job), form_(form), growth_(growth), priors_(step_time_priors()) {
  double inside = crude_bandwidth(table, job, true, growth);
  double between = crude_bandwidth(table, job, false, growth);
  const bool inside_timed = inside > 0;
  const bool between_timed = between > 0;
  between_ = between;
  if (between > kOneConnection) {
    expect_one_speed();
  }
  constexpr double kNobodyKnows = 1e9;
  constexpr double kTwoOrMore = 1.2;  // Between the speed of two nodes and that of more.
  between = between > 0 ? between * kTwoOrMore : inside;
  inside = inside > 0 ? inside : between;
  if (std::ranges::none_of(table.rows,
                           [](const StepTimeRow& row) { return row.placement.nodes() > 1; })) {
    constexpr double kFromInside = 1.6;  // From a 14th of the speed inside a node to 14 times it.
    priors_[kInter].deviation = kFromInside;
  }
  priors_[kIntra].mean = std::log(inside > 0 ? inside : kNobodyKnows);
  priors_[kInter].mean = std::log(between > 0 ? between : kNobodyKnows);
  if (form != StepTimeForm::NoOverlap) {
    constexpr double kFastestInside = 300e9;  // NVLink.
    const bool none_alone = std::ranges::none_of(job.compute, &ComputePoint::timed);
    if (inside_timed && (none_alone || hid_all(table, job, true, growth))) {
      bounds_.push_back({kIntra, std::log(inside)});
      priors_[kIntra] = above_bound(priors_[kIntra], inside, kFastestInside);
    }
    if (between_timed && (none_alone || hid_all(table, job, false, growth))) {
      bounds_.push_back({kInter, std::log(between)});
      priors_[kInter] = above_bound(priors_[kInter], between, kFastestBetween);
    }
  }
  std::vector<double> backward;
  for (const StepTimeRow& row : table.rows) {
    if (row.backward_s && !has_several_ranks(row)) {
      const double passes =
          job.compute[compute_point(job, row)].seconds * (1 - priors_[kOptimizer].mean);
      backward.push_back(*row.backward_s / (static_cast<double>(row.micro_batches) * passes));
    }
  }
  if (!backward.empty()) {
    constexpr double kMeasuredShare = 0.01;
    priors_[kForward].mean = std::clamp(1 - quantile(backward, 0.5), 0.05, 0.95);
    priors_[kForward].deviation = kMeasuredShare;
  }
  if (form == StepTimeForm::NoOverlap) {
    constexpr double kStandsStill = 50;  // Compute beside a collective takes so much longer.
    priors_[kInterference].mean = kStandsStill;
  }
  add_untimed_priors();
}

void StepTimeFitter::add_untimed_priors() {
  const std::vector<ComputePoint>& points = job_->compute;
  if (std::ranges::all_of(points, &ComputePoint::timed)) {
    return;
  }
  constexpr double kFixed = 1e-4;
  const bool some = std::ranges::any_of(points, &ComputePoint::timed);
  priors_.push_back({"host of a batch", 0, HostFloor::kLogDeviation, true});
  priors_.push_back({"compute of a sample", 0, some ? kFixed : job_->sample_deviation});
  for (const ComputePoint& point : points) {
    if (!point.timed) {
      constexpr double kOfBatch = 0.1;
      priors_.push_back({"compute of a batch", 0, kOfBatch});
    }
  }
}

bool StepTimeFitter::start_from_host() {
  double shortest = 0;
  double guess = 0;
  for (const StepTimeRow& row : table_->rows) {
    const double host = job_->compute[compute_point(*job_, row)].host_s;
    const double step = step_of_each(row);
    if (host > 0 && (guess == 0 || step < shortest)) {
      shortest = step;
      guess = host;
    }
  }
  host_start_ = guess > 0 ? std::log(shortest / guess) : 0;
  return guess > 0;
}

double StepTimeFitter::expect_growth() {
  // ResNet-50 on the published T4 takes 3.7 % longer with each doubling where links are hidden.
  constexpr double kGrowth = 0.04;
  const auto widened = [&](std::size_t place, const StepTimePrior& prior) {
    const double cost = 2 * std::log(prior.deviation / priors_[place].deviation);
    priors_[place] = prior;
    return cost;
  };
  StepTimePrior growth = priors_[kPerDoubling];
  growth.deviation = kGrowth;
  bounds_.push_back({kInter, std::log(between_)});
  return widened(kPerDoubling, growth) +
         widened(kInter, above_bound(priors_[kInter], between_, kFastestBetween));
}

void StepTimeFitter::expect_one_speed() {
  priors_[kTwoNodes] = one_speed();
}

void StepTimeFitter::expect_between(double bytes_per_s) {
  priors_[kInter].mean = std::log(bytes_per_s);
  if (bytes_per_s > kOneConnection) {
    expect_one_speed();
  }
}

void StepTimeFitter::know(const FittedLinks& links) {
  const std::vector<double> mean = as_vector(links.fitted);
  const auto draws = mapped(links.draws, as_vector);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double square = kOtherJob * kOtherJob * (i < 5 ? 1 : 0.01);
    for (const auto& draw : draws) {
      square += (draw[i] - mean[i]) * (draw[i] - mean[i]) / static_cast<double>(draws.size());
    }
    links_are_known_ = true;
    priors_[kIntra + i].mean = mean[i];
    priors_[kIntra + i].deviation = std::sqrt(square);
    priors_[kIntra + i].heavy_tails = true;
  }
}

StepTimeFit StepTimeFitter::fit(double compute_noise,
                                double run_noise,
                                const std::string& left_out) const {
  StepTimeFit fit;
  fit.job = *job_;
  fit.form = form_;
  fit.compute_noise = compute_noise;
  fit.run_noise = run_noise;
  fit.links_are_known = links_are_known_;
  fit.bounds = bounds_;
  std::vector<FittedRow> rows = fitted_rows(left_out);
  for (const FittedRow& fitted : rows) {
    fit.ranks = std::max(fit.ranks, fitted.row->placement.ranks());
    fit.nodes = std::max(fit.nodes, fitted.row->placement.nodes());
  }
  std::vector<double> start = mapped(priors_, &StepTimePrior::mean);
  start[kPerDoublingOfNode] = growth_;
  if (host_start_ != 0) {
    constexpr double kFast = 100e9;
    start[kHost] = host_start_;
    start[kIntra] = std::log(kFast);
  }
  constexpr int kRounds = 4;  // The noise of a row depends on how much of it is communication.
  for (int round = 0; round < kRounds; ++round) {
    weigh(fit, start, rows);
    const StepTimeResiduals all = residuals(fit, rows);
    fit.posterior = fit_posterior(
        {[&](std::span<const double> vector) { return all.squares(vector); },
         [&](std::span<const double> vector) { return all.normal_equations(vector); }},
        start);
    start = fit.posterior.mode;
    fit.cost = all.squares(start);
  }
  for (const FittedRow& fitted : rows) {
    const double noise = 1 / fitted.step_scale;
    fit.cost += 2 * std::log(noise) * fitted.independent;
  }
  for (std::size_t i = 0; i < priors_.size(); ++i) {
    fit.priors.push_back(prior(i).deviation_at(fit.posterior.mode[i]));
  }
  return fit;
}

std::vector<FittedRow> StepTimeFitter::fitted_rows(const std::string& left_out) const {
  const auto counts = mapped(job_->points, [&](const StepTimePoint& point) {
    return point.placement.ranks() > 1 && kind_of(point.placement) != left_out;
  });
  std::vector<FittedRow> rows;
  for (std::size_t i = 0; i < table_->rows.size(); ++i) {
    const StepTimeRow& row = table_->rows[i];
    const std::size_t point = job_->point_of_row[i];
    if (!counts[point]) {
      continue;
    }
    FittedRow fitted{&row, point};
    const double step = row.step_s - row.data_s.value_or(0);
    fitted.log_step = std::log(step);
    fitted.has_compute = row.sync_s && *row.sync_s < step;
    fitted.log_compute = fitted.has_compute ? std::log(step - *row.sync_s) : 0;
    rows.push_back(fitted);
  }
  return rows;
}

void StepTimeFitter::weigh(const StepTimeFit& fit,
                           std::span<const double> vector,
                           std::vector<FittedRow>& rows) const {
  const std::vector<double> shares = communication_shares(fit, vector);
  const auto names =
      mapped(job_->points, [](const StepTimePoint& point) { return text_of(point.placement); });
  std::vector<int> of_point(names.size());
  for (const FittedRow& fitted : rows) {
    ++of_point[fitted.point];
  }
  std::map<std::string, int> of_run;
  for (std::size_t i = 0; i < names.size(); ++i) {
    of_run[names[i]] += of_point[i];
  }
  const auto rows_of_run =
      mapped(names, [&](const std::string& name) { return static_cast<double>(of_run[name]); });
  for (FittedRow& fitted : rows) {
    const StepTimeRow& row = *fitted.row;
    // The standard deviation of the step's logarithm, and of the compute's in it.
    const double noise = std::hypot(fit.compute_noise, fit.run_noise * shares[fitted.point]);
    const double own =
        row.sd_s ? *row.sd_s / std::sqrt(static_cast<double>(row.repeats)) / row.step_s : 0;
    fitted.independent = 1 / (1 + kCommonToRun * (rows_of_run[fitted.point] - 1));
    const double independent = std::sqrt(fitted.independent);
    fitted.step_scale = independent / std::hypot(noise, own);
    fitted.compute_scale = independent / std::hypot(fit.compute_noise, own);
  }
}

StepTimeResiduals StepTimeFitter::residuals(const StepTimeFit& fit,
                                            const std::vector<FittedRow>& rows) const {
  std::vector<StepTimePrior> priors;
  for (std::size_t i = 0; i < priors_.size(); ++i) {
    priors.push_back(prior(i));
  }
  return {rows, std::move(priors), [&fit](std::span<const double> vector) {
            return mapped(step_times(fit, vector), [](const StepTimeParts& parts) {
              return PointLogarithms{std::log(parts.step),
                                     std::log(std::max(parts.step - parts.sync, 1e-9))};
            });
          }};
}

StepTimePrior StepTimeFitter::prior(std::size_t coefficient) const {
  constexpr double kFixed = 1e-4;
  const bool fixed = coefficient == kInterference && form_ != StepTimeForm::Interference;
  StepTimePrior prior = priors_[coefficient];
  prior.deviation = fixed ? kFixed : prior.deviation;
  return prior;
}

}  // namespace stepsim
