#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/nccl/nccl_report.h"
#include "calibrate/import/nccl/nccl_tests.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

const std::string kHeader =
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time"
    "   algbw   busbw  #wrong \n";
// 4 ranks: busbw = 1.5 algbw.
const std::string kRows =
    "     1048576        262144     float     sum      -1    50.00   20.97   31.46       0    50.00"
    "   20.97   31.46       0\n"
    "     2097152        524288     float     sum      -1   100.00   20.97   31.46       0   100.00"
    "   20.97   31.46       0\n"
    "     4194304       1048576     float     sum      -1   200.00   20.97   31.46       0   200.00"
    "   20.97   31.46       0\n"
    "     8388608       2097152     float     sum      -1   400.00   20.97   31.46       0   400.00"
    "   20.97   31.46       0\n";

NcclImport import_text(const std::string& text, const NcclStatements& statements = {}) {
  return import_nccl_text(text, "log", statements, std::nullopt);
}

bool has(const NcclImport& import, NcclVerdict weight, const std::string& code) {
  for (const std::string& reason : reasons_of(import, weight)) {
    if (reason.starts_with(code + ":")) {
      return true;
    }
  }
  return false;
}

/// The lines of a text, each with its end.
std::vector<std::string> log_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

}  // namespace

TEST_CASE("printed numbers know half a unit of their last place") {
  CHECK(parse_printed("1.25") == PrintedNumber{1.25, 0.5 * 1e-2});
  CHECK(parse_printed("12") == PrintedNumber{12, 0.5});
  CHECK(parse_printed("1.2e+07")->half_unit == Approx(0.05e7));
  CHECK(parse_printed("0.009", 3)->value == 9);
  for (const char* word : {"", "-", ".", "1.2.3", "1e", "nan", "0x10", "12:", "N/A", "1e999"}) {
    CAPTURE(word);
    CHECK_FALSE(parse_printed(word).has_value());
  }
}

TEST_CASE("NCCL 1 prints milliseconds, with or without # before the rows") {
  const std::string text =
      "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
      "busbw      res\n"
      "    20000000      20000000    char     sum    4.000   5.00   7.50    0e+00    4.000   5.00  "
      " "
      "7.50    0e+00\n"
      "#    20000000       5000000   float     sum    4.000   5.00   7.50       N/A    4.000   "
      "5.00 "
      "  7.50      N/A\n";
  const NcclImport import = import_text(text);
  REQUIRE(import.sweeps.size() == 1);
  const NcclTable& table = import.sweeps[0].table;
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].out_of_place->time_us.value == 4000);
  CHECK(table.rows[0].out_of_place->check == 0);
  CHECK_FALSE(table.rows[1].in_place->check.has_value());
  CHECK(import.sweeps[0].ranks == 4);
  CHECK(has(import, NcclVerdict::Warn, "several_types"));
}

TEST_CASE("an integer time is not a root: the header decides") {
  const std::string old =
      "#       size         count    type   redop     time   algbw   busbw  error     time   algbw "
      " "
      " busbw  error\n"
      "   268435456      67108864   float     sum    13233   20.29   38.04  5e-07    13430   19.99 "
      " "
      " 37.48  5e-07\n";
  const NcclSweep sweep = import_text(old).sweeps.at(0);
  REQUIRE(sweep.table.rows.size() == 1);
  CHECK(sweep.table.rows[0].out_of_place->time_us.value == 13233);
  CHECK(sweep.table.rows[0].in_place->busbw.value == 37.48);
  CHECK_FALSE(sweep.table.rows[0].root.has_value());
  CHECK(sweep.ranks == 16);
}

