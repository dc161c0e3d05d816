#include "sim/predict/draws/lane_work.h"

#include <algorithm>
#include <utility>

#include "sim/predict/draws/lane_loops.h"

namespace stepsim {
namespace {

constexpr double kSecondsPerNs = 1e-9;  // As to_seconds() has it.

}  // namespace

void LaneSpan::reset(std::size_t lanes) {
  host.assign(lanes, 0.0);
  device.assign(lanes, 0.0);
  critical.assign(lanes, 0.0);
}

void LaneSpan::add(const double* launch, const double* time) {
  span_then_op(launch, time, host.size(), host.data(), device.data(), critical.data());
}

/// By doubling.
void LaneSpan::add(LaneSpan& scratch, int times) {
  const std::size_t lanes = host.size();
  for (; times > 0; times /= 2) {
    if (times % 2 == 1) {
      span_then(scratch.host.data(),
                scratch.device.data(),
                scratch.critical.data(),
                lanes,
                host.data(),
                device.data(),
                critical.data());
    }
    if (times > 1) {
      span_twice(lanes, scratch.host.data(), scratch.device.data(), scratch.critical.data());
    }
  }
}

LaneFolder::LaneFolder(const Run& run,
                       const LaneFactors& factors,
                       std::size_t lanes,
                       std::size_t draws,
                       bool keeps_kernels)
    : run_(run),
      factors_(factors),
      lanes_(lanes),
      draws_(draws),
      keeps_kernels_(keeps_kernels),
      one_clock_(run.reduced().host().is_device),
      ones_(lanes, 1.0),
      launch_(lanes),
      factor_(lanes) {
  if (!one_clock_) {
    exact_ = rounded_times(
        run.pricer().launch_seconds(), ones_.data(), factors.host.data(), lanes, launch_.data());
  }
}

bool LaneFolder::fold(const LaneSchedule& schedule,
                      int rank,
                      std::size_t first,
                      const LaneSlowness& slowness,
                      LaneWork& folded) {
  slowness_ = &slowness;
  first_ = first;
  if (keeps_kernels_) {
    std::swap(times_, folded.times);  // Their memory is used again.
    folded.first_batch = first;
  }
  const std::size_t micro_batches = slowness.load.size();
  folded.data.resize(micro_batches);
  folded.copies.resize(micro_batches);
  folded.launch = &launch_;
  const std::size_t stretches = schedule.schedule().stretches.size();
  folded.folded.resize(stretches);
  folded.of.resize(stretches);
  folded.own.resize(std::max(folded.own.size(), stretches));
  listed_.assign(micro_batches, 0);
  alike_.assign(stretches, stretches);
  times_.resize(micro_batches);
  std::vector<Stall> forward;
  std::vector<Stall> backward;
  const std::vector<double>& of_collate = factors_.group[run_.pricer().collate_group()];
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const std::size_t batch = first + m;
    std::ranges::for_each(times_[m], [](LaneTimes& times) { times.clear(); });
    forward.push_back(stall_of(batch, true));
    backward.push_back(stall_of(batch, false));
    folded.data[m].assign(lanes_, 0.0);
    if (!run_.differs_by(Change::NoData)) {
      product(slowness.compute.data(), of_collate.data(), lanes_, factor_.data());
      exact_ &= rounded_times(run_.priced_batch(batch).collate,
                              ones_.data(),
                              factor_.data(),
                              lanes_,
                              folded.data[m].data());
    }
    folded.copies[m].reset(lanes_);
    const Kernel copy = run_.pricer().copy_input(run_.batch(batch).shape, {});
    if (copy.work > Duration::zero() || copy.launch > Duration::zero()) {
      const LaneTimes work(lanes_, static_cast<double>(copy.work.count()));
      folded.copies[m].add(launch_.data(), work.data());
    }
  }
  for (std::size_t s = 0; s < stretches; ++s) {
    const LockstepStretch& stretch = schedule.schedule().stretches[s];
    const std::size_t m = at(stretch.micro_batch);
    Stall& stall = stretch.phase == Phase::Forward ? forward[m] : backward[m];
    std::size_t& alike = alike_[at(stretch.first_alike)];
    folded.of[s] = s;
    folded.own[s].any = false;
    folded.own[s].held.reset();
    if (!slowness.ops.empty() || may_stall() || (keeps_kernels_ && stall.any())) {
      list(schedule.kernels(s, at(rank)), m, stall, folded.own[s]);
    } else if (stall.any()) {
      fold_stretch(stretch, rank, stall, folded.folded[s]);
    } else if (alike == stretches) {
      fold_stretch(stretch, rank, stall, folded.folded[s]);
      alike = s;
    } else {
      folded.of[s] = alike;
    }
  }
  if (keeps_kernels_) {
    std::swap(times_, folded.times);
  }
  return exact_;
}

