// Are profiler traces read as they were recorded, and damaged ones refused?
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_report.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/base/input_error.h"
#include "tests/calibrate/import/kineto_text.h"

namespace stepsim {
namespace {

using test::kernel;
using test::launch;
using test::row;
using test::trace_text;
using test::write_file;

KinetoTrace read_text_trace(const std::string& text) {
  return read_kineto(write_file("trace.json", text));
}

constexpr const char* kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)";

std::string sizes(const std::string& elements, const std::string& dtype) {
  return fmt::format(
      R"(,"Collective name":"allreduce","In msg nelems":{},"dtype":"{}")", elements, dtype);
}

/// A rank of two with one all-reduce of 4000 bytes: [start, end) in microseconds.
std::string rank_text(int rank, int start, int end, const std::string& elements = "1000") {
  return trace_text({row("user_annotation", "ProfilerStep#3", "0", "1000"),
                     launch(1, "10"),
                     kernel(kAllReduce,
                            1,
                            std::to_string(start),
                            std::to_string(end - start),
                            sizes(elements, "Float"))},
                    fmt::format(R"("distributedInfo":{{"rank":{},"world_size":2}},)", rank));
}

std::vector<KinetoTrace> two_ranks(const std::string& first, const std::string& second) {
  return {read_kineto(write_file("0.json", first)), read_kineto(write_file("1.json", second))};
}

}  // namespace

TEST_CASE("times keep their nanoseconds, with a base time and as Unix time") {
  const KinetoTrace fresh = read_text_trace(
      trace_text({row("user_annotation", "ProfilerStep#4", "4458676416788.066", "1.5")},
                 R"("baseTimeNanoseconds":1711964646000000000,)"));
  REQUIRE(fresh.steps.size() == 1);
  CHECK(fresh.steps[0].number == 4);
  CHECK(fresh.steps[0].span.start_ns == 1711964646000000000 + 4458676416788066);
  CHECK(fresh.steps[0].span.duration_ns == 1500);
  CHECK(fresh.header.fractional_times);

  const KinetoTrace old =
      read_text_trace("[" + row("Operator", "ProfilerStep#4", "1694128201426674", "20") + "]");
  REQUIRE(old.steps.size() == 1);
  CHECK(old.steps[0].span.start_ns == 1694128201426674000);
  CHECK(!old.header.fractional_times);
}

TEST_CASE("the header may stand behind the events") {
  const std::string text =
      R"({"traceEvents":[],"distributedInfo":{"rank":3,"world_size":8,"backend":"nccl"},)"
      R"("INFO":["a","b"],"deviceProperties":[{"name":"V100"},{"name":"other"}]})";
  const KinetoTrace trace = read_text_trace(text);
  CHECK(trace.header.rank == 3);
  CHECK(trace.header.world_size == 8);
  CHECK(trace.header.device == "V100");
}

TEST_CASE("a GPU operation belongs to the step of its launch; without a launch it is left out") {
  const KinetoTrace trace =
      read_text_trace(trace_text({row("user_annotation", "ProfilerStep#1", "0", "100"),
                                  row("user_annotation", "ProfilerStep#2", "100", "100"),
                                  row("gpu_user_annotation", "ProfilerStep#1", "90", "100"),
                                  kernel("volta_sgemm_32x32_nt", 1, "150", "20"),
                                  kernel("volta_sgemm_32x32_nt", 9, "5", "2"),
                                  launch(1, "99.9")}));
  CHECK(trace.steps.size() == 2);
  REQUIRE(trace.ops.size() == 1);
  CHECK(trace.ops[0].step == 0);
  CHECK(trace.ops[0].kind == KinetoClass::Gemm);
  CHECK(trace.without_launch == 1);
}

