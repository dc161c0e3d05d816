#include <array>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "calibrate/import/kineto/kineto_program.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

std::string_view name_of(KinetoRowType type) {
  constexpr std::array<std::string_view, 6> kNames = {"cpu", "gpu", "d2h", "sync", "nccl", "end"};
  return kNames[static_cast<std::size_t>(type)];
}

/// Microseconds with no more decimals than there are: "-1.5".
std::string us(std::int64_t ns) {
  constexpr std::int64_t kMicrosecond = 1000;
  std::string text = fmt::format("{}{}", ns < 0 ? "-" : "", std::abs(ns) / kMicrosecond);
  if (const std::int64_t rest = std::abs(ns) % kMicrosecond; rest > 0) {
    text += fmt::format(".{:03}", rest);
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text;
}

std::string number_or_empty(std::int64_t value) {
  return value < 0 ? "" : std::to_string(value);
}

std::string rows_csv(const KinetoProgram& program) {
  std::string text =
      "rank,idx,gap_us,cpu_dur_us,type,stream,gpu_dur_us,waits_collective,collective,obs_ts_us,"
      "waits_row,held_us\n";
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const auto& rows = program.ranks[r].rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const KinetoRow& row = rows[i];
      fmt::format_to(std::back_inserter(text),
                     "{},{},{},{},{},{},{},{},{},{},{},{}\n",
                     r,
                     i,
                     us(row.gap_ns),
                     us(row.host_ns),
                     name_of(row.type),
                     number_or_empty(row.stream),
                     us(row.gpu_ns),
                     number_or_empty(row.awaited),
                     number_or_empty(row.collective),
                     row.recorded_ns ? us(*row.recorded_ns) : "",
                     number_or_empty(row.after),
                     row.held_ns > 0 ? us(row.held_ns) : "");
    }
  }
  return text;
}

std::string ranks_csv(const KinetoProgram& program) {
  std::string text = "rank,step_start_us,step_dur_us,trace_rank,cut\n";
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const KinetoProgramRank& rank = program.ranks[r];
    text += fmt::format("{},{},{},{},{}\n",
                        r,
                        us(rank.start_ns),
                        us(rank.duration_ns),
                        rank.rank,
                        rank.cut ? 1 : 0);
  }
  return text;
}

std::string definitions_csv(const KinetoProgram& program) {
  std::string text = "collective,op,bytes,producer_stream,fitted_D_us,upper_bound\n";
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    const KinetoProgramCollective& one = program.collectives[i];
    text += fmt::format("{},{},{},{},{},{}\n",
                        i,
                        one.kind,
                        number_or_empty(one.bytes.value_or(-1)),
                        number_or_empty(one.producer_stream),
                        us(one.transfer_ns),
                        one.upper_bound ? 1 : 0);
  }
  return text;
}

std::string kernels_csv(const KinetoProgram& program) {
  std::string text = "rank,idx,start_us,end_us\n";
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
      const KinetoSpan& span = program.collectives[i].recorded[r];
      text += fmt::format("{},{},{},{}\n", r, i, us(span.start_ns), us(span.end_ns()));
    }
  }
  return text;
}

}  // namespace

void write_kineto_program(const std::string& folder, const KinetoProgram& program) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make the folder {}: {}", printable(folder), error.message());
  }
  const std::filesystem::path path = folder;
  write_text_atomically((path / "ranks.csv").string(), ranks_csv(program));
  write_text_atomically((path / "collective_defs.csv").string(), definitions_csv(program));
  write_text_atomically((path / "collectives.csv").string(), kernels_csv(program));
  write_text_atomically((path / "program.csv").string(), rows_csv(program));
}

}  // namespace stepsim
