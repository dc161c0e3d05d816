#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// The types of rows in a program of CPU launches (scenarios/README.md, "Programs to replay").
enum class KinetoRowType : std::uint8_t { Cpu, Gpu, BlockingCopy, Sync, Collective, End };

/// One call of a rank's host, with times in nanoseconds.
struct KinetoRow {
  KinetoRowType type = KinetoRowType::Cpu;
  std::int64_t gap_ns = 0;   ///< Since the end of the call before; below 0 where threads overlap.
  std::int64_t host_ns = 0;  ///< Length of the call.
  std::int64_t gpu_ns = 0;   ///< Length of the work; a Collective's includes its wait.
  std::int64_t held_ns = 0;  ///< How long the work stood launched, for no reason that is known.
  std::int64_t stream = -1;  ///< -1 = none.
  int awaited = -1;          ///< The collective that this GPU work waits for; -1 = none.
  std::int64_t after =
      -1;               ///< The row of this rank on another stream that it waits for; -1 = none.
  int collective = -1;  ///< The number of a Collective.
  std::optional<std::int64_t> recorded_ns;  ///< The call's start on the program's clock.
};

struct KinetoProgramRank {
  int rank = 0;  ///< The trace's number; the program counts its ranks from 0.
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  bool cut = false;  ///< The trace lacks kernels of the step: it ended before they ran.
  std::vector<KinetoRow> rows;
};

/// A collective of all ranks of the program.
struct KinetoProgramCollective {
  std::string kind;
  std::optional<std::int64_t> bytes;
  int group_size = 0;                 ///< Ranks of the run that take part; 0 = not known.
  std::int64_t producer_stream = -1;  ///< It waits for this stream's work so far; -1 = none.
  std::int64_t transfer_ns = 0;       ///< Time from the last arrival to the end, 0 or more.
  bool upper_bound = true;            ///< The transfer is one: the match is not complete.
  std::vector<KinetoSpan> recorded;   ///< [rank] Its kernel, on the program's clock.
};

/// One step of all traced ranks. Its clock starts with the first of their steps.
struct KinetoProgram {
  std::int64_t step = 0;
  std::vector<KinetoProgramRank> ranks;
  std::vector<KinetoProgramCollective> collectives;  ///< In the order of launches.
  std::vector<std::string> notes;                    ///< What was inferred or left out.
};

/// Makes a program of one step: of `step`, or of the last one that all traces hold with all
/// kernels.
///
/// Calls of all threads of a rank form one sequence by start. What waits for what is taken from
/// rows of category cuda_sync, and inferred where there are none: a synchronising call waits for
/// the stream on which its thread launched last, unless the recording shows another one; a stream
/// that waits for an event outside of a collective's call waits for the oldest collective that was
/// made from it and not awaited yet, unless its next work began before that one ended; work that
/// was free to start and did so only as a collective ended waited for that one, and work that did
/// so as other work ended on another stream waited for that. Work that stood launched for no such
/// reason is held as long. Work launched before the step, or before the recording, that the GPU has
/// still to do stands first.
///
/// Raises InputError when the traces have no step in common, or not this one; when there is no GPU;
/// when ranks launch their collectives in different orders; and when a collective ends on one rank
/// well before it starts on another: these traces are not of one run.
[[nodiscard]] KinetoProgram make_kineto_program(std::span<const KinetoTrace> traces,
                                                const KinetoMatches& matches,
                                                std::optional<std::int64_t> step);

/// Replaces the recorded transfer times by a profile's where kind and size are known, with the
/// ranks of each collective's group on `nodes` nodes. The notes say where the times come from.
/// Raises InputError when the profile has no price.
void price_transfers(const Profile& profile, int nodes, KinetoProgram* program);

/// Writes program.csv, ranks.csv, collective_defs.csv and collectives.csv into the folder, which it
/// makes. Raises EnvironmentFault.
void write_kineto_program(const std::string& folder, const KinetoProgram& program);

}  // namespace stepsim