TEST_CASE(
    "a collective's size: the kernel's own, else the call around its launch, else the record") {
  const std::string call = row("user_annotation",
                               "nccl:all_reduce",
                               "8",
                               "20",
                               R"("Input Dims":[[5,8],[9]],"Input type":["c10::Half","int"])");
  const std::string record =
      row("cpu_op",
          "record_param_comms",
          "7",
          "30",
          R"("Collective name":"allreduce","In msg nelems":11,"dtype":"Long")");
  const auto only = [](const std::vector<std::string>& rows) {
    const KinetoTrace trace = read_text_trace(trace_text(rows));
    REQUIRE(trace.collectives.size() == 1);
    return trace.collectives[0];
  };
  const std::string own = kernel(kAllReduce, 1, "30", "5", sizes("100", "BFloat16"));
  const std::string plain = kernel(kAllReduce, 1, "30", "5");
  CHECK(only({own, call, record, launch(1, "10")}).bytes == 200);
  CHECK(only({plain, call, record, launch(1, "10")}).bytes == 80);
  CHECK(only({plain, record, launch(1, "10")}).bytes == 88);
  CHECK(!only({plain, launch(1, "10")}).bytes);
  // Of another thread, or over before the launch: not the call.
  CHECK(!only({plain, call, launch(1, "10", 2)}).bytes);
  CHECK(!only({plain, call, launch(1, "28.001")}).bytes);
  CHECK(only({plain, call, launch(1, "28")}).bytes == 80);
  // RCCL and SendRecv hide the kind.
  CHECK(only({kernel("ncclDevKernel_Generic_4", 1, "30", "5"), record, launch(1, "10")}).kind ==
        "all_reduce");
}

TEST_CASE("a trace of PyTorch without Kineto has neither categories nor a header") {
  const KinetoTrace trace = read_text_trace(
      R"([{"name":"ProfilerStep#1","ph":"X","ts":136,"dur":3954,"tid":1,"pid":"CPU functions","args":{}},)"
      R"({"name":"DistributedDataParallel.forward","ph":"X","ts":249,"dur":688,"tid":1,"pid":"CPU functions"},)"
      R"({"name":"gloo:all_reduce","ph":"X","ts":1773,"dur":506,"tid":3,"pid":"CPU functions","args":{}}])");
  REQUIRE(trace.collectives.size() == 1);
  CHECK(trace.collectives[0].kind == "all_reduce");
  CHECK(trace.collectives[0].bucket);
  CHECK(trace.collectives[0].stream == -1);
  CHECK(trace.collectives[0].step == 0);
  CHECK(!trace.collectives[0].bytes);
  CHECK(!trace.collectives[0].ready_ns);
  CHECK(!trace.header.rank);
}

TEST_CASE("an unknown element type is an error with its name") {
  const std::string text =
      trace_text({launch(1, "1"), kernel(kAllReduce, 1, "3", "5", sizes("100", "Posit16"))});
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace(text), doctest::Contains("unknown element type 'Posit16'"), InputError);
}

TEST_CASE("names with quotes, N/A, bytes that are not UTF-8 and unknown escapes are read") {
  const std::string name =
      R"(void f<(char)44, \"x\">(int, \ud83d, \q))" + std::string("\xff\xc3\x28");
  const KinetoTrace trace =
      read_text_trace("{\"a\":N/A,\"b\":NaN,\"c\":-Infinity,\"traceEvents\":[" + launch(1, "1") +
                      "," + kernel(name, 1, "3", "5") + "]}");
  REQUIRE(trace.names.size() == 1);
  CHECK(trace.names[0] ==
        "void f<(char)44, \"x\">(int, ??????, /q)?"
        "?(");
  CHECK(trace.ops.size() == 1);
  CHECK(trace.header.repaired == 6);
  CHECK(trace.warnings.size() == 2);
}

TEST_CASE("valid UTF-8 is no damage") {
  const KinetoTrace trace =
      read_text_trace(trace_text({launch(1, "1"), kernel("f_\u00fc\u20ac", 1, "3", "5")}));
  CHECK(trace.header.repaired == 0);
}

