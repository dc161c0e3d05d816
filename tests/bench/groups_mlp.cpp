#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "calibrate/fit/find_processors.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/unmeasured_sizes.h"
#include "costmodel/compute/cost_form.h"
#include "costmodel/compute/op_cost.h"
#include "tests/bench/groups.h"

namespace stepsim::bench {
namespace {

/// A prediction with the token count it is for.
struct TokenPrediction {
  std::int64_t tokens = 0;
  Predicted times;
};

/// What one split gave: [series][prediction].
struct SplitResult {
  std::vector<std::vector<TokenPrediction>> predictions;
  std::string form;
};

/// Series of one class with the same token counts, by a split of those counts.
SplitResult run_split(const std::vector<const Series*>& all,
                      const std::vector<const Series*>& gemms,
                      const std::string& split) {
  SplitResult result;
  result.predictions.resize(all.size());
  std::vector<std::vector<Part>> parts;
  for (const Series* series : all) {
    parts.push_back(token_parts(split, tokens_of(*series)));
  }
  std::vector<Series> seen;
  for (const Series* series : gemms) {
    seen.push_back(kept(*series, token_parts(split, tokens_of(*series)).front().train));
  }
  const std::int64_t processors = std::max<std::int64_t>(1, find_processors(seen));
  const std::vector<FormCandidate> candidates = candidates_for(all.front()->op, processors);
  std::vector<Series> some;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    some.push_back(kept(*all[i], parts[i].front().train));
    if (some.back().points.empty()) {
      some.pop_back();  // A grid too short for this split.
    }
  }
  if (some.empty()) {
    result.form = "no training rows";
    return result;
  }
  const FormCandidate& chosen = candidates[choose_form(candidates, some)];
  result.form = described(chosen);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Part& part : parts[i]) {
      const Series train = kept(*all[i], part.train);
      const Series test = kept(*all[i], part.test);
      if (train.points.empty() || test.points.empty()) {
        continue;
      }
      const OpCost cost = fit_form(chosen, train.op, train.points);
      for (const SeriesPoint& point : test.points) {
        result.predictions[i].push_back(
            {point.batch.max_length,
             {evaluate(cost, test.op, point.batch).seconds, point.seconds}});
      }
    }
  }
  return result;
}

Score score_of(const SplitResult& result) {
  std::vector<std::vector<Predicted>> series;
  for (const auto& predictions : result.predictions) {
    series.emplace_back();
    for (const TokenPrediction& prediction : predictions) {
      series.back().push_back(prediction.times);
    }
  }
  return score(series);
}

/// Times of all ops of a model's layer at one token count, added up.
class BlockSums {
 public:
  void add(const std::vector<const MlpSeries*>& series, const SplitResult& result) {
    for (std::size_t i = 0; i < series.size(); ++i) {
      for (const TokenPrediction& prediction : result.predictions[i]) {
        Predicted& sum = sums_[{series[i]->model, series[i]->sharding, prediction.tokens}];
        sum.predicted += prediction.times.predicted;
        sum.measured += prediction.times.measured;
      }
    }
  }
  [[nodiscard]] Score result() const {
    std::vector<Predicted> rows;
    for (const auto& [key, sum] : sums_) {
      rows.push_back(sum);
    }
    return score({rows});
  }

 private:
  std::map<std::tuple<std::string, int, std::int64_t>, Predicted> sums_;
};

std::vector<const Series*> bare(const std::vector<const MlpSeries*>& all) {
  std::vector<const Series*> series;
  for (const MlpSeries* one : all) {
    series.push_back(&one->series);
  }
  return series;
}

