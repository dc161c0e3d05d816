#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "calibrate/samples/measure_plan.h"
#include "calibrate/samples/samples.h"
#include "costmodel/io/json_file.h"
#include "costmodel/io/json_value.h"

namespace stepsim {

/// The distinct ops of a step, and how often the step runs each.
struct StepOpKinds {
  std::vector<Op> ops;               ///< In order of first appearance, without name and completes.
  std::vector<int> counts;           ///< [kind] Occurrences in one step.
  std::vector<std::size_t> kind_of;  ///< [op of the step] Index of its kind; empty in files.
};

[[nodiscard]] StepOpKinds distinct_ops(const std::vector<Op>& step);

/// A key that is equal for two ops exactly when everything that decides their cost is.
[[nodiscard]] std::string op_key(const Op& op);

// The lines of a samples file. Seconds are written as microseconds with two decimals.

[[nodiscard]] Json pass_json(int pass, const StepOpKinds& kinds);
/// `op_seconds` is [repetition][kind]: the mean over a kind's occurrences in that step.
[[nodiscard]] std::string step_line(int pass,
                                    int rank,
                                    double at_seconds,
                                    const BatchShape& batch,
                                    const std::vector<std::vector<double>>& op_seconds);
/// `seconds` is [repetition]: the time of one call.
[[nodiscard]] std::string collective_line(
    int pass, int ranks, int nodes, const CollectiveTask& task, const std::vector<double>& seconds);
[[nodiscard]] std::string sentinel_line(int pass, int rank, double at_seconds, double seconds);
[[nodiscard]] std::string pass_end_line(int pass, double at_seconds);

/// What an imported time is of: the collective, ranks, nodes and bytes.
using ImportedSize = std::tuple<std::string, int, int, std::int64_t>;
/// What a time measured here is of, and whether its calls went back to back.
using MeasuredSize = std::pair<ImportedSize, bool>;

/// The times of one row of an imported log. At least one of the two is present.
struct ImportedTime {
  std::optional<double> out_of_place_us;
  std::optional<double> in_place_us;
};

/// One collective of an imported log on so many ranks and nodes.
struct ImportedCollective {
  JsonValue about;  ///< The line of kind "import": what is known of the log.
  std::vector<std::pair<ImportedSize, ImportedTime>> times;  ///< [row]
};

/// The line of kind "import", then one for each time.
[[nodiscard]] std::vector<std::string> import_lines(const ImportedCollective& import);

/// Writes an OverlapSample:
/// {"kind":"overlap","pass","channels","collective_bytes","collective_alone_us",
/// "collective_beside_us"?,"compute","compute_blocks"?,"compute_alone_us","compute_beside_us"}.
/// Times are medians over repetitions; a repeated line is another sample.
[[nodiscard]] std::string overlap_line(int pass, const OverlapSample& sample);

/// Writes a shape that cannot run: {"kind":"refused","pass","samples","max_length","why"}.
[[nodiscard]] std::string refused_line(int pass, const RefusedPoint& refused);

/// Everything measured at one batch shape.
struct PointLog {
  BatchShape batch;
  std::map<std::size_t, std::vector<double>> op_seconds;  ///< [op] Every repetition.
  std::map<std::size_t, double> op_runs;                  ///< [op] Occurrences in those steps.
  std::vector<double> step_seconds;                       ///< Every repetition of every rank.
  std::map<int, std::set<int>> ranks_of_pass;             ///< [pass] Ranks that have reported.
};

/// Collects the lines of one samples file that follow its header.
class SampleLog {
 public:
  /// Takes in one line. Raises InputError with file and line.
  void add(const Json& line, const std::string& file, int number);
  /// Takes in an import, as its lines would be. Raises InputError with the file.
  void add(const ImportedCollective& import, const std::string& file);

  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }
  [[nodiscard]] const std::vector<PointLog>& points() const { return points_; }
  [[nodiscard]] const PointLog* find(const GridPoint& point) const;
  [[nodiscard]] bool has_all_ranks(const GridPoint& point, int pass, int ranks) const;
  [[nodiscard]] bool has_collective(const CollectiveTask& task, int pass) const;
  [[nodiscard]] bool pass_ended(int pass) const { return ended_.count(pass) > 0; }
  /// Every repetition of the collectives that were measured here.
  [[nodiscard]] const std::map<MeasuredSize, std::vector<double>>& measured() const {
    return measured_;
  }
  [[nodiscard]] const std::map<ImportedSize, std::vector<ImportedTime>>& imported() const {
    return imported_;
  }
  /// The lines of kind "import", one for each collective of a log.
  [[nodiscard]] const JsonValue& imports() const { return imports_; }
  [[nodiscard]] const std::vector<OverlapSample>& overlaps() const { return overlaps_; }
  [[nodiscard]] const std::vector<SentinelSample>& sentinels() const { return sentinels_; }
  [[nodiscard]] const std::vector<RefusedPoint>& refused() const { return refused_; }
  [[nodiscard]] bool is_refused(const GridPoint& point) const;
  [[nodiscard]] const std::vector<HostSample>& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<HostSample>& meetings() const { return meetings_; }
  /// [line] What a rank's host took for the units of sharded training.
  [[nodiscard]] const std::vector<UnitHostTimes>& unit_hosts() const { return unit_hosts_; }
  [[nodiscard]] const DisturbedSamples& disturbed() const { return disturbed_; }
  /// [shape] What building its attention plans took, forward and backward together, on one core.
  [[nodiscard]] const std::vector<double>& plan_seconds() const { return plan_seconds_; }
  [[nodiscard]] double last_at_seconds() const { return last_at_; }
  [[nodiscard]] int measurements() const { return measurements_; }

