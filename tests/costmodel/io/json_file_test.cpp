#include "costmodel/io/json_file.h"

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "costmodel/io/atomic_file.h"
#include "costmodel/io/json_lines.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::content;
using stepsim::test::error_of;
using stepsim::test::fresh_folder;
using stepsim::test::written;

namespace {

std::string parse_error(const std::string& text) {
  return error_of([&text] { (void)parse_json(text, "f.json"); });
}

/// The files in the folder of this one.
std::ptrdiff_t files_beside(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

/// No file of more than `bytes` can be written while this lives; the signal that says so is off.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

/// A device on which every write fails. The superuser gets one of his own, since a program that
/// is wrong would replace the system's by a file.
std::optional<std::string> full_device() {
  if (geteuid() != 0) {
    return "/dev/full";
  }
  constexpr unsigned kMemoryDevices = 1;
  constexpr unsigned kFull = 7;
  const std::string path = fresh_folder() + "/full";
  if (mknod(path.c_str(), S_IFCHR | 0600, makedev(kMemoryDevices, kFull)) != 0) {
    return std::nullopt;
  }
  const int opened = open(path.c_str(), O_WRONLY);
  if (opened < 0) {
    return std::nullopt;  // The file system forbids devices.
  }
  close(opened);
  return path;
}

}  // namespace

TEST_CASE("a syntax error names file, line and column and shows a caret") {
  CHECK(parse_error("{\n \"a\": 1 \"b\": 2}") ==
        "f.json:2:9: error: syntax error while parsing object - unexpected string literal; "
        "expected '}'\n"
        " \"a\": 1 \"b\": 2}\n"
        "        ^");
  CHECK(parse_error("{\"a\": tru}") ==
        "f.json:1:7: error: syntax error while parsing value - invalid literal\n"
        "{\"a\": tru}\n"
        "      ^");
}

TEST_CASE("numbers that are not finite are refused") {
  CHECK(parse_error("{\"a\": NaN}") ==
        "f.json:1:7: error: 'NaN' is not a JSON number; only finite numbers are read\n"
        "{\"a\": NaN}\n"
        "      ^");
  CHECK(parse_error("[-Infinity]").find("'-Infinity' is not a JSON number") != std::string::npos);
  CHECK(parse_error("[1e999]").find("number overflow parsing '1e999'") != std::string::npos);
}

TEST_CASE("a key that is there twice is refused at its second place") {
  CHECK(parse_error("{\"a\": 1,\n \"b\": {\"a\": 2}, \"a\": 3}") ==
        "f.json:2:17: error: duplicate key 'a'\n"
        " \"b\": {\"a\": 2}, \"a\": 3}\n"
        "                ^");
}

TEST_CASE("nesting has a limit on both sides") {
  CHECK(parse_error(std::string(100, '[') + std::string(100, ']')) == "no error");
  CHECK(parse_error(std::string(101, '[') + std::string(101, ']'))
            .find("f.json:1:101: error: nested deeper than 100 levels") == 0);
}

TEST_CASE("a file that is empty or cut off is refused") {
  CHECK(parse_error("").find("f.json:1:1: error: the file is empty") == 0);
  CHECK(parse_error("# a comment\n").find("f.json:1:1: error: not JSON") == 0);
  for (const char* cut : {"{\"a\": [1, 2", "{\"a\": \"b", "{\"a\": [1, 2\n"}) {
    CHECK(parse_error(cut).find("the file ends in the middle of a value: it is cut short") !=
          std::string::npos);
  }
  CHECK(parse_error("{} {}").find(
            "f.json:1:4: error: the JSON ends before this, and more follows") == 0);
}

TEST_CASE("a value is found at its line by its path") {
  const std::string text = "{\n\"a\": 1,\n\"b\": [\n{\"c\": 2},\n{\"c\":\n3}\n]}";
  CHECK(line_of(text, "a") == 2);
  CHECK(line_of(text, "b") == 3);
  CHECK(line_of(text, "b[0].c") == 4);
  CHECK(line_of(text, "b[1]") == 5);
  CHECK(line_of(text, "b[1].c") == 6);
  CHECK(line_of(text, "b[2]") == 0);
}

TEST_CASE("a member of the wrong type names line and key path") {
  const std::string text = "{\n\"ops\": [\n{\"n\": 1.5, \"t\": 3, \"u\": -1}\n]}";
  const Json json = parse_json(text, "p.json");
  JsonReader root(json, "p.json", 0, "", &text);
  JsonReader op = root.objects("ops").front();
  CHECK(error_of([&op] { (void)op.integer("n"); }) ==
        "p.json:3: error: ops[0].n: expected an integer of 64 bits, found 1.5");
  CHECK(error_of([&op] { (void)op.text("t"); }) ==
        "p.json:3: error: ops[0].t: expected a text, found 3");
  CHECK(error_of([&op] { (void)op.number("none"); }) == "p.json:3: error: ops[0].none: missing");
  CHECK(error_of([&op] { (void)op.unsigned_integer("u"); }) ==
        "p.json:3: error: ops[0].u: expected an integer of 64 bits, not negative, found -1");
  CHECK(error_of([&root] { (void)root.number("ops"); }) ==
        "p.json:2: error: ops: expected a finite number, found an array");
  CHECK(op.number("n") == 1.5);
  CHECK(op.integer_or("none", 7) == 7);
}

TEST_CASE("another kind or version of file is refused") {
  const auto check = [](const std::string& format) {
    const Json json = {{"format", format}};
    JsonReader reader(json, "profile.json", 0, "");
    return error_of([&reader] { reader.require_format("stepsim-profile/1"); });
  };
  CHECK(check("stepsim-profile/1") == "no error");
  CHECK(check("stepsim-profile/2") ==
        "profile.json: error: format: wrong version: expected stepsim-profile/1, got "
        "'stepsim-profile/2'");
  CHECK(check("stepsim-plan/1") ==
        "profile.json: error: format: wrong file type: expected stepsim-profile/1, got "
        "'stepsim-plan/1'");
}

TEST_CASE("lines are counted, blank ones are skipped") {
  JsonLines lines(written("a.jsonl", "{\"a\":1}\n\n{\"a\":2}"), CutLine::Refuse);
  REQUIRE(lines.next());
  CHECK(lines.line() == 1);
  REQUIRE(lines.next());
  CHECK(lines.line() == 3);
  CHECK(lines.reader().integer("a") == 2);
  CHECK_FALSE(lines.next());
}

TEST_CASE("a last line that was cut off is dropped or refused, as asked for") {
  const std::string path = written("a.jsonl", "{\"a\":1}\n{\"a\":");
  JsonLines dropping(path, CutLine::Drop);
  CHECK(dropping.next());
  CHECK_FALSE(dropping.next());
  CHECK(dropping.dropped_cut_line());
  JsonLines refusing(path, CutLine::Refuse);
  CHECK(refusing.next());
  CHECK(error_of([&refusing] { (void)refusing.next(); }) ==
        path + ":2: error: the last line is cut off");
}

TEST_CASE("lines are whole wherever the pieces end in which a file is read") {
  constexpr int kPiece = 1 << 16;
  for (const int size : {kPiece - 1, kPiece, kPiece + 1, 5 * kPiece / 2}) {
    for (const int last : {0, 1, kPiece}) {
      const std::string first = std::string(static_cast<std::size_t>(size - 3), ' ') + "[1]";
      const std::string second = "[2" + std::string(static_cast<std::size_t>(last), ' ') + "]";
      CAPTURE(size);
      CAPTURE(last);
      JsonLines lines(written("a.jsonl", first + "\n\n" + second), CutLine::Refuse);
      REQUIRE(lines.next());
      CHECK(lines.text() == first);
      REQUIRE(lines.next());
      CHECK(lines.text() == second);
      CHECK(lines.line() == 3);
      CHECK_FALSE(lines.next());
    }
  }
}

TEST_CASE("a damaged line before the end is refused in either case") {
  JsonLines lines(written("a.jsonl", "{\"a\":\n{\"a\":1}\n"), CutLine::Drop);
  CHECK(error_of([&lines] { (void)lines.next(); }).find("a.jsonl:1:6: error: ") !=
        std::string::npos);
}

TEST_CASE("a number is printed so that it reads back the same") {
  test::RandomValues draw(1);
  for (int i = 0; i < 1000; ++i) {
    const double value = draw.real();
    CHECK(parse_json(json_number(value), "x").get<double>() == value);
  }
  CHECK_THROWS_AS((void)json_number(std::nan("")), std::domain_error);
}

TEST_CASE("reading says what the system says") {
  CHECK(error_of([] { (void)read_text("/nonexistent/x"); }) ==
        "cannot read /nonexistent/x: No such file or directory");
  CHECK(error_of([] { (void)read_text("/"); }) ==
        "cannot read /: it is a folder; name a file in it");
}

TEST_CASE("writing replaces a file and leaves no temporary one") {
  const std::string path = written("a.txt", "old");
  write_text_atomically(path, "new");
  CHECK(content(path) == "new");
  CHECK(files_beside(path) == 1);
}

TEST_CASE("a file of the user's that is called like a temporary one stays") {
  const std::string path = written("a.txt", "old");
  std::ofstream(path + ".tmp") << "mine";
  write_text_atomically(path, "new");
  CHECK(content(path) == "new");
  CHECK(content(path + ".tmp") == "mine");
}

TEST_CASE("of two writers of one file the last to finish wins, whole") {
  const std::string path = written("a.txt", "old");
  AtomicFile first(path);
  AtomicFile second(path);
  first.write("first, ");
  second.write("second, ");
  first.write("all of it");
  second.write("all of it");
  second.finish();
  CHECK(content(path) == "second, all of it");
  first.finish();
  CHECK(content(path) == "first, all of it");
  CHECK(files_beside(path) == 1);
}

TEST_CASE("a writer that is killed leaves the old file and nothing else") {
  const std::string path = written("a.txt", "old");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    AtomicFile file(path);
    file.write("half");
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(content(path) == "old");
  CHECK(files_beside(path) == 1);
}

TEST_CASE("through a symbolic link the file behind it is replaced") {
  const std::string path = written("a.txt", "old");
  const std::string link = fresh_folder() + "/link";
  std::filesystem::create_symlink(path, link);
  write_text_atomically(link, "new");
  CHECK(content(path) == "new");
  CHECK(std::filesystem::is_symlink(link));
}

TEST_CASE("a full device is an environment fault, and stays a device") {
  const auto device = full_device();
  if (!device) {
    stepsim::test::skip("no full device that is safe to write to");
    return;
  }
  CHECK(error_of<EnvironmentFault>([&device] { write_text_atomically(*device, "x"); }) ==
        "cannot write " + *device + ": No space left on device");
  CHECK(std::filesystem::is_character_file(*device));
}

TEST_CASE("a pipe is written to and stays a pipe") {
  const std::string path = fresh_folder() + "/pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  write_text_atomically(path, "text");
  std::array<char, 8> read_back{};
  CHECK(read(reader, read_back.data(), read_back.size()) == 4);
  close(reader);
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("when the text does not fit the old file stays and the temporary one goes") {
  const std::string path = written("a.txt", "old");
  {
    const FileSizeLimit limit(1000);
    CHECK(error_of<EnvironmentFault>([&path] {
            write_text_atomically(path, std::string(5000, 'x'));
          }) == "cannot write " + path + ": File too large");
  }
  CHECK(content(path) == "old");
  CHECK(files_beside(path) == 1);
}

TEST_CASE("a folder that is missing or in the way is an environment fault") {
  const std::string folder = fresh_folder();
  CHECK(error_of<EnvironmentFault>([&folder] { write_text_atomically(folder + "/a/b", "x"); }) ==
        "cannot write " + folder + "/a/b: No such file or directory");
  CHECK(error_of<EnvironmentFault>([&folder] { write_text_atomically(folder, "x"); }) ==
        "cannot write " + folder + ": it is a folder; give a file a name in it");
  const std::string file = written("a.txt", "");
  CHECK(error_of<EnvironmentFault>([&file] { write_text_atomically(file + "/b", "x"); }) ==
        "cannot write " + file + "/b: Not a directory");
}

TEST_CASE("a file that is replaced keeps its mode; a read-only one is refused") {
  const auto mode_of = [](const std::string& path) {
    struct stat state {};
    REQUIRE(::stat(path.c_str(), &state) == 0);
    return state.st_mode & 07777;
  };
  for (const mode_t mode : {0600, 0640, 0666, 0755}) {
    CAPTURE(mode);
    const std::string file = written("kept.txt", "old");
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    write_text_atomically(file, "new");
    CHECK(mode_of(file) == mode);
    CHECK(read_text(file) == "new");
  }
  const std::string file = written("mine.txt", "old");
  REQUIRE(::chmod(file.c_str(), 0444) == 0);
  CHECK(error_of<EnvironmentFault>([&file] { write_text_atomically(file, "new"); }) ==
        "cannot write " + file + ": it is read-only; give another name, or chmod u+w");
  CHECK(read_text(file) == "old");
}

TEST_CASE("a file that is known to be none of ours is refused by what it is") {
  const std::vector<std::pair<std::string, std::string>> files = {
      {" \n<html><body>404</body></html>", "this is a web page (HTML)"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"},
      {std::string("\xff\xfe{\0}\0", 6), "this is UTF-16"},
      {"PK\x03\x04...", "this is a zip archive"},
      {"SQLite format 3", "Nsight Systems"},
  };
  for (const auto& one : files) {
    const auto& text = one.first;
    const auto& reason = one.second;
    CAPTURE(reason);
    const std::string path = written("f", text);
    CHECK(error_of([&] { (void)read_text(path); }).find(reason) != std::string::npos);
  }
  CHECK_NOTHROW((void)read_text(written("f", "# version 3 of <html> in a comment\n")));
}

TEST_CASE("two files of JSON lines in one are named as that") {
  const std::string file = "{\"format\":\"x/1\"}\n{\"step\":1}\n";
  JsonLines lines(written("f.jsonl", file + file), CutLine::Drop);
  (void)lines.header("x/1");
  CHECK(lines.next());
  CHECK(error_of([&] { (void)lines.next(); }).find(":3: error: a second header: several files") !=
        std::string::npos);
}
