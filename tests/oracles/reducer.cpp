#include "tests/oracles/reducer.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

namespace stepsim {

namespace {

[[noreturn]] void fail(int parameter, const std::string& message) {
  throw std::invalid_argument("reducer: parameter " + std::to_string(parameter) + " " + message);
}

/// Parameter -> index of the op that completes its gradient.
std::map<int, std::size_t> completing_ops(std::span<const Op> backward) {
  std::map<int, std::size_t> completed_by;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    for (const int parameter : backward[i].completes) {
      if (!completed_by.emplace(parameter, i).second) {
        fail(parameter, "is completed by two ops");
      }
    }
  }
  return completed_by;
}

}  // namespace

std::vector<std::size_t> launch_after(std::span<const Op> backward,
                                      const std::vector<std::vector<int>>& buckets) {
  // Entries are taken out as buckets claim them, so that what remains is in no bucket.
  std::map<int, std::size_t> unclaimed = completing_ops(backward);
  const std::map<int, std::size_t> completed_by = unclaimed;
  std::vector<std::size_t> launches;
  std::size_t latest = 0;
  for (const auto& bucket : buckets) {
    if (bucket.empty()) {
      throw std::invalid_argument("reducer: bucket " + std::to_string(launches.size()) +
                                  " has no parameters");
    }
    for (const int parameter : bucket) {
      const auto op = unclaimed.find(parameter);
      if (op == unclaimed.end()) {
        fail(parameter, completed_by.count(parameter) != 0 ? "is in two buckets" : "is in no op");
      }
      latest = std::max(latest, op->second);
      unclaimed.erase(op);
    }
    launches.push_back(latest);
  }
  if (!unclaimed.empty()) {
    fail(unclaimed.begin()->first, "is in no bucket");
  }
  return launches;
}

std::vector<Span> fold_backward(std::span<const Span> ops, std::span<const std::size_t> launches) {
  std::vector<Span> folded;
  folded.reserve(launches.size() + 1);
  std::size_t next = 0;
  const auto fold_until = [&](std::size_t end) {
    Span span;
    for (; next < end; ++next) {
      span = then(span, ops[next]);
    }
    folded.push_back(span);
  };
  for (const std::size_t launch : launches) {
    if (launch >= ops.size() || launch + 1 < next) {
      throw std::invalid_argument("reducer: launch after op " + std::to_string(launch) + " of " +
                                  std::to_string(ops.size()) + " is out of order");
    }
    fold_until(launch + 1);
  }
  fold_until(ops.size());
  return folded;
}

}  // namespace stepsim
