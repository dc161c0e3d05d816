// How well the fitted cost forms predict measurements they have not seen, beside the reference
// errors of the same splits: fit_accuracy --data DIR, a folder in the form of data/kernels/ (one
// card a folder; tables that are absent are left out). See its INDEX.md for splits and scores.
//
// Forms are chosen by choose_form() from training rows alone: one for all series of a group, by
// the errors inside the training rows of every fourth series of the split's first part. The number
// of processors is found from the training rows too. Exit status: 0 done, 2 bad input.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "calibrate/fit/collectives.h"
#include "calibrate/fit/general.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/nnls.h"
#include "costmodel/collective_table.h"
#include "costmodel/input_error.h"
#include "costmodel/op_cost.h"
#include "tests/bench/cached_attention.h"
#include "tests/bench/kernel_tables.h"
#include "tests/bench/score.h"

namespace stepsim::bench {
namespace {

constexpr double kNoLimit = 1e9;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

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

std::string described(const Candidate& candidate) {
  std::string text(name_of(candidate.form));
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

/// Series of one class with the same token counts, by a split of those counts.
SplitResult run_split(const std::vector<const Series*>& all,
                      const std::vector<const Series*>& gemms,
                      const std::string& split) {
  SplitResult result;
  result.predictions.resize(all.size());
  std::optional<std::size_t> form;
  std::vector<std::vector<Part>> parts;
  for (const Series* series : all) {
    parts.push_back(token_parts(split, tokens_of(*series)));
  }
  std::vector<Series> seen;
  for (const Series* series : gemms) {
    seen.push_back(kept(*series, token_parts(split, tokens_of(*series)).front().train));
  }
  const std::int64_t processors = std::max<std::int64_t>(1, find_processors(seen));
  const std::vector<Candidate> candidates = candidates_for(all.front()->op, processors);
  std::vector<Series> some;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    some.push_back(kept(*all[i], parts[i].front().train));
  }
  const Candidate& chosen = candidates[choose_form(candidates, some)];
  result.form = described(chosen);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Part& part : parts[i]) {
      const Series train = kept(*all[i], part.train);
      const Series test = kept(*all[i], part.test);
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

/// GEMMs of sizes that no other model of the 4 k grid has.
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
    const OpCost cost = fit_general(train, find_processors(train)).front();
    form = fmt::format("{}, {} processors", name_of(cost.form), cost.gemm_ratio.processors);
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

/// Causal attention of whole sequences, with the forms of a profile.
void score_whole_prefill(const std::string& path,
                         const std::vector<PrefillRow>& rows,
                         Report* report) {
  Op op;
  op.op_class = OpClass::Attention;
  op.causal = true;
  op.dtype = Dtype::F16;
  Series series{op, {}};
  std::vector<int> folds;
  for (const PrefillRow& row : rows) {
    if (row.cached == 0) {
      const auto length = static_cast<std::int64_t>(row.chunk);
      series.points.push_back({{1, length, length, row.chunk * row.chunk}, row.seconds});
      folds.push_back(fold(length));
    }
  }
  if (series.points.empty()) {
    return;
  }
  std::map<std::string, std::vector<Part>> splits = {{"scattered", fold_parts(folds)}};
  for (const auto& [name, limit] : {std::pair("beyond-2x", 2048), {"beyond-4x", 1024}}) {
    std::vector<bool> train;
    for (const std::int64_t length : tokens_of(series)) {
      train.push_back(length <= limit);
    }
    splits[name] = {rest_part(std::move(train))};
  }
  const std::vector<Candidate> candidates = candidates_for(op, 1);
  for (const auto& [name, parts] : splits) {
    std::vector<Predicted> predictions;
    std::string form;
    for (const Part& part : parts) {
      const Series train = kept(series, part.train);
      const Candidate& chosen = candidates[choose_form(candidates, std::span(&train, 1))];
      const OpCost cost = fit_form(chosen, op, train.points);
      form = described(chosen);
      for (const SeriesPoint& point : kept(series, part.test).points) {
        predictions.push_back({evaluate(cost, op, point.batch).seconds, point.seconds});
      }
    }
    report->add(path, "full prefill (kv_cache = 0)", name, score({predictions}), form);
  }
}

void score_prefill(const std::string& path, Report* report) {
  const std::vector<PrefillRow> rows = read_prefill(path);
  score_whole_prefill(path, rows, report);
  std::vector<int> folds;
  std::map<std::string, std::vector<Part>> splits;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    folds.push_back(fold(static_cast<std::int64_t>(i)));
  }
  splits["scattered"] = fold_parts(folds);
  for (const auto& [name, limit] : {std::pair("beyond-2x", 2048.0), {"beyond-4x", 1024.0}}) {
    std::vector<bool> train;
    for (const PrefillRow& row : rows) {
      train.push_back(row.chunk + row.cached <= limit);
    }
    splits[name] = {rest_part(std::move(train))};
  }
  for (const auto& [name, parts] : splits) {
    std::vector<Predicted> all;
    std::vector<Predicted> without_cache;
    for (const Part& part : parts) {
      std::vector<PrefillRow> train;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (part.train[i]) {
          train.push_back(rows[i]);
        }
      }
      const CachedAttention attention(train);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (part.test[i]) {
          all.push_back({attention.seconds(rows[i]), rows[i].seconds});
          if (rows[i].cached == 0) {
            without_cache.push_back(all.back());
          }
        }
      }
    }
    const std::string form = "[1, C, S, CS, C^2] x Gaussian process; no op of ours";
    report->add(path, "all rows", name, score({all}), form);
    report->add(path, "all rows", name + " kv=0", score({without_cache}), form);
  }
}

