#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "costmodel/terminal/question.h"
#include "sim/points/peers.h"
#include "sim/points/point_runner.h"
#include "sim/points/point_store.h"
#include "sim/predict/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/study/advice.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// The options that say which scenario is meant.
struct ScenarioOptions {
  std::string scenario;
  std::vector<std::string> set;
  std::optional<std::string> seed;
  std::optional<std::string> steps;
  std::optional<std::string> profile;
  std::optional<std::string> memory_limit;
};

/// The options that say how the points of a study are computed.
struct PointOptions {
  int threads = 0;
  std::string resume;
  std::string shard;
};

/// What is asked beside a question's own options, and how.
struct Request : CommandRequest {
  /// The names of the options whose files the question makes or replaces.
  std::set<std::string> written = {};
  ScenarioOptions scenario;
  PointOptions points;
  /// The scenario, where it does not come from the options.
  std::optional<GivenScenario> given_scenario = {};
  /// Keys and values to vary, beside those of --over.
  std::vector<SweepAxis> axes = {};
  /// Whether every form of the answer may be asked for, and not only those that the options name.
  bool wants_all_forms = false;
  /// Processes that compute the points of a study together; null: there are none.
  Peers* peers = nullptr;
  /// The files that together hold all points of a study; empty: they are computed.
  std::vector<PointFile> parts = {};
  /// Processes of somebody else's that compute the points; empty: there are none.
  PointServer elsewhere = {};
  /// Points to compute for whoever asked this elsewhere: the question ends with PointsServed.
  std::vector<std::string> serve = {};
  /// How `advise` fits a profile; the others do without.
  FitRecords fit_records = {};

  /// What the forms that the answer may be asked for need of single steps: the text needs nothing.
  [[nodiscard]] KeptRows rows() const;
};

/// The scenario that a question is about.
struct AskedScenario {
  const Request* request = nullptr;  ///< Who asked; it must outlive this.
  GivenScenario given;               ///< A shipped scenario's name is already resolved.
  std::vector<std::string> set;      ///< "key=value", --seed, --steps and --profile included.

  /// Reads it, with what is set. Raises InputError as GivenScenario::read(), and where the question
  /// would write a file that the scenario reads.
  [[nodiscard]] Scenario read() const;
};

/// Finds the scenario, and limits the memory as the options say. Raises InputError when no scenario
/// is named, or one that is not there but has a name near to it.
[[nodiscard]] AskedScenario asked_scenario(const Request& request);
/// Finds the scenario as asked_scenario() does, and reads it.
[[nodiscard]] Scenario read_asked(const Request& request);

/// Raises InputError where an output of the question is a file that the scenario reads.
void keep_scenario_files(const Request& request, const Scenario& scenario);
/// Raises InputError where one of these files, which an option makes, is one that the scenario
/// reads. `option`: "out-dir".
void keep_scenario_files(const Request& request,
                         const Scenario& scenario,
                         const std::string& option,
                         std::span<const std::string> files);

/// Raises InputError: two forms go to standard output; EnvironmentFault: a page is asked for and
/// this build has none.
void check_outputs(const Request& request);

}  // namespace stepsim
