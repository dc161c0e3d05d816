#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate/samples/samples.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"
#include "tests/calibrate/stepcal_path.h"
#include "tests/test_data.h"

namespace stepsim {
namespace {

#ifdef STEPCAL_HAS_GLOO
constexpr bool kCanMeasure = true;
#else
constexpr bool kCanMeasure = false;
#endif

/// A running stepcal whose output goes to files in `folder`.
class Program {
 public:
  Program(const std::string& folder, std::vector<std::string> arguments) : folder_(folder) {
    arguments.insert(arguments.begin(), test::stepcal_path());
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    const std::string out = folder + "/out";
    const std::string err = folder + "/err";
    pid_ = ::fork();
    if (pid_ == 0) {
      constexpr int kMode = 0600;
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, kMode), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, kMode), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  void interrupt() const { ::kill(pid_, SIGINT); }
  [[nodiscard]] int wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  [[nodiscard]] std::string out() const { return read_text(folder_ + "/out"); }
  [[nodiscard]] std::string err() const { return read_text(folder_ + "/err"); }

 private:
  std::string folder_;
  pid_t pid_ = 0;
};

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

Outcome stepcal(const std::vector<std::string>& arguments) {
  const Program program(test::fresh_folder(), arguments);
  const int status = program.wait();
  return {status, program.out(), program.err()};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> small_measure(const std::string& command,
                                       const std::string& out,
                                       const std::string& budget) {
  return {command,
          "--model",
          "tiny-classifier",
          "--max-length",
          "64",
          "--max-tokens",
          "256",
          "--budget",
          budget,
          "--out",
          out};
}

int lines_in(const std::string& path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("every command explains itself with an example") {
  CHECK(contains(stepcal({"--help"}).out, "calibrate"));
  for (const char* command :
       {"measure", "fit", "calibrate", "import", "check", "devices", "grid"}) {
    CAPTURE(command);
    const Outcome outcome = stepcal({command, "--help"});
    CHECK(outcome.status == 0);
    CHECK(contains(outcome.out, "usage: stepcal " + std::string(command)));
    CHECK(contains(outcome.out, "example"));
  }
}

TEST_CASE("bad input exits with 2 and says what would be right") {
  const std::string folder = test::fresh_folder();
  std::ofstream(folder + "/corrupt.jsonl") << "{\"format\":\"stepsim-samples/1\",}\n";
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const auto sized = [](const std::vector<std::string>& wrong) {
    std::vector<std::string> arguments = {"measure",
                                          "--model",
                                          "tiny-classifier",
                                          "--max-length",
                                          "64",
                                          "--max-tokens",
                                          "64",
                                          "--out",
                                          "x"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    return arguments;
  };
  const std::vector<Case> cases = {
      {{"mesure"}, "did you mean 'measure'"},
      {{"fit", "--outt", "x"}, "did you mean '--out'"},
      {{"fit", folder + "/missing.jsonl", "--out", "x"}, "missing.jsonl"},
      {{"fit", folder + "/corrupt.jsonl", "--out", "x"}, "corrupt.jsonl:1:"},
      {{"fit", "--out", "x"}, "no samples file given"},
      {{"measure", "--out", "x"}, "give --plan FILE"},
      {{"measure", "--model", "tiny-classifier"}, "no samples file (--out) given"},
      {{"measure",
        "--model",
        "tinyclassifier",
        "--max-length",
        "64",
        "--max-tokens",
        "64",
        "--out",
        "x"},
       "tiny-classifier"},
      {{"measure",
        "--model",
        "tiny-classifier",
        "--max-length",
        "999",
        "--max-tokens",
        "9999",
        "--out",
        "x"},
       "accepts at most 256"},
      {{"measure", "--plan", folder + "/none.jsonl", "--out", "x"}, "none.jsonl"},
      {{"measure", "--device", "rocm", "--model", "tiny-classifier", "--out", "x"},
       "unknown device 'rocm'; known: cpu, cuda"},
      {{"measure", "--device", "cuda:x", "--model", "tiny-classifier", "--out", "x"},
       "say cpu, cuda or cuda:NUMBER"},
      {sized({"--budget", "0"}), "--budget"},
      {sized({"--bucket-cap", "25"}),
       "--bucket-cap: 25 without a unit counts bytes; did you mean \"25 MiB\"?"},
      {{"check", "--profile", folder + "/none.json"}, "none.json"},
      {{"live", "plan.jsonl", "--out-dir", "live"},
       "by python3 -m stepsim.torch.live PLANS... --out-dir live"},
      {{"calibrate", "--plan", "plan.jsonl", "--out", "x"},
       "python3 -m stepsim.torch.measure shapes.json --out samples.jsonl, then stepcal fit"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.message);
    const Outcome outcome = stepcal(one.arguments);
    CAPTURE(outcome.err);
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.err, one.message));
  }
}

TEST_CASE("devices lists the processor, with or without CUDA") {
  const Outcome outcome = stepcal({"devices"});
  CHECK(outcome.status == 0);
  CHECK(outcome.out.rfind("cpu     ", 0) == 0);
  CHECK(contains(outcome.out, "cuda"));
}

TEST_CASE("a full disk exits with 3") {
  if (!kCanMeasure) {
    test::skip("built without gloo");
    return;
  }
  const Outcome samples = stepcal(small_measure("measure", "/dev/full", "1"));
  CHECK(samples.status == 3);
  CHECK(contains(samples.err, "cannot write /dev/full: No space left on device"));
}

TEST_CASE("gloo's collectives are measured and fitted, and what is still to do is said") {
  if (!kCanMeasure) {
    test::skip("built without gloo");
    return;
  }
  const std::string folder = test::fresh_folder();
  const std::string file = folder + "/samples.jsonl";
  const Outcome measured = stepcal(small_measure("measure", file, "1"));
  CAPTURE(measured.err);
  REQUIRE(measured.status == 0);
  CHECK_FALSE(contains(measured.err, "\r"));  // No progress bar when it is not a terminal.
  CHECK(contains(measured.out, "next: stepcal fit "));
  const SampleSet samples = read_samples(file, nullptr);
  CHECK(samples.ops.empty());
  const std::string profile = folder + "/gloo.json";
  const Outcome fitted = stepcal({"fit", file, "--out", profile});
  REQUIRE(fitted.status == 0);
  const Outcome full = stepcal({"fit", file, "--out", "/dev/full"});
  CHECK(full.status == 3);
  CHECK(contains(full.err, "No space left on device"));
  CHECK(contains(fitted.out, "it has no ops, only collectives"));
  CHECK(contains(fitted.out, "  python3 -m stepsim.torch.measure shapes.json --out ops.jsonl\n"));
  CHECK(contains(fitted.out, "--base ops.json"));
  std::vector<std::string> kinds;
  for (const CollectiveCost& cost : read_profile(profile).collectives) {
    kinds.push_back(cost.kind);
  }
  std::ranges::sort(kinds);
  CHECK(kinds == std::vector<std::string>{"all_gather", "all_reduce", "reduce_scatter"});
  // Beside ops of another measurement.
  const std::string base = test::source_root() + "/scenarios/profiles/h100_8x_published.json";
  const std::string both = folder + "/both.json";
  const Outcome joined = stepcal({"fit", file, "--base", base, "--out", both});
  CAPTURE(joined.err);
  REQUIRE(joined.status == 0);
  CHECK(contains(joined.out, "next: stepsim compare"));
  CHECK(read_profile(both).ops.size() == read_profile(base).ops.size());
  const Outcome check = stepcal({"check", "--profile", profile});
  CHECK(check.status == 2);
  CHECK(contains(check.err, "measure again with python3 -m stepsim.torch.measure"));
}

TEST_CASE("Ctrl-C keeps what was measured, and the same command goes on") {
  if (!kCanMeasure) {
    test::skip("built without gloo");
    return;
  }
  const std::string folder = test::fresh_folder();
  const std::string file = folder + "/samples.jsonl";
  const Program program(folder, small_measure("measure", file, "6"));
  for (int i = 0; i < 600 && lines_in(file) < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  program.interrupt();
  CHECK(program.wait() == 130);
  CHECK(contains(program.err(), "measurements are kept in " + file));
  CHECK(contains(program.err(), "run the same command to go on"));
  std::vector<std::string> warnings;
  const SampleSet kept = read_samples(file, &warnings);
  CHECK(warnings.empty());
  CHECK(kept.collectives.size() > 0);
  const int before = lines_in(file);
  const Outcome rest = stepcal(small_measure("measure", file, "6"));
  CHECK(rest.status == 0);
  CHECK(contains(rest.out, "going on with tiny-classifier"));
  CHECK(lines_in(file) > before);
  CHECK(read_samples(file, nullptr).collectives.size() >= kept.collectives.size());
}

}  // namespace stepsim
