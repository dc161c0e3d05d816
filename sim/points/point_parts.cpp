#include "sim/points/point_parts.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

/// "shard 3/8", "shards 3/8, 4/8 and 7/8"
std::string shards_text(const std::vector<Shard>& shards) {
  constexpr std::size_t kMost = 10;
  std::string text = shards.size() == 1 ? "shard " : "shards ";
  for (std::size_t i = 0; i < std::min(shards.size(), kMost); ++i) {
    text += i == 0 ? "" : i + 1 == shards.size() ? " and " : ", ";
    text += shards[i].text();
  }
  return shards.size() > kMost ? fmt::format("{} and {} more", text, shards.size() - kMost) : text;
}

}  // namespace

std::vector<PointFile> read_point_parts(const std::vector<std::string>& paths) {
  std::vector<PointFile> parts = mapped(paths, read_point_file);
  const PointFile& first = parts.front();
  std::map<int, std::string> holder;
  for (const PointFile& part : parts) {
    require_same_study(part, first.id);
    if (part.shard.count != first.shard.count) {
      throw InputError(SourcePlace{part.path},
                       "shard {}, but {} holds shard {}; merge shards of one division",
                       part.shard.text(),
                       first.path,
                       first.shard.text());
    }
    const auto [twin, is_new] = holder.emplace(part.shard.number, part.path);
    if (!is_new) {
      throw InputError(SourcePlace{part.path},
                       "shard {} is in {} already; name each shard once",
                       part.shard.text(),
                       twin->second);
    }
  }
  std::vector<Shard> missing;
  for (int number = 1; number <= first.shard.count; ++number) {
    if (holder.count(number) == 0) {
      missing.push_back({number, first.shard.count});
    }
  }
  if (!missing.empty()) {
    throw InputError(SourcePlace{"stepsim merge"},
                     "{} of the study: missing. Compute {}:\n  {} --shard {} --resume FILE",
                     shards_text(missing),
                     missing.size() == 1 ? "it" : "the first of them, and the others likewise",
                     first.id.command_line(),
                     missing.front().text());
  }
  return parts;
}

}  // namespace stepsim
