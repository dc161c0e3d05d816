#include "sim/points/point_runner.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include "tests/test_data.h"

using namespace stepsim;

namespace {

const StudyId kRounds = {"1", "tune", {}, "s", "p"};

/// Processes that are threads of this one.
class Exchange {
 public:
  explicit Exchange(int count) : inboxes_(static_cast<std::size_t>(count)) {}

  void send(int to, PeerMessage message) {
    const std::lock_guard lock(mutex_);
    inboxes_[static_cast<std::size_t>(to)].push_back(std::move(message));
  }
  std::optional<PeerMessage> receive(int own) {
    const std::lock_guard lock(mutex_);
    auto& inbox = inboxes_[static_cast<std::size_t>(own)];
    if (inbox.empty()) {
      return std::nullopt;
    }
    PeerMessage message = std::move(inbox.front());
    inbox.pop_front();
    return message;
  }
  [[nodiscard]] int count() const { return static_cast<int>(inboxes_.size()); }

 private:
  std::mutex mutex_;
  std::vector<std::deque<PeerMessage>> inboxes_;
};

class ThreadPeer : public Peers {
 public:
  ThreadPeer(Exchange& exchange, int own) : exchange_(exchange), own_(own) {}
  [[nodiscard]] int own() const override { return own_; }
  [[nodiscard]] int count() const override { return exchange_.count(); }
  void send(int to, const std::string& text) override { exchange_.send(to, {own_, text}); }
  [[nodiscard]] std::optional<PeerMessage> receive() override { return exchange_.receive(own_); }

 private:
  Exchange& exchange_;
  int own_;
};

using Work = std::function<double(const std::string&)>;

std::vector<std::string> numbers_below(int end) {
  std::vector<std::string> points;
  for (int i = 0; i < end; ++i) {
    points.push_back(std::to_string(i));
  }
  return points;
}

double third_of(const std::string& point) {
  return std::stod(point) / 3;
}

/// Runs `lead` on process 0 while the others compute with `work`.
template <typename Lead>
void with_peers(int count, const Work& work, Lead lead) {
  Exchange exchange(count);
  std::vector<std::thread> others;
  for (int own = 1; own < count; ++own) {
    others.emplace_back([&, own] {
      ThreadPeer peer(exchange, own);
      PointSources sources;
      sources.peers = &peer;
      PointRunner runner(std::move(sources));
      try {
        (void)runner.evaluate({}, work);
      } catch (const PointsComputed&) {
      }
    });
  }
  ThreadPeer peer(exchange, 0);
  lead(peer);
  dismiss_peers(peer);
  for (std::thread& other : others) {
    other.join();
  }
}

/// A file in a new folder.
class StoreFile {
 public:
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] PointRunner runner(const Shard& shard = {}, Peers* peers = nullptr) const {
    PointSources sources;
    sources.threads = 2;
    sources.store = std::make_unique<PointStore>(path(), kRounds, shard);
    sources.shard = shard;
    sources.peers = peers;
    return PointRunner(std::move(sources));
  }

 private:
  std::string path_ = test::fresh_folder() + "/points.jsonl";
};

}  // namespace

TEST_CASE("results stand in the order of the points, from however many threads") {
  for (const int threads : {1, 2, 5}) {
    PointRunner runner({threads});
    const std::vector<double> results = runner.evaluate(numbers_below(50), Work(third_of));
    REQUIRE(results.size() == 50);
    CHECK(results[7] == 7.0 / 3);
    CHECK(results[49] == 49.0 / 3);
  }
}

TEST_CASE("the first point that fails is the one that is reported") {
  const Work fails = [](const std::string& point) {
    if (point == "30" || point == "31" || point == "49") {
      throw InputError("no " + point);
    }
    return third_of(point);
  };
  const StoreFile file;
  for (int round = 0; round < 20; ++round) {
    PointRunner plain({4});
    CHECK_THROWS_WITH_AS((void)plain.evaluate(numbers_below(50), fails), "no 30", InputError);
    PointRunner kept = file.runner();
    CHECK_THROWS_WITH_AS((void)kept.evaluate(numbers_below(50), fails), "no 30", InputError);
    CHECK(kept.store()->results().size() >= 30);
  }
}

TEST_CASE("what a store holds is not computed again, in this round or the next") {
  const StoreFile file;
  std::atomic<int> computed = 0;
  const Work counted = [&](const std::string& point) {
    ++computed;
    return third_of(point);
  };
  {
    PointRunner runner = file.runner();
    CHECK(runner.evaluate({"1", "2", "1"}, counted) == std::vector{1.0 / 3, 2.0 / 3, 1.0 / 3});
    CHECK(computed == 2);
    CHECK(runner.evaluate({"2", "3"}, counted) == std::vector{2.0 / 3, 1.0});
    CHECK(computed == 3);
  }
  PointRunner again = file.runner();
  CHECK(again.evaluate({"3", "2", "1"}, counted) == std::vector{1.0, 2.0 / 3, 1.0 / 3});
  CHECK(computed == 3);
}

