#include "calibrate/import/nccl/nccl_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/core.h>

#include "calibrate/import/nccl/nccl_row.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

constexpr std::int64_t kCheckMiB = std::int64_t{1} << 20U;
constexpr std::size_t kFewestSizes = 4;
constexpr std::size_t kFewSizes = 8;
constexpr double kNoisyRows = 0.10;
constexpr double kFaster = 0.98;          ///< A larger size below this share of the time before it.
constexpr double kAverageDigits = 0.006;  ///< The footer's average has six digits.
constexpr double kMaxDamaged = 0.10;
constexpr int kUsualRanksPerNode = 8;

std::string size_text(std::int64_t bytes) {
  return format_bytes(Bytes(bytes));
}

/// Tells whether it is nccl-tests' own program that measures such a collective, and no renamed or
/// changed one, of which the user knows more than the name says.
bool is_own_program(const std::string& collective) {
  constexpr std::array kPrograms = {"all_reduce",
                                    "all_gather",
                                    "all_to_all",
                                    "alltoallv",
                                    "broadcast",
                                    "gather",
                                    "hypercube",
                                    "reduce",
                                    "reduce_scatter",
                                    "scatter",
                                    "sendrecv"};
  return std::ranges::count(kPrograms, collective) > 0;
}

/// Collects the reasons of one sweep.
class Judge {
 public:
  Judge(const NcclLog& log, const NcclStatements& statements, NcclSweep* sweep)
      : log_(log), statements_(statements), sweep_(sweep), table_(sweep->table) {}

  void check_op();
  void find_ranks();
  void find_nodes();
  void choose_rows();
  void check_order();
  void check_sizes();
  void check_values();
  void check_form();
  void measure();

 private:
  void note(const std::string& code, std::string message) {
    sweep_->reasons.push_back({code, std::move(message), NcclVerdict::Accept});
  }
  void warn(const std::string& code, std::string message) {
    sweep_->reasons.push_back({code, std::move(message), NcclVerdict::Warn});
  }
  /// A warning when the user accepts it.
  void refuse(const std::string& code, std::string message) {
    const bool accepted = statements_.accepted.count(code) > 0;
    sweep_->reasons.push_back(
        {code, std::move(message), accepted ? NcclVerdict::Warn : NcclVerdict::Refuse});
  }
  /// Cannot be accepted: there is nothing to go on with.
  void refuse_always(const std::string& code, std::string message) {
    sweep_->reasons.push_back({code, std::move(message), NcclVerdict::Refuse});
  }
  void ranks_of_factor_only();
  void keep_one_series();
  void drop_damaged();

  const NcclLog& log_;
  const NcclStatements& statements_;
  NcclSweep* sweep_;
  NcclTable& table_;
};

/// Refuses one collective's times under the name of another.
void Judge::check_op() {
  const std::string& named = table_.collective;
  if (table_.rows.empty()) {
    return;
  }
  if (sweep_->op.empty()) {
    refuse_always("op_unknown",
                  "the log does not name its collective, and its rows may be those of all_gather, "
                  "all_to_all, sendrecv, gather or scatter; say it with --op NAME");
  } else if (!named.empty() && named != sweep_->op && is_own_program(named)) {
    refuse_always("op_disagrees",
                  fmt::format("the log is of {0}, but --op says {1}; leave out --op, or import a "
                              "log of {1}_perf",
                              printable(named),
                              sweep_->op));
  } else if (std::ranges::count(collective_kind_names(), sweep_->op) == 0) {
    warn("no_place",
         fmt::format("a profile has no place for {}; it is left out{}",
                     printable(sweep_->op),
                     is_own_program(sweep_->op) ? "" : "; say what it is with --op NAME"));
  } else if (!rows_can_be(sweep_->op, table_)) {
    const NcclRow& row = table_.rows.back();
    refuse_always("op_disagrees",
                  fmt::format("{} by {}, but line {} is of another collective: redop {}, root {}, "
                              "{} bytes for {} elements; import a log of {}_perf",
                              printable(sweep_->op),
                              named.empty() ? "--op" : "the log's name of the test",
                              row.line,
                              printable(row.redop),
                              row.root.value_or(-1),
                              row.bytes,
                              row.count,
                              printable(sweep_->op)));
  }
}

