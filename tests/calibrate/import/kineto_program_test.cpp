// Does a trace become the program that its host ran?
#include "calibrate/import/kineto/kineto_program.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/base/input_error.h"
#include "tests/calibrate/import/kineto_text.h"

namespace stepsim {
namespace {

using test::kernel;
using test::row;

/// A trace that grows call by call; times in microseconds.
class Rank {
 public:
  explicit Rank(int rank = 0, int world_size = 1) {
    header_ = fmt::format(R"("distributedInfo":{{"rank":{},"world_size":{}}},)", rank, world_size);
  }
  Rank& step(int number, int start, int length) {
    rows_.push_back(row("user_annotation",
                        fmt::format("ProfilerStep#{}", number),
                        std::to_string(start),
                        std::to_string(length)));
    return *this;
  }
  Rank& call(const std::string& name, int start, int length, int thread = 1) {
    rows_.push_back(row("cuda_runtime",
                        name,
                        std::to_string(start),
                        std::to_string(length),
                        fmt::format(R"("correlation":{})", ++correlation_),
                        thread));
    return *this;
  }
  /// Work of the call before.
  Rank& work(int stream, int start, int length, const std::string& name = "gemm") {
    rows_.push_back(
        kernel(name, correlation_, std::to_string(start), std::to_string(length), "", stream));
    return *this;
  }
  /// Work whose launch was before the recording.
  Rank& earlier(int stream, int start, int length) {
    rows_.push_back(
        kernel("gemm", 9999, std::to_string(start), std::to_string(length), "", stream));
    return *this;
  }
  Rank& copy(int stream, int start, int length, const std::string& name) {
    rows_.push_back(row("gpu_memcpy",
                        name,
                        std::to_string(start),
                        std::to_string(length),
                        fmt::format(R"("stream":{},"correlation":{})", stream, correlation_)));
    return *this;
  }
  /// A launch that takes 2 us, and its kernel.
  Rank& launch(int at, int stream, int start, int length, int thread = 1) {
    return call("cudaLaunchKernel", at, 2, thread).work(stream, start, length);
  }
  /// The same of an all-reduce, inside its record.
  Rank& all_reduce(int at, int stream, int start, int length, int elements = 1000) {
    rows_.push_back(row("cpu_op", "record_param_comms", std::to_string(at - 4), "10"));
    call("cudaStreamWaitEvent", at - 3, 1).call("cudaLaunchKernel", at, 2);
    rows_.push_back(kernel("ncclDevKernel_AllReduce_Sum_f32",
                           correlation_,
                           std::to_string(start),
                           std::to_string(length),
                           fmt::format(R"(,"In msg nelems":{},"dtype":"Float")", elements),
                           stream));
    return *this;
  }
  [[nodiscard]] std::string text() const { return test::trace_text(rows_, header_); }
  [[nodiscard]] KinetoTrace read() const {
    return read_kineto(test::write_file("program.json", text()));
  }

