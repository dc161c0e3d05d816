#include "sim/report/validation/validation_markdown.h"

#include <initializer_list>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/terminal/table.h"
#include "sim/report/markdown.h"
#include "sim/report/number_text.h"
#include "sim/report/validation/validation_report.h"
#include "sim/report/validation/validation_words.h"

namespace stepsim {

namespace {

using VersionsJson = nlohmann::ordered_json;

std::string bullet(const std::string& text) {
  return "- " + markdown_text(text) + "\n";
}

/// "gcc: 12.2, threads: 1"; empty when there are none.
std::string versions_text(const VersionsJson& versions) {
  std::string text;
  if (!versions.is_object()) {
    return text;
  }
  for (const auto& [key, value] : versions.items()) {
    text += (text.empty() ? "" : ", ") + key + ": ";
    text += value.is_string() ? value.get<std::string>() : value.dump();
  }
  return text;
}

/// The first of these members of the profile's provenance that is there and a text; else empty.
std::string provenance_text(const Profile& profile, std::initializer_list<const char*> paths) {
  for (const char* path : paths) {
    const nlohmann::ordered_json::json_pointer place(path);
    if (profile.provenance->contains(place) && (*profile.provenance)[place].is_string()) {
      return (*profile.provenance)[place].get<std::string>();
    }
  }
  return "";
}

/// "- **what**: text", or nothing for an empty text.
std::string entry(const char* what, const std::string& text) {
  return text.empty() ? "" : fmt::format("- **{}**: {}\n", what, markdown_text(text));
}

std::string profile_entries(const Profile& profile, const std::string& path) {
  const bool versions = profile.provenance->is_object() && profile.provenance->contains("versions");
  return entry("profile", path.empty() ? profile.name : profile.name + " (" + path + ")") +
         entry("profile's device", profile.device) +
         entry("profile made",
               provenance_text(profile, {"/started_at", "/recorded/date", "/fitted_at"})) +
         entry("profile's command",
               provenance_text(profile, {"/command", "/recorded/command", "/fit_command"})) +
         entry("profile's versions",
               versions ? versions_text((*profile.provenance)["versions"]) : "");
}

std::string source_entries(const ValidationSources& sources) {
  const Scenario& scenario = sources.scenario;
  std::string text = entry("scenario", scenario.name + " (" + scenario.path + ")") +
                     entry("question", scenario.question) +
                     entry("run",
                           fmt::format("model {}, {} ranks, {} steps, the first {} left out",
                                       scenario.model.name,
                                       scenario.ranks,
                                       scenario.steps,
                                       scenario.warmup_steps)) +
                     profile_entries(sources.profile, sources.profile_path);
  if (sources.predictions_path.empty()) {
    text += entry("prediction", "computed from scenario and profile for this comparison");
  } else {
    text += entry("prediction", sources.predictions_path) +
            entry("prediction made", sources.predicted_at);
  }
  std::set<std::string> versions;
  for (const LiveFile& file : sources.live) {
    versions.insert(versions_text(*file.header.versions));
  }
  for (const std::string& each : versions) {
    text += entry("live run's versions", each);
  }
  return text;
}

std::string live_table(const ValidationSources& sources) {
  Table table({"live record", "policy", "started", "device", "backend", "passes"});
  for (const LiveFile& file : sources.live) {
    const RunRecord& header = file.header;
    table.add({file.path,
               header.policy,
               header.started_at,
               header.device,
               header.backend,
               std::to_string(header.repeats)});
  }
  return markdown_table(table);
}

/// One policy in words.
std::string explanation(const PolicyValidation& p) {
  std::string text = fmt::format("{}: predicted {:.3f} ms, measured {:.3f} ms, an error of {}",
                                 printable(p.policy),
                                 p.predicted.mean,
                                 p.measured_mean,
                                 signed_percent(p.error_mean));
  if (!p.resolution()) {
    text += " on one pass, whose repeatability is not known";
  } else if (p.within_repeatability()) {
    text += fmt::format(", within what the live runs can tell (+-{})", percent(*p.resolution()));
  } else {
    text += fmt::format(", real: the live runs tell +-{}", percent(*p.resolution()));
  }
  const PartError part = largest_part_error(p);
  text += fmt::format(". Most of it: {} ({:+.1f} points)", part_words(p, part), part.error * 100);
  text += fmt::format(
      ". The measured mean is {} the predicted 90 % interval, and {:.0f} % of {} single steps are "
      "below the predicted p50, {:.0f} % below the p95.",
      p.covered ? "in" : "outside",
      p.below_p50 * 100,
      p.measured_steps,
      p.below_p95 * 100);
  return text;
}

}  // namespace

std::string validation_markdown(const Validation& validation,
                                const ValidationSources& sources,
                                double bound) {
  std::string text = "# Prediction and live run: " + markdown_text(sources.scenario.name) + "\n\n";
  text += "**Verdict: " + markdown_text(verdict(validation, sources, bound)) + ".**\n\n" +
          "How sure: " + markdown_text(certainty(validation, bound)) + ".\n\n";
  if (const std::string machine = machine_line(validation, sources); !machine.empty()) {
    text += "Machine: " + markdown_text(machine) + ".\n\n";
  }
  text += "## What was compared\n\n" + source_entries(sources) + "\n" + live_table(sources) + "\n";
  text += markdown_code(printable(sources.command, std::string::npos)) + "\n";
  text +=
      "## Step time\n\nFrom the last rank's start to the last rank's end, mean over the steady "
      "steps. Repeatability is the standard deviation of the passes' means; an error below two "
      "standard errors of the measured mean cannot be told from none.\n\n" +
      markdown_table(step_time_table(validation, true)) + "\n";
  text += "## Where the error is\n\nPoints of the measured step that each part adds.\n\n" +
          markdown_table(part_error_table(validation, true)) + "\n";
  text += "## Findings\n\n";
  for (const std::string& finding : findings(validation, sources)) {
    text += bullet(finding);
  }
  for (const std::string& warning : validation.warnings) {
    text += bullet("warning: " + warning);
  }
  text += "\n## Policies\n\n";
  for (const PolicyValidation& policy : validation.policies) {
    text += bullet(explanation(policy));
  }
  text += "\n## Next\n\n";
  for (const std::string& line : advice(validation, sources, bound)) {
    text += bullet(line);
  }
  if (text.back() != '\n' || text[text.size() - 2] != '\n') {
    text += "\n";
  }
  return text + markdown_code(next_command(validation, sources, bound));
}

}  // namespace stepsim
