#include "sim/points/point_store.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/io/json_lines.h"

namespace stepsim {

namespace {

constexpr const char* kPointFormat = "stepsim-points/1";

std::string header_line(const StudyId& id, const Shard& shard) {
  const Json header = {{"format", kPointFormat},
                       {"version", id.version},
                       {"command", id.command},
                       {"arguments", id.arguments},
                       {"scenario_id", id.scenario},
                       {"profile_id", id.profile},
                       {"shard", {shard.number, shard.count}}};
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// What a line has before its result.
std::string line_start(const std::string& point) {
  return "{\"point\":" + json_text(point) + ",\"result\":";
}

void read_header(const std::string& line, PointFile& file) {
  Json json;
  try {
    json = parse_json(line, file.path);
  } catch (const InputError&) {
    json = Json();
  }
  if (!json.is_object() || json.value("format", Json()) != kPointFormat) {
    throw InputError(SourcePlace{file.path, 1, 0, ""},
                     "not a file of a study's points; its first line should hold \"format\": "
                     "\"{}\". Name a file that --resume has made, or a new one",
                     kPointFormat);
  }
  JsonReader header(json, file.path, 1, "");
  file.id.version = header.text("version");
  file.id.command = header.text("command");
  file.id.arguments = header.texts("arguments");
  file.id.scenario = header.text("scenario_id");
  file.id.profile = header.text("profile_id");
  const std::vector<std::int64_t> shard = header.integers("shard");
  if (shard.size() != 2) {
    header.fail("shard", "must be two numbers");
  }
  file.shard = parse_shard(fmt::format("{}/{}", shard[0], shard[1]));
}

void read_result(const std::string& line, int number, PointFile& file) {
  const Json json = parse_json(line, file.path, number);
  const std::string point = JsonReader(json, file.path, number, "").text("point");
  const std::string start = line_start(point);
  if (!line.starts_with(start) || !json.contains("result")) {
    throw InputError(SourcePlace{file.path, number, 0, ""}, "not a line that stepsim has written");
  }
  file.results[point] = line.substr(start.size(), line.size() - start.size() - 1);
}

/// The file's lines, as they were when it was read.
PointFile parse_point_file(const std::string& path, const std::string& text) {
  PointFile file;
  file.path = path;
  for (int number = 1;; ++number) {
    const std::size_t end = text.find('\n', file.whole_bytes);
    if (end == std::string::npos) {
      break;
    }
    const std::string line = text.substr(file.whole_bytes, end - file.whole_bytes);
    if (number == 1) {
      read_header(line, file);
    } else {
      read_result(line, number, file);
    }
    file.whole_bytes = end + 1;
  }
  return file;
}

[[noreturn]] void refuse_file(const PointFile& file, const std::string& why) {
  throw InputError(SourcePlace{file.path}, "{}", why);
}

}  // namespace

std::string StudyId::command_line() const {
  std::string line = "stepsim " + command;
  for (const std::string& argument : arguments) {
    line += " " + shell_word(argument);
  }
  return line;
}

PointFile read_point_file(const std::string& path) {
  const std::string text = read_text(path);
  PointFile file = parse_point_file(path, text);
  if (file.whole_bytes == 0) {
    throw InputError(SourcePlace{path}, "no points: its first line is not there; compute it again");
  }
  return file;
}

void require_same_study(const PointFile& file, const StudyId& id) {
  const StudyId& other = file.id;
  if (other.version != id.version) {
    refuse_file(file,
                fmt::format("written by stepsim {}, this is {}; name a new file, or use that "
                            "version",
                            printable(other.version),
                            id.version));
  }
  if (other.command != id.command || other.arguments != id.arguments) {
    refuse_file(file,
                fmt::format("holds the points of another command; name another file. It was "
                            "made by:\n  {}\nThis is:\n  {}",
                            printable(other.command_line(), 2000),
                            id.command_line()));
  }
  if (other.scenario != id.scenario) {
    refuse_file(file,
                "the scenario, or a file that it names, has changed since its points were "
                "computed; name a new file");
  }
  if (other.profile != id.profile) {
    refuse_file(file,
                fmt::format("its points were computed with another profile ({}, this is {}); "
                            "name a new file",
                            printable(other.profile),
                            id.profile));
  }
}

PointStore::PointStore(const std::string& path, const StudyId& id, const Shard& shard)
    : path_(path) {
  open();
  try {
    const std::string header = header_line(id, shard) + "\n";
    const std::string text = read_text(path);
    PointFile file;
    // A file that was killed in the middle of its first line is begun again.
    if (!header.starts_with(text)) {
      file = parse_point_file(path, text);
      if (file.whole_bytes == 0) {
        read_header(text, file);
      }
      require_same_study(file, id);
      if (file.shard != shard) {
        refuse_file(file,
                    fmt::format("holds shard {}, this is {}; each shard needs a file of its own",
                                file.shard.text(),
                                shard.text()));
      }
    }
    if (::ftruncate(file_, static_cast<off_t>(file.whole_bytes)) != 0) {
      throw EnvironmentFault("cannot write {}: {}", path_, std::strerror(errno));
    }
    if (file.whole_bytes == 0) {
      write_line(header);
    }
    results_ = std::move(file.results);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

PointStore::~PointStore() {
  ::close(file_);
}

void PointStore::open() {
  constexpr int kMode = 0666;
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (file_ < 0) {
    throw EnvironmentFault("cannot write {}: {}", path_, std::strerror(errno));
  }
  struct stat about {};
  const bool is_file = ::fstat(file_, &about) == 0 && S_ISREG(about.st_mode);
  const bool is_taken = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!is_file || is_taken) {
    ::close(file_);
    throw InputError(SourcePlace{path_},
                     is_file ? "another process is writing it; wait for its end, or give each "
                               "process a file of its own (--shard K/N)"
                             : "not a regular file; points are kept in one");
  }
}

void PointStore::add(const std::string& point, const std::string& result) {
  write_line(line_start(point) + result + "}\n");
  results_[point] = result;
}

void PointStore::write_line(const std::string& line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t bytes = ::write(file_, line.data() + written, line.size() - written);
    if (bytes < 0 && errno != EINTR) {
      throw EnvironmentFault("cannot write {}: {}", path_, std::strerror(errno));
    }
    written += bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  }
}

}  // namespace stepsim
