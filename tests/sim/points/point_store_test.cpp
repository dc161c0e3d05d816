#include "sim/points/point_store.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "sim/points/point_parts.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;

namespace {

const StudyId kStudy = {"1.2", "sweep", {"a scenario.toml", "--over", "k=1,2"}, "s1", "p1"};

bool store_says(const std::string& message, const std::string& part) {
  CAPTURE(message);
  const bool found = message.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::string store_error(const std::string& path, const StudyId& id, const Shard& shard = {}) {
  return test::error_of([&] { const PointStore store(path, id, shard); });
}

}  // namespace

TEST_CASE("a store keeps results for the next process") {
  const std::string path = test::fresh_folder() + "/points.jsonl";
  {
    PointStore store(path, kStudy, {});
    CHECK(store.results().empty());
    store.add("one \"quoted\" point", "[1,2.5,\"x\"]");
    store.add("two", "{\"a\":null}");
  }
  PointStore again(path, kStudy, {});
  CHECK(again.results() ==
        PointResults{{"one \"quoted\" point", "[1,2.5,\"x\"]"}, {"two", "{\"a\":null}"}});
}

TEST_CASE("a line that was cut off anywhere costs its own point only") {
  const std::string path = test::fresh_folder() + "/points.jsonl";
  {
    PointStore store(path, kStudy, {});
    store.add("one", "[1]");
    store.add("two", "[2]");
  }
  const std::string whole = read_text(path);
  const std::size_t header = whole.find('\n') + 1;
  const std::size_t second = whole.find('\n', header) + 1;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    CAPTURE(size);
    write_text_atomically(path, whole.substr(0, size));
    PointStore store(path, kStudy, {});
    CHECK(store.results().size() == (size == whole.size() ? 2U : size >= second ? 1U : 0U));
    store.add("one", "[1]");
    store.add("two", "[2]");
    CHECK(read_point_file(path).results == PointResults{{"one", "[1]"}, {"two", "[2]"}});
  }
}

TEST_CASE("a file of another study is refused, and says in what it differs") {
  const std::string path = test::fresh_folder() + "/points.jsonl";
  { PointStore store(path, kStudy, {}); }
  const std::string before = read_text(path);
  StudyId other = kStudy;
  other.version = "1.3";
  store_says(store_error(path, other), "written by stepsim 1.2, this is 1.3; name a new file");
  other = kStudy;
  other.command = "compare";
  store_says(store_error(path, other), "holds the points of another command; name another file");
  store_says(store_error(path, other), "stepsim sweep 'a scenario.toml' --over k=1,2");
  other = kStudy;
  other.arguments.back() = "k=1,2,3";
  store_says(store_error(path, other), "holds the points of another command");
  other = kStudy;
  other.scenario = "s2";
  store_says(store_error(path, other), "the scenario, or a file that it names, has changed");
  other = kStudy;
  other.profile = "p2";
  store_says(store_error(path, other), "computed with another profile (p1, this is p2)");
  store_says(store_error(path, kStudy, {1, 2}), "holds shard 1/1, this is 1/2");
  CHECK(read_text(path) == before);
}

TEST_CASE("a file that is no store is refused and left as it is") {
  const std::string folder = test::fresh_folder();
  const std::string path = folder + "/notes.txt";
  for (const char* text : {"my notes", "my notes\n", "{\"format\":\"stepsim-plan/1\"}\n", "[]\n"}) {
    write_text_atomically(path, text);
    store_says(store_error(path, kStudy), "not a file of a study's points");
    CHECK(read_text(path) == text);
  }
  store_says(store_error("/dev/null", kStudy), "not a regular file");
  CHECK_THROWS_AS(PointStore(folder + "/no/such/folder", kStudy, {}), EnvironmentFault);
}

TEST_CASE("a line in the middle that is damaged is named") {
  const std::string path = test::fresh_folder() + "/points.jsonl";
  { PointStore store(path, kStudy, {}); }
  std::ofstream(path, std::ios::app) << "{\"point\":\"a\",\"res\n{\"point\":\"b\",\"result\":1}\n";
  store_says(store_error(path, kStudy), "points.jsonl:2:");
}

TEST_CASE("two processes cannot write one store") {
  const std::string path = test::fresh_folder() + "/points.jsonl";
  const PointStore first(path, kStudy, {});
  store_says(store_error(path, kStudy), "another process is writing it; wait for its end");
}

TEST_CASE("parts must be all shards of one study, each once") {
  const std::string folder = test::fresh_folder();
  const std::string one = folder + "/1";
  const std::string two = folder + "/2";
  const std::string third = folder + "/3";
  StudyId other = kStudy;
  other.scenario = "s2";
  { PointStore store(one, kStudy, {1, 3}); }
  { PointStore store(two, kStudy, {2, 3}); }
  { PointStore store(third, other, {3, 3}); }
  const auto parts_error = [](const std::vector<std::string>& paths) {
    return test::error_of([&] { (void)read_point_parts(paths); });
  };
  store_says(parts_error({one, two}),
             "shard 3/3 of the study: missing. Compute it:\n  stepsim sweep");
  store_says(parts_error({one, two}), "--over k=1,2 --shard 3/3 --resume FILE");
  store_says(parts_error({one}),
             "shards 2/3 and 3/3 of the study: missing. Compute the first of them");
  store_says(parts_error({one, two, one}), "shard 1/3 is in " + one + " already");
  store_says(parts_error({one, two, third}),
             "3: error: the scenario, or a file that it names, has");
  std::filesystem::remove(third);
  { PointStore store(third, kStudy, {3, 4}); }
  store_says(parts_error({one, two, third}), "shard 3/4, but " + one + " holds shard 1/3");
  std::filesystem::remove(third);
  store_says(parts_error({one, two, third}), third);
  { PointStore store(third, kStudy, {3, 3}); }
  CHECK(read_point_parts({third, one, two}).size() == 3);
}
