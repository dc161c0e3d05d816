#include "costmodel/terminal/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "costmodel/terminal/bars.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

/// The listener of the innermost ProgressScope of this thread: what a scope is for.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local const ProgressListener* current_listener = nullptr;

constexpr double kShortJob = 2;  // A job of fewer seconds needs no line.
constexpr double kSilent = 1;    // The seconds before the time left can be estimated.
constexpr double kRefresh = 0.1;
/// Below this share of the work the time so far says nothing of the time left: a search, for
/// instance, rules most of its points out towards the end.
constexpr double kTooEarly = 0.05;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e6)));
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

ProgressScope::ProgressScope(ProgressListener listener) : listener_(std::move(listener)) {
  current_listener = &listener_;
}

ProgressScope::~ProgressScope() {
  current_listener = nullptr;
}

Progress::Progress(std::string what)
    : Progress(std::move(what), stderr, screen_of(STDERR_FILENO), steady_seconds) {}

Progress::Progress(std::string what,
                   std::FILE* out,
                   const Screen& screen,
                   std::function<double()> now)
    : what_(std::move(what)),
      out_(out),
      screen_(screen),
      now_(std::move(now)),
      start_(now_()),
      listener_(current_listener) {}

void Progress::at(double share) {
  const double elapsed = now_() - start_;
  at(share, share > 0 ? elapsed * (1 - share) / share : kShortJob);
}

void Progress::at(double share, double seconds_left) {
  if (listener_ != nullptr) {
    (*listener_)(what_, std::clamp(share, 0.0, 1.0));
    return;
  }
  const double elapsed = now_() - start_;
  if (!screen_.redraws || elapsed < kSilent || elapsed - last_ < kRefresh ||
      (!visible_ && elapsed + seconds_left <= kShortJob)) {
    return;
  }
  const std::string line = line_text(share, elapsed, seconds_left);
  std::fputs(("\r\x1b[K" + line).c_str(), out_);
  std::fflush(out_);
  visible_ = true;
  last_ = elapsed;
}

std::string Progress::line_text(double share, double elapsed, double seconds_left) const {
  constexpr std::size_t kBar = 20;
  if (share <= 0) {
    return fmt::format("{}, {} so far", what_, clock_text(elapsed));
  }
  const std::string time = share < kTooEarly ? clock_text(elapsed) + " so far"
                                             : "about " + clock_text(seconds_left) + " left";
  const std::string left = fmt::format("{:.0f} %, {}", std::min(share, 1.0) * 100, time);
  const std::string bar = bar_text(share, kBar, screen_);
  const std::string blanks(kBar - std::min(kBar, display_width(bar)), ' ');
  const std::string line = what_ + "  " + bar + blanks + "  " + left;
  return display_width(line) < static_cast<std::size_t>(screen_.columns) ? line : left;
}

void Progress::done() {
  if (visible_) {
    std::fputs("\r\x1b[K", out_);
    std::fflush(out_);
    visible_ = false;
  }
}

}  // namespace stepsim