TEST_CASE("NCCL's own lines inside a row: root and check glued to a host name of digits") {
  // The row of the table is: 268435456 … -1 1185.50 … 0 1190.17 … 0
  const std::string text =
      kHeader +
      "   268435456      67108864     float     sum      -138host0:1001:1001 [0] NCCL INFO "
      "AllReduce: 268435456 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}\n"
      "38host0:1001:1001 [0] NCCL INFO AllReduce: 268435456 Bytes\n"
      "  1185.50  226.43  339.65       038host0:1001:1001 [0] NCCL INFO AllReduce\n"
      "  1190.17  225.54  338.32       0\n"
      "# Out of bounds values : 0 OK\n"
      "# Avg bus bandwidth    : 338.985\n";
  const NcclImport import = import_text(text);
  REQUIRE(import.sweeps.at(0).table.rows.size() == 1);
  const NcclRow& row = import.sweeps[0].table.rows[0];
  CHECK(row.root == -1);
  CHECK(row.out_of_place->time_us.value == 1185.50);
  CHECK(row.in_place->time_us.value == 1190.17);
  CHECK(row.out_of_place->check == 0);  // The footer says so.
  CHECK(import.sweeps[0].ranks == 4);
  CHECK_FALSE(has(import, NcclVerdict::Warn, "rows_elided"));
  const NcclImport unknown = import_text(test::replaced_all(text, "0 OK", "1 FAILED"));
  CHECK_FALSE(unknown.sweeps[0].table.rows[0].out_of_place->check.has_value());
  CHECK(has(unknown, NcclVerdict::Refuse, "failed_footer"));
}

TEST_CASE(
    "blocks: only one, the other blank, with columns of single iterations, with time stamps") {
  const std::string blank(32, ' ');
  const NcclSweep in_place =
      import_text(kHeader + "     1048576        262144     float     sum      -1" + blank +
                  "    50.00   20.97   31.46       0\n")
          .sweeps.at(0);
  REQUIRE(in_place.table.rows.size() == 1);
  CHECK_FALSE(in_place.table.rows[0].out_of_place.has_value());
  CHECK(in_place.table.rows[0].in_place->time_us.value == 50);
  const NcclSweep single =
      import_text(
          "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw "
          "busbw #wrong i_min i_max i_p99 i_cv% timestamp\n"
          "1048576 262144 float sum -1 50.00 20.97 31.46 0 49.0 52.0 51.9 1.2 51.00 20.56 30.84 0 "
          "49.0 52.0 51.9 1.2 2025-10-02 11:00:00\n")
          .sweeps.at(0);
  REQUIRE(single.table.rows.size() == 1);
  CHECK(single.table.rows[0].in_place->time_us.value == 51);
  CHECK(single.table.rows[0].stamp == "2025-10-02 11:00:00");
}

TEST_CASE("the CSV of rccl-tests") {
  const std::string text =
      ",,,,,out-of-place,out-of-place,out-of-place,out-of-place,in-place,in-place,in-place,in-place"
      ",,,,,,,,,,,,,,,,,,,\n"
      "size, count, type, redop, root, time, algbw, busbw, #wrong, time, algbw, busbw, #wrong, "
      "nthreads, ngpus, op, datatype, root\n"
      "(B), (elements),,,,(us),(GB/s),(GB/s),,(us),(GB/s),(GB/s),,,,,,\n"
      "1048576, 262144, float, sum, -1, 50.00, 20.971520, 36.700160, 0, 51.00, 20.560314, "
      "35.980549, 0,1,8,sum,float,0\n";
  const NcclSweep sweep = import_text(text).sweeps.at(0);
  REQUIRE(sweep.table.rows.size() == 1);
  CHECK(sweep.table.rows[0].root == -1);
  CHECK(sweep.table.rows[0].in_place->time_us.value == 51);
  CHECK(sweep.ranks == 8);
}

TEST_CASE("two jobs in one file are refused: sizes and ranks that come again") {
  const std::string job = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n";
  const std::string rank = "#  Rank  0 Group  0 Pid   1 on host0 device  0 [0000:01:00] NVIDIA X\n";
  const std::vector<std::string> lines = log_lines(kRows);
  std::string doubled;
  for (const std::string& line : lines) {
    doubled += line + line;
  }
  NcclStatements four;
  four.ranks = 4;
  CHECK(has(import_text(kHeader + doubled, four), NcclVerdict::Refuse, "repeated_sizes"));
  // One rank after the other, of two processes without MPI (NVIDIA/nccl-tests#107).
  const NcclImport listed = import_text(job + rank + rank + kHeader + kHeader + kRows, four);
  CHECK(has(listed, NcclVerdict::Refuse, "repeated_ranks"));
  // One job's rows after the other's, below both headers.
  const NcclImport blocks = import_text(job + job + kHeader + kHeader + kRows + kRows, four);
  CHECK(has(blocks, NcclVerdict::Refuse, "repeated_sizes"));
  CHECK(has(import_text(kHeader + lines[3] + lines[0] + lines[1] + lines[2], four),
            NcclVerdict::Refuse,
            "repeated_sizes"));
  four.accepted = {"repeated_sizes"};
  CHECK(import_text(kHeader + doubled, four).verdict() == NcclVerdict::Warn);
  // A job that failed, and its second attempt.
  const NcclImport again = import_text(job + rank + kHeader + "h: Test NCCL failure x.cu:44\n" +
                                       job + rank + kHeader + kRows);
  CHECK_FALSE(has(again, NcclVerdict::Refuse, "repeated_ranks"));
  CHECK_FALSE(has(again, NcclVerdict::Refuse, "repeated_sizes"));
}

