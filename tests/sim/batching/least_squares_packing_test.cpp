// Packing by non-negative least squares over the histogram of lengths.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include <Eigen/Dense>
#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/histogram_packing.h"
#include "sim/batching/algorithms/sparse_nnls.h"
#include "sim/batching/histogram.h"
#include "sim/batching/policy.h"
#include "tests/approx.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

double below(std::mt19937_64& random, std::uint64_t n) {
  return static_cast<double>(random() % n);
}

/// |A x - b|^2 at its least over x >= 0: least squares over every set of columns, those without a
/// negative coefficient.
double least_squares_by_search(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  double best = b.squaredNorm();
  for (unsigned set = 1; set < 1U << static_cast<unsigned>(a.cols()); ++set) {
    Eigen::MatrixXd part(a.rows(), 0);
    for (Eigen::Index j = 0; j < a.cols(); ++j) {
      if ((set >> static_cast<unsigned>(j) & 1U) != 0) {
        part.conservativeResize(Eigen::NoChange, part.cols() + 1);
        part.rightCols(1) = a.col(j);
      }
    }
    const Eigen::VectorXd x = part.colPivHouseholderQr().solve(b);
    if (x.minCoeff() >= 0) {
      best = std::min(best, (part * x - b).squaredNorm());
    }
  }
  return best;
}

/// The least number of packs, by trying every pack for every sequence.
std::size_t fewest_packs(const Ids& lengths, std::int64_t capacity, std::int64_t max_sequences) {
  std::size_t best = lengths.size();
  std::vector<Ids> packs;
  const std::function<void(std::size_t)> place = [&](std::size_t next) {
    if (packs.size() >= best) {
      return;
    }
    if (next == lengths.size()) {
      best = packs.size();
      return;
    }
    for (std::size_t i = 0; i < packs.size(); ++i) {
      const auto used = std::accumulate(packs[i].begin(), packs[i].end(), std::int64_t{0});
      if (used + lengths[next] <= capacity && std::ssize(packs[i]) < max_sequences) {
        packs[i].push_back(lengths[next]);
        place(next + 1);
        packs[i].pop_back();
      }
    }
    packs.push_back({lengths[next]});
    place(next + 1);
    packs.pop_back();
  };
  place(0);
  return best;
}

/// Every sequence once, no pack above the capacity or of too many sequences.
void check_packing(const HistogramPacking& packing, const Ids& counts, std::int64_t max_sequences) {
  Ids placed(counts.size(), 0);
  for (const auto& [count, lengths] : packing.strategies) {
    CHECK(count > 0);
    CHECK(std::is_sorted(lengths.begin(), lengths.end()));
    CHECK(std::ssize(lengths) <= max_sequences);
    CHECK(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) <= std::ssize(counts));
    for (const auto length : lengths) {
      placed[static_cast<std::size_t>(length) - 1] += count;
    }
  }
  CHECK(placed == counts);
}

double percent_full(const HistogramPacking& packing, std::size_t capacity) {
  return 100 * static_cast<double>(packing.tokens()) /
         (static_cast<double>(packing.packs()) * static_cast<double>(capacity));
}

/// [length - 1] of a shipped histogram.
Ids shipped_counts(const std::string& id, std::size_t capacity) {
  Ids counts(capacity, 0);
  for (const auto& [length, count] :
       read_histogram(source_root() + "/scenarios/lengths/" + id + ".json").counts) {
    counts[static_cast<std::size_t>(length) - 1] += count;
  }
  return counts;
}

}  // namespace

TEST_CASE("sparse non-negative least squares equals a search through all sets of columns") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Eigen::MatrixXd a(static_cast<Eigen::Index>(1 + random() % 5),
                      static_cast<Eigen::Index>(1 + random() % 8));
    for (Eigen::Index j = 0; j < a.cols(); ++j) {
      do {
        for (Eigen::Index i = 0; i < a.rows(); ++i) {
          a(i, j) = random() % 2 == 0 ? 0 : below(random, 7) - 2;
        }
      } while (a.col(j).squaredNorm() == 0);
    }
    Eigen::VectorXd b(a.rows());
    for (auto& value : b) {
      value = below(random, 100) - 20;
    }
    const Eigen::VectorXd x = sparse_nnls(a.sparseView(), b, 1e-9);
    CHECK(x.minCoeff() >= 0);
    CHECK((a * x - b).squaredNorm() ==
          doctest::Approx(least_squares_by_search(a, b)).epsilon(1e-9));
  }
}

