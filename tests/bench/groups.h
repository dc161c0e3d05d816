#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/form_fits.h"
#include "tests/bench/kernel_tables.h"
#include "tests/bench/score.h"

namespace stepsim::bench {

/// Scores of one table each, added to the report group by group and split by split; `path` names
/// the table, for its bars.
void score_mlp(const std::string& path, const std::vector<MlpSeries>& all, Report* report);
/// GEMMs of sizes that no other model of the 4 k grid has.
void score_unseen(const std::string& path, const std::vector<MlpSeries>& all, Report* report);
void score_prefill(const std::string& path, Report* report);
void score_all_reduce(const std::string& path, Report* report);
/// Matrix products of training steps, forward and backward each on its own.
void score_layers(const std::string& path, Report* report);

/// The padded lengths of a series of single samples.
[[nodiscard]] std::vector<std::int64_t> tokens_of(const Series& series);
/// The causal attentions of whole sequences.
[[nodiscard]] Series whole_prefill(const std::vector<PrefillRow>& rows);
/// The points of these rows.
[[nodiscard]] Series kept(const Series& series, const std::vector<bool>& rows);
/// A form for the report.
[[nodiscard]] std::string described(const FormCandidate& candidate);

}  // namespace stepsim::bench