TEST_CASE("a sweep that is printed several times (-N) is one job's") {
  const std::vector<std::string> lines = log_lines(kRows);
  const NcclImport cycles = import_text(kHeader + kRows + kRows + lines[0]);
  CHECK_FALSE(has(cycles, NcclVerdict::Refuse, "repeated_sizes"));
  CHECK(has(cycles, NcclVerdict::Accept, "cycles"));
  CHECK(cycles.sweeps.at(0).used.size() == 9);
}

TEST_CASE("before 2022 all-gather printed no redop, and broadcast only a root") {
  const std::string gather =
      "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw "
      " "
      "error\n"
      "     1048576         32768   float    50.00   20.97   18.35  0e+00    50.00   20.97   18.35"
      "  0e+00\n";
  NcclStatements statements;
  statements.op = "all_gather";
  for (const std::string& text : {gather, gather.substr(gather.find('\n') + 1)}) {
    CAPTURE(text);
    const NcclSweep sweep = import_text(text, statements).sweeps.at(0);
    REQUIRE(sweep.table.rows.size() == 1);
    CHECK(sweep.table.rows[0].redop == "none");
    CHECK(sweep.table.rows[0].in_place->busbw.value == 18.35);
    CHECK(sweep.ranks == 8);
  }
  const NcclSweep broadcast =
      import_text(
          "#       size         count    type    root     time   algbw   busbw  error\n"
          "     1048576        262144   float       0    50.00   20.97   20.97  0e+00\n")
          .sweeps.at(0);
  REQUIRE(broadcast.table.rows.size() == 1);
  CHECK(broadcast.op == "broadcast");
  CHECK(broadcast.table.rows[0].out_of_place->time_us.value == 50);
}

TEST_CASE("sizes and counts with an exponent are read, as far as they were printed") {
  const NcclImport import = import_text(
      kHeader +
      test::replaced_all(test::replaced_all(kRows, "8388608       2097152", "8.39e+06 2.1e+6"),
                         "4194304       1048576",
                         "4194304 1.05e+06"));
  const NcclSweep& sweep = import.sweeps.at(0);
  REQUIRE(sweep.used.size() == 4);
  CHECK(sweep.used[3].bytes == 8'390'000);
  CHECK(sweep.used[3].bytes_half_unit == 5000);
  CHECK(sweep.used[2].count == 1'050'000);
  CHECK(has(import, NcclVerdict::Accept, "rounded_sizes"));
  // 8.39e+06 bytes may be 8,388,608, but not in half the time.
  const NcclImport wrong = import_text(test::replaced_all(
      kHeader + test::replaced_all(kRows, "8388608       2097152", "8.39e+06 2.1e+6"),
      "400.00",
      "200.00"));
  CHECK(has(wrong, NcclVerdict::Refuse, "damaged_rows"));
}

TEST_CASE("lines that look like rows and cannot be read are counted and shown") {
  const NcclImport import = import_text(
      kHeader + kRows +
      "    16777216       4194304  float4x2     sum      -1   800.00   20.97   31.46       0\n"
      "    16777216       4194304   800.00   20.97   31.46       0\n"
      "# Avg bus bandwidth    : 31.46\n");
  CHECK(reasons_of(import, NcclVerdict::Warn).front() ==
        "unread_rows: 2 lines look like rows of a table and could not be read; the first, line 6: "
        "16777216 4194304 float4x2 sum -1 800.00 20.97 31.46 0");
  CHECK(import.sweeps.at(0).used.size() == 4);
  // Nothing else in a usual log looks like one.
  const std::string usual =
      "# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 "
      "agg iters: 1 validation: 1 graph: 0\n";
  CHECK_FALSE(has(import_text(usual + kHeader + kRows), NcclVerdict::Warn, "unread_rows"));
}