TEST_CASE(
    "packing by least squares places every sequence, never in fewer packs than there must be") {
  int instances = 0;
  int least = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto max_sequences = static_cast<std::int64_t>(1 + seed % 4);
    Ids counts(3 + random() % 14, 0);
    Ids lengths(1 + random() % 8);
    for (auto& length : lengths) {
      const auto index = random() % counts.size();
      length = static_cast<std::int64_t>(index) + 1;
      ++counts[index];
    }
    const HistogramPacking packing = pack_least_squares(counts, max_sequences);
    check_packing(packing, counts, max_sequences);
    const auto fewest =
        static_cast<std::int64_t>(fewest_packs(lengths, std::ssize(counts), max_sequences));
    CHECK(packing.packs() >= fewest);
    ++instances;
    least += packing.packs() == fewest ? 1 : 0;
  }
  MESSAGE(least << " of " << instances << " small instances in the least number of packs");
}

// Of many full packs every length occurs as often as they ask, so the least squares are 0 and only
// rounding leaves sequences over: less than one of each of at most S ways to fill a pack, of at
// most three sequences.
TEST_CASE("what was cut from full packs is packed full again but for rounding") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::int64_t kCapacity = 40;
    Ids counts(kCapacity, 0);
    std::int64_t packs = 0;
    for (int i = 0; i < 12; ++i) {
      const auto count = static_cast<std::int64_t>(random() % 5000);
      const auto first = static_cast<std::int64_t>(1 + random() % (kCapacity - 2));
      const auto second = static_cast<std::int64_t>(
          1 + random() % static_cast<std::uint64_t>(kCapacity - first - 1));
      for (const auto length : {first, second, kCapacity - first - second}) {
        counts[static_cast<std::size_t>(length) - 1] += count;
      }
      packs += count;
    }
    const HistogramPacking packing = pack_least_squares(counts, 3);
    check_packing(packing, counts, 3);
    CHECK(packing.packs() >= packs);
    CHECK(packing.packs() <= packs + 3 * kCapacity);
  }
}

TEST_CASE("three sequences a pack: least squares fills SQuAD and Wikipedia better than the rest") {
  for (const auto& [id, capacity, least] :
       {std::tuple("squad_1_1_384", 384, 97.8), std::tuple("wikipedia_mlperf_512", 512, 99.7)}) {
    const Ids counts = shipped_counts(id, static_cast<std::size_t>(capacity));
    const auto nnls = pack_least_squares(counts, 3);
    check_packing(nnls, counts, 3);
    const double longest = percent_full(pack_longest_first(counts, 3), counts.size());
    const double shortest = percent_full(pack_shortest_first(counts, 3), counts.size());
    const double squares = percent_full(nnls, counts.size());
    MESSAGE(std::string(id) << ": " << longest << " % full by LPFHP, " << shortest
                            << " % by SPFHP, " << squares << " % by NNLSHP, "
                            << static_cast<double>(nnls.sequences()) /
                                   static_cast<double>(nnls.packs())
                            << " sequences a pack");
    CHECK(squares > longest);
    CHECK(squares > shortest);
    CHECK(squares >= least);
  }
}

TEST_CASE("too many ways to fill a pack are bad input") {
  CHECK_THROWS_WITH_AS(
      (void)pack_least_squares(Ids(512, 1), 12),
      "algorithm \"nnlshp\" weighs every way to fill 512 tokens with 12 samples or "
      "fewer, and these are more than 262144; lower max_sequences_per_pack (3 is "
      "usual)",
      InputError);
  CHECK_THROWS_AS((void)pack_least_squares(Ids(1 << 20, 1), 2), InputError);
  // One sequence a pack is one way, whatever the capacity.
  CHECK(pack_least_squares(Ids(2000, 1), 1).packs() == 2000);
}
