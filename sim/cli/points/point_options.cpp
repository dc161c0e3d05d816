#include "sim/cli/points/point_options.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/content_id.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/gzip_file.h"
#include "costmodel/model/transformer_json.h"
#include "sim/predict/scenario_profile.h"

namespace stepsim {

namespace {

/// The text of a file that a scenario names; a file that only some points can read is theirs to
/// refuse.
std::string named_text(const std::string& path) {
  try {
    return read_text_or_gzip(path);
  } catch (const InputError&) {
    return "";
  }
}

void add_length_files(const LengthSource& source, std::string& text) {
  if (!source.file.empty()) {
    text += content_id(named_text(source.file));
  }
  for (const LengthSource& part : source.parts) {
    add_length_files(part, text);
  }
}

/// A name for the scenario after --set, with all files that it reads but the profile.
std::string scenario_id(const Scenario& scenario, const std::vector<std::string>& set) {
  std::string text = scenario.text;
  for (const std::string& override_text : set) {
    // A profile is known by its content, wherever it lies.
    text += override_text.starts_with("cluster.profile=") ? "" : '\0' + override_text;
  }
  text += '\0' + to_json(scenario.model).dump(-1, ' ', false, Json::error_handler_t::replace);
  add_length_files(scenario.lengths, text);
  if (scenario.targets && scenario.targets->source) {
    add_length_files(*scenario.targets->source, text);
  }
  for (const BatchingPolicy& policy : scenario.policies) {
    if (policy.lengths()) {
      add_length_files(*policy.lengths(), text);
    }
    if (policy.played() != nullptr) {
      text += content_id(named_text(policy.parameters().text("file")));
    }
  }
  return content_id(text);
}

/// "part-{shard}.jsonl" names a file for each shard.
std::string with_shard_number(std::string path, const Shard& shard) {
  const std::string mark = "{shard}";
  if (const std::size_t at = path.find(mark); at != std::string::npos) {
    path.replace(at, mark.size(), std::to_string(shard.number));
  }
  return path;
}

}  // namespace

void add_point_options(OptionParser& parser) {
  parser.add({{"threads", option_value<int>(0), "NUMBER: threads; 0 is one a core"},
              {"resume",
               option_text(),
               "FILE: keep each finished point there; a killed command goes on where it stopped"},
              {"shard",
               option_text(),
               "SHARD: K/N, part K of N of the points, or auto; into the file of --resume, for "
               "stepsim merge"}});
}

PointRunner point_runner(const OptionParser& parser,
                         const std::string& command,
                         const Scenario& scenario) {
  const Request& request = parser.request();
  PointSources sources;
  sources.threads = parser.get<int>("threads");
  if (sources.threads < 0) {
    parser.fail("--threads must be 0 or more");
  }
  sources.peers = request.peers;
  sources.parts = request.parts;
  if (parser.has("shard")) {
    sources.shard = parse_shard(parser.text("shard"));
    if (!parser.has("resume")) {
      parser.fail("--shard goes with --resume FILE, where its points are kept");
    }
    for (const char* output : {"json", "csv", "html"}) {
      if (parser.has(output)) {
        parser.fail(fmt::format(
            "a shard is no answer: leave out --{}, and give it to stepsim merge", output));
      }
    }
  }
  const bool leads = request.peers == nullptr || request.peers->own() == 0;
  if ((!parser.has("resume") && sources.parts.empty()) || !leads) {
    return PointRunner(std::move(sources));
  }
  const CommonOptions common = parser.common();
  const StudyId id = {STEPSIM_VERSION,
                      command,
                      parser.question(),
                      scenario_id(scenario, common.set),
                      scenario_profile(scenario).id.text};
  for (const PointFile& part : sources.parts) {
    require_same_study(part, id);
  }
  if (parser.has("resume")) {
    const std::string path = with_shard_number(parser.text("resume"), sources.shard);
    if (path.empty() || path == "-") {
      parser.fail("--resume needs the name of a file");
    }
    sources.store = std::make_unique<PointStore>(path, id, sources.shard);
  }
  return PointRunner(std::move(sources));
}

Answer shard_answer(const PointRunner& runner, std::size_t points, const Outputs& outputs) {
  Answer answer;
  answer.outputs = outputs;
  answer.text = [text = fmt::format("shard {}: {} points are in {}\n"
                                    "When all shards are there: stepsim merge FILE...\n",
                                    runner.shard().text(),
                                    points,
                                    shell_word(runner.store()->path()))](const Screen&) {
    return text;
  };
  return answer;
}

}  // namespace stepsim
