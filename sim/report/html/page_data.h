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

/// What the page of one command says.
struct PageContent {
  std::string kind;          ///< The command: "run", "compare", "sweep" or "validate".
  std::string version;       ///< Of this program.
  std::string made;          ///< UTC
  std::string command;       ///< The whole command line, as a shell would take it.
  std::string profile_path;  ///< As the user named it; empty: none.
  std::string headline;  ///< The result in one sentence, as the terminal states it; may be empty.
  std::string recommended;              ///< A policy; may be empty.
  std::vector<std::string> references;  ///< Policies on data of their own: never recommended.
  std::vector<std::string> warnings;
  Json result;                     ///< What --json writes.
  Json timelines = Json::array();  ///< Of timeline_json(), in the slider's order.
  Json series = Json::array();     ///< Of series_json().
  Json blame = Json::array();      ///< Of page_blame_json().
};

/// The page's data:
///
///   {"format": "stepsim-page/2", "version", "made", "kind", "command", "question", "headline",
///    "recommended", "references": [policy, …], "columns": of the table of policies,
///    [{"key": "a/b" is member b of member a of "summary", "heading", "format"}, …],
///    "scenario": {"file", "name", "text": the file as read, "model", "ranks", "steps",
///                 "warmup_steps"},
///    "profile": [["device", text], …]: its name, file, device and provenance, "warnings": [text,
///    …], "result", "timelines", "series", "blame"}
[[nodiscard]] Json page_data(const Scenario& scenario, const Profile& profile, PageContent content);

/// A policy's steps one after another, without noise:
///
///   {"policy", "warmup_steps", "step_ms": [step], "useful": [rank][step], "padded": [rank][step],
///    "memory_bytes": [step] of the rank that needs most}
///
/// Tokens are whole numbers. No "memory_bytes" where the prediction holds none.
[[nodiscard]] Json series_json(const Prediction& prediction, int warmup_steps);

/// The same with "measured_ms": [step] mean over the passes, null where nothing was measured.
[[nodiscard]] Json measured_series_json(const Prediction& prediction,
                                        const PolicyValidation& measured,
                                        int warmup_steps);

/// {"policy", "step_ms", "rows": [[what would be different, saved ms], …]}: the rows of the table
/// that `stepsim blame` prints. What the profile cannot price has null and the reason.
[[nodiscard]] Json page_blame_json(const Blame& blame);

}  // namespace stepsim