void LaneFolder::list(const std::vector<std::int32_t>& kernels,
                      std::size_t micro_batch,
                      Stall& stall,
                      LaneKernels& own) {
  own.any = true;
  own.times.resize(std::max(own.times.size(), kernels.size() * lanes_));
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const LaneTimes& work = time_of(kernels[k], micro_batch);
    double* time = &own.times[k * lanes_];
    if (!run_.pricer().is_of_model(kernels[k])) {
      std::ranges::copy(work, time);
      continue;
    }
    if (stall.any()) {
      const Stall of_pass = std::exchange(stall, {});
      own.held = k;
      own.held_launch = launch_;
      stepsim::add(of_pass.host.data(), lanes_, own.held_launch.data());
      LaneTimes held = work;
      stepsim::add(of_pass.device.data(), lanes_, held.data());
      draw(held, micro_batch, time);
    } else {
      draw(work, micro_batch, time);
    }
  }
}

/// Until the rank's first kernel of the model.
bool LaneFolder::may_stall() const {
  return !slowness_->stall.empty() &&
         std::ranges::all_of(listed_, [](std::size_t count) { return count == 0; });
}

void LaneFolder::draw(const LaneTimes& work, std::size_t micro_batch, double* time) {
  const bool stalls = may_stall();
  const std::size_t kernel = listed_[micro_batch]++;
  std::ranges::copy(work, time);
  for (std::size_t l = 0; !slowness_->ops.empty() && l < lanes_; l += draws_) {
    exact_ &= rounded_times(
        kSecondsPerNs, &work[l], &slowness_->ops[micro_batch][kernel * draws_], draws_, &time[l]);
  }
  for (std::size_t l = 0; stalls && l < lanes_; l += draws_) {
    stepsim::add(slowness_->stall.data(), draws_, &time[l]);
  }
}

void LaneFolder::fold_stretch(const LockstepStretch& stretch,
                              int rank,
                              Stall& stall,
                              LaneSpan& span) {
  const std::size_t m = at(stretch.micro_batch);
  span.reset(lanes_);
  for (const RepeatedWork& part : stretch.work_of(rank)) {
    int times = part.times;
    if (times == 1 || stall.any()) {
      add(part.work, m, stall, span);
      --times;
    }
    if (times == 0) {
      continue;
    }
    part_.reset(lanes_);
    add(part.work, m, stall, part_);
    span.add(part_, times);
  }
}

void LaneFolder::add(const std::vector<std::int32_t>& work,
                     std::size_t micro_batch,
                     Stall& stall,
                     LaneSpan& span) {
  for (const std::int32_t one : work) {
    const LaneTimes& time = time_of(one, micro_batch);
    if (!stall.any() || !run_.pricer().is_of_model(one)) {
      span.add(launch_.data(), time.data());
      continue;
    }
    // What holds up a pass holds up its first op of the model, as in StepLowering::fold().
    const Stall own = std::exchange(stall, {});
    LaneTimes held_launch = launch_;
    LaneTimes held_time = time;
    for (std::size_t l = 0; l < lanes_; ++l) {
      held_launch[l] += own.host[l];
      held_time[l] += own.device[l];
    }
    span.add(held_launch.data(), held_time.data());
  }
}

const LaneTimes& LaneFolder::time_of(std::int32_t work, std::size_t micro_batch) {
  std::vector<LaneTimes>& known = times_[micro_batch];
  if (at(work) >= known.size()) {
    known.resize(at(work) + 1);
  }
  LaneTimes& times = known[at(work)];
  if (times.empty()) {
    times.resize(lanes_);
    const bool of_model = run_.pricer().is_of_model(work);
    product(slowness_->compute.data(),
            factors_.group[run_.pricer().group_of(work)].data(),
            lanes_,
            factor_.data());
    exact_ &= rounded_times(run_.pricer().seconds_of(run_.priced_batch(first_ + micro_batch), work),
                            of_model ? slowness_->load[micro_batch].data() : ones_.data(),
                            factor_.data(),
                            lanes_,
                            times.data());
  }
  return times;
}

LaneFolder::Stall LaneFolder::stall_of(std::size_t batch, bool forward) {
  if (run_.loads().shape_stalls.empty() || run_.loads().shape_stalls[batch].builds == 0 ||
      run_.scenario().new_shapes.warm_up) {
    return {};
  }
  const ShapeStall& of_batch = run_.loads().shape_stalls[batch];
  const double host = forward ? of_batch.forward_host : of_batch.backward_host;
  const double device = forward ? of_batch.forward_device : of_batch.backward_device;
  Stall stall{LaneTimes(lanes_), LaneTimes(lanes_)};
  const auto rounded = [&](double seconds, LaneTimes& times) {
    exact_ &= rounded_times(seconds, ones_.data(), factors_.stall.data(), lanes_, times.data());
  };
  if (one_clock_) {  // A host that is the device has one clock.
    rounded(host + device, stall.device);
  } else {
    rounded(host, stall.host);
    rounded(device, stall.device);
  }
  return stall;
}

}  // namespace stepsim