/// All series of one largest token count.
void score_grid(const std::string& path,
                const std::vector<const MlpSeries*>& gemms,
                const std::vector<const MlpSeries*>& others,
                std::int64_t largest,
                Report* report) {
  const std::string size = fmt::format("{}k", largest / 1024);
  std::vector<std::string> splits = {"scattered", "blocks", "beyond-2x", "beyond-4x"};
  if (largest == 4096) {
    splits.insert(splits.end(), {"sparse-64", "sparse-33"});
  }
  for (const std::string& split : splits) {
    BlockSums sums;
    for (const auto* group : {&gemms, &others}) {
      if (group->empty()) {
        continue;
      }
      const SplitResult result = run_split(bare(*group), bare(gemms), split);
      const std::string name = group == &gemms ? "gemm-" : "elementwise-";
      report->add(path, name + size, split, score_of(result), result.form);
      sums.add(*group, result);
    }
    report->add(path, "block-sum-" + size, split, sums.result(), "the two above");
  }
}

}  // namespace

std::vector<std::int64_t> tokens_of(const Series& series) {
  std::vector<std::int64_t> tokens;
  for (const SeriesPoint& point : series.points) {
    tokens.push_back(point.batch.max_length);
  }
  return tokens;
}

Series kept(const Series& series, const std::vector<bool>& rows) {
  Series part{series.op, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]) {
      part.points.push_back(series.points[i]);
    }
  }
  return part;
}

std::string described(const FormCandidate& candidate) {
  std::string text(form_row(candidate.form).name);
  if (candidate.processors == 0 && !candidate.features.empty()) {
    text += fmt::format(" [{}]", fmt::join(candidate.features, " "));
  }
  if (candidate.every_point) {
    text += " (every point)";
  }
  if (candidate.step > 0) {
    text += fmt::format(" x blocks of {}", candidate.step);
  }
  if (candidate.processors > 0) {
    text += fmt::format(", waves on {} processors", candidate.processors);
  }
  return text;
}

void score_mlp(const std::string& path, const std::vector<MlpSeries>& all, Report* report) {
  std::map<std::int64_t, std::vector<const MlpSeries*>> gemms;
  std::map<std::int64_t, std::vector<const MlpSeries*>> others;
  for (const MlpSeries& series : all) {
    if (series.name != "emb") {
      const std::int64_t largest = series.series.points.back().batch.max_length;
      (series.series.op.op_class == OpClass::Gemm ? gemms : others)[largest].push_back(&series);
    }
  }
  for (const auto& [largest, group] : gemms) {
    score_grid(path, group, others[largest], largest, report);
  }
}

void score_unseen(const std::string& path, const std::vector<MlpSeries>& all, Report* report) {
  std::map<std::string, std::vector<Series>> models;
  for (const MlpSeries& one : all) {
    if (one.series.op.op_class != OpClass::Gemm ||
        one.series.points.back().batch.max_length != 4096) {
      continue;
    }
    std::vector<bool> rows;
    for (const std::int64_t tokens : tokens_of(one.series)) {
      rows.push_back(tokens >= 64 && tokens % 8 == 0);
    }
    models[one.model].push_back(kept(one.series, rows));
  }
  std::vector<std::vector<Predicted>> predictions;
  std::string form;
  for (const auto& [left_out, tested] : models) {
    std::vector<Series> train;
    std::set<std::pair<std::int64_t, std::int64_t>> sizes;
    for (const auto& [model, series] : models) {
      if (model != left_out) {
        train.insert(train.end(), series.begin(), series.end());
      }
    }
    for (const Series& series : train) {
      sizes.emplace(series.op.n, series.op.k);
    }
    const std::vector<OpCost> general = fit_unmeasured_sizes(train, find_processors(train));
    if (general.empty()) {
      continue;
    }
    const OpCost& cost = general.front();
    form = fmt::format(
        "{}, {} processors", form_row(cost.form).name, fmt::join(cost.gemm_ratio.processors, ", "));
    predictions.emplace_back();
    for (const Series& series : tested) {
      if (sizes.count({series.op.n, series.op.k}) > 0) {
        continue;
      }
      for (const SeriesPoint& point : series.points) {
        predictions.back().push_back(
            {evaluate(cost, series.op, point.batch).seconds, point.seconds});
      }
    }
  }
  if (models.size() > 1) {
    report->add(path, "gemm-unseen-shape", "leave-one-model-out", score(predictions), form);
  }
}

}  // namespace stepsim::bench
