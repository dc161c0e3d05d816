// Speed of replays: operations of a recorded pipeline job a second, lowered and played; reading the
// file is not counted. Goal, on one core of a server from 2020 or later, release build: at least 5
// million ops/s. For comparison: the tool of the recording's publisher replays 107 328 operations
// of this job in 13.0 ms, 8.3 million ops/s. A measurement quotes machine, compiler and command:
// build/tests/bench/replay_bench.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>

#include "costmodel/io/csv_table.h"
#include "sim/replay/pipeline_replay.h"
#include "tests/source_root.h"

namespace {

using namespace stepsim;

std::string recorded_job() {
  return (std::filesystem::path(test::data_folder()) / "traces" / "bytedance_SE" / "ops.csv.gz")
      .string();
}

void pipeline_replay(benchmark::State& state) {
  if (!std::filesystem::exists(recorded_job())) {
    state.SkipWithError(("no reference data at " + recorded_job()).c_str());
    return;
  }
  const PipelineTrace recording = read_pipeline_trace(CsvTable(recorded_job()));
  const PipelineReplayOptions options{state.range(0) == 0 ? SendMode::Blocking : SendMode::Buffered,
                                      false};
  for (auto _ : state) {
    benchmark::DoNotOptimize(replay(recording, options));
  }
  state.counters["ops/s"] = benchmark::Counter(static_cast<double>(recording.rows),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

BENCHMARK(pipeline_replay)->ArgName("buffered")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