TEST_CASE("shards compute their own points, and their files make the whole") {
  std::vector<PointFile> parts;
  const std::vector<std::string> points = numbers_below(10);
  for (int number = 1; number <= 3; ++number) {
    const StoreFile file;
    {
      PointRunner runner = file.runner({number, 3});
      CHECK(runner.keep(points, Work(third_of)) == (number == 1 ? 4U : 3U));
    }
    parts.push_back(read_point_file(file.path()));
    CHECK(parts.back().results.count(exact_text(std::to_string(number + 2))) == 1);
  }
  const Work never = [](const std::string& point) -> double {
    throw InputError("computed " + point);
  };
  PointSources whole;
  whole.parts = parts;
  PointRunner merged(std::move(whole));
  CHECK(merged.evaluate(points, never) == PointRunner().evaluate(points, Work(third_of)));
  parts[1].results.erase("\"4\"");
  PointSources torn;
  torn.parts = parts;
  PointRunner incomplete(std::move(torn));
  try {
    (void)incomplete.evaluate(points, never);
    FAIL("no error");
  } catch (const InputError& error) {
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.find("1 of its 3 points are not there yet; finish it:\n  stepsim tune --shard "
                       "2/3 --resume " +
                       parts[1].path) != std::string::npos);
  }
}

TEST_CASE("points that are served elsewhere give the same results, round after round") {
  int served = 0;
  const auto elsewhere = [&](const std::vector<std::string>& points) {
    PointSources sources;
    sources.serve = points;
    PointRunner server(std::move(sources));
    try {
      // A server computes what it is told to, whatever its own first round would be.
      (void)server.evaluate(numbers_below(2), Work(third_of));
    } catch (const PointsServed& done) {
      served += static_cast<int>(done.results.size());
      return done.results;
    }
    return std::vector<std::string>();
  };
  PointSources sources;
  sources.elsewhere = elsewhere;
  PointRunner runner(std::move(sources));
  PointRunner alone;
  const std::vector<std::string> points = numbers_below(40);
  CHECK(runner.evaluate(points, Work(third_of)) == alone.evaluate(points, Work(third_of)));
  CHECK(served == 40);
  CHECK(runner.evaluate(numbers_below(50), Work(third_of)).size() == 50);
  CHECK(served == 50);  // What came back is not asked for again.
}

TEST_CASE("results that do not come back from elsewhere are a fault") {
  PointSources sources;
  sources.elsewhere = [](const std::vector<std::string>&) { return std::vector<std::string>(3); };
  PointRunner runner(std::move(sources));
  CHECK_THROWS_AS((void)runner.evaluate(numbers_below(4), Work(third_of)), EnvironmentFault);
}

TEST_CASE("peers get points as they get free, round after round") {
  for (const int count : {2, 3, 6}) {
    std::mutex mutex;
    std::map<std::thread::id, int> by_thread;
    const Work work = [&](const std::string& point) {
      std::this_thread::sleep_for(std::chrono::milliseconds(point == "0" ? 60 : 1));
      const std::lock_guard lock(mutex);
      ++by_thread[std::this_thread::get_id()];
      return third_of(point);
    };
    const StoreFile file;
    with_peers(count, work, [&](Peers& peers) {
      PointRunner runner = file.runner({}, &peers);
      const std::vector<double> first = runner.evaluate(numbers_below(40), work);
      CHECK(first == PointRunner().evaluate(numbers_below(40), Work(third_of)));
      const std::vector<double> second = runner.evaluate({"41", "3", "42"}, work);
      CHECK(second == std::vector{41.0 / 3, 1.0, 14.0});
    });
    int all = 0;
    int most = 0;
    for (const auto& [thread, points] : by_thread) {
      all += points;
      most = std::max(most, points);
    }
    CHECK(all == 42);
    // Who has the long point, the first one, gets few others.
    CHECK(most > 42 / (count + 1));
    CHECK(read_point_file(file.path()).results.size() == 42);
  }
}

TEST_CASE("a point that fails on a peer fails here, in its own words") {
  const Work fails = [](const std::string& point) {
    if (point == "5") {
      throw InputError("no five");
    }
    return third_of(point);
  };
  with_peers(3, fails, [&](Peers& peers) {
    PointSources sources;
    sources.peers = &peers;
    PointRunner runner(std::move(sources));
    CHECK_THROWS_WITH_AS((void)runner.evaluate(numbers_below(20), fails), "no five", InputError);
  });
}

TEST_CASE("a fault of one process names it") {
  const std::thread::id here = std::this_thread::get_id();
  const Work only_there = [&](const std::string& point) {
    if (point == "5" && std::this_thread::get_id() != here) {
      throw EnvironmentFault("its disk is full");
    }
    return third_of(point);
  };
  with_peers(2, only_there, [&](Peers& peers) {
    PointSources sources;
    sources.peers = &peers;
    PointRunner runner(std::move(sources));
    try {
      (void)runner.evaluate(numbers_below(20), only_there);
      FAIL("no error");
    } catch (const EnvironmentFault& error) {
      const std::string message = error.what();
      CHECK(message.find(" of 2: its disk is full") != std::string::npos);
    }
  });
}

TEST_CASE("a process that cannot begin ends the study and is named") {
  Exchange exchange(2);
  std::thread other([&] {
    ThreadPeer peer(exchange, 1);
    wait_until_dismissed(peer, "no profile here");
  });
  ThreadPeer peer(exchange, 0);
  {
    PointSources sources;
    sources.peers = &peer;
    PointRunner runner(std::move(sources));
    const Work slow = [](const std::string& point) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return third_of(point);
    };
    CHECK_THROWS_WITH_AS((void)runner.evaluate(numbers_below(200), slow),
                         "process 1 of 2 cannot compute: no profile here",
                         EnvironmentFault);
  }
  dismiss_peers(peer);
  other.join();
}
