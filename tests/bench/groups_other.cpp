#include <map>

#include <fmt/core.h>

#include "calibrate/fit/collectives.h"
#include "calibrate/fit/holdout.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/network/collective_table.h"
#include "tests/bench/cached_attention.h"
#include "tests/bench/groups.h"
#include "tests/bench/layer_forms.h"

namespace stepsim::bench {
namespace {

constexpr double kNoLimit = 1e9;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

/// Causal attention of whole sequences, with the forms of a profile.
void score_whole_prefill(const std::string& path,
                         const std::vector<PrefillRow>& rows,
                         Report* report) {
  const Series series = whole_prefill(rows);
  if (series.points.empty()) {
    return;
  }
  const Op& op = series.op;
  std::vector<int> folds;
  for (const std::int64_t length : tokens_of(series)) {
    folds.push_back(fold(length));
  }
  std::map<std::string, std::vector<Part>> splits = {{"scattered", fold_parts(folds)}};
  for (const auto& [name, limit] : {std::pair("beyond-2x", 2048), {"beyond-4x", 1024}}) {
    std::vector<bool> train;
    for (const std::int64_t length : tokens_of(series)) {
      train.push_back(length <= limit);
    }
    splits[name] = {rest_part(std::move(train))};
  }
  const std::vector<FormCandidate> candidates = candidates_for(op, 1);
  for (const auto& [name, parts] : splits) {
    std::vector<Predicted> predictions;
    std::string form;
    for (const Part& part : parts) {
      const Series train = kept(series, part.train);
      if (train.points.empty()) {
        continue;
      }
      const FormCandidate& chosen = candidates[choose_form(candidates, std::span(&train, 1))];
      const OpCost cost = fit_form(chosen, op, train.points);
      form = described(chosen);
      for (const SeriesPoint& point : kept(series, part.test).points) {
        predictions.push_back({evaluate(cost, op, point.batch).seconds, point.seconds});
      }
    }
    report->add(path, "full prefill (kv_cache = 0)", name, score({predictions}), form);
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
      sample.seconds = rows[i].seconds;
      samples.push_back(sample);
    }
  }
  std::vector<std::pair<std::int64_t, Predicted>> predictions;
  if (samples.empty()) {
    return predictions;
  }
  const CollectiveCost cost = fit_collectives(samples).front().cost;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (part.test[i]) {
      const double predicted = table_cost(cost, Bytes(rows[i].bytes), kNoLimit, "").seconds;
      predictions.push_back({rows[i].bytes, {predicted, rows[i].seconds}});
    }
  }
  return predictions;
}

}  // namespace

Series whole_prefill(const std::vector<PrefillRow>& rows) {
  Series series;
  series.op.op_class = OpClass::Attention;
  series.op.causal = true;
  series.op.dtype = Dtype::F16;
  for (const PrefillRow& row : rows) {
    if (row.cached == 0) {
      const auto length = static_cast<std::int64_t>(row.chunk);
      series.points.push_back({{1, length, length, row.chunk * row.chunk}, row.seconds});
    }
  }
  return series;
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
      if (train.empty()) {
        continue;
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

void score_layers(const std::string& path, Report* report) {
  const std::vector<LayerPart> parts = layer_parts(scored_layers(path));
  std::vector<std::int64_t> processors;
  for (const LayerPart& part : parts) {
    processors.push_back(layer_processors(part.train));
  }
  for (const std::string kind : {"linear", "bmm"}) {
    for (const LayerPass pass : {LayerPass::Forward, LayerPass::Backward}) {
      std::vector<Predicted> predictions;
      std::string form;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const MeanLayerFit fit(pass, processors[i], of_kind(parts[i].train, kind));
        form = fmt::format("{}; {} processors", fit.names(), processors[i]);
        for (const LayerRow& row : of_kind(parts[i].test, kind)) {
          predictions.push_back({fit.seconds(row), seconds_of(row, pass)});
        }
      }
      if (parts.size() > 1) {
        report->add(path,
                    kind + (pass == LayerPass::Forward ? " forward" : " backward"),
                    "leave-one-run-out",
                    score({predictions}),
                    form);
      }
    }
  }
}

}  // namespace stepsim::bench
