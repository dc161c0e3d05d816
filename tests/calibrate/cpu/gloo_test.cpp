#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "calibrate/cpu/cpu_backend.h"
#include "calibrate/cpu/gloo_group.h"
#include "calibrate/ranks/rank_processes.h"
#include "tests/costmodel/helpers.h"

namespace stepsim {
namespace {

const auto kIgnoreGlooLines = [](int, const std::string&) {};

/// The message of the error that run_ranks ends with.
template <typename Error>
std::string error_of(int ranks, const std::function<void(const RankContext&)>& body) {
  return test::error_of<Error>([&] { run_ranks(ranks, body, kIgnoreGlooLines); });
}

}  // namespace

TEST_CASE("three ranks send ten thousand lines each and none is lost or out of order") {
  std::vector<int> next(3, 0);
  bool in_order = true;
  run_ranks(
      3,
      [](const RankContext& context) {
        for (int i = 0; i < 10000; ++i) {
          context.send(std::to_string(i) + std::string(static_cast<std::size_t>(i % 97), 'x'));
        }
      },
      [&](int rank, const std::string& line) {
        int& expected = next[static_cast<std::size_t>(rank)];
        in_order =
            in_order && line == std::to_string(expected) +
                                    std::string(static_cast<std::size_t>(expected % 97), 'x');
        ++expected;
      });
  CHECK(in_order);
  CHECK(next == std::vector<int>{10000, 10000, 10000});
}

TEST_CASE("the message of a rank that throws reaches the parent, and the others are stopped") {
  const auto body = [](const RankContext& context) {
    if (context.rank() == 1) {
      throw InputError("two lines:\nthe second");
    }
    ::sleep(60);
  };
  CHECK(error_of<InputError>(3, body) == "two lines:\nthe second");
  const auto faulty = [](const RankContext& context) {
    if (context.rank() == 0) {
      throw EnvironmentFault("disk full");
    }
    ::sleep(60);
  };
  CHECK(error_of<EnvironmentFault>(2, faulty) == "disk full");
}

TEST_CASE("a rank that aborts is reported by its signal, before its neighbours' lost connections") {
  const auto body = [](const RankContext& context) {
    GlooGroup group(context.rank(), context.ranks(), context.folder());
    if (context.rank() == 1) {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
    std::vector<float> data(1000, 1.0F);
    group.all_reduce(data.data(), data.size());
  };
  CHECK(error_of<EnvironmentFault>(2, body) == "rank 1 of 2 was ended by signal 6 (Aborted)");
}

TEST_CASE("a rank that leaves without a word is an error") {
  CHECK(error_of<EnvironmentFault>(1, [](const RankContext&) { ::_exit(7); }) ==
        "rank 0 of 1 ended early with status 7");
}

TEST_CASE("lines sent before a termination signal are kept") {
  std::vector<std::string> lines;
  const auto body = [](const RankContext& context) {
    context.send("before");
    context.send("stop me");
    ::sleep(60);
  };
  const auto on_line = [&](int, const std::string& line) {
    lines.push_back(line);
    if (line == "stop me") {
      std::raise(SIGTERM);
    }
  };
  CHECK_THROWS_AS(run_ranks(1, body, on_line), Interrupted);
  CHECK(lines == std::vector<std::string>{"before", "stop me"});
}

TEST_CASE("what rank 0 broadcasts reaches every rank, in order") {
  const std::string many_lines = "one\ntwo\n" + std::string(20000, 'x');
  int right = 0;
  run_ranks(
      3,
      [&](const RankContext& context) {
        const std::string mine = context.rank() == 0 ? many_lines : "not this";
        const bool first = context.broadcast(mine) == many_lines;
        const bool second = context.broadcast(context.rank() == 0 ? "" : "nor this").empty();
        const bool seated = context.local_rank() == context.rank() && context.nodes() == 1;
        context.send(first && second && seated ? "right" : "wrong");
      },
      [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
  CHECK(right == 3);
}

TEST_CASE("a broadcast that rank 0 never sends ends with rank 0") {
  const auto body = [](const RankContext& context) {
    if (context.rank() == 0) {
      throw EnvironmentFault("no id");
    }
    static_cast<void>(context.broadcast(""));
  };
  CHECK(error_of<EnvironmentFault>(3, body) == "no id");
  const auto gone = [](const RankContext& context) {
    if (context.rank() == 0) {
      ::usleep(50000);
      static_cast<void>(context.broadcast(std::string(100, 'x')));
      ::sleep(60);
    }
    ::_exit(7);
  };
  CHECK(error_of<EnvironmentFault>(2, gone) == "rank 1 of 2 ended early with status 7");
}

TEST_CASE("an exception of the receiver stops the ranks and passes on") {
  const auto body = [](const RankContext& context) {
    context.send("x");
    ::sleep(60);
  };
  CHECK_THROWS_AS(run_ranks(2, body, [](int, const std::string&) { throw 5; }), int);
}

TEST_CASE("an all-reduce sums over every rank, also for sizes that do not divide by them") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    int right = 0;
    run_ranks(
        ranks,
        [](const RankContext& context) {
          GlooGroup group(context.rank(), context.ranks(), context.folder());
          bool good = true;
          for (const std::size_t count : {1U, 2U, 7U, 1000U, 300001U}) {
            std::vector<float> data(count);
            for (std::size_t i = 0; i < count; ++i) {
              data[i] = static_cast<float>(i % 100) + static_cast<float>(context.rank());
            }
            group.all_reduce(data.data(), count);
            const int n = context.ranks();
            const auto extra = static_cast<float>(n * (n - 1) / 2);
            for (std::size_t i = 0; i < count; ++i) {
              good = good && data[i] == static_cast<float>(n) * static_cast<float>(i % 100) + extra;
            }
            group.barrier();
          }
          context.send(good ? "right" : "wrong");
        },
        [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
    CHECK(right == ranks);
  }
}

TEST_CASE(
    "a reduce-scatter leaves each rank its share of the sum, an all-gather brings them together") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    int right = 0;
    run_ranks(
        ranks,
        [](const RankContext& context) {
          GlooGroup group(context.rank(), context.ranks(), context.folder());
          const auto n = static_cast<std::size_t>(context.ranks());
          const auto rank = static_cast<std::size_t>(context.rank());
          bool good = true;
          for (const std::size_t share : {1U, 7U, 10000U}) {
            std::vector<float> data(share * n);
            for (std::size_t i = 0; i < data.size(); ++i) {
              data[i] = static_cast<float>(i % 100) + static_cast<float>(rank);
            }
            const std::vector<float> before = data;
            group.reduce_scatter(data.data(), data.size());
            const auto extra = static_cast<float>(n * (n - 1) / 2);
            const auto sum = [&](std::size_t i) {
              return static_cast<float>(n) * static_cast<float>(i % 100) + extra;
            };
            for (std::size_t i = 0; i < data.size(); ++i) {
              const bool mine = i / share == rank;
              good = good && data[i] == (mine ? sum(i) : before[i]);
            }
            group.all_gather(data.data(), data.size());
            for (std::size_t i = 0; i < data.size(); ++i) {
              good = good && data[i] == sum(i);
            }
          }
          context.send(good ? "right" : "wrong");
        },
        [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
    CHECK(right == ranks);
  }
}

TEST_CASE("the CPU backend times every collective, at sizes that do not divide by the ranks too") {
  int right = 0;
  run_ranks(
      3,
      [](const RankContext& context) {
        CpuBackend backend(context.rank(), context.ranks(), context.folder());
        bool good = backend.ops().ops.empty();
        for (const CollectiveKind kind : backend.collectives()) {
          for (const std::int64_t bytes : {4, 1000, 40000}) {
            backend.barrier();
            const CollectiveTimes times = backend.time_collective(kind, Bytes(bytes), 2);
            good = good && times.sound && times.end > times.arrival;
          }
        }
        context.send(good && backend.collectives().size() == 3 ? "right" : "wrong");
      },
      [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
  CHECK(right == 3);
}

TEST_CASE("a neighbour that does not take part in a collective is a fault that names it") {
  const auto body = [](const RankContext& context) {
    GlooGroup group(
        context.rank(), context.ranks(), context.folder(), std::chrono::milliseconds(200));
    if (context.rank() == 0) {
      std::vector<float> data(10, 1.0F);
      group.all_reduce(data.data(), data.size());
    }
    ::sleep(60);
  };
  const std::string message = error_of<EnvironmentFault>(2, body);
  CHECK(message.rfind("gloo: all-reduce failed on rank 0 of 2: ", 0) == 0);
}

}  // namespace stepsim
