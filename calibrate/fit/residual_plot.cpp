#include "calibrate/fit/residual_plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/core.h>

#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

constexpr int kColumns = 3;
constexpr double kWidth = 360;   ///< A panel's, in pixels.
constexpr double kHeight = 200;  ///< A panel's.
constexpr double kMargin = 40;   ///< Around the axes.
constexpr double kTop = 40;      ///< For the title.
constexpr double kMaxError = 0.3;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return result;
}

/// Maps sizes and errors of one panel to pixels.
struct Axes {
  double left;
  double top;
  double log_lo;
  double log_hi;

  [[nodiscard]] double x(double size) const {
    const double span = log_hi > log_lo ? (std::log(size) - log_lo) / (log_hi - log_lo) : 0.5;
    return left + kMargin + span * (kWidth - 2 * kMargin);
  }
  [[nodiscard]] double y(double error) const {
    const double inside = std::clamp(error, -kMaxError, kMaxError);
    return top + kHeight / 2 - inside / kMaxError * (kHeight / 2 - kMargin);
  }
};

void append_panel(const std::string& name,
                  const std::vector<Residual>& residuals,
                  double left,
                  double top,
                  std::string* svg) {
  const auto [least, most] =
      std::minmax_element(residuals.begin(), residuals.end(), [](const auto& a, const auto& b) {
        return a.size < b.size;
      });
  const Axes axes{left, top, std::log(least->size), std::log(most->size)};
  const auto out = std::back_inserter(*svg);
  fmt::format_to(out,
                 "<text x=\"{:.0f}\" y=\"{:.0f}\">{}, {} points</text>\n",
                 left + kMargin,
                 top + kMargin - 12,
                 escaped(name),
                 residuals.size());
  for (const double line : {-kMaxError, -0.1, 0.0, 0.1, kMaxError}) {
    fmt::format_to(out,
                   "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"{}\"/>"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:+.0f}</text>\n",
                   left + kMargin,
                   axes.y(line),
                   left + kWidth - kMargin,
                   line == 0 ? "black" : "#ccc",
                   left + kMargin - 4,
                   axes.y(line) + 4,
                   line * 100);
  }
  fmt::format_to(out,
                 "<text x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>"
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                 left + kMargin,
                 top + kHeight - kMargin + 16,
                 least->size,
                 left + kWidth - kMargin,
                 top + kHeight - kMargin + 16,
                 most->size);
  for (const Residual& residual : residuals) {
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>\n",
                   axes.x(residual.size),
                   axes.y(residual.error));
  }
}

}  // namespace

std::vector<Residual> residuals_of(const Series& series, const OpCost& fitted) {
  std::vector<Residual> residuals;
  if (series.op.rows == RowUnit::Elements) {
    return residuals;
  }
  for (const SeriesPoint& point : series.points) {
    residuals.push_back({fmt::format("{} {}", name_of(series.op.op_class), name_of(series.op.pass)),
                         std::max(order_variable(series.op, point.batch), 1.0),
                         evaluate(fitted, series.op, point.batch).seconds / point.seconds - 1});
  }
  return residuals;
}

std::string residual_plot(const std::string& title, const std::vector<Residual>& residuals) {
  std::map<std::string, std::vector<Residual>> panels;
  for (const Residual& residual : residuals) {
    panels[residual.panel].push_back(residual);
  }
  const int rows = (static_cast<int>(panels.size()) + kColumns - 1) / kColumns;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{:.0f}\" y=\"20\" font-size=\"14\">{}: error of the fit in %, over the "
      "size</text>\n"
      "<g fill=\"#1f5fa8\" fill-opacity=\"0.7\">\n",
      kColumns * kWidth,
      kTop + rows * kHeight,
      kMargin,
      escaped(title));
  int place = 0;
  for (const auto& [name, points] : panels) {
    const int row = place / kColumns;
    append_panel(name, points, place % kColumns * kWidth, kTop + row * kHeight, &svg);
    ++place;
  }
  return svg + "</g>\n</svg>\n";
}

}  // namespace stepsim
