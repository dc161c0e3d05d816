#include "sim/report/figures_report.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/terminal/table.h"
#include "sim/report/csv.h"
#include "sim/report/number_text.h"

namespace stepsim {
namespace {

std::string verdict_of(const FigureCheck& check) {
  if (check.agrees) {
    return "agrees";
  }
  const char* direction = check.published.value.value < check.computed ? "too low" : "too high";
  return fmt::format("published is {}", direction);
}

/// A factor says more than 3000 %; of nothing there is no share.
std::string off_text(const FigureCheck& check) {
  if (!check.published_off) {
    return "-";
  }
  const double ratio = *check.published_off + 1;
  return ratio >= 2 ? fmt::format("{:.3g} times", ratio) : signed_percent(*check.published_off);
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::ranges::find(list, text) == list.end()) {
    list.push_back(text);
  }
}

/// "[2]": the place of the note among the notes; empty without one.
std::string mark(const std::vector<std::string>& notes, const std::string& note) {
  const auto found = std::ranges::find(notes, note);
  return found == notes.end() ? "" : fmt::format(" [{}]", found - notes.begin() + 1);
}

std::string closing_line(const std::vector<FigureCheck>& checks) {
  const auto agreeing =
      std::ranges::count_if(checks, [](const FigureCheck& check) { return check.agrees; });
  const auto unexplained =
      std::ranges::count_if(checks, [](const FigureCheck& check) { return check.unexplained(); });
  std::string text = fmt::format(
      "{} of {} published figures agree within their rounding", agreeing, checks.size());
  text += unexplained == 0 ? "." : fmt::format("; {} differ without an explanation.", unexplained);
  return text + "\n";
}

}  // namespace

std::string figures_text(const Scenario& scenario,
                         const std::vector<FigureCheck>& checks,
                         const Screen& screen) {
  std::vector<std::string> notes;
  std::vector<std::string> sources;
  std::vector<std::string> formulas;
  Table table({"figure", "conditions", "published", "computed", "published off by", "verdict"});
  for (const FigureCheck& check : checks) {
    const PublishedFigure& published = check.published;
    const FigureInfo& info = figure_info(published.kind);
    add_once(notes, published.note);
    add_once(sources, published.source);
    add_once(formulas, fmt::format("{} = {}", info.name, info.formula));
    table.add({info.name,
               check.conditions,
               published.value.text,
               format_like(published.value, check.computed),
               off_text(check),
               verdict_of(check) + mark(notes, published.note)},
              check.agrees          ? Paint::Good
              : check.unexplained() ? Paint::Bad
                                    : Paint::Warning);
  }
  std::string text =
      fmt::format("{}: {}\n\n{}\n", scenario.name, scenario.question, table.text(screen));
  for (const std::string& note : notes) {
    text += fmt::format("{} {}\n", mark(notes, note).substr(1), note);
  }
  text += notes.empty() ? "" : "\n";
  text += fmt::format("model: {}, parameters and gradients in {}\n",
                      scenario.model.name,
                      name_of(scenario.model.parameter_dtype));
  for (const std::string& formula : formulas) {
    text += formula + "\n";
  }
  for (const std::string& source : sources) {
    text += fmt::format("source: {}\n", source);
  }
  return text + closing_line(checks);
}

Json figures_json(const Scenario& scenario, const std::vector<FigureCheck>& checks) {
  Json list = Json::array();
  for (const FigureCheck& check : checks) {
    const PublishedFigure& published = check.published;
    list.push_back(
        {{"figure", figure_info(published.kind).name},
         {"conditions", check.conditions},
         {"published_text", published.value.text},
         {"published", published.value.value},
         {"published_half_unit", published.value.half_unit},
         {"computed", check.computed},
         {"published_off", check.published_off ? Json(*check.published_off) : Json(nullptr)},
         {"agrees", check.agrees},
         {"note", published.note},
         {"source", published.source}});
  }
  return {{"format", "stepsim-figures/1"}, {"scenario", scenario.name}, {"figures", list}};
}

std::string figures_csv(const std::vector<FigureCheck>& checks) {
  std::string text =
      "figure,conditions,published_text,published,computed,published_off,agrees,note,source\n";
  for (const FigureCheck& check : checks) {
    const PublishedFigure& published = check.published;
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n",
                        figure_info(published.kind).name,
                        csv_field(check.conditions),
                        csv_field(published.value.text),
                        published.value.value,
                        check.computed,
                        check.published_off ? fmt::format("{}", *check.published_off) : "",
                        check.agrees,
                        csv_field(published.note),
                        csv_field(published.source));
  }
  return text;
}

}  // namespace stepsim
