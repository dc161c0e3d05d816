#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "sim/study/blame.h"
#include "sim/study/validate.h"

namespace stepsim {

/// What the page of one command shows.
struct PageContent {
  std::string kind;          ///< The command: "run", "compare", "sweep", "tune", "validate",
                             ///< "advise", "diff".
  std::string version;       ///< The version of this program.
  std::string made;          ///< When the page was made, in UTC.
  std::string command;       ///< The whole command line, quoted for a shell.
  std::string profile_path;  ///< The profile as the user named it; empty: none.
  std::string headline;  ///< The result in one sentence, as the terminal states it; may be empty.
  std::string recommended;              ///< The recommended policy; may be empty.
  std::vector<std::string> references;  ///< Policies on data of their own: never recommended.
  std::vector<std::string> warnings;
  Json sweep_columns = Json::array();  ///< page_sweep_columns() of a sweep.
  Json result;                         ///< The result that --json writes.
  Json timelines = Json::array();      ///< [setting] of timeline_json(), in the slider's order.
  Json series = Json::array();         ///< [policy] of series_json().
  Json blame = Json::array();          ///< [policy] of page_blame_json().
};

/// Returns the page's data:
///
///   {"format": "stepsim-page/2", "version", "made", "kind", "command", "question", "headline",
///    "recommended", "references": [policy, …], "glossary": {word: meaning}, "columns": of the
///    table of policies,
///    [{"key": "a/b" is member b of member a of "summary", "heading", "format"}, …],
///    "sweep_columns": the same of a sweep's points; words have no format,
///    "scenario": {"file", "name", "text": the file as read, "model", "ranks", "steps",
///                 "warmup_steps"},
///    "profile": [["device", text], …]: its name, file, device and provenance, "warnings": [text,
///    …], "result", "timelines", "series", "blame"}
[[nodiscard]] Json page_data(const Scenario& scenario, const Profile& profile, PageContent content);

/// Returns all steps of a policy in order, without noise:
///
///   {"policy", "warmup_steps", "step_ms": [step], "useful": [rank][step], "padded": [rank][step],
///    "memory_bytes": [step] of the rank that needs most,
///    "lost_ms": [step] for shapes that were new, "shapes": [step] distinct ones until then}
///
/// Tokens are whole numbers. "memory_bytes" is missing when the prediction has none, "lost_ms" and
/// "shapes" where new shapes cost nothing.
[[nodiscard]] Json series_json(const Prediction& prediction, int warmup_steps);

/// Returns series_json() with "measured_ms": [step] mean over the passes, null where nothing was
/// measured.
[[nodiscard]] Json measured_series_json(const Prediction& prediction,
                                        const PolicyValidation& measured,
                                        int warmup_steps);

/// Returns {"policy", "step_ms", "rows": [[what would be different, saved ms], …]}, which are the
/// rows that `stepsim blame` prints. A change that the profile cannot price has null and the
/// reason.
[[nodiscard]] Json page_blame_json(const Blame& blame);

}  // namespace stepsim
