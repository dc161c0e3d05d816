#include "calibrate/import/step_times/step_time_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/step_times/step_time_draws.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

/// A coefficient as people say it: its place in the posterior, a name, and its value and bounds in
/// a unit.
struct Said {
  StepTimePlace place;
  const char* name;
  const char* unit;
  bool logarithm;
  double scale;
};

/// In the order of the posterior's vector.
constexpr std::array<Said, kShared> kSaid = {{
    {kSeveral, "compute with several ranks over alone", "x", true, 1},
    {kPerDoubling, "compute, each doubling of the ranks", "%", false, 100},
    {kPerDoublingOfNode, "compute, each doubling of ranks a node", "%", false, 100},
    {kForward, "forward, of forward and backward", "%", false, 100},
    {kOptimizer, "optimizer, of the smallest compute", "%", false, 100},
    {kIntra, "bus bandwidth inside a node", "GB/s", true, 1e-9},
    {kIntraHalf, "a ring's step inside a node, as bytes", "kB", true, 1e-3},
    {kInter, "bus bandwidth between three nodes", "GB/s", true, 1e-9},
    {kInterHalf, "a ring's step between nodes, as bytes", "kB", true, 1e-3},
    {kTwoNodes, "two nodes over three and more", "x", true, 1},
    {kNodes, "bandwidth lost, each doubling of the nodes", "%", false, 100},
    {kCrowding, "bandwidth lost, each doubling of ranks a node", "%", false, 100},
    {kInterference, "compute slower while gradients move", "%", false, 100},
}};

std::string batch_text(const StepTimeFit& fit, std::size_t compute, bool with_length) {
  const ComputePoint& point = fit.job.compute[compute];
  return with_length ? fmt::format("{} x {}", point.batch, point.length)
                     : fmt::format("{}", point.batch);
}

std::string rows_table(const StepTimeFit& fit, const StepTimeTable& table, const Screen& screen) {
  struct Group {
    const char* name;
    std::function<bool(const Placement&)> holds;
  };
  const std::array<Group, 4> groups = {{
      {"1 rank", [](const Placement& p) { return p.ranks() == 1; }},
      {"1 node", [](const Placement& p) { return p.nodes() == 1 && p.ranks() > 1; }},
      {"2 nodes", [](const Placement& p) { return p.nodes() == 2; }},
      {"3 nodes and more", [](const Placement& p) { return p.nodes() > 2; }},
  }};
  const std::vector<double> steps = mapped(fit.job.points, [&](const StepTimePoint& point) {
    return predict_step_time(fit, point.compute, point.placement, point.spread, point.micro_batches)
        .parts.step;
  });
  Table text({"rows on", "rows", "mean |error|", "worst", "at"});
  for (const Group& group : groups) {
    double sum = 0;
    double worst = 0;
    int count = 0;
    std::string at;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const StepTimeRow& row = table.rows[i];
      if (!group.holds(row.placement)) {
        continue;
      }
      const double step = row.step_s - row.data_s.value_or(0);
      const double error = steps[fit.job.point_of_row[i]] / step - 1;
      sum += std::abs(error);
      ++count;
      if (std::abs(error) >= std::abs(worst)) {
        worst = error;
        at = configuration_of(row, table.has_lengths);
      }
    }
    if (count > 0) {
      text.add({group.name,
                fmt::format("{}", count),
                fmt::format("{:.1f} %", 100 * sum / count),
                fmt::format("{:+.1f} %", 100 * worst),
                at});
    }
  }
  return text.text(screen);
}

/// What the host takes at least, in seconds, before anything is fitted; 0 where all batches were
/// timed alone.
double guessed_host(const StepTimeFit& fit) {
  return std::ranges::max(mapped(fit.job.compute, &ComputePoint::host_s));
}

