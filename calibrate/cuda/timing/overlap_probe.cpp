#include "calibrate/cuda/timing/overlap_probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/timing/overlap_work.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/samples/statistics.h"

namespace stepsim::cuda {
namespace {

/// Times that cover is looked for; each time with twice as much beside.
constexpr int kMaxTries = 3;
constexpr double kChannelBytesPerSecond = 20e9;
constexpr std::int64_t kStandInBuffer = std::int64_t{64} << 20U;

using Put = std::function<void()>;

/// One side of a pair: what is put into its stream, and seconds of one of it alone.
struct Side {
  const Stream& stream;
  Put put;
  double alone = 0;
};

class Probe {
 public:
  Probe(NcclGroup& group, const Stream& communication)
      : group_(group),
        communication_(communication),
        token_(sizeof(float)),
        answer_(sizeof(float)) {
    set_zero(communication_, token_.data(), sizeof(float));
  }

  /// Mean over ranks, the same on all of them.
  [[nodiscard]] double agree(double mine) {
    auto* value = answer_.as<float>();
    *value = static_cast<float>(mine);
    copy_to_device(communication_, token_.data(), value, sizeof(float));
    group_.all_reduce(communication_, {token_.data(), Dtype::F32}, 1);
    copy_to_host(communication_, value, token_.data(), sizeof(float));
    communication_.synchronize();
    return static_cast<double>(*value) / group_.ranks();
  }

  /// Seconds of one of `side` by itself; none when it could not be had on every rank.
  [[nodiscard]] std::optional<double> alone(const Side& side, int repetitions) {
    constexpr int kRun = 4;
    side.put();  // What is loaded at its first use would wait for the hold.
    side.stream.synchronize();
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
      hold({&side.stream});
      line_up(side.stream);
      begin_.record(side.stream);
      repeat(side, kRun);
      end_.record(side.stream);
      hold_.release();
      side.stream.synchronize();
      if (!hold_.expired()) {
        seconds.push_back(seconds_between(begin_, end_) / kRun);
      }
    }
    if (agree(seconds.empty() ? 1 : 0) > 0) {
      return std::nullopt;
    }
    constexpr double kResolution = 1e-7;  // A shorter time is none that a device can tell.
    return std::max(agree(median(seconds)), kResolution);
  }

  /// Seconds of one of `side` while `other` runs, from before it to after it; none when it could
  /// not be had.
  [[nodiscard]] std::optional<double> beside(const Side& side, const Side& other, int repetitions) {
    constexpr double kLeast = 1e-3;
    constexpr double kMaxRuns = 20;
    const int runs = static_cast<int>(std::clamp(std::ceil(kLeast / side.alone), 1.0, kMaxRuns));
    int others = repetitions_to_cover(runs * side.alone, other.alone);
    for (int i = 0; i < kMaxTries; ++i, others = std::min(2 * others, 400)) {
      std::vector<double> seconds;
      bool covered = true;
      for (int repetition = -1; repetition < repetitions; ++repetition) {
        covered = run_both(side, runs, other, others) && covered;
        if (repetition >= 0) {
          seconds.push_back(seconds_between(begin_, end_) / runs);
        }
      }
      // All ranks go on or try again together: they must call the same collectives.
      if (agree(covered ? 0 : 1) == 0) {
        return agree(median(seconds));
      }
    }
    return std::nullopt;
  }

 private:
  /// False: `other` ended first, or a hold before both were in.
  bool run_both(const Side& side, int runs, const Side& other, int others) {
    hold({&side.stream, &other.stream});
    line_up(other.stream);
    repeat(other, 1);
    other_began_.record(other.stream);
    repeat(other, others);
    other_ended_.record(other.stream);
    side.stream.wait(other_began_);
    begin_.record(side.stream);
    repeat(side, runs);
    end_.record(side.stream);
    hold_.release();
    side.stream.synchronize();
    other.stream.synchronize();
    return !hold_.expired() && seconds_between(end_, other_ended_) > 0;
  }

  static void repeat(const Side& side, int times) {
    for (int i = 0; i < times; ++i) {
      side.put();
    }
  }

  /// `stream` goes on when all ranks are here.
  void line_up(const Stream& stream) {
    group_.all_reduce(communication_, {token_.data(), Dtype::F32}, 1);
    lined_up_.record(communication_);
    stream.wait(lined_up_);
  }

  void hold(const std::vector<const Stream*>& streams) {
    hold_.start();
    for (const Stream* stream : streams) {
      hold_.hold(*stream);
    }
  }

  NcclGroup& group_;
  const Stream& communication_;
  DeviceBuffer token_;
  HostBuffer answer_;
  StreamHold hold_;
  Event lined_up_;
  Event begin_;
  Event end_;
  Event other_began_;
  Event other_ended_;
};

}  // namespace

int repetitions_to_cover(double seconds, double each) {
  constexpr double kMargin = 1.5;
  constexpr double kMax = 200;
  return static_cast<int>(std::clamp(std::ceil(kMargin * seconds / each), 2.0, kMax));
}

std::vector<OverlapSample> probe_overlaps(const TransformerConfig& model,
                                          NcclGroup& group,
                                          const Stream& compute,
                                          const Stream& communication,
                                          Dtype dtype,
                                          const OverlapSetting& setting) {
  const bool stand_in = group.ranks() == 1;
  const auto works = overlap_works(model, compute, setting.tokens, setting.copy_elements);
  compute.synchronize();
  const std::int64_t bytes = setting.collective_bytes;
  const DeviceBuffer message(static_cast<std::size_t>(stand_in ? kStandInBuffer : bytes));
  set_zero(communication, message.data(), message.bytes());
  Probe probe(group, communication);
  std::vector<OverlapSample> samples;
  for (const int channels : setting.channels) {
    std::optional<NcclGroup> few;
    if (!stand_in) {
      few.emplace(group, channels);
    }
    const double rate = kChannelBytesPerSecond * channels;
    Side collective{
        communication, [&] {
          if (stand_in) {
            stand_in_collective(communication,
                                channels,
                                0,
                                static_cast<double>(bytes) / rate,
                                message.data(),
                                kStandInBuffer,
                                setting.traffic * rate);
          } else {
            few->all_reduce(communication, {message.data(), dtype}, bytes / element_size(dtype));
          }
        }};
    const auto collective_alone = probe.alone(collective, setting.repetitions);
    collective.alone = collective_alone.value_or(0);
    for (const auto& work : works) {
      Side side{compute, [&] { work->put(compute); }};
      const auto compute_alone = probe.alone(side, setting.repetitions);
      if (!collective_alone || !compute_alone) {
        continue;
      }
      side.alone = *compute_alone;
      const auto compute_beside = probe.beside(side, collective, setting.repetitions);
      const auto collective_beside =
          stand_in ? std::optional<double>(0) : probe.beside(collective, side, setting.repetitions);
      if (compute_beside && collective_beside) {
        samples.push_back({channels,
                           bytes,
                           collective.alone,
                           *collective_beside,
                           work->name(),
                           0,
                           side.alone,
                           *compute_beside});
      }
    }
  }
  return samples;
}

}  // namespace stepsim::cuda