 private:
  struct PassOps {
    std::vector<std::size_t> op;  ///< [column] Index into ops_.
    std::vector<int> counts;
  };
  void add_pass(JsonReader& reader, const std::string& file, int number);
  void add_step(JsonReader& reader);
  void add_measured(JsonReader& reader, const std::string& kind);
  void add_import(JsonReader& reader, const Json& line);
  void add_imported(JsonReader& reader);
  void add_time(const JsonReader& reader, const ImportedSize& size, const ImportedTime& time);
  void add_overlap(JsonReader& reader);
  void add_refused(JsonReader& reader);
  void add_host(JsonReader& reader, std::vector<HostSample>& samples);
  void add_prepared(JsonReader& reader, const std::string& file, int number);
  PointLog& point_of(const BatchShape& batch);

  std::vector<Op> ops_;
  std::map<std::string, std::size_t> op_index_;
  std::map<int, PassOps> passes_;
  std::vector<PointLog> points_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> point_index_;
  std::map<MeasuredSize, std::vector<double>> measured_;
  std::set<std::pair<int, CollectiveTask>> collectives_done_;  ///< With their pass.
  std::map<ImportedSize, std::vector<ImportedTime>> imported_;
  JsonValue imports_;
  std::set<std::tuple<std::string, int, int>> import_groups_;  ///< Collective, ranks, nodes.
  std::vector<OverlapSample> overlaps_;
  std::vector<SentinelSample> sentinels_;
  std::vector<RefusedPoint> refused_;
  std::vector<HostSample> hosts_;
  std::vector<HostSample> meetings_;
  std::vector<UnitHostTimes> unit_hosts_;
  DisturbedSamples disturbed_;
  std::vector<double> plan_seconds_;
  std::set<int> ended_;
  double last_at_ = 0;
  int measurements_ = 0;
};

/// Combines repetitions, passes and ranks as read_samples() does. Header and plan are left empty.
[[nodiscard]] SampleSet combine_samples(const SampleLog& log);

/// A samples file as it lies on the disk.
struct SampleFile {
  JsonValue header;
  MeasurePlan plan;
  SampleLog log;
  std::uintmax_t whole_bytes = 0;  ///< Size up to the end of the last whole line.
};

/// Reads a file as read_samples() does, but combines nothing.
[[nodiscard]] SampleFile read_sample_file(const std::string& path,
                                          std::vector<std::string>* warnings);

}  // namespace stepsim