std::string coefficients_table(const StepTimeFit& fit, const Screen& screen) {
  Table text({"coefficient", "fitted", "90 % interval", "unit", "told by the rows"});
  const std::vector<double> told = told_of_prior(fit);
  std::vector<Said> all(kSaid.begin(), kSaid.end());
  if (guessed_host(fit) > 0) {
    all.push_back({kHost, "least time of the host", "ms", true, 1e3 * guessed_host(fit)});
  }
  for (const Said& said : all) {
    if (said.place == kInterference && fit.form != StepTimeForm::Interference) {
      continue;
    }
    const double mode = fit.posterior.mode[said.place];
    const double half =
        kDeviationsOf90 * std::sqrt(fit.posterior.covariance[said.place][said.place]);
    const auto value = [&](double x) {
      return fmt::format("{:.3g}", said.scale * (said.logarithm ? std::exp(x) : x));
    };
    constexpr double kTold = 0.5;
    constexpr double kPartly = 0.9;
    const bool is_link = said.place >= kIntra && said.place <= kCrowding;
    text.add({said.name,
              value(mode),
              fmt::format("{} to {}", value(mode - half), value(mode + half)),
              said.unit,
              told[said.place] < kTold         ? "yes"
              : told[said.place] < kPartly     ? "partly"
              : is_link && fit.links_are_known ? "no, by --links"
                                               : "no, assumed"});
  }
  return text.text(screen);
}

StepTimePrediction predicted(const StepTimeFit& fit, const StepTimeQuestion& question) {
  return predict_step_time(fit, question.compute, question.placement, 0, question.micro_batches);
}

/// A question's step, without data.
DrawnStep drawn(const StepTimeFit& fit,
                const std::vector<std::vector<double>>& draws,
                const StepTimeQuestion& question) {
  return drawn_step(fit, draws, question.compute, question.placement, 0, question.micro_batches);
}

bool has_several_micro_batches(const StepTimeTable& table) {
  return std::ranges::any_of(table.rows,
                             [](const StepTimeRow& row) { return row.micro_batches > 1; });
}

std::string questions_table(const StepTimeFit& fit,
                            const StepTimeTable& table,
                            std::span<const StepTimeQuestion> questions,
                            const Screen& screen) {
  const bool accumulates = has_several_micro_batches(table);
  std::vector<std::string> header = {"predicted", "batch"};
  if (accumulates) {
    header.emplace_back("micro-batches");
  }
  header.insert(header.end(), {"step ms", "90 % interval", "exposed ms"});
  Table text(std::move(header));
  const auto draws = drawn_coefficients(fit);
  for (const StepTimeQuestion& question : questions) {
    const StepTimeParts parts = predicted(fit, question).parts;
    const double data = fit.job.data_s;
    const auto [low, high] = drawn(fit, draws, question).interval();
    std::vector<std::string> cells = {text_of(question.placement),
                                      batch_text(fit, question.compute, table.has_lengths)};
    if (accumulates) {
      cells.push_back(fmt::format("{}", question.micro_batches));
    }
    cells.push_back(fmt::format("{:.1f}", 1e3 * (parts.step + data)));
    cells.push_back(fmt::format("{:.1f} to {:.1f}", 1e3 * (low + data), 1e3 * (high + data)));
    cells.push_back(fmt::format("{:.1f}", 1e3 * (parts.sync - fit.job.rest_s)));
    text.add(std::move(cells));
  }
  return text.text(screen);
}

/// How often the first of two steps is the shorter one, among all that the rows allow.
double share_faster(const DrawnStep& one, const DrawnStep& other) {
  double faster = 0;
  for (std::size_t draw = 0; draw < one.steps.size(); ++draw) {
    faster += one.steps[draw] < other.steps[draw] ? 1 : 0;
  }
  return faster / static_cast<double>(one.steps.size());
}

/// The pairs of placements, asked for with the same batch, one on two nodes and one on more, that
/// come in either order.
std::string undecided_orders(const StepTimeFit& fit, std::span<const StepTimeQuestion> questions) {
  constexpr double kDecided = 0.95;
  const auto draws = drawn_coefficients(fit);
  std::string text;
  for (const StepTimeQuestion& two : questions) {
    for (const StepTimeQuestion& more : questions) {
      if (two.placement.nodes() != 2 || more.placement.nodes() <= 2 ||
          two.compute != more.compute) {
        continue;
      }
      const double faster = share_faster(drawn(fit, draws, more), drawn(fit, draws, two));
      if (faster > 1 - kDecided && faster < kDecided) {
        text += fmt::format(
            "note: whether {1} or {0} is faster is not decided: {0} is in {2:.0f} % of what the "
            "rows allow\n",
            text_of(more.placement),
            text_of(two.placement),
            100 * faster);
      }
    }
  }
  return text;
}