TEST_CASE("runs are never merged; one can be chosen") {
  const std::string two =
      "### GPUS=4\n" + kHeader + kRows + "# Avg bus bandwidth : 31.46\n### again\n" + kRows;
  const NcclImport import = import_text(two);
  CHECK(import.sweeps.size() == 2);
  CHECK(has(import, NcclVerdict::Refuse, "multi_run"));
  CHECK(nccl_json(import)["ranks"].is_null());
  const NcclImport second = import_nccl_text(two, "log", {}, 2);
  CHECK(second.verdict() == NcclVerdict::Warn);
  CHECK(second.sweeps.at(0).table.section == "again");
  CHECK_THROWS_WITH_AS(static_cast<void>(import_nccl_text(two, "log", {}, 3)),
                       "log: error: --run 3: it has 2 runs",
                       InputError);
}

TEST_CASE("ranks that contradict each other are refused until the user says which") {
  std::string text = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n";
  for (int rank = 0; rank < 8; ++rank) {
    text += "#  Rank  " + std::to_string(rank) + " Group  0 Pid   1 on host0 device  " +
            std::to_string(rank) + " [0000:0" + std::to_string(rank) + ":00] NVIDIA X\n";
  }
  const NcclImport import = import_text(text + kHeader + kRows);
  CHECK(import.sweeps.at(0).ranks == 8);
  CHECK(has(import, NcclVerdict::Refuse, "ranks_disagree"));
  NcclStatements statements;
  statements.ranks = 4;
  const NcclImport stated = import_text(text + kHeader + kRows, statements);
  CHECK(stated.sweeps.at(0).ranks == 4);
  CHECK(stated.verdict() == NcclVerdict::Warn);
}

TEST_CASE("a row that its own bandwidth contradicts is left out; many make a damaged log") {
  const NcclImport import =
      import_text(kHeader + test::replaced_all(kRows, "   400.00   20.97", "   500.00   20.97"));
  CHECK(import.sweeps.at(0).used.size() == 3);
  CHECK(has(import, NcclVerdict::Refuse, "damaged_rows"));
  CHECK(has(import, NcclVerdict::Refuse, "too_few_sizes"));
}

TEST_CASE("missing rows show in the footer's average") {
  const NcclImport whole = import_text(kHeader + kRows + "# Avg bus bandwidth : 31.46\n");
  CHECK_FALSE(has(whole, NcclVerdict::Warn, "rows_elided"));
  const NcclImport cut = import_text(kHeader + kRows + "# Avg bus bandwidth : 30.1\n");
  CHECK(has(cut, NcclVerdict::Warn, "rows_elided"));
}

TEST_CASE("a log that ends inside a row keeps the whole rows and says so") {
  const std::string whole = kHeader + kRows;
  const NcclImport import = import_text(whole.substr(0, whole.size() - 20));
  CHECK(import.sweeps.at(0).table.rows.size() == 3);
  CHECK(has(import, NcclVerdict::Warn, "incomplete_rows"));
  CHECK(has(import, NcclVerdict::Warn, "no_footer"));
}

TEST_CASE("wrong results and CPU times are refused; wrong ones can be accepted") {
  const std::string wrong =
      kHeader + test::replaced_all(kRows, "31.46       0\n", "31.46       7\n");
  CHECK(has(import_text(wrong), NcclVerdict::Refuse, "wrong_values"));
  NcclStatements statements;
  statements.accepted = {"wrong_values"};
  CHECK(import_text(wrong, statements).verdict() == NcclVerdict::Warn);
  const NcclImport cpu = import_text(test::replaced_all(kHeader, "   time", "cputime") + kRows);
  CHECK(has(cpu, NcclVerdict::Refuse, "cpu_time"));
}