TEST_CASE("times are read to the nanosecond, however they are written") {
  const auto start_ns = [](const std::string& start) {
    return read_text_trace(trace_text({launch(1, "0"), kernel("f", 1, start, "5")}))
        .ops.at(0)
        .span.start_ns;
  };
  CHECK(start_ns("7") == 7'000);
  CHECK(start_ns("7.25") == 7'250);
  CHECK(start_ns("7.123") == 7'123);
  CHECK(start_ns("7.1236") == 7'124);
  CHECK(start_ns("7.5e3") == 7'500'000);
  CHECK(start_ns("1764000000000000.123") == 1'764'000'000'000'000'123);
}

TEST_CASE("a string that ends where a chunk does is read to its end") {
  // Chunks have 256 KiB and are looked at but for their last 16 bytes.
  for (std::size_t size = (1U << 18U) - 24; size < (1U << 18U) + 8; ++size) {
    CAPTURE(size);
    const std::string before = "{\"a\":\"" + std::string(size, 'x') + "\",\"traceEvents\":[";
    const KinetoTrace trace =
        read_text_trace(before + launch(1, "1") + "," + kernel("f\xff", 1, "3", "5") + "]}");
    CHECK(trace.ops.size() == 1);
    CHECK(trace.names.at(0) == "f?");
    CHECK(trace.header.repaired == 1);
  }
}

TEST_CASE("events without a usable time are counted, and odd rows do no harm") {
  const KinetoTrace trace = read_text_trace(trace_text(
      {row("kernel", "f", "N/A", "5"),
       row("kernel", "f", "1", "-5"),
       row("kernel", "f", "1e300", "5"),
       "3",
       "[1,[2]]",
       "null",
       R"({"ph":"i","name":{"a":[1]},"args":7})",
       R"({"ph":"X","cat":"kernel","name":["f"],"ts":1,"dur":2,"args":{"correlation":{"a":1}}})"}));
  CHECK(trace.unusable == 3);
  CHECK(trace.without_launch == 1);
  CHECK(trace.events == 5);
}

TEST_CASE("every cut of a trace and every changed byte is an InputError or a result") {
  const std::string text = rank_text(0, 20, 50);
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS((void)read_text_trace(text.substr(0, size)), InputError);
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', '"', '\\', '{', ']', '9', '\xff'}) {
      CAPTURE(at);
      std::string changed = text;
      changed[at] = byte;
      try {
        (void)kineto_report(std::vector{read_text_trace(changed)}, {{}, {0}, {0}, {}, {}});
      } catch (const InputError&) {
        continue;
      }
    }
  }
}

TEST_CASE("a message names the file and the byte") {
  CHECK_THROWS_WITH_AS((void)read_text_trace(R"({"traceEvents":[{]})"),
                       doctest::Contains("trace.json: error: byte 17: "),
                       InputError);
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace("{}"), doctest::Contains("no list of events"), InputError);
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace("\x1f\x8b\x08\x01\x02"), doctest::Contains("gzip"), InputError);
  CHECK_THROWS_AS((void)read_text_trace(std::string(200, '[')), InputError);
  CHECK_THROWS_AS((void)read_kineto("/nonexistent/trace.json"), InputError);
}

TEST_CASE("a broken row is named, with what is known of programs that write it") {
  const auto with_row = [](const std::string& broken) {
    return R"({"traceEvents":[)" + launch(1, "0") + "," + broken + "]}";
  };
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace(with_row(
          R"row({"ph":"X","cat":"python_function","name":"_impl = make("ns", "IMPL")","ts":5,"dur":1
})row")),
      doctest::Contains("in the row with the category 'python_function' and the name '_impl = "
                        "make(': PyTorch 2.0 and 2.1 do not escape the quotes of such names; "
                        "record without with_stack=True"),
      InputError);
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace(with_row(R"({"ph":"X","name":"add","ts":5,"pid":"CPU", tid":0})")),
      doctest::Contains("write tid without its first quote"),
      InputError);
  CHECK_THROWS_WITH_AS((void)read_text_trace(with_row(R"({"name":"aten::add","ts":5 "dur":1})")),
                       doctest::Contains("and the name 'aten::add': take that row out"),
                       InputError);
}

TEST_CASE("a device whose launches are not read is refused by name") {
  for (const char* runtime : {"xpu_runtime", "mtia_runtime", "privateuse1_runtime"}) {
    CAPTURE(runtime);
    const std::string text = R"({"traceEvents":[)" +
                             row(runtime, "urEnqueueKernelLaunch", "0", "5", R"("correlation":1)") +
                             "," + kernel("gemm_kernel", 1, "10", "50") + "]}";
    CHECK_THROWS_WITH_AS(
        (void)read_text_trace(text),
        doctest::Contains(
            ("device rows launched by " + std::string(runtime) + " are not read").c_str()),
        InputError);
  }
}

TEST_CASE("what is left out has its true reason") {
  const auto with_rows = [](const std::vector<std::string>& rows) {
    return fmt::format(R"({{"traceEvents":[{}]}})", fmt::join(rows, ","));
  };
  const std::string xpu = row("xpu_runtime", "urEnqueue", "20", "5", R"("correlation":2)");
  const KinetoTrace mixed = read_text_trace(
      with_rows({launch(1, "0"), xpu, kernel("gemm", 1, "10", "5"), kernel("gemm", 2, "30", "5")}));
  REQUIRE(!mixed.warnings.empty());
  CHECK(mixed.warnings[0] ==
        "1 GPU operations have no launch that is read (those of xpu_runtime are not): left out");
  const KinetoTrace filtered = read_text_trace(with_rows({row("cpu_op", "aten::mm", "0", "5"),
                                                          kernel("gemm", 1, "10", "5"),
                                                          kernel("gemm", 2, "30", "5")}));
  REQUIRE(!filtered.warnings.empty());
  CHECK(filtered.warnings[0].starts_with("2 GPU operations, and no row of what launched them"));
  CHECK_THROWS_WITH_AS(
      (void)read_text_trace(
          with_rows({row("cpu_op", "aten::mm", "0", "5"),
                     row("async_npu", "MatMulV2", "10", "5", R"("stream":2,"correlation":1)")})),
      doctest::Contains("device rows of the category async_npu are not read"),
      InputError);
  // The host's annotations on the device's time line are no work.
  const std::string annotated =
      row("gpu_user_annotation", "ProfilerStep#1", "1", "5", R"("stream":7)");
  CHECK_NOTHROW((void)read_text_trace(with_rows({row("cpu_op", "aten::mm", "0", "5"), annotated})));
}

