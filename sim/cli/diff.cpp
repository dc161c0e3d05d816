#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/records/record_files.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/report/diff/diff_report.h"
#include "sim/report/html/page.h"
#include "sim/study/diff/record_diff.h"

namespace stepsim {

namespace {

struct DiffOptions {
  std::vector<std::string> records;
  std::vector<std::string> before;
  std::vector<std::string> after;
  std::optional<int> warmup;
  std::optional<double> fail_if_slower;
};

constexpr const char* kDiffUsage =
    "usage: stepsim diff BEFORE AFTER [options]\n"
    "       stepsim diff --before RECORD… --after RECORD… [options]\n\n"
    "Two records of the same training, before and after a change: faster, slower or no difference\n"
    "beyond noise; which part of the step moved, on which rank, at which lengths; and what to do\n"
    "next. Batches need not be the same: times are compared at equal batches, and what other\n"
    "batches make of the mean step is told apart. Where no step of one has its like in the\n"
    "other, as after another policy, the verdict is on useful tokens a second.\n\n"
    "The records come from stepsim_recorder.py, some dozens of steps each; files of single ranks\n"
    "(before.rank0.jsonl …) are joined. Several runs of each side, run by turns, tell the most.\n"
    "The verdict is wrong in 1 of 1000 comparisons, a part is named by mistake in 1 of 100.\n\n"
    "Exit status 0 whatever is found. With --fail-if-slower PERCENT: 1 if the step is slower by\n"
    "more than that, beyond noise; 0 if it is not, or where the steps cannot tell, which a note\n"
    "says; 2 if the records cannot be compared.\n\n"
    "examples:\n"
    "  stepsim diff before.jsonl after.jsonl\n"
    "  stepsim diff before.rank*.jsonl after.rank*.jsonl\n"
    "  stepsim diff --before old1.jsonl old2.jsonl --after new1.jsonl new2.jsonl\n"
    "  stepsim diff before.jsonl after.jsonl --html diff.html\n"
    "  stepsim diff main.jsonl branch.jsonl --fail-if-slower 2 --json diff.json\n";

/// Raises InputError that says what to do with a trace of PyTorch's profiler.
void refuse_traces(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".jsonl.gz")) {
      throw InputError(
          SourcePlace{file},
          "is no run record by its name. Traces of PyTorch's profiler become one by `stepcal "
          "import kineto RANK*.pt.trace.json.gz --run-record before.jsonl`, those of the other "
          "run likewise: give the two records");
    }
  }
}

struct Sides {
  std::vector<RecordFile> before;
  std::vector<RecordFile> after;
};

Sides read_sides(const Request& request,
                 const DiffOptions& options,
                 std::vector<std::string>& warnings) {
  refuse_traces(options.records);
  refuse_traces(options.before);
  refuse_traces(options.after);
  if (!options.before.empty() || !options.after.empty()) {
    if (options.before.empty() || options.after.empty() || !options.records.empty()) {
      request.fail("give BEFORE and AFTER, or --before RECORD… and --after RECORD…");
    }
    return {read_record_files(options.before, &warnings),
            read_record_files(options.after, &warnings)};
  }
  if (options.records.size() < 2) {
    request.fail("give two run records: BEFORE and AFTER");
  }
  std::vector<RecordFile> files = read_record_files(options.records, &warnings);
  if (files.size() != 2) {
    request.fail(fmt::format(
        "the files hold {} run{}, not two; several runs of a side go with --before RECORD… "
        "--after RECORD…",
        files.size(),
        files.size() == 1 ? "" : "s"));
  }
  return {{std::move(files[0])}, {std::move(files[1])}};
}