TEST_CASE("other collectives: by name, by root, by count, or asked for") {
  // All-gather of 8 ranks: busbw = 7/8 algbw.
  const std::string gather =
      "     1048576         32768     float    none      -1    50.00   20.97   18.35       0    "
      "50.00"
      "   20.97   18.35       0\n";
  const std::string named = "# Collective test starting: all_gather_perf_mpi\n" + kHeader + gather;
  CHECK(import_text(named).sweeps.at(0).op == "all_gather");
  CHECK(import_text(named).sweeps.at(0).ranks == 8);
  CHECK(has(import_text(kHeader + gather), NcclVerdict::Refuse, "op_unknown"));
  NcclStatements statements;
  statements.op = "all_to_all";
  CHECK(import_text(kHeader + gather, statements).sweeps.at(0).ranks == 8);
  const NcclImport scatter = import_text(kHeader + test::replaced_all(gather, "none", " sum"));
  CHECK(scatter.sweeps.at(0).op == "reduce_scatter");
  const NcclImport broadcast = import_text(
      kHeader + test::replaced_all(
                    test::replaced_all(kRows, " sum      -1", "none       0"), "31.46", "20.97"));
  CHECK(broadcast.sweeps.at(0).op == "broadcast");
  CHECK(has(broadcast, NcclVerdict::Refuse, "ranks_unknown"));
}

TEST_CASE("one collective's rows under another's name are refused") {
  const std::string gather = test::replaced_all(kRows, " sum", "none");
  NcclStatements as_all_reduce;
  as_all_reduce.op = "all_reduce";
  const std::string named = "# Collective test starting: all_gather_perf\n" + kHeader + gather;
  const NcclImport overruled = import_text(named, as_all_reduce);
  CHECK(reasons_of(overruled, NcclVerdict::Refuse) ==
        std::vector<std::string>{"op_disagrees: the log is of all_gather, but --op says "
                                 "all_reduce; leave out --op, or import a log of all_reduce_perf"});
  const NcclImport unnamed = import_text(kHeader + gather, as_all_reduce);
  CHECK(reasons_of(unnamed, NcclVerdict::Refuse) ==
        std::vector<std::string>{"op_disagrees: all_reduce by --op, but line 5 is of another "
                                 "collective: redop none, root -1, 8388608 bytes for 2097152 "
                                 "elements; import a log of all_reduce_perf"});
  const std::string as_reduce = "# Collective test starting: all_reduce_perf\n" + kHeader;
  CHECK(has(import_text(as_reduce + gather), NcclVerdict::Refuse, "op_disagrees"));
  const std::string rooted = test::replaced_all(kRows, "sum      -1", "sum       0");
  CHECK(has(import_text(as_reduce + rooted), NcclVerdict::Refuse, "op_disagrees"));
  CHECK_FALSE(has(import_text(as_reduce + kRows), NcclVerdict::Refuse, "op_disagrees"));
  CHECK_FALSE(
      has(import_text(kHeader + kRows, as_all_reduce), NcclVerdict::Refuse, "op_disagrees"));
}

TEST_CASE("an older log is of the program that its command line names") {
  const std::string command = "$ mpirun -np 4 ./build/all_gather_perf -b 1M -e 8M -f 2\n" + kHeader;
  CHECK(import_text(command + test::replaced_all(kRows, " sum", "none")).sweeps.at(0).op ==
        "all_gather");
  CHECK(has(import_text(command + kRows), NcclVerdict::Refuse, "op_disagrees"));
  const std::string reduced = test::replaced_all(command, "all_gather", "all_reduce");
  CHECK(import_text(reduced + kRows).sweeps.at(0).op == "all_reduce");
}

