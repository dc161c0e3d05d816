#include "sim/points/point_runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/memory_limit.h"
#include "costmodel/base/parallel.h"
#include "costmodel/base/parse_number.h"
#include "sim/points/point_pool.h"

namespace stepsim {

namespace {

// The first letter of a message. To process 0:
constexpr char kFree = 'R';      // A thread is free.
constexpr char kResult = 'D';    // NUMBER\nRESULT
constexpr char kNoResult = 'N';  // NUMBER\nWHY
constexpr char kFault = 'E';     // WHY: this process can compute nothing.
constexpr char kGone = 'B';      // No more messages follow.
// From process 0:
constexpr char kCompute = 'P';  // NUMBER\nPOINT
constexpr char kDismiss = 'S';

std::string numbered(char kind, std::size_t number, const std::string& text) {
  return fmt::format("{}{}\n{}", kind, number, text);
}

/// Takes a numbered message apart.
PointTask task_in(const std::string& message) {
  const std::size_t end = message.find('\n');
  const auto number = parse_number<std::size_t>(message.substr(1, end - 1));
  if (end == std::string::npos || !number) {
    throw EnvironmentFault("a message between processes is damaged");
  }
  return {*number, message.substr(end + 1)};
}

/// Waits as long as a message takes.
void wait_a_moment() {
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

int threads_wanted(const PointSources& sources) {
  if (sources.threads > 0) {
    return sources.threads;
  }
  return sources.peers != nullptr
             ? 1
             : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

/// Computes points for process 0 until that has no more.
[[noreturn]] void compute_for_leader(Peers& peers, int threads, const PointAnswer& answer) {
  const MemoryShares shares(at(threads));
  PointPool pool(threads, answer);
  for (int i = 0; i < threads; ++i) {
    peers.send(0, std::string(1, kFree));
  }
  while (true) {
    for (const PointOutcome& outcome : pool.outcomes()) {
      peers.send(0,
                 numbered(outcome.failed ? kNoResult : kResult, outcome.task.number, outcome.text));
    }
    while (const std::optional<PeerMessage> message = peers.receive()) {
      if (message->text.front() == kDismiss) {
        peers.send(0, std::string(1, kGone));
        throw PointsComputed();
      }
      pool.give(task_in(message->text));
    }
  }
}

/// One round of points on process 0.
class Round {
 public:
  Round(Peers& peers,
        std::vector<int>& free_peers,
        const std::vector<std::string>& points,
        const std::function<void(const std::string&, const std::string&)>& take)
      : peers_(peers), free_peers_(free_peers), points_(points), take_(take) {}

  void run(PointPool& pool, const ProgressCallback& on_progress) {
    int free_here = pool.threads();
    while (under_way_ > 0 || (next_ < points_.size() && !failed_point_)) {
      deal(pool, free_here);
      for (const PointOutcome& outcome : pool.outcomes()) {
        ++free_here;
        close(0, outcome);
      }
      while (const std::optional<PeerMessage> message = peers_.receive()) {
        read(*message);
      }
      if (on_progress) {
        on_progress(static_cast<double>(done_) / static_cast<double>(points_.size()));
      }
    }
  }

  /// The first point that failed, and where.
  [[nodiscard]] std::optional<std::size_t> failed_point() const { return failed_point_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  void deal(PointPool& pool, int& free_here) {
    const auto has_more = [this] { return next_ < points_.size() && !failed_point_; };
    for (; has_more() && !free_peers_.empty(); free_peers_.pop_back(), ++under_way_) {
      peers_.send(free_peers_.back(), numbered(kCompute, next_, points_[next_]));
      ++next_;
    }
    for (; has_more() && free_here > 0; --free_here, ++under_way_) {
      pool.give({next_, points_[next_]});
      ++next_;
    }
  }

  void read(const PeerMessage& message) {
    const char kind = message.text.front();
    if (kind == kFault) {
      throw EnvironmentFault("process {} of {} cannot compute: {}",
                             message.from,
                             peers_.count(),
                             message.text.substr(1));
    }
    free_peers_.push_back(message.from);
    if (kind != kFree) {
      const PointTask task = task_in(message.text);
      close(message.from, {{task.number, ""}, kind == kNoResult, task.point});
    }
  }

  void close(int from, const PointOutcome& outcome) {
    --under_way_;
    ++done_;
    const std::size_t number = outcome.task.number;
    if (!outcome.failed) {
      take_(points_[number], outcome.text);
    } else if (!failed_point_ || number < *failed_point_) {
      failed_point_ = number;
      failure_ = fmt::format("process {} of {}: {}", from, peers_.count(), outcome.text);
    }
  }

  Peers& peers_;
  std::vector<int>& free_peers_;
  const std::vector<std::string>& points_;
  const std::function<void(const std::string&, const std::string&)>& take_;
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
  std::size_t done_ = 0;
  std::optional<std::size_t> failed_point_;
  std::string failure_;
};

}  // namespace

PointRunner::PointRunner(PointSources sources) : sources_(std::move(sources)) {
  if (sources_.store != nullptr) {
    known_ = sources_.store->results();
  }
  for (const PointFile& part : sources_.parts) {
    known_.insert(part.results.begin(), part.results.end());
  }
}

void PointRunner::for_each(std::size_t count,
                           const ProgressCallback& on_progress,
                           const std::function<void(std::size_t)>& work) const {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<std::size_t> done{0};
  const auto tell = [&] {
    if (on_progress && std::this_thread::get_id() == caller) {
      on_progress(static_cast<double>(done) / static_cast<double>(count));
    }
  };
  const MemoryShares shares(std::min(count, at(threads_wanted(sources_))));
  parallel_for(count, threads_wanted(sources_), [&](std::size_t i) {
    tell();
    work(i);
    ++done;
    tell();
  });
}

void PointRunner::take(const std::string& point, const std::string& result) {
  if (sources_.store != nullptr) {
    sources_.store->add(point, result);
  }
  known_[point] = result;
}

void PointRunner::compute(const std::vector<std::string>& points,
                          const PointAnswer& answer,
                          const ProgressCallback& on_progress) {
  std::vector<std::string> missing;
  std::set<std::string> named;
  for (const std::string& point : points) {
    if (!knows(point) && named.insert(point).second) {
      missing.push_back(point);
    }
  }
  if (sources_.elsewhere) {
    const std::vector<std::string> results = sources_.elsewhere(missing);
    if (results.size() != missing.size()) {
      throw EnvironmentFault("{} results came back of {} points", results.size(), missing.size());
    }
    for (std::size_t i = 0; i < missing.size(); ++i) {
      take(missing[i], results[i]);
    }
    return;
  }
  if (sources_.peers == nullptr) {
    std::mutex mutex;
    for_each(missing.size(), on_progress, [&](std::size_t i) {
      const std::string result = answer(missing[i]);
      const std::lock_guard lock(mutex);
      take(missing[i], result);
    });
    return;
  }
  const std::function<void(const std::string&, const std::string&)> taker =
      [this](const std::string& point, const std::string& result) { take(point, result); };
  Round round(*sources_.peers, free_peers_, missing, taker);
  {
    const MemoryShares shares(at(threads_wanted(sources_)));
    PointPool pool(threads_wanted(sources_), answer);
    round.run(pool, on_progress);
  }
  if (round.failed_point()) {
    // Bad input fails here, too, and says so in its own words.
    (void)answer(missing[*round.failed_point()]);
    throw EnvironmentFault(round.failure());
  }
}

std::vector<std::string> PointRunner::answers(const std::vector<std::string>& points,
                                              const PointAnswer& answer,
                                              const ProgressCallback& on_progress) {
  if (sources_.peers != nullptr && sources_.peers->own() > 0) {
    compute_for_leader(*sources_.peers, threads_wanted(sources_), answer);
  }
  if (!sources_.serve.empty()) {
    std::vector<std::string> results(sources_.serve.size());
    for_each(results.size(), on_progress, [&](std::size_t i) {
      results[i] = answer(sources_.serve[i]);
    });
    throw PointsServed{std::move(results)};
  }
  if (!sources_.parts.empty()) {
    require_all_of_parts(points);
  } else {
    compute(points, answer, on_progress);
  }
  std::vector<std::string> texts;
  texts.reserve(points.size());
  for (const std::string& point : points) {
    texts.push_back(known_.at(point));
  }
  return texts;
}

std::size_t PointRunner::keep_answers(const std::vector<std::string>& points,
                                      const PointAnswer& answer,
                                      const ProgressCallback& on_progress) {
  std::vector<std::string> own;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (sources_.shard.has(i)) {
      own.push_back(points[i]);
    }
  }
  compute(own, answer, on_progress);
  return own.size();
}

void PointRunner::require_all_of_parts(const std::vector<std::string>& points) const {
  const StudyId& study = sources_.parts.front().id;
  for (const PointFile& part : sources_.parts) {
    std::size_t wanted = 0;
    std::size_t missing = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      wanted += part.shard.has(i) ? 1 : 0;
      missing += part.shard.has(i) && !knows(points[i]) ? 1 : 0;
    }
    if (missing > 0) {
      const std::string shard = part.shard.is_all() ? "" : " --shard " + part.shard.text();
      throw InputError(SourcePlace{part.path},
                       "{} of its {} points are not there yet; finish it:\n  {}{} --resume {}",
                       missing,
                       wanted,
                       study.command_line(),
                       shard,
                       part.path);
    }
  }
}

void dismiss_peers(Peers& peers) {
  for (int peer = 1; peer < peers.count(); ++peer) {
    peers.send(peer, std::string(1, kDismiss));
  }
  for (int left = peers.count() - 1; left > 0;) {
    const std::optional<PeerMessage> message = peers.receive();
    if (!message) {
      wait_a_moment();
    } else if (message->text.front() == kGone) {
      --left;
    }
  }
}

void wait_until_dismissed(Peers& peers, const std::string& failure) {
  if (!failure.empty()) {
    peers.send(0, kFault + failure);
  }
  while (true) {
    const std::optional<PeerMessage> message = peers.receive();
    if (!message) {
      wait_a_moment();
    } else if (message->text.front() == kDismiss) {
      peers.send(0, std::string(1, kGone));
      return;
    }
  }
}

}  // namespace stepsim
