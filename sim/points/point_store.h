#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/points/shard.h"

namespace stepsim {

/// What decides the result of a study's points, beside each point's own text. Results are taken
/// from another process only where all of this is equal.
struct StudyId {
  std::string version;                 ///< Of Stepsim: "0.1.0"
  std::string command;                 ///< "sweep"
  std::vector<std::string> arguments;  ///< Without outputs, and without how points are computed.
  std::string scenario;                ///< content_id() of the scenario with its files.
  std::string profile;                 ///< ProfileId of the scenario as it stands.

  bool operator==(const StudyId&) const = default;
  /// Returns "stepsim sweep SCENARIO …", quoted for a shell.
  [[nodiscard]] std::string command_line() const;
};

/// [point's text] The result, JSON on one line.
using PointResults = std::map<std::string, std::string>;

/// A file of results, as it lies on the disk. Its first line says what study it belongs to, and
/// which shard of it; each other line is {"point": "…", "result": …}.
struct PointFile {
  std::string path;
  StudyId id;
  Shard shard;
  PointResults results;
  std::size_t whole_bytes = 0;  ///< Size up to the end of the last whole line.
};

/// Reads a file of results. A last line that was cut off is left out. Raises InputError with file
/// and line: it is something else, or is not there.
[[nodiscard]] PointFile read_point_file(const std::string& path);

/// Raises InputError, which says how the study of the file differs from `id` and what to do.
void require_same_study(const PointFile& file, const StudyId& id);

/// A file that results are appended to, one line and one write each, so that a process that is
/// killed loses only the points that it was computing.
class PointStore {
 public:
  /// Opens or makes the file and reads what it holds. The file is locked as long as this lives,
  /// where its file system knows locks.
  ///
  /// Raises InputError: the file is of another study or another shard, another process has it open,
  /// or it is no file of results; EnvironmentFault: it cannot be written.
  PointStore(const std::string& path, const StudyId& id, const Shard& shard);
  ~PointStore();
  PointStore(const PointStore&) = delete;
  PointStore& operator=(const PointStore&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const PointResults& results() const { return results_; }
  /// Keeps a result. It has reached the operating system on return. Raises EnvironmentFault.
  void add(const std::string& point, const std::string& result);

 private:
  void open();
  void write_line(const std::string& line);

  std::string path_;
  int file_ = -1;
  PointResults results_;
};

}  // namespace stepsim