/// Whether the mean step is longer by more than that share, held-up steps included where they
/// come more often beyond noise.
bool is_slower_than(const RecordDiff& diff, double share) {
  if (diff.other_batches) {
    return diff.verdict == DiffVerdict::Slower &&
           diff.speed->before > (1 + share) * diff.speed->after;
  }
  double ms = diff.verdict == DiffVerdict::Slower ? diff.step.change : 0;
  if (diff.held_up_chance < kVerdictAlarm) {
    const auto per_step = [](const HeldUpSteps& side) { return side.ms / side.steps; };
    ms += per_step(diff.held_up_after) - per_step(diff.held_up_before);
  }
  return diff.step.relative(ms) > share;
}

/// What to know where neither is sure: that the step is slower by more than a share, nor that it is
/// not. Empty: one of them is.
std::string undecided_note(const RecordDiff& diff, double percent) {
  constexpr double kPercent = 100;
  double high = kPercent * diff.step.relative(diff.step.interval(kVerdictAlarm).second);
  if (diff.other_batches) {
    high = kPercent * (1 / (1 + diff.speed->interval(kVerdictAlarm).first) - 1);
  }
  if (is_slower_than(diff, percent / kPercent) || high <= percent) {
    return "";
  }
  return fmt::format(
      "--fail-if-slower {}: the exit status is 0, which proves nothing: as far as these steps tell "
      "the step may be up to {:.1f} % slower; `next` says what would tell more",
      percent,
      high);
}

/// "a.jsonl" of the files of one side, or "a.jsonl and 2 more".
std::string side_name(const std::vector<std::string>& files) {
  const std::string first = std::filesystem::path(files.front()).filename().string();
  return files.size() == 1 ? first : fmt::format("{} and {} more", first, files.size() - 1);
}

/// A page of two records has no scenario and no profile; their names stand in its place.
std::string diff_page(PageContent content, const RecordDiff& diff, const DiffFiles& files) {
  Scenario named;
  named.name = fmt::format("{} and {}", side_name(files.before), side_name(files.after));
  content.result = diff_json(diff, files);
  content.headline = diff_headline(diff);
  content.warnings = diff.notes;
  return page_text(page_data(named, Profile(), std::move(content)));
}

Answer ask_diff(const Request& request, const DiffOptions& options) {
  std::vector<std::string> warnings;
  const Sides sides = read_sides(request, options, warnings);
  RecordDiff diff = diff_records(sides.before, sides.after, options.warmup);
  diff.notes.insert(diff.notes.begin(),
                    std::make_move_iterator(warnings.begin()),
                    std::make_move_iterator(warnings.end()));
  if (options.fail_if_slower) {
    if (std::string note = undecided_note(diff, *options.fail_if_slower); !note.empty()) {
      diff.notes.insert(diff.notes.begin(), std::move(note));
    }
  }
  const DiffFiles files = {mapped(sides.before, &RecordFile::file),
                           mapped(sides.after, &RecordFile::file)};
  constexpr double kPercent = 100;
  Answer answer;
  answer.status = options.fail_if_slower && is_slower_than(diff, *options.fail_if_slower / kPercent)
                      ? kAnswerIsNo
                      : kDone;
  answer.text = [=](const Screen& screen) { return diff_text(diff, files, screen); };
  answer.json = [=] { return diff_json(diff, files); };
  answer.csv = [=] { return diff_csv(diff); };
  answer.html = [=, content = page_content(request, Scenario())] {
    return diff_page(content, diff, files);
  };
  return answer;
}

}  // namespace

Question diff_question() {
  using Q = DiffOptions;
  return question(
      "diff",
      "did a training become faster or slower, and where",
      kDiffUsage,
      option_table(
          {{option("records", &Q::records, "RECORD…: BEFORE and AFTER").positional(-1),
            option("before", &Q::before, "RECORD…: one run or several").up_to_next_option(),
            option("after", &Q::after, "RECORD…: one run or several").up_to_next_option(),
            option("warmup", &Q::warmup, "STEPS: left out at the beginning of each repeat").from(0),
            option("fail-if-slower",
                   &Q::fail_if_slower,
                   "PERCENT: exit status 1 if slower by more than this, beyond noise")
                .from(0)},
           page_options(),
           output_options()}),
      ask_diff);
}

}  // namespace stepsim
