#include "tests/bench/score.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "calibrate/samples/statistics.h"

namespace stepsim::bench {
namespace {

constexpr std::int64_t kFewestTokens = 256;
constexpr int kBlocks = 10;

std::string ending_of(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  const std::size_t card_end = name.find('_');
  return card_end == std::string::npos ? name : name.substr(card_end);
}

std::vector<Part> block_parts(const std::vector<std::int64_t>& tokens) {
  std::vector<Part> parts;
  for (int block = 0; block < kBlocks; ++block) {
    Part part;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool inside = static_cast<int>(kBlocks * i / tokens.size()) == block;
      part.train.push_back(!inside);
      part.test.push_back(inside && tokens[i] >= kFewestTokens);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Part sparse_part(const std::vector<std::int64_t>& tokens, bool with_next) {
  Part part;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool next = with_next && i > 0 && tokens[i - 1] % 128 == 0;
    part.train.push_back(tokens[i] == 64 || tokens[i] % 128 == 0 || next);
    part.test.push_back(!part.train.back() && tokens[i] >= kFewestTokens);
  }
  return part;
}

}  // namespace

Score score(const std::vector<std::vector<Predicted>>& series) {
  Score mean;
  double count = 0;
  for (const std::vector<Predicted>& rows : series) {
    if (rows.empty()) {
      continue;
    }
    std::vector<double> errors;
    double sum = 0;
    double predicted = 0;
    double measured = 0;
    for (const Predicted& row : rows) {
      errors.push_back(100 * std::abs(row.predicted / row.measured - 1));
      sum += errors.back();
      predicted += row.predicted;
      measured += row.measured;
    }
    mean.rows += rows.size();
    mean.mape += sum / static_cast<double>(rows.size());
    mean.p95 += quantile(errors, 0.95);
    mean.bias += 100 * (predicted / measured - 1);
    ++count;
  }
  if (count > 0) {
    mean.mape /= count;
    mean.p95 /= count;
    mean.bias /= count;
  }
  return mean;
}

int fold(std::int64_t x) {
  const std::uint64_t product = static_cast<std::uint64_t>(x) * 2654435761U;
  return static_cast<int>(((product & 0xffffffffU) >> 16U) % 5);
}

std::vector<Part> fold_parts(const std::vector<int>& folds) {
  std::vector<Part> parts;
  for (int left_out = 0; left_out < 5; ++left_out) {
    Part part;
    for (const int value : folds) {
      part.train.push_back(value != left_out);
      part.test.push_back(value == left_out);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Part rest_part(std::vector<bool> train) {
  Part part;
  part.test = train;
  part.test.flip();
  part.train = std::move(train);
  return part;
}

std::vector<Part> token_parts(const std::string& split, const std::vector<std::int64_t>& tokens) {
  if (split == "scattered") {
    std::vector<int> folds;
    for (const std::int64_t value : tokens) {
      folds.push_back(fold(value));
    }
    std::vector<Part> parts = fold_parts(folds);
    for (Part& part : parts) {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        part.test[i] = part.test[i] && tokens[i] >= kFewestTokens;
      }
    }
    return parts;
  }
  if (split == "blocks") {
    return block_parts(tokens);
  }
  if (split == "sparse-33" || split == "sparse-64") {
    return {sparse_part(tokens, split == "sparse-64")};
  }
  const std::int64_t limit = tokens.back() / (split == "beyond-2x" ? 2 : 4);
  std::vector<bool> train;
  for (const std::int64_t value : tokens) {
    train.push_back(value <= limit);
  }
  return {rest_part(std::move(train))};
}

Report::Report(std::vector<Bar> bars) : bars_(std::move(bars)) {
  fmt::print("errors in %, means over the series of a group; bar = the best reference form\n\n");
  fmt::print("{:<28} {:<22} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7}  {}\n",
             "group",
             "split",
             "rows",
             "MAPE",
             "bar",
             "margin",
             "p95",
             "bias",
             "our form (the bar's)");
}

void Report::add(const std::string& path,
                 const std::string& group,
                 const std::string& split,
                 const Score& ours,
                 const std::string& form) {
  if (ours.rows == 0) {
    return;
  }
  const Bar* best = nullptr;
  for (const Bar& bar : bars_) {
    if (ending_of(bar.file) == ending_of(path) && bar.group == group && bar.split == split &&
        (best == nullptr || bar.mape < best->mape)) {
      best = &bar;
    }
  }
  std::string bar = "-";
  std::string margin = "-";
  std::string bar_form;
  if (best != nullptr) {
    bar = fmt::format("{:.2f}", best->mape);
    margin = fmt::format("{:+.2f}", best->mape - ours.mape);
    bar_form = fmt::format(" ({})", best->form);
    ++compared_;
    // Bars are printed to two decimals.
    behind_ += ours.mape > best->mape + 0.005 ? 1 : 0;
  }
  fmt::print("{:<28} {:<22} {:>6} {:>7.2f} {:>7} {:>7} {:>7.2f} {:>+7.2f}  {}{}\n",
             group,
             split,
             ours.rows,
             ours.mape,
             bar,
             margin,
             ours.p95,
             ours.bias,
             form,
             bar_form);
  std::fflush(stdout);
}

}  // namespace stepsim::bench
