#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/nccl/printed_number.h"

namespace stepsim {

/// The out-of-place or in-place half of a row.
struct NcclBlock {
  PrintedNumber time_us;
  PrintedNumber algbw;  ///< GB/s, GB = 1e9.
  PrintedNumber busbw;
  /// What the check column says: a count of wrong elements, or an error magnitude in the old
  /// format. Absent: N/A, or it could not be separated from what was printed behind it.
  std::optional<double> check;
  bool check_unreadable = false;
};

/// One message size.
struct NcclRow {
  int line = 0;
  std::int64_t bytes = 0;
  double bytes_half_unit = 0;  ///< Half a unit of the last printed place of a rounded size.
  std::int64_t count = 0;
  std::string type;            ///< "float", …
  std::string redop = "none";  ///< "sum", …; "none" also where no redop was printed.
  std::optional<std::int64_t> root;
  std::optional<NcclBlock> out_of_place;
  std::optional<NcclBlock> in_place;
  std::string stamp;  ///< "2025-10-02 11:00:00" with -S.
};

/// A line "# Rank 3 Group 0 Pid 17 on host device 3 [0000:1b:00] NVIDIA …".
struct NcclRank {
  int rank = 0;
  int group = 0;
  std::string host;
  int device = 0;
  std::string bus_id;  ///< "0000:1b:00", or short: "0x1b".
  std::string name;    ///< The device's name.
};

/// The rows below one header, which may be missing, with what the log says about that run.
struct NcclTable {
  int line = 0;            ///< The line of the header, or of the first row.
  std::string collective;  ///< "all_reduce" when the log names it; else empty.
  std::string section;     ///< The text of the "### …" line above.
  bool has_header = false;
  bool has_root = false;
  bool milliseconds = false;
  bool cpu_time = false;
  int blocks = 2;            ///< How many the header or the rows have.
  std::string check_column;  ///< "#wrong", "error" or "res"; empty without a header.
  std::vector<NcclRow> rows;
  std::shared_ptr<const std::vector<NcclRank>> ranks;  ///< The listed ranks; may be null.
  std::optional<int> stated_ranks;            ///< In a JSON log: processes * threads * GPUs.
  std::optional<int> stated_nodes;            ///< In a JSON log: different host names.
  std::optional<PrintedNumber> avg_busbw;     ///< The average that the footer prints.
  std::optional<std::int64_t> out_of_bounds;  ///< Failed checks that the footer counts.
  bool footer_failed = false;
  bool rows_elided = false;
  bool ranks_elided = false;
  bool ranks_repeated = false;   ///< One listing has a rank twice: two jobs wrote to one file.
  bool header_repeated = false;  ///< Two headers without a row in between: likewise.
  int incomplete_rows = 0;       ///< Rows without an end, which are left out.
  int stray_fragments = 0;       ///< Ends of rows whose beginning is missing; they are left out.
};

/// Finds the collective in the name of a test program: "all_reduce" in "all_reduce_perf_mpi".
[[nodiscard]] std::string nccl_collective_name(std::string program);

/// Everything read from one file.
struct NcclLog {
  std::string file;
  std::vector<NcclTable> tables;
  std::string nccl_version;
  std::string tests_version;     ///< The version of nccl-tests.
  std::string date;              ///< When the log states it.
  std::string failure;           ///< The first line in which a test reports that it failed.
  std::string forced;            ///< "NCCL_ALGO=…" when the log shows it.
  bool prefixes = false;         ///< A launcher's labels were removed in front of rows,
  bool prefixes_inside = false;  ///< and inside rows.
  bool interleaved = false;      ///< NCCL's own lines stood inside the table.
  bool is_json = false;
  int unread_rows = 0;           ///< Lines that look like rows and were not read,
  std::string first_unread_row;  ///< and the first: "line 12: 1048576 …".
  std::string unknown_version;   ///< What is wrong with the version of a JSON log.
};

}  // namespace stepsim
