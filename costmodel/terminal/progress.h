#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "costmodel/base/progress_callback.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// How far a long job is, on one line of a terminal's standard error: a bar, percent and the time
/// left. Nothing before the first second, nothing of a job that ends within two, nothing without a
/// terminal; the line is gone when the job is done.
class Progress {
 public:
  /// `what`: "predicting 4 policies".
  explicit Progress(std::string what);
  /// For tests: another place and clock (seconds).
  Progress(std::string what, std::FILE* out, const Screen& screen, std::function<double()> now);
  ~Progress() { done(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Of all the work, with the time left taken to go on as before; 0 where that is not known.
  void at(double share);
  /// The same, with an own estimate of the seconds left.
  void at(double share, double seconds_left);
  /// Erases the line.
  void done();
  /// at() as a function; it must not outlive this.
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
  double last_ = 0;  ///< Second of the last line.
  bool visible_ = false;
};

}  // namespace stepsim
