#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "costmodel/base/progress_callback.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Is told the name of a job and the share of it that is done, 0 to 1 (1 at its end). It may throw
/// to end the job.
using ProgressListener = std::function<void(const std::string& what, double share)>;

/// While it lives, jobs that begin in this thread report to a listener and not to the terminal.
class ProgressScope {
 public:
  explicit ProgressScope(ProgressListener listener);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  ProgressListener listener_;
};

/// Shows how far a long job has come, on one line of a terminal's standard error: a bar, percent
/// and the time left, or the time so far while that is too early to tell. The line appears after
/// the first second, unless the job will end within two, and disappears when the job is done.
/// Without a terminal nothing is written. A ProgressScope takes the terminal's place.
class Progress {
 public:
  /// `what` names the job: "predicting 4 policies".
  explicit Progress(std::string what);
  /// Tests give another place to write to and another clock, in seconds.
  Progress(std::string what, std::FILE* out, const Screen& screen, std::function<double()> now);
  ~Progress() { done(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports the share of the work that is done, 0 to 1 (0 when it is unknown). The time left is
  /// estimated from the time so far.
  void at(double share);
  /// Reports the share and the caller's own estimate of the seconds left.
  void at(double share, double seconds_left);
  /// Erases the line.
  void done();
  /// Returns at() as a callback, which must not outlive this object.
  [[nodiscard]] ProgressCallback callback() {
    return [this](double share) { at(share); };
  }

 private:
  [[nodiscard]] std::string line_text(double share, double elapsed, double seconds_left) const;

  std::string what_;
  std::FILE* out_;
  Screen screen_;
  std::function<double()> now_;
  double start_;
  double last_ = 0;  ///< When the line was last written, in seconds.
  bool visible_ = false;
  const ProgressListener* listener_;  ///< Null: the terminal.
};

}  // namespace stepsim
