#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/points/exact_json.h"
#include "sim/points/peers.h"
#include "sim/points/point_store.h"
#include "sim/points/shard.h"

namespace stepsim {

/// Computes points in other processes, with the same study there.
using PointServer = std::function<std::vector<std::string>(const std::vector<std::string>& points)>;

/// Where the results of points come from, beside the threads of this process.
struct PointSources {
  int threads = 0;  ///< 0: one a core; one in each process where there are several.
  /// Holds results of earlier runs, and keeps those of this one; null: there is none.
  std::unique_ptr<PointStore> store = {};
  /// Only this part of the points is computed; it goes with a store.
  Shard shard = {};
  /// Files that together hold all results: nothing is computed. Empty: results are computed.
  std::vector<PointFile> parts = {};
  Peers* peers = nullptr;  ///< Other processes that compute, too; null: there are none.
  /// Has other processes serve points, and returns their results in order; empty: there are none.
  PointServer elsewhere = {};
  /// Points to compute for another process, in place of the study: the first round ends with
  /// PointsServed. Empty: there are none.
  std::vector<std::string> serve = {};
};

/// Computes the result of a point, JSON on one line, from the point's text. It is called from
/// several threads at once.
using PointAnswer = std::function<std::string(const std::string& point)>;

/// Thrown on processes above 0 once process 0 has all results. Process 0 writes the answer.
struct PointsComputed {};

/// Thrown where PointSources::serve was computed.
struct PointsServed {
  std::vector<std::string> results;  ///< As PointServer returns them.
};

/// Computes the points of a study. A point is a value that says all that the study does not, with
/// an exact_text(): the same text is the same point in every process, and in files of results.
///
/// A study asks for its points with one call of evaluate() or with several, when the next points
/// depend on earlier results. Results are the same wherever they are computed, so that an answer
/// made from them is, too.
///
/// Where there are peers, every process makes a runner and calls evaluate(). On process 0 it gives
/// each process a point whenever that has a thread free; the others compute points until process 0
/// has no more rounds, all with the functions that their first call names, and then leave
/// evaluate() by PointsComputed.
///
/// Where points are computed elsewhere, by a pool of processes that somebody else runs, each of
/// these asks the same study with the points that it is to serve.
class PointRunner {
 public:
  explicit PointRunner(PointSources sources = {});

  /// Returns the result of every point, in their order.
  ///
  /// Args:
  ///     compute: Makes a point's result; it is called from several threads at once. Where several
  ///         points fail, the error of the first one is raised.
  ///     on_progress: Called from the caller's thread only.
  /// Raises:
  ///     InputError: parts hold other points than these, or not all of them; what `compute` raises.
  ///     EnvironmentFault: a result cannot be kept, a peer fails.
  template <typename Point, typename Result>
  [[nodiscard]] std::vector<Result> evaluate(
      const std::vector<Point>& points,
      const std::function<Result(const Point& point)>& compute,
      const ProgressCallback& on_progress = {}) {
    std::vector<Result> results(points.size());
    if (is_plain()) {
      for_each(points.size(), on_progress, [&](std::size_t i) { results[i] = compute(points[i]); });
      return results;
    }
    const std::vector<std::string> texts =
        answers(texts_of(points), answering(compute), on_progress);
    for (std::size_t i = 0; i < points.size(); ++i) {
      results[i] = from_exact_text<Result>(texts[i]);
    }
    return results;
  }

  /// Computes those points of the shard that the store lacks, into the store. Returns how many
  /// points the shard has. Raises what evaluate() does.
  template <typename Point, typename Result>
  std::size_t keep(const std::vector<Point>& points,
                   const std::function<Result(const Point& point)>& compute,
                   const ProgressCallback& on_progress = {}) {
    return keep_answers(texts_of(points), answering(compute), on_progress);
  }

  /// The store; null where there is none.
  [[nodiscard]] const PointStore* store() const { return sources_.store.get(); }
  [[nodiscard]] const Shard& shard() const { return sources_.shard; }

 private:
  template <typename Point>
  [[nodiscard]] static std::vector<std::string> texts_of(const std::vector<Point>& points) {
    std::vector<std::string> texts;
    texts.reserve(points.size());
    for (const Point& point : points) {
      texts.push_back(exact_text(point));
    }
    return texts;
  }
  template <typename Point, typename Result>
  [[nodiscard]] static PointAnswer answering(const std::function<Result(const Point&)>& compute) {
    return [&compute](const std::string& text) {
      return exact_text(compute(from_exact_text<Point>(text)));
    };
  }
  [[nodiscard]] bool is_plain() const {
    return sources_.store == nullptr && sources_.parts.empty() && sources_.peers == nullptr &&
           !sources_.elsewhere && sources_.serve.empty();
  }
  /// Calls `work` for every number below `count`, from all threads.
  void for_each(std::size_t count,
                const ProgressCallback& on_progress,
                const std::function<void(std::size_t)>& work) const;
  [[nodiscard]] std::vector<std::string> answers(const std::vector<std::string>& points,
                                                 const PointAnswer& answer,
                                                 const ProgressCallback& on_progress);
  std::size_t keep_answers(const std::vector<std::string>& points,
                           const PointAnswer& answer,
                           const ProgressCallback& on_progress);
  /// Computes these points, each once, with the threads and the peers, and adds them to `known_`.
  void compute(const std::vector<std::string>& points,
               const PointAnswer& answer,
               const ProgressCallback& on_progress);
  /// Adds a result to `known_` and to the store.
  void take(const std::string& point, const std::string& result);
  [[nodiscard]] bool knows(const std::string& point) const { return known_.count(point) > 0; }
  void require_all_of_parts(const std::vector<std::string>& points) const;

  PointSources sources_;
  PointResults known_;
  std::vector<int> free_peers_;  ///< One entry for each of their threads that waits for a point.
};

/// On process 0, when the command is over: lets the peers go, and waits until they have.
void dismiss_peers(Peers& peers);
/// On another process that cannot go on, for instance because it finds no profile: tells process 0
/// why, if `failure` is not empty, and waits until that lets it go.
void wait_until_dismissed(Peers& peers, const std::string& failure);

}  // namespace stepsim
