// Packing into rows, and packing by histogram.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "sim/batching/algorithms/histogram_packing.h"
#include "sim/batching/algorithms/multipack.h"
#include "sim/batching/algorithms/packing.h"
#include "sim/batching/algorithms/packing_stream.h"
#include "sim/batching/policy.h"
#include "sim/batching/random/numpy_generator.h"
#include "tests/oracles/published_batching.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/plan_hash.h"

namespace stepsim::test {
namespace {

Ids identity(std::size_t count) {
  Ids order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::int64_t sum_of(const Ids& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

IdLists lengths_of(const Packs& packs, const Ids& lengths) {
  IdLists result;
  for (const auto& pack : packs) {
    Ids& own = result.emplace_back();
    for (const auto id : pack) {
      own.push_back(lengths[static_cast<std::size_t>(id)]);
    }
  }
  return result;
}

IdLists samples_of(const PiecePacks& packs) {
  IdLists result;
  for (const auto& pack : packs) {
    Ids& own = result.emplace_back();
    for (const Piece& piece : pack) {
      own.push_back(piece.sample);
    }
  }
  return result;
}

Ids row_tokens(const PiecePacks& packs) {
  Ids result;
  for (const auto& pack : packs) {
    result.push_back(tokens_of(pack));
  }
  return result;
}

/// [pack] [[sample, length], …]
Json pieces(const PiecePacks& packs) {
  Json result = Json::array();
  for (const auto& pack : packs) {
    Json own = Json::array();
    for (const Piece& piece : pack) {
      own.push_back({piece.sample, piece.length});
    }
    result.push_back(own);
  }
  return result;
}

Json piece_lengths(const PiecePacks& packs) {
  Json result = Json::array();
  for (const auto& pack : packs) {
    Json own = Json::array();
    for (const Piece& piece : pack) {
      own.push_back(piece.length);
    }
    result.push_back(own);
  }
  return result;
}

Json best_fit_decreasing(const FixtureCase& data) {
  const auto packs = pack_best_fit_decreasing(data.lengths(),
                                              data.parameters.at("seq_length"),
                                              data.parameters.at("strategy") == "bfd_split");
  const PiecePacks first(packs.begin(),
                         packs.begin() + std::min<std::ptrdiff_t>(3, std::ssize(packs)));
  return {{"bins_sample_len", pieces(packs)},
          {"seq_lengths", piece_lengths(packs)},
          {"num_bins", packs.size()},
          {"tokens_kept", sum_of(row_tokens(packs))},
          {"first3_bins_sample_len", pieces(first)},
          {"plan_hash_samples", plan_hash({samples_of(packs)})}};
}

Json wrapped(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  return {{"row_lengths",
           row_tokens(
               pack_wrapped(identity(lengths.size()), lengths, data.parameters.at("seq_length")))}};
}

Json axolotl(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto capacity = data.parameters.at("bin_capacity").get<std::int64_t>();
  const auto bins =
      pack_first_fit(identity(lengths.size()),
                     lengths,
                     {capacity, data.parameters.at("bin_size"), data.parameters.at("group_size")});
  const double slots = static_cast<double>(capacity) * static_cast<double>(bins.size());
  return {{"bins", bins},
          {"num_bins", bins.size()},
          {"efficiency", rounded(static_cast<double>(sum_of(lengths)) / slots, 6)},
          {"plan_hash", plan_hash({bins})}};
}

Json axolotl_sequential(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto capacity = data.parameters.at("bin_capacity").get<std::int64_t>();
  const auto bins = pack_next_fit(identity(lengths.size()), lengths, capacity);
  const auto ranks = data.parameters.at("num_ranks").get<std::size_t>();
  Packs own;
  for (auto bin = data.parameters.at("rank").get<std::size_t>(); bin < bins.size(); bin += ranks) {
    own.push_back(bins[bin]);
  }
  return {
      {"bins", own}, {"total_used", sum_of(lengths)}, {"total_slots", capacity * std::ssize(bins)}};
}

Json axolotl_check(const FixtureCase& data) {
  Json fits = Json::array();
  for (const auto& bins : data.input.at("num_bins")) {
    fits.push_back(
        first_fit_decreasing_fits(data.lengths(), data.parameters.at("bin_capacity"), bins));
  }
  return {{"fits", fits}};
}

Json nemo(const FixtureCase& data, bool descending) {
  const Ids lengths = data.lengths();
  Ids order = identity(lengths.size());
  if (descending) {
    std::stable_sort(order.begin(), order.end(), [&lengths](std::int64_t a, std::int64_t b) {
      return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    });
  }
  const auto bins = pack_first_fit(order, lengths, {data.parameters.at("pack_size"), {}, {}});
  return {{"bins_of_lengths", lengths_of(bins, lengths)}};
}

Json nemo_first_fit(const FixtureCase& data) {
  return nemo(data, false);
}

Json nemo_decreasing(const FixtureCase& data) {
  return nemo(data, true);
}

Json longalign(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  return {{"packs",
           pack_longalign(identity(lengths.size()), lengths, data.parameters.at("max_length"))}};
}

Json longalign_groups(const FixtureCase& data) {
  return {
      {"groups_in_size_order", sorted_groups(data.lengths(), data.parameters.at("group_size"))}};
}

Json llama_factory(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto bins = pack_greedy_knapsack(lengths, data.parameters.at("capacity"));
  return {{"bins_of_lengths", lengths_of(bins, lengths)}};
}

Json modded_nanogpt(const FixtureCase& data) {
  const Ids lengths = data.lengths("doc_lengths");
  Ids begins = {0};
  for (const auto length : lengths) {
    begins.push_back(begins.back() + length);
  }
  const StreamStep step = take_from_stream(identity(lengths.size()),
                                           lengths,
                                           0,
                                           data.parameters.at("world_size"),
                                           data.parameters.at("num_tokens_local"),
                                           data.parameters.at("max_seq_len"))
                              .value();
  IdLists starts;
  IdLists ends;
  for (const auto& rank : step.ranks) {
    starts.emplace_back();
    ends.emplace_back();
    for (const Piece& piece : rank) {
      starts.back().push_back(begins[static_cast<std::size_t>(piece.sample)]);
      ends.back().push_back(starts.back().back() + piece.length);
    }
  }
  return {{"starts", starts},
          {"ends", ends},
          {"next_doc_index", step.next},
          {"doc_lens_per_rank", piece_lengths(step.ranks)}};
}

Json nanochat(const FixtureCase& data) {
  const Ids lengths = data.lengths("doc_lengths");
  BestFitCrop options;
  options.capacity = data.parameters.at("row_capacity");
  options.buffer = data.parameters.at("buffer_size");
  auto rows = pack_best_fit_crop(identity(lengths.size()), lengths, options);
  rows.resize(data.parameters.at("rows"));
  std::int64_t cropped = 0;
  for (const auto& row : rows) {
    for (const Piece& piece : row) {
      cropped += lengths[static_cast<std::size_t>(piece.sample)] - piece.length;
    }
  }
  return {{"rows_doc_used", pieces(rows)}, {"cropped_tokens", cropped}};
}

Json llm_foundry(const FixtureCase& data) {
  const auto capacity = data.parameters.at("max_seq_len").get<std::int64_t>();
  BinCollator collator(data.parameters.at("target_batch_size"), capacity);
  Json steps = Json::array();
  Ids lengths;
  std::int64_t packed = 0;
  std::int64_t slots = 0;
  for (const auto& added : data.input.at("length_steps")) {
    Ids samples;
    for (const auto& length : added) {
      samples.push_back(std::ssize(lengths));
      lengths.push_back(length);
    }
    const Ids sizes = row_tokens(collator.step(samples, lengths));
    packed += sum_of(sizes);
    slots += capacity * std::ssize(sizes);
    steps.push_back(
        {{"packed_bin_sizes", sizes}, {"leftover_bin_sizes", row_tokens(collator.leftover())}});
  }
  const auto used = static_cast<double>(packed);
  return {{"steps", steps},
          {"waste", 1 - used / static_cast<double>(sum_of(lengths))},
          {"efficiency", used / static_cast<double>(slots)}};
}

Multipack multipack_options(const FixtureCase& data, Multipack::Method method) {
  Multipack options;
  options.method = method;
  options.capacity = data.parameters.at("batch_max_length");
  options.ranks = data.parameters.at("num_replicas");
  return options;
}

Ids multipack_order(Multipack::Method method, std::size_t count, std::uint64_t seed) {
  return generator_permutation(
      method == Multipack::Method::Quadratic ? BitGenerator::Philox : BitGenerator::Pcg64,
      static_cast<std::int64_t>(count),
      seed);
}

/// A given permutation is our own generator's too.
Json multipack_small(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto method = data.parameters.at("permutation_rng").get<std::string>().starts_with("PCG64")
                          ? Multipack::Method::Linear
                          : Multipack::Method::Quadratic;
  const auto seed = data.parameters.at("seed").get<std::uint64_t>() +
                    data.parameters.at("epoch").get<std::uint64_t>();
  const Ids order = multipack_order(method, lengths.size(), seed);
  const auto plan = multipack(order, lengths, multipack_options(data, method));
  Json result = {{"batches_per_rank", plan}, {"steps", plan.front().size()}};
  if (data.input.contains("permutation") && data.input.at("permutation") != Json(order)) {
    result["batches_per_rank"] = "another permutation";
  }
  std::vector<IdLists> sorted;
  std::size_t placed = 0;
  IdLists sums(3);
  IdLists squares(3);
  for (const auto& rank : plan) {
    sorted.push_back(lengths_of(rank, lengths));
    for (std::size_t step = 0; step < rank.size(); ++step) {
      Ids& own = sorted.back()[step];
      std::sort(own.begin(), own.end());
      placed += own.size();
      if (step < 3) {
        sums[step].push_back(sum_of(own));
        squares[step].push_back(
            std::inner_product(own.begin(), own.end(), own.begin(), std::int64_t{0}));
      }
    }
  }
  result["samples_placed"] = placed;
  result["rank_sums_first3_steps"] = sums;
  result["rank_sumsq_first3_steps"] = squares;
  result["plan_hash_of_sorted_lengths"] = plan_hash(sorted);
  return result;
}

/// Figures of the project's README for one method.
Json multipack_figures(const FixtureCase& data, Multipack::Method method) {
  const Ids lengths = data.lengths();
  const auto options = multipack_options(data, method);
  const int epochs = data.parameters.at("epochs");
  const auto ranks = static_cast<double>(options.ranks);
  double used = 0;
  double slots = 0;
  double at_most_loaded = 0;
  double lag_mean = 0;
  double lag_max = 0;
  std::size_t first_steps = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto plan =
        multipack(multipack_order(method, lengths.size(), static_cast<std::uint64_t>(epoch)),
                  lengths,
                  options);
    const std::size_t steps = plan.front().size();
    first_steps = epoch == 0 ? steps : first_steps;
    double mean = 0;
    double most = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      Ids tokens;
      Ids squares;
      for (const auto& rank : plan) {
        const Ids own = lengths_of({rank[step]}, lengths).front();
        tokens.push_back(sum_of(own));
        squares.push_back(std::inner_product(own.begin(), own.end(), own.begin(), std::int64_t{0}));
      }
      used += static_cast<double>(sum_of(tokens));
      slots += ranks * static_cast<double>(options.capacity);
      at_most_loaded +=
          ranks * static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
      const auto [least, largest] = std::minmax_element(squares.begin(), squares.end());
      const auto difference = static_cast<double>(*largest - *least);
      mean += difference / static_cast<double>(steps);
      most = std::max(most, difference);
    }
    lag_mean += std::sqrt(mean) / epochs;
    lag_max += std::sqrt(most) / epochs;
  }
  return {{"efficiency_pct", rounded(100 * used / slots, 2)},
          {"utilization_pct", rounded(100 * used / at_most_loaded, 2)},
          {"l2_lag_avg", std::llround(lag_mean)},
          {"l2_lag_max", std::llround(lag_max)},
          {"num_batches_epoch0", first_steps}};
}

Json multipack_readme(const FixtureCase& data) {
  return {{"quadratic", multipack_figures(data, Multipack::Method::Quadratic)},
          {"linear", multipack_figures(data, Multipack::Method::Linear)}};
}

Json graphcore(const HistogramPacking& packing, std::size_t capacity) {
  Json packs = Json::array();
  for (const auto& strategy : packing.strategies) {
    packs.push_back({strategy.count, strategy.lengths});
  }
  const auto count = static_cast<double>(packing.packs());
  const double used =
      static_cast<double>(packing.tokens()) / (count * static_cast<double>(capacity));
  return {{"packs_count_pack", packs},
          {"packs", packing.packs()},
          {"efficiency_pct", rounded(100 * used, 4)},
          {"speedup", rounded(static_cast<double>(packing.sequences()) / count, 5)},
          {"strategies", packing.strategies.size()}};
}

Ids graphcore_counts(const FixtureCase& data) {
  Ids counts = data.input.contains("histogram") ? data.file.counts(data.input.at("histogram"))
                                                : data.input.at("counts_len1_up").get<Ids>();
  counts.resize(data.parameters.at("max_sequence_length"));
  return counts;
}

Json graphcore_longest(const FixtureCase& data) {
  const Ids counts = graphcore_counts(data);
  return graphcore(pack_longest_first(counts, data.parameters.at("max_sequences_per_pack")),
                   counts.size());
}

Json graphcore_shortest(const FixtureCase& data) {
  const Ids counts = graphcore_counts(data);
  return graphcore(pack_shortest_first(counts, data.parameters.at("max_sequences_per_pack")),
                   counts.size());
}

Json cu_seqlens(const FixtureCase& data) {
  return {{"cu_seqlens",
           cumulative_lengths(data.lengths("doc_lengths"),
                              data.parameters.at("max_num_docs_slots").get<std::int64_t>())}};
}

Json flattening(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const Ids ends = cumulative_lengths(lengths);
  Ids positions;
  for (const auto length : lengths) {
    const Ids own = identity(static_cast<std::size_t>(length));
    positions.insert(positions.end(), own.begin(), own.end());
  }
  return {{"total_tokens", ends.back()},
          {"position_ids", positions},
          {"cu_seqlens", ends},
          {"max_seqlen", *std::max_element(lengths.begin(), lengths.end())},
          {"labels_minus100_at", Ids(ends.begin(), ends.end() - 1)}};
}

/// Slots for documents: by the old rule, and enough for what was seen.
Json max_documents(const FixtureCase& data) {
  Ids usual;
  for (const auto& tokens : data.input.at("tokens_per_rank")) {
    usual.push_back(document_slots(tokens.get<std::int64_t>() / 300, 128));
  }
  Json result = {{"old_max_num_docs", usual},
                 {"observed_max_docs", data.expected.at("observed_max_docs")}};
  for (const auto& observed : data.expected.at("observed_max_docs")) {
    result["new_max_num_docs"].push_back(document_slots(observed, 32));
  }
  return result;
}

constexpr std::array kPackingKinds = {
    CaseKind{"trl.bfd", best_fit_decreasing},
    CaseKind{"trl.wrapped", wrapped},
    CaseKind{"axolotl.pack_parallel", axolotl},
    CaseKind{"axolotl.allocate_sequentially", axolotl_sequential},
    CaseKind{"axolotl.ffd_check", axolotl_check},
    CaseKind{"nemo.first_fit", nemo_first_fit},
    CaseKind{"nemo.first_fit_decreasing", nemo_decreasing},
    CaseKind{"longalign.pack", longalign},
    CaseKind{"longalign.sorted_groups", longalign_groups},
    CaseKind{"llamafactory.greedy_knapsack", llama_factory},
    CaseKind{"modded_nanogpt.Shard", modded_nanogpt},
    CaseKind{"modded_nanogpt.max_num_docs", max_documents},
    CaseKind{"nanochat.bestfit_crop", nanochat},
    CaseKind{"foundry.binpack", llm_foundry},
    CaseKind{"multipack.", multipack_small},
    CaseKind{"multipack.openchat_v1.readme", multipack_readme},
    CaseKind{"graphcore.histogram.lpfhp", graphcore_longest},
    CaseKind{"graphcore.lpfhp", graphcore_longest},
    CaseKind{"graphcore.histogram.spfhp", graphcore_shortest},
    CaseKind{"graphcore.spfhp", graphcore_shortest},
    CaseKind{"flashattn.cu_seqlens", cu_seqlens},
    CaseKind{"hf.DataCollatorWithFlattening", flattening},
};

}  // namespace

std::span<const CaseKind> packing_cases() {
  return kPackingKinds;
}

}  // namespace stepsim::test