/// What to know of placements whose order against two nodes no row tells.
std::string assumed_order(const StepTimeFit& fit, std::span<const StepTimeQuestion> questions) {
  constexpr int kThree = 3;
  const bool asked = std::ranges::any_of(
      questions, [](const auto& question) { return question.placement.nodes() >= kThree; });
  if (!asked || fit.nodes >= kThree || fit.links_are_known) {
    return "";
  }
  return fmt::format(
             "note: no row has three nodes; two are assumed to reach {:.2f} times the bandwidth of "
             "three{}.\n"
             "Time one step on three nodes before you order them\n",
             std::exp(fit.posterior.mode[kTwoNodes]),
             leaves_open(fit, StepTimeDoubt::TwoNodes)
                 ? ",\nfrom one cluster; the intervals reach to 1, as elsewhere"
                 : "") +
         undecided_orders(fit, questions);
}

}  // namespace

std::string step_time_report(const StepTimeFit& fit,
                             const StepTimeTable& table,
                             std::span<const StepTimeQuestion> questions,
                             std::span<const NextRun> next,
                             const Screen& screen) {
  std::string text = rows_table(fit, table, screen);
  text += fmt::format("\nnoise from run to run: {:.1f} % of compute, {:.1f} % of all collectives\n",
                      100 * fit.compute_noise,
                      100 * fit.run_noise);
  if (!fit.held_out.empty()) {
    text += fmt::format("each placement predicted from the others: {:.1f} % off",
                        100 * fit.held_out[0]);
    if (fit.held_out.size() > 1) {
      text += fmt::format("; {:.1f} % where collectives slow compute ({}in the profile)",
                          100 * fit.held_out[1],
                          fit.form == StepTimeForm::Interference ? "" : "not ");
    }
    text += "\n";
  }
  text += "\n" + coefficients_table(fit, screen) + "\n";
  text += questions_table(fit, table, questions, screen) + assumed_order(fit, questions);
  if (leaves_open(fit, StepTimeDoubt::Overlap)) {
    text +=
        "note: these rows do not tell how much of the communication the backward hides. The steps "
        "are\n"
        "those of perfect overlap, the intervals reach to none. Time three placements of several "
        "ranks,\n"
        "or say --no-overlap where the job reduces after the backward\n";
  }
  if (leaves_open(fit, StepTimeDoubt::JobGrowth)) {
    text +=
        "note: these rows do not tell slow links between nodes from steps that grow with the "
        "ranks. "
        "The steps\n"
        "are those of slow links, the intervals hold both. Time a step on more nodes\n";
  }
  if (!next.empty()) {
    const NextRun& best = next.front();
    const auto batches = mapped(best.run.compute, [&](std::size_t compute) {
      return batch_text(fit, compute, table.has_lengths);
    });
    text += fmt::format(
        "\ntime next: {}, batch {}{}: the interval of these shrinks from +-{:.0f} to +-{:.0f} %\n",
        text_of(best.run.placement),
        fmt::join(batches, " and "),
        has_several_micro_batches(table) ? fmt::format(", {} micro-batch{}",
                                                       best.run.micro_batches,
                                                       best.run.micro_batches == 1 ? "" : "es")
                                         : "",
        100 * best.before,
        100 * best.after);
  }
  return text;
}

std::string step_time_answers(const StepTimeFit& fit, std::span<const StepTimeQuestion> questions) {
  constexpr double kMs = 1e3;
  std::string text =
      "placement,batch,length,step_ms,exposed_ms,low50_ms,high50_ms,low80_ms,high80_ms,low90_ms,"
      "high90_ms,low95_ms,high95_ms,micro_batches\n";
  const std::vector<std::vector<double>> draws = drawn_coefficients(fit);
  for (const StepTimeQuestion& question : questions) {
    const StepTimeParts parts = predicted(fit, question).parts;
    const double data = fit.job.data_s;
    const ComputePoint& point = fit.job.compute[question.compute];
    text += fmt::format("{},{},{},{},{}",
                        text_of(question.placement),
                        point.batch,
                        point.length,
                        kMs * (parts.step + data),
                        kMs * (parts.sync - fit.job.rest_s));
    const DrawnStep step = drawn(fit, draws, question);
    for (const double outside : {0.25, 0.1, 0.05, 0.025}) {
      const auto [low, high] = step.interval(outside);
      text += fmt::format(",{},{}", kMs * (low + data), kMs * (high + data));
    }
    text += fmt::format(",{}\n", question.micro_batches);
  }
  return text;
}

}  // namespace stepsim