void Judge::find_ranks() {
  const auto factor = bus_factor_of(table_.rows);
  if (factor) {
    sweep_->factor_ranks = ranks_of_factor(*factor, sweep_->op);
  }
  const auto listed = listed_ranks(table_);
  if (statements_.ranks) {
    sweep_->ranks = statements_.ranks;
    sweep_->ranks_from = "--ranks";
  } else if (table_.stated_ranks) {
    sweep_->ranks = table_.stated_ranks;
    sweep_->ranks_from = "JSON";
  } else if (listed) {
    sweep_->ranks = listed;
    sweep_->ranks_from = "rank lines";
    if (static_cast<int>(table_.ranks->size()) < *listed) {
      note("ranks_partly_listed",
           fmt::format("{} of {} rank lines are there", table_.ranks->size(), *listed));
    }
  } else {
    ranks_of_factor_only();
    return;
  }
  const bool agree = !sweep_->factor_ranks || sweep_->factor_ranks->holds(*sweep_->ranks) ||
                     (*sweep_->ranks == 1 && factor->hi <= 0.01);
  if (!agree) {
    const std::string text = fmt::format("{} ranks by {}, but busbw / algbw are those of {}",
                                         *sweep_->ranks,
                                         sweep_->ranks_from,
                                         text_of(*sweep_->factor_ranks));
    if (statements_.ranks) {
      warn("ranks_disagree", text);
    } else {
      refuse_always("ranks_disagree", text + "; say which with --ranks N");
    }
  }
}

void Judge::ranks_of_factor_only() {
  const auto& range = sweep_->factor_ranks;
  sweep_->ranks = range ? range->only() : std::nullopt;
  if (sweep_->ranks) {
    sweep_->ranks_from = "busbw / algbw";
    warn("ranks_from_factor",
         fmt::format("no rank lines: {} ranks by busbw / algbw alone", *sweep_->ranks));
    return;
  }
  if (!table_.rows.empty()) {
    refuse_always("ranks_unknown",
                  range
                      ? fmt::format("no rank lines, and busbw / algbw are those of {}; say it with "
                                    "--ranks N",
                                    text_of(*range))
                      : "no rank lines, and bandwidths too small to tell; say it with --ranks N");
  }
}

void Judge::find_nodes() {
  if (!sweep_->ranks) {
    return;
  }
  sweep_->nodes = statements_.nodes     ? statements_.nodes
                  : table_.stated_nodes ? table_.stated_nodes
                                        : listed_nodes(table_, *sweep_->ranks);
  if (!sweep_->nodes) {
    sweep_->nodes = (*sweep_->ranks - 1) / kUsualRanksPerNode + 1;
    sweep_->nodes_assumed = true;
    if (*sweep_->ranks > 1) {
      warn("nodes_assumed",
           fmt::format("the log does not say on how many nodes; taken as {} of up to {} ranks; say "
                       "it with --nodes N",
                       *sweep_->nodes,
                       kUsualRanksPerNode));
    }
  }
  if (*sweep_->nodes > *sweep_->ranks) {
    refuse_always("nodes_disagree",
                  fmt::format("{} ranks do not fill {} nodes", *sweep_->ranks, *sweep_->nodes));
  }
  if (shares_gpu(table_)) {
    warn("shared_gpu", "two ranks show the same bus id on one host: they share a GPU");
  }
}

/// Rows of one type and reduction: float sums where there are several.
void Judge::keep_one_series() {
  const auto is_other = [this](const NcclRow& row) {
    const NcclRow& first = sweep_->used.front();
    return row.type != first.type || row.redop != first.redop || row.root != first.root;
  };
  if (sweep_->used.empty() || std::ranges::none_of(sweep_->used, is_other)) {
    return;
  }
  const auto best = std::ranges::find_if(sweep_->used, [](const auto& row) {
    return row.type == "float" && (row.redop == "sum" || row.redop == "none");
  });
  const NcclRow kept = best == sweep_->used.end() ? sweep_->used.front() : *best;
  const std::size_t before = sweep_->used.size();
  std::erase_if(sweep_->used, [&kept](const NcclRow& row) {
    return row.type != kept.type || row.redop != kept.redop || row.root != kept.root;
  });
  warn("several_types",
       fmt::format("several types, reductions or roots: only the {} rows of {} {} are used of {}",
                   sweep_->used.size(),
                   kept.type,
                   kept.redop,
                   before));
}

void Judge::drop_damaged() {
  const std::size_t before = sweep_->used.size();
  std::string first;
  std::erase_if(sweep_->used, [&first](const NcclRow& row) {
    for (const auto& block : {row.out_of_place, row.in_place}) {
      if (block && !agrees(row, *block)) {
        if (first.empty()) {
          first = fmt::format("line {}: {} bytes in {} us are not {} GB/s",
                              row.line,
                              row.bytes,
                              block->time_us.value,
                              block->algbw.value);
        }
        return true;
      }
    }
    return false;
  });
  const std::size_t damaged = before - sweep_->used.size();
  if (damaged == 0) {
    return;
  }
  const std::string text = fmt::format(
      "{} of {} rows do not agree with their own bandwidth and "
      "are left out; the first, {}",
      damaged,
      before,
      first);
  if (static_cast<double>(damaged) > kMaxDamaged * static_cast<double>(before)) {
    refuse("damaged_rows", text);
  } else {
    warn("damaged_rows", text);
  }
}