/// Predictions of the rows of one part, by the table that stepcal fit would write.
std::vector<std::pair<std::int64_t, Predicted>> predict_all_reduce(
    const std::vector<AllReduceRow>& rows, const Part& part) {
  std::vector<CollectiveSample> samples;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (part.train[i]) {
      CollectiveSample sample;
      sample.ranks = rows[i].ranks;
      sample.bytes = rows[i].bytes;
      sample.seconds = sample.p20 = sample.p80 = rows[i].seconds;
      samples.push_back(sample);
    }
  }
  const CollectiveCost cost = fit_collectives(samples).front().cost;
  std::vector<std::pair<std::int64_t, Predicted>> predictions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (part.test[i]) {
      const double predicted = table_cost(cost, Bytes(rows[i].bytes), kNoLimit, "").seconds;
      predictions.push_back({rows[i].bytes, {predicted, rows[i].seconds}});
    }
  }
  return predictions;
}

void score_all_reduce(const std::string& path, Report* report) {
  std::map<int, std::vector<AllReduceRow>> groups;
  for (const AllReduceRow& row : read_all_reduce(path)) {
    groups[row.ranks].push_back(row);
  }
  for (const auto& [ranks, rows] : groups) {
    const std::string group = fmt::format("{} ranks", ranks);
    std::vector<int> folds;
    for (const AllReduceRow& row : rows) {
      folds.push_back(fold(row.bytes / 1024));
    }
    std::vector<Predicted> all;
    std::vector<Predicted> large;
    for (const Part& part : fold_parts(folds)) {
      for (const auto& [bytes, predicted] : predict_all_reduce(rows, part)) {
        all.push_back(predicted);
        if (bytes >= kMiB) {
          large.push_back(predicted);
        }
      }
    }
    const std::string form = "collective table";
    report->add(path, group, "scattered", score({all}), form);
    report->add(path, group, "scattered-from-1-MiB", score({large}), form);
    for (const std::int64_t limit : {32, 8}) {
      std::vector<bool> train;
      for (const AllReduceRow& row : rows) {
        train.push_back(row.bytes <= limit * kMiB);
      }
      std::vector<Predicted> beyond;
      for (const auto& [bytes, predicted] : predict_all_reduce(rows, rest_part(train))) {
        beyond.push_back(predicted);
      }
      report->add(path, group, fmt::format("beyond-{}-MiB", limit), score({beyond}), form);
    }
  }
}

