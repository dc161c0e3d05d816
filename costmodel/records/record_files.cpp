#include "costmodel/records/record_files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/records/rank_clocks.h"

namespace stepsim {
namespace {

std::set<int> ranks_in(const RunRecord& record) {
  std::set<int> ranks;
  for (const StepRecord& step : record.steps) {
    ranks.insert(step.rank);
  }
  return ranks;
}

bool lacks_ranks(const RunRecord& record) {
  return static_cast<int>(ranks_in(record).size()) < record.world_size;
}

/// "run.rank3.jsonl" is a part of "run.jsonl".
std::string merged_name(const std::string& file) {
  constexpr std::string_view kRank = ".rank";
  constexpr std::string_view kSuffix = ".jsonl";
  const std::size_t begin = file.rfind(kRank);
  if (begin == std::string::npos || !file.ends_with(kSuffix)) {
    return file;
  }
  const std::size_t digits = begin + kRank.size();
  const std::size_t end = file.find_first_not_of("0123456789", digits);
  return end > digits && end + kSuffix.size() == file.size() ? file.substr(0, begin) + ".jsonl"
                                                             : file;
}

/// Ranks of one run open their files within an hour.
bool started_together(const RunRecord& a, const RunRecord& b) {
  constexpr std::int64_t kHour = 3600;
  const auto first = parse_utc(a.started_at);
  const auto second = parse_utc(b.started_at);
  return !first || !second || std::abs(*first - *second) <= kHour;
}

Json model_of(const RunRecord& record) {
  return record.training->contains("model") ? (*record.training)["model"] : Json();
}

void add_rank(const RecordFile& part, RecordFile& whole) {
  const RunRecord& from = part.record;
  RunRecord& to = whole.record;
  if (from.world_size != to.world_size || from.policy != to.policy) {
    throw InputError(SourcePlace{part.file},
                     "is of another run than {}: {} ranks with policy '{}' against {} with '{}'",
                     whole.file,
                     from.world_size,
                     printable(from.policy),
                     to.world_size,
                     printable(to.policy));
  }
  if (model_of(from) != model_of(to)) {
    throw InputError(SourcePlace{part.file}, "is of another model than {}", whole.file);
  }
  if (!started_together(from, to)) {
    throw InputError(SourcePlace{part.file},
                     "is of another run than {}: started at {}, that at {}",
                     whole.file,
                     printable(from.started_at),
                     printable(to.started_at));
  }
  if (from.host != to.host) {
    to.cores = 0;  // Those of one host.
  }
  const std::set<int> present = ranks_in(to);
  for (const int rank : ranks_in(from)) {
    if (present.contains(rank)) {
      throw InputError(SourcePlace{part.file}, "holds rank {}, as {} does", rank, whole.file);
    }
  }
  to.steps.insert(to.steps.end(), from.steps.begin(), from.steps.end());
  to.repeats = std::max(to.repeats, from.repeats);
}

/// Leaves out the steps that some rank did not finish, and sorts the others.
void keep_whole_steps(RecordFile& file, std::vector<std::string>* warnings) {
  RunRecord& record = file.record;
  const std::set<int> ranks = ranks_in(record);
  if (lacks_ranks(record)) {
    throw InputError(
        SourcePlace{file.file},
        "holds rank {} of {} ranks; give the files of all ranks with the names that the "
        "recorder gave them (NAME.rank0.jsonl, …), or NAME.jsonl, into which its "
        "close() merges them",
        fmt::join(ranks, ", "),
        record.world_size);
  }
  std::map<std::pair<int, int>, int> rows;
  for (const StepRecord& step : record.steps) {
    ++rows[{step.repeat, step.step}];
  }
  const std::size_t before = record.steps.size();
  std::erase_if(record.steps, [&](const StepRecord& step) {
    return rows.at({step.repeat, step.step}) < record.world_size;
  });
  if (record.steps.empty()) {
    throw InputError(SourcePlace{file.file}, "no step was finished by all ranks");
  }
  if (record.steps.size() < before && warnings != nullptr) {
    warnings->push_back(fmt::format("{}: left out {} rows of steps that not all ranks finished",
                                    file.file,
                                    before - record.steps.size()));
  }
  std::ranges::stable_sort(record.steps, {}, [](const StepRecord& step) {
    return std::tuple(step.repeat, step.step, step.rank);
  });
}

}  // namespace

std::vector<RecordFile> read_record_files(std::span<const std::string> paths,
                                          std::vector<std::string>* warnings) {
  std::vector<RecordFile> files;
  std::map<std::string, std::size_t> joined;  // The place in `files`, by merged name.
  for (const std::string& path : paths) {
    // "*.jsonl" also names the file that the recorder's close() made of the ranks' files.
    const std::string merged = merged_name(path);
    if (merged != path && std::ranges::find(paths, merged) != paths.end()) {
      continue;
    }
    RecordFile file{path, read_run_record(path, warnings)};
    if (file.record.steps.empty()) {
      throw InputError(SourcePlace{path}, "holds no steps");
    }
    if (!lacks_ranks(file.record)) {
      files.push_back(std::move(file));
      continue;
    }
    const auto [at, is_new] = joined.emplace(merged, files.size());
    if (is_new) {
      files.push_back(std::move(file));
    } else {
      add_rank(file, files[at->second]);
    }
  }
  std::vector<RecordFile> whole;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto group = std::ranges::find(joined, i, [](const auto& one) { return one.second; });
    if (group != joined.end()) {
      keep_whole_steps(files[i], warnings);
    }
    const double apart = align_rank_clocks(files[i].record);
    if (apart > 0 && warnings != nullptr) {
      warnings->push_back(fmt::format(
          "{}: its ranks' clocks are up to {:.3g} s apart (several hosts); its steps are laid over "
          "each other where their last all-reduces end",
          files[i].file,
          apart));
    }
    whole.push_back(std::move(files[i]));
  }
  return whole;
}

void check_gradients(const RecordFile& file, const TransformerConfig& model) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : parameters(model)) {
    if (parameter.sparse) {
      return;  // Sparse gradients are gathered: their bytes follow from the batch.
    }
    elements += parameter.elements();
  }
  std::int64_t reduced = 0;  // By the last step that fits no multiple.
  for (const StepRecord& step : file.record.steps) {
    std::int64_t bytes = 0;
    for (const BucketRecord& bucket : step.buckets) {
      bytes += bucket.bytes;
    }
    if (bytes == 0) {
      continue;
    }
    if (bytes % elements == 0) {
      return;
    }
    reduced = bytes;
  }
  if (reduced > 0) {
    throw InputError(SourcePlace{file.file},
                     "its buckets hold {} bytes of gradients a step, which cannot be those of the "
                     "{} parameters of model '{}'; was it recorded with another model?",
                     reduced,
                     elements,
                     printable(model.name));
  }
}

}  // namespace stepsim