TEST_CASE("an empty trace is called empty, and not one without marks") {
  const std::string spans = row("Trace", "PyTorch Profiler (0)", "0", "5");
  for (const std::string& events : {std::string(), spans}) {
    const KinetoTrace trace = read_text_trace(R"({"traceEvents":[)" + events + "]}");
    REQUIRE(trace.warnings.size() == 1);
    CHECK(trace.warnings[0].starts_with("the trace is empty: it was exported when nothing"));
  }
  const KinetoTrace unmarked =
      read_text_trace(R"({"traceEvents":[)" + row("cpu_op", "aten::mm", "0", "5") + "]}");
  REQUIRE(unmarked.warnings.size() == 1);
  CHECK(unmarked.warnings[0].starts_with("no ProfilerStep"));
}

TEST_CASE("kernels of ROCm have their classes") {
  using enum KinetoClass;
  const std::vector<std::pair<KinetoClass, std::string>> names = {
      {Gemm, "Cijk_Ailk_Bljk_BBS_BH_Bias_AS_SAV_MT128x128x32_MI16x16x1"},
      {Gemm, "Cijk_Alik_Bljk_HHS_BH_MT64x64x16_MI32x32x8x1_SE_K1"},
      {Gemm, "void wvSplitK_hf_sml_<__half, 64, 2, 16, 8, 2, 1>"},
      {Convolution, "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex0_bt256x256x32"},
      {Convolution, "miopenSp3AsmConv_v30_3_1_gfx9_fp16_f3x2_stride1"},
      {Norm, "MIOpenBatchNormFwdTrainSpatial"},
      {Attention, "attn_fwd.kd"},
      {Attention, "bwd_kernel_dk_dv.kd"},
      {Attention, "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<…>>"},
      {Elementwise, "SubTensorOpWithScalar1d"},
      {Reduction, "void rocprim::detail::block_reduce_kernel<…>"},
  };
  for (const auto& one : names) {
    const auto& kind = one.first;
    const auto& name = one.second;
    CAPTURE(name);
    CHECK(name_of(class_of_kernel(name)) == name_of(kind));
  }
}

