#include "costmodel/base/utc_time.h"

#include <charconv>
#include <chrono>
#include <ctime>

#include <fmt/core.h>

namespace stepsim {

namespace {

/// Removes `digits` digits and the `separator` behind them (0: none) from the front of `text`, and
/// returns their value.
std::optional<int> take_number(std::string_view& text, std::size_t digits, char separator) {
  int value = 0;
  if (text.size() < digits || text.front() < '0') {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc() || end != text.data() + digits) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  if (separator != 0) {
    if (text.empty() || text.front() != separator) {
      return std::nullopt;
    }
    text.remove_prefix(1);
  }
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_utc(std::string_view text) {
  using namespace std::chrono;  // NOLINT(google-build-using-namespace): calendar names.
  const auto y = take_number(text, 4, '-');
  const auto mo = take_number(text, 2, '-');
  const auto d = take_number(text, 2, 'T');
  const auto h = take_number(text, 2, ':');
  const auto mi = take_number(text, 2, ':');
  const auto s = take_number(text, 2, 0);
  if (!y || !mo || !d || !h || !mi || !s || *h > 23 || *mi > 59 || *s > 60) {
    return std::nullopt;
  }
  if (!text.empty() && text.front() == '.') {
    const std::size_t end = text.find_first_not_of("0123456789", 1);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end);
  }
  const year_month_day date =
      year(*y) / month(static_cast<unsigned>(*mo)) / day(static_cast<unsigned>(*d));
  if (!date.ok() || (!text.empty() && text != "Z" && text != "+00:00")) {
    return std::nullopt;
  }
  const auto at =
      sys_days{date}.time_since_epoch() + hours(*h) + minutes(*mi) + std::chrono::seconds(*s);
  return duration_cast<std::chrono::seconds>(at).count();
}

std::string utc_text(std::int64_t seconds) {
  using namespace std::chrono;  // NOLINT(google-build-using-namespace): calendar names.
  const sys_seconds at{std::chrono::seconds(seconds)};
  const sys_days midnight = floor<days>(at);
  const year_month_day date(midnight);
  const auto rest = (at - midnight).count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                     static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()),
                     rest / 3600,
                     rest / 60 % 60,
                     rest % 60);
}

std::string utc_now() {
  return utc_text(std::time(nullptr));
}

}  // namespace stepsim
