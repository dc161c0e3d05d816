#include "sim/cli/points/point_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/content_id.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/same_file.h"
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
std::string scenario_id(const Scenario& scenario) {
  std::string text = scenario.text;
  for (const Setting& setting : scenario.overrides) {
    // A profile is known by its content, wherever it lies.
    text += setting.key() == "cluster.profile" ? "" : '\0' + setting.text();
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

/// Tells whether a text in the value could name one of the question's outputs.
bool writes_named(const Request& request, const TomlValue& value) {
  const auto is_value = [&](const std::string& file) { return is_same_file(file, value.text); };
  const auto is_named = [&](const GivenOption& output) {
    return request.written.contains(output.name) && std::ranges::any_of(output.values, is_value);
  };
  return (!value.text.empty() && std::ranges::any_of(request.given, is_named)) ||
         std::ranges::any_of(value.children,
                             [&](const TomlValue& child) { return writes_named(request, child); });
}

/// "part-{shard}.jsonl" names a file for each shard.
std::string with_shard_number(std::string path, const Shard& shard) {
  const std::string mark = "{shard}";
  if (const std::size_t at = path.find(mark); at != std::string::npos) {
    path.replace(at, mark.size(), std::to_string(shard.number));
  }
  return path;
}

/// The shard that is asked for. Raises InputError as point_runner() does.
Shard asked_shard(const Request& request) {
  const Shard shard = parse_shard(request.points.shard);
  if (request.points.resume.empty()) {
    request.fail("--shard goes with --resume FILE, where its points are kept");
  }
  for (const auto& [output, file] : {std::pair("json", &request.outputs.json),
                                     {"csv", &request.outputs.csv},
                                     {"html", &request.outputs.html}}) {
    if (!file->empty()) {
      request.fail(fmt::format("a shard is no answer: leave out --{}, and give it to stepsim merge",
                               output));
    }
  }
  return shard;
}

}  // namespace

PointRunner point_runner(const Request& request, const Scenario& scenario) {
  const PointOptions& options = request.points;
  PointSources sources;
  sources.threads = options.threads;
  sources.peers = request.peers;
  sources.parts = request.parts;
  sources.elsewhere = request.elsewhere;
  sources.serve = request.serve;
  if (!options.shard.empty()) {
    sources.shard = asked_shard(request);
  }
  const bool leads = request.peers == nullptr || request.peers->own() == 0;
  if ((options.resume.empty() && sources.parts.empty()) || !leads) {
    return PointRunner(std::move(sources));
  }
  const StudyId id = {
      STEPSIM_VERSION,
      request.command.substr(request.command.find(' ') + 1),
      request.words_without(
          {"json", "csv", "html", "quiet", "threads", "resume", "shard", "memory-limit"}),
      scenario_id(scenario),
      scenario_profile(scenario).id.text};
  for (const PointFile& part : sources.parts) {
    require_same_study(part, id);
  }
  if (!options.resume.empty()) {
    const std::string path = with_shard_number(options.resume, sources.shard);
    if (path == "-") {
      request.fail("--resume needs the name of a file");
    }
    sources.store = std::make_unique<PointStore>(path, id, sources.shard);
  }
  return PointRunner(std::move(sources));
}

std::vector<SweepAxis> asked_axes(const Request& request, const std::vector<std::string>& over) {
  std::vector<SweepAxis> axes = mapped(over, parse_sweep_axis);
  axes.insert(axes.end(), request.axes.begin(), request.axes.end());
  return axes;
}

void keep_axis_files(const Request& request,
                     const Scenario& scenario,
                     std::span<const SweepAxis> axes) {
  for (const SweepAxis& axis : axes) {
    for (const Setting& value : axis.values) {
      if (!writes_named(request, value.value())) {
        continue;
      }
      std::optional<Scenario> named;
      try {
        named = with_settings(scenario, {{value}, "--over"});
      } catch (const InputError&) {
        continue;  // The point says what is wrong with it.
      }
      keep_scenario_files(request, *named);
    }
  }
}

Answer shard_answer(const PointRunner& runner, std::size_t points) {
  Answer answer;
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