TEST_CASE("a program without a place in a profile is named, and not taken for another") {
  const auto command = [](const std::string& program) {
    return "$ ./build/" + program + " -b 1M -e 8M -f 2 -g 8\n" + kHeader;
  };
  const auto left_out = [&](const std::string& program, const std::string& rows) {
    const std::vector<std::string> reasons =
        reasons_of(import_text(command(program) + rows), NcclVerdict::Warn);
    return reasons.empty() ? "" : reasons.front();
  };
  const std::string one_check = test::replaced_all(kRows, "31.46       0\n", "31.46     N/A\n");
  const std::string rooted = test::replaced_all(kRows, " sum      -1", "none       0");
  CHECK(left_out("sendrecv_perf", one_check) ==
        "no_place: a profile has no place for sendrecv; it is left out");
  CHECK(left_out("gather_perf", rooted) ==
        "no_place: a profile has no place for gather; it is left out");
  for (const char* program : {"scatter_perf", "hypercube_perf", "alltoallv_perf_mpi"}) {
    CAPTURE(program);
    CHECK(left_out(program, rooted).find("; it is left out") != std::string::npos);
  }
  CHECK(left_out("all_reduce_bias_perf", kRows) ==
        "no_place: a profile has no place for all_reduce_bias; it is left out; say what it is "
        "with --op NAME");
  // The user knows what a changed program measures.
  NcclStatements statements;
  statements.op = "all_reduce";
  CHECK(import_text(command("all_reduce_bias_perf") + kRows, statements).sweeps.at(0).ranks == 4);
  CHECK(has(import_text(command("sendrecv_perf") + kRows, statements),
            NcclVerdict::Refuse,
            "op_disagrees"));
  const std::string gather = test::replaced_all(kRows, " sum", "none");
  CHECK(import_text(command("nccl_alltoall_perf") + gather).sweeps.at(0).op == "all_to_all");
  CHECK(import_text(command("ib_write_perf") + kRows).sweeps.at(0).op == "all_reduce");
}

TEST_CASE("rows without a name that are of no all-reduce or broadcast are not taken for one") {
  const std::string one_check = test::replaced_all(kRows, "31.46       0\n", "31.46     N/A\n");
  CHECK(has(import_text(kHeader + one_check), NcclVerdict::Refuse, "op_unknown"));
  NcclStatements statements;
  statements.op = "all_reduce";
  CHECK(has(import_text(kHeader + one_check, statements), NcclVerdict::Refuse, "op_disagrees"));
  // Gather of 8 ranks: an eighth of the elements each, and busbw = 7/8 algbw.
  const std::string gather =
      "     1048576         32768     float    none       0    50.00   20.97   18.35       0    "
      "50.00   20.97   18.35       0\n";
  CHECK(has(import_text(kHeader + gather), NcclVerdict::Refuse, "op_unknown"));
}

TEST_CASE("files of other forms are refused by what they are") {
  const auto refusal = [](const std::string& text) {
    const std::vector<std::string> reasons = reasons_of(import_text(text), NcclVerdict::Refuse);
    return reasons.size() == 1 ? reasons.front() : "";
  };
  const std::string row =
      R"({"gpus":8,"inPlace":0,"name":"AllReduce","size":8192,"time":18.3,"algBw":0.44,"busBw":0.78})";
  for (const std::string& text :
       {row + "\n" + row + "\n",
        "[" + row + ",\n" + row + "]\n",
        std::string("numCycle,collective,gpus,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
                    "0,\"AllReduce\",8,8192,\"float\",\"sum\",0,18.36,0.45,0.78,\"0\"\n")}) {
    CAPTURE(text);
    CHECK(refusal(text).starts_with(
        "other_file: a file that rccl-tests wrote itself (-x FILE -Z csv or json), which is not "
        "read; import the table"));
  }
  CHECK(refusal("numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,"
                "algbw,busbw,#wrong\n0,\"AllReduce\",1,8,8,1,8192,\"float\",\"sum\",0,18.36,0.45,"
                "0.78,\"0\"\n")
            .find("lacks the column nodes") != std::string::npos);
  CHECK(refusal("size(B)    count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
                "1048576    524288    bf16    100.0    10.49    18.35\n")
            .find("nccom-test") != std::string::npos);
  for (const char* text : {"{}", "{\"config\":", "[{\"size\":8192,\"out_of_place\":{}}]"}) {
    CAPTURE(text);
    CHECK(refusal(text).starts_with(
        "other_file: no table of nccl-tests, but JSON of another form than the objects that"));
  }
  CHECK(refusal("\x1f\x8b\x08\x01") == "other_file: packed by gzip: unpack it (gunzip)");
}

