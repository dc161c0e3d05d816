// Four processes on one CPU, one of which sleeps before each batch.
#include <map>

#include "tests/published/predicted.h"
#include "tests/published/validation.h"
#include "tests/sim/parallel/ddp/ddp_fixture.h"

namespace stepsim::published {

namespace {

constexpr int kWarmup = 2;
constexpr int kRanks = 4;

/// Means over the steady steps of one case, [rank] in milliseconds.
struct Case {
  std::map<int, double> data;
  std::map<int, double> compute;
  std::map<int, double> step;

  /// Mean over ranks from `first` on.
  [[nodiscard]] static double mean(const std::map<int, double>& by_rank, int first = 0) {
    double sum = 0;
    int count = 0;
    for (const auto& [rank, ms] : by_rank) {
      if (rank >= first) {
        sum += ms;
        ++count;
      }
    }
    return sum / count;
  }
  [[nodiscard]] double slowest() const {
    double most = 0;
    for (const auto& [rank, ms] : step) {
      most = std::max(most, ms);
    }
    return most;
  }
};

Case read_case(const CsvTable& table, const std::string& name) {
  constexpr int kSteps = 12;
  const auto label = table.column("case");
  const auto rank = table.column("rank");
  const auto step = table.column("step");
  Case result;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, label) != name || table.integer(row, step, 0, kSteps) < kWarmup) {
      continue;
    }
    const auto r = static_cast<int>(table.integer(row, rank, 0, kRanks));
    constexpr double kShare = 1.0 / (kSteps - kWarmup);
    result.data[r] += kShare * number(table, row, table.column("data_ms"));
    result.compute[r] += kShare * number(table, row, table.column("compute_ms"));
    result.step[r] += kShare * number(table, row, table.column("step_ms"));
  }
  return result;
}

Duration of_ms(double ms) {
  return to_duration(ms * 1e-3);
}

/// The step of the lab's model, played by the engine: two buckets of its six tensors, gloo's
/// blocking all-reduces, ranks that start together and have their batch after data[rank]
/// milliseconds. `compute_ms`: all else; what of it is the transfer does not matter to the barrier.
/// The result is the last rank's, which is late only because others are.
double play(const std::map<int, double>& data, double compute_ms) {
  constexpr double kForwardShare = 1.0 / 3;
  constexpr double kTensors = 6;
  test::DdpCase lab({4194304, 4096, 4194304, 4096, 4096000, 4000}, kRanks);
  lab.host.waits_for_collectives = lab.host.is_device = true;
  lab.limits(1 << 20, 25 << 20);
  lab.compute(of_ms(compute_ms * kForwardShare),
              of_ms(compute_ms * (1 - kForwardShare) / kTensors));
  lab.reduce = [](double) { return Duration::zero(); };
  for (const auto& [rank, ms] : data) {
    lab.batch(static_cast<std::size_t>(rank)).collate = of_ms(ms);
  }
  return to_ms(lab.play().device_end(kRanks - 1).time_since_epoch());
}

}  // namespace

Validation ddp_lab(const std::string& data) {
  const CsvTable table(data + "/seed_lab/ddp_lab.csv");
  const Case alone = read_case(table, "weak_ws1");
  const Case even = read_case(table, "weak_ws4");
  const Case skewed = read_case(table, "skew_ws4");
  Validation result;
  result.title = "DDP lab, 4 gloo ranks on one CPU: rank 0 sleeps 40 ms before each batch";
  result.source =
      "duoan/playground-cuda@119ae2b4; batch 128 a rank, means of steps 2 to 11. In: the data "
      "times "
      "of each rank, and the compute time of the same case without sleep (slowed by all four "
      "ranks) or of one rank alone";
  result.unit = "ms";
  result.variants = {"compute as slow as with 4 ranks", "compute as fast as alone"};
  result.proves =
      "The barrier rule: one late rank sets the step of all, and the others' wait is where it was "
      "measured, inside their compute time.";
  result.cannot =
      "How fast a rank computes while the others sleep or wait: ranks of one socket slow each "
      "other, the simulator has no such rule, and the measured step lies between its two bounds.";
  const double compute_even = Case::mean(even.compute);
  const double compute_alone = Case::mean(alone.compute);
  const double barrier = skewed.step.at(0) - Case::mean(skewed.data, 1);
  result.figures = {{"step, rank 0 late",
                     skewed.slowest(),
                     {play(skewed.data, compute_even), play(skewed.data, compute_alone)}},
                    {"the others' compute, from that step of rank 0",
                     Case::mean(skewed.compute, 1),
                     {barrier, {}}},
                    {"step, no rank late", even.slowest(), {{}, play(even.data, compute_alone)}}};
  return result;
}

}  // namespace stepsim::published
