#include "sim/predict/draws/draw_player.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/shared_cores.h"
#include "sim/engine/time_limit.h"
#include "sim/predict/draws/lane_loops.h"

namespace stepsim {
namespace {

constexpr double kMs = 1e3;
/// Kinds of batches whose times are kept: those of a step with few shapes.
constexpr std::size_t kKnownKinds = 4096;
/// Keeps the generator of the links apart from that of the ranks.
constexpr std::uint64_t kOfLinks = 0xD1B54A32D192ED03;

/// Marks in a rank's work of a step; those of the buckets follow, then the end of the backward.
constexpr std::size_t kDataMark = 0;
constexpr std::size_t kForwardMark = 1;
constexpr std::size_t kFirstBucketMark = 2;

double later(double a, double b) {
  return a > b ? a : b;
}

/// Whether a rank takes the same time whenever it has the same batch, and batches repeat so often
/// that rows of their work are worth it.
bool repeats(const Run& run, const FoldedSteps& folded, std::size_t steps) {
  const Jitter& jitter = run.loads().jitter;
  constexpr std::size_t kMostRows = 8192;
  const std::vector<std::uint32_t> classes = classes_of_ranks(run.loads());
  const std::size_t rows = (1 + *std::ranges::max_element(classes)) * folded.kinds();
  return rows <= kMostRows && 4 * rows <= steps * classes.size() && jitter.log_normal.log_sd == 0 &&
         jitter.quantiles.empty() && run.loads().by_rank && run.loads().cores == 0 &&
         run.loads().shape_stalls.empty();
}

}  // namespace

DrawPlayer::DrawPlayer(const Run& run,
                       const FoldedSteps& first,
                       const FoldedSteps& others,
                       std::span<const int> steps,
                       int number,
                       std::span<const Draw> draws)
    : run_(run),
      first_(first),
      others_(others),
      ranks_(at(run.scenario().ranks)),
      draws_(draws.size()),
      lanes_(draws.size() * draws.front().size()),
      group_(run.pricer().groups().size(), Lanes(lanes_, 1.0)),
      collate_(lanes_, 1.0),
      launch_(lanes_),
      common_(lanes_),
      stall_(lanes_),
      drawn_(draws),
      steps_(steps),
      repeats_(repeats(run, others, steps.size())),
      class_of_rank_(classes_of_ranks(run.loads())),
      host_(ranks_ * lanes_),
      device_(ranks_ * lanes_),
      start_(ranks_ * draws_),
      slowness_(ranks_ * lanes_),
      core_factor_(run.loads().cores > 0 ? ranks_ * lanes_ : 0, 1.0),
      load_(lanes_),
      critical_(lanes_),
      work_(lanes_),
      before_(draws_),
      backward_end_(draws_),
      step_start_(lanes_),
      step_ms_(lanes_),
      total_ms_(lanes_),
      longest_ms_(draws_) {
  for (std::size_t d = 0; d < draws_; ++d) {
    for (std::size_t r = 0; r < draws[d].size(); ++r) {
      const std::size_t lane = r * draws_ + d;
      const DrawnCosts& costs = draws[d][r];
      const std::vector<double>& group = costs.factors.group;
      for (std::size_t g = 0; g < group.size(); ++g) {
        group_[g][lane] = group[g];
      }
      collate_[lane] = group.empty() ? 1 : group[run.pricer().collate_group()];
      launch_[lane] = run.pricer().launch_seconds() * costs.factors.host;
      common_[lane] = costs.common;
      stall_[lane] = costs.common * costs.factors.new_shapes;
    }
    const std::uint64_t seed = seed_of_draw(run.scenario().seed, at(number) + d);
    noise_.emplace_back(seed);
    link_noise_.emplace_back(seed ^ kOfLinks);
  }
  sums_.ranks.resize(ranks_);
  steady_steps_ = at(static_cast<int>(std::ranges::count_if(
      steps_, [&](const int step) { return step >= run.scenario().warmup_steps; })));
  sums_.step_ms.reserve(steady_steps_ * draws_);
}

std::vector<double> DrawPlayer::mean_ms(std::size_t run) const {
  const auto steps = static_cast<double>(steady_steps_);
  return mapped(std::span(total_ms_).subspan(run * draws_, draws_),
                [&](double ms) { return ms / steps; });
}

const double* DrawPlayer::model_times(const FoldedSteps& folded, std::uint32_t kind) {
  if (known_steps_ != &folded || known_.size() >= kKnownKinds) {
    known_.clear();
    known_steps_ = &folded;
  }
  const auto [place, is_new] = known_.try_emplace(kind);
  Lanes& times = place->second;
  if (is_new) {
    times.resize(folded.model_suffixes() * lanes_);
    const double* row = folded.row(kind);
    for (std::size_t s = 0; s < folded.model_suffixes(); ++s) {
      if (!folded.critical(s, kind)) {
        continue;
      }
      double* time = &times[s * lanes_];
      for (const FoldedSteps::Term& term : folded.suffixes()[s].model) {
        const double seconds = row[term.column];
        const double* factor = group_[term.group].data();
        for (std::size_t l = 0; l < lanes_; ++l) {
          time[l] += seconds * factor[l];
        }
      }
    }
  }
  return times.data();
}

DrawPlayer::Lanes DrawPlayer::ddp_times(const FoldedSteps& folded) const {
  Lanes times(folded.suffixes().size() * lanes_);
  for (std::size_t s = 0; s < folded.suffixes().size(); ++s) {
    for (const FoldedSteps::FixedTerm& term : folded.suffixes()[s].ddp) {
      for (std::size_t l = 0; l < lanes_; ++l) {
        times[s * lanes_ + l] += term.seconds * group_[term.group][l];
      }
    }
  }
  return times;
}

void DrawPlayer::play(const std::function<void(int step)>& on_step) {
  const auto transfers = [&](const FoldedSteps& folded) {
    const bool free = run_.differs_by(Change::FreeCommunication);
    Lanes seconds;
    for (std::size_t b = 0; b < folded.step().all_reduce.size(); ++b) {
      const double bytes = folded.step().schedule.collectives[b].bytes;
      for (std::size_t l = 0; l < lanes_; ++l) {
        const CostFactors& factors = drawn_[l % draws_][l / draws_].factors;
        seconds.push_back(
            free ? 0 : folded.step().all_reduce[b] * common_[l] * factors.of_collective(bytes));
      }
    }
    return seconds;
  };
  const Lanes first_ddp = ddp_times(first_);
  play_step(0, first_, first_ddp, transfers(first_));
  const Lanes ddp = ddp_times(others_);
  const Lanes transfer = transfers(others_);
  rows_.clear();
  for (const int step : steps_.subspan(1)) {
    on_step(step);
    play_step(step, others_, ddp, transfer);
  }
}

void DrawPlayer::draw_slowness() {
  const Jitter& jitter = run_.loads().jitter;
  for (std::size_t d = 0; d < draws_; ++d) {
    NoiseDraws& noise = noise_[d];
    const double common_score = jitter.common_score(noise);
    for (std::size_t r = 0; r < ranks_; ++r) {
      const double factor = run_.loads().rank_factor[r] * jitter.factor(noise, common_score);
      for (std::size_t l = d; l < lanes_; l += draws_) {
        slowness_[r * lanes_ + l] = common_[l] * factor;
      }
    }
  }
}

void DrawPlayer::share_cores(int step) {
  for (std::size_t l = 0; l < lanes_; ++l) {
    std::size_t rank = 0;
    for (const int on_node : run_.scenario().placement.node_ranks()) {
      std::vector<double> seconds;
      for (std::size_t r = rank; r < rank + at(on_node); ++r) {
        const std::size_t batch = at(step) * ranks_ + r;
        seconds.push_back(slowness_[r * lanes_ + l] * run_.loads().batch_factor[batch] *
                          run_.pricer().compute_seconds(run_.priced_batch(batch)));
      }
      for (const double factor : shared_core_factors(seconds, run_.loads().cores)) {
        core_factor_[rank++ * lanes_ + l] = factor;
      }
    }
  }
}

void DrawPlayer::play_step(int step,
                           const FoldedSteps& folded,
                           const Lanes& ddp,
                           const Lanes& transfer) {
  const bool steady = step >= run_.scenario().warmup_steps;
  const std::size_t buckets = folded.copy_out().size();
  if (!repeats_ || step == 0) {
    draw_slowness();
  }
  if (!core_factor_.empty()) {
    share_cores(step);
  }
  launched_.assign(buckets * lanes_, 0.0);
  std::ranges::fill(backward_end_, 0.0);
  std::copy(
      device_.begin(), device_.begin() + static_cast<std::ptrdiff_t>(lanes_), step_start_.begin());
  for (std::size_t r = 0; r < ranks_; ++r) {
    compute(step, r, folded, ddp);
  }
  reduce(folded, transfer, steady);
  for (std::size_t r = 0; r < ranks_; ++r) {
    finish(step, r, folded, ddp);
  }
  end_step(steady);
}

void DrawPlayer::compute(int step, std::size_t rank, const FoldedSteps& folded, const Lanes& ddp) {
  double* host = &host_[rank * lanes_];
  double* device = &device_[rank * lanes_];
  const bool steady = step >= run_.scenario().warmup_steps;
  const std::size_t buckets = folded.copy_out().size();
  if (run_.reduced().host().is_device) {
    for (std::size_t l = 0; l < lanes_; ++l) {
      host[l] = later(host[l], device[l]);
    }
  }
  double* start = &start_[rank * draws_];
  std::copy(device, device + draws_, start);
  for (std::size_t l = 0; l < lanes_; ++l) {
    step_start_[l] = later(step_start_[l], device[l]);
  }
  if (repeats_) {
    compute_by_row(row_of(step, rank, folded, ddp), rank, buckets, steady);
  } else {
    std::copy(start, start + draws_, before_.begin());
    const auto part = [&](double RankTimes::*time) {
      if (steady) {
        add_times(rank, time, before_.data(), device);
      }
      std::copy(device, device + draws_, before_.begin());
    };
    play_work(step, rank, folded, ddp, host, device, [&](std::size_t mark) {
      if (mark == kDataMark) {
        part(&RankTimes::data_ms);
      } else if (mark == kForwardMark) {
        part(&RankTimes::forward_ms);
      } else if (mark == kFirstBucketMark + buckets) {
        part(&RankTimes::backward_ms);
      } else {
        double* launched = &launched_[(mark - kFirstBucketMark) * lanes_];
        for (std::size_t l = 0; l < lanes_; ++l) {
          launched[l] = later(launched[l], later(host[l], device[l]));
        }
      }
    });
  }
  for (std::size_t d = 0; d < draws_; ++d) {
    backward_end_[d] = later(backward_end_[d], device[d]);
  }
}

void DrawPlayer::play_work(int step,
                           std::size_t rank,
                           const FoldedSteps& folded,
                           const Lanes& ddp,
                           double* host,
                           double* device,
                           const std::function<void(std::size_t mark)>& mark) {
  const std::size_t batch = at(step) * ranks_ + rank;
  const std::uint32_t kind = folded.kind_of(batch);
  const double* model = model_times(folded, kind);
  const double* slowness = &slowness_[rank * lanes_];
  std::ranges::fill(load_, run_.loads().batch_factor[batch]);
  if (!core_factor_.empty()) {
    for (std::size_t l = 0; l < lanes_; ++l) {
      load_[l] *= core_factor_[rank * lanes_ + l];
    }
  }
  const double collate =
      run_.differs_by(Change::NoData) ? 0 : folded.row(kind)[FoldedSteps::kCollateColumn];
  for (std::size_t l = 0; l < lanes_; ++l) {
    host[l] += collate * slowness[l] * collate_[l];
    device[l] = later(device[l], host[l]);
  }
  const auto pass = [&](const std::vector<FoldedSteps::FoldedSpan>& spans) {
    for (const FoldedSteps::FoldedSpan& span : spans) {
      if (span.held_up == FoldedSteps::HeldUp::No) {
        advance(folded, span, kind, model, ddp.data(), slowness, host, device);
      } else {
        advance_held_up(span, batch, model, slowness, host, device);
      }
    }
  };
  mark(kDataMark);
  pass(folded.forward());
  mark(kForwardMark);
  const std::size_t buckets = folded.copy_out().size();
  for (std::size_t b = 0; b <= buckets; ++b) {
    pass(folded.backward()[b]);
    mark(kFirstBucketMark + b);
  }
}

/// Plays the work once with a host that is never behind, and once with a device that never is.
const DrawPlayer::Row& DrawPlayer::row_of(int step,
                                          std::size_t rank,
                                          const FoldedSteps& folded,
                                          const Lanes& ddp) {
  const std::uint64_t key =
      (std::uint64_t{class_of_rank_[rank]} << 32U) | folded.kind_of(at(step) * ranks_ + rank);
  const auto [place, is_new] = rows_.try_emplace(key);
  Row& row = place->second;
  if (!is_new) {
    return row;
  }
  constexpr double kLongAgo = -1e30;
  const std::size_t buckets = folded.copy_out().size();
  const std::size_t marks = kFirstBucketMark + buckets + 1;
  row.device.resize(marks * lanes_);
  row.host.resize(marks * lanes_);
  Lanes host(lanes_, kLongAgo);
  Lanes device(lanes_, 0.0);
  device_alone_ = true;
  play_work(step, rank, folded, ddp, host.data(), device.data(), [&](std::size_t mark) {
    std::ranges::copy(device, row.device.begin() + static_cast<std::ptrdiff_t>(mark * lanes_));
  });
  device_alone_ = false;
  row.launches.assign(lanes_, 0.0);
  device.assign(lanes_, kLongAgo);
  play_work(step, rank, folded, ddp, row.launches.data(), device.data(), [&](std::size_t mark) {
    const bool is_launch = mark >= kFirstBucketMark && mark < kFirstBucketMark + buckets;
    for (std::size_t l = 0; l < lanes_; ++l) {
      row.host[mark * lanes_ + l] = is_launch ? later(device[l], row.launches[l]) : device[l];
    }
  });
  return row;
}

void DrawPlayer::compute_by_row(const Row& row,
                                std::size_t rank,
                                std::size_t buckets,
                                bool steady) {
  double* host = &host_[rank * lanes_];
  double* device = &device_[rank * lanes_];
  const auto at_mark = [&](std::size_t mark, std::size_t lanes, double* out) {
    go_on(device, host, &row.device[mark * lanes_], &row.host[mark * lanes_], lanes, out);
  };
  const std::size_t end = kFirstBucketMark + buckets;
  if (steady) {
    at_mark(kDataMark, draws_, before_.data());
    add_times(rank, &RankTimes::data_ms, &start_[rank * draws_], before_.data());
    at_mark(kForwardMark, draws_, work_.data());
    add_times(rank, &RankTimes::forward_ms, before_.data(), work_.data());
  }
  add_launches(device,
               host,
               &row.device[kFirstBucketMark * lanes_],
               &row.host[kFirstBucketMark * lanes_],
               buckets,
               lanes_,
               launched_.data());
  at_mark(end, lanes_, device);
  if (steady) {
    add_times(rank, &RankTimes::backward_ms, work_.data(), device);
  }
  for (std::size_t l = 0; l < lanes_; ++l) {
    host[l] += row.launches[l];
  }
}

void DrawPlayer::advance(const FoldedSteps& folded,
                         const FoldedSteps::FoldedSpan& span,
                         std::uint32_t kind,
                         const double* model,
                         const double* ddp,
                         const double* slowness,
                         double* host,
                         double* device) {
  const std::size_t lanes = lanes_;
  if (span.suffixes == 0) {
    for (std::size_t l = 0; l < lanes; ++l) {
      device[l] = later(device[l], host[l]);
    }
    return;
  }
  const double* launch = launch_.data();
  const double* load = load_.data();
  double* critical = critical_.data();
  double* work = work_.data();
  const std::size_t suffixes = device_alone_ ? 1 : span.suffixes;
  for (std::size_t s = 0; s < suffixes; ++s) {
    const std::size_t number = span.first_suffix + s;
    if (!folded.critical(number, kind)) {
      continue;
    }
    const double launched = folded.suffixes()[number].launched;
    const double* of_ddp = ddp + number * lanes;
    const double* of_model = number < folded.model_suffixes() ? model + number * lanes : nullptr;
    double* time = s == 0 ? work : critical;
    if (of_model != nullptr) {
      work_times(slowness, load, of_model, of_ddp, lanes, time);
    } else {
      for (std::size_t l = 0; l < lanes; ++l) {
        time[l] = slowness[l] * of_ddp[l];
      }
    }
    if (s == 0) {
      work_on(host, launched, launch, work, lanes, device);
    } else {
      work_later_on(host, launched, launch, critical, lanes, device);
    }
  }
  for (std::size_t l = 0; l < lanes; ++l) {
    host[l] += span.launches * launch[l];
  }
}

void DrawPlayer::advance_held_up(const FoldedSteps::FoldedSpan& span,
                                 std::size_t batch,
                                 const double* model,
                                 const double* slowness,
                                 double* host,
                                 double* device) {
  const bool warmed_up = run_.scenario().new_shapes.warm_up;
  const ShapeStall none;
  const ShapeStall& stall = warmed_up ? none : run_.loads().shape_stalls[batch];
  const bool forward = span.held_up == FoldedSteps::HeldUp::ByForward;
  double on_host = forward ? stall.forward_host : stall.backward_host;
  double on_device = forward ? stall.forward_device : stall.backward_device;
  if (run_.reduced().host().is_device) {  // It has one clock.
    on_device += on_host;
    on_host = 0;
  }
  const double* of_model = model + span.first_suffix * lanes_;
  for (std::size_t l = 0; l < lanes_; ++l) {
    const double work = slowness[l] * load_[l] * of_model[l] + on_device * stall_[l];
    host[l] += launch_[l] + on_host * stall_[l];
    device[l] = later(device[l], host[l]) + work;
  }
}

void DrawPlayer::reduce(const FoldedSteps& folded, const Lanes& transfer, bool steady) {
  const std::size_t buckets = folded.copy_out().size();
  reduce_start_.resize(buckets * lanes_);
  reduce_end_.resize(buckets * lanes_);
  for (std::size_t b = 0; b < buckets; ++b) {
    for (std::size_t d = 0; d < draws_; ++d) {
      const double spread = link_noise_[d].from(run_.reduced().all_reduce_spread());
      for (std::size_t l = d; l < lanes_; l += draws_) {
        const std::size_t i = b * lanes_ + l;
        const double free = b > 0 ? reduce_end_[i - lanes_] : 0;
        reduce_start_[i] = later(launched_[i], free);
        reduce_end_[i] = reduce_start_[i] + transfer[i] * spread;
      }
      if (steady) {
        const double start = reduce_start_[b * lanes_ + d];
        const double end = reduce_end_[b * lanes_ + d];
        sums_.communication_ms += kMs * (end - start);
        sums_.hidden_ms += kMs * std::max(0.0, std::min(end, backward_end_[d]) - start);
      }
    }
  }
}

void DrawPlayer::finish(int step, std::size_t rank, const FoldedSteps& folded, const Lanes& ddp) {
  const bool steady = step >= run_.scenario().warmup_steps;
  const std::uint32_t kind = folded.kind_of(at(step) * ranks_ + rank);
  const std::size_t buckets = folded.copy_out().size();
  double* host = &host_[rank * lanes_];
  double* device = &device_[rank * lanes_];
  const double* slowness = &slowness_[rank * lanes_];
  RankTimes& sum = sums_.ranks[rank];
  // Where nothing is copied, a run of which no times are kept only waits for the last all-reduce.
  const bool copies = !folded.copies_nothing();
  for (std::size_t b = 0; b < buckets; ++b) {
    const double* start = &reduce_start_[b * lanes_];
    const double* end = &reduce_end_[b * lanes_];
    if (steady) {
      for (std::size_t d = 0; d < draws_; ++d) {
        // All buckets before this one are reduced: what keeps its all-reduce is a rank's arrival.
        sum.waiting_ms += kMs * later(start[d] - device[d], 0);
        sum.exposed_ms += kMs * (later(device[d], end[d]) - device[d]);
      }
    }
    const std::size_t lanes = copies || b + 1 == buckets ? lanes_ : draws_;
    for (std::size_t l = 0; l < lanes; ++l) {
      device[l] = later(device[l], end[l]);
    }
    if (run_.reduced().host().is_device) {
      std::copy(device, device + lanes, host);
    }
    if (copies) {
      std::copy(device, device + draws_, before_.begin());
      advance(folded, folded.copy_out()[b], kind, nullptr, ddp.data(), slowness, host, device);
      if (steady) {
        for (std::size_t d = 0; d < draws_; ++d) {
          sum.optimizer_ms += kMs * (device[d] - before_[d]);
        }
      }
    }
  }
  std::copy(device, device + draws_, before_.begin());
  advance(folded, folded.optimizer(), kind, nullptr, ddp.data(), slowness, host, device);
  if (run_.reduced().host().is_device) {
    std::copy(device, device + lanes_, host);
  }
  if (steady) {
    add_times(rank, &RankTimes::optimizer_ms, before_.data(), device);
    add_times(rank, &RankTimes::step_ms, &start_[rank * draws_], device);
  }
}

void DrawPlayer::add_times(std::size_t rank,
                           double RankTimes::*time,
                           const double* from,
                           const double* to) {
  double seconds = 0;
  for (std::size_t d = 0; d < draws_; ++d) {
    seconds += to[d] - from[d];
  }
  sums_.ranks[rank].*time += kMs * seconds;
}

void DrawPlayer::end_step(bool steady) {
  Lanes end(device_.begin(), device_.begin() + static_cast<std::ptrdiff_t>(lanes_));
  for (std::size_t r = 1; r < ranks_; ++r) {
    for (std::size_t l = 0; l < lanes_; ++l) {
      end[l] = later(end[l], device_[r * lanes_ + l]);
    }
  }
  const double latest = *std::ranges::max_element(end);
  (void)bounded_duration(latest);
  if (!steady) {
    return;
  }
  for (std::size_t l = 0; l < lanes_; ++l) {
    // In whole nanoseconds: equal steps are equal wherever the clock stands.
    step_ms_[l] = std::round(1e9 * (end[l] - step_start_[l])) / 1e6;
    total_ms_[l] += step_ms_[l];
  }
  const auto count = static_cast<double>(ranks_);
  for (std::size_t d = 0; d < draws_; ++d) {
    sums_.step_ms.push_back(step_ms_[d]);
    longest_ms_[d] = std::max(longest_ms_[d], step_ms_[d]);
    double mean = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      mean += (device_[r * lanes_ + d] - start_[r * draws_ + d]) / count;
    }
    double squares = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const double off = device_[r * lanes_ + d] - start_[r * draws_ + d] - mean;
      squares += off * off;
    }
    sums_.std_over_ranks += kMs * std::sqrt(squares / count);
  }
}

}  // namespace stepsim