 private:
  std::string header_;
  std::vector<std::string> rows_;
  int correlation_ = 0;
};

KinetoProgram program_of(const std::vector<KinetoTrace>& traces,
                         std::optional<std::int64_t> step = std::nullopt) {
  return make_kineto_program(traces, match_collectives(traces), step);
}

KinetoProgram program_of(const Rank& rank, std::optional<std::int64_t> step = std::nullopt) {
  return program_of(std::vector{rank.read()}, step);
}

/// "gap+host TYPE stream:gpu <awaited" of every row, in microseconds.
std::vector<std::string> texts_of(const KinetoProgram& program, std::size_t rank = 0) {
  constexpr const char* kTypes = "cgdsne";
  std::vector<std::string> texts;
  for (const KinetoRow& one : program.ranks[rank].rows) {
    std::string text = fmt::format(
        "{}+{} {}", one.gap_ns / 1000, one.host_ns / 1000, kTypes[static_cast<int>(one.type)]);
    text += one.stream < 0 ? "" : fmt::format(" {}:{}", one.stream, one.gpu_ns / 1000);
    text += one.awaited < 0 ? "" : fmt::format(" <{}", one.awaited);
    text += one.after < 0 ? "" : fmt::format(" after {}", one.after);
    texts.push_back(text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("calls of all threads stand in order of start with the gaps between them") {
  const KinetoProgram program = program_of(Rank()
                                               .step(3, 1000, 100)
                                               .call("cudaEventQuery", 1010, 4)
                                               .launch(1020, 7, 1030, 5)
                                               .launch(1021, 7, 1040, 5, 2)
                                               .call("cudaMalloc", 1050, 1)
                                               .call("cudaFree", 1050, 3));
  // Of one start the longest stands first, as the one that holds the other.
  CHECK(texts_of(program) ==
        Texts{"10+4 c", "6+2 g 7:5", "-1+2 g 7:5", "27+3 c", "-3+1 c", "49+0 e"});
  CHECK(program.step == 3);
  CHECK(program.ranks[0].rows[1].recorded_ns == 20'000);
}

/// Notes of a program that hold this text.
int notes_with(const KinetoProgram& program, const std::string& text) {
  return static_cast<int>(std::ranges::count_if(program.notes, [&](const std::string& note) {
    return note.find(text) != std::string::npos;
  }));
}

TEST_CASE("work that begins as other work ends on another stream waited for it") {
  const KinetoProgram program = program_of(Rank()
                                               .step(3, 0, 400)
                                               .launch(10, 7, 20, 200)
                                               .launch(14, 7, 220, 30)
                                               .launch(18, 8, 221, 20)    // After the first.
                                               .launch(300, 8, 308, 5));  // Free, and not held up.
  CHECK(texts_of(program) ==
        Texts{"10+2 g 7:200", "2+2 g 7:30", "2+2 g 8:20 after 0", "280+2 g 8:5", "98+0 e"});
  CHECK(notes_with(program, "1 operations wait for work on another stream") == 1);
  // Held up, and nothing ended just then.
  const KinetoProgram free =
      program_of(Rank().step(3, 0, 400).launch(10, 7, 20, 200).launch(18, 8, 240, 20));
  CHECK(free.ranks[0].rows[1].after == -1);
  CHECK(notes_with(free, "stood still for 0.215 ms with work launched") == 1);
  CHECK(free.ranks[0].rows[1].held_ns == 215'000);
  CHECK(program.ranks[0].rows[2].held_ns == 0);
  CHECK(notes_with(program, "stood still") == 0);
}

TEST_CASE("collectives of ranks that do not match make no program") {
  const auto rank = [](int number, int start, int third) {
    return Rank(number, 2)
        .step(3, 0, 9000)
        .launch(10, 7, 20, 5)
        .all_reduce(30, 9, start, 150 - start)
        .all_reduce(200, 9, 210, 90)
        .all_reduce(400, 9, third, 50)
        .read();
  };
  const std::vector<KinetoTrace> same = {rank(0, 40, 500), rank(1, 60, 500)};
  CHECK(program_of(same).collectives.at(0).transfer_ns == 90'000);
  const std::vector<KinetoTrace> apart = {rank(0, 40, 500), rank(1, 60, 7460)};
  const KinetoMatches matches = match_collectives(apart);
  REQUIRE(matches.warnings.size() == 1);
  CHECK(matches.warnings[0].find("1 collectives end on one rank before they start on another, by "
                                 "up to 6.910 ms") == 0);
  CHECK_THROWS_WITH_AS(static_cast<void>(program_of(apart)),
                       doctest::Contains("ends on one rank 6.910 ms before it starts on another"),
                       InputError);
}

TEST_CASE("a run of several ranks without any collective is warned about") {
  const auto warnings = [](int world) {
    return match_collectives(std::vector{Rank(0, world).step(3, 0, 90).launch(10, 7, 20, 5).read()})
        .warnings;
  };
  CHECK(warnings(1).empty());
  REQUIRE(warnings(8).size() == 1);
  CHECK(warnings(8)[0].find("a run of 8 ranks, and no collective in its traces") == 0);
}

TEST_CASE("a launched graph has many operations, a call inside another one none") {
  Rank rank;
  rank.step(3, 0, 100)
      .call("cudaGraphLaunch", 10, 10)
      .work(7, 40, 5)
      .work(8, 30, 5)
      .call("cudaLaunchKernelExC", 30, 10)
      .work(7, 50, 5);
  // The driver's call has the same correlation.
  const std::string text = rank.text();
  const std::string inner = row("cuda_driver", "cuLaunchKernelEx", "33", "5", R"("correlation":2)");
  const std::size_t end = text.rfind("]}");
  const KinetoProgram program = program_of(
      {read_kineto(test::write_file("graph.json", text.substr(0, end) + "," + inner + "]}"))});
  CHECK(texts_of(program) == Texts{"10+10 g 8:5", "0+0 g 7:5", "10+10 g 7:5", "-7+5 c", "62+0 e"});
}

TEST_CASE("a blocking copy waits for its end, a synchronisation for the thread's last stream") {
  const KinetoProgram program =
      program_of(Rank()
                     .step(3, 0, 1000)
                     .launch(10, 7, 20, 500)
                     .call("cudaMemcpyAsync", 20, 10)
                     .copy(22, 40, 3, "Memcpy DtoH (Device -> Pageable)")
                     .call("cudaStreamSynchronize", 30, 3)
                     .call("cudaMemcpyAsync", 40, 10)
                     .copy(22, 60, 3, "Memcpy DtoH (Device -> Pinned)")
                     // Ends when stream 7 does, though the thread used stream 22 last.
                     .call("cudaStreamSynchronize", 60, 465)
                     .call("cudaDeviceSynchronize", 530, 2)
                     .call("cudaEventSynchronize", 540, 2)
                     .launch(550, 7, 560, 40)
                     .call("cudaEventSynchronize", 560, 45));
  CHECK(texts_of(program) == Texts{"10+2 g 7:500",
                                   "8+10 d 22:3",
                                   "0+3 s 22:0",
                                   "7+10 g 22:3",
                                   "10+465 s 7:0",
                                   "5+2 s 7:0",
                                   "8+2 c",
                                   "8+2 g 7:40",
                                   "8+45 s 7:0",
                                   "395+0 e"});
}

TEST_CASE("a stream's wait is for the oldest collective that was made from it") {
  const KinetoProgram program = program_of(Rank()
                                               .step(3, 0, 1000)
                                               .launch(10, 7, 20, 5)
                                               .all_reduce(30, 9, 40, 5)
                                               .all_reduce(50, 9, 60, 5)
                                               .launch(70, 7, 77, 5)
                                               .call("cudaStreamWaitEvent", 80, 1)
                                               .launch(90, 7, 97, 5)
                                               .launch(100, 8, 107, 5)
                                               .call("cudaStreamWaitEvent", 110, 1)
                                               .launch(120, 7, 127, 5));
  const Texts texts = texts_of(program);
  CHECK(texts[5] == "18+2 g 7:5");
  CHECK(texts[7] == "9+2 g 7:5 <0");
  CHECK(texts[8] == "8+2 g 8:5");
  CHECK(texts[10] == "9+2 g 7:5 <1");
  REQUIRE(program.collectives.size() == 2);
  CHECK(program.collectives[1].producer_stream == 7);
  CHECK(program.collectives[1].bytes == 4000);
}

TEST_CASE("rows of cuda_sync state what waits for what") {
  const auto sync = [](int correlation, int stream, int on_stream, int record) {
    return row("cuda_sync",
               "Stream Wait Event",
               "500",
               "1",
               fmt::format(R"("correlation":{},"stream":{},"wait_on_stream":{},)"
                           R"("wait_on_cuda_event_record_corr_id":{})",
                           correlation,
                           stream,
                           on_stream,
                           record));
  };
  Rank rank;
  rank.step(3, 0, 1000).launch(10, 7, 20, 5).launch(15, 8, 22, 5);
  rank.all_reduce(30, 9, 40, 5).call("cudaEventRecord", 33, 1);  // Correlation 5.
  rank.all_reduce(50, 9, 60, 5)
      .call("cudaStreamWaitEvent", 70, 1)  // 8: for the first one.
      .launch(80, 7, 87, 5)
      .call("cudaStreamWaitEvent", 90, 1)  // 10: of stream 8, for a compute stream.
      .launch(100, 7, 107, 5)
      .call("cudaStreamWaitEvent", 110, 1)  // 12: for all on stream 9 so far.
      .launch(120, 7, 127, 5)
      .call("cudaStreamSynchronize", 130, 2)  // 14
      .call("cudaEventSynchronize", 140, 2)   // 15
      .call("cudaEventSynchronize", 150, 2);  // 16: of a stream without work.
  const auto program_with = [&](const std::vector<std::string>& syncs) {
    const std::string text = rank.text();
    return program_of({read_kineto(test::write_file(
        "sync.json",
        text.substr(0, text.rfind("]}")) + fmt::format(",{}]}}", fmt::join(syncs, ","))))});
  };
  const KinetoProgram program = program_with({sync(8, 7, 9, 5),
                                              sync(10, 8, 7, -1),
                                              sync(12, 7, 9, -1),
                                              sync(14, 8, -1, -1),
                                              sync(15, 8, 9, -1),
                                              sync(16, 8, 77, -1)});
  const Texts texts = texts_of(program);
  CHECK(Texts(texts.begin() + 8, texts.end()) == Texts{"9+2 g 7:5 <0",
                                                       "8+1 c",
                                                       "9+2 g 7:5 <0",
                                                       "8+1 c",
                                                       "9+2 g 7:5 <1",
                                                       "8+2 s 8:0",
                                                       "8+2 s 9:0",
                                                       "8+2 c",
                                                       "848+0 e"});
}

TEST_CASE("work that began before a collective ended is not what waits for it") {
  const auto awaited = [](int start) {
    const KinetoProgram program = program_of(Rank()
                                                 .step(3, 0, 1000)
                                                 .launch(10, 7, 20, 5)
                                                 .all_reduce(30, 9, 40, 100)
                                                 .call("cudaStreamWaitEvent", 50, 1)
                                                 .launch(60, 7, start, 5)
                                                 .call("cudaStreamWaitEvent", 70, 1)
                                                 .launch(150, 7, 160, 5));
    return std::pair(program.ranks[0].rows.at(4).awaited, program.ranks[0].rows.at(6).awaited);
  };
  CHECK(awaited(67) == std::pair(-1, 0));
  CHECK(awaited(140) == std::pair(0, 0));
}

TEST_CASE("work that was free and started only as a collective ended waited for it") {
  const auto awaited = [](int start) {
    return program_of(Rank()
                          .step(3, 0, 1000)
                          .launch(10, 7, 20, 5)
                          .all_reduce(30, 9, 40, 5)
                          .all_reduce(50, 9, 60, 300)
                          .launch(80, 7, start, 5))
        .ranks[0]
        .rows.at(5)
        .awaited;
  };
  CHECK(awaited(361) == 1);
  CHECK(awaited(366) == 1);
  CHECK(awaited(359) == -1);  // Before its end.
  CHECK(awaited(370) == -1);  // Too late for it.
  CHECK(awaited(90) == -1);   // As soon as it could.
}

TEST_CASE("work of the step before that the GPU has still to do stands first") {
  const KinetoProgram program = program_of(Rank()
                                               .step(3, 0, 100)
                                               .step(4, 100, 200)
                                               .launch(50, 7, 60, 90)
                                               .launch(60, 22, 70, 10)
                                               .launch(110, 7, 150, 40),
                                           4);
  CHECK(texts_of(program) == Texts{"0+0 g 7:43", "10+2 g 7:40", "188+0 e"});
  CHECK(program.notes.size() == 2);
}

TEST_CASE("work launched before the recording stands first as far as it reaches into the step") {
  const Rank rank = Rank()
                        .step(4, 100, 200)
                        .earlier(7, 20, 30)
                        .earlier(7, 60, 90)   // Up to 150.
                        .earlier(22, 50, 40)  // Over before the step.
                        .launch(110, 7, 150, 40)
                        .earlier(7, 195, 50)  // Its launch is missing: it was in the recording.
                        .call("cudaStreamSynchronize", 120, 75);
  const KinetoProgram program = program_of(rank, 4);
  CHECK(texts_of(program) == Texts{"0+0 g 7:43", "10+2 g 7:40", "8+75 s 7:0", "105+0 e"});
  CHECK(notes_with(program, "4 GPU operations were launched before: as far as they reach") == 1);
  // A stream whose launches the trace never holds has no work of the time before.
  Rank unknown = Rank().step(4, 0, 1000).launch(10, 7, 20, 5);
  unknown.earlier(9, 5, 10).earlier(9, 200, 10).earlier(9, 600, 300);
  CHECK(texts_of(program_of(unknown, 4)) == Texts{"0+0 g 9:8", "10+2 g 7:5", "988+0 e"});
  // Nothing of it reaches into a later step.
  Rank two = rank;
  two.step(5, 300, 100).launch(310, 7, 320, 5);
  CHECK(texts_of(program_of(two, 5)) == Texts{"10+2 g 7:5", "88+0 e"});
}

TEST_CASE("calls beside another thread's blocking call follow it") {
  const KinetoProgram program = program_of(Rank()
                                               .step(3, 0, 1000)
                                               .launch(10, 7, 20, 490)
                                               .call("cudaStreamSynchronize", 20, 500)
                                               .call("cudaEventQuery", 100, 1, 2)
                                               .launch(200, 7, 510, 5, 2)
                                               .launch(300, 7, 515, 5, 2)
                                               .launch(521, 7, 530, 5));
  CHECK(texts_of(program) ==
        Texts{"10+2 g 7:490", "8+500 s 7:0", "0+2 g 7:5", "0+2 g 7:5", "-2+2 g 7:5", "476+0 e"});
  CHECK(program.notes.size() == 2);
}

TEST_CASE("the last step whose kernels are all there is taken, or the one that is asked for") {
  const Rank rank = Rank()
                        .step(3, 0, 100)
                        .step(4, 100, 100)
                        .step(5, 200, 100)
                        .launch(10, 7, 20, 5)
                        .launch(110, 7, 120, 5)
                        .launch(210, 7, 220, 5)
                        .call("cudaLaunchKernel", 230, 2);
  CHECK(program_of(rank).step == 4);
  CHECK(program_of(rank, 3).step == 3);
  const KinetoProgram cut = program_of(rank, 5);
  CHECK(cut.step == 5);
  CHECK(cut.ranks[0].cut);
  CHECK_FALSE(program_of(rank).ranks[0].cut);
  CHECK(cut.notes.front().find("1 kernels that step 5 launched are not") != std::string::npos);
  CHECK_THROWS_WITH_AS((void)program_of(rank, 6),
                       doctest::Contains("no step 6 in all traces; there are 3, 4, 5"),
                       InputError);
  CHECK_THROWS_WITH_AS((void)program_of(std::vector{
                           rank.read(), Rank(1, 2).step(9, 0, 9).launch(1, 7, 5, 1).read()}),
                       doctest::Contains("world size"),
                       InputError);
  CHECK_THROWS_WITH_AS(
      (void)program_of(Rank().step(3, 0, 100)), doctest::Contains("no GPU operations"), InputError);
  CHECK_THROWS_WITH_AS((void)program_of(Rank().launch(1, 7, 5, 1)),
                       doctest::Contains("no ProfilerStep, and a program is one step: give"),
                       InputError);
  CHECK_THROWS_WITH_AS(
      (void)program_of(std::vector{Rank(0, 2).step(3, 0, 9).launch(1, 7, 5, 1).read(),
                                   Rank(1, 2).step(9, 0, 9).launch(1, 7, 5, 1).read()}),
      doctest::Contains("no step that all traces hold: record the same steps on all ranks"),
      InputError);
}

TEST_CASE("ranks share a clock, streams and the numbers of collectives") {
  // The clock of rank 1 is 5 ms ahead, as the end of the all-reduce tells.
  const auto rank = [](int number, int late, int stream) {
    const int clock = number * 5000;
    return Rank(number, 2)
        .step(3, clock + 1000 + late, 500)
        .launch(clock + 1010 + late, stream, clock + 1020 + late, 5)
        .all_reduce(clock + 1030 + late, stream + 1, clock + 1040 + late, 100 - late)
        .read();
  };
  const KinetoProgram program = program_of({rank(0, 0, 7), rank(1, 40, 14)});
  CHECK(program.ranks[1].start_ns == 40'000);
  CHECK(texts_of(program, 0)[2] == "2+2 n 8:100");
  CHECK(texts_of(program, 1)[2] == "2+2 n 8:60");
  REQUIRE(program.collectives.size() == 1);
  CHECK(program.collectives[0].transfer_ns == 60'000);
  CHECK(!program.collectives[0].upper_bound);
  CHECK(program.collectives[0].recorded[1].start_ns == 80'000);
  CHECK(program.ranks[1].rows[0].recorded_ns == 50'000);
}

TEST_CASE("a collective that another rank's trace lacks is work of its length") {
  const auto rank = [](int number, bool more) {
    Rank one(number, 2);
    one.step(3, 0, 500).launch(10, 7, 20, 5).all_reduce(30, 9, 40, 5);
    return (more ? one.all_reduce(60, 9, 70, 8) : one).read();
  };
  const KinetoProgram program = program_of({rank(0, true), rank(1, false)});
  CHECK(program.collectives.size() == 1);
  CHECK(texts_of(program)[4] == "2+2 g 9:8");
}

TEST_CASE("every changed byte of a trace gives an InputError or a program") {
  const std::string text = Rank()
                               .step(3, 0, 500)
                               .launch(10, 7, 20, 5)
                               .all_reduce(30, 9, 40, 5)
                               .call("cudaStreamWaitEvent", 50, 1)
                               .call("cudaMemcpyAsync", 60, 10)
                               .copy(7, 65, 3, "Memcpy DtoH (Device -> Pageable)")
                               .call("cudaStreamSynchronize", 80, 3)
                               .text();
  int programs = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'"', '{', '9', '-'}) {
      CAPTURE(at);
      std::string changed = text;
      changed[at] = byte;
      try {
        (void)program_of({read_kineto(test::write_file("changed.json", changed))});
        ++programs;
      } catch (const InputError&) {
        continue;
      }
    }
  }
  CHECK(programs > 100);
}

TEST_CASE("more streams than a replay takes are put together") {
  Rank rank;
  rank.step(3, 0, 500).all_reduce(10, 30, 20, 5);
  for (int i = 0; i < 9; ++i) {
    rank.launch(30 + 20 * i, 7 + i, 40 + 20 * i, 5).launch(40 + 20 * i, 7, 50 + 20 * i, 5);
  }
  const KinetoProgram program = program_of(rank);
  const Texts texts = texts_of(program);
  CHECK(texts[1] == "2+2 n 30:5");
  CHECK(texts[18] == "8+2 g 7:5");  // Stream 15.
  CHECK(program.notes.size() == 2);
}

}  // namespace stepsim
