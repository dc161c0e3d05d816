#include "sim/report/trace/traces.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_simulator.h"
#include "sim/report/trace/chrome_trace.h"
#include "sim/report/trace/profiler_trace.h"

namespace stepsim {

namespace {

std::vector<int> all_of(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Plays the steps of a run and hands on those that a trace shows.
class TracePlayer {
 public:
  TracePlayer(const Scenario& scenario,
              const BatchingPolicy& policy,
              const Profile& profile,
              const TraceChoice& choice)
      : run_(scenario, policy, profile),
        steps_(choice.steps.empty() ? all_of(scenario.steps) : choice.steps),
        rows_(scenario.ranks, choice.by_part),
        memory_(run_.scenario().model, memory_options(run_.scenario())),
        source_{run_,
                policy.name(),
                choice.ranks.empty() ? all_of(scenario.ranks) : choice.ranks,
                run_.reduced().model().labels} {
    check_size(choice.by_part);
  }

  [[nodiscard]] const TraceSource& source() const { return source_; }
  [[nodiscard]] int steps() const { return static_cast<int>(steps_.size()); }

  void play(const std::function<void(const TraceStep&)>& use) {
    StepSimulator simulator(run_);
    for (int step = 0; step <= steps_.back(); ++step) {
      const StepTimeline timeline = simulator.next(true);
      rows_.take(timeline);
      if (std::ranges::binary_search(steps_, step)) {
        use({step, timeline, rows_, batches_of(step)});
      }
    }
  }

 private:
  void check_size(bool by_part) const {
    const DdpOptions& ddp = run_.scenario().ddp;
    constexpr std::int64_t kPerPart = 50;
    const std::int64_t per_rank =
        ddp.accumulation_steps *
        (by_part ? kPerPart : static_cast<std::int64_t>(run_.pricer().ops_per_micro_batch()));
    const auto ranks = static_cast<std::int64_t>(source_.ranks.size());
    const std::int64_t slices = per_rank * ranks * steps();
    if (slices > kMaxTraceSlices) {
      throw InputError(SourcePlace{run_.scenario().path},
                       "a trace of {} ranks x {} steps has about {:.0f} million slices, "
                       "and {} million "
                       "is the limit; choose fewer with --ranks 0..7 or --steps 0..9{}",
                       ranks,
                       steps(),
                       static_cast<double>(slices) / 1e6,
                       kMaxTraceSlices / 1'000'000,
                       by_part ? "" : ", or one slice a part with --parts");
    }
  }

  [[nodiscard]] std::vector<TraceBatch> batches_of(int step) const {
    const auto micro = static_cast<std::size_t>(run_.scenario().ddp.accumulation_steps);
    const auto ranks = static_cast<std::size_t>(run_.scenario().ranks);
    std::vector<TraceBatch> batches(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t first = (static_cast<std::size_t>(step) * ranks + rank) * micro;
      Bytes peak;
      for (std::size_t i = first; i < first + micro; ++i) {
        const BatchShape& shape = run_.batch(i).shape;
        batches[rank].useful_tokens += shape.useful_tokens;
        batches[rank].padded_tokens += run_.pricer().input_tokens(shape);
        peak = std::max(peak, memory_.at(shape).total());
      }
      batches[rank].peak_memory_mib = static_cast<double>(peak.value()) / 0x1p20;
    }
    return batches;
  }

  Run run_;
  std::vector<int> steps_;
  TraceRows rows_;
  PeakMemory memory_;
  TraceSource source_;
};

/// Readers take every trace of a folder for a rank of one run.
void refuse_others(const std::string& folder, const std::vector<std::filesystem::path>& ours) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool trace = name.find(".json") != std::string::npos;
    if (trace && std::ranges::find(ours, entry.path()) == ours.end()) {
      throw InputError(SourcePlace{folder},
                       "the folder holds {}, which would be read as a rank of this run; "
                       "remove it or choose another folder",
                       printable(name));
    }
  }
}

}  // namespace

std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceFiles write_chrome_trace(const Scenario& scenario,
                              const BatchingPolicy& policy,
                              const Profile& profile,
                              const TraceChoice& choice,
                              const std::string& path) {
  TracePlayer player(scenario, policy, profile, choice);
  GzipWriter file(path);
  ChromeTrace trace(player.source(), file);
  player.play([&](const TraceStep& step) { trace.add(step); });
  trace.finish();
  return {static_cast<int>(player.source().ranks.size()),
          player.steps(),
          file.text_bytes(),
          file.file_bytes(),
          0};
}

TraceFiles write_profiler_traces(const Scenario& scenario,
                                 const BatchingPolicy& policy,
                                 const Profile& profile,
                                 const TraceChoice& choice,
                                 const std::string& folder) {
  TracePlayer player(scenario, policy, profile, choice);
  const std::vector<int>& ranks = player.source().ranks;
  if (static_cast<int>(ranks.size()) > kMaxTraceFiles) {
    throw InputError(SourcePlace{scenario.path},
                     "one file a rank, for at most {} ranks, and there are {}; choose with --ranks "
                     "0..{}",
                     kMaxTraceFiles,
                     ranks.size(),
                     kMaxTraceFiles - 1);
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make folder {}: {}", printable(folder), error.message());
  }
  const std::vector<std::filesystem::path> paths = mapped(ranks, [&](const int rank) {
    return std::filesystem::path(folder) / fmt::format("rank{}.pt.trace.json.gz", rank);
  });
  refuse_others(folder, paths);
  std::vector<std::unique_ptr<ProfilerTrace>> traces;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    traces.push_back(std::make_unique<ProfilerTrace>(player.source(), ranks[i], paths[i].string()));
  }
  player.play([&](const TraceStep& step) {
    for (const auto& trace : traces) {
      trace->add(step);
    }
  });
  TraceFiles files = {static_cast<int>(ranks.size()), player.steps(), 0, 0, 0};
  for (const auto& trace : traces) {
    trace->finish();
    files.text_bytes += trace->file().text_bytes();
    files.file_bytes += trace->file().file_bytes();
    files.left_out += trace->left_out();
  }
  return files;
}

}  // namespace stepsim
