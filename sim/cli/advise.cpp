#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/same_file.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/text_file.h"
#include "costmodel/terminal/progress.h"
#include "sim/ask/question.h"
#include "sim/cli/page.h"
#include "sim/report/advice/advice_report.h"
#include "sim/report/advice/sampler_code.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/study/advice.h"
#include "sim/study/recommendation.h"

namespace stepsim {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAdviseUsage =
    "usage: stepsim advise RECORD… [--out-dir FOLDER] [options]\n\n"
    "From the records of one training to an answer: what its steps are spent on, the batching\n"
    "policy and bucket size that suit it, what they change, and what an epoch takes. The records\n"
    "come from stepsim_recorder.py with Recorder(…, model=ddp, loader=loader), a few dozen steps;\n"
    "files of single ranks (run.rank0.jsonl …) are joined. Of a model under fully_shard it tells "
    "of\n"
    "shardings in place of bucket sizes.\n\n"
    "FOLDER keeps the profile, a scenario to edit and the predictions. A scenario that you have\n"
    "edited is used as it stands.\n\n"
    "examples:\n"
    "  stepsim advise run.jsonl\n"
    "  stepsim advise run.rank*.jsonl --epochs 3 --gpu-hour 2.50 --html advice.html\n";

/// What to do with the answer, as commands that can be pasted.
std::string next_steps(const AdviceQuestion& question,
                       const Scenario& scenario,
                       const Advice& advice) {
  const fs::path folder = question.folder;
  const Prediction* best = recommended(scenario, advice.predictions, advice.recorded);
  const std::string policy = best != nullptr ? best->policy : advice.predictions.front().policy;
  const std::string file = shell_word((folder / "scenario.toml").string());
  if (policy == advice.recorded) {
    return fmt::format(
        "next: stepsim compare {0}   (the table behind the answer)\n"
        "      stepsim blame {0} --policy {1}   (what a step would save if one thing were "
        "different)\n",
        file,
        shell_word(policy));
  }
  std::string text =
      "to train with it, paste this (lengths: the tokens of each sample of the dataset):\n";
  for (const std::string& line : sampler_code(
           find_policy(scenario, policy), scenario.seed, (folder / "scenario.toml").string())) {
    text += "    " + line + "\n";
  }
  text += fmt::format(
      "then record as before,\n"
      "    Recorder(\"after\", policy={}, model={}, loader=loader)\n"
      "and ask\n"
      "      stepsim diff {}{} {}after.jsonl   (did it become faster?)\n",
      Json(policy).dump(),
      scenario.parallel == parallelisms().front() ? "ddp" : "model",
      question.records.size() > 1 ? "--before " : "",
      fmt::join(mapped(question.records, shell_word), " "),
      question.records.size() > 1 ? "--after " : "");
  // Only then the scenario knows the data set's samples by number.
  if (scenario.lengths.kind == LengthSource::Kind::File) {
    text += fmt::format(
        "      stepsim validate {0} --live after.jsonl   (by as much as predicted?)\n"
        "more: stepsim plan {0} --policy {1} --out {2}   (the same batches as a file)\n",
        file,
        shell_word(policy),
        shell_word((folder / "plan.jsonl").string()));
  }
  return text + fmt::format("next: stepsim compare {}   (the table behind the answer)\n", file);
}

/// What follows the table: what to do next, which files there are, and what is odd.
std::string closing_text(const AdviceQuestion& question,
                         const AdviceCase& training,
                         const Advice& advice) {
  std::string text = next_steps(question, training.scenario, advice);
  text += fmt::format(
      "kept: {}/scenario.toml (and scenario.made.toml, as it was made), profile.json, profile.txt "
      "(how well it fits), {}{}{}, prediction.json\n",
      question.folder,
      question.lengths.empty() ? "lengths.json" : "lengths.txt",
      training.plays ? ", recorded.jsonl" : "",
      training.scenario.described ? ", config.json" : "");
  std::vector<std::string> warnings = training.warnings;
  if (training.edited) {
    warnings.push_back(fmt::format(
        "{} was edited and is used as it stands; what these records make is in scenario.made.toml",
        training.file));
  }
  if (!advice.shardings.empty() && question.base.empty()) {
    warnings.emplace_back(
        "without --base DDP is priced as if an all-reduce took as long as a gather of as many "
        "bytes, "
        "and what the optimizer takes more for sharded tensors is assumed: stepsim.torch.calibrate "
        "and all_reduce.py measure both");
  }
  std::ranges::move(note_texts(advice.predictions), std::back_inserter(warnings));
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

/// {"recommendation": …}
Json recommendation_answer(const Scenario& scenario, const Advice& advice) {
  return {{"recommendation",
           recommendation_json(recommend(scenario, advice.predictions, advice.recorded))}};
}

void write_predictions(const std::string& folder, const Scenario& scenario, const Advice& advice) {
  Json predictions = prediction_json(advice.predictions, StepRows::All);
  predictions.update(recommendation_answer(scenario, advice));
  write_text_atomically((fs::path(folder) / "prediction.json").string(),
                        predictions.dump(1) + "\n");
}

/// What an answer is made of.
struct Found {
  AdviceQuestion question;
  AdviceCase training;
  Advice advice;
};

Answer answer_of(const Request& request, const std::shared_ptr<const Found>& found) {
  Answer answer;
  answer.text = [found](const Screen& screen) {
    const auto& [question, training, advice] = *found;
    return fmt::format("{}\n\n{}\n{}",
                       fmt::join(advice_lines(training.scenario, advice), "\n"),
                       advice_table(advice, screen),
                       closing_text(question, training, advice));
  };
  answer.json = [found] { return advice_json(found->training.scenario, found->advice); };
  answer.html = [=, content = page_content(request, found->training.scenario)] {
    const auto& [question, training, advice] = *found;
    Json shown = recommendation_answer(training.scenario, advice);
    shown["options"] = advice_options_json(advice);
    return compare_page(content,
                        *training.jobs,
                        advice.predictions,
                        shown,
                        advice.recorded,
                        advice_headline(training.scenario, advice));
  };
  return answer;
}

/// Raises InputError where a file that it makes is one that it reads, or one that it reads twice is
/// a pipe.
void keep_advice_inputs(const Request& request, const AdviceQuestion& question) {
  std::vector<std::string> read = question.records;
  read.insert(read.end(), question.plans.begin(), question.plans.end());
  read.push_back(question.base);
  read.push_back(question.config);
  read.push_back(question.lengths);
  std::ranges::for_each(read, require_kept_file);
  for (const char* const name : {"scenario.toml",
                                 "scenario.made.toml",
                                 "profile.json",
                                 "profile.txt",
                                 "lengths.json",
                                 "recorded.jsonl",
                                 "config.json",
                                 "prediction.json"}) {
    const std::string made = (fs::path(question.folder) / name).string();
    if (std::ranges::any_of(read, [&](const std::string& file) {
          return !file.empty() && is_same_file(made, file);
        })) {
      request.fail(fmt::format("{} would overwrite an input; give --out-dir another folder",
                               printable(made)));
    }
  }
}

Answer ask_advise(const Request& request, const AdviceQuestion& asked) {
  if (asked.records.empty()) {
    request.fail("no run record given");
  }
  if (asked.gpu_hour && asked.price_per_hour) {
    request.fail(
        "--gpu-hour is the price of one rank, --price-per-hour that of all: give one of them");
  }
  const auto found = std::make_shared<Found>();
  auto& [question, training, advice] = *found;
  question = asked;
  keep_advice_inputs(request, question);
  training = advice_case(question, request.fit_records);
  Progress progress(fmt::format("predicting {} policies", training.scenario.policies.size()));
  advice = advise(training, progress.callback());
  progress.done();
  write_predictions(question.folder, training.scenario, advice);
  return answer_of(request, found);
}

}  // namespace

Question advise_question() {
  using Q = AdviceQuestion;
  const std::vector<OptionRow> own = {
      option("records", &Q::records, "RECORD…: run records").positional(-1),
      option("out-dir", &Q::folder, "FOLDER: for the files it makes"),
      option("lengths",
             &Q::lengths,
             "FILE: tokens of each sample of the data set, one a line, in its order"),
      option("base", &Q::base, "PROFILE: with all-reduce times"),
      option("plan", &Q::plans, "PLAN: what ran, for records without a model; may repeat"),
      option("flops-per-token",
             &Q::flops_per_token,
             "FLOPS: forward and backward of a useful token, for TFLOP/s and MFU")
          .above(0),
      option("config", &Q::config, "FILE: config.json of the model, in place of it"),
      option("peak-tflops", &Q::peak_tflops, "TFLOPS: dense, of a rank's device").above(0),
      option("epochs", &Q::epochs, "NUMBER: say what so many epochs take; 1").above(0),
      option("gpu-hour", &Q::gpu_hour, "PRICE: of a rank for an hour; says what training costs")
          .above(0),
      option("price-per-hour", &Q::price_per_hour, "PRICE: the same of all ranks together").from(0),
      option("json", &Outputs::json, "FILE or -: write the result as JSON").written(),
      option("wide", &Outputs::wide, "all columns of the table, also beyond 80 characters"),
      option("quiet,q", &Outputs::quiet, "suppress terminal output")};
  return question("advise",
                  "from the records of a training to an answer",
                  kAdviseUsage,
                  option_table({own, page_options()}),
                  ask_advise);
}

}  // namespace stepsim