void Judge::choose_rows() {
  for (const NcclRow& row : table_.rows) {
    if (row.bytes > 0 && row_seconds(row) > 0 && std::isfinite(row_seconds(row))) {
      sweep_->used.push_back(row);
    }
  }
  const std::size_t zero = table_.rows.size() - sweep_->used.size();
  if (zero > 0) {
    note("size_zero_row", fmt::format("{} rows of size or time 0 are left out", zero));
  }
  keep_one_series();
  drop_damaged();
}

/// Refuses the rows of two jobs that wrote to one file: their times would be averaged.
void Judge::check_order() {
  const auto cycles = cycles_of(sweep_->used);
  if (table_.ranks_repeated) {
    refuse("repeated_ranks",
           "a rank is listed twice before the table: two jobs wrote to this file at once; keep "
           "one job's lines, or, for one job on several nodes, run nccl-tests built with MPI=1");
  }
  if (!cycles || (*cycles > 1 && table_.header_repeated)) {
    const auto earlier = std::ranges::adjacent_find(
        sweep_->used, [](const auto& a, const auto& b) { return b.bytes <= a.bytes; });
    refuse("repeated_sizes",
           fmt::format("the sizes do not ascend: line {} has {} after {}; two jobs wrote to this "
                       "file at once, or rows were put together by hand; keep one job's lines",
                       std::next(earlier)->line,
                       size_text(std::next(earlier)->bytes),
                       size_text(earlier->bytes)));
  } else if (*cycles > 1) {
    note("cycles", fmt::format("the sweep is there {} times; each size takes the mean", *cycles));
  }
}

void Judge::check_sizes() {
  std::set<std::int64_t> sizes;
  for (const NcclRow& row : sweep_->used) {
    sizes.insert(row.bytes);
  }
  if (table_.rows.empty()) {
    refuse_always("no_rows",
                  log_.failure.empty() ? std::string("no table rows")
                                       : "no table rows; the test reports: " + log_.failure);
    return;
  }
  if (sizes.size() < kFewestSizes) {
    refuse("too_few_sizes", fmt::format("{} sizes; at least {}", sizes.size(), kFewestSizes));
  } else if (sizes.size() < kFewSizes) {
    warn("few_sizes", fmt::format("only {} sizes", sizes.size()));
  }
  if (sizes.empty()) {
    return;
  }
  if (*sizes.begin() > kCheckMiB) {
    warn("starts_large",
         fmt::format("the smallest size is {}: nothing is known of small buckets",
                     size_text(*sizes.begin())));
  }
  if (*sizes.rbegin() < kCheckMiB) {
    refuse("ends_small",
           fmt::format("the largest size is {}: nothing is known of bandwidth",
                       size_text(*sizes.rbegin())));
  }
  constexpr std::int64_t kBandEnd = 128 * kCheckMiB;
  constexpr std::int64_t kWidest = 4;
  for (auto it = std::next(sizes.begin()); it != sizes.end(); ++it) {
    if ((*it - 1) / kWidest >= *std::prev(it) && *it > kCheckMiB && *std::prev(it) < kBandEnd) {
      warn("wide_steps",
           fmt::format("nothing between {} and {}", size_text(*std::prev(it)), size_text(*it)));
    }
  }
}

void Judge::check_values() {
  int wrong = 0;
  int without = 0;
  for (NcclRow& row : table_.rows) {
    for (auto* block : {&row.out_of_place, &row.in_place}) {
      if (!*block) {
        continue;
      }
      const double check = (*block)->check.value_or(0);
      const bool is_count = table_.check_column == "#wrong" || check >= 1;
      wrong += is_count && check > 0 && table_.check_column != "error" ? 1 : 0;
      without += (*block)->check || (*block)->check_unreadable ? 0 : 1;
    }
  }
  if (wrong > 0) {
    refuse("wrong_values", fmt::format("{} blocks have wrong results", wrong));
  }
  if (table_.footer_failed) {
    refuse("failed_footer",
           fmt::format("the footer says FAILED ({} checks)", table_.out_of_bounds.value_or(0)));
  }
  if (without > 0) {
    warn("not_validated", fmt::format("{} blocks were not validated (N/A)", without));
  }
  if (sweep_->ranks == 1) {
    refuse_always("single_rank", "one rank: nothing was communicated");
  }
  if (table_.cpu_time) {
    refuse_always("cpu_time", "CPU times of launching (-C), not times of the collective");
  }
}