TEST_CASE("bandwidths that fit no number of ranks are said to") {
  // 4 ranks send 3/4 of the bytes in an all-gather, not 1.5 times as many.
  const NcclImport import = import_text("# Collective test starting: all_gather_perf\n" + kHeader +
                                        test::replaced_all(kRows, " sum", "none"));
  CHECK(reasons_of(import, NcclVerdict::Refuse) ==
        std::vector<std::string>{"ranks_unknown: no rank lines, and busbw / algbw are those of no "
                                 "number of ranks; say it with --ranks N"});
}

TEST_CASE("one revision prints (n-1)/(n+1) where NCCL_ALGO names NVLS") {
  // n = 8: 7/9 of 20.97.
  const NcclImport import = import_text(kHeader + test::replaced_all(kRows, "31.46", "16.31"));
  CHECK(import.sweeps.at(0).op == "all_reduce");
  CHECK(import.sweeps.at(0).ranks == 8);
}

TEST_CASE("the JSON of nccl-tests: ranks are processes times GPUs, the environment stays out") {
  const std::string text = R"({
 "version": 3, "start_time": "2025-10-02 11:00:00", "args": ["/opt/build/all_reduce_perf", "-J"],
 "env": ["SECRET=1"], "nccl_version": "2.28.9",
 "config": {"nthreads": 1, "ngpus": 4, "graph": "false",
  "devices": [{"rank": 0, "group": 0, "pid": 7, "hostname": "a", "device": 0, "device_info": "X"},
              {"rank": 4, "group": 0, "pid": 8, "hostname": "b", "device": 0, "device_info": "X"}]},
 "results": [
  {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
   "out_of_place": null,
   "in_place": {"time": 50.0, "alg_bw": 20.97152, "bus_bw": 36.70016, "nwrong": null}}],
 "out_of_bounds": {"count": 0, "okay": "true"},
 "average_bus_bandwidth": {"bandwidth": 36.70016, "okay": "unchecked"}, "errors": []
})";
  const NcclImport import = import_text(text);
  REQUIRE(import.sweeps.size() == 1);
  CHECK(import.sweeps[0].ranks == 8);
  CHECK(import.sweeps[0].nodes == 2);
  CHECK(import.sweeps[0].op == "all_reduce");
  CHECK(import.sweeps[0].table.rows.at(0).root == -1);
  const std::string json = nccl_json(import).dump();
  CHECK(json.find("SECRET") == std::string::npos);
  CHECK(json.find("\"out_of_place_us\":null,\"in_place_us\":50.0") != std::string::npos);
  CHECK_THROWS_AS(import_text(text.substr(0, 700)), InputError);
  CHECK(has(import_text(test::replaced_all(text, "\"version\": 3", "\"version\": 4")),
            NcclVerdict::Warn,
            "unknown_version"));
}

TEST_CASE("texts without a table are refused, whatever they hold") {
  for (const std::string text : {"", "\n\n", "hello", "\xff\xfe\x00", "# # #"}) {
    CAPTURE(text);
    CHECK(has(import_text(text), NcclVerdict::Refuse, "no_rows"));
  }
  const NcclImport failed =
      import_text("h: Test NCCL failure all_reduce.cu:44 'unhandled'\n" + kHeader);
  CHECK(reasons_of(failed, NcclVerdict::Refuse).at(0) ==
        "no_rows: no table rows; the test reports: h: Test NCCL failure all_reduce.cu:44 "
        "'unhandled'");
}

TEST_CASE("damaged logs end in a result or an input error") {
  const std::string whole =
      "[1,0]<stdout>:# Rank 0 Pid 1 on a device 0 [0x1] X\n### a\n" + kHeader + kRows +
      "host:1:2 [0] NCCL INFO x\n# Avg bus bandwidth : 31.46\n" + "### b\n" + kRows;
  std::uint64_t state = 1;
  const auto random = [&state](std::size_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state >> 33U) % below;
  };
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    std::string text = whole.substr(0, round % 3 == 0 ? random(whole.size()) + 1 : whole.size());
    for (std::size_t flips = random(12); flips > 0; --flips) {
      text[random(text.size())] = static_cast<char>(random(256));
    }
    const NcclImport import = import_text(text);
    CHECK(nccl_json(import).contains("rows"));
  }
}

}  // namespace stepsim
