// Files of computed points: read as a shard and by --resume, and each result of a sweep.

#include <filesystem>

#include "sim/points/point_parts.h"
#include "sim/points/point_store.h"
#include "sim/study/sweep_members.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_points(std::string_view input) {
  const std::string path = file_with("points.jsonl", input);
  const PointFile file = read_point_file(path);
  (void)accepts([&] { (void)read_point_parts({path}); });
  for (const auto& [point, result] : file.results) {
    (void)accepts([&, &text = result] {
      const auto read = from_exact_text<SweepPoint>(text);
      const std::string written = exact_text(read);
      require(exact_text(from_exact_text<SweepPoint>(written)) == written, "another result");
    });
  }
  PointStore store(path, file.id, file.shard);
  require(store.results() == file.results, "other results when they are taken up again");
  store.add("a point", "[1]");
  require(read_point_file(path).results.size() >= file.results.size(), "results are lost");
}

}  // namespace stepsim::fuzz
