#include <utility>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "sim/report/diff/diff_parts.h"
#include "sim/report/diff/diff_report.h"

namespace stepsim {
namespace {

Json effect_json(const Effect& effect, double alarm) {
  const auto [low, high] = effect.interval(alarm);
  return {{"before_ms", effect.before},
          {"change_ms", effect.change},
          {"change", effect.relative(effect.change)},
          {"interval_ms", {low, high}},
          {"interval", {effect.relative(low), effect.relative(high)}},
          {"standard_error_ms", effect.error},
          {"degrees_of_freedom", effect.freedom}};
}

Json speed_json(const SpeedChange& speed) {
  const auto [low, high] = speed.interval(kVerdictAlarm);
  return {{"before", speed.before},
          {"after", speed.after},
          {"change", speed.gain()},
          {"interval", {low, high}}};
}

Json held_up_json(const HeldUpSteps& side) {
  return {{"steps", side.steps}, {"held_up", side.held_up}, {"ms_per_step", held_up_ms(side)}};
}

Json cause_json(const RecordDiff& diff, const DiffCause& cause) {
  return {{"part", row_of(cause.part).key},
          {"ranks", cause.ranks},  // Empty: all.
          {"change_ms", cause.ms},
          {"change", cause.share},
          {"interval_ms", {cause.interval.first, cause.interval.second}},
          {"waiting_ranks", cause.waiting},
          {"by_processor", cause.by_processor},
          {"processor_idle", cause.processor_idle},
          {"words", cause_text(diff, cause)}};
}

}  // namespace

Json diff_json(const RecordDiff& diff, const DiffFiles& files) {
  Json json = {
      {"format", "stepsim-diff/1"},
      {"headline", diff_headline(diff)},
      {"verdict", name_of(diff.verdict)},
      {"alarm", {{"verdict", kVerdictAlarm}, {"parts", kPartsAlarm}}},
      {"before",
       {{"records", files.before},
        {"steps", diff.steps_before},
        {"mean_step_ms", diff.mean_before},
        {"held_up", held_up_json(diff.held_up_before)}}},
      {"after",
       {{"records", files.after},
        {"steps", diff.steps_after},
        {"mean_step_ms", diff.mean_after},
        {"held_up", held_up_json(diff.held_up_after)}}},
      {"step", effect_json(diff.step, kVerdictAlarm)},
      {"batches",
       {{"same", diff.same_batches},
        {"tokens_before", diff.batches.tokens_before},
        {"tokens_after", diff.batches.tokens_after},
        {"change_ms", diff.batches.ms}}},
      {"by_turns", diff.by_turns},
      {"held_up_chance", diff.held_up_chance},
      {"causes",
       mapped(diff.causes, [&](const DiffCause& cause) { return cause_json(diff, cause); })},
      {"reasons", diff_reasons(diff)},
      {"next", diff_next(diff, files)},
      {"settings", diff.settings},
      {"notes", diff.notes}};
  if (diff.other_batches) {
    json["step"] = nullptr;
  }
  json["useful_tokens_per_s"] = diff.speed ? speed_json(*diff.speed) : Json();
  json["parts"] = diff_parts_json(diff);
  json["sizes"] = mapped(diff.sizes, [](const SizeChange& size) {
    Json row = {{"tokens", {size.from, size.to}}, {"steps", size.steps}};
    row.update(effect_json(size.effect, kPartsAlarm));
    return row;
  });
  return json;
}

}  // namespace stepsim