TEST_CASE("lists that are no events, and files that are no traces, are refused with the reason") {
  for (const char* list : {"[]", "[1,2]", R"([{"a":1}])", R"({"traceEvents":[{"step":1}]})"}) {
    CAPTURE(list);
    CHECK_THROWS_WITH_AS(
        (void)read_text_trace(list), doctest::Contains("no list of events"), InputError);
  }
  CHECK_NOTHROW((void)read_text_trace(R"({"traceEvents":[]})"));
  const std::string text = rank_text(0, 20, 50);
  const std::vector<std::pair<std::string, std::string>> said = {
      {text.substr(0, text.size() / 2), "it is cut short"},
      {text.substr(0, text.size() - 1), "it is cut short"},
      {text + text, "several traces in one file"},
      {"", "the file is empty"},
      {"<!DOCTYPE html><html>", "this is a web page (HTML)"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"},
      {std::string("\xff\xfe[\0]\0", 6), "this is UTF-16"},
  };
  for (const auto& one : said) {
    const auto& content = one.first;
    const auto& reason = one.second;
    CAPTURE(reason);
    CHECK_THROWS_WITH_AS(
        (void)read_text_trace(content), doctest::Contains(reason.c_str()), InputError);
  }
}

TEST_CASE("compute is per step only where there are steps") {
  std::string rows;
  for (int i = 0; i < 4; ++i) {
    rows += "," + launch(i, std::to_string(100 * i)) + "," +
            kernel("ampere_sgemm_128x64_nn", i, std::to_string(100 * i + 10), "50");
  }
  const auto report = [&](const std::string& marks) {
    const std::string text = R"({"traceEvents":[)" + launch(9, "900") + marks + rows + "]}";
    return kineto_report(std::vector{read_text_trace(text)}, {{}, {0}, {0}, {}, {}});
  };
  const std::string whole = report("");
  CHECK(whole.find("compute  ops     ms    share\ngemm     4.0  0.200") != std::string::npos);
  CHECK(whole.find("of the whole trace, a rank") != std::string::npos);
  CHECK(whole.find("give torch.profiler.profile a schedule") != std::string::npos);
  // Two steps, of the first three kernels: the fourth is in none.
  const std::string stepped = report("," + row("user_annotation", "ProfilerStep#5", "0", "150") +
                                     "," + row("user_annotation", "ProfilerStep#6", "150", "100"));
  CHECK(stepped.find(
            "compute  ops per step  ms per step    share\ngemm              1.5        0.075") !=
        std::string::npos);
  CHECK(stepped.find("per step and rank") != std::string::npos);
  CHECK(stepped.find("2 (5 .. 6)") != std::string::npos);
  const std::string one = report("," + row("user_annotation", "ProfilerStep#6", "0", "350"));
  CHECK(one.find("1 (6)") != std::string::npos);
}

//        10   20   30   40   50
// rank 0      |--------------|     arrives at 20, waits
// rank 1                |----|+2   arrives at 40: the transfer is 50 - 40
TEST_CASE("the transfer of a collective runs from the last arrival to the earliest end") {
  const auto traces = two_ranks(rank_text(0, 20, 50), rank_text(1, 40, 52));
  const KinetoMatches matches = match_collectives(traces);
  REQUIRE(matches.matches.size() == 1);
  const KinetoMatch& match = matches.matches[0];
  CHECK(match.transfer_ns == 10'000);
  CHECK(match.skew_ns == 20'000);
  CHECK(match.end_spread_ns == 2'000);
  CHECK(match.bytes == 4000);
  CHECK(match.step == 3);
  CHECK(match.complete);
  CHECK(matches.warnings.empty());
  CHECK(matches.unmatched.empty());
}

TEST_CASE("one rank of two gives an upper bound, and says so") {
  const std::vector<KinetoTrace> traces = {read_text_trace(rank_text(0, 20, 50))};
  const KinetoMatches matches = match_collectives(traces);
  REQUIRE(matches.matches.size() == 1);
  CHECK(!matches.matches[0].complete);
  CHECK(matches.matches[0].transfer_ns == 30'000);
  CHECK(kineto_report(traces, matches).find("<= 30.0") != std::string::npos);
}

TEST_CASE("ranks that part are named") {
  const KinetoMatches matches =
      match_collectives(two_ranks(rank_text(0, 20, 50), rank_text(1, 40, 52, "999")));
  CHECK(matches.matches.empty());
  REQUIRE(matches.unmatched.size() == 1);
  CHECK(matches.unmatched[0] ==
        "step 3: the ranks part at collective 0: rank 0 has all_reduce of 4000 bytes, rank 1 has "
        "all_reduce of 3996 bytes; left out from there on");
}

TEST_CASE("a clock that runs ahead is aligned by the ends") {
  const KinetoMatches matches =
      match_collectives(two_ranks(rank_text(0, 20, 50), rank_text(1, 740, 750)));
  CHECK(matches.shift_ns == std::vector<std::int64_t>{0, 700'000});
  REQUIRE(matches.matches.size() == 1);
  CHECK(matches.matches[0].transfer_ns == 10'000);
}

TEST_CASE("two traces of one rank are refused") {
  CHECK_THROWS_AS((void)match_collectives(two_ranks(rank_text(1, 20, 50), rank_text(1, 40, 52))),
                  InputError);
}

TEST_CASE("memory does not grow with events that are not kept") {
#ifdef __SANITIZE_ADDRESS__
  test::skip("the address sanitizer keeps freed memory");
  return;
#endif
  // Half of these rows are of a kind that is counted only; 30 MB of text.
  const std::string path = write_file("large.json", "");
  std::ofstream file(path, std::ios::binary);
  file << "{\"traceEvents\":[\n";
  const std::string filler = row("cpu_op", std::string(200, 'a'), "1", "2", R"("Ev Idx":1)");
  constexpr int kRows = 100'000;
  for (int i = 0; i < kRows; ++i) {
    file << filler << ",\n";
  }
  file << launch(1, "1") << "]}";
  file.close();
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kib();
  CHECK(read_kineto(path).events == kRows + 1);
  CHECK(peak_kib() - before < 8 * 1024);
}

}  // namespace stepsim
