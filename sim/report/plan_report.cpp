#include "sim/report/plan_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/shell_word.h"
#include "sim/report/csv.h"

namespace stepsim {

namespace {

bool plan_cuts_samples(const Plan& plan) {
  return std::ranges::any_of(plan.micro_batches,
                             [](const MicroBatch& batch) { return !batch.offsets.empty(); });
}

}  // namespace

std::string plan_csv(const std::vector<Plan>& plans) {
  const bool offsets = std::ranges::any_of(plans, plan_cuts_samples);
  std::string text =
      "case,rank,step,samples,useful_tokens,padded_tokens,max_length,sample_ids,lengths";
  text += offsets ? ",offsets\n" : "\n";
  for (const Plan& plan : plans) {
    for (int rank = 0; rank < plan.ranks; ++rank) {
      for (const MicroBatch& batch : plan.micro_batches) {
        if (batch.rank != rank) {
          continue;
        }
        const BatchShape shape = batch.shape();
        text += fmt::format("{},{},{},{},{},{},{},{},{}{}\n",
                            csv_field(plan.policy),
                            rank,
                            batch.step,
                            batch.samples.size(),
                            shape.useful_tokens,
                            shape.padded_tokens(),
                            shape.max_length,
                            fmt::join(batch.samples, " "),
                            fmt::join(batch.lengths, " "),
                            offsets ? fmt::format(",{}", fmt::join(batch.offsets, " ")) : "");
      }
    }
  }
  return text;
}

std::string written_plans_text(const Scenario& scenario, const std::vector<std::string>& paths) {
  std::string list;
  for (const std::string& path : paths) {
    list += " " + shell_word(path);
  }
  const std::string next = scenario.model.family == ModelFamily::Blocks
                               ? "train them with the loader of calibrate/torch, or stepcal grid" +
                                     list + " --out shapes.json, to calibrate on their shapes"
                               : "python3 -m stepsim.torch.live" + list +
                                     " --out-dir live   (trains them here, in PyTorch)";
  return fmt::format("wrote{}\nnext: {}\n", list, next);
}

}  // namespace stepsim