void Judge::check_form() {
  if (!table_.has_header && !table_.rows.empty()) {
    warn("no_header", "no column header: the columns are those of the number of words in a row");
  }
  if (!log_.forced.empty()) {
    warn("forced_algorithm", log_.forced + " was forced");
  }
  if (!log_.failure.empty() && !table_.rows.empty()) {
    warn("run_failed", "the test reports: " + log_.failure);
  }
  if (log_.prefixes) {
    note("prefix", "labels of a launcher were removed");
  }
  if (log_.prefixes_inside) {
    note("midline_prefix", "labels of a launcher were removed inside rows");
  }
  if (log_.interleaved) {
    note("interleaved_log", "NCCL's own lines stand inside the table");
  }
  if (std::ranges::any_of(table_.rows, [](const auto& row) { return row.bytes_half_unit > 0; })) {
    note("rounded_sizes", "sizes were printed with an exponent, rounded");
  }
  if (table_.has_header && !table_.has_root) {
    note("old_format", "no root column");
  }
  if (table_.milliseconds) {
    note("time_in_ms", "times were printed in milliseconds");
  }
  if (!sweep_->used.empty() && sweep_->used.front().type != "float") {
    const std::string& type = sweep_->used.front().type;
    warn("type_" + type, fmt::format("elements of type {}, not float", type));
  }
  if (table_.incomplete_rows > 0) {
    warn("incomplete_rows",
         fmt::format("{} rows are cut off or damaged, and left out", table_.incomplete_rows));
  }
  double sum = 0;
  int blocks = 0;
  for (const NcclRow& row : table_.rows) {
    for (const auto& block : {row.out_of_place, row.in_place}) {
      sum += block ? block->busbw.value : 0;
      blocks += block ? 1 : 0;
    }
  }
  const bool average_differs = blocks > 0 && table_.avg_busbw &&
                               std::abs(sum / blocks - table_.avg_busbw->value) > kAverageDigits;
  if (table_.rows_elided || table_.stray_fragments > 0 || average_differs) {
    warn("rows_elided",
         average_differs
             ? fmt::format("rows are missing: the footer's average is {}, that of the rows {:.3f}",
                           table_.avg_busbw->value,
                           sum / blocks)
             : "rows are missing");
  }
  if (!table_.avg_busbw && table_.has_header && blocks > 0) {
    warn("no_footer", "no average at the end: the log may be cut off");
  }
}

void Judge::measure() {
  std::vector<double> differences;
  std::vector<std::string> faster;
  const NcclBlock* before = nullptr;
  for (const NcclRow& row : sweep_->used) {
    for (const auto& block : {row.out_of_place, row.in_place}) {
      if (block && block->busbw.value > sweep_->peak_busbw) {
        sweep_->peak_busbw = block->busbw.value;
        sweep_->peak_bytes = row.bytes;
      }
    }
    if (row.out_of_place && row.in_place && row.in_place->time_us.value > 0) {
      differences.push_back(
          std::abs(row.out_of_place->time_us.value / row.in_place->time_us.value - 1));
    }
    if (!row.out_of_place) {
      continue;
    }
    if (before != nullptr && row.out_of_place->time_us.value < kFaster * before->time_us.value) {
      faster.push_back(size_text(row.bytes));
    }
    before = &*row.out_of_place;
  }
  if (!differences.empty()) {
    sweep_->block_difference = median(differences);
    if (*sweep_->block_difference > kNoisyRows) {
      warn("noisy",
           fmt::format("out-of-place and in-place differ by {:.0f} % in the median",
                       *sweep_->block_difference * 100));
    }
  }
  if (!faster.empty()) {
    note("nonmonotone",
         fmt::format("{} sizes are faster than the one before, the first {}",
                     faster.size(),
                     faster.front()));
  }
}

}  // namespace

std::string_view name_of(NcclVerdict verdict) {
  return verdict == NcclVerdict::Accept ? "accept"
         : verdict == NcclVerdict::Warn ? "warn"
                                        : "refuse";
}

NcclVerdict NcclSweep::verdict() const {
  NcclVerdict worst = max_of(reasons, &NcclReason::weight, NcclVerdict::Accept);
  return worst;
}

NcclSweep check_table(const NcclLog& log, NcclTable table, const NcclStatements& statements) {
  NcclSweep sweep;
  sweep.table = std::move(table);
  if (sweep.table.out_of_bounds == 0) {
    // Checks glued to other output: the footer says that none failed.
    for (NcclRow& row : sweep.table.rows) {
      for (auto* block : {&row.out_of_place, &row.in_place}) {
        if (*block && (*block)->check_unreadable) {
          (*block)->check = 0;
        }
      }
    }
  }
  sweep.op = statements.op.empty() ? collective_of(sweep.table) : statements.op;
  Judge judge(log, statements, &sweep);
  judge.check_op();
  judge.find_ranks();
  judge.find_nodes();
  judge.choose_rows();
  judge.check_order();
  judge.check_sizes();
  judge.check_values();
  judge.check_form();
  judge.measure();
  return sweep;
}

}  // namespace stepsim
