#include "calibrate/fit/host_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

constexpr std::size_t kFewestMeetings = 5;
constexpr double kFewestErrors = 2;
/// A first meeting that takes longer than this many upper quartiles also loaded a library.
constexpr double kMostOverQuartile = 3;
/// What is known of later first meetings, at best.
constexpr double kLeastError = 0.1;

/// The mean and its standard error, without what a process does once: (0, 0) unless it is surely
/// above 0.
std::pair<double, double> sure_mean(std::vector<double> excesses) {
  const double most = kMostOverQuartile * quantile(excesses, 0.75);
  std::erase_if(excesses, [most](double excess) { return excess > most; });
  if (excesses.size() < kFewestMeetings) {
    return {0, 0};
  }
  const auto count = static_cast<double>(excesses.size());
  const double mean = sum_of(excesses) / count;
  const double squares =
      sum_of(excesses, [mean](double excess) { return (excess - mean) * (excess - mean); });
  const double error =
      std::sqrt(squares / (count * (count - 1))) * student_widening(excesses.size());
  return mean > kFewestErrors * error ? std::pair(mean, error) : std::pair(0.0, 0.0);
}

}  // namespace

LaunchCost fit_launch(std::span<const HostSample> hosts) {
  const auto seconds = [](const HostSample& host) {
    return (host.forward_seconds + host.backward_seconds + host.optimizer_seconds) / host.ops;
  };
  if (hosts.empty()) {
    return {};
  }
  const double most = kMostOverQuartile * quantile(mapped(hosts, seconds), 0.75);
  std::map<int, std::vector<double>> rounds;
  for (const HostSample& host : hosts) {
    if (seconds(host) <= most) {
      rounds[host.round].push_back(seconds(host));
    }
  }
  double mean = 0;
  double squares = 0;
  double kept = 0;
  for (const auto& [round, times] : rounds) {
    mean += sum_of(times);
    kept += static_cast<double>(times.size());
  }
  mean /= kept;
  const double copies = static_cast<double>(hosts.front().copies) / hosts.front().ops;
  for (const auto& [round, times] : rounds) {
    const double off = sum_of(times) / static_cast<double>(times.size()) - mean;
    squares += off * off;
  }
  if (rounds.size() < 2) {
    return {mean, 0, copies};
  }
  const auto count = static_cast<double>(rounds.size());
  // Once for the measurement, and once for the run.
  const double variance = 2 * squares / (count * (count - 1));
  return {mean, std::sqrt(variance) / mean * student_widening(rounds.size()), copies};
}

std::vector<ShapeCost> fit_meetings(std::span<const HostSample> meetings) {
  if (meetings.size() < kFewestMeetings) {
    return {};
  }
  ShapeCost cost;
  const auto [forward, forward_error] = sure_mean(mapped(meetings, &HostSample::forward_seconds));
  const auto [backward, backward_error] =
      sure_mean(mapped(meetings, &HostSample::backward_seconds));
  cost.forward_seconds = forward;
  cost.backward_seconds = backward;
  if (cost.seconds() <= 0) {
    return {};
  }
  cost.mechanism = "new shape";
  cost.relative_error =
      std::max(std::hypot(forward_error, backward_error) / cost.seconds(), kLeastError);
  return {cost};
}

UnitHostTimes fit_unit_host(std::span<const UnitHostTimes> hosts) {
  UnitHostTimes times;
  for (const auto member : {&UnitHostTimes::forward,
                            &UnitHostTimes::forward_tensor,
                            &UnitHostTimes::backward,
                            &UnitHostTimes::backward_tensor,
                            &UnitHostTimes::optimizer_tensor,
                            &UnitHostTimes::byte}) {
    times.*member = median(mapped(hosts, member));
  }
  return times;
}

}  // namespace stepsim