/// Backward on its own: relative NNLS of [1, flops, bytes] of the forward product.
void score_backward(const std::string& path, Report* report) {
  constexpr double kBytes = 4;
  constexpr double kFewestRows = 64;
  constexpr double kShortest = 0.05e-3;
  const std::vector<LayerRow> all = read_layers(path);
  for (const std::string kind : {"linear", "bmm"}) {
    std::map<std::string, std::vector<LayerRow>> runs;
    for (const LayerRow& row : all) {
      if (row.kind == kind && row.forward >= kShortest && (kind == "bmm" || row.m >= kFewestRows)) {
        runs[row.run].push_back(row);
      }
    }
    const auto features = [](const LayerRow& row) -> std::vector<double> {
      return {1,
              2 * row.b * row.m * row.n * row.k,
              kBytes * row.b * (row.n * row.k + row.m * (row.n + row.k))};
    };
    for (const bool forward : {true, false}) {
      std::vector<Predicted> predictions;
      const auto seconds = [forward](const LayerRow& row) {
        return forward ? row.forward : row.backward;
      };
      for (const auto& [left_out, tested] : runs) {
        std::vector<std::vector<double>> rows;
        std::vector<double> times;
        for (const auto& [run, members] : runs) {
          for (const LayerRow& row : members) {
            if (run != left_out) {
              rows.push_back(features(row));
              times.push_back(seconds(row));
            }
          }
        }
        const std::vector<double> coefficients = relative_nnls(rows, times);
        for (const LayerRow& row : tested) {
          predictions.push_back({dot(coefficients, features(row)), seconds(row)});
        }
      }
      if (runs.size() > 1) {
        report->add(path,
                    kind + (forward ? " forward" : " backward"),
                    "leave-one-run-out",
                    score({predictions}),
                    "roofline");
      }
    }
  }
}

int run(const std::string& folder) {
  Report report(read_bars(folder));
  int tables = 0;
  const auto with = [&](const char* ending, const std::function<void(const std::string&)>& task) {
    if (const auto path = find_table(folder, ending)) {
      task(*path);
      ++tables;
    }
  };
  with("_all_reduce.csv", [&](const std::string& path) { score_all_reduce(path, &report); });
  with("_layers_fwd_bwd.csv", [&](const std::string& path) { score_backward(path, &report); });
  with("_attention_prefill.csv", [&](const std::string& path) { score_prefill(path, &report); });
  with("_mlp.csv", [&](const std::string& path) {
    const std::vector<MlpSeries> all = read_mlp(path);
    score_unseen(path, all, &report);
    score_mlp(path, all, &report);
  });
  if (tables == 0) {
    throw InputError(
        fmt::format("{}: holds no table *_mlp.csv, *_attention_prefill.csv, *_all_reduce.csv or "
                    "*_layers_fwd_bwd.csv",
                    folder));
  }
  fmt::print("\n{} of {} scores are at least as good as the best reference form\n",
             report.compared() - report.behind(),
             report.compared());
  return 0;
}

/// --data DIR, else the kernels of $STEPSIM_DATA or of ../shared/data beside the project.
std::string data_folder(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--data") {
    return argv[2];
  }
  if (argc != 1) {
    throw InputError("usage: fit_accuracy [--data DIR]");
  }
  const char* data = std::getenv("STEPSIM_DATA");
  return std::string(data != nullptr ? data : STEPSIM_SOURCE_ROOT "/../shared/data") + "/kernels";
}

}  // namespace
}  // namespace stepsim::bench

int main(int argc, char** argv) {
  try {
    return stepsim::bench::run(stepsim::bench::data_folder(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "fit_accuracy: {}\n", error.what());
    return 2;
  }
}
